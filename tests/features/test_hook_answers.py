"""Answers of hooks: exit code, text and JSON."""

import json
from typing import Any

import pytest

from ctxagent.agent.features.hook_runs import HookOutput
from ctxagent.agent.features.published_hooks import HookAnswer, read_answer


def answer(event: str, said: Any, code: int = 0, stderr: str = "") -> HookAnswer:
    text = said if isinstance(said, str) else json.dumps(said)
    return read_answer(event, HookOutput(code, text, stderr))


def own(**fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": fields}


@pytest.mark.parametrize(
    ("event", "said", "wanted"),
    [
        ("SessionStart", " words \n", HookAnswer(context="words")),
        ("UserPromptSubmit", "words", HookAnswer(context="words")),
        ("UserPromptSubmit", '{"metrics": {}}', HookAnswer()),
        ("UserPromptSubmit", "{broken", HookAnswer(context="{broken")),
        ("SessionStart", "{}", HookAnswer()),
        ("Stop", "words", HookAnswer()),
        ("SessionStart", own(additionalContext="a"), HookAnswer(context="a")),
        ("PreToolUse", own(permissionDecision="ask", permissionDecisionReason="why"),
         HookAnswer(decision="ask", reason="why")),
        ("PreToolUse", own(permissionDecision="allow", updatedInput={"a": 1}),
         HookAnswer(decision="allow", arguments={"a": 1})),
        ("PreToolUse", own(permissionDecision="defer"), HookAnswer()),
        ("PreToolUse", {"decision": "approve", "reason": "r"}, HookAnswer("", "allow", "r")),
        ("PermissionRequest", own(decision={"behavior": "deny", "message": "no"}),
         HookAnswer(decision="deny", reason="no")),
        ("PermissionRequest", own(decision={"behavior": "allow", "updatedInput": {"a": 1}}),
         HookAnswer(decision="allow", arguments={"a": 1})),
        ("Stop", {"decision": "block", "reason": "more"}, HookAnswer("", "deny", "more")),
        ("Stop", {"continue": False, "stopReason": "enough"}, HookAnswer(stop="enough")),
        ("Stop", {"continue": False}, HookAnswer(stop="")),
        ("Stop", {"systemMessage": "hello"}, HookAnswer(message="hello")),
        ("PostToolUse", own(updatedToolOutput="x"), HookAnswer(unsupported=("updatedToolOutput",))),
        ("Stop", {"decision": ["block"], "reason": 3, "hookSpecificOutput": []}, HookAnswer()),
        ("PreToolUse", own(updatedInput="x", additionalContext=3, decision="x"), HookAnswer()),
    ],
)  # fmt: skip
def test_what_is_said(event: str, said: Any, wanted: HookAnswer) -> None:
    assert answer(event, said) == wanted


def test_exit_code_2_denies_with_the_text_on_stderr() -> None:
    assert answer("Stop", "{}", 2, "why \n") == HookAnswer(decision="deny", reason="why")
    assert answer("Stop", "why", 2) == HookAnswer(decision="deny", reason="why")


def test_a_problem_says_nothing_else() -> None:
    run = HookOutput(1, '{"decision": "block"}', problem="failed (exit 1): x")
    assert read_answer("Stop", run) == HookAnswer("failed (exit 1): x")


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (HookAnswer("failed"), "failed"),
        (HookAnswer(stop=""), "ended the turn: no reason"),
        (HookAnswer(decision="ask", reason="why"), "ask: why"),
        (HookAnswer(decision="deny"), "deny: no reason"),
        (HookAnswer(context="a"), "ok: a"),
        (HookAnswer(), "ok: no output"),
    ],
)
def test_outcomes_for_people(given: HookAnswer, outcome: str) -> None:
    assert given.outcome == outcome
