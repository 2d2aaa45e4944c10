"""Every row of the specifications has a test, and every mark is a row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.requirements import PENDING, ROWS, TRACE

TESTS = Path(__file__).resolve().parent


def marked() -> dict[str, list[str]]:
    """Row → the tests that carry its mark, read from the source, whatever part is run."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "requirement":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant)
                    found.setdefault(str(argument.value), []).append(f"{path.name}:{node.lineno}")
    return found


def test_every_row_has_a_test_or_a_reason() -> None:
    proven = marked()
    assert sorted(set(ROWS) - set(proven) - set(PENDING)) == []
    assert sorted(set(PENDING) & set(proven)) == []


def test_every_mark_is_a_row() -> None:
    assert sorted(set(marked()) - set(ROWS)) == []
    assert set(PENDING) <= set(ROWS)


@pytest.mark.requirement("SPEC-12.1", "SPEC-12.2")
def test_requirements_and_decisions_lead_to_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for rows in TRACE.values():
        assert set(rows) <= set(ROWS)
    with capsys.disabled():
        print(f"\n{len(ROWS) - len(PENDING)} of {len(ROWS)} rows proven, {len(PENDING)} pending:")
        for row, reason in PENDING.items():
            print(f"  {row}: {reason}")
