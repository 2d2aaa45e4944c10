"""Requests over HTTP: the one module that imports httpx.

A failed request is an answer that says so. It is sent again, after a wait that is shown and can be
stopped, only while nothing of the answer was shown. Redirects are not followed, bodies are not
decompressed, and the key is read when the request is sent.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx

from yiem_nb.errors import ErrorCode, ProviderError, redact
from yiem_nb.events import Aborted, AbortSignal, MessageUpdateEvent, RetryEvent
from yiem_nb.messages import AssistantMessage, StopReason, Usage, UsageCost
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.providers.clocks import RetryPolicy
from yiem_nb.providers.faults import (
    host_of,
    is_loopback,
    page_fault,
    redirect_fault,
    status_fault,
    transport_fault,
)
from yiem_nb.providers.keys import Secret
from yiem_nb.state import AgentContext, StreamEvent
from yiem_nb.wire import (
    Compat,
    DecoderOptions,
    OpenAiChatDecoder,
    RequestOptions,
    encode,
    uses_schema,
)

__all__ = ["Connect", "Connection", "HttpProvider"]

_TIMEOUT = httpx.Timeout(connect=10.0, write=30.0, pool=10.0, read=300.0)
#: Longest wait for something that is more than a keep-alive.
CONTENT_IDLE_SECONDS = 300.0
MAX_ERROR_BODY = 65_536
MAX_BODY = 256 * 1024 * 1024
#: A server on this machine that is not running will not be in a minute either.
_LOOPBACK_POLICY = RetryPolicy(attempts=3, budget=3.0)


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a request goes, and with which key."""

    base_url: str
    key: Secret | None = None


#: Called before each request: a local server may have to be started first.
Connect = Callable[[], Awaitable[Connection]]


class _KeyAuth(httpx.Auth):
    """Writes the key into the request as it leaves, so that no frame of ours holds it."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._secret.reveal()}"
        yield request


class HttpProvider:
    """Speaks chat completions with one server; a `StreamFn`.

    Parameters
    ----------
    connect
        Says where the server is.
    policy
        When to try again.
    sleep
        Waits between tries.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        content_idle: float = CONTENT_IDLE_SECONDS,
    ) -> None:
        self._connect = connect
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._content_idle = content_idle
        # An httpx client belongs to the loop it was first used on.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __call__(
        self, model: Model, context: AgentContext, level: ThinkingLevel, signal: AbortSignal
    ) -> AsyncIterator[StreamEvent]:
        """Send a request and stream its answer, trying again where that may help."""
        waited, attempt = 0.0, 1
        while True:
            exchange = _Exchange(self, model, context, level, signal)
            async with aclosing(exchange.run()) as events:
                async for event in events:
                    yield event
            fault = exchange.fault
            if fault is None or exchange.shown:
                break
            delay = self._delay(fault, exchange.url, attempt, waited)
            if delay is None:
                break
            yield RetryEvent(attempt, delay, fault.message)
            try:
                with signal.guard():
                    await self._sleep(delay)
            except Aborted:
                break
            waited, attempt = waited + delay, attempt + 1
        yield exchange.message

    def client(self) -> httpx.AsyncClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(
                timeout=_TIMEOUT,
                follow_redirects=False,
                headers={"Accept-Encoding": "identity", "User-Agent": "yiem_nb"},
            )
            self._clients[loop] = client
        return client

    async def connect(self) -> Connection:
        """Say where the next request goes."""
        return await self._connect()

    @property
    def content_idle(self) -> float:
        """Longest wait for content, in seconds."""
        return self._content_idle

    def _delay(self, fault: ProviderError, url: str, attempt: int, waited: float) -> float | None:
        """Seconds before the next try; ``None`` when there is to be none."""
        unreachable = fault.code is ErrorCode.PROVIDER_UNREACHABLE and fault.status is None
        policy = _LOOPBACK_POLICY if unreachable and is_loopback(url) else self._policy
        if not fault.retryable or attempt >= min(policy.attempts, self._policy.attempts):
            return None
        if fault.retry_after is not None and fault.retry_after > policy.longest:
            return None
        delay = policy.delay(attempt, fault.retry_after)
        return delay if waited + delay <= policy.budget else None


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        provider: HttpProvider,
        model: Model,
        context: AgentContext,
        level: ThinkingLevel,
        signal: AbortSignal,
    ) -> None:
        self._provider = provider
        self._model = model
        self._context = context
        self._level = level
        self._signal = signal
        self._decoder = self._new_decoder("text/event-stream")
        self.url = model.base_url
        self.shown = False
        self.fault: ProviderError | None = None
        self.message = AssistantMessage()

    async def run(self) -> AsyncGenerator[MessageUpdateEvent, None]:
        """Yield the deltas; afterwards `message` is the answer and `fault` what went wrong."""
        try:
            async with aclosing(self._deltas()) as deltas:
                async for delta in deltas:
                    self.shown = True
                    yield delta
            message = self._decoder.close()
            for delta in self._decoder.tail_events():
                self.shown = True
                yield delta
            self.message = self._checked(message)
        except Aborted as stopped:
            message = self._decoder.close(stopped=True)
            changes = {"error_message": str(stopped), "error_code": ErrorCode.EXECUTION_ABORTED}
            self.message = self._priced(message).model_copy(update=changes)
        except ProviderError as error:
            self._fail(error, self._decoder.close(stopped=True))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            fault = transport_fault(error, url=self.url)
            self._fail(fault, self._decoder.close(stopped=True))

    async def _deltas(self) -> AsyncGenerator[MessageUpdateEvent, None]:
        with self._signal.guard():
            connection = await self._provider.connect()
        self.url = connection.base_url
        request = self._request(connection)
        client = self._provider.client()
        auth = _KeyAuth(connection.key) if connection.key is not None else None
        with self._signal.guard():
            async with asyncio.timeout(self._provider.content_idle):
                response = await client.send(request, auth=auth, stream=True)
        try:
            await self._check(response, connection)
            async for chunk in self._chunks(response):
                for delta in self._decoder.feed(chunk):
                    yield delta
                if self._decoder.done:
                    return
        finally:
            await response.aclose()

    def _request(self, connection: Connection) -> httpx.Request:
        options = RequestOptions(thinking_level=str(self._level))
        body = encode(
            self._context.system_prompt,
            self._context.messages,
            self._context.tools,
            self._model,
            options,
        )
        url = f"{connection.base_url.rstrip('/')}/chat/completions"
        return self._provider.client().build_request("POST", url, json=body)

    async def _check(self, response: httpx.Response, connection: Connection) -> None:
        """Raise unless this is the beginning of an answer."""
        kind = response.headers.get("content-type", "text/event-stream")
        if response.is_success and "html" not in kind:
            if "event-stream" not in kind and "json" in kind:
                self._decoder = self._new_decoder(kind)
            return
        if response.is_redirect:
            location = response.headers.get("location", "")
            raise redirect_fault(response.status_code, location, url=connection.base_url)
        body = await self._error_body(response)
        if response.is_success:
            raise page_fault(body, url=connection.base_url)
        raise status_fault(
            response.status_code,
            response.headers,
            body,
            url=connection.base_url,
            model=self._model.id,
            key_name=connection.key.name if connection.key else None,
        )

    async def _error_body(self, response: httpx.Response) -> bytes:
        body = b""
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) >= MAX_ERROR_BODY:
                break
        return body[:MAX_ERROR_BODY]

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Yield the body as it comes; keep-alives alone do not keep it open."""
        loop = asyncio.get_running_loop()
        chunks = response.aiter_raw()
        deadline, events = loop.time() + self._provider.content_idle, 0
        total = 0
        while True:
            if self._decoder.events != events:
                deadline, events = loop.time() + self._provider.content_idle, self._decoder.events
            try:
                with self._signal.guard():
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            total += len(chunk)
            if total > MAX_BODY:
                raise ProviderError(
                    f"{host_of(self.url)} sent more than {MAX_BODY >> 20} MB.",
                    hint="Check the address; this is no model's answer.",
                    code=ErrorCode.PROVIDER_RESPONSE,
                )
            yield chunk

    # --- The end -----------------------------------------------------------------------

    def _checked(self, message: AssistantMessage) -> AssistantMessage:
        """Price the answer; one that says nothing, or failed in the stream, is a fault."""
        message = self._priced(message)
        host = host_of(self.url)
        if message.stop_reason is StopReason.ERROR:
            said = message.error_message or message.error_code or ""
            text = redact(f"The answer from {host} failed: {said}")
            self.fault = ProviderError(
                text, code=ErrorCode.PROVIDER_INCOMPLETE, retryable=bool(message.retryable)
            )
            return message.model_copy(update={"error_message": text})
        if not message.content and message.stop_reason is not StopReason.ABORTED:
            empty = ProviderError(
                f"{host} sent an empty answer.",
                hint="Run the cell again, or put the question differently.",
                code=ErrorCode.PROVIDER_EMPTY,
                retryable=True,
            )
            return self._fail(empty, message)
        return message

    def _fail(self, fault: ProviderError, partial: AssistantMessage) -> AssistantMessage:
        self.fault = fault
        changes: dict[str, Any] = {
            "stop_reason": StopReason.ERROR,
            "error_message": str(fault),
            "error_code": str(fault.code),
            "retryable": fault.retryable,
        }
        self.message = self._priced(partial).model_copy(update=changes)
        return self.message

    def _priced(self, message: AssistantMessage) -> AssistantMessage:
        usage = message.usage
        if not usage.reported:
            return message
        return message.model_copy(update={"usage": _with_cost(usage, self._model)})

    def _new_decoder(self, content_type: str) -> OpenAiChatDecoder:
        model, compat = self._model, Compat.of(self._model.compat)
        tools = self._context.tools or {}
        options = DecoderOptions(
            think_tags=compat.think_tags,
            recover_text_tool_calls=compat.recover_text_tool_calls,
            schema_tools=uses_schema(self._context.messages, tools, compat),
            tools=tuple(tools),
        )
        return OpenAiChatDecoder(
            api=model.api,
            provider=model.provider,
            model=model.id,
            content_type=content_type,
            options=options,
        )


def _with_cost(usage: Usage, model: Model) -> Usage:
    price = model.cost
    cost = UsageCost(
        input=usage.input * price.input / 1e6,
        output=usage.output * price.output / 1e6,
        cache_read=usage.cache_read * price.cache_read / 1e6,
        cache_write=usage.cache_write * price.cache_write / 1e6,
    )
    total = cost.input + cost.output + cost.cache_read + cost.cache_write
    return usage.model_copy(update={"cost": cost.model_copy(update={"total": total})})
