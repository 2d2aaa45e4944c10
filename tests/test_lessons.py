"""The lesson on the embedded model runs as it stands, headless, twice in a row."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.model,
    # Third-party notices of the notebook machinery, not ours to act on.
    pytest.mark.filterwarnings("ignore"),
]
LESSONS = Path(__file__).resolve().parent.parent / "notebooks"


@pytest.mark.parametrize("name", ["01-first-steps.ipynb"])
def test_a_lesson_runs_twice(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(LESSONS / name, tmp_path)
    monkeypatch.setenv("YIEM_NOTEBOOK", str(tmp_path / name))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    for round_number in (1, 2):
        notebook = nbformat.read(tmp_path / name, 4)
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
        shown = {
            cell.id: "\n".join(
                output.get("text") or output.get("data", {}).get("text/plain", "")
                for output in cell.outputs
            )
            for cell in notebook.cells
            if cell.cell_type == "code"
        }
        assert "smollm2-135m · on this machine" in shown["load"]
        assert " out · " in shown["ask"]
        assert "price_of" in shown["tools"]
        assert f"{Path(name).stem}.yiem.jsonl" in shown["session"]
        if round_number == 1:
            assert "Paris" in shown["ask"]
            assert '▸ price_of(country="Portugal") → 252,000 euros' in shown["call"]
            assert "252,000" in shown["call"].split("\n", 1)[1]
    assert not any(cell.get("outputs") for cell in nbformat.read(LESSONS / name, 4).cells)
