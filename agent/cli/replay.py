"""`ctxagent replay`: recorded sessions under several settings, side by side; and the sweep that
looks for the cheapest."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..errors import CtxagentError, UsageError
from .columns import Columns
from .options import guarded, load, say
from .progress import Progress
from .recordings import load_all
from .sweeping import sweep_with

if TYPE_CHECKING:
    from ..replay.outcome import Comparison

PRESETS = ("default", "v5", "ctx-001", "anchored", "ledger")
FEW = 3  # recordings whose curves are drawn in the terminal
FILLS = 48  # points at which a report says what fills the window
NARROWEST, WIDEST = 80, 160  # cells of a table


@click.command(epilog="Example: ctxagent replay ~/.claude/projects/*/*.jsonl --report costs.html")
@click.argument("files", nargs=-1, metavar="[FILE|ID]...")
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice(PRESETS),
    help="Play under it, in the place of your settings; repeatable.",
)
@click.option(
    "--against",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="Play under your settings with these changes too; repeatable.",
)
@click.option(
    "--sweep",
    "spans",
    multiple=True,
    metavar="KEY=A..B",
    help="Find the value that costs least, also KEY=A..B/COUNT or KEY=A,B,C; repeatable.",
)
@click.option(
    "--bound",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Of all results, those that --sweep may have missed; without it, no more than now.",
)
@click.option("--model", metavar="ID", help="Whose prices and window count.")
@click.option("--context-window", type=click.IntRange(min=1), metavar="N", help="In tokens.")
@click.option("-c", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting, repeatable.")
@click.option("--ask-model", is_flag=True, help="Have the model write summaries: it costs money.")
@click.option("--unnamed", is_flag=True, help="Leave out what the sessions were about.")
@click.option("--json", "as_json", is_flag=True, help="One document, for programs.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="OUT.html",
    help="Write one page with charts, too.",
)
@click.pass_obj
def replay(options: dict[str, Any], /, files: tuple[str, ...], **given: Any) -> None:
    """Play recorded sessions again under other settings, and see what they would have cost.

    FILE is a session of Claude Code, Codex, pi, OpenCode, Gemini CLI, Copilot, SWE-agent or of this
    program, plain or gzip; ID is a session of this directory. Without either, all of them. No model
    is asked unless you say so, and nothing is changed.
    """

    def run() -> int:
        own = {**options, "settings": (*options["settings"], *given["settings"])}
        for name in ("model", "context_window"):
            own[name] = options[name] if given[name] is None else given[name]
        with _clearing_away():
            if not given["spans"]:
                return _compare(own, files, given)
            for name in ("presets", "against", "report", "unnamed"):
                if given[name]:
                    flag = name.removesuffix("s")
                    raise UsageError(f"--sweep compares with your settings alone, without --{flag}")
            return sweep_with(own, files, given)

    guarded(run)


@contextmanager
def _clearing_away() -> Iterator[None]:
    """A signal that ends the process lets it clear away first what it has begun."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        heeded = []  # as Python has it
    for number in heeded:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


def _compare(options: dict[str, Any], files: Sequence[str], given: Mapping[str, Any]) -> int:
    from ..replay.report.data import document
    from ..replay.report.page import page
    from ..replay.report.unnamed import unnamed
    from ..replay.series import compare

    out, hidden = given["report"], given["unnamed"]
    fills = FILLS if out or given["as_json"] else 0
    columns = Columns(options, given["ask_model"], given["presets"], given["against"], fills).all()
    if out is not None:
        _check_place(out)
    loaded = load_all(options, files, unnamed=hidden)
    with Progress("replaying") as progress:
        comparison = compare(loaded.recordings, columns, progress.tell)
    if hidden:
        comparison = unnamed(comparison)
    try:
        if out is not None:
            _write(out, page(comparison))
    finally:  # what was played is told in any case
        if given["as_json"]:
            told = {**document(comparison), "requests": loaded.requests(unnamed=hidden)}
            if not hidden:
                told |= {"skipped": loaded.skipped, "notes": loaded.notes()}
            say(json.dumps(told, ensure_ascii=False))
        else:
            _show(comparison, options)
            loaded.tell_checked(unnamed=hidden)
    return 0


def _show(comparison: "Comparison", options: dict[str, Any]) -> None:
    """The table; and curves, where they are few and somebody looks at them who can see them."""
    from ..replay.report.curve import curve
    from ..replay.report.table import table
    from ..ui.screen.capabilities import of_process

    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    say(table(comparison, width))
    ui = load(options).settings.ui
    if ui.plain or len(comparison.runs) > FEW:
        return
    can = of_process(ui)
    ascii = not can.unicode or can.term == "dumb"
    for runs in comparison.runs:
        if drawn := curve(runs, width, ascii=ascii):
            say(f"\n{drawn}")


def _check_place(out: Path) -> None:
    """Raises UsageError where no report can be, before anything is played."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"there is no directory {folder} for the report", hint="Make it, or give another."
        )
    if not out.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} may not be written to", hint="Give another --report.")


def _write(path: Path, text: str) -> None:
    from ..record.private import write

    try:
        write(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise CtxagentError(
            f"cannot write the report {path}: {error.strerror}", hint="Give another --report."
        ) from error
    say(f"The report is in {path}", err=True)
