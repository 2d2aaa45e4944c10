"""Where answers come from: HTTP servers, the embedded model, a script; and which of them."""

from __future__ import annotations

from yiem_nb.providers.scripted import ScriptedProvider

__all__ = ["ScriptedProvider"]
