"""Names and definitions of the tools of MCP servers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.mcp_tools.names import tool_name, tool_names
from yiem_nb.mcp_tools.pins import difference, fingerprint, label_of

_WORDS = st.text("ab-_./é\ud800", max_size=70)
_TOOL = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}


def test_a_name_says_server_and_tool() -> None:
    assert tool_name("files", "read_file") == "mcp__files__read_file"
    assert tool_name("my-files", "read.file") == "mcp__my_files__read_file"


@given(st.lists(st.tuples(_WORDS, _WORDS)))
def test_every_tool_has_a_name_of_its_own_that_providers_take(keys: list[tuple[str, str]]) -> None:
    names = tool_names(keys)
    assert names.keys() == set(keys)
    assert len(set(names.values())) == len(names)
    assert all(re.fullmatch(r"mcp__[a-zA-Z0-9_]{0,59}", name) for name in names.values())
    assert names == tool_names(reversed(keys))


def test_tools_that_would_share_a_name_both_end_in_a_hash() -> None:
    names = tool_names([("a", "b-c"), ("a", "b.c"), ("a", "d")])
    assert names["a", "d"] == "mcp__a__d"
    assert all(re.fullmatch(r"mcp__a__b_c_[0-9a-f]{8}", names["a", t]) for t in ("b-c", "b.c"))


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    first, second = (tool_name("server", "x" * 80 + end) for end in "12")
    assert len(first) == len(second) == 64
    assert first != second


@pytest.mark.parametrize(
    "change",
    [
        {"name": "write"},
        {"title": "Read"},
        {"label": "Read"},
        {"description": "Reads.\u200b"},
        {"inputSchema": {"type": "object", "properties": {"path": {}}}},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_a_changed_definition_has_another_fingerprint_and_shows_what(
    change: dict[str, Any],
) -> None:
    assert fingerprint(_TOOL | change) != fingerprint(_TOOL)
    shown = difference(_TOOL, _TOOL | change)
    assert "approved" in shown
    assert shown.isascii()


def test_order_and_hidden_fields_change_nothing() -> None:
    same = dict(reversed(_TOOL.items())) | {"_meta": {"x": 1}, "title": None}
    assert fingerprint(same) == fingerprint(_TOOL)
    assert difference(_TOOL, same) == ""


def test_a_label_is_the_first_that_says_something() -> None:
    whole = _TOOL | {"title": "T", "annotations": {"title": "A"}, "label": "L"}
    assert label_of(whole) == "T"
    assert label_of(whole | {"title": " "}) == "A"
    assert label_of(whole | {"title": None, "annotations": {}}) == "L"
    assert label_of(_TOOL) == "read"
