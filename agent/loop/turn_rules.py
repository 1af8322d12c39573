"""Permission rules that apply until the end of the turn, from command files and skills."""

from collections.abc import Sequence
from dataclasses import field

from ..errors import UsageError
from ..lazy import dataclass
from ..permissions.approval import Approval
from ..permissions.rules import parse_rule


@dataclass(slots=True)
class TurnRules:
    """The rules added by the current turn."""

    approval: Approval
    _added: list[str] = field(default_factory=list)

    def allow(self, rules: Sequence[str]) -> list[str]:
        """Allow calls by these rules until the turn ends. Invalid rules are ignored; return a
        message for each.
        """
        known = {rule for each in self.approval.rules().values() for rule in each}
        problems = list[str]()
        for text in rules:
            try:
                rule = str(parse_rule(text))
            except UsageError as error:
                problems.append(error.message)
                continue
            if rule not in known:
                self.approval.allow_for_session(rule)
                self._added.append(rule)
        return problems

    def end(self) -> None:
        """Remove the rules."""
        while self._added:
            self.approval.revoke(self._added.pop())
