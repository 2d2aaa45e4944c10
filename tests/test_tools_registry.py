"""The functions a model may call, as they are now."""

from typing import Any

import pytest
from yiem_nb.errors import InvalidParametersError
from yiem_nb.tools import ToolChange, ToolRegistry, call_function, registry, tool


def _cell(namespace: dict[str, Any], source: str) -> None:
    """Run a cell of a notebook whose registry is `namespace["registry"]`."""
    exec(compile(source, "<cell>", "exec", dont_inherit=True), namespace)


def _notebook() -> tuple[dict[str, Any], ToolRegistry]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    known = ToolRegistry(namespace=lambda: namespace)

    def register(function: Any = None, **options: Any) -> Any:
        def add(target: Any) -> Any:
            known.add(target, **options)
            return target

        return add if function is None else add(function)

    namespace["tool"] = register
    return namespace, known


def test_a_registered_function_is_a_tool_until_it_is_deleted() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return x")
    assert list(known.active()) == ["f"]
    assert known.changes() == [ToolChange("added", "f")]
    _cell(namespace, "del f")
    assert known.active() == {}
    assert known.changes() == [ToolChange("withdrawn", "f", "it is defined no more")]
    assert known.changes() == []


def test_running_the_cell_again_replaces_the_function_silently() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 1")
    first = known.active()["f"]
    known.changes()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 2")
    second = known.active()["f"]
    assert (call_function(first, {"x": 0}), call_function(second, {"x": 0})) == (1, 2)
    assert known.changes() == []


def test_a_changed_signature_is_a_changed_tool() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 1")
    known.active()
    known.changes()
    _cell(namespace, "def f(x: int, y: str):\n    'Doc.'\n    return 2")
    assert list(known.active()["f"].parameters["properties"]) == ["x", "y"]
    assert known.changes() == [ToolChange("changed", "f")]


def test_an_unchanged_function_keeps_its_tool() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 1")
    assert known.active()["f"] is known.active()["f"]


def test_code_that_autoreload_put_into_the_same_function_is_seen() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 1")
    known.active()
    other: dict[str, Any] = {}
    exec("def f(x: str, *, y=1):\n    'Doc.'\n    return 2", other)
    namespace["f"].__code__ = other["f"].__code__
    namespace["f"].__annotations__ = other["f"].__annotations__
    namespace["f"].__kwdefaults__ = other["f"].__kwdefaults__
    properties = known.active()["f"].parameters["properties"]
    assert properties == {"x": {"type": "string"}, "y": {"default": 1}}


def test_a_class_named_in_quotes_is_read_again_when_its_cell_was_run_again() -> None:
    namespace, known = _notebook()
    _cell(namespace, "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int")
    _cell(namespace, "@tool\ndef f(p: 'P'):\n    'Doc.'\n    return type(p)")
    known.active()
    _cell(namespace, "@dataclass\nclass P:\n    y: int")
    assert call_function(known.active()["f"], {"p": {"y": 1}}) is namespace["P"]


def test_a_function_whose_class_comes_later_joins_when_it_has_come() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(p: 'Later'):\n    'Doc.'\n    return p.x")
    assert known.active() == {}
    added, withdrawn = known.changes()
    assert (added.kind, withdrawn.kind) == ("added", "withdrawn")
    assert "'Later'" in withdrawn.reason
    assert known.active() == {}
    assert known.changes() == []
    _cell(namespace, "from dataclasses import dataclass\n@dataclass\nclass Later:\n    x: int")
    assert call_function(known.active()["f"], {"p": {"x": 3}}) == 3


def test_a_redefinition_that_cannot_be_a_tool_is_withdrawn_and_comes_back_mended() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n    return 1")
    _cell(namespace, "def f(x: object.__new__(object)):\n    'Doc.'\n    return 1")
    assert known.active() == {}
    assert known.changes()[-1].kind == "withdrawn"
    _cell(namespace, "def f(x: int):\n    'Doc.'\n    return 1")
    assert list(known.active()) == ["f"]


def test_one_name_is_one_function() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'\n@tool(name='g')\ndef h(): 'Doc.'")
    with pytest.raises(InvalidParametersError, match="There is a tool 'g' already: h of __main__"):
        _cell(namespace, "@tool(name='g')\ndef other(): 'Doc.'")
    _cell(namespace, "del h\n@tool(name='g')\ndef other(): 'Doc.'")
    assert list(known.active()) == ["f", "g"]


def test_a_method_follows_its_object() -> None:
    namespace, known = _notebook()
    source = (
        "class K:\n    n = {}\n    def m(self, x: int):\n        'Doc.'\n        return x + self.n"
    )
    _cell(namespace, source.format(1))
    _cell(namespace, "k = K()\ntool(k.m)")
    _cell(namespace, source.format(2))
    _cell(namespace, "k = K()")
    assert call_function(known.active()["m"], {"x": 1}) == 3
    _cell(namespace, "del k")
    assert known.active() == {}


def test_objects_without_a_name_in_the_notebook_are_held() -> None:
    namespace, known = _notebook()
    _cell(
        namespace,
        "import functools\n"
        "def make():\n    def inner(x: int):\n        'Doc.'\n        return x\n    return inner\n"
        "class K:\n    def m(self):\n        'Doc.'\n"
        "tool(make()); tool(K().m)\n"
        "def _g(a: int, b: int):\n    'G.'\n    return a + b\n"
        "part = functools.partial(_g, 1); tool(part, name='part')\n"
        "tool(functools.partial(_g, 2), name='held')",
    )
    assert list(known.active()) == ["inner", "m", "part", "held"]
    _cell(namespace, "part = functools.partial(_g, 10)")
    assert call_function(known.active()["part"], {"b": 1}) == 11
    assert call_function(known.active()["held"], {"b": 1}) == 3


def test_a_removed_tool_is_gone_and_said_once() -> None:
    namespace, known = _notebook()
    _cell(namespace, "@tool\ndef f(x: int):\n    'Doc.'")
    known.changes()
    known.remove("f")
    known.remove("f")
    assert known.active() == {}
    assert known.changes() == [ToolChange("withdrawn", "f", "it was removed")]


def test_a_library_function_with_an_unknown_annotation_is_refused_at_once() -> None:
    def f(x: "Nowhere"):  # noqa: F821
        """Doc."""

    with pytest.raises(InvalidParametersError, match="Nowhere"):
        ToolRegistry().add(f)


def test_the_decorator_leaves_the_function_as_it_is() -> None:
    @tool
    def plain(x: int) -> int:
        """Doc."""
        return x

    @tool(name="with_options", description="Said.", ask=True, sequential=True)
    def other(x: int) -> int:
        return x

    try:
        assert (plain(1), other(2)) == (1, 2)
        made = registry.active()["with_options"]
        assert (made.description, made.asks, made.execution_mode) == ("Said.", True, "sequential")
    finally:
        registry.remove("plain")
        registry.remove("with_options")
