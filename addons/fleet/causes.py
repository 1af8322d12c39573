"""The causes of failures: a group of failures with one cause, and the command that addresses it.

The canary and the end of a run use the same causes.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...api.base import dataclass, regex
from ...api.text import cut_at_word
from .ledger import AFTER, SCORE, UNKNOWN, AttemptOutcome

MAX_TEXT_CHARS = 300
MAX_RULES = 5  # allow rules in a command; for more, a mode is suggested
MAX_IDS = 5
_VARIABLE_WORD = regex(r"\S*[\d/]\S*")  # IDs, paths and numbers differ between tasks


@dataclass(slots=True)
class FailureCause:
    """Failures with the same cause."""

    kind: str
    message: str  # of the first one
    reason: Mapping[str, Any] = field(default_factory=dict)  # of the first one, as in the ledger
    tasks: list[str] = field(default_factory=list)
    rules: dict[str, None] = field(default_factory=dict)  # that would allow the denied calls

    @property
    def text(self) -> str:
        """The cause as text."""
        return cut_at_word(f"{self.kind}: {self.message}".rstrip(": "), MAX_TEXT_CHARS)

    @property
    def ids(self) -> str:
        """The first tasks as text."""
        more = len(self.tasks) - MAX_IDS
        return ", ".join(self.tasks[:MAX_IDS]) + (f" and {more:,} more" if more > 0 else "")

    def remedy(self, manifest: Path, run: Sequence[str]) -> tuple[str, str]:
        """Return (what to change first, the command), for the command line `run` of a run."""

        def retry(*options: str) -> str:
            kind, at = self.kind.replace(" ", "-"), list(run).index("fleet")
            mark = ["ctxagent", "fleet", "retry", str(manifest), "--failed-by", kind]
            again = ["ctxagent", *run[:at], *options, *run[at:]]
            return f"{shlex.join(mark)} && {shlex.join(again)}"

        if self.kind == "denied":
            if self.rules and all(rule.startswith(("Edit", "Write")) for rule in self.rules):
                return "", retry("--permission-mode", "accept-edits")
            rules = [word for rule in self.rules for word in ("--allow", rule)]
            few = 0 < len(self.rules) <= MAX_RULES
            return "", retry(*(rules if few else ("--permission-mode", "sandboxed")))
        limit, value = self.reason.get("limit"), self.reason.get("value")
        if limit == "turns" and value:
            return "", retry("--max-turns", str(2 * value))
        if self.kind == "rejected":
            return "choose a model that the server has", retry("--model", "MODEL")
        if self.kind == "unreachable":
            return "", f"ctxagent doctor --network && {retry()}"
        if self.kind in _CHANGES and (self.kind != "limit" or limit == "budget"):
            return _CHANGES[self.kind], retry()
        return "", shlex.join(["ctxagent", "fleet", "show", str(manifest), self.tasks[0]])

    def to_json(self, manifest: Path, run: Sequence[str]) -> dict[str, Any]:
        """Return the cause as JSON values."""
        first, command = self.remedy(manifest, run)
        return {"kind": self.kind, "message": self.message, "tasks": self.tasks,
                "change": first, "command": command}  # fmt: skip


# What to change before the command of a kind of failure.
_CHANGES = {
    "limit": "raise budget_usd in the manifest",
    "time limit": "raise time_limit in the manifest",
    "place": "correct the place in the manifest: `ctxagent fleet check` names each",
    "container": "check the image and the container engine",
    "killed": "give the tasks more memory, or run fewer at once",
    SCORE: "correct the score in the manifest; no agent runs again",
    AFTER: "correct the command after the score; no agent runs again",
    UNKNOWN: "check the effects of the command after the score",
}


def causes_of(failures: Iterable[tuple[str, AttemptOutcome]]) -> list[FailureCause]:
    """Return the causes of failures, each (task, outcome), most frequent first."""
    found = dict[tuple[str, str], FailureCause]()
    for id, outcome in failures:
        kind, reason = outcome.kind, outcome.reason
        if kind == "denied":  # whatever the call: nobody can approve one
            about = ""
        elif "limit" in reason:
            about = json.dumps(reason, sort_keys=True)
        else:
            message = re.sub(rf"\b{re.escape(id)}\b", "", outcome.message)
            about = _VARIABLE_WORD.sub("", message)
        cause = found.setdefault((kind, about), FailureCause(kind, outcome.message, reason))
        cause.tasks.append(id)
        cause.rules |= dict.fromkeys(reason.get("rules", ()))
    return sorted(found.values(), key=lambda cause: -len(cause.tasks))
