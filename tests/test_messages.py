"""Messages: strict where people make them, lenient where files and wires are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yiem_nb
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    AssistantMessageToolCall,
    ImageContent,
    LlmUsage,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    UnknownContent,
    Usage,
    UserMessage,
)
from yiem_nb.models import (
    QUEUE_ONE_AT_A_TIME,
    THINKING_OFF,
    Limits,
    LlmModel,
    Model,
    ModelCost,
    QueueMode,
    ThinkingLevel,
)

PIXEL = "iVBORw0KGgo="
ANY_MESSAGE = TypeAdapter[Any](AgentMessage)


def line(message: Any) -> str:
    return str(message.model_dump_json(by_alias=True, exclude_none=True))


@pytest.mark.requirement("SP-001", "SPEC-2.2")
def test_a_user_message_takes_text_blocks_or_nothing() -> None:
    assert UserMessage("hi").content == (TextContent("hi"),)
    assert UserMessage(content=[TextContent("a"), ImageContent(PIXEL, "image/png")]).text == "a"
    assert UserMessage().content == ()
    assert UserMessage("hi", role="user").role == "user"
    with pytest.raises(ValidationError):
        UserMessage("hi", role="assistant")  # type: ignore[arg-type]


@pytest.mark.requirement("SP-002", "SPEC-2.3")
def test_an_assistant_message_has_the_specified_defaults() -> None:
    message = AssistantMessage(timestamp=1)
    assert (message.api, message.provider, message.model) == ("", "", "")
    assert (message.usage.input, message.usage.output) == (0, 0)
    assert message.stop_reason is StopReason.STOP is StopReason.END_TURN
    assert message.error_message is None
    assert AssistantMessage(model=None).model == ""


@pytest.mark.requirement("SP-003")
def test_a_tool_calling_message_keeps_its_calls_behind_its_content() -> None:
    call = AgentToolCall("c1", "f", {"a": 1})
    message = AssistantMessageToolCall([call], content=[ReasoningContent("hm")])
    assert message.stop_reason is StopReason.TOOL_USE is StopReason.TOOL_CALLS
    assert message.tool_calls == (call,)
    assert AssistantMessage("text", tool_calls=[{"id": "c", "name": "f"}]).stop_reason == "toolUse"


@pytest.mark.requirement("SP-004", "SPEC-2.4")
def test_a_tool_result_takes_either_role_and_writes_one() -> None:
    message = ToolResultMessage("c1", "f", "ok", role="tool", timestamp=1)
    assert message.role == "toolResult"
    assert ToolResultMessage.model_validate({"role": "tool"}).role == "toolResult"
    assert (message.details, message.usage, message.added_tool_names) == (None, None, None)
    assert message.text == "ok"


@pytest.mark.requirement("SP-005")
def test_a_call_says_whether_it_can_be_run() -> None:
    assert AgentToolCall("c", "f", type="function").type == "toolCall"
    assert AgentToolCall.model_validate({"type": "function", "id": "c", "name": "f"}).runnable
    nested = AssistantMessage.model_validate(
        {"content": [{"type": "function", "id": "c", "name": "f"}]}
    )
    assert nested.tool_calls[0].name == "f"
    assert not AgentToolCall("c", "f", raw_arguments="{", incomplete=True).runnable
    assert not AgentToolCall("c", "f", raw_arguments="[]", invalid=True).runnable


@pytest.mark.requirement("SP-006.1", "SP-006.2", "SP-006.3", "SPEC-1.4")
def test_blocks_take_positionals() -> None:
    assert TextContent("a").text == "a"
    assert ImageContent(PIXEL, "image/png").mime_type == "image/png"
    thought = ReasoningContent("hm", "sig", field="reasoning")
    assert line(thought) == (
        '{"type":"thinking","thinking":"hm","thinkingSignature":"sig","field":"reasoning"}'
    )


@pytest.mark.requirement("SPEC-8.1")
@pytest.mark.parametrize(
    "make",
    [
        lambda: TextContent(""),
        lambda: UserMessage([{"type": "text", "text": ""}]),
        lambda: ImageContent("not base64!", "image/png"),
        lambda: ImageContent("", "image/png"),
        lambda: ImageContent(PIXEL, "png"),
        lambda: UserMessage("a", timestamp=0),
        lambda: AssistantMessage("a", timestamp=-1),
        lambda: UserMessage("a", timestamp=datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_people_cannot_make_what_the_specification_forbids(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_files_and_wires_are_read_as_they_are() -> None:
    read = ANY_MESSAGE.validate_python(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": ""},
                {"type": "image", "data": "", "mimeType": ""},
            ],
            "timestamp": -5,
            "responseId": "r1",
        }
    )
    assert read.text == ""
    assert '"responseId":"r1"' in line(read)
    assert (
        ANY_MESSAGE.validate_python({"role": "user", "content": None, "timestamp": 1}).content == ()
    )


def test_an_unknown_block_is_kept() -> None:
    read = AssistantMessage.model_validate({"content": [{"type": "audio", "data": "x"}]})
    assert isinstance(read.content[0], UnknownContent)
    assert '{"type":"audio","data":"x"}' in line(read)


def test_a_misspelt_field_is_an_error_and_a_json_name_is_not() -> None:
    with pytest.raises(TypeError, match="no field 'contnt'"):
        UserMessage("a", contnt="b")
    assert AssistantMessage("a", stopReason="length").stop_reason is StopReason.LENGTH


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("end_turn", "stop"),
        ("tool_calls", "toolUse"),
        ("tool_use", "toolUse"),
        ("max_tokens", "length"),
        ("toolUse", "toolUse"),
    ],
)
def test_every_spelling_of_a_stop_reason_is_understood(word: str, meaning: str) -> None:
    assert StopReason(word) == meaning
    with pytest.raises(ValueError):
        StopReason("nonsense")


def test_usage_adds_up_unless_the_provider_did() -> None:
    assert Usage(1, 2, 3, 4).total_tokens == 10
    assert Usage(1, 2, total_tokens=99).total_tokens == 99
    assert Usage.model_validate({"input": 1, "cacheRead": 2}).total_tokens == 3
    assert '"reported"' not in line(Usage())
    assert '"reported":false' in line(Usage(reported=False))
    assert LlmUsage is Usage
    with pytest.raises(ValidationError):
        Usage.model_validate({"input": "many"})
    assert Usage.model_validate(Usage(1)) == Usage(1)


def test_a_timestamp_is_milliseconds_and_takes_an_aware_datetime() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    message = UserMessage("a", timestamp=when)
    assert message.timestamp == 1767323045678
    assert message.datetime == when


@pytest.mark.requirement("SPEC-3.2")
def test_a_tool_that_returns_nothing_says_so() -> None:
    assert AgentToolResult().text == "(no output)"
    assert AgentToolResult("x", added_tool_names=["g"]).added_tool_names == ("g",)


@pytest.mark.requirement("SPEC-2.1")
@given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(TextContent),
            st.text(st.characters(exclude_categories=["Cs"])).map(ReasoningContent),
            st.dictionaries(st.text("abc", max_size=3), st.integers() | st.none()).map(
                lambda arguments: AgentToolCall("c", "f", arguments)
            ),
        )
    ),
    st.sampled_from(list(StopReason)),
)
def test_a_message_survives_json(content: list[Any], reason: StopReason) -> None:
    message = AssistantMessage(content, stop_reason=reason, model="m")
    assert ANY_MESSAGE.validate_json(line(message)) == message


@pytest.mark.requirement("SP-007", "SP-008")
def test_a_model_and_its_prices() -> None:
    model = Model(id="m", cost=ModelCost(input=1.0, output=2.0))
    assert (model.label, model.input, model.cost.cache_read) == ("m", ("text",), 0.0)
    assert Model(id="m", name="Name").label == "Name"
    assert LlmModel is Model
    with pytest.raises(ValidationError):
        Model(id="m", prices=3)  # type: ignore[call-arg]


@pytest.mark.requirement("SPEC-1.2", "SPEC-10.1")
def test_the_enums_have_the_specified_values() -> None:
    assert [str(level) for level in ThinkingLevel] == [
        "off", "minimal", "low", "medium", "high", "xhigh", "max",
    ]  # fmt: skip
    assert THINKING_OFF is ThinkingLevel.OFF
    assert QUEUE_ONE_AT_A_TIME is QueueMode.ONE_AT_A_TIME


@pytest.mark.requirement("SPEC-9.1", "SPEC-9.2")
def test_limits_have_the_specified_defaults_and_can_be_lifted() -> None:
    limits = Limits()
    assert (limits.messages_per_session, limits.messages_per_minute) == (1000, 100)
    assert (limits.tool_calls_per_turn, limits.reads_per_second) == (10, 1000)
    assert limits.writes_per_second == 100
    assert Limits(messages_per_minute=None).messages_per_minute is None


def test_the_front_door_opens_every_room_it_names() -> None:
    for name in yiem_nb.__all__:
        assert getattr(yiem_nb, name) is not None
    assert set(yiem_nb.__all__) <= set(dir(yiem_nb))
    with pytest.raises(AttributeError):
        _ = yiem_nb.nonsense
