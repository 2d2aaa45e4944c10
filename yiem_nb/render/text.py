"""Characters that are not what they seem, and text that is too long (pure)."""

from __future__ import annotations

import re

__all__ = ["cleaned", "clipped", "one_line", "settled", "size_of", "visible"]

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
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
_SURROGATES = re.compile(r"[\ud800-\udfff]")
# What the next characters may still complete; longer than any honest sequence is no sequence.
_OPEN = re.compile(
    r"(?:\r|[\ud800-\udbff]|\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\x07\x1b]{0,2000}\x1b?"
    r"|[PX^_][^\x1b]{0,2000}\x1b?|[ -/]{0,8}))\Z"
)


def cleaned(text: str) -> str:
    """Drop terminal escapes and control characters; keep line ends and tabs.

    Halves of surrogate pairs are joined where both are there: a lone one cannot be sent as UTF-8.
    """
    if _SURROGATES.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def settled(text: str) -> tuple[str, str]:
    """Part a growing text from an end that `cleaned` cannot judge yet.

    Half an escape sequence, the first half of a surrogate pair, a carriage return.
    """
    found = _OPEN.search(text, max(len(text) - 2_100, 0))
    return (text[: found.start()], found.group()) if found else (text, "")


def visible(text: str) -> str:
    """Write every character that hides, reorders or controls text as its code point.

    What a person approves must be what runs: ``rm\\u202e`` must not look like something else.
    """

    def spell(match: re.Match[str]) -> str:
        return f"⟨U+{ord(match.group()):04X}⟩"

    # A carriage return too: what follows would be written over what stands before it.
    return _HIDDEN.sub(spell, _CONTROLS.sub(spell, text)).replace("\r", "⟨U+000D⟩")


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


def one_line(text: str, limit: int = 60) -> str:
    """Put the beginning of a text on one line, without what a terminal would obey."""
    flat = visible(" ".join(cleaned(text[: 20 * limit]).split()))
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"
