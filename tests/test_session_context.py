"""What the model sees at a point of the tree."""

import pytest
from yiem_nb.messages import AssistantMessage, ToolResultMessage, UserMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.session import (
    ActiveToolsChangeEntry,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    OtherMessage,
    Replacement,
    SessionTree,
    ThinkingLevelChangeEntry,
    UnknownEntry,
    build_context,
)


def chain(*entries):
    """Let each entry follow the one before it; ids are 0, 1, 2, …"""
    linked = [
        entry.model_copy(update={"id": str(n), "parent_id": str(n - 1) if n else None})
        for n, entry in enumerate(entries)
    ]
    return SessionTree.of(linked)


def context(*entries):
    tree = chain(*entries)
    return build_context(tree, tree.leaf)


def texts(*entries):
    return [message.text for message in context(*entries).messages]


def said(text):
    return MessageEntry(message=UserMessage(text))


def answered(text, model=""):
    return MessageEntry(message=AssistantMessage(text, provider="p", model=model))


def test_before_the_first_entry_there_is_nothing():
    empty = build_context(chain(), None)

    assert empty.messages == ()
    assert empty.model is None
    assert empty.thinking_level is ThinkingLevel.OFF
    assert empty.active_tools is None


def test_messages_are_those_of_the_path():
    result = MessageEntry(message=ToolResultMessage("1", "f", "r"))

    assert texts(said("a"), answered("b"), result, LabelEntry(target_id="0")) == ["a", "b", "r"]


def test_settings_are_the_last_of_the_path():
    settings = context(
        ModelChangeEntry(provider="p", model_id="one"),
        ThinkingLevelChangeEntry(thinking_level="low"),
        ActiveToolsChangeEntry(active_tool_names=("f",)),
        said("a"),
        ThinkingLevelChangeEntry(thinking_level="high"),
        ModelChangeEntry(provider="q", model_id="two"),
        ActiveToolsChangeEntry(active_tool_names=()),
        answered("an answer that names no model"),
    )

    assert settings.model == ("q", "two")
    assert settings.thinking_level is ThinkingLevel.HIGH
    assert settings.active_tools == ()


def test_an_answer_says_which_model_gave_it():
    assert context(ModelChangeEntry(model_id="m"), answered("b", model="n")).model == ("p", "n")


def test_an_unknown_thinking_level_is_off():
    level = ThinkingLevelChangeEntry(thinking_level="galactic")

    assert context(level).thinking_level is ThinkingLevel.OFF


def test_an_entry_of_a_wrong_shape_sets_nothing():
    settings = context(
        ThinkingLevelChangeEntry(thinking_level="low"), UnknownEntry(type="thinking_level_change")
    )

    assert settings.thinking_level is ThinkingLevel.LOW


def test_a_compaction_stands_for_what_it_cut_and_settings_survive_it():
    """pi's storage layer of 0.81 cuts the path first and forgets level and tools."""
    entries = [
        ThinkingLevelChangeEntry(thinking_level="high"),
        ActiveToolsChangeEntry(active_tool_names=("f",)),
        said("old"),
        answered("older", model="m"),
        said("kept"),
        CompactionEntry(summary="so far {}", first_kept_entry_id="4"),
        said("new"),
    ]
    result = context(*entries)

    assert [message.text for message in result.messages][1:] == ["kept", "new"]
    assert result.messages[0].role == "user"
    assert "<summary>\nso far {}\n</summary>" in result.messages[0].text
    assert result.thinking_level is ThinkingLevel.HIGH
    assert result.active_tools == ("f",)
    assert result.model == ("p", "m")


@pytest.mark.parametrize("kept", ["1", "nowhere", ""])
def test_a_compaction_that_names_no_kept_entry_keeps_none(kept):
    compaction = CompactionEntry(summary="all", first_kept_entry_id=kept)

    assert len(texts(said("old"), compaction, said("new"))) == 2


def test_only_the_last_compaction_counts():
    first = CompactionEntry(summary="one", first_kept_entry_id="0")
    second = CompactionEntry(summary="two", first_kept_entry_id="0")

    seen = texts(said("a"), first, said("b"), second, said("c"))

    assert "two" in seen[0]
    assert seen[1:] == ["a", "b", "c"]


def test_a_compaction_of_a_wrong_shape_hides_nothing():
    assert texts(said("old"), UnknownEntry(type="compaction"), said("new")) == ["old", "new"]


def test_a_branch_summary_is_told_in_a_users_role():
    (summary,) = context(BranchSummaryEntry(summary="what was tried")).messages

    assert summary.role == "user"
    assert "what was tried</summary>" in summary.text
    assert texts(BranchSummaryEntry(summary="")) == []


def test_an_extension_speaks_as_a_user_and_its_data_is_not_seen():
    entries = [CustomMessageEntry(content="by the way"), CustomEntry(data="secret")]

    assert texts(*entries, UnknownEntry(type="new")) == ["by the way"]


def test_the_latest_edit_of_an_entry_wins():
    hidden = ContextEditEntry(target_id="0")
    replaced = ContextEditEntry(target_id="0", replacement=Replacement(content="b"))

    assert texts(said("a"), hidden) == []
    assert texts(said("a"), hidden, replaced) == ["b"]
    assert texts(said("a"), replaced, hidden) == []


def test_an_edit_can_replace_what_an_extension_said_but_no_summary():
    edit = ContextEditEntry(target_id="0", replacement=Replacement(content="b"))

    assert texts(CustomMessageEntry(content="a"), edit) == ["b"]
    assert "told" in texts(BranchSummaryEntry(summary="told"), edit)[0]
    assert texts(said("a"), UnknownEntry(type="context_edit")) == ["a"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"role": "bashExecution", "command": "ls", "output": "x"}, ["Ran `ls`\n```\nx\n```"]),
        ({"role": "bashExecution", "command": "ls"}, ["Ran `ls`\n(no output)"]),
        (
            {"role": "bashExecution", "command": "ls", "cancelled": True},
            ["Ran `ls`\n(no output)\n\n(command cancelled)"],
        ),
        (
            {
                "role": "bashExecution",
                "command": "ls",
                "exitCode": 2,
                "truncated": True,
                "fullOutputPath": "/tmp/o",
            },
            [
                "Ran `ls`\n(no output)\n\nCommand exited with code 2\n\n[Output truncated. Full output: /tmp/o]"
            ],
        ),
        ({"role": "bashExecution", "command": "ls", "excludeFromContext": True}, []),
        ({"role": "custom", "content": "c"}, ["c"]),
        ({"role": "hookMessage", "content": [{"type": "text", "text": "h"}]}, ["h"]),
        ({"role": "custom", "content": 3}, [""]),
        ({"role": "system", "content": "s"}, []),
    ],
)
def test_messages_in_pis_own_roles_are_told_as_pi_tells_them(fields, expected):
    entry = MessageEntry(message=OtherMessage.model_validate(fields))

    assert texts(entry) == expected


def test_summaries_in_pis_own_roles_are_wrapped_like_entries():
    for role, entry in [
        ("branchSummary", BranchSummaryEntry(summary="s")),
        ("compactionSummary", CompactionEntry(summary="s")),
    ]:
        message = OtherMessage.model_validate({"role": role, "summary": "s"})
        assert texts(MessageEntry(message=message)) == texts(entry)


def test_a_message_without_a_readable_time_has_none():
    (message,) = context(CustomMessageEntry(content="a", timestamp="whenever")).messages
    (dated,) = context(CustomMessageEntry(content="a", timestamp="2026-12-01T00:00:01.5Z")).messages

    assert message.timestamp == 0
    assert dated.timestamp == 1796083201500
