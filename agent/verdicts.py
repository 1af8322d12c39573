"""What a judgement of a call comes to."""

from dataclasses import dataclass
from typing import Literal

from .rules import Rule

Action = Literal["allow", "ask", "deny"]

_WEIGHT = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why, for people and for the model. `rule` is the rule that decided or, when
    the call is asked about or the plan mode stands against it, the narrowest that would allow
    it."""

    action: Action
    reason: str
    rule: str = ""


def ruled(action: Action, what: str, rule: Rule) -> Verdict:
    done = {"deny": "denied", "ask": "to be asked about", "allow": "allowed"}[action]
    return Verdict(action, f"{what} is {done} by the rule {rule}", str(rule))


def worse(one: Verdict, other: Verdict) -> Verdict:
    return other if _WEIGHT[other.action] > _WEIGHT[one.action] else one


def short(source: str) -> str:
    line = " ".join(source.split())
    return f"`{line if len(line) <= 80 else line[:79] + '…'}`"
