"""Who may do what: every call of a tool is judged before it runs, and never raises.

The order is deny, ask, allow, and then the mode: `ask` lets the agent look at the project and asks
for the rest, `accept-edits` lets it also edit files in the project, `plan` lets it change nothing
whatever the allow rules say, `bypass` lets it do all that no deny rule forbids. A path counts as
it is written and as it really is, links followed: both must be allowed, either may be denied. A
shell command is judged by its parts: each must be allowed or only look, any may be denied.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .rules import (
    Match,
    Place,
    Rule,
    allows_part,
    allows_text,
    exact_command,
    exact_path,
    forbids_part,
    make_place,
    narrowest,
    parse_rule,
)
from .shell.patterns import expand
from .shell.readonly import follows_links, is_read_only, paths, searched
from .shell.syntax import Part, Script, Word, parse
from .shell.touched import only_looks
from .shell.wrappers import names

if TYPE_CHECKING:
    from ..tools.base import Params, Tool

__all__ = ["Approval", "Mode", "Rule", "Verdict", "parse_rule"]

Mode = Literal["ask", "accept-edits", "plan", "bypass"]
Action = Literal["allow", "ask", "deny"]
Kind = Literal["deny", "ask", "allow", "session"]

_PLAN = (
    "plan mode is on: nothing may be edited, and only commands that look may run. Finish the plan "
    "and present it"
)
_LOOKS = "this subagent only looks: it edits nothing and runs only commands that plainly read"
_WEIGHT = {"allow": 0, "ask": 1, "deny": 2}
# What a file of these names does when something else runs; compared without case, since some
# file systems know none.
PROTECTED = names(
    ".git .ctxagent .agentrc .ssh .envrc .gitconfig .gitmodules .bashrc .bash_profile .bash_login "
    ".bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".inputrc"
)
_WRITERS = names(
    "cp mv rm rmdir mkdir touch tee truncate ln install dd sed chmod chown shred unlink patch"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why, for people and for the model. `rule` is the rule that decided or, when
    the call is asked about or the plan mode stands against it, the narrowest that would allow
    it."""

    action: Action
    reason: str
    rule: str = ""


class Approval:
    """The rules of a session. `mode` may be set at any time, and holds for every form of it.

    `readable` are folders outside the project that are read without a question. Malformed rules
    raise UsageError.
    """

    def __init__(
        self,
        *,
        mode: Mode = "ask",
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        cwd: Path,
        readable: Sequence[Path] = (),
    ) -> None:
        self._mode: list[Mode] = [mode]
        self._looks = False
        self._cwd = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are
        self._project = (self._cwd, os.path.realpath(cwd))
        own = [form for path in readable for form in (str(path), os.path.realpath(path))]
        self._readable = (*self._project, *own)
        self._rules: dict[Kind, list[tuple[Rule, Place]]] = {
            "deny": [], "ask": [], "allow": [], "session": [],
        }  # fmt: skip
        given: dict[Kind, Sequence[str]] = {"deny": deny, "ask": ask, "allow": allow}
        for kind, texts in given.items():
            for text in texts:
                self._add(kind, text)

    @property
    def mode(self) -> Mode:
        return self._mode[0]

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode[0] = mode

    def looking(self) -> "Approval":
        """The same rules and mode, also as they will be, for one that may only look: nothing is
        edited, and no command runs that does not plainly look."""
        narrowed = copy(self)
        narrowed._looks = True
        return narrowed

    def remember(self, rule: str) -> None:
        """Allow what `rule` matches for the rest of the session."""
        if rule not in self.rules()["session"]:
            self._add("session", rule)

    def forget(self, rule: str) -> bool:
        """Allow it no longer, whoever allowed it; whether it was allowed."""
        before = self.rules()
        for kind in ("allow", "session"):
            rules = self._rules[kind]
            rules[:] = [pair for pair in rules if str(pair[0]) != rule]
        return before != self.rules()

    def with_rule(self, rule: str) -> "Approval":
        """The same rules and mode as they are now, and one more that allows. Raises UsageError."""
        wider = copy(self)
        wider._rules = {**self._rules, "session": [*self._rules["session"]]}
        wider._add("session", rule)
        return wider

    def rules(self) -> Mapping[str, Sequence[str]]:
        """The rules by what they do, in the order of their force; for display."""
        return {kind: [str(rule) for rule, _ in rules] for kind, rules in self._rules.items()}

    def judge(self, tool: "Tool[Any]", params: "Params") -> Verdict:
        subject = tool.subject(params)
        if self._looks and not _only_looks(tool, subject):
            return Verdict("deny", _LOOKS)
        if tool.effect in ("read", "edit"):
            verdict = self._judge_path(tool.name, subject, edits=tool.effect == "edit")
        elif tool.name == "Bash":
            verdict = self._judge_command(subject)
        else:
            verdict = self._judge_call(tool.name, subject, harmless=tool.effect == "none")
        if self.mode == "bypass" and verdict.action == "ask":
            return Verdict("allow", "bypass mode: no deny rule forbids it")
        return verdict

    def _add(self, kind: Kind, text: str) -> None:
        rule = parse_rule(text)
        widely = kind in ("deny", "ask")
        place = make_place(rule.path or "/", self._cwd, widely=widely)
        self._rules[kind].append((rule, place))

    def _covering(self, tool: str, *kinds: Kind) -> Iterator[tuple[Rule, Place]]:
        return (pair for kind in kinds for pair in self._rules[kind] if pair[0].covers(tool))

    def _judge_call(self, tool: str, subject: str, *, harmless: bool) -> Verdict:
        """A tool without files and commands: a rule's subject is the call's, or a `*` pattern."""
        part = Part((Word(subject),), subject)
        shown = f"{tool} {subject}".strip()
        if rule := self._allowing(tool, part, "deny"):
            return _ruled("deny", shown, rule)
        if self.mode == "plan" and not harmless:
            return Verdict("deny", _PLAN, tool)
        if rule := self._allowing(tool, part, "ask"):
            return _ruled("ask", shown, rule)
        if rule := self._allowing(tool, part, "allow", "session"):
            return _ruled("allow", shown, rule)
        if harmless:
            return Verdict("allow", f"{tool} changes nothing")
        return Verdict("ask", f"{tool} may change things", tool)

    def _allowing(self, tool: str, part: Part, *kinds: Kind) -> Rule | None:
        return next((r for r, _ in self._covering(tool, *kinds) if allows_part(r, part)), None)

    # Paths

    def _judge_path(self, tool: str, text: str, *, edits: bool, base: str = "") -> Verdict:
        forms = self._forms(text or ".", base or self._cwd)
        verb = "editing" if edits else "reading"
        if not forms:
            return Verdict("ask", f"{text!r} is not a path that can be checked", tool)
        if rule := self._matching(tool, forms, "deny"):
            return _ruled("deny", f"{verb} {text}", rule)
        wanted = self._path_rule(tool, forms[0], edits)
        if edits and self.mode == "plan":
            return Verdict("deny", _PLAN, wanted)
        if rule := self._matching(tool, forms, "ask"):
            return _ruled("ask", f"{verb} {text}", rule)
        if tool == "Grep" and (rule := self._hidden_below(forms)):
            own = self._covering("Grep", "allow", "session")
            if not any(r.tool == "Grep" and (r.any or p.matches(forms[-1])) for r, p in own):
                reason = f"{text or '.'} may hold files that {rule} keeps from being read"
                return Verdict("ask", f"{reason}; search a narrower folder", wanted)
        deciding = ""
        for form in reversed(forms):
            rule = self._matching(tool, [form], "allow", "session")
            if rule:
                deciding = str(rule)
            elif why := self._against(form, edits):
                return Verdict("ask", f"{verb} {text}: {why}", self._path_rule(tool, form, edits))
        return Verdict("allow", f"{verb} {text} is allowed", deciding)

    def _forms(self, text: str, base: str) -> list[str]:
        """The path as written and, when links lead elsewhere, as it really is. Empty when no such
        path can exist."""
        try:
            path = os.path.join(base, os.path.expanduser(text))  # noqa: PTH111, PTH118
            return list(dict.fromkeys((os.path.normpath(path), os.path.realpath(path))))
        except (ValueError, OSError):
            return []

    def _matching(self, tool: str, forms: Iterable[str], *kinds: Kind) -> Rule | None:
        for rule, place in self._covering(tool, *kinds):
            if rule.any or any(place.matches(form) for form in forms):
                return rule
        return None

    def _hidden_below(self, forms: Iterable[str]) -> Rule | None:
        """A rule that keeps files below these folders from being read."""
        for rule, place in self._covering("Read", "deny", "ask"):
            if not rule.any and any(os.path.isdir(f) and place.below(f) for f in forms):  # noqa: PTH112
                return rule
        return None

    def _against(self, form: str, edits: bool) -> str:
        """What the mode has against reading or editing this path; "" when nothing."""
        if not edits:
            return "" if _within(form, self._readable) else "it is outside the project"
        if not _within(form, self._project):
            return "it is outside the project"
        if self.mode != "accept-edits":
            return "edits are asked about"
        root = next(root for root in self._project if _within(form, (root,)))
        names = form[len(root) :].casefold().split("/")
        protected = next((name for name in names if name in PROTECTED), "")
        return f"{protected} is protected" if protected else ""

    def _path_rule(self, tool: str, form: str, edits: bool) -> str:
        family = "Edit" if edits else "Grep" if tool == "Grep" else "Read"
        root = next((root for root in self._project if _within(form, (root,))), "")
        path = os.path.relpath(form, root) if root else form
        return f"{family}({'./' * path.startswith('~')}{exact_path(path)})"

    # Commands

    def _judge_command(self, text: str) -> Verdict:
        script = parse(text)
        bases = self._bases(script)
        verdicts = [self._judge_part(part, script, bases) for part in script.parts]
        verdicts += [self._judge_file(w, script, bases, edits=True) for w in script.writes]
        verdicts += [self._judge_file(w, script, bases, edits=False) for w in script.reads]
        if script.doubt:
            verdicts.append(self._doubtful(script.doubt, script))
        verdict = reduce(_worse, verdicts or [Verdict("allow", "it does nothing")])
        kept = {str(rule) for rule, _ in self._rules["ask"]}
        if verdict.action != "ask" or any(v.action == "ask" and v.rule in kept for v in verdicts):
            return verdict
        guarded = any(self._answers(part, "maybe") for part in script.parts)
        for rule, _ in self._covering("Bash", "allow", "session"):
            if allows_text(rule, text) and not (rule.any and guarded):
                return _ruled("allow", "the command", rule)
        return verdict

    def _answers(self, part: Part, answer: Match, *kinds: Kind) -> Rule | None:
        """The first deny or ask rule that gives this answer for a part."""
        rules = self._covering("Bash", *(kinds or ("deny", "ask")))
        return next((rule for rule, _ in rules if forbids_part(rule, part) == answer), None)

    def _bases(self, script: Script) -> list[str]:
        """The folders that relative paths may start from: a `cd` that opens the command counts."""
        if script.parts and _opens(script.parts[0], script) and len(script.parts[0].words) == 2:
            return [self._cwd, *self._forms(script.parts[0].words[1].text, self._cwd)[:1]]
        return [self._cwd]

    def _judge_part(self, part: Part, script: Script, bases: Sequence[str]) -> Verdict:
        shown, wanted = _short(part.source), f"Bash({narrowest(part, script)})"
        if rule := self._forbidding(part, bases):
            return _ruled("deny", shown, rule)
        looks = part.wrapper or (is_read_only(part) and _stays(part, script))
        if self.mode == "plan" and not looks:
            return Verdict("deny", _PLAN, wanted)
        if rule := self._answers(part, "yes", "ask"):
            return _ruled("ask", shown, rule)
        if rule := self._answers(part, "maybe"):
            return self._doubtful(f"{shown} may come to what {rule} is for", script)
        if part.wrapper:
            return Verdict("allow", f"{shown} is as good as what it starts")
        if part.doubt:
            return Verdict("ask", f"{shown}: {part.doubt}", wanted)
        # Where a command goes is a matter of paths, so that what follows is judged from there.
        if part.name != "cd" and (rule := self._allowing("Bash", part, "allow", "session")):
            return _ruled("allow", shown, rule)
        if not looks:
            return Verdict("ask", f"{shown} is not known to only look", wanted)
        return self._judge_looking(part, script, bases)

    def _forbidding(self, part: Part, bases: Sequence[str]) -> Rule | None:
        """A deny rule for the command, or for a file that is seen among its arguments."""
        if rule := self._answers(part, "yes", "deny"):
            return rule
        forms = [form for word in paths(part) for b in bases for form in self._forms(word.text, b)]
        writes = part.name.rpartition("/")[2] in _WRITERS
        return self._matching("Read", forms, "deny") or (
            self._matching("Write", forms, "deny") if writes else None
        )

    def _judge_looking(self, part: Part, script: Script, bases: Sequence[str]) -> Verdict:
        """A command that only looks, by what it looks at."""
        files = list(paths(part))
        verdicts = [self._judge_file(word, script, bases, edits=False) for word in files]
        folders = searched(part)
        verdicts += [self._judge_folder(word, script, base) for word in folders for base in bases]
        if follows_links(part):
            verdicts.append(self._doubtful("it follows links, wherever they lead", script))
        return reduce(_worse, verdicts, Verdict("allow", f"{_short(part.source)} only looks"))

    def _judge_file(
        self, word: Word, script: Script, bases: Sequence[str], *, edits: bool
    ) -> Verdict:
        """A file named in a command, from every folder that it may be relative to."""
        if not word.fixed or (word.glob and edits):
            return self._doubtful(f"the file {word.text} is known only when it runs", script)
        tool = "Write" if edits else "Read"
        verdicts = []
        for base in bases:
            found = expand(word.text, base) if word.glob else []
            if found is None:
                reason = f"what {word.text} stands for cannot be looked at file by file"
                verdicts.append(self._doubtful(reason, script))
            texts = [word.text, *(found or [])]
            verdicts += [self._judge_path(tool, text, edits=edits, base=base) for text in texts]
        return reduce(_worse, verdicts)

    def _judge_folder(self, word: Word, script: Script, base: str) -> Verdict:
        """A folder whose files a command reads without naming them."""
        found = expand(word.text, base) if word.glob else []
        forms = [form for text in (word.text, *(found or [])) for form in self._forms(text, base)]
        if rule := self._hidden_below(forms):
            return self._doubtful(f"it may read files that {rule} keeps from being read", script)
        return Verdict("allow", f"no rule keeps what is in {word.text}")

    def _doubtful(self, reason: str, script: Script) -> Verdict:
        rule = f"Bash({exact_command(script.text)})"
        if self.mode == "plan":
            return Verdict("deny", _PLAN, rule)
        return Verdict("ask", reason, rule)


def _only_looks(tool: "Tool[Any]", subject: str) -> bool:
    if tool.name == "Bash":
        return only_looks(parse(subject))
    return tool.effect not in ("edit", "run")


def _ruled(action: Action, what: str, rule: Rule) -> Verdict:
    done = {"deny": "denied", "ask": "to be asked about", "allow": "allowed"}[action]
    return Verdict(action, f"{what} is {done} by the rule {rule}", str(rule))


def _worse(one: Verdict, other: Verdict) -> Verdict:
    return other if _WEIGHT[other.action] > _WEIGHT[one.action] else one


def _within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _opens(part: Part, script: Script) -> bool:
    """Whether the part is a `cd` that the whole command starts with."""
    return part.name == "cd" and part is script.parts[0] and script.text.lstrip().startswith("cd ")


def _stays(part: Part, script: Script) -> bool:
    """Whether it is known where the part runs. git also runs what the configuration of the folder
    it is in tells it to, so it must be the project's."""
    if part.name == "cd":
        return _opens(part, script)
    return part.name != "git" or not any(each.name == "cd" for each in script.parts)


def _short(source: str) -> str:
    line = " ".join(source.split())
    return f"`{line if len(line) <= 80 else line[:79] + '…'}`"
