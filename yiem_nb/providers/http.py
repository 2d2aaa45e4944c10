"""Requests over HTTP: the one module that imports httpx.

A failed request is an answer that says so. It is sent again, after a wait that is shown and can be
stopped, only while nothing of the answer was shown. Redirects are not followed, bodies are not
decompressed, requests to this machine take no proxy, and the key is read when the request is sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import uuid
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import Aborted, AbortSignal, MessageUpdateEvent, RetryEvent
from yiem_nb.messages import AssistantMessage, StopReason, Usage, UsageCost
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.providers.clocks import Clocks, RetryPolicy
from yiem_nb.providers.faults import (
    answer_fault,
    compressed_fault,
    empty_fault,
    environment_fault,
    page_fault,
    redirect_fault,
    status_fault,
    transport_fault,
)
from yiem_nb.providers.hosts import host_of, is_loopback
from yiem_nb.providers.keys import Secret
from yiem_nb.state import AgentContext, StreamEvent
from yiem_nb.wire import (
    Compat,
    Decoder,
    DecoderOptions,
    RequestOptions,
    StreamError,
    dialect,
    encode,
    uses_schema,
)

__all__ = ["Connect", "Connection", "HttpProvider"]

# Silence is watched by `Clocks`, which know what silence means.
_TIMEOUT = httpx.Timeout(connect=Clocks().connect, write=30.0, pool=10.0, read=None)
MAX_ERROR_BODY = 65_536
MAX_BODY = 256 * 1024 * 1024
#: What a server may say, and how long it may take, when it is asked which models it has.
MAX_LIST_BODY = 1_048_576
LIST_SECONDS = 3.0
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

    def __init__(self, secret: Secret, header: str, prefix: str) -> None:
        self._secret = secret
        self._header = header
        self._prefix = prefix

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers[self._header] = f"{self._prefix}{self._secret.reveal()}"
        yield request


class HttpProvider:
    """Speaks with one server in the dialect of the model that is asked; a `StreamFn`.

    Parameters
    ----------
    connect
        Says where the server is.
    policy
        When to try again.
    sleep
        Waits between tries.
    clocks
        How long what may last; by the model where none are given.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clocks: Clocks | None = None,
    ) -> None:
        self._connect = connect
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._clocks = clocks
        # An httpx client belongs to the loop it was first used on.
        self._clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[bool, httpx.AsyncClient]
        ] = weakref.WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.aclose()

    async def __call__(
        self, model: Model, context: AgentContext, level: ThinkingLevel, signal: AbortSignal
    ) -> AsyncIterator[StreamEvent]:
        """Send a request and stream its answer, trying again where that may help."""
        waited, attempt = 0.0, 1
        # The same for each try, so that a server which had understood the first does not do it twice.
        request_id = str(uuid.uuid4())
        while True:
            exchange = _Exchange(self, model, context, level, signal, request_id)
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
            except Aborted as stopped:
                exchange.stop(stopped)
                break
            waited, attempt = waited + delay, attempt + 1
        yield exchange.message

    def client(self, url: str) -> httpx.AsyncClient:
        """Return the running loop's client for the server at `url`.

        Raises
        ------
        ProviderError
            The environment's proxy or certificate settings cannot be used.
        """
        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        is_here = is_loopback(url)
        if is_here not in clients:
            try:
                clients[is_here] = httpx.AsyncClient(
                    timeout=_TIMEOUT,
                    follow_redirects=False,
                    # A company's proxy does not lead to this machine.
                    trust_env=not is_here,
                    headers={"Accept-Encoding": "identity", "User-Agent": "yiem_nb"},
                    verify=_trusted(),
                )
            except (ImportError, ValueError, ssl.SSLError, OSError) as error:
                raise environment_fault(error) from None
        return clients[is_here]

    async def connect(self) -> Connection:
        """Say where the next request goes."""
        return await self._connect()

    def clocks(self, model: Model, url: str) -> Clocks:
        """How long what may last."""
        return self._clocks or Clocks.of(model, url)

    def _delay(self, fault: ProviderError, url: str, attempt: int, waited: float) -> float | None:
        """Seconds before the next try; ``None`` when there is to be none."""
        unreachable = fault.code is ErrorCode.PROVIDER_UNREACHABLE and fault.status is None
        policy = _LOOPBACK_POLICY if unreachable and is_loopback(url) else self._policy
        most = min(policy.attempts, self._policy.attempts, fault.attempts or policy.attempts)
        if not fault.retryable or attempt >= most:
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
        request_id: str,
    ) -> None:
        self._provider = provider
        self._model = model
        self._context = context
        self._level = level
        self._signal = signal
        self._request_id = request_id
        self._dialect = dialect(model.api)
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
            self.stop(stopped)
        except ProviderError as error:
            self._fail(error, self._decoder.close(stopped=True))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            self._break(transport_fault(error, url=self.url))

    def stop(self, stopped: Aborted) -> None:
        """End as aborted, with what had arrived."""
        message = self._priced(self._decoder.close(stopped=True))
        failed = self.fault is not None or message.stop_reason is StopReason.ERROR
        self.fault = None
        if failed or message.stop_reason is StopReason.ABORTED:
            changes = {
                "stop_reason": StopReason.ABORTED,
                "error_message": str(stopped),
                "error_code": str(ErrorCode.EXECUTION_ABORTED),
            }
            message = message.model_copy(update=changes)
        self.message = message

    async def _deltas(self) -> AsyncGenerator[MessageUpdateEvent, None]:
        with self._signal.guard():
            connection = await self._provider.connect()
        self.url = connection.base_url
        client = self._provider.client(self.url)
        request = self._request(client)
        auth = self._auth(connection)
        clocks = self._provider.clocks(self._model, self.url)
        with self._signal.guard():
            async with asyncio.timeout(clocks.first_byte):
                response = await client.send(request, auth=auth, stream=True)
                if (moved := _moved_within(response)) is not None:
                    await response.aclose()
                    request = client.build_request(
                        "POST", moved, headers=request.headers, content=request.content
                    )
                    response = await client.send(request, auth=auth, stream=True)
        async with aclosing(response), aclosing(self._chunks(response, clocks)) as chunks:
            await self._check(response, chunks, connection)
            async for chunk in chunks:
                for delta in self._decoder.feed(chunk):
                    yield delta
                if self._decoder.done:
                    return

    def _request(self, client: httpx.AsyncClient) -> httpx.Request:
        options = RequestOptions(
            thinking_level=str(self._level), output_schema=self._context.output_schema
        )
        body = encode(
            self._context.system_prompt,
            self._context.messages,
            self._context.tools,
            self._model,
            options,
        )
        url = self._dialect.address(self.url, self._model)
        headers = {**self._dialect.headers, "Idempotency-Key": self._request_id}
        return client.build_request("POST", url, json=body, headers=headers)

    def _auth(self, connection: Connection) -> _KeyAuth | None:
        if connection.key is None:
            return None
        return _KeyAuth(connection.key, *self._dialect.signature(self._model))

    async def _check(
        self,
        response: httpx.Response,
        chunks: AsyncIterator[bytes],
        connection: Connection,
    ) -> None:
        """Raise unless this is the beginning of an answer."""
        url, headers = connection.base_url, response.headers
        kind = headers.get("content-type", "text/event-stream")
        is_packed = headers.get("content-encoding", "identity") != "identity"
        if response.is_redirect:
            raise redirect_fault(response.status_code, headers.get("location", ""), url=url)
        if response.is_success and "html" not in kind:
            if is_packed:
                raise compressed_fault(headers["content-encoding"], url=url)
            if "event-stream" not in kind and "json" in kind:
                self._decoder = self._new_decoder(kind)
            return
        # What is packed stays so: a few bytes may unpack to gigabytes.
        body = b"" if is_packed else await _first_bytes(chunks, MAX_ERROR_BODY)
        if response.is_success:
            raise page_fault(body, url=url)
        raise status_fault(
            response.status_code,
            headers,
            body,
            url=url,
            model=self._model.id,
            key_name=connection.key.name if connection.key else None,
            offered=await self._offered(connection) if response.status_code == 404 else (),
        )

    async def _offered(self, connection: Connection) -> list[str]:
        """Ask which models the server has, for the error that says it lacks this one."""
        client, url = self._provider.client(self.url), self._dialect.list_address(self.url)
        headers = dict(self._dialect.headers)
        try:
            with self._signal.guard():
                async with (
                    asyncio.timeout(LIST_SECONDS),
                    client.stream(
                        "GET", url, headers=headers, auth=self._auth(connection)
                    ) as response,
                ):
                    value = json.loads(await _first_bytes(response.aiter_raw(), MAX_LIST_BODY))
            return listed_names(value)
        except (httpx.HTTPError, TimeoutError, ValueError, LookupError, TypeError):
            return []

    async def _chunks(
        self, response: httpx.Response, clocks: Clocks
    ) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes, as long as the clocks allow."""
        loop = asyncio.get_running_loop()
        chunks = response.aiter_raw()
        end, wait = loop.time() + clocks.total, clocks.first_byte
        silent, events = loop.time() + clocks.content_idle, 0
        total = 0
        while True:
            if self._decoder.events != events:
                silent, events = loop.time() + clocks.content_idle, self._decoder.events
            try:
                with self._signal.guard():
                    async with asyncio.timeout_at(min(silent, end, loop.time() + wait)):
                        chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            wait = clocks.byte_idle
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
        host = host_of(self.url)
        if message.stop_reason is StopReason.ERROR:
            fault = answer_fault(
                message.error_code or "",
                message.error_message or "",
                host=host,
                retryable=bool(message.retryable),
            )
            return self._fail(fault, message)
        if not message.content:
            return self._fail(empty_fault(message.stop_reason, host=host), message)
        return self._priced(message)

    def _break(self, fault: ProviderError) -> None:
        """End with a broken connection, which does no harm to an answer that was complete."""
        broken = StreamError(str(fault.code), fault.message, fault.retryable)
        message = self._decoder.close(broken)
        if message.stop_reason is StopReason.ERROR:
            self._fail(fault, message)
        else:
            self.message = self._priced(message)

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

    def _new_decoder(self, content_type: str) -> Decoder:
        model, compat = self._model, Compat.of(self._model.compat)
        tools = self._context.tools or {}
        options = DecoderOptions(
            think_tags=compat.think_tags,
            recover_text_tool_calls=compat.recover_text_tool_calls,
            schema_tools=self._context.output_schema is None
            and uses_schema(self._context.messages, tools, compat),
            tools=tuple(tools),
        )
        return self._dialect.decoder_class(
            api=model.api,
            provider=model.provider,
            model=model.id,
            content_type=content_type,
            options=options,
        )


def _trusted() -> ssl.SSLContext | bool:
    """Return whom to trust: the system's store where it can be read, unless the user names another."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return True
    try:
        import truststore
    except ImportError:
        return True
    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def listed_names(value: Any) -> list[str]:
    """Read the names of models from a server's list, in any of the four forms there are.

    Raises
    ------
    LookupError, TypeError
        It is no such list.
    """
    items = value["data"] if "data" in value else value["models"]
    names = (str(item["id"] if "id" in item else item["name"]) for item in items)
    return [name.removeprefix("models/") for name in names]


def _moved_within(response: httpx.Response) -> httpx.URL | None:
    """Where the same server has it instead (F25); ``None`` if it answered, or points elsewhere."""
    if response.status_code not in (307, 308) or "location" not in response.headers:
        return None
    here = response.request.url
    try:
        there = here.join(response.headers["location"])
    except httpx.InvalidURL:
        return None
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return there if same else None


async def _first_bytes(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


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
