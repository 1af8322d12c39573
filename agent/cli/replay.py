"""`ctxagent replay`: replay recorded sessions under several settings and compare their cost."""

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

from ..config.presets import PRESET_NAMES
from ..errors import CtxagentError, UsageError
from .number_types import Amount, WholeNumber
from .options import exits_with_code, say
from .progress import Progress
from .replay_columns import Columns, extension_layers
from .replay_recordings import load_all
from .replay_sweep import sweep_with

if TYPE_CHECKING:
    from ..replay.results import Comparison

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
    directory are replayed. No model is asked without --ask-model, and the sessions stay unchanged.
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
                raise UsageError(f"--sweep does not take --{flag}")
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
    from ..replay.parallel import compare
    from ..replay.report.json import document
    from ..replay.report.measures import anonymized

    out, hidden = given["report"], given["unnamed"]
    fills = BREAKDOWN_POINTS if out or given["as_json"] else 0
    layers = extension_layers(options)
    wanted = (given["ask_model"], given["presets"], given["against"], fills)
    columns = Columns(options, *wanted, layers).all()
    if out is not None:
        _check_report_path(out)
    loaded = load_all(options, files, unnamed=hidden)
    with Progress("replaying") as progress:
        comparison = compare(loaded.recordings, columns, progress.show_count)
    if hidden:
        comparison = anonymized(comparison)
    try:
        if out is not None:
            from ..replay.report.page import page  # imports jinja2

            _write_report(out, page(comparison))
    finally:  # the comparison is printed even if the report cannot be written
        if given["as_json"]:
            told = {**document(comparison), "requests": loaded.requests(unnamed=hidden)}
            if not hidden:
                told |= {"skipped": loaded.skipped, "notes": loaded.notes()}
            say(json.dumps(told, ensure_ascii=False))
        else:
            _print_comparison(comparison)
            loaded.print_request_check(unnamed=hidden)
    return 0


def _print_comparison(comparison: "Comparison") -> None:
    from ..replay.report.measures import drawbacks_sentence, headline, model_sentence
    from ..replay.report.table import comparison_table, long_labels, stopped_notes
    from ..ui.render.render import dim, render_text, table

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
    from ...tools.system.files import write_private

    try:
        write_private(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise CtxagentError(
            f"cannot write the report {path}: {error.strerror}", hint="Give another --report."
        ) from error
    say(f"The report is in {path}", err=True)
