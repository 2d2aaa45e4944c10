"""What a tool may be handed beside its arguments, and how a model names a live object."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.base import OnUpdate

__all__ = [
    "Injection",
    "Namespace",
    "OutputStore",
    "SavedOutput",
    "ToolContext",
    "Var",
    "holds_variable",
    "injection_of",
    "main_namespace",
]

T = TypeVar("T")

#: Returns the notebook's variables as they are now.
Namespace: TypeAlias = Callable[[], Mapping[str, Any]]
#: The field of a `ToolContext` that a parameter receives; the empty one is the context itself.
Injection: TypeAlias = Literal["", "signal", "on_update"]

_MOST_NAMES = 10


@dataclass(frozen=True, slots=True)
class SavedOutput:
    """Where the whole of an output is kept that the model reads only a part of.

    Parameters
    ----------
    sha256
        Of its bytes; the name of its file.
    size
        In bytes.
    mime_type
        What it is.
    name
        What the tool calls it; may be empty.
    path
        Where people and models find it, seen from the notebook's folder.
    """

    sha256: str
    size: int
    mime_type: str = "text/plain"
    name: str = ""
    path: str = ""

    @property
    def reference(self) -> dict[str, Any]:
        """What a result's `details` say of it: enough to find it again, from any folder."""
        named = {"name": self.name} if self.name else {}
        return {"blob": self.sha256, "mimeType": self.mime_type, "bytes": self.size, **named}


class OutputStore(Protocol):
    """Keeps whole outputs beside the conversation; a session's own is `session.blobs.BlobStore`."""

    def save_output(self, output: str | bytes, name: str = "") -> SavedOutput | None:
        """Keep an output, from any thread; ``None`` where there is no room for it at all.

        It raises nothing. What a full disk does not take waits in memory.
        """


def main_namespace() -> Mapping[str, Any]:
    """Return what a script, or a notebook, has defined at its top level."""
    return vars(sys.modules["__main__"])


def _unheard(partial_result: AgentToolResult) -> None:
    """Nobody listens to the progress of this call."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call itself, for a function that has a parameter of this type.

    Parameters
    ----------
    tool_call_id
        Which call of the model this is.
    signal
        Fires when the run is stopped; `AbortSignal` alone can be asked for too.
    on_update
        Shows progress; `OnUpdate` alone can be asked for too.
    namespace
        The notebook's variables.
    """

    tool_call_id: str = ""
    signal: AbortSignal = field(default_factory=AbortSignal)
    on_update: OnUpdate = _unheard
    namespace: Mapping[str, Any] = field(default_factory=main_namespace)


def injection_of(annotation: Any) -> Injection | None:
    """Say what a parameter of this type receives from us; ``None`` if the model fills it.

    The type decides, never the name: people have arguments called ``context`` and ``signal``.
    """
    plain = _without_none(annotation)
    if plain is ToolContext:
        return ""
    if plain is AbortSignal:
        return "signal"
    return "on_update" if plain == OnUpdate else None


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) is Annotated:
        return _without_none(typing.get_args(annotation)[0])
    rest = [part for part in typing.get_args(annotation) if part is not type(None)]
    return rest[0] if len(rest) == 1 and type(None) in typing.get_args(annotation) else annotation


# --- A variable by its name ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Variable:
    """Pydantic's own hook: the schema is a string, the value what the notebook calls so."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_after_validator_function(
            partial(_looked_up, source), core_schema.str_schema()
        )


#: ``df: Var[pd.DataFrame]``: the model passes a variable's name, the function gets the object.
Var: TypeAlias = Annotated[T, _Variable()]


def holds_variable(annotation: Any) -> bool:
    """Whether `annotation` is a `Var`, or has one inside."""
    if isinstance(annotation, _Variable):
        return True
    return any(holds_variable(part) for part in typing.get_args(annotation))


def _looked_up(source: Any, name: str, info: ValidationInfo) -> Any:
    namespace: Mapping[str, Any] = (info.context or {}).get("namespace", {})
    kind = typing.get_origin(source) or source
    checked = isinstance(kind, type)
    if name in namespace and not (checked and not isinstance(namespace[name], kind)):
        return namespace[name]
    wanted = kind.__name__ if checked else "variable"
    problem = (
        f"the variable {name!r} is of type {type(namespace[name]).__name__}, not {wanted}"
        if name in namespace
        else f"there is no variable {name!r}"
    )
    fitting = (
        known
        for known, value in tuple(namespace.items())
        if not known.startswith("_") and checked and isinstance(value, kind)
    )
    names = ", ".join(islice(fitting, _MOST_NAMES)) or "none"
    text = f"{problem}; variables of type {wanted}: {names}" if checked else problem
    raise PydanticCustomError("variable", "{text}", {"text": text})
