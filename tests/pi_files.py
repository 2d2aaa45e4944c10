"""Files as pi's three versions wrote them."""

import json


def _user(text):
    return {"role": "user", "content": text, "timestamp": 1}


def _answer(text):
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "api": "openai-completions",
        "provider": "pi",
        "model": "pi-1",
        "usage": {
            "input": 1,
            "output": 2,
            "cacheRead": 0,
            "cacheWrite": 0,
            "totalTokens": 3,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
        },
        "stopReason": "stop",
        "timestamp": 2,
    }


HOOK = {"role": "hookMessage", "customType": "x", "content": "a hook", "display": True}


def pi_file(version):
    """Return the lines of a session, one file for each version."""
    header = {"type": "session", "id": "old", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/w"}
    if version > 1:
        header["version"] = version
    messages = [
        _user("one"),
        _answer("two"),
        HOOK | {"timestamp": 3} if version < 3 else _user("three"),
        _user("four"),
        _answer("five \u2028 é"),
    ]
    entries = [{"type": "message", "message": message} for message in messages]
    entries.insert(0, {"type": "thinking_level_change", "thinkingLevel": "high"})
    compaction = {"type": "compaction", "summary": "so far", "tokensBefore": 9}
    # All lines count, the header among them: the third entry stands on line 3.
    kept = {"firstKeptEntryIndex": 3} if version == 1 else {"firstKeptEntryId": "e0000002"}
    entries.insert(4, compaction | kept)
    parent = None
    for number, entry in enumerate(entries):
        entry["timestamp"] = "2026-01-01T00:00:00.000Z"
        if version > 1:
            entry |= {"id": f"e{number:07x}", "parentId": parent}
            parent = entry["id"]
    if version > 1:
        branch = {"type": "message", "id": "b0000001", "parentId": "e0000002"}
        entries.insert(5, branch | {"timestamp": "t", "message": _user("given up")})
    return b"".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for line in (header, *entries)
    )
