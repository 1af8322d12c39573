"""Rules that allow calls until the end of a turn."""

from pathlib import Path

from ctxagent.agent.loop.live_session import TurnRules
from ctxagent.agent.permissions.approval import Approval
from ctxagent.tools.bash import BashParams, BashTool


def verdict(approval: Approval, command: str) -> str:
    return approval.judge(BashTool(), BashParams(command=command)).action


def test_a_rule_allows_until_the_end_of_the_turn(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path)
    rules = TurnRules(approval)
    assert rules.allow(["Bash(touch:*)", "Bash(touch:*)"]) == []
    assert verdict(approval, "touch a") == "allow"
    rules.end()
    assert verdict(approval, "touch a") == "ask"
    rules.end()


def test_the_end_keeps_the_rules_of_the_user(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, allow=["Bash(make:*)"])
    approval.allow_for_session("Bash(touch:*)")
    rules = TurnRules(approval)
    rules.allow(["Bash(make:*)", "Bash(touch:*)", "Bash(mkdir:*)"])
    rules.end()
    found = [verdict(approval, command) for command in ("make", "touch a", "mkdir a")]
    assert found == ["allow", "allow", "ask"]


def test_a_deny_rule_counts_more(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, deny=["Bash(touch:*)"])
    TurnRules(approval).allow(["Bash"])
    assert verdict(approval, "touch a") == "deny"
    assert verdict(approval, "mkdir a") == "allow"


def test_an_invalid_rule_is_reported_and_the_others_count(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path)
    (problem,) = TurnRules(approval).allow(["Bsh(touch:*)", "Bash(touch:*)"])
    assert "Bsh" in problem
    assert verdict(approval, "touch a") == "allow"
