"""Large images and outputs lie beside the session, and it reads well without them."""

import base64
import errno
import hashlib
import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.durability.faults import FaultyFiles
from yiem_nb.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Limits
from yiem_nb.session import (
    CustomMessageEntry,
    JsonlSessionStorage,
    MessageEntry,
    Session,
    SessionOptions,
)
from yiem_nb.session.blobs import INLINE_LIMIT, Blob, BlobStore
from yiem_nb.session.files import OsFiles
from yiem_nb.tools.context import OutputStore

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


def picture(seed=b"x", size=300_000):
    return ImageContent(base64.b64encode(seed * size).decode(), "image/png")


def new(folder, **how):
    options = SessionOptions(folder / "work.yiem.jsonl")
    return JsonlSessionStorage.create(options, limits=UNLIMITED, **how)


def said(storage, *blocks):
    return storage.append_entry(MessageEntry(message=UserMessage([TextContent("look"), *blocks])))


def blobs_of(folder):
    return sorted(folder.glob("*.yiem.files/*"))


def test_a_large_image_lies_beside_the_session_and_comes_back(tmp_path):
    storage = new(tmp_path)
    image = picture()

    entry = said(storage, image)

    (path,) = blobs_of(tmp_path)
    data = base64.b64decode(image.data)
    assert path.name == f"{hashlib.sha256(data).hexdigest()}.png"
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert storage.path.stat().st_size < 2_000
    with JsonlSessionStorage.open(storage.path, limits=UNLIMITED) as again:
        assert again.get_entry(entry.id) == entry
        assert again.get_path() == again.get_entries() == again.find_entries("message") == [entry]
        assert Session(again).context().messages == (entry.message,)


def test_a_small_image_and_one_that_is_no_plain_base64_stay_in_the_line(tmp_path):
    storage = new(tmp_path)
    small = ImageContent(base64.b64encode(b"s" * 100).decode(), "image/png")
    odd = ImageContent.model_validate(
        {"type": "image", "data": "é" * INLINE_LIMIT, "mimeType": "image/png"}
    )
    unpadded = ImageContent.model_validate(
        {"type": "image", "data": "QUJD" * INLINE_LIMIT + "QQ==\n", "mimeType": "image/png"}
    )
    typed = picture().model_copy(update={"mime_type": "../x"})

    entry = said(storage, small, odd, unpadded, typed)

    assert blobs_of(tmp_path) == []
    assert storage.get_entry(entry.id) == entry


def test_every_kind_of_entry_that_has_blocks_is_parted(tmp_path):
    storage = new(tmp_path)
    images = [picture(bytes([65 + n])) for n in range(3)]
    result = ToolResultMessage("1", "plot", [TextContent("done"), images[0]])
    entries = [
        storage.append_entry(MessageEntry(message=result)),
        storage.append_entry(CustomMessageEntry(content=[images[1]])),
        storage.append_entry(MessageEntry(message=AssistantMessage([images[2]]))),
    ]
    session = Session(storage)
    session.hide(entries[1].id)
    session.show(entries[1].id)

    assert len(blobs_of(tmp_path)) == 3
    assert storage.path.stat().st_size < 5_000
    shown = [block for message in session.context().messages for block in message.content]
    assert [block for block in shown if isinstance(block, ImageContent)] == images


def test_the_same_image_is_kept_once(tmp_path):
    storage = new(tmp_path)
    said(storage, picture())
    said(storage, picture())

    assert len(blobs_of(tmp_path)) == 1


@pytest.mark.parametrize("harm", ["remove", "alter", "cut", "folder", "pipe", "link"])
def test_what_is_missing_or_altered_leaves_a_sentence(tmp_path, harm):
    storage = new(tmp_path)
    said(storage, picture())
    (path,) = blobs_of(tmp_path)
    data = path.read_bytes()
    path.unlink()
    if harm == "alter":
        path.write_bytes(b"y" + data[1:])
    elif harm == "cut":
        path.write_bytes(data[:-1])
    elif harm == "folder":
        path.mkdir()
    elif harm == "pipe":
        os.mkfifo(path)
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")

    (message,) = Session(storage).context().messages

    assert message.content[1].text == (
        f"[image/png, 300 kB: missing; work.yiem.files/{path.name} is not there or was altered]"
    )


def test_a_folder_that_is_a_link_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "work.yiem.files").symlink_to(elsewhere)
    storage = new(tmp_path)

    entry = said(storage, picture())

    assert list(elsewhere.iterdir()) == []
    assert storage.problem is None
    assert storage.get_entry(entry.id) == entry


@given(
    st.fixed_dictionaries(
        {
            "blob": st.sampled_from(["../../etc/passwd", "a" * 63, "/etc/passwd", "A" * 64, 7])
            | st.text(max_size=70),
            "mimeType": st.sampled_from(["image/png", "image/../../x", "image/", 3]),
            "bytes": st.sampled_from([3, -1, 1 << 40, "3", None]),
        }
    )
)
def test_a_reference_never_leads_elsewhere(tmp_path_factory, reference):
    blob = Blob.of(reference)
    if blob is not None:
        assert set(blob.sha256) <= set("0123456789abcdef")
        assert "/" not in blob.file
    folder = tmp_path_factory.mktemp("blobs")
    store = BlobStore(lambda: folder / "s.yiem.jsonl")
    block = {"type": "text", "text": "words", "blob": reference}
    entry = MessageEntry.model_validate({"message": {"role": "user", "content": [block]}})

    (whole,) = store.whole(entry).message.content

    assert isinstance(whole, TextContent)


def test_a_renamed_session_finds_its_images_in_the_folder_beside_it(tmp_path):
    storage = new(tmp_path)
    entry = said(storage, picture())
    storage.close()
    renamed = storage.path.rename(tmp_path / "other.yiem.jsonl")

    with JsonlSessionStorage.open(renamed, limits=UNLIMITED) as again:
        assert again.get_entry(entry.id) == entry


def test_a_fork_elsewhere_has_its_own_copies(tmp_path):
    session = Session(new(tmp_path))
    entry = said(session.storage, picture())
    end = session.leaf
    said(session.storage, picture(b"z"))
    (tmp_path / "far").mkdir()

    fork = session.fork(tmp_path / "far" / "f.yiem.jsonl", leaf=end)

    assert [path.parent.name for path in blobs_of(tmp_path / "far")] == ["f.yiem.files"]
    assert fork.storage.get_path() == [entry]


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "EROFS", "short", "zero"])
def test_no_call_that_fails_loses_an_image(tmp_path, fault):
    """At each call the disk fails, and goes on failing or does not."""
    quiet = FaultyFiles("ENOSPC", 0, 0)
    (tmp_path / "quiet").mkdir()
    said(new(tmp_path / "quiet", files=quiet), picture())
    for first in range(quiet.calls):
        for length in (1, 1_000):
            folder = tmp_path / f"{first}-{length}"
            folder.mkdir()
            files = FaultyFiles(fault, first, length)
            storage = new(folder, files=files)
            entry = said(storage, picture())

            files.failing = range(0)
            assert storage.get_path() == [entry]
            last = said(storage, picture(b"later"))
            assert storage.problem is None
            storage.close()
            assert [path for path in blobs_of(folder) if path.name.startswith(".")] == []
            with JsonlSessionStorage.open(storage.path, limits=UNLIMITED) as again:
                assert again.get_path() == [entry, last]


def test_a_whole_output_is_kept_and_named(tmp_path):
    storage = new(tmp_path)
    store: OutputStore = storage.blobs

    saved = store.save_output("é" * 1_000, "table")

    assert saved is not None
    assert saved.path == f"work.yiem.files/{saved.sha256}.txt"
    assert (tmp_path / saved.path).read_text() == "é" * 1_000
    assert saved.reference == {
        "blob": saved.sha256,
        "mimeType": "text/plain",
        "bytes": 2_000,
        "name": "table",
    }
    blob = Blob.of(json.loads(json.dumps(saved.reference)))
    assert storage.blobs.read(blob) == ("é" * 1_000).encode()


@pytest.mark.parametrize(
    ("output", "name", "ending"),
    [
        (b"\x00", "", "bin"),
        ("a,b", "t.CSV", "csv"),
        ("x", "../../x.sh", "txt"),
        ("\ud800", "", "txt"),
    ],
)
def test_the_ending_is_one_of_a_few(tmp_path, output, name, ending):
    saved = new(tmp_path).blobs.save_output(output, name)

    assert saved.path == f"work.yiem.files/{saved.sha256}.{ending}"
    assert (tmp_path / saved.path).exists()


def test_an_output_waits_for_a_full_disk(tmp_path):
    storage = new(tmp_path, files=(files := FaultyFiles("ENOSPC", 0, 0)))
    said(storage)
    files.failing = range(1_000_000)

    saved = storage.blobs.save_output("all of it")

    assert storage.blobs.read(Blob.of(saved.reference)) == b"all of it"
    assert storage.blobs.pending == 1
    files.failing = range(files.calls + 3, 1_000_000)
    said(storage)
    assert storage.problem == "not saved: the disk is full (1 file pending)"
    files.failing = range(0)
    said(storage)
    assert storage.problem is None
    assert (tmp_path / saved.path).read_text() == "all of it"


def test_more_than_may_wait_is_not_promised(tmp_path, monkeypatch):
    monkeypatch.setattr("yiem_nb.session.blobs.MAX_HELD_BYTES", 10)
    files = FaultyFiles("ENOSPC", 0, 1_000_000)
    store = BlobStore(lambda: tmp_path / "s.yiem.jsonl", files)

    assert store.save_output("1234567") is not None
    assert store.save_output("12345678") is None


def test_no_key_is_kept_with_an_output(tmp_path):
    key = "sk-" + "a1B2" * 8

    saved = new(tmp_path).blobs.save_output(f"the key is {key}.")

    assert (tmp_path / saved.path).read_text() == "the key is [redacted]."


def test_what_nobody_could_read_back_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("yiem_nb.session.blobs.MAX_BLOB_BYTES", 10)

    assert new(tmp_path).blobs.save_output("more than ten") is None


class FullDisk(OsFiles):
    """A disk that can be read and takes nothing."""

    full = False

    def write(self, fd, data):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data)


def test_a_fork_on_a_full_disk_keeps_its_images_in_memory_until_there_is_room(tmp_path):
    disk = FullDisk()
    session = Session(new(tmp_path, files=disk))
    entry = said(session.storage, picture())
    (tmp_path / "far").mkdir()
    disk.full = True

    fork = session.fork(tmp_path / "far" / "f.yiem.jsonl")

    assert fork.storage.problem == "not saved: the disk is full (1 entry pending)"
    assert fork.storage.get_path() == [entry]
    disk.full = False
    last = said(fork.storage)
    assert fork.storage.problem is None
    assert fork.storage.get_path() == [entry, last]
    assert [path.parent.name for path in blobs_of(tmp_path / "far")] == ["f.yiem.files"]
