"""The scripted provider: it says what it was told to, and never poses as a model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import run, tool
from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import AbortSignal, MessageUpdateEvent
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ReasoningContent,
    StopReason,
    TextContent,
    UserMessage,
)
from yiem_nb.models import ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.state import AgentContext, Deltas

CONTEXT = AgentContext("", (UserMessage("hi", 1),))


async def answer(provider: ScriptedProvider) -> list[Any]:
    stream = provider(provider.model, CONTEXT, ThinkingLevel.OFF, AbortSignal())
    return [event async for event in stream]


async def test_turns_are_answered_one_after_the_other():
    provider = ScriptedProvider(["One.", AgentToolCall("c1", "look"), "Three."])
    first, second, third = [(await answer(provider))[-1] for _ in range(3)]
    assert (first.text, first.stop_reason) == ("One.", StopReason.STOP)
    assert second.tool_calls == (AgentToolCall("c1", "look"),)
    assert second.stop_reason is StopReason.TOOL_USE
    assert third.text == "Three."
    assert provider.requests == [CONTEXT] * 3


async def test_a_turn_may_think_speak_and_call():
    parts = [ReasoningContent("Hm."), "I look.", AgentToolCall("c1", "look", {"at": "the ü"})]
    message = (await answer(ScriptedProvider([parts])))[-1]
    assert message.content == (parts[0], TextContent("I look."), parts[2])
    assert message.stop_reason is StopReason.TOOL_USE


_PARTS = st.one_of(
    st.text(min_size=1),
    st.text(min_size=1).map(ReasoningContent),
    st.builds(
        AgentToolCall,
        st.text("abc", min_size=1),
        st.text("xyz", min_size=1),
        st.dictionaries(st.text(), st.integers() | st.text()),
    ),
)


@given(st.lists(_PARTS, min_size=1), st.integers(1, 50))
def test_deltas_joined_are_the_message(parts, size):
    events = asyncio.run(answer(ScriptedProvider([parts], size=size)))
    deltas = Deltas(AssistantMessage(timestamp=1))
    for event in events[:-1]:
        deltas = deltas.append(event)
    assert deltas.message().content == events[-1].content


async def test_a_function_sees_the_request_and_says_the_turn():
    provider = ScriptedProvider([lambda context: context.messages[-1].text.upper()])
    assert (await answer(provider))[-1].text == "HI"


async def test_a_ready_message_is_given_as_it_is():
    message = AssistantMessage("Half", stop_reason=StopReason.LENGTH, timestamp=1)
    assert (await answer(ScriptedProvider([message])))[-1] is message


async def test_an_error_is_raised_and_becomes_an_answer_in_the_loop():
    events = await run([ConnectionError("unplugged")])
    last = events[-1].messages[-1]
    assert last.stop_reason is StopReason.ERROR
    assert "unplugged" in last.error_message


async def test_a_script_that_is_over_says_so():
    events = await run([AgentToolCall("c1", "work")], tools=[tool()])
    last = events[-1].messages[-1]
    assert last.stop_reason is StopReason.ERROR
    assert last.error_message == (
        "The script has 1 turns and this is request 2. → Add a turn to ScriptedProvider([...])."
    )


def test_a_text_is_no_list_of_turns():
    with pytest.raises(ProviderError, match=r"ScriptedProvider\(\['hello'\]\)") as caught:
        ScriptedProvider("hello")
    assert caught.value.code is ErrorCode.PROVIDER_CONFIG


async def test_a_turn_that_says_nothing_is_an_empty_message():
    assert (await answer(ScriptedProvider([""])))[-1].content == ()


async def test_deltas_may_be_slow_and_are_given_up_on_a_stop():
    signal = AbortSignal()
    provider = ScriptedProvider(["Slowly", "never"], delay=0.01, size=1)
    stream = provider(provider.model, CONTEXT, ThinkingLevel.OFF, signal)
    assert await anext(stream) == MessageUpdateEvent(0, "text", "S")
    signal.abort("enough")
    (message,) = [event async for event in stream]
    assert message.stop_reason is StopReason.ABORTED
    assert message.text == "S"
    assert message.error_message == "enough"


def test_it_never_poses_as_a_model():
    model = ScriptedProvider.model
    assert (model.provider, model.label) == ("scripted", "scripted (no model)")
    assert not model.base_url
