"""Files of other agents and their converted copies."""

from fnmatch import fnmatchcase

import pytest

from ctxagent.agent.features.other_files import COPIED
from ctxagent.agent.features.subagent_types import parse_type
from ctxagent.agent.permissions.rules import TOOL_NAMES


def copied(path: str, text: str) -> str:
    (kind,) = (kind for pattern, kind in COPIED if fnmatchcase(path, pattern))
    assert kind.convert is not None
    name = path.rpartition("/")[2].partition(".")[0]
    return kind.convert(name, text.encode()).decode()


def test_commands() -> None:
    text = 'description = "Fix: it"\nprompt = """\nFix {{ args }} by !{git log} and @{a.md}.\n"""'
    assert copied(".gemini/commands/git/fix.toml", text) == (
        '---\ndescription: "Fix: it"\n---\nFix $ARGUMENTS by !`git log` and @a.md.\n'
    )
    text = "---\ndescription: Tests\nagent: build\nmodel: x/y\n---\nTest $1."
    assert copied(".opencode/command/t.md", text) == ('---\ndescription: "Tests"\n---\nTest $1.\n')
    assert copied(".codex/prompts/t.md", text) == text


@pytest.mark.parametrize(
    ("head", "without"),
    [
        ("description: 'Looks: at it'", set[str]()),
        ("description: d\ntools:\n  bash: false\n  write: true", {"Bash", "Job"}),
        ("description: d\ntools:\n  edit: false\n  write: false", {"Edit", "Write"}),
    ],
)
def test_subagents_have_the_tools_that_are_not_switched_off(head: str, without: set[str]) -> None:
    text = copied(".opencode/agents/My_Helper.md", f"---\nmode: subagent\n{head}\n---\nHelp.")
    found = parse_type(text, "f", TOOL_NAMES)
    assert found.name == "my-helper"
    assert found.prompt == "Help."
    if without:
        assert {*TOOL_NAMES} - {*(found.tools or ())} == {*without, "Task", "Plan"}
    else:
        assert found.tools is None
