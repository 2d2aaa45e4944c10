"""A growing text, rendered again and again without doing the finished part twice (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token

from yiem_nb.render.markdown import parser, render_html, render_tokens
from yiem_nb.render.text import cleaned, settled

__all__ = ["StreamingMarkdown"]


class StreamingMarkdown:
    """Collects deltas; `html` is what there is so far.

    A top-level block is final once another has begun after it in a whole line, so only the last such
    block and the line that still grows are rendered again.
    (A link whose definition comes later is the exception; `finish` gives the exact text.)
    """

    def __init__(self) -> None:
        self._deltas: list[str] = []
        self._new: list[str] = []
        self._done: list[str] = []
        self._tail = ""
        self._references: dict[str, Any] = {}

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
        text, held = settled(self._tail + "".join(self._new))
        text = cleaned(text)
        self._new.clear()
        # The address of a definition that is still being written must not outlive this call.
        env: dict[str, Any] = {"references": dict(self._references)}
        tokens = parser().parse(text, env)
        index, line = _open_block(tokens, text.count("\n"))
        if index:
            lines = text.split("\n")
            done, text = "\n".join(lines[:line]), "\n".join(lines[line:])
            self._done.append(render_tokens(tokens[:index], env, done))
            self._references |= {
                label: reference
                for label, reference in env["references"].items()
                if label not in self._references and reference["map"][1] <= line
            }
        self._tail = text + held
        return "".join(self._done) + render_tokens(tokens[index:], env, text)

    def finish(self) -> str:
        """The whole text as HTML, exactly as `render_html` gives it; `html` is the same from then on."""
        html = render_html(self.text)
        self._new.clear()
        self._done, self._tail = [html], ""
        return html


def _open_block(tokens: Sequence[Token], last_line: int) -> tuple[int, int]:
    """Find the last top-level block that begins above `last_line`: its token and its line.

    The last line is not whole yet: it may still turn out to go on with the block before it.
    """
    for index in range(len(tokens) - 1, 0, -1):
        token = tokens[index]
        if token.level == 0 and token.nesting >= 0 and token.map and token.map[0] < last_line:
            return index, token.map[0]
    return 0, 0
