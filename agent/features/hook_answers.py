"""The answer of a hook in the published format: exit code, and text or JSON on stdout."""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from ..lazy import dataclass
from .hook_runs import VETO_EXIT_CODE, HookOutput

Decision = Literal["", "allow", "ask", "deny"]

# Events whose hooks may send plain text to the model.
_PLAIN_TEXT_EVENTS = ("SessionStart", "UserPromptSubmit")
# Documented keys of answers that have no effect here.
_UNSUPPORTED = (
    "updatedToolOutput", "updatedMCPToolOutput", "updatedPermissions", "sessionTitle",
    "reloadSkills", "watchPaths", "initialUserMessage", "terminalSequence",
)  # fmt: skip
_DECISIONS: Mapping[Any, Decision] = {"approve": "allow", "block": "deny"}  # at the top level
_PERMISSIONS: tuple[str, ...] = get_args(Decision)


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The answer of a hook. Missing values are "" or None."""

    problem: str = ""  # why there is no answer
    decision: Decision = ""  # about the event
    reason: str = ""  # of the decision
    context: str = ""  # for the model
    message: str = ""  # for the user
    stop: str | None = None  # the reason to end the turn
    arguments: Mapping[str, Any] | None = None  # replacement arguments of the call
    unsupported: tuple[str, ...] = ()  # keys without effect here

    @property
    def outcome(self) -> str:
        """How the hook ended, for the user."""
        if self.problem:
            return self.problem
        if self.stop is not None:
            return f"ended the turn: {self.stop or 'no reason'}"
        if self.decision:
            return f"{self.decision}: {self.reason or 'no reason'}"
        return f"ok: {self.context or self.message or 'no output'}"


def read_answer(event: str, run: HookOutput) -> HookAnswer:
    """Return the answer of a hook."""
    if run.problem:
        return HookAnswer(run.problem)
    if run.code == VETO_EXIT_CODE:
        return HookAnswer(decision="deny", reason=run.stderr.strip() or run.stdout.strip())
    text = run.stdout.strip()
    said = _json(text)
    if said is None:
        return HookAnswer(context=text if event in _PLAIN_TEXT_EVENTS else "")
    own = _object(said.get("hookSpecificOutput"))
    decision, reason = _decision(said, own)
    stop = _text(said, "stopReason") if said.get("continue") is False else None
    granted = _object(own.get("decision"))
    arguments = granted.get("updatedInput", own.get("updatedInput"))
    return HookAnswer(
        decision=decision,
        reason=reason,
        context=_text(own, "additionalContext"),
        message=_text(said, "systemMessage"),
        stop=stop,
        arguments=arguments if isinstance(arguments, dict) else None,
        unsupported=tuple(key for key in _UNSUPPORTED if key in {**said, **own, **granted}),
    )


def _json(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object in a text, or None for other text."""
    try:
        found = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _decision(said: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[Decision, str]:
    granted = _object(own.get("decision"))
    if granted.get("behavior") in ("allow", "deny"):
        return granted["behavior"], _text(granted, "message")
    if (found := own.get("permissionDecision")) in _PERMISSIONS:
        return found, _text(own, "permissionDecisionReason")
    found = said.get("decision")
    return (_DECISIONS[found] if found in ("approve", "block") else ""), _text(said, "reason")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return value.strip() if isinstance(value, str) else ""
