"""How many tokens a text takes, by its class, and that a reported usage stands for all before it."""

import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    ToolResultMessage,
    UnknownContent,
    Usage,
    UserMessage,
)
from yiem_nb.tokens import IMAGE_TOKENS, ContextMeter, message_tokens, text_tokens

PROSE = "The regions differ mostly in altitude, and the price follows the altitude closely. " * 40
CODE = "def price_of(country: str) -> float:\n    return prices[country] * rate\n\n" * 40
TABLE = "\n".join(" ".join(f"{random.Random(n).random():.6f}" for _ in range(6)) for n in range(60))
PACKED = base64.b64encode(random.Random(1).randbytes(6000)).decode()
JSON = json.dumps(
    [{"name": f"n{n}", "price": n * 1.5, "tags": ["a", "b"]} for n in range(60)], indent=2
)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        (PROSE, 3.0, 4.6),
        (CODE, 2.8, 5.0),
        (TABLE, 0.95, 1.1),
        (PACKED, 1.25, 1.4),
        (JSON, 1.8, 3.1),
        ("ワインの値段は標高で決まる。" * 50, 0.9, 1.1),
    ],
    ids=["prose", "code", "numbers", "base64", "json", "japanese"],
)
def test_characters_a_token_are_as_measured(text: str, least: float, most: float) -> None:
    assert least <= len(text) / text_tokens(text) <= most


def test_a_long_text_is_judged_by_samples() -> None:
    whole = PROSE * 50
    assert abs(text_tokens(whole) - 50 * text_tokens(PROSE)) < 0.05 * text_tokens(whole)


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens_by_much(one: str, two: str) -> None:
    assert text_tokens(one) >= 0
    assert text_tokens(one + two) <= len((one + two).encode()) + 1


def test_every_block_counts() -> None:
    def tokens(*content: object) -> int:
        return message_tokens(AssistantMessage(list(content)))

    nothing = message_tokens(AssistantMessage())
    assert tokens(ImageContent("aGk=", "image/png")) == nothing + IMAGE_TOKENS
    assert tokens(ReasoningContent(PROSE)) == nothing + text_tokens(PROSE)
    assert tokens(AgentToolCall("c", "work", {"text": PROSE})) > text_tokens(PROSE)
    assert tokens(AgentToolCall("c", "work", raw_arguments=PROSE)) > text_tokens(PROSE)
    strange = UnknownContent.model_validate({"type": "video", "data": PROSE})
    assert tokens(strange) > text_tokens(PROSE)


def test_a_reported_usage_stands_for_all_before_it() -> None:
    meter = ContextMeter([UserMessage(PROSE)], "prompt", [{"type": "object"}])
    estimated = meter.tokens
    meter.add(AssistantMessage("yes", usage=Usage(900, 50, cache_read=50)))
    assert (estimated != 1000, meter.tokens) == (True, 1000)
    meter.add(ToolResultMessage("c", "work", PROSE))
    assert meter.tokens == 1000 + message_tokens(ToolResultMessage("c", "work", PROSE))


@pytest.mark.parametrize(
    "answer",
    [
        AssistantMessage("x", usage=Usage(900, 9), stop_reason="error"),
        AssistantMessage("x", usage=Usage(900, 9), stop_reason="aborted"),
        AssistantMessage("x", usage=Usage(reported=False)),
        AssistantMessage("x", usage=Usage(0, 0)),
        AssistantMessage("x", usage=Usage(900, 9), timestamp=5),
    ],
    ids=["failed", "stopped", "not reported", "zero", "before the compaction"],
)
def test_a_usage_that_says_nothing_of_this_conversation_is_not_believed(
    answer: AssistantMessage,
) -> None:
    assert ContextMeter([answer], since=5).tokens == message_tokens(answer) + text_tokens("")
