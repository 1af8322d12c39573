"""Collect the results of a fleet in one folder, with a page for the browser.

`index.html` needs no network. Each task has a folder with its result, patch, log and session page.
This module renders HTML, so importing it loads jinja2.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ...api.base import CtxagentError, RecordError, UsageError, dataclass
from ...api.files import copy_private, make_private_folder, write_private
from ...api.pages import render
from ...api.record import LOG_NAME
from ...api.text import count_of
from .ledger import PATCH_NAME, FleetFolder
from .results import RunComparison, default_ks, results_of, results_table
from .summary import STATES, FleetSummary, TaskStatus

PAGE_NAME, RESULT_NAME = "session.html", "result.json"
MARK_NAME = ".ctxagent-fleet"  # the file that names the fleet of a collection
HINT = "Give a new or empty directory, or the previous one of this fleet."


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task on the page; a link is "" if there is no file."""

    task: TaskStatus
    page: str
    patch: str

    @property
    def facts(self) -> dict[str, str]:
        """The figures of the task as text; "" for unknown ones."""
        record, outcome = self.task.record, self.task.outcome
        if record is None:
            return dict.fromkeys(("cost", "calls", "tokens", "saved", "time"), "")
        return {
            "cost": f"${record.cost_usd:,.4f}" if record.is_priced else "",
            "calls": f"{record.total('calls'):,}",
            "tokens": f"{record.total('tokens'):,}",
            "saved": f"{record.total('tokens_saved'):,}",
            "time": f"{outcome.seconds:,.1f} s" if outcome else "",
        }

    @property
    def why(self) -> str:
        """The verdict of the score, and why the task failed or stopped."""
        outcome = self.task.outcome
        if outcome is None:
            return ""
        told = [outcome.verdict] if outcome.verdict else []
        if self.task.state in ("failed", "stopped"):
            told.append(f"{outcome.kind}: {outcome.message}".strip(": "))
        return " · ".join(told)


class Collection:
    """A folder that collects the results. Files newer than their source are not written again."""

    def __init__(self, kept: FleetFolder, target: Path, make_page: Callable[[Path], str]) -> None:
        """`make_page` returns the page for a session log and may raise SessionError. Raises
        UsageError if the folder belongs to something else, RecordError if it cannot be written.
        """
        self._kept, self._target, self._make_page = kept, target, make_page
        self._claim_folder()

    def _claim_folder(self) -> None:
        """Mark the folder as belonging to this fleet. Raises UsageError if it has other files or
        the results of another fleet, RecordError if it cannot be written.
        """
        mark, owner = self._target / MARK_NAME, f"{self._kept.path}\n"
        try:
            if mark.exists():
                if mark.read_text(errors="replace") != owner:
                    raise UsageError(f"{self._target} has the results of another fleet", hint=HINT)
                return
            if self._target.is_dir() and any(self._target.iterdir()):
                raise UsageError(f"{self._target} is not empty", hint=HINT)
            make_private_folder(self._target)
            write_private(mark, owner.encode())
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def begin(self, name: str, summary: FleetSummary) -> None:
        """Write the page of all tasks before their files exist. Raises RecordError."""
        self.finish(name, summary, [_expected_row(task) for task in summary.tasks])

    def add(self, task: TaskStatus) -> TaskRow:
        """Add the files of a task; return its row on the page. Raises RecordError."""
        page = patch = ""
        if task.record is not None:
            kept, target = self._kept.task(task.id, task.record.session), self._target / task.id
            try:
                make_private_folder(target)
                self._copy(kept.result_file(task.record.attempt), target / RESULT_NAME)
                if self._copy(kept.patch, target / PATCH_NAME):
                    patch = f"{task.id}/{PATCH_NAME}"
                log = task.find_log(self._kept)
                if log is not None and self._add_session(log, target):
                    page = f"{task.id}/{PAGE_NAME}"
            except OSError as error:
                raise _unwritable(target, error) from error
        return TaskRow(task, page, patch)

    def finish(self, name: str, summary: FleetSummary, rows: Sequence[TaskRow]) -> None:
        """Write the page of all tasks. Raises RecordError."""
        html = render(
            "addons/fleet/page.html.j2",
            title=f"{name} · {_headline(summary)}",
            name=name,
            headline=_headline(summary),
            facts=list(_facts(summary)),
            counts=[(state, summary.counts[state]) for state in STATES if summary.counts[state]],
            bars=list(bars(summary.counts)),
            kinds=summary.kinds,
            results=_results(summary),
            rows=rows,
        )
        try:
            make_private_folder(self._target)
            write_private(self._target / "index.html", str(html).encode("utf-8", "replace"))
            if (target := self._target.absolute()) not in (known := self._kept.collections):
                lines = "".join(f"{path}\n" for path in [*known, target])
                write_private(self._kept.collections_file, lines.encode())
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def _copy(self, source: Path, target: Path) -> bool:
        """Copy a file unless the copy is newer; return True if the source has content."""
        if not source.exists() or not source.stat().st_size:
            target.unlink(missing_ok=True)
            return False
        if not _is_newer(target, source):
            copy_private(source, target)
        return True

    def _add_session(self, log: Path, target: Path) -> bool:
        """Add the log and page of a session; return False if the page cannot be made."""
        page = target / PAGE_NAME
        if not _is_newer(page, log):
            try:
                text = self._make_page(log)
            except CtxagentError:
                return False
            self._copy(log, target / LOG_NAME)
            write_private(page, text.encode("utf-8", "replace"))
        return True


def comparison_page(
    names: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[str], found: RunComparison
) -> str:
    """Return the page that compares two runs; `rows` is the table of results and `lines` the
    conclusions.
    """
    tasks = [["Task", *names, "difference"]]
    for id, (a, b) in found.each.items():
        tasks.append([id, f"{a:.0%}", f"{b:.0%}", f"{100 * (b - a):+.0f} points"])
    title = " and ".join(names)
    return str(
        render("addons/fleet/compare.html.j2", title=title, lines=lines, results=rows, tasks=tasks)
    )


def _results(summary: FleetSummary) -> list[list[str]]:
    """Return the table of pass rates; empty without scores."""
    if not summary.verdicts:
        return []
    cells = results_of(summary.tasks)
    return results_table(cells, default_ks(cells))


def _expected_row(task: TaskStatus) -> TaskRow:
    """Return the row of a task from the ledger alone."""
    record, outcome = task.record, task.outcome
    has_log = record is not None and bool(record.log or (outcome and outcome.log))
    has_patch = outcome is not None and bool(outcome.patch_bytes)
    page, patch = (f"{task.id}/{name}" for name in (PAGE_NAME, PATCH_NAME))
    return TaskRow(task, page if has_log else "", patch if has_patch else "")


def _is_newer(target: Path, source: Path) -> bool:
    try:
        return target.stat().st_mtime_ns > source.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def _headline(summary: FleetSummary) -> str:
    counts = [f"{count:,} {state}" for state, count in summary.counts.items() if count]
    return f"{count_of(len(summary.tasks), 'task')}: {', '.join(counts)}"


def _facts(summary: FleetSummary) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each sum."""
    yield "bill", summary.bill
    yield "calls of the model", f"{summary.total('calls'):,}"
    yield "calls of tools", f"{summary.total('tool_calls'):,}"
    yield "tokens", f"{summary.total('tokens'):,}"
    yield "saved by compaction", f"{summary.total('tokens_saved'):,} tokens"
    yield "starts", f"{sum(record.starts for record in summary.records):,}"


def bars(counts: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, left edge, width) of each part of the progress bar."""
    begin, all = 0.0, sum(counts.values())
    for state, count in counts.items():
        share = 100 * count / all
        if count:
            yield state, f"{begin:.3f}%", f"{share:.3f}%"
        begin += share


def _unwritable(path: Path, error: OSError) -> RecordError:
    where = error.filename or path
    return RecordError(f"cannot write {where}: {error.strerror}", hint="Give another folder.")
