"""`ctxagent replay`: replay recorded sessions under several settings and compare their cost.

With `--sweep`, it finds the cheapest settings and prints the lines for a settings file.
"""

import json
import os
import shutil
import signal
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ...api.base import CtxagentError, UsageError
from ...api.cli import Amount, Progress, WholeNumber, exits_with_code, say
from ...api.settings import PRESET_NAMES
from ...api.text import count_of
from .columns import Columns, LoadedRecordings, extension_layers, load_all

if TYPE_CHECKING:
    from ...api.context import Policy
    from ...api.recordings import Recording
    from .parallel import ReportProgress
    from .player import Terms
    from .results import Comparison, Sums
    from .sweep import Axis, SweepResult, Trial

MIN_TEXT_CELLS = 40
PLAY_LIMIT_S = 18.0  # for sessions that the user did not name
MOVE_WARNING = (
    "The best settings move results to files at once. A replay cannot know which of these results "
    "the model would have read again: choose a smaller change than shown."
)


def sweep_with(options: dict[str, Any], files: Sequence[str], given: Mapping[str, Any]) -> int:
    """Run a sweep and print its result.

    Raises UsageError, before the replay, for invalid values and for settings without effect here.
    """
    from .parallel import compare
    from .sweep import parse_axis, sweep

    axes = [parse_axis(text) for text in given["spans"]]
    columns = Columns(options, given["ask_model"], layers=extension_layers(options))
    if len({each.key for each in axes}) < len(axes):
        raise UsageError("--sweep names a setting twice", hint="Give all its values in one.")
    for each in axes:
        _check(each, columns)
    loaded = load_all(options, files)
    with Progress("trying") as progress:

        def evaluate(values: Mapping[str, str]) -> "Sums":
            return compare(loaded.recordings, [columns.changed(values, "swept")]).total("swept")

        def policy(values: Mapping[str, str]) -> "Policy":
            return columns.changed(values).policy

        bound = None if given["bound"] is None else given["bound"] / 100
        found = sweep(axes, evaluate, bound, policy, progress.show_trial)
    if given["as_json"]:
        say(json.dumps(_document(found, loaded), ensure_ascii=False))
    else:
        terms = columns.changed({})
        say(f"As {terms.model}, with a window of {terms.window:,} tokens.\n")
        _print_sweep(found, found.now.missed if bound is None else bound, len(loaded.recordings))
    return 0


def _check(axis: "Axis", columns: Columns) -> None:
    policies = {columns.changed({axis.key: value}).policy for value in axis.values}
    if len(policies) == 1 < len(axis.values):
        raise UsageError(
            f"--sweep {axis.key}: all these values give the same replay",
            hint="Sweep a setting that changes the replay: `ctxagent config --explain`.",
        )


def _document(found: "SweepResult", loaded: LoadedRecordings) -> dict[str, Any]:
    """Return a sweep as JSON data: the current settings `now` and those `tried`, the index of the
    `best` among these (null if all miss more than the bound), and the lines for .agentrc.

    `now` and `tried` have {"settings", "dollars", "missed", "results", "summaries", "edits",
    "stopped", "within"}.
    """

    def row(tried: "Trial") -> dict[str, Any]:
        sums = tried.sums
        return {
            "settings": dict(tried.values),
            "dollars": round(sums.dollars, 6),
            "missed": sums.missed,
            "results": sums.recovered.whole,
            "summaries": sums.summaries,
            "edits": sums.edits,
            "stopped": sums.stopped,
            "within": tried.within,
        }

    return {
        "v": 1,
        "now": row(found.now),
        "tried": [row(tried) for tried in found.tried],
        "best": None if found.best is None else found.tried.index(found.best),
        "agentrc": _agentrc_lines(found),
        "skipped": loaded.skipped,
        "notes": loaded.notes(),
    }


def _print_sweep(found: "SweepResult", bound: float, sessions: int) -> None:
    for tried in sorted(found.tried, key=lambda tried: tried.sums.dollars):
        mark = "*" if tried is found.best else " " if tried.within else "-"
        what = ", ".join(f"{key}={value}" for key, value in tried.values) or "as now"
        ended = f"  ({tried.sums.stopped} not played to the end)" if tried.sums.stopped else ""
        say(f"{mark} ${tried.sums.dollars:9.2f}  missed {tried.missed:6.2%}  {what}{ended}")
    over = count_of(sessions, "session")
    if found.best is None:
        least = min(found.tried, key=lambda tried: tried.missed)
        _say_wrapped(
            f"None of the settings tried over {over} misses at most {bound:.2%} of the results; "
            f"the lowest share is {least.missed:.2%}. To allow more, raise --bound."
        )
        return
    saved = 1 - found.best.sums.dollars / found.now.sums.dollars if found.now.sums.dollars else 0.0
    verdict = "no tried value is cheaper" if found.best is found.now else _verdict(found, saved)
    _say_wrapped(
        f"{verdict}, over {over}. *: the cheapest; -: misses more than {bound:.2%}, or a session "
        "stopped early."
    )
    if any(key.startswith("move.") for key, _ in found.best.values):
        _say_wrapped(MOVE_WARNING)
    if found.best.values:
        say(f"\nFor .agentrc, then `ctxagent config --trust`:\n\n{_agentrc_lines(found)}")


def _say_wrapped(text: str) -> None:
    """Print an empty line and a paragraph wrapped to the terminal's width."""
    width = max(shutil.get_terminal_size().columns, MIN_TEXT_CELLS)
    say("\n" + textwrap.fill(text, width))


def _verdict(found: "SweepResult", saved: float) -> str:
    """Compare the cost of the best settings with the current ones. The current ones can be cheaper
    if they miss too many results.
    """
    if saved >= 0:
        return f"{saved:.1%} cheaper than now"
    return f"{-saved:.1%} more expensive than now, which misses {found.now.missed:.2%}"


def _agentrc_lines(found: "SweepResult") -> str:
    from ...api.settings import flag_value_text
    from .sweep import settings_lines

    return settings_lines(found.best, flag_value_text) if found.best is not None else ""


BREAKDOWN_POINTS = 48  # points in a report that show what fills the window
MIN_TABLE_CELLS, MAX_TABLE_CELLS = 80, 160
EXPLAINED = "Tokens are estimates. --report OUT.html draws charts and explains each row."


@click.command(epilog="Example: ctxagent replay ~/.claude/projects/*/*.jsonl --report costs.html")
@click.argument("files", nargs=-1, metavar="[FILE|ID]...")
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice(PRESET_NAMES),
    metavar="NAME",
    help="Replay with this preset instead of your settings; repeatable.",
)
@click.option(
    "--against",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="Also replay with your settings and these changes; repeatable.",
)
@click.option(
    "--sweep",
    "spans",
    multiple=True,
    metavar="KEY=A..B",
    help="Find the cheapest value; also KEY=A..B/COUNT or KEY=A,B,C; repeatable.",
)
@click.option(
    "--bound",
    type=Amount(0, 100),
    metavar="PERCENT",
    help="The largest share of missed results that --sweep accepts; by default the current share.",
)
@click.option("--model", metavar="ID", help="The model whose prices and window apply.")
@click.option(
    "--context-window",
    type=WholeNumber(min=1),
    metavar="N",
    help="The window to replay with, in tokens.",
)
@click.option(
    "-c", "settings", multiple=True, metavar="KEY=VALUE", help="Set any setting; repeatable."
)
@click.option(
    "--ask-model", is_flag=True, help="Have the model write the summaries; this costs money."
)
@click.option("--unnamed", is_flag=True, help="Leave out names and texts of the sessions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="OUT.html",
    help="Also write one page with charts.",
)
@click.pass_obj
@exits_with_code
def replay(options: dict[str, Any], /, files: tuple[str, ...], **given: Any) -> int:
    """Replay recorded sessions under other settings and compare their cost.

    FILE is a session of Claude Code, Codex, pi, OpenCode, Gemini CLI, Copilot, SWE-agent or this
    program, plain or gzip; ID is a session of this directory. Without either, all sessions of this
    directory are replayed; if there are none, the newest 20 of other agents on this machine. No
    model is asked without --ask-model, and the sessions stay unchanged.
    """
    own = {**options, "settings": (*options["settings"], *given["settings"])}
    for name in ("model", "context_window"):
        own[name] = options[name] if given[name] is None else given[name]
    with _exit_on_signals():
        if not given["spans"]:
            if given["bound"] is not None:
                hint = "Add a setting to try: --sweep KEY=A..B."
                raise UsageError("--bound needs --sweep", hint=hint)
            return _compare(own, files, given)
        for name in ("presets", "against", "report", "unnamed"):
            if given[name]:
                flag = name.removesuffix("s")
                raise UsageError(
                    f"--sweep does not take --{flag}", hint="Leave out --sweep, or this option."
                )
        return sweep_with(own, files, given)


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Let signals that end the process raise SystemExit, so that temporary files are removed."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    handled = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        handled = []  # Python handles signals only in the main thread
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def _compare(options: dict[str, Any], files: Sequence[str], given: Mapping[str, Any]) -> int:
    from .parallel import compare
    from .report.json import document
    from .report.measures import anonymized

    out, hidden = given["report"], given["unnamed"]
    fills = BREAKDOWN_POINTS if out or given["as_json"] else 0
    layers = extension_layers(options)
    wanted = (given["ask_model"], given["presets"], given["against"], fills)
    columns = Columns(options, *wanted, layers).all()
    if out is not None:
        _check_report_path(out)
    loaded = load_all(options, files, unnamed=hidden)
    with Progress("replaying") as progress:
        play = _play_in_time if loaded.of_others else compare
        comparison = play(loaded.recordings, columns, progress.show_count)
    if hidden:
        comparison = anonymized(comparison)
    try:
        if out is not None:
            from .report.page import page  # imports jinja2

            _write_report(out, page(comparison))
    finally:  # the comparison is printed even if the report cannot be written
        if given["as_json"]:
            told = {**document(comparison), "requests": loaded.requests(unnamed=hidden)}
            if not hidden:
                told |= {"skipped": loaded.skipped, "notes": loaded.notes()}
            say(json.dumps(told, ensure_ascii=False))
        else:
            if loaded.of_others:
                _print_savings(comparison, len(loaded.recordings))
            _print_comparison(comparison)
            loaded.print_request_check(unnamed=hidden)
    return 0


def _play_in_time(
    recordings: "Sequence[Recording]", columns: "Sequence[Terms]", report_progress: "ReportProgress"
) -> "Comparison":
    """Play recordings, newest first, and begin no other one after PLAY_LIMIT_S seconds."""
    from .parallel import compare
    from .results import Comparison

    began, rows = time.monotonic(), list[Any]()
    for number, recording in enumerate(recordings, 1):
        rows += compare([recording], columns).runs
        report_progress(number, len(recordings), number / len(recordings))
        if time.monotonic() - began > PLAY_LIMIT_S:
            break
    return Comparison(tuple(each.label for each in columns), tuple(rows))


def _print_savings(comparison: "Comparison", found: int) -> None:
    """Print both costs of the `found` newest sessions, or of those that were played in time."""
    from .report.measures import total_figures

    before, own, *_ = (each.sums.dollars for each in total_figures(comparison))
    played = len(comparison.runs)
    last = "session" if played == 1 else f"{played} sessions"
    say(f"Your last {last}: ${before:,.2f}. With ctxagent ${own:,.2f}.")
    say("Both are replayed at list prices; neither is a bill.")
    if played < found:
        say(f"{found - played:,} more not played in {PLAY_LIMIT_S:g} s: ctxagent replay FILE...")
    say("")


def _print_comparison(comparison: "Comparison") -> None:
    from ...api.front_ends import dim, render_text, table
    from .report.measures import (
        comparison_table,
        drawbacks_sentence,
        headline,
        long_labels,
        model_sentence,
        stopped_notes,
    )

    width = min(max(shutil.get_terminal_size().columns, MIN_TABLE_CELLS), MAX_TABLE_CELLS)
    sentences = (headline(comparison), drawbacks_sentence(comparison), model_sentence(comparison))
    head, rows = comparison_table(comparison)
    shown = [dim(" ".join(filter(None, sentences)))]
    if rows:
        shown += ["", table(rows, head=head), "", dim(EXPLAINED)]
    shown += map(dim, [*long_labels(comparison), *stopped_notes(comparison)])
    say(render_text(shown, width=width, depth="plain"), nl=False)


def _check_report_path(out: Path) -> None:
    """Raise UsageError before the replay if the report cannot be written there."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"there is no directory {folder} for the report",
            hint="Create it, or give another path.",
        )
    if not out.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} is not writable", hint="Give another --report.")


def _write_report(path: Path, text: str) -> None:
    from ...api.files import write_private

    try:
        write_private(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise CtxagentError(
            f"cannot write the report {path}: {error.strerror}", hint="Give another --report."
        ) from error
    say(f"The report is in {path}", err=True)
