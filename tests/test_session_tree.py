"""The tree: who follows whom, also where the file is damaged."""

from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.session import (
    CustomEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    SessionInfoEntry,
    SessionTree,
    UnknownEntry,
)
from yiem_nb.session.tree import Link


def prompt(entry_id, parent=None):
    return MessageEntry(id=entry_id, parent_id=parent, message=UserMessage(entry_id, timestamp=1))


def answer(entry_id, parent=None):
    message = AssistantMessage(entry_id, timestamp=1)
    return MessageEntry(id=entry_id, parent_id=parent, message=message)


def test_a_path_leads_from_the_root_to_the_leaf():
    tree = SessionTree.of([prompt("a"), answer("b", "a"), prompt("c", "b")])

    assert tree.path("c") == ["a", "b", "c"]
    assert tree.path(None) == []
    assert tree.leaf == "c"
    assert tree.parent("a") is None
    assert list(tree) == ["a", "b", "c"]
    assert "b" in tree


def test_children_are_in_file_order_before_and_after_more_come():
    tree = SessionTree.of([prompt("a"), answer("b", "a"), answer("c", "a"), prompt("d")])

    assert tree.children("a") == ["b", "c"]
    tree.extend([Link("custom", "e", "a")])
    assert tree.children("a") == ["b", "c", "e"]
    assert tree.children(None) == ["a", "d"]
    assert list(tree.descendants(None)) == ["a", "b", "c", "e", "d"]


def test_the_common_ancestor_is_the_deepest_shared_entry():
    tree = SessionTree.of([prompt("a"), answer("b", "a"), answer("c", "a"), prompt("d")])

    assert tree.common_ancestor("b", "c") == "a"
    assert tree.common_ancestor("a", "b") == "a"
    assert tree.common_ancestor("a", "d") is None
    assert tree.common_ancestor(None, "a") is None


def test_the_leaf_is_the_last_leaf_entrys_target_or_what_came_after_it():
    tree = SessionTree.of([prompt("a"), answer("b", "a")])
    tree.extend([Link("leaf", "l", "a", "a")])
    assert tree.leaf == "a"
    tree.extend([Link("message", "c", "l")])
    assert tree.leaf == "c"
    tree.extend([Link("leaf", "m", None, None)])
    assert tree.leaf is None
    tree.extend([Link("leaf", "n", "b", "nowhere")])
    assert tree.leaf == "b"


def test_the_leaf_of_the_harness_is_its_target_too():
    leaf = LeafEntry(id="l", parent_id="b", target_id="a")

    assert SessionTree.of([prompt("a"), answer("b", "a"), leaf]).leaf == "a"


def test_an_orphan_follows_the_entry_before_it():
    tree = SessionTree.of([prompt("a"), answer("b", "lost"), prompt("c", "b")])

    assert tree.path("c") == ["a", "b", "c"]
    assert tree.repairs.orphans == 1
    assert SessionTree.of([answer("b", "lost")]).path("b") == ["b"]


def test_a_parent_may_come_later_in_the_file():
    tree = SessionTree.of([answer("b", "a"), prompt("a")])

    assert tree.path("b") == ["a", "b"]
    assert tree.repairs.orphans == 0
    assert tree.repairs.cycles == 0


def test_a_ring_of_parents_is_opened_at_its_earliest_member():
    tree = SessionTree.of([prompt("a"), answer("b", "d"), prompt("c", "b"), answer("d", "c")])

    assert tree.path("d") == ["a", "b", "c", "d"]
    assert tree.repairs.cycles == 1


def test_an_entry_that_is_its_own_parent_follows_the_one_before_it():
    tree = SessionTree.of([prompt("a"), answer("b", "b")])

    assert tree.path("b") == ["a", "b"]
    assert SessionTree.of([answer("b", "b")]).path("b") == ["b"]


def test_a_ring_that_is_met_from_outside_is_opened_too():
    tree = SessionTree.of([prompt("a", "y"), answer("x", "y"), prompt("y", "x")])

    assert tree.path("a") == ["x", "y", "a"]


def test_the_second_entry_of_an_id_is_renamed_and_takes_the_children_that_follow():
    entries = [prompt("a"), answer("b", "a"), answer("a", "b"), prompt("c", "a"), answer("a")]
    tree = SessionTree.of(entries)

    assert list(tree) == ["a", "b", "a~2", "c", "a~3"]
    assert tree.path("c") == ["a", "b", "a~2", "c"]
    assert tree.repairs.duplicates == 2
    assert tree.bearers("a") == (0, 4)
    assert tree.bearers("b") == (1, 1)


def test_a_name_made_for_a_duplicate_is_never_taken():
    tree = SessionTree.of([prompt("a~2"), prompt("a"), answer("a")])

    assert list(tree) == ["a~2", "a", "a~3"]


def test_the_same_entry_twice_is_one():
    assert list(SessionTree.of([prompt("a"), prompt("a"), answer("b", "a")])) == ["a", "b"]


def test_a_long_conversation_is_no_deep_recursion():
    links = [Link("message", str(n), str(n - 1) if n else None) for n in range(50_000)]
    tree = SessionTree(lambda position: UnknownEntry(type="message"))
    tree.extend(links)

    assert len(tree.path("49999")) == 50_000
    assert len(list(tree.descendants(None))) == 50_000
    assert tree.newest_leaf("0") == "49999"


def test_the_newest_leaf_of_a_branch_is_what_was_written_last_there():
    leaf = LeafEntry(id="l", parent_id="b", target_id="b")
    tree = SessionTree.of([prompt("a"), answer("b", "a"), answer("c", "a"), prompt("d", "b"), leaf])

    assert tree.newest_leaf("a") == "d"
    assert tree.newest_leaf("c") == "c"


def test_siblings_of_a_prompt_were_said_at_the_same_point():
    tree = SessionTree.of(
        [
            prompt("a"),
            answer("b", "a"),
            LeafEntry(id="l", parent_id="b", target_id="b"),
            prompt("c", "b"),
            prompt("d", "l"),
            answer("e", "b"),
            CustomEntry(id="x", parent_id="b"),
            prompt("f", "x"),
            prompt("g"),
            UnknownEntry(type="message", id="u", parent_id="b"),
            UnknownEntry(type="other", id="v", parent_id="b"),
        ]
    )

    assert tree.siblings("c") == ["c", "d", "f"]
    assert tree.siblings("d") == ["c", "d", "f"]
    assert tree.siblings("a") == ["a", "g"]


def test_the_last_label_wins_and_an_empty_one_takes_it_off():
    tree = SessionTree.of(
        [
            prompt("a"),
            prompt("b", "a"),
            LabelEntry(id="1", target_id="a", label="first"),
            LabelEntry(id="2", target_id="a", label="second"),
            LabelEntry(id="3", target_id="b", label="gone"),
            LabelEntry(id="4", target_id="b"),
            UnknownEntry(type="label", id="5"),
        ]
    )

    assert tree.labels() == {"a": "second"}


def test_the_last_name_wins_and_an_empty_one_takes_it_off():
    named = [
        prompt("a"),
        SessionInfoEntry(id="1", name="one"),
        SessionInfoEntry(id="2", name="two"),
    ]

    assert SessionTree.of(named).name == "two"
    assert SessionTree.of([*named, UnknownEntry(type="session_info", id="3")]).name == "two"
    assert SessionTree.of([*named, SessionInfoEntry(id="3", name="")]).name is None
    assert SessionTree.of([prompt("a")]).name is None


NAMES = st.sampled_from("abcdefgh")


@given(
    st.lists(st.tuples(NAMES, st.none() | NAMES, st.sampled_from(["message", "leaf", "x"]))),
    st.integers(0, 20),
)
def test_no_damage_loses_an_entry_or_closes_a_ring(rows, cut):
    """However ids and parents are mixed, each entry has a path that ends in a root."""
    tree = SessionTree(lambda position: UnknownEntry(type="x"))
    tree.children(None)
    links = [Link(kind, name, parent, parent) for name, parent, kind in rows]
    tree.extend(links[:cut])
    tree.extend(links[cut:])

    assert len(tree) == len(rows)
    assert sorted(tree.descendants(None)) == sorted(tree)
    for entry_id in tree:
        path = tree.path(entry_id)
        assert len(set(path)) == len(path)
        assert tree.parent(path[0]) is None
        assert all(one in tree.children(tree.parent(one)) for one in path)
    assert tree.leaf is None or tree.leaf in tree
