"""Shared by the fleet commands: the manifest argument, and the state of its tasks."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..fleet.ledger import FleetFolder
    from ..fleet.manifest import Manifest
    from ..fleet.summary import FleetSummary

manifest_argument = click.argument(
    "manifest", type=click.Path(dir_okay=False, path_type=Path), metavar="TASKS.jsonl"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def read_status(manifest: Path) -> "tuple[Manifest, FleetFolder, FleetSummary]":
    """Return the tasks of a manifest and their state. Raises UsageError."""
    from ..fleet.ledger import FleetFolder, read_records
    from ..fleet.manifest import Manifest
    from ..fleet.summary import FleetSummary
    from ..session.listing import is_in_use

    tasks, folder = Manifest(manifest), FleetFolder.of(manifest)
    is_running = is_in_use(folder.lock)
    return (
        tasks,
        folder,
        FleetSummary.of(tasks, read_records(folder), folder, is_running=is_running),
    )
