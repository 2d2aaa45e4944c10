"""What a request is made of, read once for every dialect (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yiem_nb.messages import AgentMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.history import prepared, sendable
from yiem_nb.wire.output import closed, output_in_words
from yiem_nb.wire.schema_tools import in_words, uses_schema

__all__ = ["Asked", "read_request"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation fit to be sent, and the settings it is sent with.

    A dialect only translates: what all providers insist on is settled here.

    Parameters
    ----------
    system
        The system prompt; empty where there is none.
    messages
        The history as `model` may see it (`wire.history.prepared`).
    tools
        The tools that are offered; none where the server knows none.
    model, compat, options
        Who is asked, its quirks, and this request's own wishes.
    """

    system: str
    messages: tuple[AgentMessage, ...]
    tools: tuple[AgentTool, ...]
    model: Model
    compat: Compat
    options: RequestOptions
    #: Whether the answer is one of the tools or a reply, within a schema (`wire.schema_tools`).
    constrained: bool = False

    @property
    def output(self) -> tuple[dict[str, Any], bool] | None:
        """The schema for the dialect's own field, and whether it is strict; ``None`` without one."""
        schema = self.options.output_schema
        return closed(schema) if schema is not None and self.compat.structured else None

    @property
    def level(self) -> str:
        """How hard to think; empty where the model does not, or is not to."""
        level = self.options.thinking_level
        return level if self.model.reasoning and level != ThinkingLevel.OFF else ""

    @property
    def tool_choice(self) -> str | None:
        """Which tool to use; ``None`` where none is offered or nothing is asked."""
        return self.options.tool_choice if self.tools else None

    def numbers(self, max_tokens: str, temperature: str = "temperature") -> dict[str, Any]:
        """Return the limit and the temperature under the dialect's own names, where they are set."""
        given = {max_tokens: self.options.max_tokens, temperature: self.options.temperature}
        return {name: value for name, value in given.items() if value is not None}


def read_request(
    system_prompt: str,
    messages: Sequence[AgentMessage],
    tools: Mapping[str, AgentTool] | None,
    model: Model,
    options: RequestOptions | None,
    *,
    call_id: Callable[[str], str],
) -> Asked:
    """Read what is asked; `call_id` is the dialect's rule for the ids of calls.

    Raises
    ------
    ProviderError
        A `compat` flag of the model that there is not.
    """
    compat = Compat.of(model.compat)
    offered = (tools or {}) if compat.tools_mode != "none" else {}
    options = options or RequestOptions()
    schema = options.output_schema
    constrained = schema is None and uses_schema(messages, offered, compat)
    if schema is not None:
        # In words, too: not every server reads the field.
        system_prompt = f"{system_prompt}\n\n{output_in_words(schema)}".strip()
    if compat.tools_mode != "native":
        messages = in_words(messages)
    return Asked(
        sendable(system_prompt),
        tuple(prepared(messages, model, call_id=call_id)),
        tuple(offered.values()),
        model,
        compat,
        options,
        constrained,
    )
