"""The judgement of a call: allow, ask or deny, and why."""

from typing import Literal

from ...tools.system.shorten import shorten
from ..lazy import dataclass
from .rules import Rule

VerdictAction = Literal["allow", "ask", "deny"]

MAX_QUOTED_COMMAND_CHARS = 80  # of a command in a reason
PLAN_MODE_REFUSAL = (
    "plan mode is on: nothing may be edited, and only commands that look may run. Finish the plan "
    "and propose it with Plan"
)
READ_ONLY_REFUSAL = (
    "this subagent only looks: it edits nothing and runs only commands that plainly read"
)

_SEVERITY = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one call."""

    action: VerdictAction
    reason: str  # for people and for the model
    # The rule that decided or, when the call is asked about, confined, or denied by plan mode, the
    # narrowest rule that would allow it.
    rule: str = ""
    # The call is allowed because the sandbox confines it, so that it must run there as one that
    # nobody was asked about.
    confined: bool = False
    guarded: bool = False  # a rule may be meant that denies or asks: no mode allows it
    # A command that only looks. Where the kernel can, it runs without the network, with nothing to
    # write, and with only the project and the system's folders to read.
    looks: bool = False
    # The command is handed names of files by another one: it may run only as one that looks.
    handed_names: bool = False
    # The command may write the project's repository (.git): it is git itself, run as a plain
    # command, or the user has seen that it writes there.
    writes_repository: bool = False
    path: str = ""  # where the path of the call leads, for calls that have one
    opens: tuple[str, ...] = ()  # what an allowed command visibly reads outside of the sandbox


def verdict_by_rule(action: VerdictAction, what: str, rule: Rule) -> Verdict:
    """Return what a rule decides of `what`, in words for people."""
    done = {"deny": "denied", "ask": "to be asked about", "allow": "allowed"}[action]
    return Verdict(action, f"{what} is {done} by the rule {rule}", str(rule))


def stricter(one: Verdict, other: Verdict) -> Verdict:
    """Return the verdict that allows less, the first of two alike."""
    return other if _SEVERITY[other.action] > _SEVERITY[one.action] else one


def quoted_command(source: str) -> str:
    """Return a command as it stands in a reason, in one line."""
    return f"`{shorten(' '.join(source.split()), MAX_QUOTED_COMMAND_CHARS)}`"
