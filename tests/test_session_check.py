"""Checking a file says all there is to say and changes nothing."""

import json

import pytest
from yiem_nb.errors import SessionError, SessionNotFoundError
from yiem_nb.messages import AssistantMessage, ToolResultMessage, UserMessage
from yiem_nb.session import JsonlSessionStorage, MessageEntry, SessionOptions, check_session
from yiem_nb.session.files import OsFiles


def test_a_file_without_damage_has_no_findings(tmp_path):
    with JsonlSessionStorage.create(SessionOptions(tmp_path / "s.jsonl")) as storage:
        call = AssistantMessage(tool_calls=[{"id": "1", "name": "f"}])
        for message in (UserMessage("a"), call, ToolResultMessage("1", "f", "r")):
            storage.append_entry(MessageEntry(message=message))

    check = check_session(storage.path)

    assert check.findings == ()
    assert check.types == {"message": 3}
    assert check.size == storage.path.stat().st_size


def test_all_damage_is_listed_and_stays(tmp_path):
    call = {"role": "assistant", "content": [], "timestamp": 1}
    calls = [{"type": "toolCall", "id": str(n), "name": "f", "arguments": {}} for n in range(2)]
    records = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"},
        {"type": "label", "id": "a", "parentId": None, "timestamp": "t"},
        {"type": "message", "id": "b", "parentId": "a", "message": call | {"content": calls}},
    ]
    fused = "".join(json.dumps({"type": "x", "id": f"f{n}", "parentId": "b"}) for n in range(2))
    content = "".join(json.dumps(one) + "\n" for one in records) + f"{fused}\n" * 9 + "torn"
    path = tmp_path / "s.jsonl"
    path.write_text(content)

    check = check_session(path)

    assert check.findings[0].startswith("recovered: last record was cut (4 bytes")
    assert check.findings[-2:] == (
        "label: 1 in a shape that is not known here (kept as it is)",
        "2 tool calls were interrupted; the model is told so",
    )
    assert sum("held 2 records" in finding for finding in check.findings) == 9
    assert path.read_text() == content


def test_one_interrupted_call_is_one(tmp_path):
    with JsonlSessionStorage.create(SessionOptions(tmp_path / "s.jsonl")) as storage:
        call = AssistantMessage(tool_calls=[{"id": "1", "name": "f"}])
        storage.append_entry(MessageEntry(message=call))

    assert check_session(storage.path).findings == (
        "1 tool call was interrupted; the model is told so",
    )


def test_a_call_whose_id_is_used_again_is_interrupted_all_the_same(tmp_path):
    with JsonlSessionStorage.create(SessionOptions(tmp_path / "s.jsonl")) as storage:
        call = AssistantMessage(tool_calls=[{"id": "call_0", "name": "f"}])
        for message in (call, ToolResultMessage("call_0", "f", "r"), call):
            storage.append_entry(MessageEntry(message=message))

    (finding,) = check_session(storage.path).findings
    assert finding.startswith("1 tool call was interrupted")


def test_what_cannot_be_checked_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SessionNotFoundError):
        check_session(tmp_path / "nothing")
    with pytest.raises(SessionError, match="a folder"):
        check_session(tmp_path)
    path = tmp_path / "s.jsonl"
    path.touch()

    def refuse(self, path, *, write, create):
        assert not write
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OsFiles, "open", refuse)
    with pytest.raises(SessionError, match="cannot be read"):
        check_session(path)
