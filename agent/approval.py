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
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .places import all_forms, forms, protected, within
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
from .shell.contents import in_commits, may_show
from .shell.patterns import expand
from .shell.readonly import follows_links, is_read_only, paths, reads_files, searched
from .shell.repository import opens, runs, stays
from .shell.syntax import Part, Script, Word, parse
from .shell.touched import only_looks
from .shell.wrappers import names
from .verdicts import Verdict, ruled, short, worse

if TYPE_CHECKING:
    from ..tools.base import Params, Tool

__all__ = ["Approval", "Mode", "Rule", "Verdict", "parse_rule"]

Mode = Literal["ask", "accept-edits", "plan", "bypass"]
Kind = Literal["deny", "ask", "allow", "session"]

_PLAN = (
    "plan mode is on: nothing may be edited, and only commands that look may run. Finish the plan "
    "and present it"
)
_LOOKS = "this subagent only looks: it edits nothing and runs only commands that plainly read"
MOST = 131_071  # bytes: Linux starts no program with a longer argument
_WRITERS = names(
    "cp mv rm rmdir mkdir touch tee truncate ln install dd sed chmod chown shred unlink patch"
)


class Approval:
    """The rules of a session. `mode` may be set at any time, and holds for every form of it.

    `readable` are folders outside the project that are read without a question, `own` is what the
    agent keeps for itself, to be edited as no mode allows. Malformed rules raise UsageError.
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
        own: Sequence[Path] = (),
    ) -> None:
        self._mode: list[Mode] = [mode]
        self._looks = False
        self._cwd = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are
        self._project = (self._cwd, os.path.realpath(cwd))
        self._readable = (*self._project, *all_forms(readable))
        self._own = all_forms(own)
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

    def keeps(self, path: str) -> bool:
        """Whether a deny rule keeps what is at an absolute path from being read, found or listed,
        whatever a person answers."""
        if not self._keeps("Read", "deny"):
            return False
        there = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114
        return self._matching("Read", (path, there), "deny") is not None

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
            return ruled("deny", shown, rule)
        if self.mode == "plan" and not harmless:
            return Verdict("deny", _PLAN, tool)
        if rule := self._allowing(tool, part, "ask"):
            return ruled("ask", shown, rule)
        if rule := self._allowing(tool, part, "allow", "session"):
            return ruled("allow", shown, rule)
        if harmless:
            return Verdict("allow", f"{tool} changes nothing")
        return Verdict("ask", f"{tool} may change things", tool)

    def _allowing(self, tool: str, part: Part, *kinds: Kind) -> Rule | None:
        return next((r for r, _ in self._covering(tool, *kinds) if allows_part(r, part)), None)

    # Paths

    def _judge_path(self, tool: str, text: str, *, edits: bool, base: str = "") -> Verdict:
        found = forms(text or ".", base or self._cwd)
        verb = "editing" if edits else "reading"
        if not found:
            return Verdict("ask", f"{text!r} is not a path that can be checked", tool)
        if rule := self._matching(tool, found, "deny"):
            return ruled("deny", f"{verb} {text}", rule)
        wanted = self._path_rule(tool, found[0], edits)
        if edits and self.mode == "plan":
            return Verdict("deny", _PLAN, wanted)
        if rule := self._matching(tool, found, "ask"):
            return ruled("ask", f"{verb} {text}", rule)
        if tool == "Grep" and (rule := self._hidden_below(found, "ask")):
            own = self._covering("Grep", "allow", "session")
            if not any(r.tool == "Grep" and (r.any or p.matches(found[-1])) for r, p in own):
                reason = f"{text or '.'} may hold files that {rule} keeps from being read"
                return Verdict("ask", f"{reason}; search a narrower folder", wanted)
        deciding = ""
        for form in reversed(found):
            if rule := self._letting(tool, form, edits):
                deciding = str(rule)
            elif why := self._against(form, edits):
                return Verdict("ask", f"{verb} {text}: {why}", self._path_rule(tool, form, edits))
        return Verdict("allow", f"{verb} {text} is allowed", deciding)

    def _matching(self, tool: str, paths: Iterable[str], *kinds: Kind) -> Rule | None:
        for rule, place in self._covering(tool, *kinds):
            if rule.any or any(place.matches(path) for path in paths):
                return rule
        return None

    def _letting(self, tool: str, form: str, edits: bool) -> Rule | None:
        """The rule that allows this path. A pattern reaches what runs by itself later only where
        it says its name."""
        for rule, place in self._covering(tool, "allow", "session"):
            if rule.any or (
                place.matches(form)
                and not (edits and protected(form, self._project, rule.path, self._own))
            ):
                return rule
        return None

    def _hidden_below(self, folders: Iterable[str], *kinds: Kind) -> Rule | None:
        """A rule that keeps files below these folders from being read."""
        for rule, place in self._covering("Read", *kinds):
            if not rule.any and any(os.path.isdir(f) and place.below(f) for f in folders):  # noqa: PTH112
                return rule
        return None

    def _against(self, form: str, edits: bool) -> str:
        """What the mode has against reading or editing this path; "" when nothing."""
        if not edits:
            return "" if within(form, self._readable) else "it is outside the project"
        if not within(form, self._project):
            return "it is outside the project"
        if self.mode != "accept-edits":
            return "edits are asked about"
        name = protected(form, self._project, own=self._own)
        return f"{name} is protected" if name else ""

    def _path_rule(self, tool: str, form: str, edits: bool) -> str:
        family = "Edit" if edits else "Grep" if tool == "Grep" else "Read"
        root = next((root for root in self._project if within(form, (root,))), "")
        path = os.path.relpath(form, root) if root else form
        return f"{family}({'./' * path.startswith('~')}{exact_path(path)})"

    # Commands

    def _judge_command(self, text: str) -> Verdict:
        if len(text) > MOST or len(text.encode("utf-8", "replace")) > MOST:
            return Verdict("deny", f"no shell takes a command of more than {MOST:,} bytes")
        script = parse(text)
        bases = self._bases(script)
        verdicts = [self._judge_part(part, script, bases) for part in script.parts]
        verdicts += [self._judge_file(w, script, bases, edits=True) for w in script.writes]
        verdicts += [self._judge_file(w, script, bases, edits=False) for w in script.reads]
        if script.doubt:
            verdicts.append(self._doubtful(script.doubt, script))
        verdict = reduce(worse, verdicts or [Verdict("allow", "it does nothing")])
        kept = {str(rule) for rule, _ in self._rules["ask"]}
        if verdict.action != "ask" or any(v.action == "ask" and v.rule in kept for v in verdicts):
            return verdict
        guarded = any(self._answers(part, "maybe") for part in script.parts)
        for rule, _ in self._covering("Bash", "allow", "session"):
            if allows_text(rule, text) and not (rule.any and guarded):
                return ruled("allow", "the command", rule)
        return verdict

    def _answers(self, part: Part, answer: Match, *kinds: Kind) -> Rule | None:
        """The first deny or ask rule that gives this answer for a part."""
        rules = self._covering("Bash", *(kinds or ("deny", "ask")))
        return next((rule for rule, _ in rules if forbids_part(rule, part) == answer), None)

    def _bases(self, script: Script) -> list[str]:
        """The folders that relative paths may start from: a `cd` that opens the command counts."""
        if script.parts and opens(script.parts[0], script) and len(script.parts[0].words) == 2:
            return [self._cwd, *forms(script.parts[0].words[1].text, self._cwd)[:1]]
        return [self._cwd]

    def _judge_part(self, part: Part, script: Script, bases: Sequence[str]) -> Verdict:
        shown, wanted = short(part.source), f"Bash({narrowest(part, script)})"
        if rule := self._forbidding(part, bases):
            return ruled("deny", shown, rule)
        looks = part.wrapper or (is_read_only(part) and stays(part, script))
        if self.mode == "plan" and not looks:
            return Verdict("deny", _PLAN, wanted)
        if rule := self._answers(part, "yes", "ask"):
            return ruled("ask", shown, rule)
        if rule := self._answers(part, "maybe"):
            return self._doubtful(f"{shown} may come to what {rule} is for", script)
        if part.wrapper:
            return Verdict("allow", f"{shown} is as good as what it starts")
        if part.doubt:
            return Verdict("ask", f"{shown}: {part.doubt}", wanted)
        git_looks = part.name == "git" and is_read_only(part)
        if git_looks and (named := next(filter(None, map(runs, bases)), "")):
            return self._doubtful(f"the repository has git run {named}", script)
        # Where a command goes is a matter of paths, so that what follows is judged from there.
        if part.name != "cd" and (rule := self._allowing("Bash", part, "allow", "session")):
            if hidden := self._unseen_file(part, bases):
                return self._doubtful(f"what {hidden} stands for may be kept by a rule", script)
            return ruled("allow", shown, rule)
        if not looks:
            return Verdict("ask", f"{shown} is not known to only look", wanted)
        return self._judge_looking(part, script, bases)

    def _forbidding(self, part: Part, bases: Sequence[str]) -> Rule | None:
        """A deny rule for the command, or for a file that is seen among its arguments."""
        if rule := self._answers(part, "yes", "deny"):
            return rule
        writes = part.name.rpartition("/")[2] in _WRITERS
        tools = [tool for tool in ("Read", "Write")[: 1 + writes] if self._keeps(tool, "deny")]
        if not tools:
            return None
        texts = {word.text for word in paths(part)}
        texts |= {
            path
            for word in paths(part)
            if word.fixed and word.glob
            for base in bases
            for path in expand(word.text, base) or []
            if not os.path.isdir(os.path.join(base, path))  # noqa: PTH112, PTH118
        }
        seen = [(text, base) for base in bases for text in (*texts, *in_commits(part, base))]
        found = [form for text, base in seen for form in forms(text, base)]
        return next(filter(None, (self._matching(tool, found, "deny") for tool in tools)), None)

    def _keeps(self, tool: str, *kinds: Kind) -> bool:
        return any(True for _ in self._covering(tool, *kinds))

    def _unseen_file(self, part: Part, bases: Sequence[str]) -> str:
        """A word of a command that works on files which may stand for one that a rule keeps, and
        does not show it; "" for none."""
        name = part.name.rpartition("/")[2]
        if name == "git":
            return ""
        if not (reads_files(name) or name in _WRITERS) or not self._keeps("Read", "deny", "ask"):
            return ""
        for word in paths(part):
            if not word.fixed or (word.glob and any(expand(word.text, b) is None for b in bases)):
                return word.text
        return ""

    def _judge_looking(self, part: Part, script: Script, bases: Sequence[str]) -> Verdict:
        """A command that only looks, by what it looks at."""
        files = list(paths(part))
        verdicts = [self._judge_file(word, script, bases, edits=False) for word in files]
        folders = searched(part)
        verdicts += [self._judge_folder(word, script, base) for word in folders for base in bases]
        for rule, place in self._covering("Read", "deny", "ask") if part.name == "git" else ():
            kept = bool if rule.any else place.matches
            if any(may_show(part, base, kept) for base in bases):
                verdicts.append(self._doubtful(f"it may show what {rule} is for", script))
        if follows_links(part, bases):
            verdicts.append(self._doubtful("it follows links, wherever they lead", script))
        return reduce(worse, verdicts, Verdict("allow", f"{short(part.source)} only looks"))

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
        return reduce(worse, verdicts)

    def _judge_folder(self, word: Word, script: Script, base: str) -> Verdict:
        """A folder whose files a command reads without naming them."""
        found = expand(word.text, base) if word.glob else []
        folders = [form for text in (word.text, *(found or [])) for form in forms(text, base)]
        if rule := self._hidden_below(folders, "deny", "ask"):
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
