"""No text that goes to the model is above its cap, for every kind of result; the whole of it is kept."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pydantic import BaseModel
from tests.factories import tool
from tests.test_tool_faults import Kernel
from yiem_nb.messages import AgentToolResult, ImageContent, TextContent
from yiem_nb.session import BlobStore
from yiem_nb.state import tools_by_name
from yiem_nb.tools.governor import MAX_IMAGE_BYTES, MAX_IMAGES, MAX_RESULT, MAX_SAVED

BIG = 300_000


class Wide(BaseModel):
    text: str = "w" * BIG
    items: list[int] = list(range(BIG))


class Markdown:
    def _repr_markdown_(self) -> str:
        return "*m* " * BIG


class Bundle:
    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": "b" * BIG, "text/html": "<b>" * BIG}


class Spoken:
    def __repr__(self) -> str:
        return "s" * BIG


def _raising() -> None:
    raise ValueError("e" * BIG)


def _printing() -> None:
    print("p" * BIG)


def _printing_and_returning() -> str:
    print("p" * BIG)
    return "r" * BIG


def _yielding() -> Iterator[str]:
    yield "y" * BIG
    yield "z" * BIG


def _figure() -> Any:
    mpl.use("agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(60, 60))
    figure.add_subplot().plot(range(100))
    return figure


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(7).integers(0, 255, (1500, 1500, 3), "uint8")).save(
        buffer, "PNG"
    )
    return buffer.getvalue()


ROWS: dict[str, Any] = {
    "text": lambda: "t" * BIG,
    "nothing": lambda: None,
    "dictionary": lambda: dict.fromkeys(range(BIG), "v"),
    "list": lambda: list(range(BIG)),
    "model": Wide,
    "table": lambda: pd.DataFrame({f"column {n}" * 50: ["c" * 500] * 200 for n in range(200)}),
    "series": lambda: pd.Series(["c" * 5_000] * 200),
    "array": lambda: np.zeros((500, 500)),
    "figure": _figure,
    "picture": lambda: Image.new("RGB", (5_000, 5_000)),
    "bytes of a picture": _png,
    "bytes": lambda: b"b" * BIG,
    "markdown": Markdown,
    "bundle": Bundle,
    "repr": Spoken,
    "generator": _yielding,
    "exception": _raising,
    "prints": _printing,
    "prints and a value": _printing_and_returning,
    "tables in a list": lambda: [pd.DataFrame({"a": ["c" * 9_000] * 50})] * 8,
    "its own result": lambda: AgentToolResult([TextContent("o" * BIG)] * 5),
    "its own pictures": lambda: AgentToolResult([ImageContent("a" * 9_000_000, "image/png")] * 9),
}


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.bridge.thread.stop()


@pytest.mark.requirement("SPEC-3.2")
@pytest.mark.parametrize("row", ROWS)
def test_no_text_is_above_its_cap(kernel: Kernel, row: str) -> None:
    make = ROWS[row]

    def f() -> Any:
        """F."""
        return make()

    def g() -> Any:
        """G."""
        yield from make()

    result = kernel.told(g if row == "generator" else f)
    images = [block for block in result.content if isinstance(block, ImageContent)]
    assert 0 < len(result.text) <= MAX_RESULT
    assert len(images) <= MAX_IMAGES
    assert all(len(image.data) * 3 // 4 <= MAX_IMAGE_BYTES for image in images)
    if row == "exception":
        assert len(result.text) <= 4_000


@pytest.mark.parametrize(
    ("row", "whole"),
    [
        ("text", "t" * BIG),
        ("prints", "p" * BIG),
        ("its own result", "\n".join(["o" * BIG] * 5)),
        ("markdown", "*m* " * BIG),
    ],
)
def test_the_whole_of_what_was_cut_is_kept_and_named(
    kernel: Kernel, tmp_path: Path, row: str, whole: str
) -> None:
    kernel.registry.store = BlobStore(lambda: tmp_path / "n.yiem.jsonl")

    def f() -> Any:
        """F."""
        return ROWS[row]()

    kernel.options = {"store": kernel.registry.store}
    result = kernel.told(f)
    saved = result.details["saved"]
    assert f"all in {saved['path']}" in result.text
    assert (tmp_path / saved["path"]).read_text() == whole


def test_of_an_endless_text_the_beginning_is_kept(kernel: Kernel, tmp_path: Path) -> None:
    kernel.registry.store = BlobStore(lambda: tmp_path / "n.yiem.jsonl")
    result = kernel.told(lambda: "x" * (MAX_SAVED + 1), description="F.")
    assert f"the first {MAX_SAVED:,} characters in n.yiem.files/" in result.text
    assert (tmp_path / result.details["saved"]["path"]).stat().st_size == MAX_SAVED


def test_of_two_tools_of_one_name_the_second_is_offered_and_that_is_said() -> None:
    one, two = tool("work"), tool("work")
    with pytest.warns(UserWarning, match="Two tools are named 'work'"):
        assert tools_by_name([one, two]) == {"work": two}
    assert tools_by_name([one, one]) == {"work": one}
