"""The rules of a session: matches, near matches, adding and removing."""

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions.paths import WorkFolders
from ctxagent.agent.permissions.rule_set import RuleSet
from ctxagent.agent.permissions.shell.command_table import plainly_inside
from ctxagent.agent.permissions.shell.parser import parse


def rules(**given: list[str]) -> RuleSet:
    return RuleSet(WorkFolders("/project"), given)  # type: ignore[arg-type]


def test_the_first_rule_that_matches_counts() -> None:
    found = rules(allow=["Bash(git log:*)", "Bash(git:*)"], session=["Bash(ls)"])
    part = parse("git log -1").parts[0]
    assert str(found.matching("Bash", part, "allow", "session")) == "Bash(git log:*)"
    assert found.matching("Bash", part, "session") is None
    assert found.matching("Read", part, "allow") is None


def test_a_rule_that_nearly_matches_names_the_word() -> None:
    found = rules(allow=["Bash(ls:*)", "Bash(git log:*)"], session=["Bash(git:*)"])
    near = found.nearly_matching(parse("git log --output=x").parts[0], plainly_inside)
    assert near is not None
    assert (str(near[0]), near[1]) == ("Bash(git log:*)", "--output=x")
    assert found.nearly_matching(parse("make").parts[0], plainly_inside) is None


def test_rules_come_and_go() -> None:
    found = rules(allow=["Bash(ls)"])
    wider = found.with_rule("Bash(pwd)")
    assert wider.texts()["session"] == ["Bash(pwd)"]
    assert found.texts()["session"] == []
    found.remove_allowing("Bash(ls)")
    assert found.texts()["allow"] == []
    with pytest.raises(UsageError, match="names no tool"):
        found.add("deny", "Bsh(ls)")


def test_paths_that_rules_mean() -> None:
    found = rules(deny=["Read(.env)"], ask=["Edit(src/**)"], allow=["Read"])
    assert str(found.matching_path("Read", ["/project/a/.env"], "deny")) == "Read(.env)"
    assert str(found.matching_path("Write", ["/project/src/a"], "ask")) == "Edit(src/**)"
    assert str(found.matching_path("Grep", ["/x"], "allow")) == "Read"
    assert found.matching_path("Read", ["/project/env"], "deny") is None
    assert found.any_for("Write", "ask")
    assert not found.any_for("Write", "deny")
