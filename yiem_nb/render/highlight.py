"""Code in colour, in few bytes (pure; Pygments is imported with the first fence).

Only four kinds of token are told apart. Their colours are the host's own variables, named once by the
bundle's wrapper (`yiem_nb.render.view`); where the host has none the text keeps its colour, and weight
and slant still carry the difference.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from markdown_it.common.utils import escapeHtml

__all__ = ["PALETTE", "highlighted"]

#: Custom properties that the spans below refer to.
PALETTE = (
    "--yk:var(--jp-mirror-editor-keyword-color,inherit);"
    "--ys:var(--jp-mirror-editor-string-color,inherit);"
    "--yn:var(--jp-mirror-editor-number-color,inherit);"
    "--yc:var(--jp-mirror-editor-comment-color,inherit)"
)
_STYLES = (
    ("Keyword", "color:var(--yk);font-weight:bold"),
    ("Comment", "color:var(--yc);font-style:italic"),
    ("Literal.String", "color:var(--ys)"),
    ("Literal.Number", "color:var(--yn)"),
    ("Operator.Word", "color:var(--yk);font-weight:bold"),
)
#: Longer code is shown plain: a lexer may be slower than linear.
MAX_CHARACTERS = 100_000


def highlighted(code: str, language: str) -> str:
    """Escape `code` and mark its keywords, strings, numbers and comments."""
    lexer = _lexer(language.strip().lower()) if language and len(code) <= MAX_CHARACTERS else None
    if lexer is None:
        return escapeHtml(code)
    parts: list[str] = []
    style: str | None = None
    for kind, text in lexer.get_tokens(code):
        wanted = _style(str(kind).removeprefix("Token.")) if text.strip() else style
        if wanted != style:
            parts.append(
                ("</span>" if style else "") + (f'<span style="{wanted}">' if wanted else "")
            )
            style = wanted
        parts.append(escapeHtml(text))
    if style:
        parts.append("</span>")
    return "".join(parts)


def _style(kind: str) -> str | None:
    return next((style for name, style in _STYLES if kind.startswith(name)), None)


@lru_cache(maxsize=32)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
