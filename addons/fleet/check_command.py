"""The fleet commands before a run and after its end: `fleet check` and `fleet clean`."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import UsageError, dataclass
from ...api.cli import (
    Amount,
    WholeNumber,
    cwd_of,
    exits_with_code,
    read_answers,
    say,
    setting_flags,
)
from ...api.text import as_sentences, count_of
from .results_command import json_option, manifest_argument

if TYPE_CHECKING:
    from ...api.settings import TelemetrySettings
    from .check import ExpectedCost
    from .clean import TaskPlace
    from .findings import ManifestFindings
    from .ledger import LedgerReader
    from .manifest import Manifest

MAX_LISTED = 20  # tasks that are listed for each reason


@dataclass(frozen=True, slots=True)
class CheckedTasks:
    """A manifest after its check."""

    manifest: "Manifest"
    findings: "ManifestFindings"
    words: list[str]  # the options of each task's agent
    telemetry: "TelemetrySettings"
    estimate: "ExpectedCost"
    ledger: "LedgerReader"

    def notes(self, *, accepted: bool) -> Iterator[str]:
        """Yield the notes, the `accepted` doubts, and the expected cost as text."""
        levels = ("note", "doubt") if accepted else ("note",)
        yield from (each.text(self.manifest.path) for each in self.findings.of(*levels))
        if self.estimate.tasks:
            yield self.estimate.text


def check_tasks(
    options: dict[str, Any], path: Path, dollars: float | None, attempts: int | None
) -> CheckedTasks:
    """Check a manifest and everything that its tasks need. Raises UsageError for an unreadable
    file, and ConfigError for invalid settings.
    """
    from .check import StartCheck
    from .findings import ManifestFindings
    from .ledger import FleetFolder, LedgerReader
    from .manifest import Manifest

    findings, ledger = ManifestFindings(path), LedgerReader(FleetFolder.of(path))
    ledger.catch_up()
    check = StartCheck(
        findings, cwd_of(options), os.environ, setting_flags(options), dollars, ledger.records
    )
    if options["answers"]:
        read_answers(options["answers"])
    tasks = Manifest(path, attempts, findings, check)
    words = _task_options(options, check.settings.model.id)
    estimate = check.finish(tasks, words)
    return CheckedTasks(tasks, findings, words, check.settings.telemetry, estimate, ledger)


def _task_options(options: dict[str, Any], model: str) -> list[str]:
    """Return the command-line options that each task's agent gets. Relative paths are made
    absolute, because each agent starts in its own folder.
    """
    from .manifest import absolute_model

    words = [word for flag in setting_flags(options) for word in ("-c", flag)]
    for name, flag in (
        ("max_turns", "--max-turns"),
        ("append_system_prompt", "--append-system-prompt"),
        ("answers", "--answers"),
    ):
        if options[name]:
            value = options[name].absolute() if name == "answers" else options[name]
            words += [flag, str(value)]
    if (whole := absolute_model(model, Path.cwd())) != model:
        words += ["-c", f"model.id={whole}"]
    return words


def run_words(manifest: Path) -> list[str]:
    """Return the words of the command line of this run, or of a plain run in another command."""
    words = sys.argv[1:]
    at = words.index("fleet") if "fleet" in words else len(words)
    return words if words[at + 1 : at + 2] == ["run"] else ["fleet", "run", str(manifest)]


@click.command(epilog="Example: ctxagent fleet check tasks.jsonl")
@manifest_argument
@click.option(
    "--max-budget-usd", "dollars", type=Amount(min=0), metavar="X",
    help="Check also that a budget for all tasks can be kept.",
)  # fmt: skip
@click.option(
    "--attempts", type=WholeNumber(min=1, max=1_000), metavar="N",
    help='Attempts at each task whose line has no "repeat".',
)  # fmt: skip
@click.option("-c", "settings", multiple=True, metavar="KEY=VALUE", help="A setting for all tasks.")
@json_option
@click.pass_obj
@exits_with_code
def check(options: dict[str, Any], /, manifest: Path, **given: Any) -> int:
    """Find everything that is certain to fail, before it costs money.

    All mistakes of all lines are listed at once. `fleet run` does the same check first. No model is
    called. Give the same options before `fleet` as for the run.
    """
    options = {**options, "settings": (*options["settings"], *given["settings"])}
    dollars = options["max_budget_usd"] if given["dollars"] is None else given["dollars"]
    checked = check_tasks(options, manifest, dollars, given["attempts"])
    if given["as_json"]:
        estimate = checked.estimate
        document = {
            "tasks": len(checked.manifest.lines),
            "ok": not checked.findings.of("error", "doubt"),
            "findings": [each.to_json() for each in checked.findings],
            "estimate": {"cost_usd": estimate.dollars, "basis": estimate.basis},
        }
        say(json.dumps(document, ensure_ascii=False))
        return 0 if document["ok"] else UsageError.exit_code
    for note in checked.notes(accepted=False):
        say(f"note: {note}")
    checked.findings.raise_errors()
    say(f"{count_of(len(checked.manifest.lines), 'task')}: no mistakes")
    return 0


@click.command(epilog="Example: ctxagent fleet clean tasks.jsonl --dry-run")
@manifest_argument
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--all", "all_tasks", is_flag=True, help="Also of tasks that failed.")
@json_option
@exits_with_code
def clean(manifest: Path, dry_run: bool, all_tasks: bool, as_json: bool) -> int:
    """Remove worktrees, branches and clones of tasks that are done.

    A place is removed if it has no changes, or if `fleet collect` has copied its patch and nothing
    has changed since. All others stay, and the reason is printed.
    """
    from .clean import NOT_COLLECTED, Remover, find_places
    from .ledger import FleetFolder, FleetLedger

    folder = FleetFolder.of(manifest)
    if not folder.ledger.exists():
        raise UsageError(f"no task of {manifest} has begun", hint="`fleet run` starts the tasks.")
    ledger = FleetLedger(folder)  # no task may start meanwhile
    try:
        remover = Remover(os.environ)
        removed: list[TaskPlace] = []
        kept: dict[str, list[TaskPlace]] = {}
        for place in find_places(ledger.records, folder, os.environ, all=all_tasks):
            why = place.why
            if not why and not dry_run:
                try:
                    remover.remove(place)
                except OSError as error:
                    why = as_sentences(error.strerror or str(error))
            if why:
                kept.setdefault(why, []).append(place)
            else:
                removed.append(place)
    finally:
        ledger.close()
    if as_json:
        document = {
            "removed": [_place_json(place) for place in removed],
            "kept": [{**_place_json(p), "why": why} for why, ps in kept.items() for p in ps],
        }
        say(json.dumps(document, ensure_ascii=False))
        return 0
    branches = sum(bool(place.branch) for place in removed)
    head = "would be removed" if dry_run else "removed"
    say(f"{head}: {count_of(branches, 'worktree')} with branches, "
        f"{count_of(len(removed) - branches, 'clone')}")  # fmt: skip
    for why, places in kept.items():
        ids = ", ".join(place.id for place in places[:MAX_LISTED])
        more = len(places) - MAX_LISTED
        ids += f" and {more:,} more" if more > 0 else ""
        say(f"  stay    {ids}: {why}")
        if why == NOT_COLLECTED:
            say(f"          ctxagent fleet collect {manifest} DIR, then clean again")
    return 0


def _place_json(place: "TaskPlace") -> dict[str, str]:
    return {"id": place.id, "path": str(place.path), "branch": place.branch}
