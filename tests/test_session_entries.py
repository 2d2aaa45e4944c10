"""Entries and their lines: what is written can be read, and nothing is read away."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.errors import SessionError
from yiem_nb.messages import AssistantMessage, Usage, UserMessage
from yiem_nb.session import (
    ActiveToolsChangeEntry,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    OtherMessage,
    Replacement,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
    UsageEntry,
    dump_line,
    parse_line,
)
from yiem_nb.session.entries import ENTRY_TYPES, new_entry_id, new_session_id, timestamp_now

CORE = {"id": "0a1b2c3d", "timestamp": "2026-12-01T10:00:00.000Z"}
ONE_OF_EACH = [
    MessageEntry(message=UserMessage("hi", timestamp=1), cell_id="c", **CORE),
    MessageEntry(message=AssistantMessage("yo", timestamp=1), request_hash="h", **CORE),
    MessageEntry(message=OtherMessage(role="custom"), **CORE),
    ThinkingLevelChangeEntry(thinking_level="high", **CORE),
    ModelChangeEntry(provider="p", model_id="m", **CORE),
    ActiveToolsChangeEntry(active_tool_names=("f", "g"), **CORE),
    CompactionEntry(summary="s", first_kept_entry_id="x", tokens_before=7, **CORE),
    BranchSummaryEntry(from_id="x", summary="s", **CORE),
    CustomEntry(custom_type="t", data={"a": [1, None]}, **CORE),
    CustomMessageEntry(custom_type="t", content="c", display=False, **CORE),
    LabelEntry(target_id="x", label="l", **CORE),
    LabelEntry(target_id="x", **CORE),
    SessionInfoEntry(name="n", **CORE),
    LeafEntry(target_id="x", parent_id="x", **CORE),
    LeafEntry(**CORE),
    ContextEditEntry(target_id="x", **CORE),
    ContextEditEntry(target_id="x", replacement=Replacement(content="r"), **CORE),
    UsageEntry(kind="summary", usage=Usage(1, 2), **CORE),
]


@pytest.mark.requirement("SPEC-4.1")
@pytest.mark.parametrize("entry", ONE_OF_EACH, ids=lambda entry: entry.type)
def test_each_entry_comes_back_from_its_line(entry):
    line = dump_line(entry)

    assert parse_line(line) == entry
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert dump_line(parse_line(line)) == line


def test_there_is_a_class_for_every_type_of_the_format():
    assert set(ENTRY_TYPES) == {entry.type for entry in ONE_OF_EACH}


def test_keys_are_in_pis_order_and_absent_rather_than_null():
    line = dump_line(MessageEntry(message=UserMessage("hi", timestamp=1), **CORE))

    assert line.decode() == (
        '{"type":"message","id":"0a1b2c3d","parentId":null,"timestamp":"2026-12-01T10:00:00.000Z",'
        '"message":{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":1}}\n'
    )


def test_null_is_written_where_it_says_something():
    assert json.loads(dump_line(LeafEntry(**CORE)))["targetId"] is None
    assert json.loads(dump_line(ContextEditEntry(target_id="x", **CORE)))["replacement"] is None


def test_a_header_is_a_line_too():
    header = SessionHeader(id="i", timestamp="t", cwd="/w", parent_session="p")

    assert json.loads(dump_line(header)) == {
        "type": "session",
        "version": 3,
        "id": "i",
        "timestamp": "t",
        "cwd": "/w",
        "parentSession": "p",
    }


def test_a_line_holds_no_character_that_some_splitter_takes_for_its_end():
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\r\n"
    entry = CustomEntry(data=text, **CORE)

    line = dump_line(entry)

    assert len(line.decode().splitlines()) == 1
    assert parse_line(line) == entry


def test_half_a_surrogate_pair_becomes_a_replacement_character_and_a_whole_one_its_sign():
    read = parse_line(dump_line(CustomEntry(data=["a\ud800b", "\ud83d\ude00"], **CORE)))

    assert read.data == ["a\ufffdb", "😀"]


def test_what_json_cannot_hold_is_written_as_what_it_can_and_said():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    ring = []
    ring.append(ring)
    data = {
        "nan": math.nan,
        "inf": [math.inf],
        "big": 2**70,
        "huge": 1 << 20_000,
        3: Odd(),
        "r": ring,
        "fake": type("deque", (), {})(),
    }

    read = parse_line(dump_line(CustomEntry(data=data, **CORE)))

    assert read.data["nan"] is None
    assert read.data["inf"] == [None]
    assert read.data["big"] == str(2**70)
    assert len(read.data["huge"]) < 2_000
    assert read.data["3"].startswith("<Odd")
    assert read.data["fake"] == "<deque>"
    assert read.data["r"][0].startswith("[[")
    assert read.model_extra["_lossy"] == [
        *(
            "/data/nan",
            "/data/inf/0",
            "/data/big",
            "/data/huge",
            "/data/3",
            "/data/r/0",
            "/data/fake",
        ),
    ]


def test_a_loss_is_added_to_those_known_before():
    entry = CustomEntry.model_validate({"data": math.nan, "_lossy": ["/x"], **CORE})

    assert parse_line(dump_line(entry)).model_extra["_lossy"] == ["/x", "/data"]


def test_deep_nesting_ends_in_a_bounded_repr():
    data = inner = []
    for _ in range(5_000):
        inner.append([])
        inner = inner[0]

    line = dump_line(CustomEntry(data=data, **CORE))

    assert line.count(b"[") < 170
    assert isinstance(parse_line(line), CustomEntry)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON)
def test_any_payload_comes_back(payload):
    line = dump_line(CustomEntry(data=payload, **CORE))

    assert line.count(b"\n") == 1
    assert len(line.decode().splitlines()) == 1
    assert parse_line(line).data == payload


@given(st.text(st.characters(categories=["Cs", "L", "Zl", "Zp", "Cc", "So"])))
def test_any_text_at_all_can_be_written(text):
    entry = MessageEntry(
        message=UserMessage.model_validate({"content": text, "timestamp": 1}), **CORE
    )

    read = parse_line(dump_line(entry))

    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert read.message.text == expected


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"from_the_future","id":"a","parentId":null,"x":1e-07,"y":{"z":null}}',
        b'{"type":"message","id":"a","parentId":null,"message":"no message"}',
        b'{"type":"label","id":7,"parentId":["x"],"timestamp":null}',
        b'{"type":"compaction" , "id":"a" , "tokensBefore":"many"}',
    ],
)
def test_what_has_no_known_shape_is_kept_byte_for_byte(line):
    entry = parse_line(line + b"\r\n")

    assert isinstance(entry, UnknownEntry)
    assert entry.line == line
    assert dump_line(entry) == line + b"\n"


def test_a_hand_edited_count_or_time_does_not_hide_what_was_said():
    line = (
        b'{"type":"message","id":"a","parentId":null,"cellId":7,"message":{"role":"assistant",'
        b'"content":"yes","usage":null,"stopReason":"tired","timestamp":"noon"}}'
    )

    entry = parse_line(line)

    assert entry.message.text == "yes"
    assert entry.cell_id is None


def test_an_unknown_entry_made_here_is_written_like_any_other():
    entry = UnknownEntry(type="mine", **CORE)

    assert entry.line is None
    assert parse_line(dump_line(entry)).model_dump() == entry.model_dump()


def test_unknown_fields_of_known_entries_are_written_back():
    line = (
        b'{"type":"label","id":"a","parentId":"b","timestamp":"t","targetId":"b","label":"l",'
        b'"colour":{"r":null}}\n'
    )

    assert dump_line(parse_line(line)) == line


def test_the_second_reader_takes_what_the_first_refuses():
    line = b'{"type":"custom","id":"a","parentId":null,"data":"\\ud800"}'

    assert parse_line(line).data == "\ud800"


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"1", b'{"id":"a"}', b'{"type":3}', b"\xff", b"[" * 100_000, b"\x00"],
)
def test_what_is_no_entry_is_refused_with_a_code(line):
    with pytest.raises(SessionError) as caught:
        parse_line(line)

    assert caught.value.code == "SESSION_ENTRY"


def test_ids_are_eight_hex_digits_that_nobody_has():
    assert len(new_entry_id(lambda _: False)) == 8
    assert len(new_entry_id(lambda name: len(name) == 8)) == 32


def test_session_ids_are_uuids_of_version_seven():
    first, second = new_session_id(), new_session_id()

    assert first != second
    assert [len(part) for part in first.split("-")] == [8, 4, 4, 4, 12]
    assert first[14] == "7"
    assert first[19] in "89ab"


def test_entries_say_the_time_as_pi_does():
    assert timestamp_now().endswith("Z")
    assert len(timestamp_now()) == len("2026-12-01T10:00:00.000Z")


def test_only_messages_in_our_roles_are_spoken():
    prompt = UserMessage("hi")

    assert MessageEntry(message=prompt).spoken is prompt
    assert MessageEntry(message=OtherMessage(role="custom")).spoken is None
