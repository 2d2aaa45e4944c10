"""What pages are told, what they may ask, and that nothing which is lost stays lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import call, run, tool
from yiem_nb.errors import CommandError
from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from yiem_nb.kernel.view import CellView
from yiem_nb.messages import AgentToolResult, AssistantMessage, ToolResultMessage, UserMessage
from yiem_nb.widget.encode import MAX_TEXT, encoded, sendable
from yiem_nb.widget.hub import Hub
from yiem_nb.widget.incoming import Hello, Need, Request, parse
from yiem_nb.widget.live import LiveView
from yiem_nb.widget.protocol import OPERATIONS, VERSION
from yiem_nb.widget.record import TurnRecord, past_turns

SESSION: Any = {"name": "n", "busy": False}


class Page:
    """Collects what is sent and asks for things."""

    def __init__(
        self, carry_out: Callable[[str, dict[str, Any]], Any] = lambda op, args: op
    ) -> None:
        self.packets: list[Any] = []
        self.times: list[float] = []
        self._carry_out = carry_out
        self.hub = Hub(self._receive, self, asyncio.get_running_loop())

    def _receive(self, packet: Any) -> None:
        json.dumps(packet, ensure_ascii=False).encode()
        self.packets.append(packet)
        self.times.append(time.monotonic())

    @property
    def messages(self) -> list[Any]:
        return [message for packet in self.packets for message in packet["all"]]

    async def carry_out(self, op: str, args: dict[str, Any]) -> Any:
        return self._carry_out(op, args)

    def session(self) -> Any:
        return SESSION

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not ready():
                await asyncio.sleep(0.005)

    async def ask(self, op: str, **args: Any) -> Any:
        self.hub.receive({"kind": "req", "v": VERSION, "id": "r", "op": op, "args": args})
        await self.until(lambda: any(m["kind"] == "res" for m in self.messages))
        return next(m for m in self.messages if m["kind"] == "res")


def deltas(*texts: str) -> list[Any]:
    return [
        AgentStartEvent(),
        MessageEndEvent(UserMessage("hi", 1)),
        MessageStartEvent(AssistantMessage()),
        *(MessageUpdateEvent(0, "text", text) for text in texts),
    ]


async def test_a_page_that_says_hello_is_told_all_and_then_what_is_new() -> None:
    page = Page()
    record = page.hub.begin("cell", "c1", "m")
    for event in deltas("one "):
        page.hub.happened(record, event)
    assert page.packets == []
    page.hub.receive({"kind": "hello", "v": VERSION})
    await page.until(lambda: bool(page.packets))
    snapshot = page.messages[-1]
    assert [each["e"]["type"] for each in snapshot["turns"][0]["events"]] == [
        "agent_start", "message_end", "message_start",
    ]  # fmt: skip
    page.hub.happened(record, MessageUpdateEvent(0, "text", "two"))
    await page.until(lambda: any(m["kind"] == "d" for m in page.messages))
    pieces = [m for m in page.messages if m["kind"] == "d"]
    shown = snapshot["turns"][0]["open"][0]["text"] if snapshot["turns"][0]["open"] else ""
    assert shown + "".join(piece["txt"] for piece in pieces) == "one two"
    assert [packet["s"] for packet in page.packets] == [1, 2]


async def test_text_is_sent_in_few_packets_and_before_what_closes_it() -> None:
    page = Page()
    page.hub.receive({"kind": "hello", "v": VERSION})
    record = page.hub.begin("chat", None, "m")
    for event in deltas(*("word " for _ in range(1000))):
        page.hub.happened(record, event)
    answer = AssistantMessage("word " * 1000, timestamp=1)
    page.hub.happened(record, MessageEndEvent(answer))
    page.hub.happened(record, AgentEndEvent(()))
    await page.until(lambda: any(m.get("e", {}).get("type") == "agent_end" for m in page.messages))
    kinds = [m["kind"] for m in page.messages if m["kind"] in ("d", "ev")]
    assert kinds == ["ev", "ev", "ev", "d", "ev", "ev"]
    assert len(page.packets) <= 3


async def test_packets_of_many_turns_together_keep_to_thirty_a_second() -> None:
    page = Page()
    page.hub.receive({"kind": "hello", "v": VERSION})
    records = [page.hub.begin("chat", None, "m") for _ in range(20)]
    for record in records:
        for event in deltas():
            page.hub.happened(record, event)
    for _ in range(30):
        for record in records:
            page.hub.happened(record, MessageUpdateEvent(0, "text", "x"))
        await asyncio.sleep(0.01)
    await page.until(
        lambda: sum(len(m["txt"]) for m in page.messages if m["kind"] == "d") == 20 * 30
    )
    gaps = [b - a for a, b in zip(page.times, page.times[1:], strict=False)]
    assert min(gaps) >= 0.02


async def test_a_tick_says_how_much_there_should_be_and_a_turn_can_be_asked_for_again() -> None:
    page = Page()
    page.hub.receive({"kind": "hello", "v": VERSION})
    record = page.hub.begin("chat", None, "m")
    for event in deltas("👩‍👩‍👧 so"):
        page.hub.happened(record, event)
    await page.until(lambda: any(m["kind"] == "tick" for m in page.messages))
    height = next(m for m in page.messages if m["kind"] == "tick")["turns"][0]
    assert (height["n"], height["message"], height["open"]) == (3, 3, {"0": 8})
    page.hub.receive({"kind": "need", "turns": [record.id]})
    await page.until(lambda: sum(m["kind"] == "snap" for m in page.messages) == 2)
    again = [m for m in page.messages if m["kind"] == "snap"][-1]
    assert again["whole"] is False
    assert again["turns"][0]["open"][0]["text"] == "👩‍👩‍👧 so"


@pytest.mark.parametrize("op", sorted(OPERATIONS))
async def test_what_a_page_asks_for_is_carried_out_and_answered(op: str) -> None:
    seen: list[Any] = []
    page = Page(lambda op, args: seen.append((op, set(args))))
    page.hub.receive({"kind": "hello", "v": VERSION})
    answer = await page.ask(op)
    assert answer["ok"]
    assert seen == ([] if op == "earlier" else [(op, set(OPERATIONS[op]))])


async def test_a_refusal_is_one_sentence_and_a_key_in_it_is_hidden() -> None:
    def refuse(op: str, args: Any) -> Any:
        raise CommandError("Not now: sk-proj-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.")

    page = Page(refuse)
    page.hub.receive({"kind": "hello", "v": VERSION})
    answer = await page.ask("stop")
    assert not answer["ok"]
    assert answer["error"].startswith("Not now")
    assert "aaaaaaaa" not in answer["error"]


async def test_a_page_that_fails_to_listen_does_not_stop_the_run() -> None:
    def fail(packet: Any) -> None:
        raise RuntimeError("gone")

    page = Page()
    hub = Hub(fail, page, asyncio.get_running_loop())
    hub.receive({"kind": "hello", "v": VERSION})
    record = hub.begin("chat", None, "m")
    for event in deltas("a"):
        hub.happened(record, event)
    await asyncio.sleep(0.1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=12,
    )
    | st.fixed_dictionaries(
        {"kind": st.sampled_from(["hello", "need", "req", "x"])},
        optional={
            "v": st.sampled_from([1, 2, None]),
            "id": st.text(max_size=4) | st.none(),
            "op": st.sampled_from([*OPERATIONS, "rm"]) | st.none(),
            "args": st.dictionaries(
                st.sampled_from(["text", "images", "nonce"]), st.text() | st.lists(st.text())
            ),
            "turns": st.lists(st.text() | st.integers()),
        },
    )
)
def test_whatever_a_page_says_is_understood_whole_or_not_at_all(content: Any) -> None:
    said = parse(content)
    assert said is None or isinstance(said, Hello | Need | Request)
    if isinstance(said, Request) and not said.problem:
        assert set(said.args) == set(OPERATIONS[said.op])
        assert all(isinstance(said.args[name], kind) for name, kind in OPERATIONS[said.op].items())


def test_images_and_texts_beyond_all_measure_are_refused_with_a_sentence() -> None:
    def ask(**args: Any) -> Request:
        said = parse({"kind": "req", "v": VERSION, "id": "1", "op": "prompt", "args": args})
        assert isinstance(said, Request)
        return said

    assert "too long" in ask(text="x" * 3_000_000).problem
    assert ask(text="", images=[{"data": "A", "mimeType": "image/png"}]).problem == ""
    for image in (
        {"data": "A", "mimeType": "image/svg+xml"},
        {"data": 1, "mimeType": "image/png"},
        "x",
    ):
        assert "no pictures" in ask(images=[image]).problem
    old = parse({"kind": "req", "v": VERSION + 1, "id": "1", "op": "stop", "args": {}})
    assert isinstance(old, Request)
    assert "another version" in old.problem


def test_halves_of_pairs_are_joined_across_deltas_and_lone_ones_replaced() -> None:
    record = TurnRecord("chat", None, "m")
    for event in deltas("a\ud83d"):
        record.take(event)
    assert [piece["txt"] for piece in record.deltas()] == ["a"]
    record.take(MessageUpdateEvent(0, "text", "\ude00b\udc00c"))
    (piece,) = record.deltas()
    assert (piece["off"], piece["txt"]) == (1, "😀b�c")
    assert sendable({"a": ["\ud800"]}) == {"a": ["�"]}


def test_a_block_that_is_followed_by_another_is_sent_whole() -> None:
    record = TurnRecord("chat", None, "m")
    for event in deltas("thought"):
        record.take(event)
    said = record.take(MessageUpdateEvent(1, "text", "x"))
    assert [message["kind"] for message in said] == ["d", "blk"]
    assert said[1]["text"] == "thought"  # type: ignore[typeddict-item]


def test_a_result_too_large_for_a_page_is_clipped_and_details_are_kept_small() -> None:
    result = AgentToolResult(
        "x" * 20_000_000, details={"summary": "much", "frame": "y" * 10_000_000}
    )
    written = encoded(ToolExecutionEndEvent("c1", "work", result, False))
    assert len(json.dumps(written)) < 2 * MAX_TEXT
    assert written["result"]["details"] == {"summary": "much"}


def test_what_a_running_call_prints_costs_little_however_much_it_is() -> None:
    record = TurnRecord("chat", None, "m")
    record.take(ToolExecutionStartEvent("c1", "work", {}))
    for count in range(200):
        partial = AgentToolResult("x" * 1000 * (count + 1) + f"line {count}")
        (said,) = record.take(ToolExecutionUpdateEvent("c1", "work", partial))
        assert len(json.dumps(said)) < 3_000
    events = record.snapshot()["events"]
    assert len(events) == 201
    assert "line 199" in json.dumps(events[-1])
    assert len(json.dumps(events)) < 50_000


async def test_a_kept_conversation_gives_the_turns_it_had() -> None:
    events = await run([call("c1", n=1), "done"], tools=[tool()])
    end = events[-1]
    assert isinstance(end, AgentEndEvent)
    (record,) = past_turns(end.messages)
    kinds = [event["e"]["type"] for event in record.snapshot()["events"]]
    assert kinds == [
        "agent_start", "message_end", "message_end", "tool_execution_start", "tool_execution_end",
        "message_end", "agent_end",
    ]  # fmt: skip
    assert past_turns([]) == []
    assert (
        len(past_turns([ToolResultMessage("c", "t", "x", timestamp=1), UserMessage("a", 1)])) == 2
    )


# --- In the cell ---------------------------------------------------------------------------


class Cell:
    """A cell's displays in order, and widgets that say when they are shown."""

    def __init__(self) -> None:
        self.displays: dict[str, Any] = {}
        self.widgets = 0
        self.native = 0

    def publish(self, bundle: Any, display_id: str, *, update: bool) -> None:
        assert update == (display_id in self.displays), (
            "an update needs a display, a display is new"
        )
        self.displays[display_id] = bundle

    def widget(self, record: Any, start: int) -> Any:
        cell = self
        cell.widgets += 1

        class Shown:
            def bundle(self) -> Any:
                return {"widget": start}

            def close(self) -> None:
                cell.widgets -= 1

        return Shown()

    @property
    def texts(self) -> list[str]:
        return [str(b.get("text/plain", "<live>")) for b in self.displays.values()]


def live_view(page: Page, cell: Cell) -> LiveView:
    record = page.hub.begin("cell", "c1", "m")

    def plain(publish: Any) -> CellView:
        return CellView(publish, waiting_for="waiting", model="m", show_usage=False)

    return LiveView(page.hub, record, cell.publish, plain, cell.widget, lambda: cell.native)


async def _show(view: LiveView, events: list[Any]) -> None:
    for event in events:
        await view(event, AbortSignal())


async def test_a_cell_shows_the_widget_while_it_runs_and_static_pieces_after() -> None:
    page, cell = Page(), Cell()
    page.hub.receive({"kind": "hello", "v": VERSION})
    view = live_view(page, cell)
    assert cell.texts == ["waiting · waiting"]
    await _show(view, deltas("one ", "two"))
    assert list(cell.displays.values()) == [{"widget": 0}]
    await _show(
        view, [MessageEndEvent(AssistantMessage("one two", timestamp=1)), AgentEndEvent(())]
    )
    assert cell.texts == ["one two", "m"]
    assert view.finished.is_set()
    view.notice("a notice")
    assert cell.texts[-1] == "a notice"


async def test_without_a_page_the_cell_is_plain() -> None:
    page, cell = Page(), Cell()
    view = live_view(page, cell)
    await _show(
        view,
        [*deltas("one"), MessageEndEvent(AssistantMessage("one", timestamp=1)), AgentEndEvent(())],
    )
    assert cell.texts == ["one", "m"]
    assert not view.is_live


async def test_what_a_function_displays_stays_in_its_order() -> None:
    page, cell = Page(), Cell()
    page.hub.receive({"kind": "hello", "v": VERSION})
    view = live_view(page, cell)
    asks = AssistantMessage("first", tool_calls=[call("c1")], timestamp=1)
    await _show(
        view, [*deltas("first"), MessageEndEvent(asks), ToolExecutionStartEvent("c1", "work", {})]
    )
    cell.native += 1
    cell.publish({"text/plain": "figure"}, "native", update=False)
    await _show(view, [ToolExecutionEndEvent("c1", "work", AgentToolResult("ok"), False)])
    assert cell.texts == ["first\n▸ work()", "figure", "<live>"]
    await _show(view, [MessageEndEvent(AssistantMessage("last", timestamp=1)), AgentEndEvent(())])
    assert cell.texts == ["first\n▸ work()", "figure", "last", "m"]


async def test_a_run_that_is_left_behind_leaves_no_widget() -> None:
    page, cell = Page(), Cell()
    page.hub.receive({"kind": "hello", "v": VERSION})
    view = live_view(page, cell)
    await _show(view, deltas("so far"))
    view.abandon()
    assert "<live>" not in cell.texts
    assert cell.texts[-1] == "■ not answered"
