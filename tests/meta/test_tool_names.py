"""Texts for the model have no tool's name as a plain word, since any tool may be missing.

`tools/offered.py` chooses the words: a name stands in braces there. This test reads the literals of
the rooms that write to the model, so that a new text cannot bypass it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.permissions.rules import TOOL_NAMES

ROOT = Path(__file__).parents[2]
# The other rooms write to the user alone: rules, settings, screens, the command line.
ROOMS = (
    "tools", "agent/compaction", "agent/context", "agent/features", "agent/loop", "agent/session",
    "agent/prompts",
)  # fmt: skip
NAME = re.compile(rf"(?<![\w`{{./-])(?:{'|'.join(TOOL_NAMES)})(?![\w-])")
IN_BRACES = re.compile(r"\{[A-Z][^{}]*\}")
# Words in literals that are no advice to use a tool, by file.
EXCEPTIONS = {
    "agent/compaction/sections.py": {"Files Read": "the name of a section of a summary"},
    "agent/compaction/state_block.py": {"Todo list: ": "a list of the record, not the tool"},
    "agent/features/subagent_types.py": {"Read the file": "a warning for the user"},
    "agent/features/instruction_places.py": {"Read it, then accept": "a warning for the user"},
    "agent/features/instructions.py": {"told to Read it": "a warning for the user"},
    "agent/features/skills.py": {"Recall #": "a warning for the user"},
    "agent/loop/call_arguments.py": {"Write the call again": "a word, about any tool"},
    "agent/session/checkpoints.py": {"named by Edit, Write or Bash": "a warning for the user"},
    "tools/bash.py": {"Network is unreachable": "an error of a program"},
}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each literal with several words, except docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_text = " " in node.value.strip() or node.value != node.value.strip()
            if is_text and id(node) not in docstrings:
                yield node.lineno, node.value


def plain_names(text: str) -> list[str]:
    """Return the tools that a text names outside of braces."""
    return NAME.findall(IN_BRACES.sub("", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("List it with Glob, or with ls in Bash.", ["Glob", "Bash"]),
        (" {Glob} **/{file} searches for it", []),
        ("prefer {Read, Grep and Edit}; else Write", ["Write"]),
        ("Already read", []),
    ],
)
def test_names_outside_of_braces_are_found(text: str, expected: list[str]) -> None:
    assert plain_names(text) == expected


def test_no_text_for_the_model_names_a_tool_as_a_plain_word() -> None:
    found, used = list[str](), set[tuple[str, str]]()
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        for line, text in literals(path):
            excused = [each for each in EXCEPTIONS.get(name, ()) if each in text]
            used |= {(name, each) for each in excused}
            if not excused and plain_names(text):
                found.append(f"{name}:{line}: {text!r}")
    assert not found, "name the tool in braces, and pass the text through `Offered.say`"
    assert used == {(name, each) for name, words in EXCEPTIONS.items() for each in words}


def test_no_prompt_names_a_tool_as_a_plain_word() -> None:
    """Except those of commands: the user sends them, and their verbs are the user's words."""
    folder = ROOT / "agent/prompts"
    of_user = {folder / "init.md"}
    for path in {*folder.glob("*.md")} - of_user:
        text = path.read_text("utf-8").replace("## Files Read", "")
        assert plain_names(text) == [], path.name
