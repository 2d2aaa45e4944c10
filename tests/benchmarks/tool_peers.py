"""The cases of function → tool, given to another library; run by an interpreter that has it.

    python tests/benchmarks/tool_peers.py yiem_nb|pydantic-ai|openai-agents|chatlas

Prints, as one JSON object, which cases it registers as listed, describes as listed, and calls as listed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = json.loads(
    (Path(__file__).parents[1] / "conformance" / "tool-cases.json").read_text(encoding="utf-8")
)
#: What a library makes of a function: its schema, and how it calls it with a model's arguments.
Made = tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]


def of_yiem_nb(function: Any, name: str | None) -> Made:
    from yiem_nb.tools import call_function, tool_from_function

    tool = tool_from_function(function, name=name)
    return tool.parameters, lambda arguments: call_function(tool, arguments)


def of_pydantic_ai(function: Any, name: str | None) -> Made:
    from pydantic_ai import Tool

    tool = Tool(function, takes_ctx=False, name=name)
    made = tool.function_schema

    def call(arguments: dict[str, Any]) -> Any:
        checked = made.validator.validate_python(arguments)
        return asyncio.run(made.call(checked, None))

    return made.json_schema, call


def of_openai_agents(function: Any, name: str | None) -> Made:
    from agents import function_tool
    from agents.tool_context import ToolContext

    tool = function_tool(
        function, name_override=name, strict_mode=False, failure_error_function=None
    )

    def call(arguments: dict[str, Any]) -> Any:
        text = json.dumps(arguments)
        context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments=text)
        return asyncio.run(tool.on_invoke_tool(context, text))

    return tool.params_json_schema, call


def of_chatlas(function: Any, name: str | None) -> Made:
    from chatlas._tools import Tool

    tool = Tool.from_func(function, name=name)

    def call(arguments: dict[str, Any]) -> Any:
        value = function(**arguments)
        return asyncio.run(value) if inspect.iscoroutine(value) else value

    return tool.schema["function"]["parameters"], call


LIBRARIES = {
    "yiem_nb": of_yiem_nb,
    "pydantic-ai": of_pydantic_ai,
    "openai-agents": of_openai_agents,
    "chatlas": of_chatlas,
}


def judged(case: dict[str, Any], make: Callable[..., Made]) -> dict[str, bool]:
    """Say what of a case comes out as listed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    # Some libraries look annotations up in the module, as a notebook's would be.
    vars(sys.modules["__main__"]).update(namespace)
    exec(TABLE["prelude"], vars(sys.modules["__main__"]))
    exec(compile(case["cell"], "<cell>", "exec", dont_inherit=True), vars(sys.modules["__main__"]))
    function = vars(sys.modules["__main__"])["f"]
    listed = case["register"]
    try:
        schema, call = make(function, None)
    except Exception:
        if listed == "accept":
            return {"register": False, "schema": False, "call": False}
        if listed == "refuse":
            return {"register": True, "schema": True, "call": True}
        try:
            schema, call = make(function, "f")
        except Exception:
            return {"register": False, "schema": False, "call": False}
    else:
        if listed != "accept":
            return {"register": False, "schema": False, "call": False}
    return {"register": True, "schema": described(case, schema), "call": called(case, call)}


def described(case: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether the names and what is required are as listed; the finer points are not judged here."""
    wanted = case["schema"]
    names = set(schema.get("properties", {})) == set(wanted.get("properties", {}))
    return names and set(schema.get("required", ())) == set(wanted.get("required", ()))


def called(case: dict[str, Any], call: Callable[[dict[str, Any]], Any]) -> bool:
    """Whether the call gives what is listed."""
    try:
        value = call(json.loads(json.dumps(case["args"])))
    except BaseException:
        return bool(case["call"] == "reject")
    if case["call"] == "any":
        return True
    return bool(value == (1 if case["call"] == "stream" else case["call"]))


def main() -> None:
    """Judge one library."""
    make = LIBRARIES[sys.argv[1]]
    result = {}
    for case in TABLE["cases"]:
        wants = tuple(map(int, case.get("min_python", "3.11").split(".")))
        if sys.version_info >= wants:
            result[case["id"]] = judged(case, make)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
