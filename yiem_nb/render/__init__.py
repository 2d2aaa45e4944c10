"""Markdown → safe static HTML, and the pieces of an answer as bundles."""

from __future__ import annotations

from yiem_nb.render.markdown import render_html
from yiem_nb.render.portable import safe_markdown
from yiem_nb.render.stream import StreamingMarkdown
from yiem_nb.render.view import (
    Bundle,
    CallState,
    CallView,
    call_bundle,
    footer_bundle,
    html_of,
    notice_bundle,
    seconds_text,
    status_bundle,
    text_bundle,
    thinking_bundle,
)

__all__ = [
    "Bundle",
    "CallState",
    "CallView",
    "StreamingMarkdown",
    "call_bundle",
    "footer_bundle",
    "html_of",
    "notice_bundle",
    "render_html",
    "safe_markdown",
    "seconds_text",
    "status_bundle",
    "text_bundle",
    "thinking_bundle",
]
