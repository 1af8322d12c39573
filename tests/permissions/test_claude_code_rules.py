"""Permission rules of another agent, and the equivalent ctxagent rules."""

import pytest

from ctxagent.agent.permissions.rules import convert_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Bash(npm run test:*)", "Bash(npm run test:*)"),
        ("Bash(git diff *)", "Bash(git diff *)"),
        ("Bash", "Bash"),
        ("Read(./docs/**)", "Read(docs/**)"),
        ("Read(//etc/hosts)", "Read(//etc/hosts)"),
        ("Read(~/.zshrc)", "Read(~/.zshrc)"),
        ("Grep(src/**)", "Read(src/**)"),
        ("Write(/src/**)", "Edit(src/**)"),
        ("NotebookEdit", "Edit"),
        ("Edit(*.md)", "Edit(**/*.md)"),
        ("Edit(notes)", "Edit(**/notes)"),
        ("WebFetch(domain:example.com)", "WebFetch(example.com)"),
        ("WebFetch(domain:*)", "WebFetch"),
        ("mcp__github__*", "mcp__github__*"),
        ("Agent(Explore)", "Task(explore)"),
        ("Task(scout)", "Task(scout)"),
        ("TodoWrite", "Todo"),
    ],
)
def test_a_rule_that_means_the_same(text: str, rule: str) -> None:
    assert convert_rule(text, allows=True, in_project=True) == rule


def test_a_denied_name_matches_in_every_folder() -> None:
    assert convert_rule("Read(.env)", allows=False, in_project=True) == "Read(.env)"
    assert convert_rule("Read(*.pem)", allows=False, in_project=True) == "Read(**/*.pem)"


@pytest.mark.parametrize(
    ("text", "in_project", "why"),
    [
        ("SlashCommand(/x)", True, "names no tool"),
        ("WebFetch(https://x)", True, "it names no domain"),
        ("Edit(!secret)", True, "patterns with !"),
        ("Edit(/src/**)", False, "folder of the user's settings"),
        ("Bash(", True, "it is not a rule"),
        ("Bash(:*)", True, "must follow plain words"),
    ],
)
def test_a_rule_that_has_no_match(text: str, in_project: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("(", r"\(")):
        convert_rule(text, allows=True, in_project=in_project)
