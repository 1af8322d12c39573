"""`ctxagent fleet collect`: gather the results of a fleet in a folder."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...tools.system.programs import isolated_python
from ..errors import UsageError
from .fleet_status import manifest_argument, read_status
from .options import exits_with_code, load, say, setting_flags
from .progress import Progress

MIN_COLLECTED_BY_ONE = 16  # tasks per process; fewer are not worth starting a process


@click.command()
@manifest_argument
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), metavar="[DIR]", required=False
)
@click.option(
    "--swe-bench", "predictions", type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json", help="Write the patches as predictions for the harness of SWE-bench.",
)  # fmt: skip
@click.option("--part", type=int, nargs=2, hidden=True)  # tasks N, N + OF, …, without the page
@click.pass_obj
@exits_with_code
def collect(
    options: dict[str, Any],
    manifest: Path,
    folder: Path | None,
    predictions: Path | None,
    part: tuple[int, int] | None,
) -> int:
    """Gather the results in DIR: an overview page, and for each task its result, patch and session.

    DIR/index.html needs no network and links to the pages of the sessions. It is written first.
    """
    from ..fleet.report import Collection
    from ..fleet.swe_bench import write_predictions
    from .sessions import exported

    if folder is None and predictions is None:
        raise UsageError(
            "no folder for the results", hint="Give DIR, --swe-bench FILE.json or both."
        )
    if predictions is not None and predictions.suffix != ".json":
        raise UsageError(f"--swe-bench {predictions}: the name must end with .json")
    loaded = load(options)
    _, kept, summary = read_status(manifest)
    if predictions is not None:
        model = loaded.settings.model.id
        for path in write_predictions(predictions, summary, kept, model):
            say(f"{path}")
    if folder is None:
        return 0
    collection = Collection(kept, folder, lambda log: exported(log, "html", loaded))
    if part is not None:
        for task in summary.tasks[part[0] :: part[1]]:
            collection.add(task)
        return 0
    collection.begin(manifest.name, summary)
    workers = min(len(os.sched_getaffinity(0)), 1 + len(summary.tasks) // MIN_COLLECTED_BY_ONE)
    with (
        _collecting(options, manifest, folder, workers),
        Progress("collecting") as progress,
    ):
        own = summary.tasks[::workers]
        for done, task in enumerate(own):
            progress.show_count(done * workers, len(summary.tasks), done / len(own))
            collection.add(task)
    rows = [collection.add(task) for task in summary.tasks]  # reuses collected tasks
    collection.finish(manifest.name, summary, rows)
    say(f"{folder / 'index.html'}")
    return 0


@contextmanager
def _collecting(
    options: dict[str, Any], manifest: Path, folder: Path, workers: int
) -> Iterator[None]:
    """Let other processes collect their parts of the tasks, and wait for them. This process
    collects what they miss.
    """
    flags = [word for flag in setting_flags(options) for word in ("-c", flag)]
    command = [*isolated_python(), "-m", "ctxagent", *flags, "fleet", "collect", "--part"]
    others = [
        subprocess.Popen(
            [*command, str(number), str(workers), "--", str(manifest), str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in range(1, workers)
    ]  # fmt: skip
    try:
        yield
        for other in others:
            other.wait()
    finally:
        for other in others:
            other.terminate()
            other.wait()
