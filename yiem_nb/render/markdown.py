"""Markdown from a model → HTML that loads nothing, runs nothing and reads well (pure).

Raw HTML is text. Links go to http, https and mail alone. Images from elsewhere become links, because
a page that fetches ``https://host/?q=secret`` has told the secret. The model chooses no class, id or
style.

Mathematics is left for the host to set: its source reaches the page untouched, in an element of its
own. A dollar that is no mathematics gets an element of its own too, because MathJax joins only what
stands in one text: so prices stay prices.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from yiem_nb.render.highlight import highlighted
from yiem_nb.render.text import cleaned, visible

__all__ = [
    "is_safe_image",
    "is_safe_link",
    "math_end",
    "parser",
    "render_html",
    "render_tokens",
    "words_html",
]

#: Below this the parser stops reading; such a text is shown as it stands.
MAX_NESTING = 100
#: A formula of more lines is text: looking for its end from each of its lines must cost little.
MAX_MATH_LINES = 60
MAX_IMAGE_CHARACTERS = 2_800_000  # 2 MB as Base64
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_Env = MutableMapping[str, Any]
_LINK_ATTRIBUTES = 'rel="noopener noreferrer nofollow" target="_blank"'


def render_html(markdown: str) -> str:
    """Render a whole text.

    Returns
    -------
    str
        HTML whose elements, attributes and addresses are all of our choosing.
    """
    text = cleaned(markdown)
    env: dict[str, Any] = {}
    return render_tokens(parser().parse(text, env), env, text)


def render_tokens(tokens: Sequence[Token], env: _Env, source: str) -> str:
    """Render parsed blocks; `source` in their place where they nest too deep to be read."""
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return f"<pre>{escapeHtml(source)}</pre>\n"
    markdown = parser()
    return str(markdown.renderer.render(tokens, markdown.options, env))


@lru_cache(maxsize=1)
def parser() -> MarkdownIt:
    """Return the one parser, configured."""
    markdown = MarkdownIt(
        "commonmark", {"html": False, "maxNesting": MAX_NESTING}, renderer_cls=_Renderer
    )
    markdown.enable(["table", "strikethrough"])
    markdown.validateLink = _is_known_address  # type: ignore[method-assign]
    markdown.inline.ruler.before("escape", "math", _inline_math)
    markdown.block.ruler.before(
        "fence",
        "math_block",
        _block_math,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    return markdown


# --- Addresses -----------------------------------------------------------------------------


def is_safe_link(url: str) -> bool:
    """Whether a click may go there: http, https with a host, or mail."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (parts.scheme in ("http", "https") and bool(parts.netloc)) or (
        parts.scheme == "mailto" and bool(parts.path)
    )


def is_safe_image(url: str) -> bool:
    """Whether it may be shown: a small raster image that is its own data."""
    return len(url) <= MAX_IMAGE_CHARACTERS and _DATA_IMAGE.fullmatch(url) is not None


def _is_known_address(url: str) -> bool:
    return is_safe_link(url) or is_safe_image(url)


# --- Mathematics ---------------------------------------------------------------------------

_MATH_MARK = re.compile(r"\$|(?<=\\)[(\[]")
_BRACKETS = {"\\(": "\\)", "\\[": "\\]"}


def _inline_math(state: StateInline, silent: bool) -> bool:
    """``$…$``, ``$$…$$``, ``\\(…\\)`` and ``\\[…\\]`` inside a paragraph."""
    end = math_end(state.src, state.pos, state.posMax)
    if end is None:
        return False
    if not silent:
        state.push("math", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def math_end(text: str, start: int, limit: int) -> int | None:
    """Find where the mathematics that begins at `start` ends, or ``None`` if none begins.

    Dollars follow Pandoc's rule: the opening one is followed by something other than space, the
    closing one is preceded by something other than space and not followed by a digit.
    """
    if text.startswith("$$", start):
        close = text.find("$$", start + 2, limit)
        return close + 2 if close > start + 2 else None
    if text.startswith("$", start):
        return _dollar_end(text, start, limit)
    closing = _BRACKETS.get(text[start : start + 2])
    if closing is None:
        return None
    close = text.find(closing, start + 2, limit)
    return close + 2 if close > start + 2 else None


def _dollar_end(text: str, start: int, limit: int) -> int | None:
    if start + 1 >= limit or text[start + 1].isspace():
        return None
    close = text.find("$", start + 1, limit)
    while close != -1:
        before, after = text[close - 1], text[close + 1 : close + 2]
        if before == "\\":
            close = text.find("$", close + 1, limit)
            continue
        if "\n\n" in text[start:close] or before.isspace() or after.isdigit():
            return None
        return close + 1
    return None


def _block_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """``$$`` or ``\\[`` that opens a line, up to its closing mark, over several lines."""
    position = state.bMarks[start] + state.tShift[start]
    opening = state.src[position : position + 2]
    closing = {"$$": "$$", "\\[": "\\]"}.get(opening)
    if closing is None:
        return False
    for line in range(start, min(end, start + MAX_MATH_LINES)):
        if line > start and (state.isEmpty(line) or state.sCount[line] < state.blkIndent):
            return False
        begin = position + 2 if line == start else state.bMarks[line] + state.tShift[line]
        text = state.src[begin : state.eMarks[line]].rstrip()
        if text.endswith(closing) and (line > start or len(text) > len(closing)):
            break
    else:
        return False
    if not silent:
        token = state.push("math_block", "", 0)
        token.content = state.getLines(start, line + 1, state.sCount[start], False).strip()
        token.map = [start, line + 1]
        state.line = line + 1
    return True


# --- HTML ----------------------------------------------------------------------------------


class _Renderer(RendererHTML):
    """Markdown-it's renderer, with our own links, images, code, text and mathematics."""

    def text(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env) -> str:
        return words_html(tokens[index].content)

    def math(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env) -> str:
        return f"<span>{escapeHtml(tokens[index].content)}</span>"

    def math_block(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env
    ) -> str:
        return f"<p>{escapeHtml(tokens[index].content)}</p>\n"

    def code_inline(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env
    ) -> str:
        return f"<code>{escapeHtml(visible(tokens[index].content))}</code>"

    def code_block(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env
    ) -> str:
        return f"<pre><code>{escapeHtml(visible(tokens[index].content))}</code></pre>\n"

    def fence(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env) -> str:
        token = tokens[index]
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        return f"<pre><code>{highlighted(visible(token.content), language)}</code></pre>\n"

    def link_open(
        self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env
    ) -> str:
        url = str(tokens[index].attrGet("href") or "")
        if not is_safe_link(url):
            return "<a>"
        return f'<a href="{escapeHtml(url)}" {_LINK_ATTRIBUTES}>'

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: _Env) -> str:
        token = tokens[index]
        url = str(token.attrGet("src") or "")
        alt = self.renderInlineAsText(token.children, options, env).strip()
        if is_safe_image(url):
            return f'<img src="{escapeHtml(url)}" alt="{escapeHtml(alt)}" style="max-width:100%">'
        host = urlsplit(url).netloc or "elsewhere"
        label = escapeHtml(f"image: {alt} ({host})" if alt else f"image ({host})")
        if _inside_link(tokens, index) or not is_safe_link(url):
            return label
        return f'<a href="{escapeHtml(url)}" {_LINK_ATTRIBUTES}>{label}</a>'


def words_html(text: str) -> str:
    """Escape words, so that no host sets mathematics that is none (``f(a="$5", b="$6")``)."""
    return _MATH_MARK.sub(r"<span>\g<0></span>", escapeHtml(text))


def _inside_link(tokens: Sequence[Token], index: int) -> bool:
    for token in reversed(tokens[:index]):
        if token.type in ("link_open", "link_close"):
            return token.type == "link_open"
    return False
