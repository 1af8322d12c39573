"""Verdicts on paths by rules, mode and folders of a session."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.permissions.path_judge import PathJudge
from ctxagent.agent.permissions.paths import WorkFolders
from ctxagent.agent.permissions.rule_set import RuleSet
from ctxagent.agent.permissions.shell.reach import Programs


def judge(project: Path, mode: Any = "ask", **rules: list[str]) -> PathJudge:
    folders = WorkFolders(project)
    return PathJudge(
        RuleSet(folders, rules),  # type: ignore[arg-type]
        mode,
        folders,
        (f"{project.parent}/notes",),
        (f"{project}/own",),
        Programs("/usr/bin:/bin", folders),
        None,
    )


@pytest.mark.parametrize(
    ("mode", "path", "edits", "action"),
    [
        ("ask", "a", False, "allow"), ("ask", "a", True, "ask"), ("ask", "../a", False, "ask"),
        ("ask", "../notes/a", False, "allow"), ("accept-edits", "a", True, "allow"),
        ("accept-edits", ".git/a", True, "ask"), ("accept-edits", "own", True, "ask"),
        ("accept-edits", "../a", True, "ask"), ("plan", "a", True, "deny"),
        ("plan", "a", False, "allow"), ("accept-edits", "link/a", True, "ask"),
        ("ask", "link/a", False, "ask"), ("ask", "a\0", False, "ask"),
    ],
)  # fmt: skip
def test_modes(tmp_path: Path, mode: str, path: str, edits: bool, action: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to(tmp_path)
    found = judge(project, mode)
    assert found.judge("Write" if edits else "Read", path, edits=edits).action == action


def test_rules_come_before_the_mode(tmp_path: Path) -> None:
    found = judge(tmp_path, deny=["Read(.env)"], ask=["Read(b)"], allow=["Edit(src/**)"])
    assert found.judge("Read", "src/.env", edits=False).action == "deny"
    assert found.judge("Read", "b", edits=False).action == "ask"
    assert found.judge("Edit", "src/a", edits=True).rule == "Edit(src/**)"
    assert found.judge("Edit", "a", edits=True).rule == "Edit(a)"
    assert found.judge("Edit", "a", edits=True, base=f"{tmp_path}/src").action == "allow"


def test_where_a_path_leads_is_part_of_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    found = judge(tmp_path).judge("Read", "link", edits=False)
    assert found.path == str(tmp_path.resolve() / "real")
