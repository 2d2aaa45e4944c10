"""A conversation made fit to be sent to this model, whichever models it was held with (pure).

What every provider insists on is settled here once, in our own types, so that a dialect only
translates: each call is answered right behind it, no result lacks its call, nothing is empty, ids are
short and the same in both halves, and thoughts go back only to the model that had them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    MessageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.models import Model

__all__ = ["NO_IMAGE", "NO_RESULT", "plain_id", "prepared", "sendable", "short_id"]

NO_RESULT = "No result: the run was stopped before the tool finished."
NO_IMAGE = "[an image was left out: this model takes text only]"
NO_OUTPUT = "(no output)"


def prepared(
    messages: Sequence[AgentMessage], model: Model, *, call_id: Callable[[str], str]
) -> list[AgentMessage]:
    """Return `messages` as `model` may see them.

    Parameters
    ----------
    messages
        The history; it is not changed.
    model
        The model that will read it.
    call_id
        Gives the id under which a call and its result are sent, e.g. `short_id`.
    """
    out: list[AgentMessage] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, AssistantMessage):
            end = _end_of_turn(messages, position)
            out += _turn(message, messages[position:end], model, call_id)
            position = end
        elif not isinstance(message, ToolResultMessage):
            out += _said(message, model)
    return out


def _end_of_turn(messages: Sequence[AgentMessage], position: int) -> int:
    """Return where the next answer stands; what is before it may hold results of this one."""
    while position < len(messages) and not isinstance(messages[position], AssistantMessage):
        position += 1
    return position


def _turn(
    answer: AssistantMessage,
    following: Sequence[AgentMessage],
    model: Model,
    call_id: Callable[[str], str],
) -> list[AgentMessage]:
    """Return an answer, a result for each of its calls, and what was said after it."""
    results = {
        message.tool_call_id: message
        for message in reversed(following)
        if isinstance(message, ToolResultMessage)
    }
    answer = _answer(answer, model)
    ids = _ids(answer, call_id)
    out: list[AgentMessage] = []
    if answer.content:
        content = [_sent(block, ids) for block in answer.content]
        out.append(answer.model_copy(update={"content": tuple(content)}))
    out += [_result(call, results.get(call.id), ids[call.id], model) for call in answer.tool_calls]
    for message in following:
        if not isinstance(message, ToolResultMessage):
            out += _said(message, model)
    return out


def _answer(message: AssistantMessage, model: Model) -> AssistantMessage:
    """Keep what may be sent of an answer; of one that failed or was stopped, its text alone.

    Its calls were not run, or not all, and their arguments may be cut.
    """
    failed = message.stop_reason in (StopReason.ERROR, StopReason.ABORTED)
    mine = (message.api, message.provider, message.model) == (model.api, model.provider, model.id)
    content: list[MessageContent] = []
    called: set[str] = set()
    for block in message.content:
        if isinstance(block, TextContent):
            content += _texts(block)
        elif isinstance(block, AgentToolCall) and block.name and not failed:
            # A second call of the same id has no result of its own.
            if block.id not in called:
                content.append(block if mine else _unsigned(block))
            called.add(block.id)
        elif isinstance(block, ReasoningContent) and mine and not failed:
            content.append(block.model_copy(update={"text": sendable(block.text)}))
    # A thought alone is no answer.
    if all(isinstance(block, ReasoningContent) for block in content):
        content = []
    return message.model_copy(update={"content": tuple(content)})


def _unsigned(call: AgentToolCall) -> AgentToolCall:
    """Take off what only the model that made the call understands."""
    return call.model_copy(update={"signature": None, "item_id": None})


def _ids(answer: AssistantMessage, call_id: Callable[[str], str]) -> dict[str, str]:
    ids: dict[str, str] = {}
    for call in answer.tool_calls:
        sent = call_id(call.id or "call")
        # Two ids that the rule makes one.
        ids[call.id] = sent if sent not in ids.values() else call_id(f"{len(ids)}_{call.id}")
    return ids


def _sent(block: MessageContent, ids: dict[str, str]) -> MessageContent:
    if isinstance(block, AgentToolCall):
        return block.model_copy(update={"id": ids[block.id]})
    return block


def _result(
    call: AgentToolCall, result: ToolResultMessage | None, sent: str, model: Model
) -> ToolResultMessage:
    if result is None:
        return ToolResultMessage(sent, call.name, NO_RESULT, is_error=True)
    content = tuple(_shown(result.content, model)) or (TextContent(NO_OUTPUT),)
    changes = {"tool_call_id": sent, "tool_name": call.name, "content": content}
    return result.model_copy(update=changes)


def _said(message: AgentMessage, model: Model) -> list[AgentMessage]:
    content = tuple(_shown(message.content, model))
    return [message.model_copy(update={"content": content})] if content else []


def _shown(content: Iterable[MessageContent], model: Model) -> list[MessageContent]:
    """Return text and images; where the model takes no images, one note for each run of them."""
    shown: list[MessageContent] = []
    note = TextContent(NO_IMAGE)
    for block in content:
        if isinstance(block, TextContent):
            shown += _texts(block)
        elif isinstance(block, ImageContent):
            if "image" in model.input:
                shown.append(block)
            elif shown[-1:] != [note]:
                shown.append(note)
    return shown


def _texts(block: TextContent) -> list[TextContent]:
    text = sendable(block.text)
    return [TextContent(text)] if text.strip() else []


def sendable(text: str) -> str:
    """Replace lone halves of surrogate pairs, which no encoder takes."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


# --- Ids -----------------------------------------------------------------------------------


def short_id(longest: int) -> Callable[[str], str]:
    """Return the rule for ids of at most `longest` characters (OpenAI: 40)."""

    def rule(call_id: str) -> str:
        if len(call_id) <= longest:
            return call_id
        return f"{call_id[: longest - 9]}_{_digest(call_id)}"

    return rule


def plain_id(longest: int) -> Callable[[str], str]:
    """Return the rule for ids of letters, digits, ``_`` and ``-`` (Anthropic: 64)."""
    short = short_id(longest)

    def rule(call_id: str) -> str:
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)
        return short(plain if plain == call_id else f"{plain}_{_digest(call_id)}")

    return rule


def _digest(call_id: str) -> str:
    """Return eight characters that keep shortened ids apart."""
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
