"""An answer of a given form: its schema, one chance to mend it, and the value (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from yiem_nb.errors import CommandError, ErrorCode, OutputError
from yiem_nb.messages import AssistantMessage, StopReason, UserMessage

__all__ = ["OutputForm"]

T = TypeVar("T")
_VALUE = "value"
_COMPLAINTS = 5


class OutputForm(Generic[T]):
    """What an answer must be.

    Parameters
    ----------
    output_type
        A pydantic model, a dataclass, or any other type that pydantic can check.

    Raises
    ------
    CommandError
        Pydantic cannot check such a type.

    Attributes
    ----------
    schema
        The JSON schema of an answer; always an object, because that is what providers take.
    """

    def __init__(self, output_type: type[T]) -> None:
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise CommandError(
                f"An answer cannot be of the type {output_type!r}.",
                hint=f"Name a pydantic model, a dataclass or a plain type ({str(error).splitlines()[0]})",
            ) from None
        self._wrapped = schema.get("type") != "object"
        if self._wrapped:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            outer = {"type": "object", "properties": {_VALUE: inner}, "required": [_VALUE]}
            schema = outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
        self.schema: Mapping[str, Any] = schema
        self._repaired = False

    def repair(self, answer: AssistantMessage) -> UserMessage | None:
        """Return what to say to an answer that does not fit, once; ``None`` if nothing is to be said."""
        if self._repaired or answer.stop_reason is not StopReason.STOP or answer.tool_calls:
            return None
        try:
            self._parse(answer.text)
        except ValueError as error:
            self._repaired = True
            return UserMessage(
                "Your answer does not fit the JSON schema that was asked for:\n"
                f"{_complaint(error)}\nAnswer again with one JSON object that fits, and nothing else."
            )
        return None

    def read(self, answer: AssistantMessage) -> T:
        """Return the value of the last answer.

        Raises
        ------
        OutputError
            The answer failed, or does not fit after it could be mended; `text` is what it said.
        """
        if answer.stop_reason in (StopReason.ERROR, StopReason.ABORTED):
            code = ErrorCode.__members__.get(answer.error_code or "", ErrorCode.PROVIDER_OUTPUT)
            raise OutputError(
                answer.error_message or "The answer was stopped.", code=code, text=answer.text
            )
        try:
            return self._parse(answer.text)
        except ValueError as error:
            raise OutputError(
                f"The answer is not of the form that was asked for: {_complaint(error)}",
                hint="Its text is in the error's `text`; ask more simply, or another model.",
                text=answer.text,
            ) from None

    def _parse(self, text: str) -> T:
        value = json.loads(_bare(text))
        if self._wrapped and isinstance(value, dict) and value.keys() == {_VALUE}:
            value = value[_VALUE]
        # As JSON: dates are texts there, and tuples lists.
        return self._adapter.validate_json(json.dumps(value))


def _bare(text: str) -> str:
    """Take the fence or the words away that models put around JSON."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _complaint(error: ValueError) -> str:
    """Say what does not fit, without repeating the answer."""
    if not isinstance(error, ValidationError):
        return f"it is no JSON ({error})"
    lines = [
        f"{'.'.join(str(step) for step in item['loc']) or 'the whole'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:_COMPLAINTS]
    ]
    return "; ".join(lines)
