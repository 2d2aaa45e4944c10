"""Raw lists and results of MCP servers, the hostile ones too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.mcp_tools.answers import MAX_DATA, read_answer
from yiem_nb.mcp_tools.pages import MAX_PAGES, all_pages
from yiem_nb.tools.text import MAX_CHARACTERS

_PIXEL = "iVBORw0KGgo="
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "video"])
_KEYS = st.sampled_from(["text", "data", "mimeType", "resource", "uri", "name"])


def _listed(cursors: list[Any]) -> tuple[list[Any], list[Any]]:
    asked: list[Any] = []

    async def ask(params: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(params.get("cursor"))
        turn = len(asked) - 1
        return {"tools": [{"name": str(turn)}, 7], "nextCursor": cursors[turn % len(cursors)]}

    return asyncio.run(all_pages(ask, "tools")), asked


@pytest.mark.parametrize("last", [None, "", 0, 5, "a"])
def test_a_list_ends_at_a_cursor_that_is_empty_strange_or_repeated(last: Any) -> None:
    found, asked = _listed(["a", last])
    assert asked == [None, "a"]
    assert found == [{"name": "0"}, {"name": "1"}]


def test_a_list_without_end_is_left_after_a_hundred_pages() -> None:
    _, asked = _listed([str(number) for number in range(2 * MAX_PAGES)])
    assert len(asked) == MAX_PAGES == 100


def test_text_images_and_errors_come_as_they_are() -> None:
    image = {"type": "image", "data": _PIXEL, "mimeType": "image/png"}
    result = read_answer({"content": [{"type": "text", "text": "no"}, image], "isError": True})
    assert [block.type for block in result.content] == ["text", "image"]
    assert result.text == "no"
    assert result.is_error


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "video"}, "not known: video"),
        ({"type": "audio", "mimeType": "audio/wav"}, "audio/wav"),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "hello"}}, "[a:b]\nhello"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "AA=="}}, "is no text"),
        ({"type": "resource_link", "name": "n", "uri": "a:b"}, "n a:b"),
        ({"type": "image", "data": "?", "mimeType": "image/png"}, "no Base64"),
        ({"type": "image", "data": _PIXEL, "mimeType": "image/tiff"}, "image/tiff"),
        ({"type": "image", "data": "A" * (MAX_DATA + 4), "mimeType": "image/png"}, "too large"),
        ("garbage", "not known"),
    ],
)
def test_what_no_model_reads_is_a_sentence(part: Any, said: str) -> None:
    assert said in read_answer({"content": [part]}).text


def test_structured_content_is_read_where_there_is_no_text() -> None:
    result = read_answer({"content": [], "structuredContent": {"a": 1}})
    assert result.text == '{"a": 1}'
    assert result.details == {"structured": {"a": 1}}
    both = {"content": [{"type": "text", "text": "one"}], "structuredContent": {"a": 1}}
    assert read_answer(both).text == "one"


def test_a_result_without_end_is_cut() -> None:
    huge = read_answer({"structuredContent": "x" * (MAX_DATA + 1)})
    assert len(huge.text) <= MAX_CHARACTERS
    assert huge.details is None


def test_images_that_are_too_much_together_are_left_out() -> None:
    half = {"type": "image", "data": "AAAA" * (MAX_DATA // 7), "mimeType": "image/png"}
    result = read_answer({"content": [half, half]})
    assert [block.type for block in result.content] == ["text", "image"]
    assert "too large" in result.text


@given(st.lists(st.dictionaries(_KEYS, _JSON), max_size=4), _KINDS, _JSON)
def test_no_answer_of_a_server_raises(parts: list[dict[str, Any]], kind: str, more: Any) -> None:
    content = [part | {"type": kind} for part in parts]
    assert read_answer({"content": content, "structuredContent": more, "isError": more}).content
