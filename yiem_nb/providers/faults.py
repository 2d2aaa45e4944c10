"""What went wrong on the way to a model, in one sentence with a next step (reliability: F01 … F25)."""

from __future__ import annotations

import html
import json
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.providers.clocks import retry_after

__all__ = [
    "host_of",
    "is_loopback",
    "page_fault",
    "redirect_fault",
    "status_fault",
    "transport_fault",
]

_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|maximum context length|context window|context length|exceed_context_size"
    r"|exceeds the (?:available )?context|too many tokens|input token count|input is too long"
    r"|reduce the length of the messages|context_length_exceeded|prompt exceeds",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient_quota|billing|quota exceeded|out of budget|monthly limit", re.IGNORECASE
)
_MAX_QUOTE = 200


def host_of(url: str) -> str:
    """Host, and port where it is not the usual one, of an address."""
    parts = urlsplit(url)
    host = parts.hostname or url
    return f"{host}:{parts.port}" if parts.port else host


def is_loopback(url: str) -> bool:
    """Whether the address is this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def status_fault(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    url: str,
    model: str,
    key_name: str | None,
) -> ProviderError:
    """Explain an HTTP status that is no success."""
    host = host_of(url)
    said = _said(body)
    quoted = f" It says: {said}" if said else ""
    wait = retry_after(headers)
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
        return ProviderError(
            f"{host} does not know the model {model!r}, or the address is wrong (404).{quoted}",
            hint=f"%yiem model lists models; the address in use is {url}",
            code=ErrorCode.PROVIDER_NOT_FOUND,
            status=status,
        )
    if status == 413 or (status in (400, 422) and _OVERFLOW.search(said)):
        return ProviderError(
            f"The conversation is longer than {model} can take ({status}).{quoted}",
            hint="Start a new one with %yiem reset.",
            code=ErrorCode.PROVIDER_OVERFLOW,
            status=status,
        )
    if status == 429:
        return _rate_limited(host, said, wait)
    if status in (408, 409, 425) or status >= 500:
        return ProviderError(
            f"{host} failed ({status}).{quoted}",
            hint="Run the cell again in a moment.",
            code=ErrorCode.PROVIDER_UNAVAILABLE,
            status=status,
            retryable=True,
            retry_after=wait,
        )
    return ProviderError(
        f"{host} rejected the request ({status}).{quoted}",
        hint="Check the model and its settings.",
        code=ErrorCode.PROVIDER_REJECTED,
        status=status,
    )


def _refused_key(host: str, key_name: str | None) -> ProviderError:
    if key_name:
        message = f"The key in {key_name} was refused by {host} (401)."
        hint = f"Put a valid key into {key_name} and restart the kernel."
    else:
        message = f"{host} wants a key and none was sent (401)."
        hint = 'Name the variable that holds it: %config YiemMagics.api_key_env = "MY_KEY"'
    return ProviderError(message, hint=hint, code=ErrorCode.PROVIDER_AUTH, status=401)


def _rate_limited(host: str, said: str, wait: float | None) -> ProviderError:
    quoted = f" It says: {said}" if said else ""
    if _QUOTA.search(said):
        return ProviderError(
            f"The account at {host} has no credit left (429).{quoted}",
            hint="Add credit, or choose another model with %yiem model.",
            code=ErrorCode.PROVIDER_RATE_LIMITED,
            status=429,
        )
    when = f"in {wait:.0f} s" if wait is not None else "in a moment"
    return ProviderError(
        f"{host} allows no more requests for now (429).{quoted}",
        hint=f"Run the cell again {when}.",
        code=ErrorCode.PROVIDER_RATE_LIMITED,
        status=429,
        retryable=True,
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


def transport_fault(error: Exception, *, url: str) -> ProviderError:
    """Explain a failure below HTTP."""
    host = host_of(url)
    kind = type(error).__name__
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return ProviderError(
            f"The name {host} is not known; is this machine offline?",
            hint="Check the network and the address.",
            code=ErrorCode.PROVIDER_UNREACHABLE,
            retryable=True,
        )
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or kind == "ConnectError":
        tls = next((str(c) for c in causes if "CERTIFICATE" in str(c)), "")
        if tls:
            return ProviderError(
                f"The certificate of {host} is not trusted.",
                hint="Behind a company proxy, set SSL_CERT_FILE to its certificate.",
                code=ErrorCode.PROVIDER_UNREACHABLE,
            )
        return ProviderError(
            f"Cannot reach {host}: the connection was refused.",
            hint="Is the server running?"
            if is_loopback(url)
            else "Check the address and the network.",
            code=ErrorCode.PROVIDER_UNREACHABLE,
            retryable=True,
        )
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
    return ProviderError(
        f"The connection to {host} broke: {error or kind}",
        hint="Run the cell again.",
        code=ErrorCode.PROVIDER_UNREACHABLE,
        retryable=True,
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
    text = " ".join(text.split())
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
