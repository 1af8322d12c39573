"""The rules of a session by kind, and lookups of the rules that match."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Literal

from .rules import (
    PathMatcher,
    Rule,
    allows_part,
    forbids_part,
    parse_rule,
    path_matcher,
    uncovered_word,
)
from .shell.command_table import plainly_inside
from .shell.parser import SimpleCommand
from .shell.rule_match import RuleMatch
from .work_folders import WorkFolders

MAX_GUARDED = 500  # guarded files in a sandbox; each costs a third of a millisecond

RuleKind = Literal["deny", "ask", "allow", "session"]


class RuleSet:
    """Rules of four kinds: deny, ask, allow, and allow for the session only. Relative paths in
    rules start at the project; in deny and ask rules they start at each folder of the session.
    Malformed rules raise UsageError.
    """

    def __init__(self, folders: WorkFolders, given: Mapping[RuleKind, Sequence[str]]) -> None:
        self._folders, self._known_folders = folders, len(folders.added)
        self._rules: dict[RuleKind, list[tuple[Rule, PathMatcher]]] = {
            "deny": [], "ask": [], "allow": [], "session": [],
        }  # fmt: skip
        for kind, texts in given.items():
            for text in texts:
                self.add(kind, text)

    def add(self, kind: RuleKind, text: str) -> None:
        rule = parse_rule(text)
        self._rules[kind].append((rule, self._matcher(kind, rule)))

    def _matcher(self, kind: RuleKind, rule: Rule) -> PathMatcher:
        widely, added = kind in ("deny", "ask"), (*self._folders.names, *self._folders.added)
        return path_matcher(rule.path or "/", self._folders.cwd, widely=widely, added=added)

    def remove_allowing(self, rule: str) -> None:
        """Remove an allow rule."""
        for kind in ("allow", "session"):
            # In place, since views share the list.
            self._rules[kind][:] = [pair for pair in self._rules[kind] if str(pair[0]) != rule]

    def with_rule(self, rule: str) -> "RuleSet":
        """Return a copy with one more allow rule."""
        copied = copy(self)
        copied._rules = {**self._rules, "session": [*self._rules["session"]]}
        copied.add("session", rule)
        return copied

    def texts(self) -> Mapping[str, Sequence[str]]:
        """Return the rule texts by kind, strongest kind first."""
        return {kind: [str(rule) for rule, _ in rules] for kind, rules in self._rules.items()}

    def covering(self, tool: str, *kinds: RuleKind) -> Iterator[tuple[Rule, PathMatcher]]:
        """Yield the rules for a tool, each with its path matcher."""
        if self._known_folders != (count := len(self._folders.added)):
            self._known_folders = count  # relative paths also apply to an added folder
            for kind, rules in self._rules.items():
                rules[:] = [(rule, self._matcher(kind, rule)) for rule, _ in rules]
        return (pair for kind in kinds for pair in self._rules[kind] if pair[0].covers(tool))

    def any_for(self, tool: str, *kinds: RuleKind) -> bool:
        return next(self.covering(tool, *kinds), None) is not None

    def matching(
        self,
        tool: str,
        part: SimpleCommand,
        *kinds: RuleKind,
        inside: Callable[[str], bool] = plainly_inside,
    ) -> Rule | None:
        """Return the first rule that allows a part of a command or has an equal subject. `inside`
        tests whether a path is in the project.
        """
        rules = self.covering(tool, *kinds)
        return next((rule for rule, _ in rules if allows_part(rule, part, inside)), None)

    def nearly_matching(
        self, part: SimpleCommand, inside: Callable[[str], bool]
    ) -> tuple[Rule, str] | None:
        """Return a rule that allows this kind of command, and the word that it does not cover."""
        for rule, _ in self.covering("Bash", "allow", "session"):
            word = uncovered_word(rule, part, inside)
            if word and word != part.name:
                return rule, word
        return None

    def answering(self, part: SimpleCommand, answer: RuleMatch, *kinds: RuleKind) -> Rule | None:
        """Return the first deny or ask rule that gives this answer for a part."""
        rules = self.covering("Bash", *(kinds or ("deny", "ask")))
        return next((rule for rule, _ in rules if forbids_part(rule, part) == answer), None)

    def matching_path(self, tool: str, paths: Iterable[str], *kinds: RuleKind) -> Rule | None:
        for rule, matcher in self.covering(tool, *kinds):
            if rule.any or any(matcher.matches(path) for path in paths):
                return rule
        return None

    def hiding_below(self, folders: Iterable[str], *kinds: RuleKind) -> Rule | None:
        """Return a rule that guards files below these folders from being read."""
        for rule, matcher in self.covering("Read", *kinds):
            if not rule.any and any(os.path.isdir(f) and matcher.below(f) for f in folders):  # noqa: PTH112
                return rule
        return None

    def guarded_files(
        self, kinds: Sequence[RuleKind] = ("deny", "ask")
    ) -> tuple[list[str], list[str]] | None:
        """Return existing paths guarded from reading and editing; None if there are too many."""
        found: list[list[str]] = []
        for tool in ("Read", "Write"):
            rules = self.covering(tool, *kinds)
            paths = [matcher.find(self._folders.real) for rule, matcher in rules if not rule.any]
            known = [path for each in paths for path in each or ()]
            if None in paths or len(known) > MAX_GUARDED:
                return None
            found.append(known)
        return found[0], found[1]
