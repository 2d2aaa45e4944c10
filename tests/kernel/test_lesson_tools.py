"""The lesson about tools runs as it stands, headless, twice in a row, without a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.kernel,
    # Third-party notices of the notebook machinery, not ours to act on.
    pytest.mark.filterwarnings("ignore"),
]
LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "02-your-functions-as-tools.ipynb"


def test_the_lesson_about_tools_runs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(LESSON, tmp_path)
    monkeypatch.setenv("YIEM_NOTEBOOK", str(tmp_path / LESSON.name))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    for _ in range(2):
        notebook = nbformat.read(tmp_path / LESSON.name, 4)
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
        shown = {
            cell.id: "\n".join(
                output.get("text") or output.get("data", {}).get("text/plain", "")
                for output in cell.outputs
            )
            for cell in notebook.cells
            if cell.cell_type == "code"
        }
        assert "price_of(country, years)  Price of a house, in euros." in shown["list"]
        assert "years = 5  (int)" in shown["test"]
        assert "253,881 euros" in shown["ask"]
        assert "scripted (no model)" in shown["ask"]
        assert "land" in shown["mend"]
        assert "KeyError: 'Atlantis'" in shown["mend"]
        assert "252,000 euros" in shown["mend"]
        assert "→ 2 items" in shown["use-var"]
        assert "converged" in shown["use-progress"]
        assert "still running" in shown["use-progress"]
        assert "slow: running for" in shown["threads"]
        assert "not allowed" in shown["use-leave"]
        assert shown["deleted"] == "[]"
        assert "delete is no longer offered to the model" in shown["change"]
        assert "▸ variables() → " in shown["use-built-in"]
    assert not any(cell.get("outputs") for cell in nbformat.read(LESSON, 4).cells)
