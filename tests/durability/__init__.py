"""Programs that try to make a session lose something; each takes a count.

The test suite runs a share of each, ``python -m tests.durability NAME COUNT`` the rest.
"""
