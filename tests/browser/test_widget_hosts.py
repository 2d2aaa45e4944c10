"""Pages that cannot show the widget."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.browser.lab import lab
from tests.browser.scenes import opened, run_cell, wait_run
from tests.fake_openai import text

pytestmark = pytest.mark.browser


def test_a_page_without_the_extension_has_words_and_plain_cells(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    with (
        lab(root, without=["anywidget"]) as other,
        opened(other, "bare", ["%%yiem\nAsk"], text("Plain."), chat=True),
    ):
        for number in (0, 1, 2):
            run_cell(other, number)
            wait_run(other, number)
        shown = other.outputs()
        assert "pip install anywidget" in shown[1]
        assert "Plain." in shown[2]
        assert other.page.locator(".yiem-root").count() == 0
