"""Tests wait for a screen: a look at one moment sees what a slow machine has not drawn yet."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
LOOK = "assert 'done' in terminal.text()"


def looks(source: str) -> list[int]:
    """Return the lines that assert a text on the screen of this moment; `see` would wait."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assert)
        and isinstance(test := node.test, ast.Compare)
        and isinstance(test.ops[0], ast.In)
        and ast.unparse(test.comparators[0]).endswith(".text()")
    ]


def test_no_test_expects_a_text_without_waiting_for_it() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("test_*.py")
        for line in looks(path.read_text())
    ]
    assert not found


def test_a_look_is_found() -> None:
    assert looks(LOOK) == [1]
    assert not looks("assert 'done' not in terminal.text()")
