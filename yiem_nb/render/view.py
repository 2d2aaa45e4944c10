"""The pieces of an answer, each as a bundle of HTML, Markdown and plain text (pure).

The same words in each form. The HTML needs no style sheet: it is readable where a host strips styles
(GitHub), and where it does not, colours and sizes come from the host's own variables. What a model,
a tool or a user wrote is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from markdown_it.common.utils import escapeHtml

from yiem_nb.messages import Usage
from yiem_nb.render.highlight import PALETTE
from yiem_nb.render.markdown import render_html, words_html
from yiem_nb.render.portable import safe_markdown
from yiem_nb.render.text import cleaned, clipped, size_of, visible

__all__ = [
    "Bundle",
    "CallState",
    "CallView",
    "call_bundle",
    "call_line",
    "call_parts",
    "footer_bundle",
    "footer_line",
    "html_of",
    "money",
    "notice_bundle",
    "seconds_text",
    "status_bundle",
    "text_bundle",
    "thinking_bundle",
]

Bundle: TypeAlias = dict[str, str]

_QUIET = "color:var(--jp-ui-font-color2,inherit);font-size:90%"
_ROW = "display:flex;gap:1em;justify-content:space-between;flex-wrap:wrap"
_CODE = "margin:2px 0 6px;padding:4px 8px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto"


#: Jupyter's own distance between an output's text and its edge.
_INSET = "padding:0 var(--jp-code-padding,5px)"


def _div(inner: str, style: str = "") -> str:
    styles = f"{_INSET};{style}" if style else _INSET
    return f'<div class="yiem" style="{styles}">{inner}</div>'


def html_of(rendered: str) -> str:
    """Wrap rendered Markdown so that its code finds its colours."""
    return _div(rendered, PALETTE) if "var(--y" in rendered else _div(rendered)


def text_bundle(markdown: str) -> Bundle:
    """A text of the model, settled."""
    return {
        "text/html": html_of(render_html(markdown)),
        "text/markdown": safe_markdown(markdown),
        "text/plain": cleaned(markdown),
    }


# --- Quiet lines ---------------------------------------------------------------------------


def seconds_text(seconds: float) -> str:
    """``0.1 s``, ``4 s``, ``2 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def money(dollars: float) -> str:
    """``$0.0004``, ``$1.25``: enough digits to tell it from nothing."""
    if dollars >= 0.995:
        return f"${dollars:,.2f}"
    return f"${dollars:.2g}" if dollars >= 0.0001 else "< $0.0001"


def status_bundle(text: str, seconds: float | None = None) -> Bundle:
    """What is waited for, and how long already."""
    right = f"waiting {seconds:.0f} s" if seconds is not None and seconds >= 1 else "waiting"
    html = f"<span>{words_html(visible(text))}</span> <span>{right}</span>"
    plain = f"{visible(text)} · {right}"
    return {"text/html": _div(html, f"{_ROW};{_QUIET}"), "text/plain": plain}


def notice_bundle(text: str) -> Bundle:
    """One quiet sentence."""
    words = visible(cleaned(text))
    return {
        "text/html": _div(words_html(words), _QUIET),
        "text/markdown": safe_markdown(words),
        "text/plain": words,
    }


def footer_line(
    model: str, usage: Usage | None = None, seconds: float | None = None, note: str = ""
) -> str:
    """Which model answered, and what it took."""
    parts = [visible(model)]
    if usage is not None and usage.reported:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        sent = usage.input + usage.cache_read + usage.cache_write
        parts += [f"{sent:,} in{cached}", f"{usage.output:,} out"]
    elif usage is not None:
        parts.append("tokens unknown")
    if seconds is not None:
        parts.append(seconds_text(seconds))
    if usage is not None and usage.cost.total > 0:
        parts.append(money(usage.cost.total))
    if note:
        parts.append(note)
    return " · ".join(parts)


def footer_bundle(
    model: str, usage: Usage | None = None, seconds: float | None = None, note: str = ""
) -> Bundle:
    """Build the last line of an answer.

    Parameters
    ----------
    model
        Its name.
    usage, seconds
        What it took; left out for clean differences in git.
    note
        How it ended, where that is not the usual way.
    """
    return notice_bundle(footer_line(model, usage, seconds, note))


def thinking_bundle(text: str, seconds: float | None = None) -> Bundle:
    """What the model thought, folded."""
    title = f"thought for {seconds_text(seconds)}" if seconds is not None else "thought"
    body = f"<pre style='{_CODE}'>{escapeHtml(clipped(cleaned(text), 20_000))}</pre>"
    return {
        "text/html": _div(f"<details><summary>{title}</summary>{body}</details>", _QUIET),
        "text/markdown": f"▸ {title}",
        "text/plain": f"▸ {title}",
    }


# --- Calls ---------------------------------------------------------------------------------

CallState: TypeAlias = Literal["running", "waiting", "ok", "error", "denied", "aborted"]
_STATE_WORDS: dict[str, str] = {
    "running": "running",
    "waiting": "waiting for you",
    "ok": "",
    "error": "failed",
    "denied": "not allowed",
    "aborted": "stopped",
}


@dataclass(frozen=True, slots=True)
class CallView:
    """A call as people see it.

    Parameters
    ----------
    name, arguments
        What was called with what.
    state
        Where it stands.
    seconds
        How long it has run; left out for clean differences in git.
    summary
        The result in a few words, e.g. ``14 rows``.
    output
        What the function printed.
    result
        What the model received.
    whole
        All of it, where the model received a part.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    state: CallState = "running"
    seconds: float | None = None
    summary: str = ""
    output: str = ""
    result: str = ""
    whole: str = ""


def call_line(call: CallView) -> str:
    """Write the call on one line, as Python would."""
    rows = ", ".join(f"{name}={_short(value)}" for name, value in call.arguments.items())
    line = f"{visible(call.name)}({rows})"
    return f"{line} → {visible(call.summary)}" if call.summary and call.state == "ok" else line


def call_bundle(call: CallView, limit: int = 4_000) -> Bundle:
    """One folded line; inside, arguments, prints and result, each with its size.

    Of each, `limit` characters are shown.
    """
    mark = {"waiting": "?", "error": "✕", "denied": "✕", "aborted": "■"}.get(call.state, "")
    line = " ".join(filter(None, (mark, call_line(call))))
    right = " ".join(
        filter(
            None,
            (
                _STATE_WORDS[call.state],
                seconds_text(call.seconds) if call.seconds is not None else "",
            ),
        )
    )
    summary = f"<summary style='cursor:pointer'>{words_html(line)}{_right(right)}</summary>"
    html = _div(f"<details>{summary}{_fold(call, limit)}</details>", _QUIET)
    plain = f"▸ {line}" + (f" · {right}" if right else "")
    if call.state == "error" and call.result:
        plain += f"\n  {_last_line(call.result)}"
    return {"text/html": html, "text/markdown": _code_span(plain), "text/plain": plain}


def _right(text: str) -> str:
    # The space is all that parts the two where a host strips styles.
    return f" <span style='float:right'>{escapeHtml(text)}</span>" if text else ""


def call_parts(call: CallView) -> list[tuple[str, str]]:
    """List what a call's fold holds: titles and texts."""
    rows = "\n".join(
        f"{visible(name)} = {visible(_json(value))}" for name, value in call.arguments.items()
    )
    parts = [("arguments", rows or "none")]
    if call.output:
        parts.append(("printed", cleaned(call.output)))
    if call.result:
        parts.append(("the model received", visible(cleaned(call.result))))
    if call.whole:
        parts.append(("all of it", visible(cleaned(call.whole))))
    return parts


def _fold(call: CallView, limit: int) -> str:
    return "".join(
        f"<div style='clear:both'>{title} · {size_of(text)}</div>"
        f"<pre style='{_CODE}'>{escapeHtml(clipped(text, limit))}</pre>"
        for title, text in call_parts(call)
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _short(value: Any, limit: int = 60) -> str:
    text = visible(_json(value))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _last_line(text: str) -> str:
    lines = [line for line in visible(cleaned(text)).split("\n") if line.strip()]
    return lines[-1] if lines else ""


def _code_span(text: str) -> str:
    """Write text that Markdown leaves alone."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return "\n\n".join(f"{ticks} {line} {ticks}" for line in text.split("\n"))
