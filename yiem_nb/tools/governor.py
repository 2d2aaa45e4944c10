"""How much of a result the model reads; the whole of it is kept beside the session and named.

Every text of a tool that goes to the model passes here, whatever the tool is: a function, a server's, a
raw `AgentTool` (research/tools-mcp.md, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yiem_nb.errors import redact
from yiem_nb.messages import AgentToolResult, ImageContent, MessageContent, TextContent
from yiem_nb.tools.context import OutputStore
from yiem_nb.tools.text import MAX_CHARACTERS, clipped, redacted

__all__ = [
    "MAX_IMAGES",
    "MAX_IMAGE_BYTES",
    "MAX_RESULT",
    "MAX_SAVED",
    "MAX_TURN",
    "Governor",
    "Shortened",
    "shortened",
    "without_secrets",
]

#: Text of one result, with what we say about it.
MAX_RESULT = MAX_CHARACTERS + 2_000
#: Text of all results of one turn; the last ones of many get less.
MAX_TURN = 80_000
#: What a result has at least, though the turn's room is used up.
MIN_RESULT = 1_000
MAX_IMAGES = 4
MAX_IMAGE_BYTES = 5_000_000
#: How much of an endless text is kept, in characters.
MAX_SAVED = 15_000_000


@dataclass(frozen=True, slots=True)
class Shortened:
    """A text within its limit, and where the whole of it is, if it was cut."""

    text: str
    saved: dict[str, Any] | None = None


def shortened(
    text: str, limit: int, store: OutputStore | None, saved: dict[str, Any] | None = None
) -> Shortened:
    """Cut a text to `limit` characters; keep the whole of it unless it is kept already.

    Parameters
    ----------
    text
        Of any length.
    limit
        In characters, the note on what is missing included.
    store
        Where the whole goes; without one it is lost.
    saved
        Where it is kept, from an earlier cut.
    """
    if len(text) <= limit:
        return Shortened(clipped(text, limit), saved)
    if saved is None and store is not None:
        saved = _kept(text, store)
    if saved is None:
        return Shortened(clipped(text, limit))
    part = "all" if len(text) <= MAX_SAVED else f"the first {MAX_SAVED:,} characters"
    where = f"; {part} in {saved['path']}"
    return Shortened(clipped(text, limit, where), saved)


def _kept(text: str, store: OutputStore) -> dict[str, Any] | None:
    try:
        found = store.save_output(text[:MAX_SAVED], "output.txt")
    except Exception:  # noqa: BLE001 - the result matters more than its file
        return None
    return None if found is None else {**found.reference, "path": found.path}


def without_secrets(result: AgentToolResult) -> AgentToolResult:
    """Return a result in which no key stands: it goes to a provider, a screen and a file."""
    content = tuple(_redacted_block(block) for block in result.content)
    details = redacted(result.details)
    if content == result.content and details == result.details:
        return result
    return result.model_copy(update={"content": content, "details": details})


def _redacted_block(block: MessageContent) -> MessageContent:
    if not isinstance(block, TextContent) or (text := redact(block.text)) == block.text:
        return block
    return block.model_copy(update={"text": text})


class Governor:
    """Holds the results of one turn to their limits.

    Parameters
    ----------
    store
        Keeps the whole of what is cut.
    """

    def __init__(self, store: OutputStore | None = None) -> None:
        self._store = store
        self._left = MAX_TURN

    def fits(self, result: AgentToolResult) -> bool:
        """Whether a result is within its limits as it is."""
        images = [block for block in result.content if isinstance(block, ImageContent)]
        return (
            _length(result.content) <= self._room()
            and len(images) <= MAX_IMAGES
            and all(_size(image) <= MAX_IMAGE_BYTES for image in images)
        )

    def take(self, result: AgentToolResult) -> AgentToolResult:
        """Count a result that is within its limits, and return it without secrets."""
        self._left -= _length(result.content)
        return without_secrets(result)

    def fit(self, result: AgentToolResult) -> AgentToolResult:
        """Cut a result that is not."""
        content, saved = self._cut(result.content, _saved_in(result))
        cut = result.model_copy(update={"content": tuple(content)})
        if saved is None or saved == _saved_in(result):
            return cut
        details = dict(result.details) if isinstance(result.details, dict) else {}
        return cut.model_copy(update={"details": details | {"saved": saved}})

    def _room(self) -> int:
        return min(MAX_RESULT, max(self._left, MIN_RESULT))

    def _cut(
        self, blocks: Sequence[MessageContent], saved: dict[str, Any] | None
    ) -> tuple[list[MessageContent], dict[str, Any] | None]:
        texts = [block.text for block in blocks if isinstance(block, TextContent)]
        whole = "\n".join(texts)
        if len(whole) > self._room():
            short = shortened(whole, self._room(), self._store, saved)
            kept: list[MessageContent] = [TextContent(short.text)]
            saved = short.saved
        else:
            kept = [block for block in blocks if isinstance(block, TextContent)]
        images = [block for block in blocks if isinstance(block, ImageContent)]
        shown = [image for image in images if _size(image) <= MAX_IMAGE_BYTES][:MAX_IMAGES]
        if len(shown) < len(images):
            kept.append(
                TextContent(f"({len(images) - len(shown)} of {len(images)} images are left out)")
            )
        return [*kept, *shown], saved


def _length(blocks: Sequence[MessageContent]) -> int:
    return sum(len(block.text) + 1 for block in blocks if isinstance(block, TextContent))


def _size(image: ImageContent) -> int:
    return len(image.data) * 3 // 4


def _saved_in(result: AgentToolResult) -> dict[str, Any] | None:
    found = result.details.get("saved") if isinstance(result.details, dict) else None
    return found if isinstance(found, dict) and isinstance(found.get("path"), str) else None
