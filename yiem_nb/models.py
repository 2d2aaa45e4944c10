"""What a model is and costs, and the settings people choose from (SP-007, SP-008, SPEC-1.2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "QUEUE_ALL",
    "QUEUE_ONE_AT_A_TIME",
    "THINKING_HIGH",
    "THINKING_LOW",
    "THINKING_MAX",
    "THINKING_MEDIUM",
    "THINKING_MINIMAL",
    "THINKING_OFF",
    "THINKING_XHIGH",
    "Limits",
    "LlmModel",
    "Model",
    "ModelCost",
    "QueueMode",
    "ThinkingLevel",
]


class ThinkingLevel(StrEnum):
    """How hard the model may think before it answers (SPEC-1.2)."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


THINKING_OFF = ThinkingLevel.OFF
THINKING_MINIMAL = ThinkingLevel.MINIMAL
THINKING_LOW = ThinkingLevel.LOW
THINKING_MEDIUM = ThinkingLevel.MEDIUM
THINKING_HIGH = ThinkingLevel.HIGH
THINKING_XHIGH = ThinkingLevel.XHIGH
THINKING_MAX = ThinkingLevel.MAX


class QueueMode(StrEnum):
    """How many queued messages one turn takes (SPEC-10.1)."""

    ONE_AT_A_TIME = "one-at-a-time"
    ALL = "all"


QUEUE_ONE_AT_A_TIME = QueueMode.ONE_AT_A_TIME
QUEUE_ALL = QueueMode.ALL


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class ModelCost(_Frozen):
    """Prices in US dollars per million tokens (SP-008)."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class Model(_Frozen):
    """One model at one provider (SP-007).

    Parameters
    ----------
    id
        The name the provider knows it by.
    name
        The name people see; `id` where none is given.
    provider
        Who serves it, e.g. ``"openai"``, ``"local"``.
    base_url
        Root of the API, e.g. ``"https://api.openai.com/v1"``.
    reasoning
        Whether it can think before it answers.
    input
        What it takes: ``"text"``, ``"image"``.
    cost
        Prices; zeros for a local model.
    context_window, max_tokens
        Longest context, and longest answer, in tokens.
    api
        The wire dialect, e.g. ``"openai-chat"``.
    compat
        The server's quirks as data, read by its dialect; never guessed from the URL.
    """

    id: str
    name: str = ""
    provider: str = ""
    base_url: str = ""
    reasoning: bool = False
    input: tuple[str, ...] = ("text",)
    cost: ModelCost = Field(default_factory=ModelCost)
    context_window: int = 128_000
    max_tokens: int = 16_384
    api: str = "openai-chat"
    compat: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name to show: `name`, or `id` where there is none."""
        return self.name or self.id


LlmModel = Model


class Limits(_Frozen):
    """Our own limits (SPEC-9.1, SPEC-9.2); ``None`` lifts one."""

    messages_per_session: int | None = Field(default=1000, gt=0)
    messages_per_minute: int | None = Field(default=100, gt=0)
    tool_calls_per_turn: int | None = Field(default=10, gt=0)
    #: Calls of one answer beyond this are refused; `tool_calls_per_turn` is how many run at once.
    tool_calls_per_answer: int | None = Field(default=100, gt=0)
    turns_per_run: int | None = Field(default=50, gt=0)
    reads_per_second: int | None = Field(default=1000, gt=0)
    writes_per_second: int | None = Field(default=100, gt=0)
