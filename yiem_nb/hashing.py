"""The hash of a request, recorded with its answer: what a replay compares (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from yiem_nb.messages import AgentMessage, ToolResultMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext

__all__ = ["RequestHasher"]


class RequestHasher:
    """Hashes the stable parts of a request: who is asked, with which prompt, tools and messages.

    Times, usage and details are left out, so two requests that look the same to a model have one
    hash. A conversation grows at its end, so what was hashed for the last request is not read again.
    """

    def __init__(self) -> None:
        self._messages: list[AgentMessage] = []
        self._states: list[Any] = [hashlib.sha256()]

    def hash(self, model: Model | None, level: ThinkingLevel, context: AgentContext) -> str:
        """Return the hash, 64 hexadecimal digits."""
        whole = self._of_messages(context.messages).copy()
        stable = {
            "model": [model.provider, model.id, model.api] if model is not None else None,
            "thinking": level,
            "system": context.system_prompt,
            **({"output": context.output_schema} if context.output_schema is not None else {}),
            "tools": [
                [tool.name, tool.description, tool.parameters]
                for tool in (context.tools or {}).values()
            ],
        }
        whole.update(_canonical(stable))
        return str(whole.hexdigest())

    def _of_messages(self, messages: Sequence[AgentMessage]) -> Any:
        same = 0
        for known, message in zip(self._messages, messages, strict=False):
            if known is not message:
                break
            same += 1
        del self._messages[same:], self._states[same + 1 :]
        for message in messages[same:]:
            state = self._states[-1].copy()
            state.update(_canonical(_stable_message(message)))
            self._messages.append(message)
            self._states.append(state)
        return self._states[-1]


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, default=str)
    return text.encode("utf-8", "surrogatepass")


def _stable_message(message: AgentMessage) -> list[Any]:
    blocks = [block.model_dump(exclude_none=True, by_alias=True) for block in message.content]
    if isinstance(message, ToolResultMessage):
        return [message.role, message.tool_call_id, message.is_error, blocks]
    return [message.role, blocks]
