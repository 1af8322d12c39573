"""The objections to a command are all collected, whichever of them decides."""

from pathlib import Path

import pytest

from ctxagent.agent.permissions.command_objections import Collected, CommandObjections
from ctxagent.agent.permissions.path_judge import PathJudge
from ctxagent.agent.permissions.paths import WorkFolders
from ctxagent.agent.permissions.rule_set import RuleSet
from ctxagent.agent.permissions.shell.parser import parse
from ctxagent.agent.permissions.shell.reach import Programs

RULES = {"deny": ["Bash(rm:*)", "Read(.env)"], "ask": ["Bash(git push:*)", "Read(kept)"]}


def command(project: Path, text: str, *, kernel: bool = False) -> CommandObjections:
    folders = WorkFolders(project)
    rules = RuleSet(folders, {**RULES, "allow": ["Bash(cp:*)"]})  # type: ignore[dict-item]
    programs = Programs("/usr/bin:/bin", folders)
    paths = PathJudge(rules, "ask", folders, (), (), programs, None)
    bases = [str(project)]
    return CommandObjections(parse(text), bases, rules, paths, folders, programs, kernel)


def collect(project: Path, text: str, *, kernel: bool = False) -> list[Collected]:
    for name in (".env", "kept"):
        (project / name).touch()
    return command(project, text, kernel=kernel).collect()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("ls", set()),
        ("touch x", {"change"}),
        ("rm $x > /etc/y", {"denied", "change", "outside", "edit"}),
        ("cat .env kept ../x", {"denied", "ask-rule", "outside"}),
        ("cp -r . ../x", {"denied-files", "asked-files", "change"}),
        ("git push; git $x", {"ask-rule", "rule-may-match", "change"}),
        ("grep -R x .", {"denied-files", "asked-files", "links"}),
        ("x() { touch y; }; x", {"unclear-rules", "change"}),
        ("touch x > .agentrc", {"change", "edit", "protected"}),
    ],
)  # fmt: skip
def test_no_objection_hides_another(tmp_path: Path, text: str, kinds: set[str]) -> None:
    found = collect(tmp_path, text)
    assert kinds <= {objection.kind for each in found for objection in each.objections}
    assert bool(kinds) is any(each.objections for each in found)


def test_the_rule_that_covers_a_part(tmp_path: Path) -> None:
    (found,) = collect(tmp_path, "cp x y")
    assert [str(each.covered_by) for each in found.objections] == ["Bash(cp:*)"]
    (found,) = collect(tmp_path, "touch x")
    assert [each.covered_by for each in found.objections] == [None]


def test_names_that_a_command_passes_on(tmp_path: Path) -> None:
    text = "find . -name f | xargs wc -l"
    assert all(each.read_only for each in collect(tmp_path, text, kernel=True))
    mixed = collect(tmp_path, f"{text}; touch x", kernel=True)
    assert "names" in [objection.kind for each in mixed for objection in each.objections]


@pytest.mark.parametrize(
    ("text", "is_plain"), [("git add f", True), ("git add f > x", False), ("ls", False)]
)
def test_plain_git(tmp_path: Path, text: str, is_plain: bool) -> None:
    assert command(tmp_path, text).is_plain_git() is is_plain
