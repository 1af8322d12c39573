"""Findings in the settings of other agents, and the planned copies."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.compat.other_settings import OtherSettings, other_settings


class Desk:
    """A project and a home with settings of other agents."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "home" / "work"
        self.own = self.home / ".config" / "ctxagent"
        (self.project / ".git").mkdir(parents=True)

    def put(self, name: str, text: str, *, home: bool = False) -> Path:
        path = (self.home if home else self.project) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def look(self, cwd: Path | None = None) -> OtherSettings:
        return other_settings(
            cwd or self.project, config_home=self.own, home=self.home,
            user_file=self.own / "agentrc", trust_dir=self.home / "state",
        )  # fmt: skip

    def lines(self) -> list[str]:
        return [f"{each.status} {each.source}: {each.what}" for each in self.look().findings]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".claude/settings.json", "{"),
        (".codex/config.toml", "= 1"),
        (".gemini/settings.json", "[]"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(desk: Desk, name: str, text: str) -> None:
    desk.put(name, text)
    (line,) = desk.lines()
    assert line.startswith(f"not {name}: it cannot be read: ")


@pytest.mark.parametrize(
    ("name", "given", "lines"),
    [
        (
            ".claude/settings.json",
            {"permissions": ["x"], "model": "x-1", "hooks": {"Stop": 5}},
            [
                "copy .claude/settings.json: model.id = x-1",
                "not .claude/settings.json: permissions: it is not an object",
            ],
        ),
        (
            ".claude/settings.json",
            {"permissions": {"allow": 5, "additionalDirectories": {}, "odd": 1}},
            [
                "not .claude/settings.json: permissions.allow: it is not a list",
                "not .claude/settings.json: settings without effect here: permissions.odd",
            ],
        ),
        (
            "opencode.json",
            {"mcp": ["x"], "model": "mine/x-1"},
            [
                "not opencode.json: MCP servers: it is not an object",
                "not opencode.json: the model mine/x-1 is not known here: choose one with /model",
            ],
        ),
    ],
)
def test_a_wrong_part_of_a_file_costs_no_other_part(
    desk: Desk, name: str, given: dict[str, Any], lines: list[str]
) -> None:
    desk.put(name, json.dumps(given))
    assert set(lines) <= set(desk.lines())


def test_items_that_cannot_be_copied_are_listed(desk: Desk) -> None:
    desk.put(".gemini/settings.json", '{"mcpServers": {"a": 1, "b": {"command": ""}}}')
    desk.put(".codex/config.toml", 'model = "x-1"\nmodel_provider = "mine"\n')
    desk.put(".opencode/agent/lead.md", "---\nmode: primary\ndescription: d\n---\nLead.")
    desk.put("GEMINI.md", "Be good.")
    assert sorted(desk.lines()) == [
        "not .codex/config.toml: the model mine/x-1 is not known here: choose one with /model",
        "not .gemini/settings.json: MCP server a: it is not an object",
        'not .gemini/settings.json: MCP server b: it has neither "command" nor "url"',
        "not .opencode/agent/lead.md: subagent: its mode is primary, which subagents do not have",
        "not GEMINI.md: not read: AGENTS.md can import it with a line @GEMINI.md",
    ]


def test_hooks_and_rules_of_the_user_are_added_to_what_is_there(desk: Desk) -> None:
    stop, start = ({"hooks": [{"type": "command", "command": name}]} for name in ("a", "b"))
    desk.put(".config/ctxagent/hooks.json", json.dumps({"hooks": {"Stop": [stop]}}), home=True)
    desk.put(".config/ctxagent/agentrc", '[permissions]\nallow = ["Grep"] # mine\n', home=True)
    given = {
        "hooks": {"Stop": [stop], "SessionStart": [start]},
        "permissions": {"allow": ["Grep", "Bash(ls:*)"], "additionalDirectories": ["~/notes"]},
    }
    desk.put(".claude/settings.json", json.dumps(given), home=True)
    found = desk.look()
    hooks = json.loads(found.after[desk.own / "hooks.json"])
    assert hooks == {"hooks": {"Stop": [stop], "SessionStart": [start]}}
    settings = found.after[desk.own / "agentrc"].decode()
    assert settings == (
        '[permissions]\nallow = ["Grep", "Bash(ls:*)"] # mine\ndirectories = ["~/notes"]\n'
    )
    assert [*found.after] == [desk.own / "agentrc", desk.own / "hooks.json"]


def test_the_home_is_no_project(desk: Desk) -> None:
    desk.put(".claude/settings.json", '{"permissions": {"allow": ["Grep"]}}', home=True)
    assert [*desk.look(desk.home).after] == [desk.own / "agentrc"]


def test_the_folders_above_count_to_the_root_of_the_project(desk: Desk) -> None:
    desk.put(".codex/prompts/one.md", "One.")
    desk.put("sub/.codex/prompts/two.md", "Two.")
    desk.put("sub/.claude/settings.json", '{"permissions": {"ask": ["Bash(x:*)"]}}')
    found = desk.look(desk.project / "sub")
    assert [str(path.relative_to(desk.project)) for path in found.after] == [
        "sub/.ctxagent/commands/two.md",
        ".agentrc",
        ".ctxagent/commands/one.md",
    ]
