"""The session file: appended to, never rewritten, and opened whatever its bytes are."""

import errno
import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yiem_nb.errors import ErrorCode, SessionError, SessionNotFoundError
from yiem_nb.messages import AssistantMessage, ToolResultMessage, Usage, UsageCost, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    JsonlSessionStorage,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    SessionOptions,
    SessionStats,
    UnknownEntry,
    UsageEntry,
    build_context,
)
from yiem_nb.session.files import OsFiles
from yiem_nb.session.limits import TokenBucket

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n'


def create(folder, name="s.yiem.jsonl", **options):
    return JsonlSessionStorage.create(
        SessionOptions(folder / name), **{"limits": UNLIMITED} | options
    )


def reopen(path, **options):
    return JsonlSessionStorage.open(path, **{"limits": UNLIMITED} | options)


def said(text, **fields):
    return MessageEntry(message=UserMessage(text, timestamp=1), **fields)


def line(entry_id, parent=None, kind="custom", **fields):
    record = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": "t", **fields}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def written(folder, *lines, name="s.yiem.jsonl"):
    path = folder / name
    path.write_bytes(b"".join(lines))
    return path


# --- Creating and appending ----------------------------------------------------------------


@pytest.mark.requirement("SPEC-4.2", "SPEC-10.2")
def test_the_header_is_on_disk_when_a_session_is_created(tmp_path):
    path = tmp_path / "new" / "s.yiem.jsonl"
    options = SessionOptions(path, cwd="/work", metadata={"notebook": "n.ipynb"})

    metadata = JsonlSessionStorage.create(options).get_metadata()

    header = json.loads(path.read_bytes())
    assert (header["type"], header["version"], header["cwd"]) == ("session", 3, "/work")
    assert metadata.id == header["id"]
    assert metadata.created == header["timestamp"]
    assert metadata.metadata == {"notebook": "n.ipynb"}
    assert metadata.path == str(path)
    assert metadata.parent_session is None
    assert SessionOptions(path).cwd == str(Path.cwd())


def test_a_new_file_belongs_to_its_user_alone(tmp_path):
    before = os.umask(0)
    try:
        path = create(tmp_path).path
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_created_over_a_file(tmp_path):
    path = written(tmp_path, b"precious")

    with pytest.raises(SessionError, match="There is a file"):
        create(tmp_path)
    assert path.read_bytes() == b"precious"


@pytest.mark.requirement("SPEC-4.2")
def test_an_entry_gets_what_it_lacks_and_follows_the_leaf(tmp_path):
    storage = create(tmp_path)

    first = storage.append_entry(said("a"))
    second = storage.append_entry(said("b"))
    root = storage.append_entry(said("c", parent_id=None))

    assert len(first.id) == 8
    assert first.timestamp.endswith("Z")
    assert second.parent_id == first.id
    assert root.parent_id is None
    assert storage.get_leaf_id() == root.id
    assert storage.get_entry(second.id) == second
    assert storage.get_entry("nobody") is None


def test_what_was_appended_is_found_again(tmp_path):
    storage = create(tmp_path)
    entries = [storage.append_entry(said(f"{n}", cell_id="c")) for n in range(20)]

    again = reopen(storage.path)

    assert again.get_entries() == entries
    assert again.notices == []
    assert again.get_leaf_id() == entries[-1].id
    assert again.get_metadata() == storage.get_metadata()


def test_several_entries_are_one_chain_and_all_or_none(tmp_path):
    storage = create(tmp_path)
    chain = storage.append_entries([said("a"), said("b"), LeafEntry(), said("c")])

    assert [entry.parent_id for entry in chain] == [None, chain[0].id, None, None]
    with pytest.raises(SessionError, match="to append to"):
        storage.append_entries([said("d"), said("e", parent_id="nobody")])
    assert len(reopen(storage.path).tree) == 4


def test_an_id_can_be_given_once(tmp_path):
    storage = create(tmp_path)
    storage.append_entry(said("a", id="mine"))

    with pytest.raises(SessionError, match="'mine' already") as caught:
        storage.append_entry(said("b", id="mine"))
    assert caught.value.code == ErrorCode.SESSION_ENTRY


@pytest.mark.requirement("SPEC-4.1")
def test_a_moved_leaf_is_kept_and_its_entry_hangs_below_its_target(tmp_path):
    storage = create(tmp_path)
    first = storage.append_entry(said("a"))
    storage.append_entry(said("b"))
    storage.set_leaf_id(first.id)

    (leaf,) = storage.find_entries("leaf")
    assert leaf.parent_id == leaf.target_id == first.id
    assert reopen(storage.path).get_leaf_id() == first.id

    storage.set_leaf_id(first.id)
    assert len(storage.find_entries("leaf")) == 1
    storage.set_leaf_id(None)
    assert reopen(storage.path).get_leaf_id() is None
    with pytest.raises(SessionError, match="no entry 'nobody'"):
        storage.set_leaf_id("nobody")


def test_entries_are_found_by_name_or_class_and_listed_in_slices(tmp_path):
    storage = create(tmp_path)
    a, b, c = storage.append_entries([said("a"), CustomEntry(data=1), said("c")])

    assert storage.find_entries("message") == [a, c]
    assert storage.find_entries(CustomEntry) == [b]
    assert storage.get_entries(after=a.id) == [b, c]
    assert storage.get_entries(limit=2) == [a, b]
    assert storage.get_entries(after=a.id, limit=1) == [b]
    assert storage.get_entries(limit=-1) == []
    assert storage.get_path() == [a, b, c]
    assert storage.get_path(b.id) == [a, b]
    with pytest.raises(SessionError):
        storage.get_path("nobody")
    with pytest.raises(SessionError):
        storage.get_entries(after="nobody")


def test_labels_are_read_through_the_storage(tmp_path):
    storage = create(tmp_path)
    entry = storage.append_entry(said("a"))
    storage.append_entry(LabelEntry(target_id=entry.id, label="here"))

    assert storage.get_label(entry.id) == "here"
    assert storage.get_label("nobody") is None


@pytest.mark.requirement("SPEC-4.3")
def test_stats_are_of_the_whole_file_and_a_copy_costs_nothing(tmp_path):
    storage = create(tmp_path)
    usage = Usage(10, 5, cache_read=3, cache_write=2, cost=UsageCost(total=0.5))
    answer = MessageEntry(message=AssistantMessage("b", usage=usage))
    first = storage.append_entry(said("a"))
    storage.append_entry(answer)
    storage.set_leaf_id(first.id)
    storage.append_entry(answer)
    assert storage.get_session_stats() == SessionStats(3, 6, 24, 40, 1.0)

    storage.append_entries(
        [
            answer.model_copy(update={"copy_of": first.id}),
            MessageEntry(message=ToolResultMessage("1", "f", "r", usage=Usage(1, 1))),
            CompactionEntry(usage=Usage(1, 1)),
            BranchSummaryEntry(usage=Usage(1, 1)),
            UsageEntry(usage=Usage(1, 1)),
            CompactionEntry(),
            CustomEntry(),
        ]
    )

    expected = SessionStats(5, 6, 28, 48, 1.0)
    assert storage.get_session_stats() == expected
    assert reopen(storage.path).get_session_stats() == expected


def test_threads_append_without_losing_a_line(tmp_path):
    storage = create(tmp_path)

    def append(name):
        for number in range(100):
            storage.append_entry(said(f"{name}{number}"))

    threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    again = reopen(storage.path)
    assert len(again.get_path()) == 400
    assert again.notices == []


def test_a_forked_process_does_not_write_to_its_parents_session(tmp_path):
    storage = create(tmp_path)
    storage._pid -= 1

    with pytest.raises(SessionError, match="forked") as caught:
        storage.append_entry(said("a"))
    assert caught.value.code == ErrorCode.SESSION_READ_ONLY


@pytest.mark.parametrize("durability", ["turn", "always", "os"])
def test_every_durability_keeps_what_was_appended(tmp_path, durability):
    with create(tmp_path, durability=durability) as storage:
        storage.append_entry(said("a"))
        storage.sync()

    assert len(reopen(storage.path).tree) == 1


def test_a_closed_session_reads_as_unknown_and_raises_nothing(tmp_path):
    storage = create(tmp_path)
    entry = storage.append_entry(said("a"))
    storage.close()

    unknown = storage.get_entry(entry.id)
    assert isinstance(unknown, UnknownEntry)
    assert unknown.type == "message"


# --- Limits --------------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-9.2")
def test_a_bucket_lets_ten_seconds_pass_at_once_and_then_makes_callers_wait():
    now, slept = [0.0], []
    bucket = TokenBucket(2, clock=lambda: now[0], sleep=slept.append)

    for _ in range(20):
        bucket.take()
    assert slept == []
    bucket.take()
    bucket.take()
    assert slept == [0.5, 1.0]
    now[0] = 100.0
    for _ in range(20):
        bucket.take()
    assert len(slept) == 2


def test_a_bucket_without_a_rate_never_waits():
    bucket = TokenBucket(None, sleep=pytest.fail)

    for _ in range(1_000):
        bucket.take()


@pytest.mark.requirement("SPEC-9.2")
def test_a_batch_counts_once_and_the_librarys_own_reads_not_at_all(tmp_path):
    storage = create(tmp_path, limits=Limits(reads_per_second=1, writes_per_second=1))
    taken = {"reads": 0, "writes": 0}
    storage._reads = TokenBucket(None)
    storage._writes = TokenBucket(None)
    storage._reads.take = lambda: taken.__setitem__("reads", taken["reads"] + 1)
    storage._writes.take = lambda: taken.__setitem__("writes", taken["writes"] + 1)

    entries = storage.append_entries(said(f"{n}") for n in range(50))
    build_context(storage.tree, storage.get_leaf_id())
    assert taken == {"reads": 0, "writes": 1}
    storage.get_entry(entries[0].id)
    storage.set_leaf_id(entries[0].id)
    assert taken == {"reads": 1, "writes": 2}


# --- Opening -------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(tmp_path):
    with pytest.raises(SessionNotFoundError) as caught:
        reopen(tmp_path / "nothing")
    assert caught.value.code == ErrorCode.AGENT_NOT_FOUND
    with pytest.raises(SessionNotFoundError):
        reopen(written(tmp_path, b"") / "below")


def test_what_no_session_can_be_is_refused_with_its_kind(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path, HEADER))

    for path, kind in [
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a pipe"),
        (link, "a symbolic link"),
        (Path("/dev/null"), "a device"),
    ]:
        with pytest.raises(SessionError, match=kind) as caught:
            reopen(path)
        assert caught.value.code == ErrorCode.SESSION_UNREADABLE
    with pytest.raises(SessionError):
        reopen("nul\0byte")


def test_an_empty_file_gets_its_header_with_the_first_entry(tmp_path):
    path = written(tmp_path, b"")
    storage = reopen(path)
    assert path.read_bytes() == b""

    storage.append_entry(said("a"))

    header, entry = path.read_bytes().splitlines()
    assert json.loads(header)["type"] == "session"
    assert json.loads(entry)["type"] == "message"


A, B, C = line("a"), line("b", "a"), line("c", "b")


@pytest.mark.parametrize(
    ("damage", "path", "notice"),
    [
        pytest.param(A + B + C, "abc", None, id="valid"),
        pytest.param(A + B + C[:-1], "abc", None, id="no final line end"),
        pytest.param(
            A + B + C[:20],
            "ab",
            "recovered: last record was cut (20 bytes at byte 183); 2 of 2 complete records loaded",
            id="torn last line",
        ),
        pytest.param(
            A + B + b"\0" * 9,
            "ab",
            "recovered: last record was cut (9 bytes at byte 183); 2 of 2 complete records loaded",
            id="tail of zeros",
        ),
        pytest.param(
            A + b"garbage\n" + C.replace(b'"b"', b'"a"'),
            "ac",
            "1 damaged record at line 3 (kept in file)",
            id="bad middle line",
        ),
        pytest.param(
            A + b"x\ny\n" + B + b"[]\n",
            "ab",
            "3 damaged records at lines 3, 4, 6 (kept in file)",
            id="several bad lines",
        ),
        pytest.param(
            A + B[:-1] + C, "abc", "line 3 held 2 records; both loaded", id="two records fused"
        ),
        pytest.param(
            A[:-1] + B[:-1] + C,
            "abc",
            "line 2 held 3 records; all loaded",
            id="three records fused",
        ),
        pytest.param(
            A + B[:30] + B,
            "ab",
            "1 damaged record at line 3 (kept in file)",
            id="torn beginning, then whole",
        ),
        pytest.param(
            A + C, "ac", "1 record had a missing parent; joined to the record before", id="orphan"
        ),
        pytest.param(
            A + line("b", "c") + C,
            "abc",
            "1 ring of parents opened at the earliest record",
            id="cycle",
        ),
        pytest.param(
            A + B + line("b", "b", data=1),
            ["a", "b", "b~2"],
            "1 record had the id of another; renamed in memory",
            id="duplicate id",
        ),
        pytest.param(A + A + B + B + HEADER, "ab", None, id="merged by union"),
        pytest.param(
            A + B.replace(b"timestamp", b"times\xfftamp"),
            "a",
            "1 damaged record at line 3 (kept in file)",
            id="no UTF-8",
        ),
        pytest.param(A + b"\r\n\n" + B[:-1] + b"\r\n", "ab", None, id="line ends of Windows"),
        pytest.param(A + line("b", "a", data="\u2028\ud800"), "ab", None, id="odd characters"),
        pytest.param(A + line("b", "a", data=float("nan")), "ab", None, id="NaN"),
        pytest.param(
            A + line("b", "a")[:-2] + b',"data":' + b"[" * 300 + b"]" * 300 + b"}\n",
            "ab",
            None,
            id="nested too deep for the fast reader",
        ),
        pytest.param(
            A + b'{"type":"custom","id":"b"}\n' + C,
            "abc",
            None,
            id="no parent at all",
        ),
    ],
)
def test_a_damaged_file_opens_and_says_so(tmp_path, damage, path, notice):
    file = written(tmp_path, HEADER, damage)

    storage = reopen(file)

    assert storage.tree.path(storage.get_leaf_id()) == list(path)
    assert storage.notices == ([] if notice is None else [notice])
    assert storage.read_only is None
    assert file.read_bytes() == HEADER + damage
    entry = storage.append_entry(said("next"))
    assert file.read_bytes().startswith(HEADER + damage)
    assert reopen(file).tree.path(entry.id) == [*path, entry.id]


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"{broken\n" + A + B, 2),
        (A + B, 2),
        (b'{"name": "package", "version": "1.0"}\n', 0),
        (b"just text", 0),
        (b"\x89PNG\r\n\x1a\n\0\0", 0),
    ],
)
def test_a_file_without_a_header_is_only_looked_at_until_a_person_goes_on(tmp_path, content, count):
    file = written(tmp_path, content)
    storage = reopen(file)
    records = "1 record" if count == 1 else f"{count} records"
    assert storage.notices[0] == f"header unreadable; {records} loaded"

    with pytest.raises(SessionError, match="read-only") as caught:
        storage.append_entry(said("a"))
    assert caught.value.code == ErrorCode.SESSION_READ_ONLY
    assert file.read_bytes() == content

    storage.accept()
    storage.append_entry(said("a"))
    assert file.read_bytes().startswith(content)
    assert len(reopen(file).tree) == count + 1


def test_a_byte_order_mark_is_no_damage(tmp_path):
    storage = reopen(written(tmp_path, b"\xef\xbb\xbf" + HEADER + A))

    assert storage.get_metadata().id == "s"
    assert storage.notices == []


def test_a_file_of_a_newer_format_is_read_and_not_written(tmp_path):
    newer = HEADER.replace(b'"version":3', b'"version":4')
    storage = reopen(written(tmp_path, newer, A))
    storage.accept()

    assert storage.tree.path("a") == ["a"]
    with pytest.raises(SessionError, match="newer program") as caught:
        storage.append_entry(said("b"))
    assert "Fork" in caught.value.hint


def test_a_header_of_an_odd_shape_still_gives_what_it_has(tmp_path):
    odd = b'{"type":"session","version":"x","id":7,"timestamp":"then","cwd":[]}\n'

    metadata = reopen(written(tmp_path, odd, A)).get_metadata()

    assert (metadata.id, metadata.created, metadata.version) == ("", "then", 3)


def test_pis_first_version_is_linked_by_its_lines(tmp_path):
    """It had no ids, and a compaction counted lines, the header among them."""
    user = {"role": "user", "content": "a", "timestamp": 1}
    lines = [
        {"type": "session", "id": "s", "timestamp": "t", "cwd": "/"},
        {"type": "message", "timestamp": "t", "message": user},
        {"type": "message", "timestamp": "t", "message": user | {"content": "b"}},
        {"type": "compaction", "timestamp": "t", "summary": "s", "firstKeptEntryIndex": 2},
        {"type": "message", "timestamp": "t", "message": user | {"content": "c"}},
    ]
    content = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    storage = reopen(written(tmp_path, content))

    context = build_context(storage.tree, storage.get_leaf_id())

    assert storage.get_metadata().version == 1
    assert [message.text for message in context.messages][1:] == ["b", "c"]
    assert storage.path.read_bytes() == content


def test_many_notices_are_five_and_a_count(tmp_path):
    fused = b"".join(line(f"{n}a")[:-1] + line(f"{n}b") for n in range(9))

    notices = reopen(written(tmp_path, HEADER, fused)).notices

    assert len(notices) == 6
    assert notices[-1] == "… 4 more, see yiem sessions check"


def test_a_line_beyond_all_measure_is_indexed_by_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr("yiem_nb.session.recovery.LARGE", 3_000_000)
    large = line("b", "a", data="x" * 5_000_000)
    broken = large.replace(b'"type"', b'"typo"')
    torn = line("d", "c", data="x" * 5_000_000)[:-1]
    file = written(tmp_path, HEADER, A, large, broken, C, torn)

    storage = reopen(file)

    assert storage.tree.path("c") == ["a", "b", "c"]
    assert len(storage.get_entry("b").data) == 5_000_000
    assert storage.notices == [
        f"recovered: last record was cut (5,000,067 bytes at byte {file.stat().st_size - len(torn):,}); 3 of 3 complete records loaded",
        "1 damaged record at line 4 (kept in file)",
        "line 3 is a large record; it is read when it is looked at",
    ]


def test_a_line_that_only_looks_like_many_records_is_given_up_in_time(tmp_path):
    hostile = b'{"type":' * 200_000

    storage = reopen(written(tmp_path, HEADER, A, hostile))

    assert len(storage.tree) == 1


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_prefix_of_a_file_opens_and_keeps_every_whole_line(tmp_path, data):
    with create(tmp_path, f"{os.urandom(8).hex()}.jsonl") as storage:
        for number in range(5):
            storage.append_entry(said(f"{number} \u2028 😀"))
    content = storage.path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    file = written(tmp_path, content[:cut], name="cut.jsonl")

    again = reopen(file)

    complete = content[:cut].count(b"\n")
    assert len(again.tree) in {max(complete - 1, 0), complete}
    assert file.read_bytes() == content[:cut]
    again.accept()
    entry = again.append_entry(said("next"))
    assert reopen(file).get_leaf_id() == entry.id


PIECES = st.sampled_from(
    [HEADER, A, B, C, A[:-1], B[:20], b"\n", b"\0\0", b"\xff\xfe", b"{}\n", b"[1"]
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PIECES | st.binary(max_size=20), max_size=12))
def test_any_bytes_open_and_can_be_continued(tmp_path, pieces):
    content = b"".join(pieces)
    file = written(tmp_path, content)

    storage = reopen(file)
    for entry_id in storage.tree:
        assert storage.get_entry(entry_id).id == entry_id
    storage.accept()
    if storage.read_only is None:
        entry = storage.append_entry(said("next"))
        assert storage.problem is None
        assert file.read_bytes().startswith(content)
        assert reopen(file).get_leaf_id() == entry.id
    storage.get_session_stats()


# --- Other writers -------------------------------------------------------------------------


def test_what_another_process_appends_is_taken_in_and_each_goes_on_with_its_own(tmp_path):
    mine = create(tmp_path)
    first = mine.append_entry(said("a"))
    theirs = reopen(mine.path)
    b = theirs.append_entry(said("b"))
    c = mine.append_entry(said("c"))
    d = theirs.append_entry(said("d"))

    assert c.parent_id == first.id
    assert d.parent_id == b.id
    assert b.id in mine.tree
    assert [entry.id for entry in reopen(mine.path).get_entries()] == [first.id, b.id, c.id, d.id]


def test_a_line_another_program_left_open_is_ended_first(tmp_path):
    storage = create(tmp_path)
    with storage.path.open("ab") as other:
        other.write(b'{"type":"cus')

    entry = storage.append_entry(said("a"))

    again = reopen(storage.path)
    assert again.get_leaf_id() == entry.id
    assert again.notices == ["1 damaged record at line 2 (kept in file)"]


def test_a_reader_follows_what_another_process_appends(tmp_path):
    writer = create(tmp_path)
    reader = reopen(writer.path)
    entry = writer.append_entry(said("a"))

    assert reader.refresh() == 1
    assert reader.refresh() == 0
    assert reader.get_entry(entry.id) == entry
    assert reader.get_leaf_id() is None
    assert reader.tree.leaf == entry.id
    reader.close()
    assert reader.refresh() == 0


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    storage = create(tmp_path)
    whole = line("x", data="y" * 50)
    with storage.path.open("ab", buffering=0) as other:
        other.write(whole[:30])
        assert storage.refresh() == 0
        other.write(whole[30:])
        assert storage.refresh() == 1
        other.write(A[:-1])
        b = storage.append_entry(said("b"))
        other.write(C[:9])
        c = storage.append_entry(said("c"))

    assert list(storage.tree) == ["x", b.id, "a", c.id]
    assert storage.get_entry("x").data == "y" * 50
    assert [storage.get_entry(one.id) for one in (b, c)] == [b, c]
    assert list(reopen(storage.path).tree) == ["x", "a", b.id, c.id]
    assert storage.problem is None


def test_a_program_without_locks_may_write_at_the_very_same_moment(tmp_path):
    class Racing(OsFiles):
        other = b""

        def write(self, fd, data):
            with storage.path.open("ab") as file:
                file.write(self.other)
            return super().write(fd, data)

    files = Racing()
    storage = create(tmp_path)
    storage.close()
    storage = reopen(storage.path, files=files)
    a = storage.append_entry(said("a"))
    files.other = line("x", a.id, data=1)

    b = storage.append_entry(said("b"))

    files.other = b""
    c = storage.append_entry(said("c"))
    assert [storage.get_entry(one.id) for one in (a, b, c)] == [a, b, c]
    assert storage.get_entry("x").data == 1
    assert c.parent_id == b.id
    assert [entry.id for entry in reopen(storage.path).get_entries()] == [a.id, "x", b.id, c.id]


def test_a_deleted_file_is_written_anew(tmp_path):
    storage = create(tmp_path)
    a = storage.append_entry(said("a"))
    storage.path.unlink()

    b = storage.append_entry(said("b"))

    assert [entry.id for entry in reopen(storage.path).get_entries()] == [a.id, b.id]
    assert storage.get_entry(a.id) == a


def test_a_renamed_file_is_followed(tmp_path):
    storage = create(tmp_path)
    storage.append_entry(said("a"))
    moved = storage.path.rename(tmp_path / "moved.yiem.jsonl")

    storage.append_entry(said("b"))

    assert storage.path == moved
    assert len(reopen(moved).tree) == 2
    assert not (tmp_path / "s.yiem.jsonl").exists()


def test_a_replaced_file_stays_and_ours_goes_beside_it(tmp_path):
    storage = create(tmp_path)
    storage.append_entry(said("a"))
    other = written(tmp_path, HEADER, A, name="other")
    other.replace(storage.path)
    (tmp_path / "s.2.yiem.jsonl").touch()

    storage.append_entry(said("b"))

    assert (tmp_path / "s.yiem.jsonl").read_bytes() == HEADER + A
    assert storage.path == tmp_path / "s.3.yiem.jsonl"
    assert len(reopen(storage.path).tree) == 2


# --- Trouble -------------------------------------------------------------------------------


class Troubled(OsFiles):
    """The real files, of which some calls fail as long as `codes` names them."""

    def __init__(self, **codes):
        self.codes = codes

    def _check(self, name):
        if name in self.codes:
            code = getattr(errno, self.codes[name])
            raise OSError(code, os.strerror(code))

    def open(self, path, *, write, create):
        self._check("create" if create else "open_to_write" if write else "open_to_read")
        return super().open(path, write=write, create=create)

    def read(self, fd, length, offset):
        self._check("read")
        return super().read(fd, length, offset)

    def write(self, fd, data):
        self._check("write")
        return super().write(fd, data)

    def sync(self, fd):
        self._check("sync")
        super().sync(fd)

    def lock(self, fd):
        self._check("lock")
        super().lock(fd)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ENOSPC", "the disk is full"),
        ("EDQUOT", "your disk quota is used up"),
        ("EIO", "the disk reports an error"),
        ("EMFILE", "too many open files"),
    ],
)
def test_what_cannot_be_written_waits_visibly_and_is_saved_later(tmp_path, code, reason):
    files = Troubled()
    storage = create(tmp_path, files=files)
    storage.append_entry(said("a"))
    files.codes = {"write": code}

    first = storage.append_entry(said("b"))
    assert storage.problem == f"not saved: {reason} (1 entry pending)"
    storage.append_entry(said("c"))
    assert storage.problem == f"not saved: {reason} (2 entries pending)"
    assert storage.get_entry(first.id) == first
    assert len(reopen(storage.path).tree) == 1

    files.codes = {}
    storage.append_entry(said("d"))
    assert storage.problem is None
    assert [entry.message.text for entry in reopen(storage.path).get_path()] == ["a", "b", "c", "d"]


def test_a_session_that_cannot_be_created_is_kept_in_memory_until_it_can(tmp_path):
    files = Troubled(create="EROFS")
    storage = create(tmp_path, files=files)
    entry = storage.append_entry(said("a"))
    assert storage.problem == "not saved: the file system is read-only (1 entry pending)"
    assert not storage.path.exists()

    files.codes = {}
    storage.sync()
    assert storage.pending == 0
    assert reopen(storage.path).get_entries() == [entry]


def test_a_file_that_may_only_be_read_is_opened_and_written_when_it_may_be(tmp_path):
    path = create(tmp_path).path
    files = Troubled(open_to_write="EACCES")
    storage = reopen(path, files=files)

    entry = storage.append_entry(said("a"))
    assert storage.problem == "not saved: writing is not permitted there (1 entry pending)"

    files.codes = {}
    storage.close()
    assert reopen(path).get_entries() == [entry]


def test_a_file_that_cannot_be_opened_or_read_is_refused_with_the_reason(tmp_path):
    path = create(tmp_path).path

    for trouble in [{"open_to_write": "EIO"}, {"read": "EIO"}]:
        with pytest.raises(SessionError, match="the disk reports an error") as caught:
            reopen(path, files=Troubled(**trouble))
        assert caught.value.code == ErrorCode.SESSION_UNREADABLE


def test_a_file_system_without_locks_will_do(tmp_path):
    storage = create(tmp_path, files=Troubled(lock="ENOLCK"))
    storage.append_entry(said("a"))

    assert storage.problem is None
    assert len(reopen(storage.path).tree) == 1


def test_a_sync_that_fails_is_a_problem(tmp_path):
    storage = create(tmp_path, durability="always", files=Troubled(sync="EIO"))
    storage.append_entry(said("a"))

    assert storage.problem == "not saved: the disk reports an error (0 entries pending)"


def test_a_read_may_come_in_pieces(tmp_path):
    class Slow(OsFiles):
        def read(self, fd, length, offset):
            return super().read(fd, min(length, 7), offset)

    path = create(tmp_path).path
    storage = reopen(path, files=Slow())
    entry = storage.append_entry(said("a"))

    assert storage.get_entry(entry.id) == entry


def test_two_that_create_one_session_at_once_share_it(tmp_path):
    files = Troubled(create="EROFS")
    late = create(tmp_path, files=files)
    early = create(tmp_path)
    a = early.append_entry(said("a"))

    files.codes = {}
    b = late.append_entry(said("b"))

    again = reopen(early.path)
    assert [entry.id for entry in again.get_entries()] == [a.id, b.id]
    assert again.get_metadata().id == early.get_metadata().id
    assert again.notices == []


def test_a_deleted_file_that_cannot_be_written_anew_yet_is_so_later(tmp_path):
    files = Troubled()
    storage = create(tmp_path, files=files)
    a = storage.append_entry(said("a"))
    storage.path.unlink()

    files.codes = {"write": "ENOSPC"}
    b = storage.append_entry(said("b"))
    assert storage.pending == 1
    assert not storage.path.exists()

    files.codes = {}
    storage.sync()
    assert [entry.id for entry in reopen(storage.path).get_entries()] == [a.id, b.id]
    (notice,) = storage.notices
    assert notice.startswith("the session file was deleted; its ")
    assert notice.endswith(" bytes are in s.yiem.jsonl")


def test_an_id_that_no_line_can_hold_is_refused(tmp_path):
    with pytest.raises(SessionError, match="does not survive"):
        create(tmp_path).append_entry(said("a", id="\ud800"))


def test_a_header_with_a_parent_is_a_header(tmp_path):
    odd = HEADER.replace(b'"cwd"', b'"parentId":null,"cwd"')

    assert reopen(written(tmp_path, odd, A)).get_metadata().id == "s"
