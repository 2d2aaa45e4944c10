"""Everything that touches IPython and ipykernel: threads, interrupts, cells, the notebook."""
