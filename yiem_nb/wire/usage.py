"""Tokens, as each dialect counts them, made one `Usage` (pure; the contract's conflict 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiem_nb.messages import Usage, UsageCost

__all__ = [
    "anthropic_usage",
    "as_mapping",
    "gemini_usage",
    "ollama_usage",
    "openai_usage",
]


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` if it is an object, else an empty one: servers send null and lists."""
    return value if isinstance(value, Mapping) else {}


def count(value: Any) -> int:
    """Return a number of tokens; what is negative, not finite or no number counts as none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < float("inf") else 0


def first_count(usage: Mapping[str, Any], *names: str) -> int:
    """Return the first count among `names` that is not zero."""
    return next((number for name in names if (number := count(usage.get(name)))), 0)


def openai_usage(value: Any) -> Usage | None:
    """Read the usage of OpenAI's chat completions and responses, and of the many that copy them.

    Their prompt includes what came from the cache; ours does not. Reasoning is a part of the
    completion, unless the total proves that it was counted beside it (xAI).
    """
    usage = as_mapping(value)
    names = ("prompt_tokens", "input_tokens", "completion_tokens", "output_tokens")
    if not any(isinstance(usage.get(name), int | float) for name in names):
        return None
    prompt = first_count(usage, "prompt_tokens", "input_tokens")
    output = first_count(usage, "completion_tokens", "output_tokens")
    inner = as_mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    outer = as_mapping(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    read = count(inner.get("cached_tokens")) or first_count(
        usage, "prompt_cache_hit_tokens", "cached_tokens"
    )
    written = first_count(inner, "cache_write_tokens", "cache_creation_tokens")
    reasoning = count(outer.get("reasoning_tokens"))
    total = count(usage.get("total_tokens"))
    if reasoning and total == prompt + output + reasoning:
        output += reasoning
    return Usage(
        max(0, prompt - read - written),
        output,
        read,
        written,
        min(reasoning, output),
        total_tokens=total or None,
        cost=reported_cost(usage.get("cost")),
    )


def reported_cost(value: Any) -> UsageCost | None:
    """Return what the provider says the request cost (OpenRouter), if it says so."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value < float("inf")
    ):
        return None
    return UsageCost(total=float(value))


def anthropic_usage(counts: Mapping[str, Any]) -> Usage | None:
    """Read Anthropic's usage, whose input excludes the cache as ours does."""
    if not any(isinstance(counts.get(name), int) for name in ("input_tokens", "output_tokens")):
        return None
    return Usage(
        count(counts.get("input_tokens")),
        count(counts.get("output_tokens")),
        count(counts.get("cache_read_input_tokens")),
        count(counts.get("cache_creation_input_tokens")),
    )


def gemini_usage(value: Any) -> Usage | None:
    """Read Gemini's usage, where thoughts stand beside the candidates and the cache is in the prompt."""
    usage = as_mapping(value)
    if not usage:
        return None
    prompt = count(usage.get("promptTokenCount")) + count(usage.get("toolUsePromptTokenCount"))
    read = count(usage.get("cachedContentTokenCount"))
    thoughts = count(usage.get("thoughtsTokenCount"))
    output = count(usage.get("candidatesTokenCount")) + thoughts
    return Usage(max(0, prompt - read), output, read, reasoning=thoughts)


def ollama_usage(line: Mapping[str, Any]) -> Usage | None:
    """Read the counts on Ollama's last line."""
    if "eval_count" not in line and "prompt_eval_count" not in line:
        return None
    return Usage(count(line.get("prompt_eval_count")), count(line.get("eval_count")))
