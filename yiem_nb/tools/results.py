"""What a function returned → what the model reads, in few tokens."""

from __future__ import annotations

import base64
import io
import linecache
import reprlib
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic_core import to_json

from yiem_nb.errors import ErrorCode, YiemError, redact
from yiem_nb.messages import AgentToolResult, ImageContent, TextContent

__all__ = ["MAX_CHARACTERS", "Formatter", "failure_result", "to_result"]

#: Returns an object's representations by MIME type, and their metadata: IPython's ``format``.
Formatter: TypeAlias = Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]

MAX_CHARACTERS = 20_000
MAX_TRACEBACK_LINES = 20
MAX_FAILURE_CHARACTERS = 4_000
_ROWS = 10
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxother = _SHORT_REPR.maxstring = 2_000
_SHORT_REPR.maxlist = _SHORT_REPR.maxdict = _SHORT_REPR.maxset = _SHORT_REPR.maxtuple = 50


def to_result(value: Any, printed: str = "", *, format: Formatter | None = None) -> AgentToolResult:
    """Describe `value`; what was printed comes first.

    Only libraries that are loaded already are recognised: nothing is imported for the user.
    """
    if isinstance(value, AgentToolResult):
        return value
    text, summary, image = _described(value)
    parts = [part for part in (printed.rstrip(), text) if part]
    content: list[Any] = [TextContent(_clipped("\n".join(parts) or "(no output)"))]
    if image is not None:
        content.append(image)
    details: dict[str, Any] = {"type": type(value).__name__, "summary": summary}
    if printed:
        details["output"] = _clipped(printed)
    return AgentToolResult(content, details=details)


def _described(value: Any) -> tuple[str, str, ImageContent | None]:
    """Text for the model, a few words for people, and an image if it is one."""
    if value is None:
        return "", "", None
    if isinstance(value, str):
        return value, _few(value), None
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series):
        return _table(value)
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, figure.Figure):
        return "A figure was made.", "figure", _png(value)
    try:
        text = to_json(value, fallback=_shown, inf_nan_mode="strings").decode()
    except Exception:  # noqa: BLE001 - cycles, and whatever a strange object raises
        text = _shown(value)
    return text, _few(text), None


def _table(value: Any) -> tuple[str, str, None]:
    rows = len(value)
    head = (
        value.to_string(max_rows=_ROWS, max_cols=_ROWS)
        if hasattr(value, "columns")
        else (value.to_string(max_rows=_ROWS))
    )
    shape = " x ".join(str(size) for size in value.shape)
    text = f"{type(value).__name__} {shape}\n{head}"
    return text, f"{rows:,} row{'s' if rows != 1 else ''}", None


def _png(figure: Any) -> ImageContent:
    buffer = io.BytesIO()
    width, height = figure.get_size_inches()
    figure.savefig(buffer, format="png", dpi=min(100, 1_500 / max(width, height, 1)))
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        # It is shown with the call; the inline backend would show it once more when the cell ends.
        pyplot.close(figure)
    return ImageContent(base64.b64encode(buffer.getvalue()).decode(), "image/png")


def _shown(value: Any) -> str:
    """A bounded repr of anything, also of what raises in its own."""
    try:
        text = _SHORT_REPR.repr(value)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ is not the user's question
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text


def _few(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{len(text):,} characters"


def _clipped(text: str, limit: int = MAX_CHARACTERS) -> str:
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"


# --- Failures ------------------------------------------------------------------------------


def failure_result(error: BaseException, printed: str = "") -> AgentToolResult:
    """Tell the model what was raised and where, in the user's own code alone."""
    if isinstance(error, YiemError):
        text, code = str(error), str(error.code)
    else:
        text, code = redact(_trimmed_traceback(error)), str(ErrorCode.EXECUTION_FAILED)
    body = "\n".join(part for part in (printed.rstrip(), text) if part)
    details: dict[str, Any] = {"code": code}
    if printed:
        details["output"] = _clipped(printed)
    return AgentToolResult(_clipped(body, MAX_FAILURE_CHARACTERS), details=details, is_error=True)


def _trimmed_traceback(error: BaseException) -> str:
    lines: list[str] = []
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_users(frame.filename):
            where = "cell" if _is_cell(frame.filename) else frame.filename
            source = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
            lines.append(f"  {where}, line {frame.lineno}, in {frame.name}: {source}")
    said = str(error)
    head = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return "\n".join([*lines[-MAX_TRACEBACK_LINES:], head])


def _is_cell(filename: str) -> bool:
    return "ipykernel_" in filename or filename.startswith("<ipython-input")


def _is_users(filename: str) -> bool:
    """Whether a frame is a notebook cell or a file of the user's own."""
    if _is_cell(filename):
        return True
    inside = ("site-packages", "yiem_nb", sys.base_prefix, "<frozen")
    return not any(part in filename for part in inside)
