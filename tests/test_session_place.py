"""A cell is a place in the tree: the golden table, and where it is silent."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.session import (
    ActiveToolsChangeEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomMessageEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionTree,
    ThinkingLevelChangeEntry,
    build_context,
)
from yiem_nb.session.place import Places, plan_place, plan_reset, stale_cells
from yiem_nb.session.tree import link_of

SCENARIOS = json.loads((Path(__file__).parent / "conformance" / "places.json").read_text())


class Notebook:
    """Plays a kernel: plans each prompt, appends it and what would be answered."""

    def __init__(self, page=""):
        self.entries = []
        self.tree = SessionTree(self.entries.__getitem__)
        self.leaf = None
        self.page = page
        self._places = Places(self.tree)

    @property
    def places(self):
        self._places.update()
        return self._places

    def append(self, entry, parent="leaf"):
        parent = self.leaf if parent == "leaf" else parent
        entry = entry.model_copy(
            update={"id": entry.id or f"e{len(self.entries)}", "parent_id": parent}
        )
        self.entries.append(entry)
        self.tree.extend([link_of(entry)])
        self.leaf = entry.id
        return entry.id

    def answer(self, status="ok"):
        if status == "failed":
            self.append(MessageEntry(message=AssistantMessage(stop_reason="error")))
        elif status == "aborted":
            self.append(MessageEntry(message=AssistantMessage(stop_reason="aborted")))
        else:
            self.append(MessageEntry(message=AssistantMessage("answer")))

    def prompts(self):
        context = build_context(self.tree, self.leaf)
        return [message.text for message in context.messages if message.role == "user"]

    def said_in(self, ids):
        """List the prompts among some entries."""
        messages = [self.tree.entry(entry_id).message for entry_id in ids]
        return [message.text for message in messages if message.role == "user"]

    def plan(self, cell, how="place"):
        return plan_place(self.tree, self.leaf, self.page, cell, how=how, places=self.places)

    def carry_out(self, plan):
        self.leaf = plan.parent
        for entry in plan.entries:
            assert entry.parent_id == self.leaf
            self.append(entry)

    def run(self, cell, says, how="place", status="ok"):
        """Execute a cell; return what each request held and what was carried."""
        plan = self.plan(cell, how)
        carried = [self.tree.entry(version).message.text for version in plan.carried]
        self.carry_out(plan)
        seen = []
        for prompt in says if isinstance(says, list) else [says]:
            self.append(MessageEntry(message=UserMessage(prompt), cell_id=cell))
            seen.append(self.prompts())
            self.answer(status)
        return seen, carried

    def pick(self, cell, text):
        (version,) = (
            version
            for version in self.places.versions(cell)
            if self.tree.entry(version).message.text == text
        )
        self.leaf = self.places.newest_leaf(version)

    def stale(self):
        return stale_cells(self.tree, self.leaf, self.page, places=self.places)


@pytest.mark.parametrize("scenario", SCENARIOS["scenarios"], ids=lambda scenario: scenario["name"])
def test_the_golden_table(scenario):
    notebook = Notebook(scenario["page"])
    for number, step in enumerate(scenario["steps"]):
        if "run" in step:
            how = step.get("how", "place")
            seen, carried = notebook.run(step["run"], step["says"], how, step.get("status", "ok"))
            expected = step["sees"] if isinstance(step["says"], list) else [step["sees"]]
            assert seen == expected, number
            assert carried == step.get("carried", []), number
        elif "chat" in step:
            assert notebook.run(None, step["chat"])[0] == [step["sees"]], number
        elif "pick" in step:
            notebook.pick(step["pick"], step["version"])
        elif "restart" in step:
            notebook._places = Places(notebook.tree)
        else:
            notebook.page = step["page"]
        if "stale" in step:
            assert notebook.stale() == step["stale"], number


def test_a_settings_change_goes_along_to_a_new_root():
    notebook = Notebook("A")
    notebook.append(ModelChangeEntry(provider="local", model_id="m1"))
    notebook.append(ThinkingLevelChangeEntry(thinking_level="high"))
    notebook.append(ActiveToolsChangeEntry(active_tool_names=("f",)))
    notebook.run("A", "a1")

    seen, _ = notebook.run("A", "a2", how="new")

    context = build_context(notebook.tree, notebook.leaf)
    assert seen == [["a2"]]
    assert context.model == ("local", "m1")
    assert context.thinking_level == "high"
    assert context.active_tools == ("f",)


def test_settings_that_hold_already_are_not_repeated():
    notebook = Notebook("AB")
    notebook.append(ModelChangeEntry(provider="local", model_id="m1"))
    notebook.run("A", "a1")
    notebook.run("B", "b1")

    assert notebook.plan("B").entries == ()


def test_a_hidden_exchange_stays_hidden_when_a_cell_below_runs_again():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    hidden = notebook.leaf
    notebook.run("B", "b1")
    notebook.append(ContextEditEntry(target_id=hidden))

    notebook.run("B", "b2")

    context = build_context(notebook.tree, notebook.leaf)
    assert [message.role for message in context.messages] == ["user", "user", "assistant"]


def test_a_hidden_exchange_stays_hidden_when_it_is_carried():
    notebook = Notebook("ABC")
    notebook.run("A", "a1")
    notebook.run("B", "b1")
    notebook.append(ContextEditEntry(target_id=notebook.leaf))
    leaf = notebook.leaf
    notebook.run("A", "a2")
    notebook.leaf = leaf
    notebook.page = "BAC"

    notebook.run("C", "c1")

    assert [m.text for m in build_context(notebook.tree, notebook.leaf).messages] == [
        *("b1",),
        *("a1", "answer", "c1", "answer"),
    ]


def test_what_an_extension_said_is_carried_and_a_label_is_not():
    notebook = Notebook("ABC")
    notebook.run("A", "a1")
    notebook.run("B", "b1")
    notebook.append(CustomMessageEntry(custom_type="note", content="by the way"))
    notebook.append(LabelEntry(target_id=notebook.leaf, label="here"))
    leaf = notebook.leaf
    notebook.run("A", "a2")

    notebook.leaf = leaf
    notebook.page = "BC"
    seen, carried = notebook.run("C", "c1")

    assert carried == ["b1"]
    assert seen == [["b1", "by the way", "c1"]]
    copies = [entry for entry in notebook.entries if getattr(entry, "copy_of", None)]
    assert [notebook.tree.entry(copy.copy_of).message for copy in copies] == [
        copy.message for copy in copies
    ]


def test_a_copy_of_a_copy_names_the_first_original():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    notebook.run("B", "b1")
    original = notebook.places.current(notebook.leaf)["B"]
    for number in (2, 3):
        notebook.run("A", f"a{number}")
        notebook.page = "ABC"
        notebook.run("C", f"c{number}")

    assert notebook.places.versions("B") == [original]
    assert notebook.places.newest_leaf(original) == notebook.leaf


def test_nothing_follows_a_failed_turn_of_the_chat_panel():
    notebook = Notebook("A")
    notebook.run("A", "a1")
    notebook.run(None, "q1", status="failed")

    assert notebook.run(None, "q2")[0] == [["a1", "q2"]]


def test_the_second_prompt_of_a_cell_may_fail_without_taking_the_first_along():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    prompt = MessageEntry(message=UserMessage("a1x"), cell_id="A")
    notebook.append(prompt)
    notebook.answer("failed")

    assert notebook.run("B", "b1")[0] == [["a1", "b1"]]


def test_a_compaction_above_stays_in_force_and_one_below_does_not():
    notebook = Notebook("ABC")
    notebook.run("A", "a1")
    notebook.run("B", "b1")
    notebook.append(CompactionEntry(summary="all so far"))
    notebook.run("C", "c1")

    assert notebook.run("C", "c2")[0][0][1:] == ["c2"]
    assert notebook.run("B", "b2")[0] == [["a1", "b2"]]


def test_two_kernels_grow_two_branches_and_neither_sees_the_other():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    here = notebook.leaf
    notebook.run("B", "b of the other kernel")
    notebook.leaf = here

    assert notebook.run("B", "b of this one")[0] == [["a1", "b of this one"]]
    assert len(notebook.places.versions("B")) == 2


def test_a_conversation_begun_elsewhere_stands_above_the_first_cell():
    notebook = Notebook("A")
    notebook.append(MessageEntry(message=UserMessage("from pi")))
    notebook.answer()
    notebook.append(LeafEntry(target_id=notebook.leaf))

    assert notebook.run("A", "a1")[0] == [["from pi", "a1"]]


def test_a_cell_the_saved_page_does_not_know_yet_is_appended():
    notebook = Notebook("A")
    notebook.run("A", "a1")

    assert notebook.run("Z", "z1")[0] == [["a1", "z1"]]


def test_the_notice_says_what_was_carried_and_what_was_set_aside():
    notebook = Notebook("ABC")
    for cell in "ABC":
        notebook.run(cell, f"{cell}1")
    first = notebook.plan("A")
    notebook.run("A", "a2")
    notebook.page = "ABCD"
    second = notebook.plan("D")

    assert first.notice == "2 exchanges set aside on the earlier branch"
    assert second.notice == "2 exchanges from above carried along"
    assert Notebook("A").plan("A").notice == ""


def test_the_cells_own_earlier_version_is_not_worth_a_notice():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    notebook.run("B", "b1")

    assert notebook.plan("B").notice == ""
    assert notebook.plan("B", how="new").notice == "1 exchange set aside on the earlier branch"


def reset(notebook):
    notebook.carry_out(plan_reset(notebook.tree, notebook.leaf))


def test_after_starting_over_no_cell_sees_what_was_said_before():
    notebook = Notebook("ABC")
    for cell in "ABC":
        notebook.run(cell, f"{cell}1")

    reset(notebook)

    assert notebook.run("B", "b2")[0] == [["b2"]]
    assert notebook.run("C", "c2")[0] == [["b2", "c2"]]
    assert notebook.run("A", "a2")[0] == [["a2"]]
    assert notebook.run("C", "c3")[0] == [["a2", "b2", "c3"]]
    assert notebook.run("C", "c4", how="new")[0] == [["c4"]]
    assert notebook.run("B", "b3")[0] == [["a2", "b3"]]


def test_starting_over_keeps_the_settings():
    notebook = Notebook("A")
    notebook.append(ModelChangeEntry(provider="local", model_id="m1"))
    notebook.run("A", "a1")

    reset(notebook)

    context = build_context(notebook.tree, notebook.leaf)
    assert context.messages == ()
    assert context.model == ("local", "m1")


def test_choosing_an_earlier_version_goes_back_to_before_one_started_over():
    notebook = Notebook("AB")
    notebook.run("A", "a1")
    reset(notebook)
    notebook.run("A", "a2")
    notebook.pick("A", "a1")

    assert notebook.run("B", "b1")[0] == [["a1", "b1"]]


def test_parents_that_come_later_in_the_file_are_taken_first():
    prompt = MessageEntry(id="p", message=UserMessage("hi"), cell_id="A")
    answer = MessageEntry(id="a", parent_id="p", message=AssistantMessage("yes"))
    tree = SessionTree.of([answer, prompt])

    plan = plan_place(tree, "a", ["A", "B"], "B")

    assert plan.parent == "a"
    assert Places(tree).failed("p") is False


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABCD"),
            st.sampled_from(["ok", "ok", "ok", "failed", "aborted"]),
            st.sampled_from(["place", "place", "place", "append", "new"]),
        ),
        max_size=12,
    ),
    st.permutations("ABCD"),
)
def test_what_a_request_holds_is_what_stands_above(runs, page):
    """The rule in one property: current, answered versions above, in page order, then the prompt."""
    notebook = Notebook("".join(page))
    for number, (cell, status, how) in enumerate(runs):
        current = notebook.places.current(notebook.leaf)
        above = [current[other] for other in page[: page.index(cell)] if other in current]
        expected = [
            prompt
            for version in above
            if not notebook.places.failed(version)
            for prompt in notebook.said_in(notebook.places.segment(version, notebook.leaf))
        ]
        before = list(notebook.tree)
        (seen,), _ = notebook.run(cell, f"{cell}{number}", how, status)
        if how == "place":
            assert seen == [*expected, f"{cell}{number}"]
        assert list(notebook.tree)[: len(before)] == before
