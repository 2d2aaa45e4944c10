"""An export as one HTML page (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from yiem_nb.messages import ImageContent
from yiem_nb.render.markdown import render_html
from yiem_nb.render.text import cleaned, visible
from yiem_nb.render.view import call_bundle, html_of, notice_bundle, thinking_bundle
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

__all__ = ["html_document"]

#: Of one output; a browser shows more only slowly.
MAX_CHARACTERS = 1_000_000
_HEADING = re.compile(r"<(/?)h([1-6])>")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root{color-scheme:light dark;--ink:#1c1c1c;--quiet:#595959;--line:#d4d4d4;--paper:#fff;--code:#f5f5f5;
--link:#0b57d0;--jp-ui-font-color2:var(--quiet);--jp-mirror-editor-keyword-color:#7a1fa2;
--jp-mirror-editor-string-color:#8b1a1a;--jp-mirror-editor-number-color:#00695c;
--jp-mirror-editor-comment-color:#4f6b57;--jp-code-padding:0}
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--quiet:#a8a8a8;--line:#474747;--paper:#161616;
--code:#222;--link:#8ab4f8;--jp-mirror-editor-keyword-color:#d7a6f5;--jp-mirror-editor-string-color:#f2a7a0;
--jp-mirror-editor-number-color:#80cbc4;--jp-mirror-editor-comment-color:#9dbfa6}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
header,main,footer{max-width:48rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:1rem 0 .25rem}h2{font-size:1.1rem;margin:2.5rem 0 .5rem}
h3,h4,h5,h6{font-size:1rem;margin:1rem 0 .25rem}
.who{font-size:.9rem;margin:0 0 .25rem;color:var(--quiet);font-weight:600}
a{color:var(--link)}a:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.quiet{color:var(--quiet);font-size:.9rem}
article{border-top:1px solid var(--line);padding:1rem 0}
.prompt{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--line);padding-left:.75rem;margin-bottom:.75rem}
pre,code{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:var(--code);padding:.5rem .75rem;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere}
table{border-collapse:collapse;display:block;overflow-x:auto}th,td{border:1px solid var(--line);padding:.2rem .6rem}
img{max-width:100%;height:auto}blockquote{margin-left:0;padding-left:1rem;border-left:3px solid var(--line)}
nav ul{padding-left:1.2rem}
@media print{body{font-size:11pt}header,main,footer{max-width:none;padding:0}article{break-inside:auto}
h2,h3,.who{break-after:avoid}pre{max-height:none!important}details::details-content{content-visibility:visible;block-size:auto}}
"""


def html_document(document: Document) -> str:
    """Write a page without script, that loads nothing, for screens and for paper."""
    title = escape(visible(cleaned(document.title)))
    facts = " · ".join(escape(visible(cleaned(fact))) for fact in document.facts)
    chapters = "".join(_chapter(chapter) for chapter in document.chapters)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{title}</h1><p class="quiet">{facts}</p></header>\n'
        f"<main>\n{chapters or '<p>Nothing was said.</p>'}\n</main>\n</body>\n</html>\n"
    )


def _chapter(chapter: Chapter) -> str:
    parts = []
    if chapter.heading:
        back = (
            f' <a class="quiet" href="#{chapter.back}">where it forked</a>' if chapter.back else ""
        )
        parts.append(f"<h2>{chapter.heading}{back}</h2>")
    level = 3 if chapter.heading else 2
    parts += [f"<article>{part}</article>\n" for part in _exchanges(chapter.pieces, level)]
    if chapter.ways:
        ways = "".join(
            f'<li><a href="#{way.anchor}">{escape(visible(cleaned(way.words)))}</a>'
            f"{' (current)' if way.current else ''}</li>"
            for way in chapter.ways
        )
        parts.append(
            f'<nav aria-label="Branches from here"><p class="quiet">It goes on in'
            f" {len(chapter.ways)} branches:</p><ul>{ways}</ul></nav>\n"
        )
    return f'<section id="{chapter.anchor}">\n{"".join(parts)}</section>\n'


def _exchanges(pieces: Sequence[Piece], level: int) -> Iterator[str]:
    """Join each prompt and what follows it; `level` is that of its heading."""
    parts: list[str] = []
    for piece in pieces:
        if isinstance(piece, Prompt) and parts:
            yield "".join(parts)
            parts = []
        parts.append(_piece(piece, level))
    if parts:
        yield "".join(parts)


def _piece(piece: Piece, level: int) -> str:
    match piece:
        case Prompt():
            label = f" · ★ {escape(visible(cleaned(piece.label)))}" if piece.label else ""
            words = escape(visible(cleaned(piece.text)))
            time = f" · {piece.time}" if piece.time else ""
            text = f'<div class="prompt">{words}</div>' if words else ""
            heading = f'<h{level} class="who">Prompt{label}{time}</h{level}>'
            return f"{heading}{text}{_images(piece.images, 'in the prompt')}"
        case Answer():
            text = _words(piece.text, level) if piece.text else ""
            return f"{text}{_images(piece.images, 'in the answer')}"
        case Thought():
            return thinking_bundle(piece.text)["text/html"]
        case Call():
            fold = call_bundle(piece.view, MAX_CHARACTERS)["text/html"]
            return f"{fold}{_images(piece.images, f'from {piece.view.name}')}"
        case Summary():
            fold = _words(piece.text, level)
            return f"<details open><summary>{piece.title}</summary>{fold}</details>"
        case Line():
            return notice_bundle(piece.text)["text/html"]


def _words(markdown: str, level: int) -> str:
    """Render words; their headings stand below the one they belong to."""

    def below(tag: re.Match[str]) -> str:
        return f"<{tag[1]}h{min(int(tag[2]) + level, 6)}>"

    # What a text says of tags is escaped: these are the renderer's own.
    return html_of(_HEADING.sub(below, render_html(markdown)))


def _images(images: Sequence[ImageContent], where: str) -> str:
    return "".join(_image(image, number, where) for number, image in enumerate(images, 1))


def _image(image: ImageContent, number: int, where: str) -> str:
    name = escape(visible(cleaned(f"image {number} {where}")))
    url = image_url(image)
    if url is None:
        return f'<p class="quiet">{name}: it is of a kind that is not shown</p>'
    return f'<p><img alt="{name}" src="{url}"></p>'
