"""The checks before a run: everything that is certain to fail is found before it costs money.

Each line is checked when it is read. What many lines share is checked once at the end: places and
the files that prompts name there, settings, keys, prices and scores.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from pathlib import Path
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from ...api.base import ConfigError, CtxagentError, UsageError, dataclass, regex
from ...api.files import GitRunner
from ...api.programs import child_environment
from ...api.session import (
    Budget,
    LaunchOptions,
    as_flags,
    launch_options,
    load,
    notices_of,
    start_errors,
)
from ...api.settings import LoadedSettings, Settings
from ...api.text import count_of
from .findings import ManifestFindings
from .ledger import FleetFolder, TaskRecord, is_to_run
from .manifest import Manifest, Task
from .orders import AttemptOrder

MAX_SCORES = 5  # scores that run once before the first task
SCORE_SECONDS = 60.0  # of such a run, in which a score shows that it starts
NOT_STARTED = (126, 127)  # exit codes of a shell that cannot start a command
FIRST_CALL_TOKENS = 2_000  # tools and instructions in the first request of a task
MAX_NAMES = 3  # changed files and branches that are named
YES = "Run them anyway with --yes."
_NOT_FOUND = regex(r"([^\s:]+): (?:command )?not found")


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """The expected cost of the tasks to run."""

    tasks: int  # to run, without those in containers
    dollars: float | None  # None if unknown
    basis: str

    @property
    def text(self) -> str:
        """The estimate as text."""
        dollars = "" if self.dollars is None else f" ${self.dollars:,.2f},"
        return f"expected cost of {count_of(self.tasks, 'task')}:{dollars} {self.basis}"


@dataclass(slots=True)
class _Place:
    """A directory or repository, and what tasks need there."""

    task: Task  # the first one
    folder: Path | None  # None for a URL
    lines: list[int] = field(default_factory=list)
    # What the names of files in prompts may mean, with the lines.
    names: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    commit: str = ""  # the commit from which tasks start; "" if they work in the folder itself


@dataclass(slots=True)
class _Common:
    """Tasks with the same settings."""

    loaded: LoadedSettings
    lines: list[int] = field(default_factory=list)
    launches: dict[bool, tuple[str, LaunchOptions]] = field(default_factory=dict)  # by budget
    chars: int = 0  # of all prompts
    tasks: int = 0


class StartCheck:
    """The checks of a manifest's tasks. What is equal is checked once."""

    def __init__(
        self,
        findings: ManifestFindings,
        cwd: Path,
        environ: Mapping[str, str],
        for_all: Sequence[str],
        dollars: float | None = None,
        records: Mapping[str, TaskRecord] | None = None,
    ) -> None:
        """`for_all` are settings for all tasks, `dollars` is the total budget, `records` are tasks
        begun earlier. Raises ConfigError for invalid settings.
        """
        self._findings, self._cwd, self._environ, self._for_all = findings, cwd, environ, for_all
        self._dollars, self._records = dollars, records or {}
        self._common: dict[str, _Common | UsageError] = {}
        self._places: dict[Any, _Place] = {}
        self._scored: dict[str, tuple[Task, int]] = {}  # a task for each score, with its line
        self.settings: Settings = load(cwd, environ, for_all).settings  # without own settings

    def defaults(self, number: int, settings: Mapping[str, Any]) -> None:
        """Check the default settings."""
        self._settings_of(settings, number)

    def task(self, manifest: Manifest, number: int, task: Task) -> None:
        """Check the settings of a task that will run, and what it needs."""
        if not is_to_run(self._records.get(task.id)):
            return
        common = self._settings_of(task.settings, number)
        for name in task.env:
            if name not in self._environ:
                self._findings.add(f"the variable {name} is not set", f"export {name}=…",
                                   lines=[number])  # fmt: skip
        place = self._place_of(manifest, task)
        place.lines.append(number)
        if "@" in task.prompt:
            from ...api.session import mention_forms  # imports all tools of the model

            for forms in mention_forms(task.prompt):
                place.names.setdefault(tuple(form.path for form in forms), []).append(number)
        if task.image is not None or common is None:
            return  # a container has its own settings, keys and sandbox
        common.lines.append(number)
        common.chars, common.tasks = common.chars + len(task.prompt), common.tasks + 1
        if task.score is not None and task.score.sandbox:  # without one, it may have effects
            self._scored.setdefault(task.score.command, (task, number))
        has_budget = self._dollars is not None or task.budget_usd is not None
        if has_budget not in common.launches:
            budget = Budget(None, 0.0 if has_budget else None)
            launch = launch_options(common.loaded, self._cwd, self._environ, budget=budget)
            is_own = task.has_own_model or "sandbox.mode" in task.settings
            is_own = is_own or (self._dollars is None and has_budget)
            common.launches[has_budget] = f"task {task.id}: " if is_own else "", launch

    def _settings_of(self, settings: Mapping[str, Any], number: int) -> _Common | None:
        """Return what tasks with these settings have in common, or None for invalid settings."""
        flags = [*self._for_all, *as_flags(settings)]
        key = json.dumps(flags)
        found = self._common.get(key)
        if found is None:
            try:
                found = _Common(load(self._cwd, self._environ, flags))
            except ConfigError as error:
                why = error.message.removeprefix(f"{error.where}: ")
                found = UsageError(f"settings: {why}", hint=error.hint)
                self._findings.add(found.message, found.hint, lines=[number])
            self._common[key] = found
        return None if isinstance(found, UsageError) else found

    def _place_of(self, manifest: Manifest, task: Task) -> _Place:
        key = task.dir, task.git, task.commit, task.worktree, task.image is None
        if key not in self._places:
            source = manifest.source(task)
            folder = manifest.directory(task)
            if source is not None:
                url = urlsplit(source)
                source = unquote(url.path) if url.scheme == "file" else source
                folder = None if ":" in source else Path(source)
            self._places[key] = _Place(task, folder)
        return self._places[key]

    def finish(self, manifest: Manifest, words: Sequence[str]) -> ExpectedCost:
        """Check what many tasks share. `words` are the options of the agents. Return the expected
        cost.
        """
        for place in self._places.values():
            if place.folder is not None:
                self._check_place(manifest, place)
        self._check_sessions()
        # A score runs only before the first verdict: a later error costs no call of the model.
        has_verdict = any(each.outcome and each.outcome.score is not None
                          for each in self._records.values())  # fmt: skip
        if not has_verdict and not self._findings.of("error"):
            for task, number in [*self._scored.values()][:MAX_SCORES]:
                self._try_score(manifest, task, number, words)
        return self._estimate()

    def _check_place(self, manifest: Manifest, place: _Place) -> None:
        task, folder, lines = place.task, place.folder, place.lines
        assert folder is not None
        if task.git is not None and not folder.exists():
            right = "Give a URL, or a path relative to the manifest."
            self._findings.add(f"there is no repository {task.git}", right, lines=lines)
        elif not folder.is_dir():
            right = _like(folder.name, folder.parent, "`dir` is relative to the manifest.")
            self._findings.add(f"there is no directory {folder}", right, lines=lines)
        elif task.git is not None or task.worktree:
            self._check_repository(manifest, place, folder)
        if place.names and folder.is_dir():
            git = self._git(folder, task)
            for name, numbers in _missing_names(git, place, folder):
                what = f"there is no file {name} for @{name} in {folder}"
                if (folder / name).exists():
                    what = f"{name} for @{name} is in no commit of {folder}"
                right = _like(name, folder, "Correct the name, or commit the file.", before="@")
                self._findings.add(what, f"{right}\n{YES}", "doubt", numbers)

    def _git(self, folder: Path, task: Task) -> GitRunner | None:
        try:
            git = GitRunner(folder, child_environment(self._environ))
        except OSError:
            return None
        git.env["GIT_OPTIONAL_LOCKS"] = "0"
        if task.git is not None and git.find("rev-parse", "--git-dir") is None:
            git.env["GIT_DIR"] = str(folder)  # git uses a bare repository only if it is named
        return git

    def _check_repository(self, manifest: Manifest, place: _Place, folder: Path) -> None:
        """Check that a folder is a repository with the commit from which tasks start, and name its
        uncommitted changes.
        """
        add, task, git = self._findings.add, place.task, self._git(folder, place.task)
        if git is None or git.find("rev-parse", "--git-dir") is None:
            right = f"Run `git init` there and commit, or clone it into {folder}."
            if task.git is None:
                right = 'Make it one and commit, or add "worktree": false to work in it.'
            add(f"{folder} is not a git repository", right, lines=place.lines)
            return
        commit = task.commit or "HEAD"
        if git.find("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
            if task.commit is None:
                add(f"{folder} has no commit", "Make a commit there.", lines=place.lines)
                return
            known = git.find("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
            names = (known or "").split()
            near = get_close_matches(commit, names, MAX_NAMES, 0.4) or names[:MAX_NAMES]
            right = f"It has {', '.join(near)}." if near else "It has no branch."
            add(f"{folder} has no commit {commit}", right, lines=place.lines)
            return
        place.commit = commit
        changed = git.find("status", "--porcelain", "--ignore-submodules=dirty") or ""
        own = (manifest.path.name, f"{FleetFolder.of(manifest.path).path.name}/")
        names = [line.strip().partition(" ")[2].strip() for line in changed.splitlines()]
        names = [name for name in names if not name.endswith(own)]
        if names and task.commit is None:
            more = len(names) - MAX_NAMES
            shown = ", ".join(names[:MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")
            what = f"{folder} has uncommitted changes, which tasks do not see: {shown}"
            add(what, "Commit them first if the tasks need them.", "note", place.lines)

    def _check_sessions(self) -> None:
        """Check what would stop every agent, or deny every edit."""
        for common in self._common.values():
            if isinstance(common, UsageError) or not common.lines:
                continue
            for own, launch in common.launches.values():
                for error in start_errors(launch):
                    error.message = f"{own}{error.message}"
                    self._findings.add(error.message, error.hint, error=error)
            for notice in notices_of(common.loaded, self._environ):
                self._findings.add(notice, level="note")
            if _denies_edits(common.loaded.settings):
                what = 'in mode "ask" every edit is denied, because nobody can approve it'
                right = (
                    "Give --permission-mode accept-edits, or sandboxed for commands too, or plan "
                    f"for tasks that only read.\n{YES}"
                )
                self._findings.add(what, right, "doubt", common.lines)

    def _try_score(self, manifest: Manifest, task: Task, number: int, words: Sequence[str]) -> None:
        """Run the score of a task once in an untouched clone of its place."""
        from .places import prepare
        from .steps import StepError, try_score

        folder = manifest.source(task) if task.git is not None else manifest.directory(task)
        step = task.score
        git = (
            self._git(Path(folder), task) if folder is not None and Path(folder).is_dir() else None
        )
        if step is None or git is None:
            return  # it would need the network
        top = git.find("rev-parse", "--show-toplevel", "--show-prefix") if task.git is None else ""
        if top is None:
            return  # it would run in the directory itself
        path, _, inner = (top or str(folder)).partition("\n")
        scratch = tempfile.mkdtemp(prefix=".fleet-check-", dir=manifest.folder)
        try:
            step = replace(step, time_limit=min(step.time_limit, SCORE_SECONDS))
            task = replace(task, dir=None, git=path, score=step)
            order = AttemptOrder(task, FleetFolder(Path(scratch)), "check", 1, tuple(words))
            order.folder.path.mkdir(parents=True)
            place = prepare(task, order.folder, self._environ)
            code, said = try_score(order, place / inner)
        except (CtxagentError, OSError) as error:
            if not isinstance(error, StepError):
                self._findings.add(f"the score cannot run: {error}", lines=[number])
            return
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if code in NOT_STARTED:
            what = f"the score ends with exit code {code} on an untouched place: {said}"
            self._findings.add(what, f"{_like_program(said)}\n{YES}", "doubt", [number])
        elif code not in (0, 1):
            what = f"the score ends with exit code {code} on an untouched place: {said}"
            self._findings.add(what, "Attempts with such an end have no verdict.", "note", [number])

    def _estimate(self) -> ExpectedCost:
        """Return the expected cost of the tasks to run."""
        common = [each for each in self._common.values() if isinstance(each, _Common)]
        count = sum(each.tasks for each in common)
        ended = [each for each in self._records.values() if each.has_ended and each.is_priced]
        if ended:
            each = sum(record.cost_usd for record in ended) / len(ended)
            basis = f"at ${each:,.4f} each, the average of {count_of(len(ended), 'earlier task')}"
            return ExpectedCost(count, each * count, basis)
        from ...api.models import cost
        from ...api.record import Usage

        models = Counter[str]()
        for group in common:
            models[group.loaded.settings.model.id] += FIRST_CALL_TOKENS * group.tasks
            models[group.loaded.settings.model.id] += group.chars // 4
        prices = {id: cost(id, Usage(input=tokens)) for id, tokens in models.items() if tokens}
        if unknown := [id for id, dollars in prices.items() if dollars is None]:
            return ExpectedCost(count, None, f"unknown, because {unknown[0]} has no known price")
        basis = f"at least: one call of {FIRST_CALL_TOKENS:,} tokens and its prompt each"
        return ExpectedCost(count, sum(dollars or 0.0 for dollars in prices.values()), basis)


def _denies_edits(settings: Settings) -> bool:
    """Return True if every edit would be denied although no setting says that tasks only read."""
    rules = settings.permissions
    if rules.mode != "ask" or rules.sandboxed == "allow" or {"Edit", "Write"} <= {*rules.deny}:
        return False
    return not any(
        rule.partition("(")[0].strip() in ("Edit", "Write") or rule == "Bash"
        for rule in rules.allow
    )


def _missing_names(
    git: GitRunner | None, place: _Place, folder: Path
) -> Iterator[tuple[str, list[int]]]:
    """Yield (file name, lines) for names in prompts that look like a file that is missing."""
    from ...api.session import file_names

    names = {form for forms in place.names for form in forms if "\n" not in form}
    missing = {name for name in names if not (folder / Path(name).expanduser()).exists()}
    if place.commit and git is not None:
        inside = sorted(name for name in names if not name.startswith(("/", "~", "../")))
        # A repository has no current folder; a directory may be below the top of its repository.
        here = "" if place.task.git is not None else "./"
        asked = "".join(f"{place.commit}:{here}{normpath(name)}\n" for name in inside)
        told = os.fsdecode(git.run("cat-file", "--batch-check", given=asked.encode())).splitlines()
        absent = {name for name, line in zip(inside, told, strict=True) if "missing" in line[-8:]}
        missing = missing - {*inside} | absent
    unknown = {forms: lines for forms, lines in place.names.items() if missing >= {*forms}}
    if unknown:
        files = file_names([forms[-1] for forms in unknown], _paths(git, place, folder))
        yield from ((forms[-1], lines) for forms, lines in unknown.items() if forms[-1] in files)


def _paths(git: GitRunner | None, place: _Place, folder: Path) -> Sequence[str]:
    """Return the paths in the commit, or the names in the folder, in which tasks start."""
    if place.commit and git is not None:
        listed = git.run("ls-tree", "-r", "-z", "--name-only", place.commit)
        return os.fsdecode(listed).split("\0")
    return [entry.name for entry in os.scandir(folder)]


def _like(name: str, folder: Path, otherwise: str, before: str = "") -> str:
    """Return a hint with the existing name most like a missing one."""
    from ...api.session import similar_name

    near = similar_name(name, folder)
    return f"Did you mean {before}{near}?" if near else otherwise


def _like_program(said: str) -> str:
    """Return a hint with the program most like the one that a shell did not find."""
    found = _NOT_FOUND.search(said)
    names = set[str]()
    for folder in os.get_exec_path() if found else ():
        if Path(folder).is_dir():
            names |= {entry.name for entry in os.scandir(folder)}
    near = get_close_matches(found[1], names, 1) if found else []
    return f"Did you mean {near[0]}?" if near else "Correct the command; it runs in the place."
