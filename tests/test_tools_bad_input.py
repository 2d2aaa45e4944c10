"""What models and people get wrong about tools, each answered in a sentence they can act on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.factories import call, results, run
from tests.test_tool_faults import Kernel
from yiem_nb.errors import InvalidParametersError
from yiem_nb.messages import AgentToolCall
from yiem_nb.tools import tool_from_function


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.bridge.thread.stop()


def book(day: str, n: int = 1) -> str:
    """Book a day."""
    return f"{day} {n}"


@pytest.mark.requirement("SPEC-8.2")
@pytest.mark.parametrize("name", ["two words", "smile😀", "größe", "n" * 100, "1st", "a-b", ""])
def test_a_name_that_no_provider_takes_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(InvalidParametersError) as caught:
        tool_from_function(book, name=name)
    assert "no name for a tool" in caught.value.message
    assert "letters, digits and _" in str(caught.value)


def test_two_functions_of_one_name_are_said_with_both_remedies(kernel: Kernel) -> None:
    kernel.namespace["book"] = book
    kernel.registry.add(book)

    def other() -> str:
        """Other."""
        return "x"

    with pytest.raises(InvalidParametersError) as caught:
        kernel.registry.add(other, name="book")
    assert "There is a tool 'book' already" in caught.value.message
    assert "name=" in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Missing required arguments: day"),
        ({"day": "1", "n": "many"}, "n: "),
        ({"day": "1", "month": 2}, "month"),
        ({"day": ["x"]}, "day: "),
        ({"day": None}, "day: "),
        ({"day": "1", "n": "x" * 1_000_000}, "n: "),
        ({"x" * 1_000_000: 1, "day": "1"}, "xxx"),
        ({"day": "1", **{f"extra{n}": n for n in range(2_000)}}, "extra0"),
    ],
    ids=["missing", "wrong type", "extra", "list", "null", "1 MB", "1 MB name", "2000 extras"],
)
async def test_arguments_that_do_not_fit_come_back_in_few_words(
    arguments: dict[str, Any], said: str
) -> None:
    tool = tool_from_function(book)
    events = await run([call("c1", "book", **arguments), "done"], tools=[tool])
    result = results(events)["c1"]
    assert result.is_error
    assert result.details == {"code": "INVALID_PARAMETERS"}
    assert said in result.text
    assert len(result.text) <= 22_000


@pytest.mark.requirement("SP-005")
@pytest.mark.parametrize(
    "made",
    [
        AgentToolCall("c1", "book", raw_arguments='{"day": "1"', incomplete=True),
        AgentToolCall("c1", "book", raw_arguments='["day"]', invalid=True),
        AgentToolCall("c1", "book", raw_arguments='"day"', invalid=True),
        AgentToolCall("c1", "book", raw_arguments="x" * 1_000_000, invalid=True),
    ],
    ids=["cut off", "a list", "a text", "1 MB of no JSON"],
)
async def test_arguments_that_are_no_object_are_never_run(made: AgentToolCall) -> None:
    events = await run([made, "done"], tools=[tool_from_function(book)])
    result = results(events)["c1"]
    assert result.text.startswith("Not run: the arguments of 'book' ")
    assert "Received: " in result.text
    assert len(result.text) < 1_000


def test_a_megabyte_that_fits_is_passed(kernel: Kernel) -> None:
    def f(text: str) -> int:
        """F."""
        return len(text)

    kernel.registry.add(f)
    (result,) = kernel.results(call("c1", "f", text="x" * 1_000_000))
    assert result.text == "1000000"
