"""What a function returned → what the model reads, within its limits."""

import base64
import dataclasses
import io
import itertools
import json
import math
import sys
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr
from yiem_nb.errors import InvalidParametersError, keep_secret
from yiem_nb.messages import AgentToolResult, ImageContent, TextContent
from yiem_nb.tools import reprs
from yiem_nb.tools.failures import MAX_FRAMES, failure_result
from yiem_nb.tools.results import MAX_CHARACTERS, MAX_IMAGE_BYTES, to_result

_PNG = b"\x89PNG\r\n\x1a\n123"


def _images(result: AgentToolResult) -> list[ImageContent]:
    return [block for block in result.content if isinstance(block, ImageContent)]


class _Raises:
    def __repr__(self) -> str:
        raise SystemExit(3)


class _Endless:
    def __repr__(self) -> str:
        while True:
            pass


class _Interrupted:
    def __repr__(self) -> str:
        raise KeyboardInterrupt


class _Huge:
    def __repr__(self) -> str:
        return "x" * 1_000_000


@dataclasses.dataclass
class _Pair:
    left: int
    right: Any


class _Secretive(BaseModel):
    key: SecretStr
    other: Any = None


class _Point(NamedTuple):
    x: int
    y: int


_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)
_DEEP: Any = []
for _ in range(10_000):
    _DEEP = [_DEEP]


@pytest.mark.requirement("SPEC-3.2")
@pytest.mark.parametrize(
    ("value", "text", "summary"),
    [
        (None, "(no output)", ""),
        ("", "(no output)", ""),
        ("two\nlines", "two\nlines", "two lines"),
        ("x" * 50, "x" * 50, "50 characters"),
        ("\ud800", "?", "?"),
        (5, "5", "5"),
        (True, "true", "true"),
        (math.nan, "NaN", "NaN"),
        (10**5000, "<int of 16,610 bits>", "<int of 16,610 bits>"),
        ([1, "é"], '[1,"é"]', "2 items"),
        ({"n": math.inf, (1, 2): None, 3: 4}, '{"n":Infinity,"[1, 2]":null,"3":4}', "3 items"),
        ({7}, "[7]", "[7]"),
        (_Point(1, 2), '{"x":1,"y":2}', "2 items"),
        (_Pair(1, [2]), '{"left":1,"right":[2]}', '{"left":1,"right":[2]}'),
        (_Secretive(key="hunter22"), '{"key":"**********","other":null}', None),
        (date(2026, 1, 2), "2026-01-02", "2026-01-02"),
        (np.int64(3), "3", "3"),
        ({"n": np.float32(2.5)}, '{"n":2.5}', '{"n":2.5}'),
        (_CYCLE, '["[[[[[[[...]]]]]]]"]', None),
        (_DEEP, "[" * 30 + '"…"' + "]" * 30, None),
        (itertools.count(), "count(0)", "count(0)"),
        ({"it": itertools.count()}, '{"it":"count(0)"}', None),
        (_Raises(), "<_Raises whose repr raises SystemExit>", None),
        (b"abc", "3 bytes, sha256 ba7816bf8f01cfea…, beginning with b'abc'", "3 bytes"),
        ({"b": b"\xff"}, '{"b":"b\'\\\\xff\'"}', None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_said_in_few_tokens(value: Any, text: str, summary: str | None) -> None:
    result = to_result(value)
    assert result.text == text
    assert result.details["type"] == type(value).__name__
    assert summary is None or result.details["summary"] == summary
    json.dumps(result.details)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        list(range(100_000)),
        dict.fromkeys(range(20000), "x" * 100),
        ["x" * 100_000] * 3,
        _Huge(),
        [_Huge()] * 100,
        pd.DataFrame(np.zeros((2_000, 300))),
        pd.DataFrame({"x" * 5_000: ["y" * 100_000] * 50}),
        np.arange(1_000_000),
        b"x" * 1_000_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_text_is_above_its_cap(value: Any) -> None:
    result = to_result(value, printed="p" * 1_000_000)
    assert len(result.text) <= MAX_CHARACTERS + 1
    assert "characters left out" in result.text
    assert len(result.details["summary"]) < 100


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_plain_data_comes_back_from_the_text(value: Any) -> None:
    text = to_result({"value": value}).text
    try:
        value_as_sent = json.loads(json.dumps(value))
    except UnicodeEncodeError:
        return
    assert repr(json.loads(text)["value"]) == repr(value_as_sent)


def test_what_was_printed_comes_first() -> None:
    result = to_result(5, printed="line\n")
    assert result.text == "line\n5"
    assert result.details["output"] == "line\n"
    given = AgentToolResult("said", details={"a": 1})
    assert to_result(given) is given
    assert to_result(given, printed="line\n").text == "line\n\nsaid"
    assert to_result(given, printed="line\n").details == {"output": "line\n", "a": 1}


def test_a_repr_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reprs, "REPR_SECONDS", 0.05)  # instead of a second
    before = sys.gettrace()
    assert to_result([_Endless()]).text == '["<_Endless whose repr does not end>"]'
    assert sys.gettrace() is before


def test_an_interrupt_is_no_failure_of_a_repr() -> None:
    with pytest.raises(KeyboardInterrupt):
        to_result(_Interrupted())


# --- Libraries -----------------------------------------------------------------------------


def test_a_table_is_its_shape_its_types_and_its_head() -> None:
    result = to_result(pd.DataFrame({"city": ["Oslo"] * 14, "days": range(14)}))
    head, columns, *rows = result.text.splitlines()
    assert head == "DataFrame, 14 rows x 2 columns: city str, days int64"
    assert columns.split() == ["city", "days"]
    assert len(rows) == 11
    assert result.details == {"type": "DataFrame", "summary": "14 rows", "shape": [14, 2]}
    assert "… 280 more" in to_result(pd.DataFrame(np.zeros((1, 300)))).text
    assert to_result(pd.Series([1], name="s")).text.startswith("Series 's', 1 row, int64\n")


def test_an_array_is_its_type_its_shape_and_its_range() -> None:
    assert to_result(np.arange(4).reshape(2, 2)).text == (
        "ndarray int64 (2, 2), from 0 to 3\narray([[0, 1],\n       [2, 3]])"
    )
    assert to_result(np.array(["a"])).text.startswith("ndarray <U1 (1,)\n")
    assert to_result(np.array([])).details["shape"] == [0]


def test_a_library_that_fails_is_no_failure_of_the_tool() -> None:
    class Broken(pd.DataFrame):
        @property
        def shape(self) -> tuple[int, int]:
            raise RuntimeError("no shape")

    assert to_result(Broken()).text == "<Broken: describing it raises RuntimeError>"


def test_a_table_beside_something_else_is_described_item_by_item() -> None:
    result = to_result((pd.DataFrame({"a": [1]}), 5, _PNG))
    assert result.text.endswith("\n\n5\n\nAn image (image/png).")
    assert result.details["summary"] == "1 row, 5, image"
    assert len(_images(result)) == 1


def test_a_figure_is_an_image_and_is_shown_once() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(40, 4))
    for value in (figure, axes):
        (image,) = _images(to_result(value))
        width = int.from_bytes(base64.b64decode(image.data)[16:20])
        assert 1_000 < width <= 1_568
    assert pyplot.get_fignums() == []


def test_a_picture_is_made_smaller() -> None:
    pillow = pytest.importorskip("PIL.Image")
    result = to_result(pillow.new("CMYK", (4_000, 1_000)))
    (image,) = _images(result)
    shown = pillow.open(io.BytesIO(base64.b64decode(image.data)))
    assert shown.size == (1_568, 392)
    assert result.details["summary"] == "4000 x 1000 image"


# --- Images and objects that say how they look ------------------------------------------------


def test_bytes_of_an_image_are_an_image_unless_too_large() -> None:
    assert [image.mime_type for image in _images(to_result(b"\xff\xd8\xff1"))] == ["image/jpeg"]
    large = to_result(_PNG + bytes(MAX_IMAGE_BYTES))
    assert _images(large) == []
    assert "too large to show: 5,000,011 bytes" in large.text


def test_an_object_is_asked_how_it_looks() -> None:
    class Png:
        def _repr_png_(self) -> Any:
            return base64.b64encode(_PNG).decode(), {"width": 1}

    class Markdown:
        def _repr_markdown_(self) -> str:
            return "**bold**"

    class Bundle(dict[str, int]):
        def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
            return {"text/html": "<b>", "text/plain": "plain"}, {}

    class Html:
        def _repr_html_(self) -> str:
            return "<b>html</b>"

        def __repr__(self) -> str:
            return "Html()"

    class Fails:
        def _repr_markdown_(self) -> str:
            raise ValueError

        def __repr__(self) -> str:
            return "Fails()"

    class Wrong:
        def _repr_png_(self) -> str:
            return "\N{SNOWMAN}"

        def __repr__(self) -> str:
            return "Wrong()"

    assert to_result(Png()).text == "Png, shown as an image."
    assert _images(to_result(Png()))[0].data == base64.b64encode(_PNG).decode()
    assert to_result(Markdown()).text == "**bold**"
    assert to_result(Bundle(a=1)).text == "plain"
    assert to_result(Html()).text == "Html()"
    assert to_result(Fails()).text == "Fails()"
    assert to_result(Wrong()).text == "Wrong()"


def test_the_formatter_that_is_handed_in_is_asked_instead() -> None:
    shown = {"text/plain": "  ", "text/markdown": "by the formatter", "image/jpeg": b""}
    assert to_result(object(), format=lambda _: (shown, {})).text == "by the formatter"
    assert to_result({"a": 1}, format=lambda _: (shown, {})).text == '{"a":1}'


def test_ipythons_own_formatter_fits() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    result = to_result(object.__new__(_Huge), format=formatters.DisplayFormatter().format)
    assert result.text.startswith("xxx")
    assert len(result.text) <= MAX_CHARACTERS


def test_content_beside_what_a_tool_prints_stays_content() -> None:
    content = [TextContent("a"), ImageContent(base64.b64encode(_PNG).decode(), "image/png")]
    assert len(to_result(AgentToolResult(content), printed="b").content) == 3


# --- Failures --------------------------------------------------------------------------------


def _raised(source: str, filename: str = "/tmp/ipykernel_1/2.py") -> BaseException:
    try:
        exec(compile(source, filename, "exec"), {"base64": base64})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_failure_shows_the_users_lines_and_no_others() -> None:
    error = _raised("def f():\n    base64.b64decode(5)\nf()")
    result = failure_result(error, printed="before\n")
    assert result.text.splitlines() == [
        "before",
        "  cell, line 3, in <module>: ",
        "  cell, line 2, in f: ",
        "TypeError: argument should be a bytes-like object or ASCII string, not 'int'",
    ] or result.text.splitlines()[-1].startswith("TypeError: ")
    assert "base64.py" not in result.text
    assert result.details == {
        "code": "EXECUTION_FAILED",
        "summary": "TypeError",
        "output": "before\n",
    }
    assert result.is_error


def test_a_failure_says_its_cause_its_notes_and_its_group() -> None:
    chain = _raised("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e")
    assert failure_result(chain).text.endswith("ValueError: v\ncaused by KeyError: 'k'")
    hidden = _raised("try:\n    {}['k']\nexcept KeyError:\n    raise ValueError('v') from None")
    assert failure_result(hidden).text.endswith("ValueError: v")
    loop = ValueError("a")
    for _ in range(9):
        loop, loop.__cause__ = ValueError("b"), loop
    assert failure_result(loop).text.count("caused by") == 3
    group = ExceptionGroup("many", [ValueError("a"), KeyError()])
    group.add_note("a note")
    assert failure_result(group).text.splitlines()[1:] == [
        "a note",
        "  - ValueError: a",
        "  - KeyError",
    ]


def test_a_deep_recursion_is_cut_in_the_middle() -> None:
    result = failure_result(_raised("def f(): f()\nf()"))
    lines = result.text.splitlines()
    assert "more …" in lines[1]
    assert len(lines) == MAX_FRAMES + 2
    assert lines[-1].startswith("RecursionError")


def test_a_failure_is_redacted_and_capped() -> None:
    keep_secret("very-secret-value", "MY_KEY")
    text = failure_result(ValueError("very-secret-value " + "x" * 50_000)).text
    assert "very-secret-value" not in text
    assert "[redacted:MY_KEY]" in text
    assert len(text) <= 4_000
    assert len(failure_result(ValueError("y" * 50_000), printed="x" * 50_000).text) <= 4_001


def test_a_failure_whose_text_fails_has_a_name() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_result(Broken()).text == "Broken: <its text raises RuntimeError>"


def test_our_own_errors_keep_their_words_and_their_code() -> None:
    result = failure_result(InvalidParametersError("No.", hint="Try again."))
    assert result.text == "No. → Try again."
    assert result.details["code"] == "INVALID_PARAMETERS"
