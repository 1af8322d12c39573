"""Collect the objections to a shell command: each part, each file that it names, and the script."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ..lazy import dataclass
from .objections import MAY_CHANGE, Objection, ObjectionKind, by_rule, quoted_command
from .path_judge import PathJudge
from .paths import (
    WorkFolders,
    expand_glob,
    home_folders,
    is_in_project,
    is_plain_name,
    is_within,
    path_forms,
)
from .rule_set import RuleKind, RuleSet
from .rules import Rule, exact_command, narrowest_subject
from .shell import git
from .shell.command_table import known_command
from .shell.parser import Script, SimpleCommand, Word
from .shell.reach import FILE_WRITING_COMMANDS, Programs
from .shell.read_only import (
    follows_links,
    has_read_only_form,
    is_plainly_read_only,
    is_read_only,
    may_read_folders,
    passes_names_to_read_only,
    path_arguments,
    reads_files,
    searched_folders,
    stays_read_only,
)


@dataclass(frozen=True, slots=True)
class Collected:
    """The objections to one part of a command, or to one file that it names."""

    part: SimpleCommand | None  # None for a file
    text: str
    objections: tuple[Objection, ...]
    read_only: bool = False
    # It receives file names from another command, so it must be confined as read-only.
    receives_names: bool = False
    covered_by: Rule | None = None  # the allow rule for the part


@dataclass(frozen=True, slots=True)
class CommandObjections:
    """A snapshot of a session's rules and folders that collects the objections to one command."""

    script: Script
    bases: Sequence[str]  # the folders that relative paths may start from
    rules: RuleSet
    paths: PathJudge
    folders: WorkFolders
    programs: Programs
    kernel_confines_read_only: bool

    def collect(self) -> list[Collected]:
        """Return the objections to all parts, to redirections, and to doubtful syntax."""
        script = self.script
        found = [self._part(part) for part in script.parts]
        for word in script.writes:
            objections = self._file(word, edits=True)
            found.append(Collected(None, word.text, tuple(objections)))
        for word in script.reads:
            objections = self._file(word, edits=False)
            found.append(Collected(None, word.text, tuple(objections), read_only=True))
        if script.doubt:
            has_rules = self.rules.any_for("Bash", "deny", "ask")
            kind: ObjectionKind = "unclear-rules" if has_rules else "unclear"
            found.append(Collected(None, "", (self._about_all(kind, script.doubt),)))
        if not all(each.read_only for each in found):
            found += [self._names(each) for each in found if each.receives_names]
        return found

    def is_plain_git(self) -> bool:
        """Return True for git, alone or with mkdir, touch or read-only commands, without doubt."""
        script = self.script
        if script.doubt or script.writes:
            return False
        names = [part.name for part in script.parts]
        return "git" in names and all(
            not part.doubt
            and self._is_known(part, self.bases)
            and (
                part.name in ("git", "mkdir", "touch") or part.wrapper or is_plainly_read_only(part)
            )
            and all(word.fixed or word.whole for word in part.words)
            for part in script.parts
        )

    def _names(self, receiver: Collected) -> Collected:
        reason = "it passes file names to another command and is not read-only"
        objection = self._about_all("names", reason, receiver.covered_by)
        return Collected(None, "", (objection,))

    def _about_all(
        self, kind: ObjectionKind, reason: str, covering: Rule | None = None
    ) -> Objection:
        """Return an objection that the exact text of the whole command would lift."""
        return Objection(kind, reason, f"Bash({exact_command(self.script.text)})", covering)

    def _part(self, part: SimpleCommand) -> Collected:
        """Collect the objections to one simple command."""
        plain, bases = self._without_folder_option(part)
        known = self._is_known(part, bases)
        passes_names = known and passes_names_to_read_only(part) and self._can_confine_read_only()
        starts_only = passes_names or (part.wrapper and known)
        without = replace(plain, words=tuple(word for word in plain.words if not word.command))
        if without != plain and stays_read_only(without) and self._can_confine_read_only():
            plain, passes_names = without, True
        looks = known and is_read_only(plain) and git.has_known_folder(part, self.script)
        covering = None if starts_only else self._covering(part, bases)
        found = list(self._by_rules(part))
        if passes_names and part.name == "find":
            found += self._of_reading(part, bases, covering)
        elif not starts_only:
            found += self._of_program(part, plain, bases, known=known, looks=looks)
            if looks:
                found += self._of_reading(plain, bases, covering)
            else:
                found += self._of_guarded_files(part, bases, covering)
                found.append(self._change(part, bases, covering))
        by_rule = any(each.covered_by and each.covered_by == covering for each in found)
        read_only = (looks or starts_only) and not by_rule
        return Collected(part, part.source, tuple(found), read_only, passes_names, covering)

    def _covering(self, part: SimpleCommand, bases: Sequence[str]) -> Rule | None:
        """Return the allow rule for a part. No rule allows `cd`: its folder decides, since later
        commands run there.
        """
        if part.name == "cd":
            return None
        inside = partial(is_in_project, bases=bases, project=self.folders)
        return self.rules.matching("Bash", part, "allow", "session", inside=inside)

    def _by_rules(self, part: SimpleCommand) -> Iterator[Objection]:
        """Yield the objections of deny and ask rules to a part."""
        shown = quoted_command(part.source)
        if rule := self._deny_rule(part):
            yield by_rule("denied", shown, rule)
        if rule := self.rules.answering(part, "yes", "ask"):
            yield by_rule("ask-rule", shown, rule)
        if rule := self.rules.answering(part, "maybe"):
            yield self._about_all("rule-may-match", f"the rule {rule} may apply to {shown}")

    def _of_program(
        self, part: SimpleCommand, plain: SimpleCommand, bases: Sequence[str], *,
        known: bool, looks: bool,
    ) -> Iterator[Objection]:  # fmt: skip
        """Yield the objections to a part because of the program that runs, whatever its files."""
        shown, wanted = quoted_command(part.source), self._wanted(part)
        if part.doubt:
            yield Objection("unclear", f"{shown}: {part.doubt}", wanted)
        if part.name == "git":
            yield from self._of_repository(part, plain, bases)
            yield from self._of_git_content(plain, bases)
        if not known and has_read_only_form(part.name):
            reason = f"`{part.name}` resolves to a folder that commands can write to"
            yield Objection("program", reason, wanted)

    def _of_repository(
        self, part: SimpleCommand, plain: SimpleCommand, bases: Sequence[str]
    ) -> Iterator[Objection]:
        """Yield the objections to git because of the repository's own settings, hooks and links."""
        looks = is_read_only(plain)
        programs = (git.program_git_runs(base, None if looks else plain) for base in bases)
        if named := next(filter(None, programs), ""):
            yield self._about_all("git-programs", f"the repository makes git run {named}")
        for link in (link for base in bases for link in git.repository_outside_links(base)):
            reason = f"the repository makes git read {link.target}: {link.name} leads there"
            for each in self.paths.objections("Read", link.target, edits=False)[0]:
                if each.kind in ("denied", "ask-rule"):
                    yield replace(each, reason=f"{reason}, and {each.reason}")
                elif each.covered_by is None:
                    yield self._about_all("git-outside", reason)
        confined = looks and self.kernel_confines_read_only
        if not confined and (leaves := next(filter(None, map(git.index_path_outside, bases)), "")):
            reason = f"the index of the repository names {leaves}"
            yield self._about_all("git-outside", reason)

    def _change(
        self, part: SimpleCommand, bases: Sequence[str], covering: Rule | None
    ) -> Objection:
        """Return the objection to a part that is not read-only."""
        inside = partial(is_in_project, bases=bases, project=self.folders)
        if covering is None and (near := self.rules.nearly_matching(part, inside)):
            reason = f"the rule {near[0]} does not cover `{near[1]}`"
            return Objection("option", reason, self._wanted(part))
        reason = f"{quoted_command(part.source)}{MAY_CHANGE}"
        return Objection("change", reason, self._wanted(part), covering)

    def _wanted(self, part: SimpleCommand) -> str:
        return f"Bash({narrowest_subject(part, self.script)})"

    def _is_known(self, part: SimpleCommand, bases: Sequence[str]) -> bool:
        """Return True if a command runs the program that its name suggests. For tables with
        `system`, a program in the user's home does not count: a project file may choose what it
        starts.
        """
        if not self.programs.is_known(part, self.script, bases):
            return False
        known = known_command(part)
        if known is None or not known.table.system:
            return True
        program = self.programs.find(part, self.script, bases) or ""
        return not any(is_within(form, home_folders()) for form in path_forms(program, "/"))

    def _can_confine_read_only(self) -> bool:
        """Return True if the kernel keeps read-only commands from opening guarded files."""
        return self.kernel_confines_read_only and self.rules.guarded_files() is not None

    def _without_folder_option(self, part: SimpleCommand) -> tuple[SimpleCommand, Sequence[str]]:
        """Return a git command without `-C FOLDER`, and FOLDER, if that is in the project."""
        plain, folder = git.without_folder(part)
        found = [form for base in self.bases for form in path_forms(folder, base)] if folder else []
        if not found or not all(is_within(form, self.folders) for form in found):
            return part, self.bases
        return plain, found

    def _deny_rule(self, part: SimpleCommand) -> Rule | None:
        """Return a deny rule for the command, or for a file among its arguments."""
        if rule := self.rules.answering(part, "yes", "deny"):
            return rule
        writes = part.name.rpartition("/")[2] in FILE_WRITING_COMMANDS
        tools = [
            tool for tool in ("Read", "Write")[: 1 + writes] if self.rules.any_for(tool, "deny")
        ]
        if not tools:
            return None
        texts = {word.text for word in path_arguments(part)}
        texts |= {
            path
            for word in path_arguments(part)
            if word.fixed and word.glob
            for base in self.bases
            for path in expand_glob(word.text, base) or []
            if not os.path.isdir(os.path.join(base, path))  # noqa: PTH112, PTH118
        }
        seen = [
            (text, base)
            for base in self.bases
            for text in (*texts, *git.paths_in_commits(part, base))
        ]
        found = [form for text, base in seen for form in path_forms(text, base)]
        rules = (self.rules.matching_path(tool, found, "deny") for tool in tools)
        return next(filter(None, rules), None)

    def _of_guarded_files(
        self, part: SimpleCommand, bases: Sequence[str], covering: Rule | None
    ) -> Iterator[Objection]:
        """Yield the objections to a part that may read files which rules guard, without naming
        them.
        """
        kinds: tuple[tuple[ObjectionKind, RuleKind], ...]
        kinds = (("denied-files", "deny"), ("asked-files", "ask"))
        for kind, rules in kinds:
            if not self.rules.any_for("Read", rules):
                continue
            stores = part.name == "git" and git.takes_ignored_files(part)
            if stores and (self.rules.guarded_files([rules]) or [True])[0]:
                reason = "it stores ignored files, and rules guard some of them"
                yield self._about_all(kind, reason, covering)
            if hidden := self._unclear_path(part, bases):
                reason = f"{hidden} may match a file that a rule guards"
                yield self._about_all(kind, reason, covering)
            folders = self._read_folders(part, bases)
            if rule := self.rules.hiding_below(folders, rules):
                reason = f"it may read files that the rule {rule} guards"
                yield self._about_all(kind, reason, covering)

    def _read_folders(self, part: SimpleCommand, bases: Sequence[str]) -> list[str]:
        """Return the folders in which a command may read files that it does not name."""
        words = searched_folders(part)
        if not words and may_read_folders(part) and not is_read_only(part):
            words = list(path_arguments(part))
        return [
            form
            for word in words
            for base in bases
            for text in (word.text, *((expand_glob(word.text, base) or []) if word.glob else []))
            for form in path_forms(text, base)
        ]

    def _unclear_path(self, part: SimpleCommand, bases: Sequence[str]) -> str:
        """Return a word that may expand to a guarded file, "" if there is none."""
        name = part.name.rpartition("/")[2]
        if name == "git" or not (reads_files(name) or name in FILE_WRITING_COMMANDS):
            return ""
        for word in path_arguments(part):
            if not word.fixed:
                return word.text
            if word.glob and any(expand_glob(word.text, base) is None for base in bases):
                return word.text
        return ""

    def _of_reading(
        self, part: SimpleCommand, bases: Sequence[str], covering: Rule | None
    ) -> Iterator[Objection]:
        """Yield the objections to a read-only command because of what it reads."""
        yield from self._of_guarded_files(part, bases, covering)
        if follows_links(part, bases):
            yield self._about_all("links", "it follows links, which may lead anywhere", covering)
        for word in path_arguments(part):
            for each in self._file(word, edits=False, bases=bases):
                yield each if each.covered_by else replace(each, covered_by=covering)

    def _of_git_content(self, part: SimpleCommand, bases: Sequence[str]) -> Iterator[Objection]:
        """Yield the objections to git because it may show guarded files that it stores."""
        for rule, matcher in self.rules.covering("Read", "deny", "ask"):
            guarded = bool if rule.any else matcher.matches
            if any(git.may_show_file(part, base, guarded) for base in bases):
                reason = f"it may show files that the rule {rule} guards"
                yield self._about_all("git-content", reason)

    def _file(
        self, word: Word, *, edits: bool, bases: Sequence[str] | None = None
    ) -> Iterator[Objection]:
        """Yield the objections to a file named in a command, relative to each possible folder."""
        if not word.fixed or (word.glob and edits):
            reason = f"the file {word.text} is known only at run time"
            yield self._about_all("unclear-file", reason)
            return
        for base in self.bases if bases is None else bases:
            found = expand_glob(word.text, base) if word.glob else []
            if found is None:
                reason = f"{word.text} matches too many files to check"
                yield self._about_all("unclear-file", reason)
            texts = [word.text, *(found or [])]
            if word.split and not all(map(is_plain_name, texts)):
                yield self._about_all("unclear-file", f"{word.text} matches unusual file names")
            tool = "Write" if edits else "Read"
            for text in texts:
                yield from self.paths.objections(tool, text, edits=edits, base=base)[0]
