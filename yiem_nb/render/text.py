"""Characters that are not what they seem, and text that is too long (pure)."""

from __future__ import annotations

import re

__all__ = ["cleaned", "clipped", "size_of", "visible"]

# SGR colours are dropped with everything else that starts with ESC: cursor moves, OSC 8 links, OSC 52
# clipboard writes (reliability: T09).
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HIDDEN = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\U000e0000-\U000e007f]"
)


def cleaned(text: str) -> str:
    """Drop terminal escapes and control characters; keep line ends and tabs."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def visible(text: str) -> str:
    """Write every character that hides, reorders or controls text as its code point.

    What a person approves must be what runs: ``rm\\u202e`` must not look like something else.
    """

    def spell(match: re.Match[str]) -> str:
        return f"⟨U+{ord(match.group()):04X}⟩"

    return _HIDDEN.sub(spell, _CONTROLS.sub(spell, text))


def size_of(text: str) -> str:
    """Say how long a text is, for people."""
    lines = text.count("\n") + 1
    characters = f"{len(text):,} characters" if len(text) != 1 else "1 character"
    return characters if lines == 1 else f"{lines:,} lines, {characters}"


def clipped(text: str, limit: int = 4_000) -> str:
    """Keep head and tail of a long text and say what is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters are left out here …\n{text[-tail:]}"
