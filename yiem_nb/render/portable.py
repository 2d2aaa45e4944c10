"""Markdown for hosts that render it themselves (pure).

JupyterLab's own Markdown fetches remote images and lets raw HTML through its sanitiser. So in the
``text/markdown`` that goes out beside our HTML no image is left that loads from elsewhere, and no tag;
all else stays byte for byte.

Only code may keep a tag, and only where every reader agrees that it is code: our mathematics is
unknown to other hosts; a tag that opens a line may end a paragraph and the code span in it; a
table's cells end code spans that its row would close; where bare addresses are links (GitHub's
Markdown), one takes the backtick or the backslash that follows it; and parsers differ in what an
indented line is, somewhere below a list, a quote or a table or right below another line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token

from yiem_nb.render.markdown import MAX_NESTING, is_safe_image, math_end
from yiem_nb.render.text import cleaned

__all__ = ["closed_markdown", "safe_markdown"]

_AUTOLINK = re.compile(r"<(?:https?://[^\s<>`]+|[\w.+-]+@[\w.-]+)>")
_IMAGE = re.compile(r"!\[[^\[\]`<\\]*\]\(([^\s()<>]+)\)")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_SPECIAL = re.compile(r"[\\`$]|!\[|<(?=[A-Za-z/!?])")
_TICK_IN_ADDRESS = re.compile(r"(?:https?://|ftp://|www\.)[^\s<`]*`", re.IGNORECASE)
_TICKS = re.compile("`+")


_Kind: TypeAlias = Literal["code", "table", "text", "between"]
_KINDS: dict[str, _Kind] = {
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "inline": "text",
}
_CONTAINERS = ("bullet_list_open", "ordered_list_open", "blockquote_open", "table_open")


class _Block(NamedTuple):
    """Lines that are one kind of thing."""

    start: int
    end: int
    kind: _Kind


def safe_markdown(markdown: str) -> str:
    """Return `markdown` with remote images turned into links and raw HTML into text."""
    text = cleaned(markdown)
    if "<" not in text and "![" not in text:
        return text
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for block in [
        *_blocks(_parser().parse(text), lines),
        _Block(len(lines), len(lines), "between"),
    ]:
        start, end = max(block.start, position), min(block.end, len(lines))
        if start > position:
            out.append(_neutral("\n".join(lines[position:start]), keep_code=False))
        if end > start:
            out.append(_safe_block("\n".join(lines[start:end]), block.kind))
        position = max(start, end)
    return "\n".join(out)


def closed_markdown(markdown: str) -> str:
    """Return `markdown`, made safe, such that what is written below it stays outside of it.

    A fence that nobody closed would take the rest of a document in, and turn its fences inside out.
    """
    text = safe_markdown(markdown)
    last = _parser().parse(f"{text}\n\nbelow")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else text


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    """Return a parser that sees the blocks other hosts see: it knows no mathematics."""
    markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    markdown.enable("table")
    markdown.core.ruler.disable("inline")
    return markdown


def _blocks(tokens: list[Token], lines: list[str]) -> list[_Block]:
    found = []
    doubt = False
    for token in tokens:
        doubt = doubt or token.type in _CONTAINERS
        kind = _KINDS.get(token.type)
        if token.map is not None and kind is not None:
            start, end = token.map
            if token.type == "code_block" and (doubt or lines[start - 1 : start] not in ([], [""])):
                kind = "between"
            found.append(_Block(start, end, kind))
    return sorted(found)


def _safe_block(text: str, kind: _Kind) -> str:
    if kind == "code":
        return text
    if kind != "table":
        return _neutral(text, keep_code=kind == "text")
    # Hosts differ in what an escaped bar does to the code span it stands in.
    return "\n".join(
        _neutral(row, keep_code=False)
        if "\\|" in row
        else "|".join(_neutral(cell) for cell in row.split("|"))
        for row in text.split("\n")
    )


def _neutral(text: str, *, keep_code: bool = True) -> str:
    """Neutralise a paragraph, leaving its code spans alone with `keep_code`."""
    keep_code = keep_code and _TICK_IN_ADDRESS.search(text) is None
    out: list[str] = []
    position = 0
    while (found := _SPECIAL.search(text, position)) is not None:
        start = found.start()
        end, replacement = _replaced(text, start, keep_code=keep_code)
        out += (text[position:start], replacement)
        position = end
    out.append(text[position:])
    return "".join(out)


def _replaced(text: str, start: int, *, keep_code: bool) -> tuple[int, str]:
    """Say where what begins at `start` ends, and what to write in its place."""
    character = text[start]
    if character == "`":
        end = _code_end(text, start)
        span = text[start:end]
        return end, span if keep_code and "\n" not in span else _broken(span)
    if character == "<":
        link = _AUTOLINK.match(text, start)
        return (link.end(), link.group()) if link else (start + 1, "&lt;")
    if character == "!":
        image = _IMAGE.match(text, start)
        if image is not None and is_safe_image(image.group(1)):
            return image.end(), image.group()
        return start + 2, "\\!["
    end = math_end(text, start, len(text)) or 0
    if end and "`" not in text[start:end]:
        return end, _TAG_START.sub("< ", text[start:end]).replace("![", "! [")
    if character == "$":
        return start + 1, "$"
    # An address that takes the backslash would bare the tag.
    escaped = text[start : start + 2]
    return start + 2, "&lt;" if escaped == "\\<" else escaped


def _broken(span: str) -> str:
    return _TAG_START.sub("&lt;", span).replace("![", "! [")


def _code_end(text: str, start: int) -> int:
    """Find where the code span that a run of backticks opens ends; else where the run ends."""
    run = _TICKS.match(text, start)
    assert run is not None
    length = len(run.group())
    closing = re.compile(rf"(?<!`)`{{{length}}}(?!`)").search(text, run.end())
    return closing.end() if closing else run.end()
