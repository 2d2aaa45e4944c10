"""The models and servers known by name.

Prices are US dollars per million tokens as published in genai-prices 0.2.3 (MIT), read in November 2026;
a model that is not here is used as it is, its price unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from yiem_nb.models import Model, ModelCost

__all__ = [
    "CLOUDS",
    "LOOPBACK_SERVERS",
    "MODELS",
    "Cloud",
    "LoopbackServer",
    "find_model",
    "unknown_model",
]


@dataclass(frozen=True, slots=True)
class Cloud:
    """A provider that is reached with a key."""

    name: str
    base_url: str
    key_name: str
    default: str


#: In the order in which their keys are looked for.
CLOUDS: dict[str, Cloud] = {
    cloud.name: cloud
    for cloud in (
        Cloud("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5-mini"),
        Cloud(
            "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai/gpt-5-mini"
        ),
        Cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b"),
        Cloud("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-chat"),
        Cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-large-latest"),
        Cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4"),
        Cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "openai/gpt-oss-120b"),
    )
}


@dataclass(frozen=True, slots=True)
class LoopbackServer:
    """A server people run on their own machine."""

    name: str
    port: int

    @property
    def base_url(self) -> str:
        """Root of its API."""
        return f"http://127.0.0.1:{self.port}/v1"


LOOPBACK_SERVERS: dict[str, LoopbackServer] = {
    server.name: server
    for server in (
        LoopbackServer("ollama", 11434),
        LoopbackServer("lmstudio", 1234),
        LoopbackServer("llamacpp", 8080),
        LoopbackServer("vllm", 8000),
    )
}

_MAX_TOKENS: dict[str, dict[str, str]] = {
    "mistral": {"max_tokens_field": "max_tokens"},
    "deepseek": {"max_tokens_field": "max_tokens"},
    "together": {"max_tokens_field": "max_tokens"},
}


def _model(
    provider: str,
    name: str,
    prices: tuple[float, float, float],
    window: int,
    *,
    reasoning: bool = False,
    images: bool = False,
    **compat: object,
) -> Model:
    sent, received, cached = prices
    return Model(
        id=name,
        provider=provider,
        base_url=CLOUDS[provider].base_url,
        reasoning=reasoning,
        input=("text", "image") if images else ("text",),
        cost=ModelCost(input=sent, output=received, cache_read=cached),
        context_window=window,
        compat=dict(_MAX_TOKENS.get(provider, {})) | compat,
    )


_DEVELOPER = {"system_role": "developer"}
MODELS: tuple[Model, ...] = (
    _model(
        "openai", "gpt-5", (1.25, 10, 0.125), 400_000, reasoning=True, images=True, **_DEVELOPER
    ),
    _model(
        "openai", "gpt-5-mini", (0.25, 2, 0.025), 400_000, reasoning=True, images=True, **_DEVELOPER
    ),
    _model(
        "openai",
        "gpt-5-nano",
        (0.05, 0.4, 0.005),
        400_000,
        reasoning=True,
        images=True,
        **_DEVELOPER,
    ),
    _model("openai", "gpt-4.1", (2, 8, 0.5), 1_047_576, images=True),
    _model("openai", "gpt-4.1-mini", (0.4, 1.6, 0.1), 1_047_576, images=True),
    _model("openai", "gpt-4o-mini", (0.15, 0.6, 0.075), 128_000, images=True),
    _model("deepseek", "deepseek-chat", (0.28, 0.42, 0.028), 128_000),
    _model(
        "deepseek",
        "deepseek-reasoner",
        (0.28, 0.42, 0.028),
        128_000,
        reasoning=True,
        echo_reasoning=True,
        reasoning_effort=False,
    ),
    _model("groq", "openai/gpt-oss-120b", (0.15, 0.75, 0.075), 131_072, reasoning=True),
    _model("mistral", "mistral-large-latest", (0.5, 1.5, 0), 262_144, images=True),
    _model("xai", "grok-4", (3, 15, 0.75), 256_000, images=True),
)


def find_model(provider: str, name: str) -> Model | None:
    """Look a model up."""
    return next((m for m in MODELS if (m.provider, m.id) == (provider, name)), None)


def unknown_model(provider: str, name: str, base_url: str) -> Model:
    """Describe a model nobody described: text alone, price unknown, used as it is."""
    return Model(
        id=name,
        provider=provider,
        base_url=base_url,
        context_window=32_768,
        compat=dict(_MAX_TOKENS.get(provider, {})),
    )
