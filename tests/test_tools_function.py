"""Functions as tools: the siblings of the conformance cases, and how calls end."""

import asyncio
import contextlib
import dataclasses
import functools
import linecache
import sys
import threading
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Unpack

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from typing_extensions import Doc
from yiem_nb.errors import ErrorCode, InvalidParametersError
from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools import AgentTool, OnUpdate, ToolContext, Var, call_function, tool_from_function
from yiem_nb.tools.docs import MAX_DESCRIPTION
from yiem_nb.tools.running import CallLog
from yiem_nb.tools.signature import UnresolvedAnnotationError


def _properties(function: Any, **options: Any) -> dict[str, Any]:
    return tool_from_function(function, **options).parameters["properties"]


def _call(function: Any, arguments: Any, **options: Any) -> Any:
    return call_function(tool_from_function(function, **options), arguments)


def _complaint(function: Any, arguments: Any, **options: Any) -> str:
    with pytest.raises(InvalidParametersError) as refused:
        _call(function, arguments, **options)
    assert refused.value.code is ErrorCode.INVALID_PARAMETERS
    return refused.value.message


def _refusal(function: Any) -> InvalidParametersError:
    with pytest.raises(InvalidParametersError) as refused:
        tool_from_function(function)
    return refused.value


# --- Defaults ------------------------------------------------------------------------------


def test_none_as_a_default_makes_the_type_nullable() -> None:
    def f(x: int = None, y: Annotated[int, Field(ge=1, description="d")] = None):  # noqa: RUF013
        return x, y

    properties = _properties(f)
    assert properties["x"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["y"]["description"] == "d"
    assert _call(f, {"x": None, "y": None}) == (None, None)
    assert "y: Input should be greater than or equal to 1" in _complaint(f, {"y": 0})


def test_optional_without_a_default_is_nullable_and_required() -> None:
    def f(x: Optional[int]):  # noqa: UP045
        return x

    assert tool_from_function(f).parameters["required"] == ["x"]
    assert _call(f, {"x": None}) is None


def test_defaults_that_are_no_json_are_left_out_of_the_schema_and_used() -> None:
    endless: list[Any] = []
    endless.append(endless)

    def f(a=..., b=float("inf"), c=[1, float("nan")], d=endless, e={(1, 2): 3}, g="x" * 5000):  # noqa: B006
        return a, b, len(c), len(d), e, len(g)

    class M(BaseModel):
        x: float = float("inf")

    def g(m: M):
        return m

    assert tool_from_function(g).parameters["$defs"]["M"]["properties"] == {"x": {"type": "number"}}
    assert all("default" not in schema for name, schema in _properties(f).items() if name != "e")
    assert _call(f, {}) == (..., float("inf"), 2, 1, {(1, 2): 3}, 5000)


def test_a_mutable_default_is_fresh_in_each_call() -> None:
    def f(xs: list[int] = [], *rest: int):  # noqa: B006
        xs.append(len(rest))
        return xs

    tool = tool_from_function(f)
    assert [call_function(tool, {}), call_function(tool, {})] == [[0], [0]]
    assert [call_function(tool, {"rest": [7]}), call_function(tool, {"rest": [7]})] == [[1], [1]]


def test_an_opaque_type_with_a_default_is_hidden_and_keeps_it() -> None:
    frame = pd.DataFrame({"a": [1]})

    def f(df: pd.DataFrame = frame, /, n: int = 2):
        return df is frame, n

    assert list(_properties(f)) == ["n"]
    assert _call(f, {"n": 3}) == (True, 3)
    assert _complaint(f, {"df": 1}).endswith("- df: there is no such argument")


def test_a_field_gives_its_default_its_factory_and_its_alias() -> None:
    def f(
        a: int = Field(default=5, description="how many"),
        b: list[int] = Field(default_factory=list),  # noqa: B008
        c: Annotated[int, Field(default=7)] = Field(ge=1),
        d: Annotated[str, Field(alias="other")] = "d",
    ):
        b.append(0)
        return a, b, c, d

    assert _call(f, {}) == (5, [0], 7, "d")
    assert _call(f, {"other": "x", "b": [1]}) == (5, [1, 0], 7, "x")
    assert _properties(f)["a"]["description"] == "how many"


# --- Refusals ------------------------------------------------------------------------------


@pytest.mark.requirement("SP-024")
def test_a_refusal_names_parameter_type_and_remedy() -> None:
    def f(frames: list[pd.DataFrame]):
        """Doc."""

    error = _refusal(f)
    assert error.message == (
        "f: a model cannot pass a list[pandas.DataFrame] for the parameter 'frames'."
    )
    assert error.hint == (
        "Annotate it as Var[list[pandas.DataFrame]] to be given a notebook variable by its name, "
        "or take plain values."
    )


@pytest.mark.parametrize("value", [dict, print.__call__, 5])
def test_what_does_not_say_what_it_takes_is_refused(value: Any) -> None:
    with pytest.raises(InvalidParametersError) as refused:
        tool_from_function(value, name="f")
    assert refused.value.hint


def test_words_in_place_of_a_type_are_refused_with_the_remedy() -> None:
    def f(x: "how many"):  # noqa: F722
        """Doc."""

    assert "is no type: SyntaxError" in _refusal(f).message
    assert "Annotated[type" in _refusal(f).hint


def test_a_type_whose_fields_name_nothing_is_not_complete() -> None:
    class Broken(BaseModel):
        x: "Nowhere"  # noqa: F821

    def f(b: Broken):
        """Doc."""

    with pytest.raises(UnresolvedAnnotationError, match="of the parameter 'b' is not complete"):
        tool_from_function(f)


def test_a_field_without_a_default_does_not_hide_an_opaque_type() -> None:
    def f(cb: Callable[[], None] = Field(description="d")):  # noqa: B008
        """Doc."""

    assert "'cb'" in _refusal(f).message


def test_a_callable_that_wraps_itself_ends() -> None:
    class Loop:
        def __call__(self, x: int):
            """Doc."""
            return x

    loop = Loop()
    loop.__wrapped__ = loop
    with pytest.raises(InvalidParametersError):
        tool_from_function(loop, name="f")


# --- Kinds of callables and parameters ------------------------------------------------------


def test_every_kind_of_parameter_at_once() -> None:
    def f(a: int, /, b: int, *rest: int, c: int = 3, **more: str):
        return a, b, rest, c, more

    assert _call(f, {"a": 1, "b": 2}) == (1, 2, (), 3, {})
    assert _call(f, {"a": 1, "b": 2, "rest": [3], "c": 4, "x": "y"}) == (1, 2, (3,), 4, {"x": "y"})
    assert _complaint(f, {"a": 1, "b": 2, "x": 5}).endswith(
        "- x: Input should be a valid string; received 5"
    )


def test_keyword_arguments_may_not_overwrite_what_the_model_cannot_set() -> None:
    def f(n: int, context: ToolContext, **more):
        return n, more

    assert _call(f, {"n": 1, "q": [1]}) == (1, {"q": [1]})
    assert _complaint(f, {"n": 1, "context": 2}).endswith("- context: it cannot be set")


def test_unpacked_keywords_are_named_parameters() -> None:
    class Options(TypedDict):
        a: int
        b: NotRequired[str]

    def f(x: int, **options: Unpack[Options]):
        return x, options

    assert tool_from_function(f).parameters["required"] == ["x", "a"]
    assert _call(f, {"x": 1, "a": 2}) == (1, {"a": 2})
    assert _call(f, {"x": 1, "a": 2, "b": "c"}) == (1, {"a": 2, "b": "c"})


def test_classes_callable_objects_and_cached_functions_are_tools() -> None:
    @dataclasses.dataclass
    class Point:
        """A point."""

        x: int
        y: "list[int]" = dataclasses.field(default_factory=list)

    class Adder:
        """Not this."""

        async def __call__(self, x: int):
            """Add."""
            return x + 1

    class Model(BaseModel):
        x: int

    @functools.lru_cache
    def cached(x: int):
        """Cache."""
        return x

    assert _call(Point, {"x": "1", "y": [2]}) == Point(1, [2])
    assert _call(Model, {"x": 1}) == Model(x=1)
    assert tool_from_function(Model).description == "Model(*, x: int) -> None"
    assert _call(Adder(), {"x": 1}) == 2
    assert tool_from_function(Adder()).description == "Add."
    assert _call(cached, {"x": 1}) == 1
    assert _call(functools.partial(cached, x=4), {}) == 4
    assert _call(len, {"obj": [1, 2]}) == 2


def test_wrappers_get_their_arguments_as_they_take_them() -> None:
    @functools.singledispatch
    def dispatched(x: int, y: int = 2):
        return x, y

    def plain(x: int, y: int = 2):
        return x, y

    @functools.wraps(plain)
    def by_name(**named):
        return plain(**named)

    assert _call(dispatched, {"x": 1}) == (1, 2)
    assert _call(by_name, {"x": 1}) == (1, 2)


def test_names_in_a_closure_are_resolved() -> None:
    class Local(BaseModel):
        a: int

    def outer() -> Any:
        def f(q: "Local", r: "late | None" = None):
            _ = Local, late
            return q.a

        with pytest.raises(UnresolvedAnnotationError, match=r"'late \| None'"):
            tool_from_function(f)
        late = int
        tool = tool_from_function(f)
        return call_function(tool, {"q": {"a": 3}})

    assert outer() == 3


# --- Context and variables ------------------------------------------------------------------


def test_context_comes_by_type_in_any_place_and_is_not_in_the_schema() -> None:
    def f(
        context: ToolContext,
        n: int,
        stop: AbortSignal = None,
        tell: OnUpdate | None = None,
        *,
        again: Annotated["ToolContext | None", "words"] = None,
        signal: str = "theirs",
    ):
        tell(AgentToolResult("on the way"))
        return context is again, stop is context.signal, tell is context.on_update, signal

    assert list(_properties(f)) == ["n", "signal"]
    assert _call(f, {"n": 1}) == (True, True, True, "theirs")


def test_a_context_can_be_handed_in() -> None:
    def f(context: ToolContext):
        return context

    context = ToolContext("call-1")
    assert call_function(tool_from_function(f), {}, context=context) is context


def test_a_variable_is_passed_by_its_name() -> None:
    sales = pd.DataFrame({"a": [1]})
    space = {"sales": sales, "n": 5, "_hidden": sales}

    def f(df: Var[pd.DataFrame], xs: list[Var[int]] = [], any: Var[Any] = None):  # noqa: B006
        return df is sales, xs, any

    tool = tool_from_function(f, namespace=lambda: space)
    assert tool.parameters["properties"]["df"] == {
        "type": "string",
        "description": "The name of a notebook variable.",
    }
    assert call_function(tool, {"df": "sales", "xs": ["n"], "any": "n"}) == (True, [5], 5)
    for arguments, words in (
        ({"df": "slaes"}, "no variable 'slaes'; variables of type DataFrame: sales"),
        ({"df": "n"}, "'n' is of type int, not DataFrame; variables of type DataFrame: sales"),
        ({"df": "sales", "any": "none"}, "there is no variable 'none'"),
    ):
        with pytest.raises(InvalidParametersError, match=words):
            call_function(tool, arguments)


# --- Arguments ------------------------------------------------------------------------------


def test_two_slips_are_mended_and_strings_are_left_alone() -> None:
    class M(BaseModel):
        name: str
        n: int = 1

    def one(m: M):
        return m

    def lists(xs: list[int] | None = None, s: str = "", u: str | list[int] = ""):
        return xs, s, u

    assert _call(one, {"name": "a"}) == M(name="a")
    assert _call(one, {"m": '{"name": "b"}'}) == M(name="b")
    assert _complaint(one, {"nme": 1}).endswith("- m.name: Field required")
    assert _complaint(one, {}) == "Missing required arguments: m"
    assert _call(lists, {"xs": "[1]", "s": "[1]", "u": "[1]"}) == ([1], "[1]", "[1]")
    for sent in ("5", "[", "[" * 100_000):
        assert "xs: Input should be a valid list" in _complaint(lists, {"xs": sent})
    assert "- xs.1: " in _complaint(lists, {"xs": '[1, "q"]'})


def test_a_complaint_says_in_each_line_what_to_mend() -> None:
    def f(a: int, b: Literal["x"] | list[int], c: int, d: dict[str, list[int]] = {}):  # noqa: B006
        return a, b, c, d

    assert _complaint(f, {"b": "z" * 200, "c": "3", "d": {"k": [1, "q"]}, "zz": 1}) == (
        "The arguments of f do not fit:\n"
        "- Missing required arguments: a\n"
        f"- b: Input should be 'x'; received \"{'z' * 79}…\n"
        f'- b: Input should be a valid list; received "{"z" * 79}…\n'
        "- d.k.1: Input should be a valid integer, unable to parse string as an integer; "
        'received "q"\n'
        "- zz: there is no such argument"
    )
    many = _complaint(f, {"a": 1, "b": "x", "c": 1} | {f"z{n}": 1 for n in range(14)})
    assert many.endswith("… and 4 more")


def test_arguments_must_be_an_object_and_a_validator_may_fail() -> None:
    class M(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            return {}[value]

    def f(m: M):
        return m

    assert _complaint(f, [1]) == "The arguments of f must be an object, not list."
    assert _complaint(f, {"m": {"x": 1}}) == "The arguments of f cannot be read: KeyError: 1"


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_whatever_a_model_sends_is_read_or_refused(arguments: dict[str, Any]) -> None:
    def f(a: int, b: list[int] = [], **more: str):  # noqa: B006
        return a, b, more

    tool = tool_from_function(f)
    with contextlib.suppress(InvalidParametersError):
        call_function(tool, arguments)


@pytest.mark.requirement("SP-023")
def test_arguments_are_checked_before_anybody_is_asked() -> None:
    def f(a: int, b: int):
        return a + b

    check = tool_from_function(f).validate_required_args
    assert check is not None
    assert check({"b": 1}) == "Missing required arguments: a"
    assert check({"a": 1, "b": 1}) is None


# --- Words ----------------------------------------------------------------------------------


def test_descriptions_come_from_the_best_source() -> None:
    def f(
        a: Annotated[int, "not this", Field(description="field")],
        b: Annotated[int, Doc("not this"), "words"],
        c: Annotated[int, Doc("doc")],
        d: int,
        e: int,  # comment
        g: int = 1,
    ):
        """Do it.

        Args:
            a: Not this.
            d: The docstring,
                on two lines.
            *e: Not a comment.

        Returns:
            Nothing.
        """

    described = {name: schema.get("description") for name, schema in _properties(f).items()}
    assert described == {
        "a": "field",
        "b": "words",
        "c": "doc",
        "d": "The docstring,\non two lines.",
        "e": "Not a comment.",
        "g": None,
    }
    assert tool_from_function(f).description == "Do it.\n\nReturns:\n    Nothing."


def test_comments_describe_parameters_that_nothing_else_does() -> None:
    async def f(
        a: int,  # how many
        *rest: int,  # the rest
    ):
        pass  # not this

    described = {name: schema.get("description") for name, schema in _properties(f).items()}
    assert described == {"a": "how many", "rest": "the rest"}


def test_numpy_and_sphinx_docstrings_are_read() -> None:
    def numpy(a, b):
        """Do it.

        Parameters
        ----------
        a, b : int
            Numbers.

        Notes
        -----
        More.
        """

    def sphinx(a, b):
        """Do it.

        :param a: The first,
            on two lines.
        :type a: int
        :param int b: The second.
        :returns: Nothing.
        """

    assert _properties(numpy)["b"]["description"] == "Numbers."
    assert tool_from_function(numpy).description == "Do it.\n\nNotes\n-----\nMore."
    assert _properties(sphinx)["a"]["description"] == "The first,\non two lines."
    assert tool_from_function(sphinx).description == "Do it.\n\n:returns: Nothing."


def test_without_the_parser_the_section_stays_in_the_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "griffe", None)

    def f(a):
        """Do it.

        Args:
            a: The first.
        """

    assert tool_from_function(f).description == "Do it.\n\nArgs:\n    a: The first."


def test_a_long_description_is_cut_and_none_becomes_the_signature() -> None:
    def f(a: int):
        return a

    assert tool_from_function(f).description == "f(a: int)"
    f.__doc__ = "word " * 5_000
    said = tool_from_function(f).description
    assert len(said) <= MAX_DESCRIPTION
    assert said.endswith(" … (shortened)")


@pytest.mark.parametrize(
    ("source", "described"),
    [
        ("def f(\n  a,  # first\n  b=1, c=2,  # both\n): return a", "first"),
        ("def f(\n  a,  # type: ignore\n): return a", None),
        ("f = lambda a: a  # not this", None),
        ("  )(", None),
        ("", None),
    ],
)
def test_comments_of_a_cell_are_read_where_they_are_clear(
    source: str, described: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace: dict[str, Any] = {}
    cell = source if source.startswith(("def", "f")) else "def f(a): return a"
    exec(compile(cell, "<cell 1>", "exec"), namespace)
    lines = source.splitlines(keepends=True) or [""]
    monkeypatch.setitem(linecache.cache, "<cell 1>", (1, None, lines, "<cell 1>"))
    properties = _properties(namespace["f"], name="f")
    assert properties["a"].get("description") == described
    assert not any("description" in properties[name] for name in properties if name != "a")


# --- TypedDict on Python 3.11 -----------------------------------------------------------------


class _Leaf(typing.TypedDict):
    """A leaf."""

    z: int | None


class _Branch(typing.TypedDict, total=False):
    a: typing.Required[int]
    b: "list[_Leaf]"
    c: Annotated[dict[str, _Leaf], "words"] | None


class _Tree(typing.TypedDict):
    kids: "list[_Tree]"


def test_typed_dicts_are_read_wherever_they_stand() -> None:
    def f(x: Optional[list[_Branch]], y: Literal["a"] = "a", z: _Leaf | int = 1):  # noqa: UP045
        return x, y, z

    tool = tool_from_function(f)
    branch = next(each for name, each in tool.parameters["$defs"].items() if "Branch" in name)
    assert branch["required"] == ["a"]
    sent = [{"a": 1, "b": [{"z": "2"}], "c": {"k": {"z": None}}}]
    read = [{"a": 1, "b": [{"z": 2}], "c": {"k": {"z": None}}}]
    assert call_function(tool, {"x": sent, "z": {"z": 1}}) == (read, "a", {"z": 1})


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic can read it there")
def test_a_typed_dict_that_contains_itself_is_refused_with_the_remedy() -> None:
    def f(x: _Tree):
        """Doc."""

    assert _refusal(f).hint.startswith("Take TypedDict from typing_extensions")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic can read it there")
def test_a_typed_dict_with_an_unknown_name_waits_for_it() -> None:
    class Later(typing.TypedDict):
        x: "Nowhere"  # noqa: F821

    def f(x: Later):
        """Doc."""

    with pytest.raises(UnresolvedAnnotationError, match="Nowhere"):
        tool_from_function(f)


# --- Running ----------------------------------------------------------------------------------


async def _execute(function: Any, arguments: dict[str, Any], **options: Any) -> Any:
    updates: list[str] = []
    signal = options.pop("signal", None) or AbortSignal()
    tool = tool_from_function(function, **options)
    result = await tool.execute("1", arguments, signal, lambda each: updates.append(each.text))
    return result, updates


async def test_plain_async_and_generating_functions_end_in_a_result() -> None:
    async def later(x: int):
        await asyncio.sleep(0)
        return x + 1

    def steps(n: int):
        yield from range(n)

    def returns(n: int):
        yield n
        return "end"

    async def async_steps(n: int):
        for each in range(n):
            yield each

    @functools.wraps(later)
    def wrapped(*args, **kwargs):
        return later(*args, **kwargs)

    @functools.wraps(later)
    def runs_it_itself(x: int):
        return x + 5

    for function, arguments, text, progress in (
        (lambda: "now", {}, "now", []),
        (runs_it_itself, {"x": 1}, "6", []),
        (later, {"x": 1}, "2", []),
        (wrapped, {"x": 1}, "2", []),
        (steps, {"n": 3}, "2", ["0", "1", "2"]),
        (steps, {"n": 0}, "(no output)", []),
        (returns, {"n": 3}, "end", ["3"]),
        (async_steps, {"n": 2}, "1", ["0", "1"]),
    ):
        result, updates = await _execute(function, arguments, name="f")
        assert (result.text, updates, result.is_error) == (text, progress, False)


@pytest.mark.requirement("SPEC-3.2")
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("v")]
)
async def test_whatever_a_function_raises_is_a_result(error: BaseException) -> None:
    def plain():
        raise error

    async def later():
        raise error

    for function in (plain, later):
        result, _ = await _execute(function, {})
        assert result.is_error
        assert type(error).__name__ in result.text
        assert result.details["code"] == "EXECUTION_FAILED"


async def test_a_cancelled_call_is_cancelled() -> None:
    async def forever():
        await asyncio.Event().wait()

    task = asyncio.create_task(_execute(forever, {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_takes_too_long_says_so() -> None:
    async def forever():
        await asyncio.Event().wait()

    late, _ = await _execute(forever, {}, timeout=0.01)
    assert late.is_error
    assert late.details["code"] == "EXECUTION_TIMEOUT"
    assert late.text == "forever has run for 0.01 s, longer than it may. It was stopped."


async def test_a_thread_that_is_given_up_is_told_and_listed_until_it_returns() -> None:
    log, go, heard = CallLog(), threading.Event(), []

    def stubborn(signal: AbortSignal):
        print("so far")
        signal.wait(5)
        heard.append(signal.reason)
        go.wait(5)

    execute = tool_from_function(stubborn, timeout=0.2, calls=log).execute
    late = await execute("c1", {}, AbortSignal(), _ignore)
    assert "It is still running" in late.text
    assert [(call.tool_name, call.given_up) for call in log.left] == [
        ("stubborn", "it took longer than 0.2 s")
    ]
    go.set()
    while log.left:
        await asyncio.sleep(0)
    assert heard == ["it took longer than 0.2 s"]


async def test_the_signal_of_a_call_with_a_timeout_fires_with_the_runs() -> None:
    signal = AbortSignal()

    async def wait(own: AbortSignal):
        signal.abort("enough")
        await own
        return own.reason

    assert (
        await tool_from_function(wait, timeout=5).execute("c", {}, signal, _ignore)
    ).text == "enough"


def _ignore(partial: Any) -> None:
    """Nobody listens."""


async def test_a_generator_stops_between_two_steps_when_the_run_is_stopped() -> None:
    signal = AbortSignal()
    ended: list[str] = []

    def steps():
        try:
            while True:
                signal.abort("enough")
                yield 1
        finally:
            ended.append("plain")

    async def async_steps():
        try:
            while True:
                yield 1
        finally:
            ended.append("async")

    for function in (steps, async_steps):
        result, _ = await _execute(function, {}, signal=signal)
        assert result.is_error
    assert ended == ["plain", "async"]


async def test_call_function_runs_async_functions_beside_a_running_loop() -> None:
    async def later(x: int):
        if x < 0:
            raise ValueError("negative")
        return x

    tool = tool_from_function(later)
    assert call_function(tool, {"x": 1}) == 1
    with pytest.raises(ValueError, match="negative"):
        call_function(tool, {"x": -1})


def test_call_function_takes_only_tools_made_from_functions() -> None:
    tool = AgentTool(name="t", description="T.", execute=lambda *_: AgentToolResult("x"))
    with pytest.raises(InvalidParametersError, match="was not made from a function"):
        call_function(tool, {})
