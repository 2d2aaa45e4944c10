"""A growing text, rendered again and again without doing the finished part twice (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token

from yiem_nb.render.markdown import parser, render_html, render_tokens
from yiem_nb.render.text import cleaned

__all__ = ["StreamingMarkdown"]


class StreamingMarkdown:
    """Collects deltas; `html` is what there is so far.

    A top-level block is final once another has begun after it in a whole line, so only the last is
    rendered again.
    (A link whose definition comes later is the exception; `finish` gives the exact text.)
    """

    def __init__(self) -> None:
        self._deltas: list[str] = []
        self._new: list[str] = []
        self._done: list[str] = []
        self._tail = ""
        self._env: dict[str, Any] = {}

    def feed(self, delta: str) -> None:
        """Take the next piece of text."""
        self._deltas.append(delta)
        self._new.append(delta)

    @property
    def text(self) -> str:
        """All that was fed."""
        return "".join(self._deltas)

    @property
    def html(self) -> str:
        """The text so far as HTML."""
        text = cleaned(self._tail + "".join(self._new))
        self._new.clear()
        tokens = parser().parse(text, self._env)
        last = _last_block(tokens)
        start = tokens[last].map if tokens else None
        if last and start is not None:
            lines = text.split("\n")
            # A line that is not whole yet may still turn out to go on with the block before it.
            if start[0] < len(lines) - 1:
                done, text = "\n".join(lines[: start[0]]), "\n".join(lines[start[0] :])
                self._done.append(render_tokens(tokens[:last], self._env, done))
                tokens = tokens[last:]
        self._tail = text
        return "".join(self._done) + render_tokens(tokens, self._env, text)

    def finish(self) -> str:
        """The whole text as HTML, exactly as `render_html` gives it."""
        return render_html(self.text)


def _last_block(tokens: Sequence[Token]) -> int:
    """Return the index of the token that opens the last top-level block."""
    return max((i for i, t in enumerate(tokens) if t.level == 0 and t.nesting >= 0), default=0)
