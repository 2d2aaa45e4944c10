"""The two widgets: the engine that holds the front end, and the small one that a cell carries.

Their classes are made on first use, because anywidget and ipywidgets cost more than all else here.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["engine_class", "turn_class"]

STATIC = Path(__file__).parent / "static"


@lru_cache(maxsize=1)
def engine_class() -> Any:
    """Return the class of the engine; a display of one is a chat panel."""
    import anywidget
    import traitlets

    class YiemEngine(anywidget.AnyWidget):
        _esm = (STATIC / "widget.js").read_text(encoding="utf-8")
        _css = (STATIC / "widget.css").read_text(encoding="utf-8")
        engine_id = traitlets.Unicode().tag(sync=True)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            bundle = super()._repr_mimebundle_(**options)
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            return _with_words(data, _PANEL), metadata

    return YiemEngine


@lru_cache(maxsize=1)
def turn_class() -> Any:
    """Return the class of what shows a running turn in its cell."""
    import anywidget
    import traitlets

    class YiemTurn(anywidget.AnyWidget):
        _esm = (STATIC / "turn.js").read_text(encoding="utf-8")
        engine_id = traitlets.Unicode().tag(sync=True)
        turn_id = traitlets.Unicode().tag(sync=True)
        start = traitlets.Int().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            bundle = super()._repr_mimebundle_(**options)
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            return _with_words(data, str(self.title)), metadata

    return YiemTurn


_PANEL = (
    "The chat panel appears here once the page can show it. If it does not, the server that the "
    "page comes from lacks the widgets: pip install anywidget in its environment, restart it and "
    "reload the page. %yiem and %%yiem work meanwhile."
)


def _with_words(data: Any, words: str) -> Any:
    """Say in plain words what stands here where no widget can be shown."""
    return {**(data or {}), "text/plain": words, "text/markdown": words}
