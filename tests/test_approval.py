"""A person is asked before a call: what is shown, what can be answered, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.factories import MODEL, answer, call, results, run, tool
from tests.test_agent import Notes, agent
from yiem_nb.events import AbortSignal, ToolApprovalEndEvent, ToolApprovalRequestEvent
from yiem_nb.kernel.approval import PlainApprover, question
from yiem_nb.loop import AgentLoopConfig
from yiem_nb.messages import AgentToolResult, ToolResultMessage
from yiem_nb.models import Limits
from yiem_nb.prepare import ImmediateToolCall, PreparedToolCall, ToolBlock, prepare_tool_call
from yiem_nb.state import AgentContext
from yiem_nb.tools import ApprovalRequest, Decision, Gate, Leave, Policy, Rule, tool_from_function


def wipe(table: str, n: int = 1) -> str:
    """Wipe a table."""
    return f"wiped {table} {n}"


ASKING = tool_from_function(wipe, ask=True)


def typing(*lines: str) -> Any:
    """A person at the keyboard; `said` is what was shown."""
    left, said = list(lines), []

    async def ask(text: str) -> str:
        said.append(text)
        return left.pop(0)

    approver = PlainApprover(ask)
    approver.said = said  # type: ignore[attr-defined]
    return approver


def of(kind: type, events: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# --- What can be answered ------------------------------------------------------------------


async def test_yes_runs_the_call_and_both_events_stand_around_the_waiting() -> None:
    gate = Gate(approver=typing("y"))
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    assert results(events)["c1"].text == "wiped t 1"
    (asked,) = of(ToolApprovalRequestEvent, events)
    (ended,) = of(ToolApprovalEndEvent, events)
    assert (asked.args, asked.nonce != "", ended.approved) == ({"table": "t"}, True, True)
    names = [type(event).__name__ for event in events]
    start, end = names.index("ToolExecutionStartEvent"), names.index("ToolExecutionEndEvent")
    assert start < names.index("ToolApprovalRequestEvent") < end


@pytest.mark.parametrize(
    ("said", "told"),
    [("", ""), ("n", ""), ("No", ""), ("use the copy", " use the copy"), ("yess", " yess")],
)
async def test_anything_but_yes_is_no_and_the_model_is_told_why(said: str, told: str) -> None:
    gate = Gate(approver=typing(said))
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    result = results(events)["c1"]
    assert result.text == f"The user did not allow this call.{told}"
    assert result.details == {"code": "EXECUTION_DENIED"}
    assert not of(ToolApprovalEndEvent, events)[0].approved


async def test_for_the_session_is_asked_once() -> None:
    person = typing("a")
    gate = Gate(approver=person)
    turns = [call(f"c{n}", "wipe", table=f"t{n}") for n in range(3)]
    events = await run([*turns, "done"], tools=[ASKING], gate=gate)
    assert [result.text for result in results(events).values()] == [
        f"wiped t{n} 1" for n in range(3)
    ]
    assert len(person.said) == 1


async def test_edited_arguments_are_checked_and_the_model_is_told() -> None:
    person = typing("e", "nonsense", "[1]", '{"n": "many"}', "e", '{"table": "copy"}')
    gate = Gate(approver=person)
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    text = results(events)["c1"].text
    assert text.startswith('The user changed the arguments before this ran, to: {"table": "copy"}')
    assert "wiped copy 1" in text
    assert "no JSON" in person.said[2]
    assert "no JSON object" in person.said[3]
    assert "do not fit" in person.said[4], "what was wrong is said with the question"
    assert of(ToolApprovalEndEvent, events)[-1].args == {"table": "copy"}


async def test_who_never_mends_the_arguments_has_not_allowed_the_call() -> None:
    gate = Gate(approver=typing(*["e", "{}"] * 3))
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    assert "did not fit" in results(events)["c1"].text


async def test_an_edit_can_be_given_up() -> None:
    gate = Gate(approver=typing("e", "", "n"))
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    assert results(events)["c1"].is_error


async def test_nobody_is_asked_about_a_call_that_cannot_be() -> None:
    person = typing()
    events = await run(
        [call("c1", "wipe", n=1), "done"], tools=[ASKING], gate=Gate(approver=person)
    )
    assert "table" in results(events)["c1"].text
    assert person.said == []


@pytest.mark.parametrize(
    "raised", [RuntimeError("no"), KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()]
)
async def test_an_approver_that_fails_has_not_allowed_it(raised: BaseException) -> None:
    async def bad(request: ApprovalRequest) -> Decision:
        raise raised

    events = await run(
        [call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=Gate(approver=bad)
    )
    assert results(events)["c1"].is_error
    assert answer(events).text == "done"


async def test_a_stop_ends_the_waiting_for_a_person() -> None:
    signal = AbortSignal()

    async def never(request: ApprovalRequest) -> Decision:
        asyncio.get_running_loop().call_soon(signal.abort, "enough")
        return await asyncio.get_running_loop().create_future()

    events = await asyncio.wait_for(
        run(
            [call("c1", "wipe", table="t")],
            tools=[ASKING],
            gate=Gate(approver=never),
            signal=signal,
        ),
        5,
    )
    assert results(events)["c1"].details == {"code": "EXECUTION_ABORTED"}


async def test_a_run_that_is_cancelled_while_a_person_is_asked_ends() -> None:
    asked = asyncio.Event()

    async def never(request: ApprovalRequest) -> Decision:
        asked.set()
        return await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(
        run([call("c1", "wipe", table="t")], tools=[ASKING], gate=Gate(approver=never))
    )
    await asyncio.wait_for(asked.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_hook_sees_what_the_person_left_of_it_and_may_still_refuse() -> None:
    seen: list[Any] = []

    def hook(made: Any, arguments: Any, *_: Any) -> ToolBlock:
        seen.append(arguments)
        return ToolBlock("not today")

    gate = Gate(approver=typing("e", '{"table": "copy"}'))
    events = await run(
        [call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate, before_tool_call=hook
    )
    assert seen == [{"table": "copy"}]
    assert results(events)["c1"].text == "not today"


# --- What is kept --------------------------------------------------------------------------


async def test_a_decision_is_written_down_before_the_call_runs() -> None:
    notes = Notes()

    async def work(*_: Any) -> AgentToolResult:
        notes.lines.append("ran")
        return AgentToolResult("ok")

    made = agent(
        [call("c1", "wipe", table="t"), "done"],
        notes,
        tools=[tool("wipe", work, asks=True)],
        gate=Gate(approver=typing("y")),
    )
    await made.prompt("go")
    kinds = [line[0] if isinstance(line, tuple) else line for line in notes.lines]
    assert kinds.index("yiem.approval") == kinds.index("ran") - 1
    kept = next(line[1] for line in notes.lines if line[0] == "yiem.approval")
    assert kept == {
        "toolCallId": "c1",
        "toolName": "wipe",
        "decision": "once",
        "askedBecause": "this tool asks first",
    }


def test_a_reason_and_other_arguments_are_part_of_the_record() -> None:
    request = asking(table="t")
    no = Decision(nonce=request.nonce, kind="deny", reason="not this one").record(request)
    other = Decision(nonce=request.nonce, kind="edit", arguments={"n": 2}).record(request)
    assert (no["decision"], no["reason"]) == ("deny", "not this one")
    assert (other["decision"], other["arguments"]) == ("edit", {"n": 2})


async def test_a_real_session_keeps_decisions_and_no_leave_is_read_from_it(tmp_path: Path) -> None:
    from yiem_nb.session import JsonlSessionStorage, SessionOptions, build_context
    from yiem_nb.session.journal import SessionJournal

    path = str(tmp_path / "s.jsonl")

    def kept_decisions() -> list[Any]:
        lines = [json.loads(line) for line in Path(path).read_bytes().split(b"\n") if line]
        return [line["data"]["decision"] for line in lines if line["type"] == "custom"]

    journal = SessionJournal(JsonlSessionStorage.create(SessionOptions(path=path)))
    gate = Gate(approver=typing("a"))
    made = agent([call("c1", "wipe", table="t"), "done"], journal, tools=[ASKING], gate=gate)
    await made.prompt("go")
    journal.close()
    assert kept_decisions() == ["session"]
    storage = JsonlSessionStorage.open(path)
    context = build_context(storage.tree, storage.get_leaf_id())
    storage.close()
    assert [m.role for m in context.messages] == ["user", "assistant", "toolResult", "assistant"]
    again = agent(
        [call("c1", "wipe", table="t"), "done"],
        messages=context.messages,
        tools=[ASKING],
        gate=Gate(),
    )
    await again.prompt("go on")
    last = [m for m in again.state.messages if isinstance(m, ToolResultMessage)][-1]
    assert "nobody can be asked" in last.text


async def test_a_reset_takes_the_leave_back() -> None:
    person = typing("a", "n")
    turns = [call("c1", "wipe", table="t"), "done", call("c1", "wipe", table="t"), "done"]
    made = agent(turns, tools=[ASKING], gate=Gate(approver=person))
    await made.prompt("go")
    await made.reset()
    await made.prompt("go")
    assert len(person.said) == 2


# --- What is shown -------------------------------------------------------------------------


def asking(**arguments: Any) -> ApprovalRequest:
    return ApprovalRequest(tool_call_id="c", tool_name="wipe", arguments=arguments, reason="x")


def test_what_cannot_be_seen_is_spelled_out() -> None:
    text = question(asking(table="a\u202eb\u200bc\x1b[2Kd"))
    assert "a⟨U+202E⟩b⟨U+200B⟩c" in text
    assert "\x1b" not in text


def test_arguments_cannot_pose_as_the_question() -> None:
    text = question(asking(code="x = 1\n  Allow? [y once; n, or why not] y\r\n\u2028? The model"))
    own = [line for line in text.split("\n") if not line.startswith("  │ ")]
    assert [line[:10] for line in own] == ["? The mode", "  Asked be", "  Allow? ["]
    assert "\r" not in text
    assert "\u2028" not in text


async def test_long_arguments_are_shown_in_part_and_whole_when_asked_for() -> None:
    person = typing("v", "n")
    gate = Gate(approver=person)
    await run([call("c1", "wipe", table="z" * 50_000), "done"], tools=[ASKING], gate=gate)
    assert len(person.said[0]) < 6_000
    assert "v view all" in person.said[0]
    assert "z" * 50_000 in person.said[1]


async def test_the_session_is_not_offered_after_others_have_spoken() -> None:
    person = typing("a", "n")
    gate = Gate(approver=person)
    gate.hear("a web page")
    events = await run([call("c1", "wipe", table="t"), "done"], tools=[ASKING], gate=gate)
    assert "for this session" not in person.said[0]
    assert "a web page" in person.said[0]
    assert results(events)["c1"].is_error


# --- Limits --------------------------------------------------------------------------------


async def test_a_model_that_repeats_itself_is_told_and_then_stopped() -> None:
    ran: list[Any] = []

    async def same(*_: Any) -> AgentToolResult:
        ran.append(1)
        return AgentToolResult("same")

    events = await run([call(f"c{n}", a=1) for n in range(30)], tools=[tool(execute=same)])
    assert len(ran) == 2
    assert "was called 2 times with these arguments" in results(events)["c2"].text
    last = answer(events)
    assert last.error_code == "RATE_LIMITED"
    assert "goes on repeating" in (last.error_message or "")
    assert len(results(events)) == 5


async def test_a_run_has_fifty_turns_and_says_so() -> None:
    made = agent(
        [call(f"c{n}", n=n) for n in range(60)],
        tools=[tool()],
        limits=Limits(messages_per_session=None),
    )
    last = await made.prompt("go")
    assert last.error_code == "RATE_LIMITED"
    assert "50 turns" in (last.error_message or "")
    assert "turns_per_run" in (last.error_message or "")
    assert sum(m.role == "toolResult" for m in made.state.messages) == 50


async def test_calls_beyond_the_limit_of_one_answer_are_refused_in_words() -> None:
    events = await run(
        [[call(f"c{n}", n=n) for n in range(101)], "done"],
        tools=[tool()],
        tool_calls_per_answer=100,
    )
    errors = {name: result.text for name, result in results(events).items() if result.is_error}
    assert errors == {"c100": "Not run: one answer may make 100 calls, and this is number 101."}


# --- prepare_tool_call ---------------------------------------------------------------------


@pytest.mark.requirement("SP-024", "SP-021")
async def test_preparing_a_call_gives_checked_arguments_or_the_result_at_once() -> None:
    context = AgentContext(tools={"wipe": ASKING})
    config = AgentLoopConfig(MODEL, gate=Gate(Policy().with_rule(Rule(Leave.AUTO))))

    async def prepared(name: str, **arguments: Any) -> PreparedToolCall | ImmediateToolCall:
        return await prepare_tool_call(call("c", name, **arguments), context, config, AbortSignal())

    ready = await prepared("wipe", table="t")
    assert isinstance(ready, PreparedToolCall)
    assert ready.arguments == {"table": "t"}
    for name, arguments, code in (
        ("nobody", {}, "TOOL_NOT_FOUND"),
        ("wipe", {}, "INVALID_PARAMETERS"),
    ):
        refused = await prepared(name, **arguments)
        assert isinstance(refused, ImmediateToolCall)
        assert refused.result.details == {"code": code}


async def test_preparing_tells_whoever_listens_that_a_person_is_asked() -> None:
    heard: list[Any] = []
    config = AgentLoopConfig(MODEL, gate=Gate(approver=typing("y")))
    context = AgentContext(tools={"wipe": ASKING})
    await prepare_tool_call(
        call("c", "wipe", table="t"), context, config, AbortSignal(), heard.append
    )
    assert [event.type for event in heard] == ["tool_approval_request", "tool_approval_end"]


async def test_what_a_tool_does_to_its_arguments_does_not_change_what_was_said() -> None:
    async def vandal(id: str, arguments: Any, *_: Any) -> AgentToolResult:
        arguments["list"].append("spoiled")
        arguments.clear()
        return AgentToolResult("ok")

    made = agent([call("c1", list=[1]), "done"], tools=[tool(execute=vandal)])
    await made.prompt("go")
    assert made.state.messages[1].tool_calls[0].arguments == {"list": [1]}  # type: ignore[union-attr]


async def test_a_hook_that_never_answers_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yiem_nb.prepare.HOOK_SECONDS", 0.01)

    async def hang(*_: Any) -> None:
        await asyncio.get_running_loop().create_future()

    events = await run([call("c1"), "done"], tools=[tool()], before_tool_call=hang)
    assert "did not answer within" in results(events)["c1"].text
    assert results(events)["c1"].details == {"code": "EXECUTION_DENIED"}
