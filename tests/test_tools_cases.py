"""The conformance cases of function → tool, and siblings of each kind."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from yiem_nb.errors import ErrorCode, InvalidParametersError
from yiem_nb.tools import call_function, tool_from_function

_FILE = Path(__file__).parent / "conformance" / "tool-cases.json"
_TABLE = json.loads(_FILE.read_text(encoding="utf-8"))
_CASES = [pytest.param(case, id=case["id"]) for case in _TABLE["cases"]]


def _run(case: dict[str, Any]) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(_TABLE["prelude"], namespace)
    exec(compile(case["cell"], "<cell>", "exec", dont_inherit=True), namespace)
    return namespace["f"]


def _essence(schema: Any, root: dict[str, Any]) -> Any:
    """Resolve references; leave out words, and defaults, which ours may have more of."""
    if isinstance(schema, list):
        return [_essence(each, root) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rpartition("/")[2]]
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return _essence(target | others, root)
    return {
        key: {name: _essence(each, root) for name, each in value.items()}
        if key == "properties"
        else _essence(value, root)
        for key, value in schema.items()
        if key not in ("title", "description", "$defs")
    }


def _without_more_defaults(ours: Any, theirs: Any) -> Any:
    """Drop the defaults, and the pattern and type of the whole, that a case does not list."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [_without_more_defaults(*pair) for pair in zip(ours, theirs, strict=True)]
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours
    return {
        key: _without_more_defaults(value, theirs.get(key))
        for key, value in ours.items()
        if key in theirs or key not in ("default", "pattern", "type", "format")
    }


@pytest.mark.parametrize("case", _CASES)
def test_a_case_registers_describes_and_calls_as_listed(case: dict[str, Any]) -> None:
    if sys.version_info < tuple(map(int, case.get("min_python", "3.11").split("."))):
        pytest.skip(f"needs Python {case['min_python']}")
    function = _run(case)
    name = None
    if case["register"] != "accept":
        with pytest.raises(InvalidParametersError) as refused:
            tool_from_function(function)
        assert refused.value.code is ErrorCode.INVALID_PARAMETERS
        assert refused.value.hint
        if case["register"] == "refuse":
            return
        name = "f"
    tool = tool_from_function(function, name=name)
    ours = _essence(tool.parameters, tool.parameters)
    theirs = _essence(case["schema"], case["schema"])
    assert _without_more_defaults(ours, theirs) == theirs
    for parameter, words in case.get("description_of", {}).items():
        assert tool.parameters["properties"][parameter]["description"].startswith(words)
    if case["call"] == "reject":
        with pytest.raises(InvalidParametersError) as rejected:
            call_function(tool, case["args"])
        assert any(argument in rejected.value.message for argument in case["args"])
    elif case["call"] == "stream":
        assert call_function(tool, case["args"]) == 1
    elif case["call"] == "any":
        call_function(tool, case["args"])
    else:
        assert call_function(tool, case["args"]) == case["call"]
