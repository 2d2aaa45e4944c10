"""An export as one Markdown text (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from yiem_nb.messages import ImageContent
from yiem_nb.render.portable import closed_markdown
from yiem_nb.render.text import cleaned, clipped, visible
from yiem_nb.render.view import call_line, call_parts
from yiem_nb.session.document import Chapter, Document
from yiem_nb.session.transcript import (
    Answer,
    Call,
    Line,
    Piece,
    Prompt,
    Summary,
    Thought,
    image_url,
)

__all__ = ["markdown_document"]

MAX_CHARACTERS = 1_000_000
_MARKS = re.compile(r"([\\`*_\[\]<>#|~$!&])")


def markdown_document(document: Document) -> str:
    """Write a text that reads well as it stands and on hosts that render it."""
    blocks = [f"# {_plain(document.title)}"]
    if document.facts:
        blocks.append(" · ".join(_plain(fact) for fact in document.facts))
    for chapter in document.chapters:
        blocks += _chapter(chapter)
    if not document.chapters:
        blocks.append("Nothing was said.")
    return "\n\n".join(blocks) + "\n"


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f'<a id="{chapter.anchor}"></a>'
    if chapter.heading:
        yield f"## {chapter.heading}"
        yield f"[where it forked](#{chapter.back})"
    for piece in chapter.pieces:
        yield from _piece(piece)
    if chapter.ways:
        yield f"It goes on in {len(chapter.ways)} branches:"
        yield "\n".join(
            f"- [{_plain(way.words)}](#{way.anchor}){' (current)' if way.current else ''}"
            for way in chapter.ways
        )


def _piece(piece: Piece) -> Iterator[str]:
    match piece:
        case Prompt():
            label = f" · ★ {_plain(piece.label)}" if piece.label else ""
            yield f"### Prompt{label}"
            if piece.text.strip():
                yield _quoted(closed_markdown(piece.text))
            yield from _images(piece.images)
        case Answer():
            if piece.text:
                yield closed_markdown(piece.text)
            yield from _images(piece.images)
        case Thought():
            yield from _fold("thought", [("", piece.text)])
        case Call():
            mark = {"error": "✕ ", "denied": "✕ ", "aborted": "■ "}.get(piece.view.state, "")
            yield from _fold(mark + call_line(piece.view), call_parts(piece.view))
            yield from _images(piece.images)
        case Summary():
            yield f"*{piece.title}*"
            yield _quoted(closed_markdown(piece.text))
        case Line():
            yield _plain(piece.text)


def _fold(title: str, parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    line = escape(visible(" ".join(cleaned(title).split())))
    yield f"<details><summary>{line}</summary>"
    for name, text in parts:
        if name:
            yield name
        yield _fenced(clipped(visible(cleaned(text)), MAX_CHARACTERS))
    yield "</details>"


def _fenced(text: str) -> str:
    """Put a text in a fence that nothing in it closes."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _images(images: Sequence[ImageContent]) -> Iterator[str]:
    for number, image in enumerate(images, 1):
        url = image_url(image)
        yield f"![image {number}]({url})" if url else f"(image {number} is not shown)"


def _plain(text: str) -> str:
    """Write words on one line that no host takes for markup."""
    return _MARKS.sub(r"\\\1", visible(" ".join(cleaned(text).split())))
