"""Predictions for the SWE-bench harness: the patch of each task, by the ID of its line."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ...tools.system.files import replace_file
from ..errors import RecordError
from .ledger import FleetFolder
from .summary import FleetSummary, TaskStatus


def write_predictions(
    path: Path, summary: FleetSummary, folder: FleetFolder, model: str
) -> list[Path]:
    """Write the predictions of all tasks whose agents have ended; return the files. The harness
    allows one prediction per task in a file. So each cell of the matrix and each attempt has its
    own file, with a suffix if there are several. Raises RecordError.
    """
    parts = defaultdict[str, list[dict[str, Any]]](list)
    for task in summary.tasks:
        part = task.id.partition("@")[2].replace("@", ".")
        if task.record is None or task.state not in ("done", "failed"):
            continue
        parts[part].append(_prediction(task, folder, task.line.cell or model))
    files = list[Path]()
    for part, predictions in parts.items():
        target = path.with_suffix(f".{part}{path.suffix}") if len(parts) > 1 else path
        try:
            replace_file(target, json.dumps(predictions, indent=1).encode("utf-8", "replace"))
        except OSError as error:
            raise RecordError(f"cannot write {target}: {error.strerror}") from error
        files.append(target)
    return files


def _prediction(task: TaskStatus, folder: FleetFolder, model: str) -> dict[str, Any]:
    """Return the prediction of a task; its patch is "" if it has none."""
    assert task.record is not None
    patch = folder.task(task.id, task.record.session).patch
    text = patch.read_bytes().decode("utf-8", "replace") if patch.exists() else ""
    return {
        "instance_id": task.line.name,
        "model_name_or_path": model,
        "model_patch": text,
    }
