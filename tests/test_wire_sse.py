"""Events from bytes, wherever the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.wire import sse
from yiem_nb.wire.sse import LineSplitter, SseSplitter


def events_of(*chunks):
    splitter = SseSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)] + splitter.close()


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\ndata:  b\n\n", [("", b"a"), ("", b" b")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [("error", b"x"), ("", b"y")]),
        (b": ping\nid: 1\nretry: 3\n\n: ping\n\n", []),
        (b"event: lonely\n\n", []),
        (b"data: last", [("", b"last")]),
        (b"data: last\n", [("", b"last")]),
        (b"\xef\xbb\xbfdata: bom\n\n", [("", b"bom")]),
        (b"\xef\xbb", []),
        ("data: \u2028 \u0085 \x0c \x1c\n\n".encode(), [("", "\u2028 \u0085 \x0c \x1c".encode())]),
        (b"data:\n\n", [("", b"")]),
        (b"data\ndatabase: x\n\n", []),
        (b"", []),
    ],
)
def test_a_body_splits_into_its_events(body, events):
    assert events_of(body) == events
    assert events_of(*(body[i : i + 1] for i in range(len(body)))) == events


PIECES = st.sampled_from(
    [b"data: a", b"data:", b"event: e", b": c", b"x", b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf"]
)


@given(st.lists(PIECES, max_size=20).map(b"".join), st.sets(st.integers(0, 100), max_size=6))
def test_no_cut_makes_a_difference(body, cuts):
    bounds = sorted({0, len(body)} | {cut for cut in cuts if cut < len(body)})
    parts = [body[a:b] for a, b in pairwise(bounds)]
    assert events_of(*parts) == events_of(body)


def test_lines_end_with_lf_crlf_or_cr():
    splitter = LineSplitter()
    lines = [line for chunk in (b"a\nb\r", b"\nc\r", b"d\n", b"e") for line in splitter.feed(chunk)]
    assert lines == [b"a", b"b", b"c", b"d"]
    assert splitter.close() == [b"e"]
    assert splitter.close() == []


def test_a_line_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    splitter = SseSplitter()
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(ProviderError, match="single event") as caught:
        splitter.feed(b"xxxxx")
    assert caught.value.code is ErrorCode.PROVIDER_RESPONSE
