"""What a function raised → what the model reads: the user's own lines, and no more."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from yiem_nb.errors import ErrorCode, YiemError, redact
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.context import OutputStore
from yiem_nb.tools.governor import shortened
from yiem_nb.tools.reprs import REPR_SECONDS, guarded
from yiem_nb.tools.text import clipped

__all__ = ["failure_result"]

MAX_FRAMES = 20
MAX_CHARACTERS = 4_000
_MAX_SOURCE = 200
_MAX_CAUSES = 3

_OURS = str(Path(__file__).parents[1]) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep


def failure_result(
    error: BaseException, printed: str = "", *, store: OutputStore | None = None
) -> AgentToolResult:
    """Tell the model what was raised and where; what was printed comes first."""
    if isinstance(error, YiemError):
        text, code = str(error), str(error.code)
    else:
        text, code = redact(_traceback(error)), str(ErrorCode.EXECUTION_FAILED)
    text = clipped(text, MAX_CHARACTERS // 2 if printed else MAX_CHARACTERS)
    shown = shortened(printed.rstrip(), MAX_CHARACTERS // 2, store)
    details: dict[str, Any] = {"code": code, "summary": _kind(error)}
    if printed:
        details["output"] = clipped(printed)
    if shown.saved:
        details["saved"] = shown.saved
    body = "\n".join(filter(None, (shown.text, text)))
    return AgentToolResult(body, details=details, is_error=True)


def _traceback(error: BaseException) -> str:
    frames = [
        _frame(frame)
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_users(frame.filename)
    ]
    if len(frames) > MAX_FRAMES:
        left_out = len(frames) - MAX_FRAMES
        frames[1 : left_out + 1] = [f"  … {left_out:,} more …"]
    return "\n".join([*frames, *_sentences(error)])


def _frame(frame: traceback.FrameSummary) -> str:
    where = "cell" if _is_cell(frame.filename) else frame.filename
    source = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"  {where}, line {frame.lineno}, in {frame.name}: {source[:_MAX_SOURCE]}"


def _sentences(error: BaseException) -> list[str]:
    """Return the error's own sentence, its notes, what is in its group, and what caused it."""
    lines = [_sentence(error)]
    lines += [str(note) for note in getattr(error, "__notes__", ())]
    if isinstance(error, BaseExceptionGroup):
        lines += [f"  - {_sentence(each)}" for each in error.exceptions[:MAX_FRAMES]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        lines.append(f"caused by {_sentence(cause)}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return lines


def _sentence(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and _is_cell(error.filename or ""):
        # IPython's name for the cell tells nobody anything.
        source = (error.text or "").strip()[:_MAX_SOURCE]
        return f"{_kind(error)}: {error.msg}, line {error.lineno}: {source}"
    said = guarded(lambda: str(error), lambda why: f"<its text {why}>", seconds=REPR_SECONDS)
    return f"{_kind(error)}: {said}" if said else _kind(error)


def _kind(error: BaseException) -> str:
    return type(error).__name__


def _is_cell(filename: str) -> bool:
    return "ipykernel_" in filename or filename.startswith("<ipython-input")


def _is_users(filename: str) -> bool:
    """Whether a frame is a notebook cell or a file of the user's own."""
    if _is_cell(filename):
        return True
    installed = ("site-packages" in filename, "dist-packages" in filename, "<frozen" in filename)
    return not any(installed) and not filename.startswith((_OURS, _STANDARD))
