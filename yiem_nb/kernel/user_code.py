"""Runs code of the model in the user's namespace, so that the user's history knows nothing of it.

``In``, ``Out``, ``_`` and the counter stay as they were; what is printed and displayed is captured, as is
the value of the last expression and, in place of IPython's traceback, the error itself
(research/kernel-runtime.md, section 6).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from IPython.core.displaypub import DisplayPublisher

from yiem_nb.kernel import compat
from yiem_nb.kernel.private_loop import PrivateLoop

__all__ = ["CodeOutcome", "NameChanges", "UserCode"]

#: What a call may display; the rest is counted.
MAX_DISPLAYS = 50
_MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class NameChanges:
    """Which names the code made, bound anew and deleted; what it changed in place is not seen."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> NameChanges:
        """Compare two states of a namespace by identity."""
        return cls(
            tuple(name for name in after if name not in before)[:_MOST_NAMES],
            tuple(name for name in before if name in after and after[name] is not before[name])[
                :_MOST_NAMES
            ],
            tuple(name for name in before if name not in after)[:_MOST_NAMES],
        )

    @property
    def record(self) -> dict[str, list[str]]:
        """What a call's `details` say of it; nothing where nothing changed."""
        found = {"created": self.created, "changed": self.changed, "deleted": self.deleted}
        return {kind: list(names) for kind, names in found.items() if names}

    def __str__(self) -> str:
        return "; ".join(f"{kind} {', '.join(names)}" for kind, names in self.record.items())


@dataclass(slots=True)
class CodeOutcome:
    """What came of running code."""

    #: MIME bundles, in the order in which they were first shown.
    displays: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0
    has_value: bool = False
    value: Any = None
    error: BaseException | None = None
    names: NameChanges = field(default_factory=NameChanges)


_capturing: ContextVar[Any] = ContextVar("yiem_displays", default=None)


class _CapturingPublisher(DisplayPublisher):
    """Keeps what the code displays; an update takes the place of what it updates.

    What others display meanwhile, such as a thread of an earlier cell, goes on to where it belongs.
    """

    def __init__(self, outcome: CodeOutcome, outer: Any, **more: Any) -> None:
        super().__init__(**more)  # type: ignore[no-untyped-call]
        self._outcome = outcome
        self._outer = outer
        self._places: dict[str, int] = {}

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *args: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **more: Any,
    ) -> None:
        """Keep one bundle, or pass it on."""
        if _capturing.get() is not self:
            passed = {"transient": transient, "update": update, **more}
            self._outer.publish(data, metadata, *args, **passed)
            return
        shown = self._outcome.displays
        name = (transient or {}).get("display_id")
        if name is not None and name in self._places:
            shown[self._places[name]] = data
        elif len(shown) < MAX_DISPLAYS:
            if name is not None:
                self._places[name] = len(shown)
            shown.append(data)
        else:
            self._outcome.dropped += 1

    def clear_output(self, wait: bool = False) -> None:
        """Forget what was shown."""
        self._outcome.displays.clear()
        self._places.clear()


class UserCode:
    """Runs cells that nobody sees in the notebook.

    Parameters
    ----------
    shell
        IPython's.
    private
        Where code that awaits runs: the kernel's own loop is busy with the cell that waits for it.
    """

    def __init__(self, shell: Any, private: PrivateLoop) -> None:
        self._shell = shell
        self._private = private

    def run(self, code: str, on_value: Callable[[Any], object] = id) -> CodeOutcome:
        """Run `code` on this thread, the main one; its prints go where prints go now.

        Parameters
        ----------
        code
            A cell, magics included.
        on_value
            Called with the last expression's value before figures are flushed: a figure that it
            takes is not shown twice.

        Raises
        ------
        KeyboardInterrupt
            The kernel was interrupted; IPython would go on as if nothing had been.
        """
        outcome = CodeOutcome()
        before = self._variables()
        with self._captured(outcome):
            result = self._run_cell(code)
            if outcome.has_value:
                on_value(outcome.value)
            self._shell.events.trigger("post_execute")
            self._shell.events.trigger("post_run_cell", result)
        outcome.error = result.error_before_exec or result.error_in_exec
        outcome.names = NameChanges.between(before, self._variables())
        if isinstance(outcome.error, KeyboardInterrupt):
            raise outcome.error
        return outcome

    def _run_cell(self, code: str) -> Any:
        shell = self._shell
        transformed, failed = code, None
        try:
            transformed = shell.transform_cell(code)
        except Exception:  # noqa: BLE001 - IPython reports it as the cell's error
            failed = sys.exc_info()
        cell = shell.run_cell_async(
            code,
            store_history=False,
            silent=False,
            transformed_cell=transformed,
            preprocessing_exc_tuple=failed,
        )
        if shell.should_run_async(
            code, transformed_cell=transformed, preprocessing_exc_tuple=failed
        ):
            return self._private.run(cell)
        try:
            cell.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("a cell without await has waited")

    def _variables(self) -> dict[str, Any]:
        """Return the user's variables; IPython's own, such as ``_``, come and go."""
        hidden = self._shell.user_ns_hidden
        return {
            name: value
            for name, value in tuple(self._shell.user_ns.items())
            if not name.startswith("_") and name not in hidden
        }

    @contextmanager
    def _captured(self, outcome: CodeOutcome) -> Iterator[None]:
        """Take displays, the value and the traceback from IPython for a while."""
        shell = self._shell

        def keep_value(value: Any) -> None:
            if value is not None:
                outcome.has_value, outcome.value = True, value

        publisher, hook = shell.display_pub, sys.displayhook
        # Inside the trap IPython leaves the hook alone.
        with shell.display_trap, compat.without_tracebacks(shell):
            shell.display_pub = _CapturingPublisher(outcome, publisher)
            sys.displayhook = keep_value
            token = _capturing.set(shell.display_pub)
            try:
                yield
            finally:
                _capturing.reset(token)
                sys.displayhook, shell.display_pub = hook, publisher
