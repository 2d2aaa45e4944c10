"""What went wrong on the way to a model, in one sentence with a next step (reliability: F01 … F25)."""

from __future__ import annotations

import difflib
import html
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.messages import StopReason
from yiem_nb.providers.clocks import in_words, retry_after
from yiem_nb.providers.hosts import host_of, is_loopback

__all__ = [
    "answer_fault",
    "compressed_fault",
    "empty_fault",
    "environment_fault",
    "is_overflow",
    "page_fault",
    "redirect_fault",
    "status_fault",
    "transport_fault",
]

# F29: how each provider words that a conversation does not fit.
_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|maximum (?:context|prompt) length|context.?window|context.?length"
    r"|exceed_context_size|exceeds the (?:available )?context|input token count|input is too long"
    r"|reduce the length of the (?:messages|prompt)|prompt exceeds|exceed(?:ed)? (?:the )?(?:model )?token limit"
    r"|token count of \d+ exceeds|too large for model with|context size has been exceeded"
    r"|(?:inputs?|prompt)`? tokens? .{0,40}must be|longer than the model|too many (?:input )?tokens",
    re.IGNORECASE,
)
# Tokens in a minute are no length of a conversation, though the words are alike.
_PACE = re.compile(
    r"per.?(?:minute|min|day|second|hour)|\bTP[MD]\b|wait before trying", re.IGNORECASE
)
_QUOTA = re.compile(
    r"insufficient_quota|billing|quota exceeded|out of budget|monthly limit", re.IGNORECASE
)
# How httpcore words a connection that ended too early.
_CUT = re.compile(r"disconnected|closed connection|incomplete", re.IGNORECASE)
_RATE = re.compile(r"rate.?limit|too many requests|\b429\b|throttl", re.IGNORECASE)
_AUTH = re.compile(r"auth|api.?key|permission|forbidden|\b40[13]\b", re.IGNORECASE)
_MAX_QUOTE = 200
_NEAREST = 3

#: The codes of `wire.faults` for what is wrong with an answer's form → ours, and what to do.
_ANSWER_CODES = {
    "incomplete_stream": (ErrorCode.PROVIDER_INCOMPLETE, "Run the cell again."),
    "malformed_event": (ErrorCode.PROVIDER_RESPONSE, "Check the address; run the cell again."),
    "malformed_response": (ErrorCode.PROVIDER_RESPONSE, "Check the address and the model."),
    "malformed_tool_call": (ErrorCode.PROVIDER_RESPONSE, "Run the cell again."),
    "malformed_reply": (ErrorCode.PROVIDER_RESPONSE, "Run the cell again."),
    "event_too_large": (ErrorCode.PROVIDER_RESPONSE, "Check the address."),
    "unexpected_page": (ErrorCode.PROVIDER_RESPONSE, "Check the address and the network."),
    "refusal": (ErrorCode.PROVIDER_FILTERED, "Put the question differently."),
    "content_filter": (ErrorCode.PROVIDER_FILTERED, "Put the question differently."),
}


def status_fault(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    url: str,
    model: str,
    key_name: str | None,
    offered: Sequence[str] = (),
) -> ProviderError:
    """Explain an HTTP status that is no success.

    Parameters
    ----------
    offered
        The models the server says it has.
    """
    host = host_of(url)
    said = _said(body)
    quoted = f" It says: {said}" if said else ""
    if status == 401:
        return _refused_key(host, key_name)
    if status == 403:
        return ProviderError(
            f"{host} does not allow this (403).{quoted}",
            hint="Check what the key may do.",
            code=ErrorCode.PROVIDER_AUTH,
            status=status,
        )
    if status == 404:
        return _unknown_model(model, offered, quoted, url=url)
    if status == 413 or (status in (400, 422) and is_overflow(said)):
        return ProviderError(
            f"The conversation is longer than {model} can take ({status}).{quoted}",
            hint="Start a new one with %yiem reset.",
            code=ErrorCode.PROVIDER_OVERFLOW,
            status=status,
        )
    may_retry = headers.get("x-should-retry") != "false"
    wait = retry_after(headers)
    if status == 429:
        return _rate_limited(host, said, wait, may_retry=may_retry)
    if status in (408, 409, 425) or status >= 500:
        return ProviderError(
            f"{host} failed ({status}).{quoted}{_request_id(headers)}",
            hint=f"Run the cell again {in_words(wait)}.",
            code=ErrorCode.PROVIDER_UNAVAILABLE,
            status=status,
            retryable=may_retry,
            retry_after=wait,
        )
    return ProviderError(
        f"{host} rejected the request ({status}).{quoted}",
        hint="Check the model and its settings.",
        code=ErrorCode.PROVIDER_REJECTED,
        status=status,
    )


def _request_id(headers: Mapping[str, str]) -> str:
    """Name the request as the provider knows it, for whoever asks them (F13)."""
    for name in ("x-request-id", "request-id"):
        if found := _short(headers.get(name, ""))[:80]:
            return f" (request {found})"
    return ""


def is_overflow(said: str) -> bool:
    """Whether a provider's sentence means that the conversation does not fit (F29)."""
    return bool(_OVERFLOW.search(said)) and not _PACE.search(said)


def _unknown_model(model: str, offered: Sequence[str], quoted: str, *, url: str) -> ProviderError:
    host = host_of(url)
    if offered and model not in offered:
        near = difflib.get_close_matches(model, offered, n=_NEAREST, cutoff=0.3)
        names = ", ".join(near or offered[:_NEAREST])
        message, hint = f"{host} has no model {model!r} (404).{quoted}", f"It has {names}."
    else:
        message = (
            f"{host} does not know the model {model!r}, or the address is wrong (404).{quoted}"
        )
        hint = f"%yiem model lists models; the address in use is {url}"
    return ProviderError(message, hint=hint, code=ErrorCode.PROVIDER_NOT_FOUND, status=404)


def _refused_key(host: str, key_name: str | None) -> ProviderError:
    if key_name:
        message = f"The key in {key_name} was refused by {host} (401)."
        hint = f"Put a valid key into {key_name} and restart the kernel."
    else:
        message = f"{host} wants a key and none was sent (401)."
        hint = 'Name the variable that holds it: %config YiemMagics.api_key_env = "MY_KEY"'
    return ProviderError(message, hint=hint, code=ErrorCode.PROVIDER_AUTH, status=401)


def _rate_limited(host: str, said: str, wait: float | None, *, may_retry: bool) -> ProviderError:
    quoted = f" It says: {said}" if said else ""
    if _QUOTA.search(said):
        return ProviderError(
            f"The account at {host} has no credit left (429).{quoted}",
            hint="Add credit, or choose another model with %yiem model.",
            code=ErrorCode.PROVIDER_RATE_LIMITED,
            status=429,
        )
    return ProviderError(
        f"{host} allows no more requests for now (429).{quoted}",
        hint=f"Run the cell again {in_words(wait)}.",
        code=ErrorCode.PROVIDER_RATE_LIMITED,
        status=429,
        retryable=may_retry,
        retry_after=wait,
    )


def redirect_fault(status: int, location: str, *, url: str) -> ProviderError:
    """Explain a redirect, which is not followed: the key belongs to the host it was given for."""
    target = host_of(location) if "//" in location else location[:_MAX_QUOTE] or "nowhere"
    return ProviderError(
        f"{host_of(url)} redirects to {target} ({status}); nothing was sent there.",
        hint="If that is the right address, set it: %config YiemMagics.base_url = …",
        code=ErrorCode.PROVIDER_CONFIG,
        status=status,
    )


def page_fault(body: bytes, *, url: str) -> ProviderError:
    """Explain a web page where an answer should be."""
    text = body[:65_536].decode("utf-8", "replace")
    title = re.search(r"<title[^>]*>(.*?)</title", text, re.IGNORECASE | re.DOTALL)
    named = f" ({html.unescape(title.group(1)).strip()[:80]!r})" if title else ""
    return ProviderError(
        f"{host_of(url)} answered with a web page{named}, not with a model's answer.",
        hint=f"Check the address {url}; is a proxy or a login page in between?",
        code=ErrorCode.PROVIDER_RESPONSE,
    )


def compressed_fault(encoding: str, *, url: str) -> ProviderError:
    """Explain an answer that is packed, which was not asked for and is not unpacked."""
    return ProviderError(
        f"{host_of(url)} sent a compressed answer ({encoding[:20]}) though it was asked not to.",
        hint="Switch compression off there, or in the proxy in between.",
        code=ErrorCode.PROVIDER_RESPONSE,
    )


def environment_fault(error: Exception) -> ProviderError:
    """Explain proxy or certificate settings that cannot be used."""
    return ProviderError(
        f"The environment's proxy or certificate settings cannot be used: {error}",
        hint="Check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE; a SOCKS proxy is socks5://… "
        'and needs pip install "httpx[socks]".',
        code=ErrorCode.PROVIDER_CONFIG,
    )


def answer_fault(code: str, said: str, *, host: str, retryable: bool) -> ProviderError:
    """Explain an answer that began well and ended in an error.

    Parameters
    ----------
    code, said
        What the decoder, or the provider inside its answer, calls it.
    """
    known = _ANSWER_CODES.get(code)
    if known is not None:
        ours, hint = known
    elif is_overflow(f"{code} {said}"):
        ours, hint = ErrorCode.PROVIDER_OVERFLOW, "Start a new conversation with %yiem reset."
    elif _RATE.search(f"{code} {said}"):
        ours, hint = ErrorCode.PROVIDER_RATE_LIMITED, "Run the cell again in a moment."
    elif retryable:
        ours, hint = ErrorCode.PROVIDER_UNAVAILABLE, "Run the cell again in a moment."
    elif _AUTH.search(code):
        ours, hint = ErrorCode.PROVIDER_AUTH, "Check the key and what it may do."
    else:
        ours, hint = ErrorCode.PROVIDER_REJECTED, "Check the model and its settings."
    text = _short(said or code)
    message = (
        text if ours is ErrorCode.PROVIDER_FILTERED else f"The answer from {host} failed: {text}"
    )
    return ProviderError(message, hint=hint, code=ours, retryable=retryable)


def empty_fault(stop: StopReason, *, host: str) -> ProviderError:
    """Explain an answer without a word in it."""
    if stop is StopReason.LENGTH:
        return ProviderError(
            f"{host} reached the limit of the answer's length before the first word.",
            hint="Raise max_tokens, or lower the thinking level.",
            code=ErrorCode.PROVIDER_EMPTY,
        )
    return ProviderError(
        f"{host} sent an empty answer.",
        hint="Run the cell again, or put the question differently.",
        code=ErrorCode.PROVIDER_EMPTY,
        retryable=True,
    )


def transport_fault(error: Exception, *, url: str) -> ProviderError:
    """Explain a failure below HTTP."""
    host = host_of(url)
    kind = type(error).__name__
    if "Timeout" in kind or isinstance(error, TimeoutError):
        return ProviderError(
            f"{host} did not answer in time.",
            hint="Run the cell again, or choose another model.",
            code=ErrorCode.PROVIDER_TIMEOUT,
            retryable=True,
        )
    if kind in ("UnsupportedProtocol", "InvalidURL", "LocalProtocolError"):
        return ProviderError(
            f"The address {url!r} cannot be used: {error}",
            hint="It should look like https://host/v1",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    if kind in ("ConnectError", "ProxyError"):
        return _unreachable(error, host, url)
    if kind == "RemoteProtocolError" and not _CUT.search(str(error)):
        return ProviderError(
            f"{host} does not speak HTTP: {_short(str(error))}",
            hint=f"Check the address {url}",
            code=ErrorCode.PROVIDER_RESPONSE,
        )
    return ProviderError(
        f"The connection to {host} ended before the answer was complete.",
        hint="Run the cell again.",
        code=ErrorCode.PROVIDER_INCOMPLETE,
        retryable=True,
    )


def _unreachable(error: Exception, host: str, url: str) -> ProviderError:
    causes = list(_causes(error))
    retryable, attempts = True, None
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        # Names are not found any better a third time (F02).
        attempts = 3
        message = f"The name {host} is not known; is this machine offline?"
        hint = "Check the network and the address."
    elif any("CERTIFICATE" in str(cause) for cause in causes):
        message = f"The certificate of {host} is not trusted."
        hint = "Behind a company proxy, set SSL_CERT_FILE to its certificate."
        retryable = False
    elif any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        message = f"Cannot reach {host}: the connection was refused."
        hint = "Is the server running?" if is_loopback(url) else "Check the address."
    else:
        message = f"Cannot reach {host}: {_short(str(error))}"
        hint = "Check the address, the network and the proxy."
    return ProviderError(
        message,
        hint=hint,
        code=ErrorCode.PROVIDER_UNREACHABLE,
        retryable=retryable,
        attempts=attempts,
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        if isinstance(seen, BaseExceptionGroup):
            yield from seen.exceptions
        seen = seen.__cause__ or seen.__context__


def _said(body: bytes) -> str:
    """The server's own sentence, as text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, list) and value:  # Gemini wraps its error in a list
        value = value[0]
    if isinstance(value, dict):
        error = value.get("error", value)
        found = error.get("message") if isinstance(error, dict) else error
        kind = error.get("code") or error.get("type") if isinstance(error, dict) else None
        text = str(found or value.get("detail") or value.get("message") or "")
        if kind and isinstance(kind, str) and kind not in text:
            text = f"{text} [{kind}]".strip()
    elif text.startswith("<"):
        text = html.unescape(
            re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL | re.IGNORECASE)
        )
    return _short(text)


def _short(text: str) -> str:
    """One printable line of at most `_MAX_QUOTE` characters."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
