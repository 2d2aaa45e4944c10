"""What can be wrong with a body, each as one `StreamError` (pure; reliability F15-F23)."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from yiem_nb.errors import redact
from yiem_nb.messages import StopReason
from yiem_nb.wire.builder import StreamError

__all__ = [
    "BROKEN_REPLY",
    "INCOMPLETE",
    "NAMELESS_CALL",
    "NO_ANSWER",
    "filtered",
    "in_band",
    "malformed",
    "page",
    "stop_of",
]

INCOMPLETE = StreamError(
    "incomplete_stream", "The connection ended before the answer was complete.", retryable=True
)
NAMELESS_CALL = StreamError(
    "malformed_tool_call", "The model called a tool without saying which.", retryable=True
)
NO_ANSWER = StreamError(
    "malformed_response", "The server's reply holds neither an answer nor an error."
)
BROKEN_REPLY = StreamError(
    "malformed_reply", "The model's answer is not the JSON that was asked for.", retryable=True
)
_FILTERED = {
    "refusal": "The model refused to answer.",
    "content_filter": "The provider's content filter stopped the answer.",
}
# Other words for an answer that broke on the provider's side (z.ai and DeepSeek among them).
_BROKEN = {
    "error",
    "network_error",
    "insufficient_system_resource",
    "failed",
    "cancelled",
    "aborted",
}
_SHOWN = 200
# What repeating the request cannot mend. Everything else that breaks an answer which had already been
# accepted is the server's own trouble.
_PERMANENT = re.compile(
    r"invalid|auth|permission|forbidden|not_found|unsupported|quota|billing|credit|payment|context"
    r"|too_large|too_long|filter|policy|safety|blocked|refusal|bad_request|unprocessable",
    re.IGNORECASE,
)
_TRANSIENT_STATUS = {408, 409, 425, 429}
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


def malformed(data: bytes) -> StreamError:
    """Describe an event that is no JSON object (F20)."""
    shown = redact(data[: 4 * _SHOWN].decode("utf-8", "replace"))[:_SHOWN]
    return StreamError(
        "malformed_event", f"The server sent an event that is no JSON object: {shown}", True
    )


def page(data: bytes) -> StreamError:
    """Describe a web page where an answer was expected, by its title alone (F22, F23)."""
    found = _TITLE.search(data.decode("utf-8", "replace"))
    title = " ".join(html.unescape(found[1]).split())[:_SHOWN] if found else ""
    named = f" titled “{title}”" if title else ""
    return StreamError(
        "unexpected_page",
        f"A web page{named} came instead of an answer: a captive portal, a proxy or a wrong address?",
    )


def filtered(code: str) -> StreamError:
    """Describe an answer that a filter or the model itself ended."""
    return StreamError(code, _FILTERED.get(code, _FILTERED["content_filter"]))


def stop_of(raw: str | None) -> StopReason | StreamError:
    """Translate a provider's word for why the model stopped.

    An unknown word is a stop: a new one must not turn a finished answer into a failure.
    """
    if raw is None:
        return StopReason.STOP
    if raw in _FILTERED:
        return filtered(raw)
    if raw in _BROKEN:
        return StreamError("stream_error", f"The provider ended the answer: {raw}.", retryable=True)
    try:
        return StopReason(raw)
    except ValueError:
        return StopReason.STOP


def in_band(error: Any) -> StreamError:
    """Read an error that came inside a body whose status was 200.

    The code is what the provider calls it: ``code``, else ``type``; servers write null, ``"None"``
    or a status there.
    """
    if not isinstance(error, Mapping):
        return StreamError("stream_error", redact(str(error))[:_SHOWN], retryable=True)
    nested = error.get("error")
    if isinstance(nested, Mapping):
        return in_band(nested)
    names = (_word(error.get(name)) for name in ("code", "type", "status"))
    code = next((name for name in names if name and name != "error"), "stream_error")
    message = _word(error.get("message")) or (_word(nested) if nested is not None else "")
    return StreamError(code, redact(message), retryable=_is_transient(code))


def _word(value: Any) -> str:
    text = "" if value is None else str(value)
    return "" if text in ("None", "null") else text


def _is_transient(code: str) -> bool:
    if code.isdecimal():
        return int(code) >= 500 or int(code) in _TRANSIENT_STATUS
    return not _PERMANENT.search(code)
