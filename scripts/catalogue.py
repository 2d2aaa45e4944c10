"""Write the built-in catalogue anew, from the prices that genai-prices (MIT) publishes.

Run: ``uv run --no-project --with genai-prices python scripts/catalogue.py``

Names, windows and prices come from there. What it does not have (thinking, images, length of an
answer, dialect, quirks) is said here, by provider and beginning of the name; later lines win.
"""

from __future__ import annotations

import datetime as dt
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import data
from genai_prices.types import TieredPrices

TARGET = Path(__file__).resolve().parent.parent / "yiem_nb" / "providers" / "models.json"

#: genai-prices' name of a provider → ours, and the beginnings of the models that are listed.
LISTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "openai": ("openai", ("gpt-4.1", "gpt-4o-mini", "gpt-5", "gpt-6")),
    "anthropic": ("anthropic", ("claude-haiku-", "claude-sonnet-", "claude-opus-")),
    "google": ("gemini", ("gemini-2.5-", "gemini-3", "gemini-4")),
    "deepseek": (
        "deepseek",
        ("deepseek-chat", "deepseek-reasoner", "deepseek-v4", "deepseek-flash"),
    ),
    "mistral": ("mistral", ("mistral-large-", "mistral-medium-3", "mistral-small-2", "devstral")),
    "x-ai": ("xai", ("grok-4", "grok-code")),
    "groq": ("groq", ("openai/gpt-oss", "qwen/", "llama-3.3-70b-versatile")),
    "together": (
        "together",
        ("openai/gpt-oss", "moonshotai/", "Qwen/Qwen3.8", "deepseek-ai/DeepSeek"),
    ),
}
#: Parts of names that say a model is for something else.
OTHER = (
    "image",
    "tts",
    "audio",
    "live",
    "embed",
    "search",
    "realtime",
    "transcribe",
    "cyber",
    ":",
    "safeguard",
    ".ft-",
    "24b",
    "multi-agent",
)
#: What people call a model by that genai-prices lists under another name.
ALIASES = {("xai", "grok-4-0709"): "grok-4"}

_EFFORTS = {"efforts": ["low", "medium", "high", "max"], "thinking_style": "effort"}
_SEES = {"reasoning": True, "images": True}
TRAITS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("openai", "gpt-4", {"images": True, "max_tokens": 16_384, "window": 128_000}),
    ("openai", "gpt-4.1", {"max_tokens": 32_768, "window": 1_047_576}),
    ("openai", "gpt-5", _SEES | {"api": "openai-responses", "max_tokens": 128_000, "window": 400_000,
                                 "efforts": ["minimal", "low", "medium", "high"]}),
    ("openai", "gpt-5.", {"efforts": ["low", "medium", "high", "xhigh"]}),
    ("openai", "gpt-6", _SEES | {"api": "openai-responses", "max_tokens": 128_000, "window": 400_000,
                                 "efforts": ["low", "medium", "high", "xhigh"]}),
    ("anthropic", "claude", _SEES | _EFFORTS | {"api": "anthropic-messages", "max_tokens": 64_000,
                                                "window": 200_000}),
    *(("anthropic", name, {"thinking_style": "budget", "efforts": None})
      for name in ("claude-haiku-4-5", "claude-sonnet-4-0", "claude-sonnet-4-5")),
    *(("anthropic", name, {"thinking_style": "budget", "efforts": None, "max_tokens": 32_000})
      for name in ("claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-5")),
    ("gemini", "gemini", _SEES | {"api": "gemini", "max_tokens": 65_536, "window": 1_048_576}),
    ("gemini", "gemini-3", {"thinking_style": "effort"}),
    ("gemini", "gemini-4", {"thinking_style": "effort"}),
    ("deepseek", "", {"max_tokens": 8192, "least_window": 128_000, "max_tokens_field": "max_tokens"}),
    ("deepseek", "deepseek-reasoner", {"reasoning": True, "reasoning_effort": False,
     "echo_reasoning": True, "required_reasoning_field": "reasoning_content"}),
    ("deepseek", "deepseek-v4", {"reasoning": True, "reasoning_effort": False,
     "echo_reasoning": True, "required_reasoning_field": "reasoning_content"}),
    ("mistral", "", {"window": 131_072, "max_tokens_field": "max_tokens"}),
    ("mistral", "mistral-", {"images": True}),
    ("xai", "grok-4", {"images": True, "window": 256_000}),
    ("xai", "grok-code", {"window": 256_000}),
    ("groq", "", {"window": 131_072}),
    ("groq", "openai/", {"reasoning": True}),
    ("together", "", {"window": 131_072, "max_tokens_field": "max_tokens"}),
    ("together", "openai/", {"reasoning": True}),
)  # fmt: skip
PLAIN = {"reasoning", "images", "api", "max_tokens"}
WINDOWS = {"window", "least_window"}


def per_million(price: Any) -> float:
    """Return a price in dollars; of one in tiers, the first."""
    base = price.base if isinstance(price, TieredPrices) else price
    return float(base or 0)


def described(provider: str, info: Any, when: dt.datetime) -> dict[str, Any]:
    """Return one line of the catalogue."""
    traits: dict[str, Any] = {}
    for owner, beginning, given in TRAITS:
        if owner == provider and info.id.startswith(beginning):
            traits |= given
    prices = info.get_prices(when)
    line = {
        "provider": provider,
        "id": ALIASES.get((provider, info.id), info.id),
        "prices": [
            per_million(getattr(prices, f"{name}_mtok", None))
            for name in ("input", "output", "cache_read", "cache_write")
        ],
        # Some windows there are those of an earlier version.
        "window": max(
            info.context_window or traits.get("window", 0), traits.get("least_window", 0)
        ),
        **{name: traits[name] for name in sorted(PLAIN) if traits.get(name)},
    }
    compat = {
        name: value
        for name, value in traits.items()
        if name not in PLAIN | WINDOWS and value is not None
    }
    return line | ({"compat": compat} if compat else {})


def main() -> None:
    """Write the file."""
    # Noon: some providers have a price for the night.
    now = dt.datetime.now(dt.UTC).replace(hour=12, minute=0)
    models = [
        described(LISTED[provider.id][0], info, now)
        for provider in data.providers
        if provider.id in LISTED
        for info in provider.models
        if info.id.startswith(LISTED[provider.id][1])
        and not any(part in info.id for part in OTHER)
        and not info.deprecated
    ]
    models.sort(key=lambda line: (line["provider"], line["id"]))
    head = {"source": f"genai-prices {version('genai-prices')} (MIT)", "dated": f"{now:%Y-%m-%d}"}
    lines = ",\n".join(f"  {json.dumps(line)}" for line in models)
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "models": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(models)} models → {TARGET.name}")


if __name__ == "__main__":
    main()
