"""What a function says about itself and its parameters, for the model to read."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
import typing
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Literal, TypeAlias

from pydantic.fields import FieldInfo

from yiem_nb.tools.context import holds_variable
from yiem_nb.tools.signature import Argument, innermost

__all__ = ["MAX_DESCRIPTION", "FunctionDocs", "clipped_description", "read_docs"]

#: A description longer than this costs more tokens than it helps.
MAX_DESCRIPTION = 4_096

_Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_GOOGLE = re.compile(
    r"(args|arguments|params|parameters|keyword args|keyword arguments|other parameters):\s*",
    re.IGNORECASE,
)
_NUMPY = re.compile(r"(other )?parameters\s*", re.IGNORECASE)
_RULE = re.compile(r"-{3,}\s*")
_SPHINX = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\b[^:]*:")
_FOR_TOOLS = re.compile(r"#\s*(type:|noqa|pragma|fmt:|pylint|pyright)")


@dataclass(frozen=True, slots=True)
class FunctionDocs:
    """A function's description, and what the docstring and comments say about parameters."""

    description: str
    parameters: dict[str, str]

    def of(self, argument: Argument) -> str:
        """Return a parameter's description, from the best source that has one.

        Their order: a ``Field``, ``Annotated[T, "words"]``, ``Annotated[T, Doc("words")]``, the
        docstring, a comment behind the parameter.
        """
        metadata = _metadata(argument.annotation)
        fields = (argument.parameter.default, *metadata)
        words = [each.description for each in fields if isinstance(each, FieldInfo)]
        words += [each for each in metadata if isinstance(each, str)]
        words += [getattr(each, "documentation", None) for each in metadata]
        words.append(self.parameters.get(argument.parameter.name))
        if holds_variable(argument.annotation):
            words.append("The name of a notebook variable.")
        return next((each for each in words if isinstance(each, str) and each.strip()), "")


def _metadata(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is Annotated:
        return tuple(annotation.__metadata__)
    return ()


def read_docs(function: Callable[..., Any]) -> FunctionDocs:
    """Read docstring and comments."""
    target = innermost(function)
    text = inspect.cleandoc(_docstring(function, target) or "")
    rest, sections = _split(text.splitlines())
    from_docstring: dict[str, str] = {}
    for style, section in sections:
        parsed = _parse(style, section)
        if parsed is None:
            rest = text.splitlines()
            break
        from_docstring |= parsed
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip()
    return FunctionDocs(description, _comments(target) | from_docstring)


def _docstring(function: Callable[..., Any], target: Any) -> str | None:
    """Return the docstring of what is called: a partial's own is about partials."""
    if inspect.isclass(function):
        return vars(function).get("__doc__")  # not a base class's
    return inspect.getdoc(function if inspect.isroutine(function) else target)


def clipped_description(text: str) -> str:
    """Cut a description at `MAX_DESCRIPTION` characters, and say so."""
    if len(text) <= MAX_DESCRIPTION:
        return text
    note = " … (shortened)"
    return text[: MAX_DESCRIPTION - len(note)].rstrip() + note


# --- Docstrings ----------------------------------------------------------------------------


def _split(lines: list[str]) -> tuple[list[str], list[tuple[_Style, str]]]:
    """Take the sections about parameters out of a docstring.

    They go into the schema; said twice they would cost tokens twice.
    """
    rest: list[str] = []
    sections: list[tuple[_Style, str]] = []
    at = 0
    while at < len(lines):
        found = _section(lines[at:])
        if found is None:
            rest.append(lines[at])
            at += 1
            continue
        style, length = found
        sections.append((style, "\n".join(lines[at : at + length])))
        at += length
    return rest, sections


def _section(lines: list[str]) -> tuple[_Style, int] | None:
    """Say which section begins here, and how many lines it has."""
    head, body = lines[0], lines[1:]
    if _GOOGLE.fullmatch(head) and body and _is_indented(body[0]):
        return "google", 1 + _block(body)
    if _NUMPY.fullmatch(head) and body and _RULE.fullmatch(body[0]):
        ends = (at for at in range(2, len(body)) if _RULE.fullmatch(body[at]) and body[at - 1])
        return "numpy", next(ends, len(body) + 1)
    if _SPHINX.match(head):
        return "sphinx", 1 + _block(body)
    return None


def _block(lines: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda line: not line or _is_indented(line), lines))


def _is_indented(line: str) -> bool:
    return line[:1].isspace()


def _parse(style: _Style, section: str) -> dict[str, str] | None:
    """Read one section; ``None`` where the parser is not installed: then it stays in the text."""
    try:
        import griffe
    except ImportError:
        return None
    # Griffe takes a section for text unless a line and a blank stand above it.
    docstring = griffe.Docstring(f"_\n\n{section}")
    parse: Any = getattr(griffe, f"parse_{style}")
    return {
        item.name.lstrip("*"): item.description
        for part in parse(docstring, warnings=False)
        if isinstance(part.value, list)
        for item in part.value
    }


# --- Comments ------------------------------------------------------------------------------


def _comments(function: Any) -> dict[str, str]:
    """Read comments behind parameters that stand on a line of their own."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, ValueError, IndexError, SyntaxError, tokenize.TokenError):
        return {}
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    lines: dict[int, list[str]] = {}
    given = definition.args
    for each in (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg):
        if each is not None:
            lines.setdefault(each.end_lineno or each.lineno, []).append(each.arg)
    return {
        names[0]: comment
        for line, comment in _comment_lines(source)
        if len(names := lines.get(line, [])) == 1 and line < definition.body[0].lineno
    }


def _comment_lines(source: str) -> list[tuple[int, str]]:
    return [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string)
    ]
