"""The dialects as data: where a request goes, how it is signed, and who builds and reads it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from yiem_nb.errors import CommandError
from yiem_nb.models import Model
from yiem_nb.wire.asked import Asked
from yiem_nb.wire.compat import Compat
from yiem_nb.wire.decoder import Decoder

__all__ = ["FAMILIES", "Dialect", "dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of servers is spoken to.

    Parameters
    ----------
    root
        What stands between the host and `path` where an address names the host alone.
    path
        Where answers are asked for; ``{model}`` is the model's id.
    models
        Where the list of models is.
    key_header, key_prefix
        The header that carries the key, and what stands before it there.
    headers
        What else each request says.
    query
        What else stands in each address.
    decoder, encoder
        Module and class of the `Decoder`; module of ``body`` and ``CALL_ID``.
    """

    root: str
    path: str
    models: str
    decoder: tuple[str, str]
    encoder: str
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def decoder_class(self) -> type[Decoder]:
        """The class that reads an answer."""
        module, name = self.decoder
        found: type[Decoder] = getattr(import_module(f"yiem_nb.wire.{module}"), name)
        return found

    @property
    def call_id(self) -> Callable[[str], str]:
        """The rule for the ids of calls."""
        found: Callable[[str], str] = import_module(f"yiem_nb.wire.{self.encoder}").CALL_ID
        return found

    def body(self, asked: Asked) -> dict[str, Any]:
        """Build the body of a request."""
        found: dict[str, Any] = import_module(f"yiem_nb.wire.{self.encoder}").body(asked)
        return found

    def address(self, base_url: str, model: Model) -> str:
        """Say where `model` is asked for an answer."""
        path = self.path.format(model=quote(model.id.removeprefix("models/"), safe=""))
        query = urlencode({**self.query, **Compat.of(model.compat).query})
        return f"{self._root(base_url)}{path}{f'?{query}' if query else ''}"

    def list_address(self, base_url: str) -> str:
        """Say where the server lists its models."""
        return f"{self._root(base_url)}{self.models}"

    def signature(self, model: Model) -> tuple[str, str]:
        """Return the header that carries the key, and what stands before it there."""
        own = Compat.of(model.compat).key_header
        return (own, "") if own else (self.key_header, self.key_prefix)

    def _root(self, base_url: str) -> str:
        base = base_url.rstrip("/").removesuffix(self.path)
        try:
            is_bare = bool(urlsplit(base).netloc) and not urlsplit(base).path
        except ValueError:
            is_bare = False
        return f"{base}{self.root}" if is_bare else base


#: The value of `Model.api` → its dialect.
FAMILIES: dict[str, Dialect] = {
    "openai-chat": Dialect(
        root="/v1",
        path="/chat/completions",
        models="/models",
        decoder=("openai_chat", "OpenAiChatDecoder"),
        encoder="openai_encode",
    ),
    "openai-responses": Dialect(
        root="/v1",
        path="/responses",
        models="/models",
        decoder=("openai_responses", "OpenAiResponsesDecoder"),
        encoder="responses_encode",
    ),
    "anthropic-messages": Dialect(
        root="/v1",
        path="/messages",
        models="/models",
        decoder=("anthropic_messages", "AnthropicMessagesDecoder"),
        encoder="anthropic_encode",
        key_header="x-api-key",
        key_prefix="",
        headers={"anthropic-version": "2023-06-01"},
    ),
    "gemini": Dialect(
        root="/v1beta",
        path="/models/{model}:streamGenerateContent",
        models="/models",
        decoder=("gemini", "GeminiDecoder"),
        encoder="gemini_encode",
        key_header="x-goog-api-key",
        key_prefix="",
        query={"alt": "sse"},
    ),
    "ollama": Dialect(
        root="/api",
        path="/chat",
        models="/tags",
        decoder=("ollama", "OllamaDecoder"),
        encoder="ollama_encode",
    ),
}


def dialect(family: str) -> Dialect:
    """Return the dialect of a family, the value of `Model.api`.

    Raises
    ------
    CommandError
        There is no such family; the hint lists them.
    """
    if family not in FAMILIES:
        raise CommandError(
            f"There is no dialect {family!r}.", hint=f"Known: {', '.join(FAMILIES)}."
        )
    return FAMILIES[family]
