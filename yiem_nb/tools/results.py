"""What a function returned → what the model reads, in few tokens, and what people see of it.

Only libraries that are loaded already are recognised: nothing is imported for the user.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yiem_nb.messages import AgentToolResult, ImageContent, TextContent
from yiem_nb.tools.context import OutputStore
from yiem_nb.tools.failures import failure_result
from yiem_nb.tools.governor import MAX_IMAGE_BYTES, MAX_IMAGES, shortened
from yiem_nb.tools.reprs import REPR_SECONDS, bounded_repr, guarded
from yiem_nb.tools.text import MAX_CHARACTERS, clipped, few
from yiem_nb.tools.trimmed import as_json, is_data

__all__ = ["MAX_CHARACTERS", "Formatter", "bundle_result", "failure_result", "to_result"]

#: Returns an object's representations by MIME type, and their metadata: IPython's ``format``.
Formatter: TypeAlias = Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]

#: The longer edge of an image, in pixels; providers shrink larger ones, and charge for them.
MAX_EDGE = 1_568
#: Of this much of a result at most, what was printed is shown before the value.
_MAX_PRINTED = MAX_CHARACTERS // 2
_ROWS = 10
_COLUMNS = 20
#: A short list with a table or a figure in it is described item by item.
_PARTS = 8
#: Minimum and maximum of more numbers than this take too long.
_COUNTABLE = 100_000_000

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class _Described:
    """Text for the model, a few words for people, images, and what a widget may want to know."""

    text: str
    summary: str
    images: tuple[ImageContent, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


def to_result(
    value: Any,
    printed: str = "",
    *,
    format: Formatter | None = None,
    store: OutputStore | None = None,
) -> AgentToolResult:
    """Describe `value`; what was printed comes first.

    Parameters
    ----------
    value
        What a function returned, or yielded. An `AgentToolResult` is taken as it is.
    printed
        What it printed.
    format
        IPython's formatter; without it an object's own ``_repr_…_`` methods are asked.
    store
        Keeps the whole of what is too long.
    """
    if isinstance(value, AgentToolResult):
        return _with_prints(value, printed, store)
    described = _described(value, format)
    shown = shortened(printed.rstrip(), _MAX_PRINTED, store)
    text = shortened(described.text, MAX_CHARACTERS - len(shown.text), store)
    told = "\n".join(filter(None, (shown.text, text.text)))
    content: list[Any] = [TextContent(told or "(no output)")]
    content += described.images[:MAX_IMAGES]
    details = {"type": type(value).__name__, "summary": described.summary, **described.more}
    if printed:
        details["output"] = clipped(printed)
    if saved := text.saved or shown.saved:
        details["saved"] = saved
    return AgentToolResult(content, details=details)


def _with_prints(
    result: AgentToolResult, printed: str, store: OutputStore | None
) -> AgentToolResult:
    if not printed.strip():
        return result
    shown = shortened(printed.rstrip(), _MAX_PRINTED, store)
    changes: dict[str, Any] = {"content": (TextContent(shown.text), *result.content)}
    if isinstance(result.details, dict | None):
        saved = {"saved": shown.saved} if shown.saved else {}
        changes["details"] = {"output": clipped(printed), **saved, **(result.details or {})}
    return result.model_copy(update=changes)


def _described(value: Any, format: Formatter | None) -> _Described:
    if value is None:
        return _Described("", "")
    if isinstance(value, str):
        return _Described(value, few(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    rich = _of_library(value) or _of_parts(value, format)
    if rich is not None:
        return rich
    if not is_data(value) or _has_own_form(value):
        own = _own_form(value, format)
        if own is not None:
            return own
    text = as_json(value)
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > 1:
        return _Described(text, f"{len(value):,} items")
    return _Described(text, few(text))


def _of_parts(value: Any, format: Formatter | None) -> _Described | None:
    """Describe ``return table, figure`` item by item."""
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _PARTS:
        return None
    if not any(_of_library(each) for each in value):
        return None
    parts = [_described(each, format) for each in value]
    images = tuple(image for part in parts for image in part.images)
    text = "\n\n".join(clipped(part.text, MAX_CHARACTERS // len(parts)) for part in parts)
    return _Described(text, ", ".join(part.summary for part in parts), images)


# --- Libraries -----------------------------------------------------------------------------


def _of_library(value: Any) -> _Described | None:
    """Describe an object of a library that we know; a failure of the library's is no failure."""
    for module, names, describe in _LIBRARIES:
        loaded = sys.modules.get(module)
        kinds = tuple(
            kind for name in names if isinstance(kind := getattr(loaded, name, None), type)
        )
        if isinstance(value, kinds):
            return guarded(lambda: describe(value), lambda why: _unreadable(value, why))  # noqa: B023 - called at once
    return None


def _unreadable(value: Any, why: str) -> _Described:
    kind = type(value).__name__
    return _Described(f"<{kind}: describing it {why}>", kind)


def _table(value: Any) -> _Described:
    shape = tuple(value.shape)
    kind = type(value).__name__
    rows = f"{shape[0]:,} row{'' if shape[0] == 1 else 's'}"
    if len(shape) == 1:
        head = f"{kind} {value.name!r}, {rows}, {value.dtype}"
        body = value.to_string(max_rows=_ROWS)
    else:
        dtypes = [f"{name} {dtype}" for name, dtype in value.dtypes.iloc[:_COLUMNS].items()]
        if shape[1] > _COLUMNS:
            dtypes.append(f"… {shape[1] - _COLUMNS:,} more")
        columns = f"{shape[1]:,} column{'' if shape[1] == 1 else 's'}"
        head = f"{kind}, {rows} x {columns}: {', '.join(dtypes)}"
        body = value.to_string(max_rows=_ROWS, max_cols=_ROWS)
    return _Described(f"{head}\n{body}", rows, more={"shape": list(shape)})


def _array(value: Any) -> _Described:
    shape = str(value.shape)
    head = f"{type(value).__name__} {value.dtype} {shape}"
    if value.dtype.kind in "iuf" and 0 < value.size <= _COUNTABLE:
        head += f", from {value.min()} to {value.max()}"
    return _Described(f"{head}\n{bounded_repr(value)}", shape, more={"shape": list(value.shape)})


def _figure(figure: Any) -> _Described:
    buffer = io.BytesIO()
    width, height = figure.get_size_inches()
    figure.savefig(buffer, format="png", dpi=min(100, MAX_EDGE / max(width, height, 1)))
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        # It is shown with the call; the inline backend would show it once more when the cell ends.
        pyplot.close(figure)
    return _picture(buffer.getvalue(), "image/png", "A figure was made.", "figure")


def _axes(axes: Any) -> _Described:
    return _figure(axes.get_figure())


def _pillow(image: Any) -> _Described:
    buffer = io.BytesIO()
    shown = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGB")
    if max(image.size) > MAX_EDGE:
        shown = shown.copy()
        shown.thumbnail((MAX_EDGE, MAX_EDGE))
    shown.save(buffer, format="PNG")
    size = f"{image.width} x {image.height}"
    return _picture(buffer.getvalue(), "image/png", f"An image of {size} pixels.", f"{size} image")


_LIBRARIES: tuple[tuple[str, tuple[str, ...], Callable[[Any], _Described]], ...] = (
    ("pandas", ("DataFrame", "Series"), _table),
    ("numpy", ("ndarray",), _array),
    ("matplotlib.figure", ("Figure",), _figure),
    ("matplotlib.axes", ("Axes",), _axes),
    ("PIL.Image", ("Image",), _pillow),
)


# --- Bytes and images ----------------------------------------------------------------------


def _bytes(data: bytes) -> _Described:
    for magic, mime_type in _MAGIC:
        if data.startswith(magic):
            return _picture(data, mime_type, f"An image ({mime_type}).", "image")
    size = f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    digest = hashlib.sha256(data).hexdigest()[:16]
    return _Described(f"{size}, sha256 {digest}…, beginning with {data[:64]!r}", size)


def _picture(data: bytes, mime_type: str, text: str, summary: str) -> _Described:
    if len(data) > MAX_IMAGE_BYTES:
        return _Described(f"{text} It is too large to show: {len(data):,} bytes.", summary)
    image = ImageContent(base64.b64encode(data).decode(), mime_type)
    return _Described(text, summary, (image,))


# --- Objects that say how they look --------------------------------------------------------

_IMAGES = ("image/png", "image/jpeg")
_FORMS = {
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/markdown": "_repr_markdown_",
}


def _has_own_form(value: Any) -> bool:
    return any(hasattr(type(value), method) for method in (*_FORMS.values(), "_repr_mimebundle_"))


def _own_form(value: Any, format: Formatter | None) -> _Described | None:
    """Ask the object: an image, then Markdown, then text. HTML is not for the model."""
    asked = format or _asked
    found = guarded(lambda: asked(value)[0], lambda _why: {}, seconds=REPR_SECONDS)
    return _of_bundle(found, type(value).__name__)


def bundle_result(bundle: Mapping[str, Any]) -> AgentToolResult:
    """Describe what was displayed, by its MIME bundle; HTML alone is named, not shown."""
    described = _of_bundle(bundle, "display")
    if described is None:
        kinds = ", ".join(sorted(map(str, bundle))) or "nothing"
        described = _Described(f"(a display of {clipped(kinds, 200)})", "display")
    return AgentToolResult(
        [TextContent(described.text or "(empty)"), *described.images],
        details={"summary": described.summary},
    )


def _of_bundle(found: Mapping[str, Any], kind: str) -> _Described | None:
    for mime_type in _IMAGES:
        data = _binary(found.get(mime_type))
        if data:
            return _picture(data, mime_type, f"{kind}, shown as an image.", kind)
    for mime_type in ("text/markdown", "text/plain"):
        text = found.get(mime_type)
        if isinstance(text, str) and text.strip():
            return _Described(text, few(text))
    return None


def _asked(  # pragma: no cover - tested, but under the tracer of a deadline
    value: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Do what IPython's formatter does, where there is no IPython."""
    bundle: Any = getattr(value, "_repr_mimebundle_", dict)()
    found = dict(bundle[0] if isinstance(bundle, tuple) else bundle or {})
    for mime_type, method in _FORMS.items():
        form = getattr(value, method, lambda: None)()
        if form is not None:
            found[mime_type] = form[0] if isinstance(form, tuple) else form
    return found, {}


def _binary(data: Any) -> bytes:
    """Return an image's bytes; as text it is Base64 already."""
    if isinstance(data, str):
        return guarded(lambda: base64.b64decode(data, validate=False), lambda _why: b"")
    return data if isinstance(data, bytes) else b""
