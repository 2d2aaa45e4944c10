"""Conversations of any shape, as hypothesis strategies: what files and other models may hold."""

from hypothesis import strategies as st
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    UserMessage,
)

PIXEL = ImageContent("iVBORw0KGgo=", "image/png")
IDS = st.sampled_from(["", "a", "call", "b", "functions.x:0", "functions_x_0", "y" * 50, "y" * 80])
BLOCKS = st.lists(
    st.builds(lambda text: TextContent.model_validate({"text": text}), st.text(max_size=3))
    | st.just(PIXEL)
    | st.builds(
        ReasoningContent,
        st.text(max_size=3),
        signature=st.sampled_from([None, "sig"]),
        field=st.sampled_from([None, "reasoning"]),
        item_id=st.sampled_from([None, "rs"]),
    )
    | st.just(ReasoningContent("", "enc", redacted=True)),
    max_size=3,
)
CALLS = st.lists(
    st.builds(
        AgentToolCall, IDS, st.sampled_from(["f", ""]), signature=st.sampled_from([None, "s"])
    ),
    max_size=3,
)


def histories(**names):
    """Conversations with a model of these names, faults included."""
    answers = st.builds(
        lambda blocks, calls, reason: AssistantMessage.model_validate(
            {"content": [*blocks, *calls], "stopReason": reason} | names
        ),
        BLOCKS,
        CALLS,
        st.sampled_from(list(StopReason)),
    )
    results = st.builds(
        lambda call_id, blocks, failed: ToolResultMessage.model_validate(
            {"toolCallId": call_id, "toolName": "f", "content": blocks, "isError": failed}
        ),
        IDS,
        BLOCKS,
        st.booleans(),
    )
    said = st.builds(lambda blocks: UserMessage.model_validate({"content": blocks}), BLOCKS)
    return st.lists(said | answers | results, max_size=8)
