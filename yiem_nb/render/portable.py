"""Markdown for hosts that render it themselves (pure).

JupyterLab's own Markdown fetches remote images and lets raw HTML through its sanitiser. So in the
``text/markdown`` that goes out beside our HTML no image is left that loads from elsewhere, and no tag;
all else stays byte for byte.
"""

from __future__ import annotations

import re

from markdown_it.token import Token

from yiem_nb.render.markdown import is_safe_image, math_end, parser
from yiem_nb.render.text import cleaned

__all__ = ["safe_markdown"]

_AUTOLINK = re.compile(r"<(?:https?://[^\s<>`]+|[\w.+-]+@[\w.-]+)>")
_IMAGE = re.compile(r"!\[[^\[\]`]*\]\(([^\s()<>]+)\)")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")


def safe_markdown(markdown: str) -> str:
    """Return `markdown` with remote images turned into links and raw HTML into text."""
    text = cleaned(markdown)
    if "<" not in text and "![" not in text:
        return text
    lines = text.split("\n")
    out: list[str] = []
    position = 0
    for start, end, is_code in _blocks(parser().parse(text), len(lines)):
        if start > position:
            out.append(_neutral("\n".join(lines[position:start])))
        if end > max(start, position):
            block = "\n".join(lines[max(start, position) : end])
            out.append(block if is_code else _neutral(block))
        position = max(position, end)
    if position < len(lines):
        out.append(_neutral("\n".join(lines[position:])))
    return "\n".join(out)


def _blocks(tokens: list[Token], count: int) -> list[tuple[int, int, bool]]:
    """Line ranges of the leaf blocks, and whether each is code."""
    found = []
    for token in tokens:
        if token.map is None or token.type not in ("inline", "fence", "code_block", "math_block"):
            continue
        found.append(
            (token.map[0], min(token.map[1], count), token.type in ("fence", "code_block"))
        )
    return sorted(found)


def _neutral(text: str) -> str:
    """Neutralise one block, leaving its code spans alone."""
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and (end := math_end(text, position, len(text))) is None:
            end = position + 2
            out.append(text[position:end])
        elif character == "`":
            end = _code_end(text, position)
            out.append(text[position:end])
        elif character in "$\\" and (end := math_end(text, position, len(text))) is not None:
            out.append(_TAG_START.sub("< ", text[position:end]).replace("![", "! ["))
        elif character == "<" and _TAG_START.match(text, position):
            link = _AUTOLINK.match(text, position)
            end = link.end() if link else position + 1
            out.append(link.group() if link else "&lt;")
        elif text.startswith("![", position):
            image = _IMAGE.match(text, position)
            safe = image is not None and is_safe_image(image.group(1))
            end = image.end() if image is not None and safe else position + 2
            out.append(text[position:end] if safe else "\\![")
        else:
            end = position + 1
            out.append(character)
        position = end
    return "".join(out)


def _code_end(text: str, start: int) -> int:
    """Find where the code span that a run of backticks opens ends; else where the run ends."""
    run = re.match("`+", text[start:])
    assert run is not None
    length = len(run.group())
    closing = re.compile(rf"(?<!`)`{{{length}}}(?!`)")
    found = closing.search(text, start + length)
    return found.end() if found else start + length
