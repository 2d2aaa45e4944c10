"""The exact request of each situation, as a file to read: a change of the words shows in review.

Write them anew with ``YIEM_WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from yiem_nb.instructions import system_prompt
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    StopReason,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Model
from yiem_nb.providers.local import LOCAL_MODEL
from yiem_nb.providers.resolve import Settings, resolve
from yiem_nb.session.foreign import with_note
from yiem_nb.tools import tool_from_function
from yiem_nb.wire import encode

FOLDER = Path(__file__).resolve().parent / "golden_requests"


def price_of(country: str) -> str:
    """Average price of a house in a country, in euros."""
    return country


CLOUD = resolve(
    explicit="openai/gpt-5-mini",
    environ={"OPENAI_API_KEY": "x" * 20},
    user_file=Settings,
    find=list,
).model
TOOLS = {"price_of": tool_from_function(price_of)}
ASKED = UserMessage("How much does a house cost in Portugal?", 1)
CALLED = AssistantMessage(
    tool_calls=[AgentToolCall("c1", "price_of", {"country": "Portugal"})], timestamp=1
)
TOLD = ToolResultMessage("c1", "price_of", "252,000 euros", timestamp=1)
STOPPED = AssistantMessage("A house in", stop_reason=StopReason.ABORTED, timestamp=1)
FAILED = ToolResultMessage("c1", "price_of", "KeyError: 'Portugal'", is_error=True, timestamp=1)

SITUATIONS: dict[str, tuple[Model, Sequence[Any], dict[str, Any]]] = {
    "first-question": (CLOUD, [ASKED], {}),
    "with-a-tool": (CLOUD, [ASKED], TOOLS),
    "after-a-call": (CLOUD, [ASKED, CALLED, TOLD], TOOLS),
    "after-a-failed-call": (CLOUD, [ASKED, CALLED, FAILED], TOOLS),
    "after-a-stop": (CLOUD, [ASKED, STOPPED, UserMessage("Go on.", 1)], TOOLS),
    "after-a-stop-during-a-call": (CLOUD, [ASKED, CALLED, UserMessage("Go on.", 1)], TOOLS),
    "after-what-was-written-elsewhere": (
        CLOUD,
        with_note([ASKED, STOPPED, UserMessage("Go on.", 1)], 2),
        {},
    ),
    "embedded-question": (LOCAL_MODEL, [ASKED], {}),
    "embedded-with-a-tool": (LOCAL_MODEL, [ASKED], TOOLS),
    "embedded-after-a-call": (LOCAL_MODEL, [ASKED, CALLED, TOLD], TOOLS),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_request_reads_as_agreed(name: str) -> None:
    model, messages, tools = SITUATIONS[name]
    prompt = system_prompt(context_window=model.context_window, notebook="wine.ipynb")
    body = encode(prompt, messages, tools, model)
    text = json.dumps(body, indent=1, ensure_ascii=False) + "\n"
    path = FOLDER / f"{name}.json"
    if os.environ.get("YIEM_WRITE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
