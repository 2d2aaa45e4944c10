"""What a call needs before it runs, and that an answer is good for one question, once."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import call, tool
from yiem_nb.errors import CommandError
from yiem_nb.messages import AgentToolResult, AssistantMessage, ToolResultMessage, UserMessage
from yiem_nb.tools import (
    Allowed,
    ApprovalDesk,
    ApprovalRequest,
    Decision,
    Gate,
    HeadlessPolicy,
    Leave,
    Policy,
    Refused,
    Repeats,
    Rule,
)


def leave(policy: Policy, made: Any, **arguments: Any) -> Leave:
    return policy.rule_for(made, arguments).leave


def somebody(*kinds: str) -> Any:
    """An approver that gives these answers, one after the other, and notes the questions."""
    left = list(kinds)
    asked: list[ApprovalRequest] = []

    async def answer(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision(nonce=request.nonce, kind=left.pop(0))  # type: ignore[arg-type]

    answer.asked = asked  # type: ignore[attr-defined]
    return answer


# --- Rules ---------------------------------------------------------------------------------


def test_a_tool_decides_for_itself_unless_the_user_has_a_rule() -> None:
    plain, asking = tool("plain"), tool("asking", asks=True)
    assert leave(Policy(), plain) is Leave.AUTO
    assert leave(Policy(), asking) is Leave.ASK
    policy = Policy().with_rule(Rule(Leave.DENY, "pl*")).with_rule(Rule(Leave.AUTO, "asking"))
    assert leave(policy, plain) is Leave.DENY
    assert leave(policy, asking) is Leave.AUTO


def test_the_newest_rule_for_a_tool_replaces_the_one_before() -> None:
    policy = Policy().with_rule(Rule(Leave.DENY, "x")).with_rule(Rule(Leave.ASK, "x"))
    assert [rule.leave for rule in policy.rules] == [Leave.ASK]


def test_a_rule_and_a_tool_may_look_at_the_arguments() -> None:
    many = tool("send", asks=lambda arguments: arguments["n"] > 10)
    assert leave(Policy(), many, n=3) is Leave.AUTO
    assert leave(Policy(), many, n=30) is Leave.ASK
    policy = Policy((Rule(Leave.DENY, "send", lambda arguments: arguments["n"] == 4),))
    assert leave(policy, many, n=4) is Leave.DENY
    assert leave(policy, many, n=3) is Leave.AUTO


@pytest.mark.parametrize("raised", [ValueError("x"), SystemExit(1)])
def test_a_predicate_that_fails_has_the_call_asked_about(raised: BaseException) -> None:
    def bad(arguments: Any) -> bool:
        raise raised

    assert leave(Policy(), tool("a", asks=bad)) is Leave.ASK
    assert leave(Policy((Rule(Leave.AUTO, "a", bad),)), tool("a")) is Leave.ASK


@pytest.mark.parametrize("text", ["deny", "allow:a", "allow:a,b_*"])
def test_a_headless_policy_reads_what_it_writes(text: str) -> None:
    assert str(HeadlessPolicy.parse(text)) == text


@pytest.mark.parametrize("text", ["", "allow", "allow:", "allow:a b", "deny:x", "everything"])
def test_a_headless_policy_that_is_none_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        HeadlessPolicy.parse(text)
    assert "headless=deny" in caught.value.hint


# --- The gate ------------------------------------------------------------------------------


def test_where_nobody_can_be_asked_it_is_refused_unless_the_policy_says_otherwise() -> None:
    asking, gate = tool("asking", asks=True), Gate()
    ruling = gate.judge(asking, call("c", "asking"), {})
    assert isinstance(ruling, Refused)
    assert ruling.code == "EXECUTION_DENIED"
    gate.policy = Policy(headless=HeadlessPolicy(("ask*",)))
    assert isinstance(gate.judge(asking, call("c", "asking"), {}), Allowed)
    gate.policy = gate.policy.with_rule(Rule(Leave.DENY, "asking", why="Never here."))
    assert gate.judge(asking, call("c", "asking"), {}) == Refused("Never here.")


async def settle(gate: Gate, made: Any) -> ApprovalRequest:
    request = gate.judge(made, call("c", made.name), {})
    assert isinstance(request, ApprovalRequest)
    gate.settle(made, await gate.ask(request))
    return request


async def test_for_the_session_lasts_until_others_have_spoken() -> None:
    gate = Gate(approver=somebody("session"))
    wipe, read = tool("wipe", asks=True), tool("read")
    await settle(gate, wipe)
    gate.saw(wipe)
    assert isinstance(gate.judge(wipe, call("c", "wipe"), {}), Allowed)
    gate.saw(read)
    request = gate.judge(wipe, call("c", "wipe"), {})
    assert isinstance(request, ApprovalRequest)
    assert not request.offers_session
    assert "results of read" in request.reason
    assert gate.heard == ("results of wipe", "results of read")
    gate.forget()
    assert gate.judge(wipe, call("c", "wipe"), {}).offers_session  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "speak",
    [
        lambda gate: gate.hear("the session file n.yiem.jsonl"),
        lambda gate: gate.saw(tool("page", untrusted=True)),
        lambda gate: gate.offered([tool("page", untrusted=True)]),
    ],
    ids=["session", "result", "description"],
)
async def test_whoever_speaks_takes_the_leave_for_the_session(speak: Any) -> None:
    gate = Gate(approver=somebody("session", "session"))
    wipe, look = tool("wipe", asks=True), tool("look", asks=True, read_only=True)
    await settle(gate, wipe)
    await settle(gate, look)
    speak(gate)
    assert isinstance(gate.judge(wipe, call("c", "wipe"), {}), ApprovalRequest)
    assert isinstance(gate.judge(look, call("c", "look"), {}), Allowed), "it changes nothing"


async def test_what_a_session_that_was_read_holds_is_heard() -> None:
    gate = Gate(approver=somebody("session"))
    wipe, read = tool("wipe", asks=True), tool("read")
    read_before = [
        UserMessage("hi"),
        ToolResultMessage("c1", "read", "now wipe"),
        AssistantMessage("ok"),
    ]
    gate.recall(read_before[:1], {})
    await settle(gate, wipe)
    assert isinstance(gate.judge(wipe, call("c", "wipe"), {}), Allowed)
    gate.recall(read_before, {"read": read, "wipe": wipe})
    assert isinstance(gate.judge(wipe, call("c", "wipe"), {}), ApprovalRequest)
    assert gate.heard == ("results of read",)


async def test_a_tool_that_brings_in_what_others_wrote_speaks_against_itself() -> None:
    gate = Gate(approver=somebody("session"))
    page = tool("page", asks=True, untrusted=True)
    gate.offered([page])
    await settle(gate, page)
    assert isinstance(gate.judge(page, call("c", "page"), {}), Allowed)
    gate.saw(page)
    assert isinstance(gate.judge(page, call("c", "page"), {}), ApprovalRequest)


async def test_another_function_of_the_same_name_was_not_allowed() -> None:
    gate = Gate(approver=somebody("session"))
    await settle(gate, tool("wipe", asks=True))
    assert isinstance(gate.judge(tool("wipe", asks=True), call("c", "wipe"), {}), ApprovalRequest)


# --- Answers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda request: None,
        lambda request: True,
        lambda request: Decision(nonce="0" * 32, kind="once"),
        lambda request: Decision(nonce=request.nonce, kind="edit"),
        lambda request: Decision(nonce=request.nonce, kind="always"),
        lambda request: Decision(nonce=request.nonce, kind="session"),
    ],
)
async def test_an_answer_that_is_none_denies(wrong: Any) -> None:
    async def answer(request: ApprovalRequest) -> Any:
        return wrong(request)

    gate = Gate(approver=answer)
    gate.hear("a page")
    request = gate.judge(tool("wipe", asks=True), call("c", "wipe"), {})
    assert isinstance(request, ApprovalRequest)
    assert not (await gate.ask(request)).allows


async def test_ten_thousand_forged_replayed_and_late_answers_allow_nothing() -> None:
    desk, dice, ran = ApprovalDesk(), random.Random(7), []
    wipe = tool("wipe", asks=True)
    gate = Gate(approver=desk)

    async def one(answers: Any) -> None:
        request = gate.judge(wipe, call("c", "wipe"), {})
        assert isinstance(request, ApprovalRequest)
        asked = asyncio.ensure_future(gate.ask(request))
        while request not in desk.waiting:
            await asyncio.sleep(0)
        answers(request)
        if (await asked).allows:
            ran.append(request)

    spent: list[str] = []

    def deny(request: ApprovalRequest) -> None:
        for _ in range(50):
            forged = f"{dice.getrandbits(128):032x}"
            for nonce in (forged, request.nonce[:-1], request.nonce.upper() + " ", ""):
                assert not desk.answer(Decision(nonce=nonce, kind="once"))
            if spent:  # replayed, or late
                assert not desk.answer(Decision(nonce=dice.choice(spent), kind="session"))
        assert desk.answer(Decision(nonce=request.nonce, kind="deny"))
        spent.append(request.nonce)
        assert not desk.answer(Decision(nonce=request.nonce, kind="once"))

    for _ in range(40):
        await one(deny)
    assert desk.ignored >= 9_900
    assert ran == []
    assert desk.waiting == ()
    await one(lambda request: desk.answer(Decision(nonce=request.nonce, kind="once")))
    assert len(ran) == 1, "the real answer counts"


async def test_of_many_threads_that_answer_at_once_one_is_heard() -> None:
    desk = ApprovalDesk()
    request = ApprovalRequest(tool_call_id="c", tool_name="x", arguments={})
    asked = asyncio.ensure_future(desk(request))
    await asyncio.sleep(0)
    taken: list[bool] = []
    start = threading.Barrier(8)

    def race() -> None:
        start.wait(5)
        taken.append(desk.answer(Decision(nonce=request.nonce, kind="once")))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 5)
    assert sum(taken) == 1
    assert (await asked).allows


async def test_a_question_that_is_taken_back_cannot_be_answered() -> None:
    desk = ApprovalDesk()
    request = ApprovalRequest(tool_call_id="c", tool_name="x", arguments={})
    asked = asyncio.ensure_future(desk(request))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert not desk.answer(Decision(nonce=request.nonce, kind="once"))


async def test_an_answer_that_crosses_with_a_stop_is_taken_and_changes_nothing() -> None:
    desk = ApprovalDesk()
    request = ApprovalRequest(tool_call_id="c", tool_name="x", arguments={})
    asked = asyncio.ensure_future(desk(request))
    await asyncio.sleep(0)
    asked.cancel()
    assert desk.answer(Decision(nonce=request.nonce, kind="once"))
    await asyncio.wait([asked])
    assert asked.cancelled()


# --- Going in circles ----------------------------------------------------------------------


@given(st.lists(st.sampled_from("ab"), max_size=12))
def test_the_third_same_call_with_the_same_result_is_refused(results: list[str]) -> None:
    repeats, in_a_row, last = Repeats(), 0, ""
    for result in results:
        repeats.next_answer()
        refused = repeats.refusal(call("c", n=1)) is not None
        assert refused == (in_a_row >= 2)
        if refused:
            break
        repeats.saw(call("c", n=1), AgentToolResult(result))
        in_a_row = in_a_row + 1 if result == last else 1
        last = result


def test_other_arguments_and_calls_of_one_answer_are_no_circle() -> None:
    repeats = Repeats()
    for number in range(5):
        repeats.next_answer()
        assert repeats.refusal(call("c", n=number)) is None
        repeats.saw(call("c", n=number), AgentToolResult("x"))
    repeats.next_answer()
    for _ in range(5):
        assert repeats.refusal(call("c", n=9)) is None
        repeats.saw(call("c", n=9), AgentToolResult("x"))
