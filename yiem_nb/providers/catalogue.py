"""The models and servers known by name.

The models stand in ``models.json``, which ``scripts/catalogue.py`` writes: its first line says whose
prices they are and of which day. A model that is not there is used as it is, its price unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from yiem_nb.models import Model, ModelCost

__all__ = [
    "CLOUDS",
    "LOOPBACK_SERVERS",
    "Cloud",
    "LoopbackServer",
    "find_model",
    "models",
    "unknown_model",
]


@dataclass(frozen=True, slots=True)
class Cloud:
    """A provider that is reached with a key."""

    name: str
    base_url: str
    key_name: str
    default: str
    api: str = "openai-chat"


#: In the order in which their keys are looked for.
CLOUDS: dict[str, Cloud] = {
    cloud.name: cloud
    for cloud in (
        Cloud(
            "openai",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            "gpt-5-mini",
            "openai-responses",
        ),
        Cloud(
            "anthropic",
            "https://api.anthropic.com/v1",
            "ANTHROPIC_API_KEY",
            "claude-sonnet-5-5",
            "anthropic-messages",
        ),
        Cloud(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            "GEMINI_API_KEY",
            "gemini-3.8-flash",
            "gemini",
        ),
        Cloud(
            "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai/gpt-5-mini"
        ),
        Cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b"),
        Cloud("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat"),
        Cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-large-4"),
        Cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4"),
        Cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "openai/gpt-oss-120b"),
    )
}


@dataclass(frozen=True, slots=True)
class LoopbackServer:
    """A server people run on their own machine."""

    name: str
    port: int
    api: str = "openai-chat"
    root: str = "/v1"

    @property
    def base_url(self) -> str:
        """Root of its API."""
        return f"http://127.0.0.1:{self.port}{self.root}"


LOOPBACK_SERVERS: dict[str, LoopbackServer] = {
    server.name: server
    for server in (
        LoopbackServer("ollama", 11434, "ollama", "/api"),
        LoopbackServer("lmstudio", 1234),
        LoopbackServer("llamacpp", 8080),
        LoopbackServer("vllm", 8000),
    )
}

_MODELS = Path(__file__).with_name("models.json")
#: What the servers of a provider want, whichever the model.
_COMPAT: dict[str, dict[str, str]] = {
    name: {"max_tokens_field": "max_tokens"} for name in ("mistral", "deepseek", "together")
}


@lru_cache(maxsize=1)
def models() -> tuple[Model, ...]:
    """Return the models that are known by name, read on first use."""
    return tuple(_model(**line) for line in json.loads(_MODELS.read_text("utf-8"))["models"])


def _model(
    *,
    provider: str,
    id: str,
    prices: Sequence[float],
    window: int,
    api: str = "openai-chat",
    images: bool = False,
    reasoning: bool = False,
    max_tokens: int = 16_384,
    compat: Mapping[str, Any] | None = None,
) -> Model:
    names = ("input", "output", "cache_read", "cache_write")
    return Model(
        id=id,
        provider=provider,
        base_url=CLOUDS[provider].base_url,
        api=api,
        reasoning=reasoning,
        input=("text", "image") if images else ("text",),
        cost=ModelCost(**dict(zip(names, prices, strict=True))),
        context_window=window,
        max_tokens=max_tokens,
        compat=dict(compat or {}),
    )


def find_model(provider: str, name: str) -> Model | None:
    """Look a model up."""
    return next((m for m in models() if (m.provider, m.id) == (provider, name)), None)


def unknown_model(provider: str, name: str, base_url: str, api: str = "") -> Model:
    """Describe a model nobody described: text alone, price unknown, used as it is."""
    spoken = CLOUDS.get(provider) or LOOPBACK_SERVERS.get(provider)
    return Model(
        id=name,
        provider=provider,
        base_url=base_url,
        api=api or (spoken.api if spoken else "openai-chat"),
        context_window=32_768,
        compat=dict(_COMPAT.get(provider, {})),
    )
