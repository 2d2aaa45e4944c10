"""What had arrived of an answer, should the kernel die before the answer is whole.

While an answer streams, what is new of it is kept now and then as a ``custom`` entry, which other
readers of the format pass over. The answer itself, once it is there, supersedes them. Where it never
came, they are put together again as an aborted answer, so that a kernel that was killed loses a few
seconds of text and not a minute (reliability: a checkpoint every 5 s or 16 KB).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AssistantMessage, StopReason
from yiem_nb.session.entries import CustomEntry

__all__ = ["PARTIAL", "PartialAnswer", "partial_answer"]

#: The `CustomEntry.custom_type` of such an entry.
PARTIAL = "yiem.partial"
SECONDS = 5.0
CHARACTERS = 16_384
#: The kinds of delta that are kept, and the field of their block. Half a call is of no use.
_FIELDS = {"text": "text", "thinking": "thinking"}


class PartialAnswer:
    """Collects deltas until it is time to keep them.

    Each entry holds only what came since the one before it, so that all of them together are no
    longer than the answer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deltas: list[list[Any]] = []
        self._length = 0
        self._since = 0.0

    def clear(self) -> None:
        """Forget what was collected: the answer is whole, or another one begins."""
        self._deltas, self._length = [], 0

    def feed(self, event: MessageUpdateEvent) -> CustomEntry | None:
        """Take a delta; return what is to be kept now, if anything is."""
        if event.kind not in _FIELDS or not event.text:
            return None
        if not self._deltas:
            self._since = self._clock()
        last = self._deltas[-1] if self._deltas else None
        if last is not None and last[:2] == [event.index, event.kind]:
            last[2].append(event.text)
        else:
            self._deltas.append([event.index, event.kind, [event.text]])
        self._length += len(event.text)
        if self._length < CHARACTERS and self._clock() - self._since < SECONDS:
            return None
        deltas = [[index, kind, "".join(parts)] for index, kind, parts in self._deltas]
        self.clear()
        return CustomEntry(custom_type=PARTIAL, data={"deltas": deltas})


def partial_answer(entries: Iterable[CustomEntry]) -> AssistantMessage | None:
    """Put an answer that never came together from what was kept of it; ``None`` if nothing was."""
    blocks: dict[int, dict[str, Any]] = {}
    for entry in entries:
        for index, kind, text in _deltas(entry):
            block = blocks.setdefault(index, {"type": kind, _FIELDS[kind]: ""})
            if block["type"] == kind:
                block[_FIELDS[kind]] += text
    if not blocks:
        return None
    content = [blocks[index] for index in sorted(blocks)]
    fields = {"content": content, "stopReason": StopReason.ABORTED}
    return AssistantMessage.model_validate(fields)


def _deltas(entry: CustomEntry) -> Iterable[tuple[int, str, str]]:
    """Give the deltas of an entry; what somebody else has put there is passed over."""
    kept = entry.data.get("deltas") if isinstance(entry.data, dict) else None
    for delta in kept if isinstance(kept, list) else ():
        match delta:
            case [int() as index, "text" | "thinking" as kind, str() as text]:
                yield index, kind, text
