"""`ctxagent fleet`: run many agents from one manifest."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import ModelError, NoCredentials, UsageError
from ...api.cli import (
    Amount,
    Group,
    WholeNumber,
    exits_with_code,
    say,
)
from ...api.files import replace_file
from ...api.programs import raise_limit
from ...api.text import as_sentences, count_of
from ...api.text import clean as clean_text
from .check_command import check, check_tasks, clean, run_words
from .results_command import (
    FleetProgress,
    attempt_facts,
    collect,
    compare,
    json_option,
    manifest_argument,
    print_table,
    read_status,
    results,
    run_observer,
    serve_page,
)

if TYPE_CHECKING:
    from .causes import FailureCause
    from .ledger import FleetFolder, TaskRecord
    from .manifest import Manifest
    from .runner import FleetRun
    from .summary import FleetSummary, TaskStatus

DEFAULT_JOBS, DEFAULT_JOBS_ELSEWHERE = 4, 100
MAX_LISTED = 20  # tasks per state in a summary
MAX_SCORE_LINES = 10  # of each output of a failed score command
MAX_ANSWER_CHARS = 4_000  # of the answer in `show`
LIMITS = {"budget": "the budget is spent", "failures": "too many tasks have failed"}


@click.group(cls=Group, epilog="Example: ctxagent fleet run tasks.jsonl --max-budget-usd 5")
def fleet() -> None:
    """Run many tasks from one manifest; see `ctxagent guide fleet`."""


fleet.add_command(results)
fleet.add_command(compare)
fleet.add_command(collect)
fleet.add_command(check)
fleet.add_command(clean)


@fleet.command(epilog="Example: ctxagent fleet run tasks.jsonl --max-budget-usd 5")
@manifest_argument
@click.option(
    "--jobs", "-j", type=WholeNumber(min=1), metavar="N",
    help=f"Tasks at once: by default {DEFAULT_JOBS}, or {DEFAULT_JOBS_ELSEWHERE} with --config.",
)  # fmt: skip
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.py",
    help="A Parsl configuration, to run tasks on other machines.",
)  # fmt: skip
@click.option(
    "--max-budget-usd", "dollars", type=Amount(min=0), metavar="X",
    help="Stop at this cost of all tasks, including earlier runs.",
)  # fmt: skip
@click.option(
    "--attempts", type=WholeNumber(min=1, max=1_000), metavar="N",
    help='Attempts at each task whose line has no "repeat". Later commands use the same number.',
)  # fmt: skip
@click.option(
    "--max-failures",
    type=WholeNumber(min=1),
    metavar="N",
    help="Start no more tasks after N failures.",
)
@click.option(
    "--retries", multiple=True, metavar="KIND=N",
    help="How often a run retries a task after a failure of this kind, such as error=1.",
)  # fmt: skip
@click.option(
    "--max-outage", type=Amount(min=0), default=3_600, show_default=True,
    metavar="SECONDS",
    help="The longest outage of a server, the workers or a disk to wait for.",
)  # fmt: skip
@click.option(
    "--canary", type=WholeNumber(min=0), metavar="N",
    help="Run N tasks first, and stop if all fail for one cause: by default 3 for more"
    " than 20 tasks.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Run despite the doubts of `fleet check`.")
@click.option("-c", "settings", multiple=True, metavar="KEY=VALUE", help="A setting for all tasks.")
@json_option
@click.pass_obj
@exits_with_code
def run(options: dict[str, Any], /, manifest: Path, **given: Any) -> int:
    """Run the tasks that are not done, after the checks of `fleet check`.

    Killed or interrupted tasks continue where they stopped. Tasks that have ended do not run again.
    After Ctrl-C no more tasks start; a second Ctrl-C interrupts the running tasks. Options before
    `fleet`, such as --model, --permission-mode, --allow and --max-turns, apply to all tasks.
    """
    from .ledger import FleetFolder, FleetLedger
    from .outages import OutageRules
    from .runner import FleetRun, RunLimits

    raise_limit()
    retries = _parse_retries(given["retries"])
    options = {**options, "settings": (*options["settings"], *given["settings"])}
    dollars = options["max_budget_usd"] if given["dollars"] is None else given["dollars"]
    checked = check_tasks(options, manifest, dollars, given["attempts"])
    checked.findings.raise_errors(accepted=given["yes"])
    for note in checked.notes(accepted=given["yes"]):
        say(f"note: {note}", err=True)
    tasks = checked.manifest
    is_local = given["config"] is None
    jobs = given["jobs"] or (DEFAULT_JOBS if is_local else DEFAULT_JOBS_ELSEWHERE)
    ledger = FleetLedger(FleetFolder.of(manifest), checked.ledger)
    try:
        for warning in ledger.warnings:
            say(f"warning: {warning}", err=True)
        if given["attempts"]:
            replace_file(ledger.folder.attempts_file, b"%d\n" % given["attempts"])
        with (
            _engine(given["config"], jobs, ledger.folder) as engine,
            FleetProgress(tasks, ledger.folder) as progress,
            run_observer(progress, checked.telemetry, len(tasks.lines), jobs) as observer,
        ):
            limits = RunLimits(
                jobs, dollars, given["max_failures"], is_local, retries,
                OutageRules(longest=given["max_outage"]), given["canary"],
            )  # fmt: skip
            fleet_run = FleetRun(
                tasks, ledger, engine, limits, options=checked.words, observer=observer
            )
            progress.watch(fleet_run)
            with _signals_interrupt(fleet_run):
                fleet_run.run()
        return _report_end(tasks, ledger.folder, fleet_run, given["as_json"])
    finally:
        ledger.close()


def _parse_retries(given: Sequence[str]) -> dict[str, int]:
    """Return the number of retries for each kind of failure. Raises UsageError."""
    from .attempt import FAILURES

    found = {}
    for text in given:
        kind, _, count = text.partition("=")
        kind = _kind(kind)
        if not count.isdecimal():
            hint = f"Give KIND=N. Kinds: {', '.join(FAILURES)}."
            raise UsageError(f"--retries {text}: N must be a number", hint=hint)
        found[kind] = int(count)
    return found


def _kind(text: str) -> str:
    """Return a kind of failure. Raises UsageError for an unknown kind."""
    from .attempt import FAILURES

    kind = text.strip().replace("-", " ")
    if kind not in FAILURES:
        raise UsageError(
            f"there is no kind of failure {text!r}", hint=f"Kinds: {', '.join(FAILURES)}."
        )
    return kind


@contextmanager
def _engine(config: Path | None, jobs: int, folder: "FleetFolder") -> Iterator[Any]:
    """Create an engine, and close it at the end."""
    from .runner import LocalEngine

    if config is None:
        engine: Any = LocalEngine(jobs)
    else:
        from .parsl_engine import ParslEngine

        engine = ParslEngine(config, folder)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _signals_interrupt(fleet_run: "FleetRun") -> Iterator[None]:
    """Let signals interrupt a run: SIGINT one step per signal, other signals two steps at once."""

    def interrupt(number: int, frame: object) -> None:
        fleet_run.interrupt()
        if number != signal.SIGINT:
            fleet_run.interrupt()
        left = f"{count_of(fleet_run.running, 'task')} still running"
        next_step = (
            "interrupting" if fleet_run.interrupts > 1 else "press Ctrl-C again to interrupt them"
        )
        line = f"ctxagent: no more tasks are started; {left}: {next_step}\n"
        with suppress(OSError):  # not `say`, which the signal may have interrupted
            os.write(sys.stderr.fileno(), line.encode())

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report_end(
    manifest: "Manifest", folder: "FleetFolder", fleet_run: "FleetRun", as_json: bool
) -> int:
    """Print how a run ended, and return its exit code."""
    from .causes import causes_of
    from .ledger import REFUSED, read_records
    from .outages import OUTAGE_TEXTS
    from .summary import FleetSummary

    summary = FleetSummary.of(manifest, read_records(folder), folder, is_running=False)
    _print_summary(summary, manifest.path, folder, as_json, names_done=sys.stderr.isatty())
    if (ended := fleet_run.ended) == "interrupted":
        say("interrupted: run the same command again to continue", err=True)
        return 130
    if ended == "canary":
        (cause,) = causes_of(fleet_run.canary_failures)
        more = count_of(fleet_run.waiting, "more task")
        say(f"ctxagent: {cause.text}", err=True)
        say(f"all {len(cause.tasks):,} first tasks failed for this cause, so {more} did not start;"
            " --canary 0 starts all", err=True)  # fmt: skip
        return 4
    if ended in LIMITS:
        say(
            f"{LIMITS[ended]}: raise the limit and run the same command again to continue", err=True
        )
        return 4
    if ended == "outage":
        found = {f"{OUTAGE_TEXTS[b.cause]}: {as_sentences(b.why)}" for b in fleet_run.outages.open}
        say(f"ctxagent: {'; '.join(sorted(found))}", err=True)
        say("no more tasks were started: run the same command again to continue, with a longer"
            " --max-outage to wait longer", err=True)  # fmt: skip
        return ModelError.exit_code
    if ended == REFUSED:
        say(f"ctxagent: {fleet_run.refusal}", err=True)
        say(
            "no more tasks were started: fix this, then run the same command again to continue",
            err=True,
        )
        return NoCredentials.exit_code
    return 0 if summary.counts["done"] == len(summary.tasks) else 1


def _print_summary(
    summary: "FleetSummary",
    manifest: Path,
    folder: "FleetFolder",
    as_json: bool,
    *,
    names_done: bool = True,
) -> None:
    """Print the state of a fleet's tasks. `names_done` also lists the tasks that are done."""
    if as_json:
        causes = [cause.to_json(manifest, run_words(manifest)) for cause in summary.causes]
        document = {**summary.to_json(folder), "causes": causes}
        say(json.dumps(document, ensure_ascii=False))
        return
    counts = [f"{count:,} {state}" for state, count in summary.counts.items() if count]
    say(f"{count_of(len(summary.tasks), 'task')}: {', '.join(counts)}")
    if summary.kinds:
        say("failures: " + ", ".join(f"{count:,} {kind}" for kind, count in summary.kinds.items()))
    calls, tokens = summary.total("calls"), summary.total("tokens")
    say(f"bill: {summary.bill} · {count_of(calls, 'call')} · {tokens:,} tokens"
        f" · {summary.total('tokens_saved'):,} saved by compaction")  # fmt: skip
    if verdicts := summary.verdicts:
        counts_text = ", ".join(f"{count:,} {name}" for name, count in verdicts.items())
        say(f"score: {counts_text}: {_command_for('results', manifest)} prints the rates")
    for state in summary.counts:
        if state == "done" and not names_done:
            continue  # without a terminal, each was printed at its end
        _print_state(state, [task for task in summary.tasks if task.state == state])
    if summary.causes:
        say("failures by cause:")
        for line in _cause_lines(summary.causes, manifest):
            say(line)


def _cause_lines(causes: "Sequence[FailureCause]", manifest: Path) -> Iterator[str]:
    """Yield the lines about causes of failures: the tasks, what to change, and the command."""
    for cause in causes:
        yield f"  {count_of(len(cause.tasks), 'task')} {cause.text} ({cause.ids})"
        change, command = cause.remedy(manifest, run_words(manifest))
        yield f"    {change + ', then: ' if change else ''}{command}"


def _command_for(command: str, manifest: Path) -> str:
    """Return the command line of another command for a manifest."""
    return f"`ctxagent fleet {command} {shlex.quote(str(manifest))}`"


def _print_state(state: str, tasks: "Sequence[TaskStatus]") -> None:
    """Print the first tasks in a state. Print only the IDs of done and waiting tasks, and a line of
    details for each other task.
    """
    more = len(tasks) - MAX_LISTED
    tail = [f"and {more:,} more: --json lists all"] if more > 0 else []
    if state in ("done", "waiting"):
        lines = [", ".join([*(task.id for task in tasks[:MAX_LISTED]), *tail])] if tasks else []
    else:
        lines = [f"{task.id}  {_facts_of_task(task)}" for task in tasks[:MAX_LISTED]] + tail
    for line in lines:
        say(f"  {state:<8}{line}")


def _facts_of_task(task: "TaskStatus") -> str:
    record = task.record
    if record is None:
        return ""
    dollars = record.cost_usd if record.is_priced else None
    return attempt_facts(task.outcome, record.total("calls"), dollars)


@fleet.command(epilog="Example: ctxagent fleet status tasks.jsonl")
@manifest_argument
@json_option
@exits_with_code
def status(manifest: Path, as_json: bool) -> int:
    """Print the state of the tasks and their cost, also during a run."""
    _, folder, summary = read_status(manifest)
    _print_summary(summary, manifest, folder, as_json)
    return 0


@fleet.command(epilog="Example: ctxagent fleet show tasks.jsonl billing")
@manifest_argument
@click.argument("id", required=False)
@click.option("--serve", is_flag=True, help="Serve a live page of all tasks for a browser.")
@click.option("--port", type=WholeNumber(0, 65_535), default=0, metavar="N",
              help="The port of the page on 127.0.0.1; by default a free one.")  # fmt: skip
@json_option
@exits_with_code
def show(manifest: Path, id: str | None, serve: bool, port: int, as_json: bool) -> int:
    """Print one task: its answer, folder, patch and session."""
    if serve and id is None:
        serve_page(manifest, port)
        return 0
    if id is None or serve:
        hint = f"{_command_for('status', manifest)} lists the tasks."
        raise UsageError("give the ID of a task or --serve", hint=hint)
    from ...api.files import current_branch
    from .ledger import SCORE
    from .summary import find_place

    _, folder, summary = read_status(manifest)
    attempts = [task for task in summary.tasks if task.line.name == id != task.id]
    if attempts:
        _show_attempts(attempts, folder, as_json)
        return 0
    task = _task(summary, manifest, id)
    facts = task.to_json(folder)
    if task.record is not None:
        kept, log = folder.task(id, task.record.session), task.find_log(folder)
        facts |= {
            "place": (place := find_place(log)) and str(place),
            "branch": place and current_branch(place),
            "log": log and str(log),
            "patch": str(kept.patch) if kept.patch.exists() else None,
            "result": kept.result(task.record.attempt),
        }
    if as_json:
        say(json.dumps(facts, ensure_ascii=False))
        return 0
    answer = (facts.pop("result", None) or {}).get("result")
    for name, value in facts.items():
        if value not in (None, "", {}, False):
            say(clean_text(f"{name}: {'yes' if value is True else value}"))
    if facts.get("log"):
        state, place = Path(facts["log"]).parents[4], facts["place"]
        words = ["ctxagent", "-c", f"state.dir={state}", *(["--cwd", place] if place else [])]
        say(f"continue the session: {shlex.join([*words, '--resume', facts['session']])}")
    if facts.get("kind") == SCORE and task.record is not None:
        _show_score(folder, task.record)
    if answer:
        say(clean_text(f"\n{answer[:MAX_ANSWER_CHARS]}"))
    return 0


def _show_score(folder: "FleetFolder", record: "TaskRecord") -> None:
    """Print the end of a failed score command's output, without secrets, and its files."""
    from ...api.guard import redaction_for
    from .ledger import SCORE

    kept, tries = folder.task(record.id, record.session), record.tries.get(SCORE, 0)
    redacted = redaction_for(os.environ, shapes=True).clean_text
    for suffix in ("out", "err"):
        path = kept.step_file(SCORE, record.attempt, tries, suffix)
        if path.exists() and path.stat().st_size:
            say(f"output of the score command: {path}")
            lines = clean_text(redacted(path.read_text("utf-8", "replace"))).splitlines()
            for line in lines[-MAX_SCORE_LINES:]:
                say(f"  {line}")


def _show_attempts(attempts: "Sequence[TaskStatus]", folder: "FleetFolder", as_json: bool) -> None:
    """Print the attempts of a line with `repeat` or `matrix`."""
    found = [task.to_json(folder) for task in attempts]
    if as_json:
        say(json.dumps({"attempts": found}, ensure_ascii=False))
        return
    words: dict[Any, str] = {True: "yes", False: "no"}
    rows = [["attempt", "state", "passed", "dollars"]]
    for each in found:
        cost = each.get("cost_usd")
        dollars = "-" if cost is None else f"{cost:,.4f}"
        rows.append([each["id"], each["state"], words.get(each.get("passed"), "-"), dollars])
    print_table(rows)


def _task(summary: "FleetSummary", manifest: Path, id: str) -> "TaskStatus":
    for task in summary.tasks:
        if task.id == id:
            return task
    raise UsageError(
        f"{manifest} has no task {id}", hint=f"{_command_for('status', manifest)} lists them."
    )


@fleet.command(epilog="Example: ctxagent fleet retry tasks.jsonl billing")
@manifest_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--failed-by", "kinds", multiple=True, metavar="KIND",
    help="Only tasks that failed for this reason, such as unreachable.",
)  # fmt: skip
@click.option(
    "--score",
    "scores",
    is_flag=True,
    help="Only run the scores again, also of tasks that are done.",
)
@exits_with_code
def retry(manifest: Path, ids: tuple[str, ...], kinds: tuple[str, ...], scores: bool) -> int:
    """Mark failed tasks for the next run; without IDs all of them.

    A task continues in its session. A task with a changed prompt or place starts again, even if it
    was done. If only the score or the `after` command failed, only that command runs again.
    """
    from .ledger import SCORE, FleetFolder, FleetLedger
    from .manifest import Manifest
    from .summary import FleetSummary

    wanted = {_kind(kind) for kind in kinds}
    tasks, ledger = Manifest(manifest), FleetLedger(FleetFolder.of(manifest))
    try:
        summary = FleetSummary.of(tasks, ledger.records, ledger.folder, is_running=False)
        chosen = [_task(summary, manifest, id) for id in ids] or [
            task
            for task in summary.tasks
            if (_can_be_scored(task) if scores else task.state == "failed")
        ]
        if wanted:
            chosen = [task for task in chosen if task.outcome and task.outcome.kind in wanted]
        for task in chosen:
            if scores and not _can_be_scored(task):
                hint = "It needs a line with a score, and an attempt whose agent has ended."
                raise UsageError(f"{task.id} cannot be scored", hint=hint)
            if task.state == "done" and not task.is_changed and not scores:
                hint = "To run it again, change its prompt or its place, or give it another ID."
                raise UsageError(f"{task.id} is done", hint=hint)
        for task in chosen:
            if task.state in ("done", "failed"):
                ledger.retry(task.id, SCORE if scores else "")
    finally:
        ledger.close()
    if not chosen:
        say(f"no task failed with {' or '.join(sorted(wanted))}" if wanted
            else "no task has failed")  # fmt: skip
    else:
        say(f"{count_of(len(chosen), 'task')} marked for a retry: {_command_for('run', manifest)}")
    return 0


def _can_be_scored(task: "TaskStatus") -> bool:
    """Return True for an attempt whose agent ended with work that can be scored."""
    from .ledger import SCORED_KINDS, STEP_OF

    outcome = task.outcome
    has_ended = task.state in ("done", "failed") and not task.is_changed
    kinds = (*SCORED_KINDS, *STEP_OF)
    return task.line.has_score and has_ended and outcome is not None and outcome.kind in kinds
