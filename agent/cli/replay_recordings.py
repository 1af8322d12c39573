"""The recordings for `ctxagent replay`: by path, by session ID, or all of a directory.

If there are several, unreadable and duplicate recordings are skipped with a message.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.system.plural import count_of
from ...tools.system.unicode import clean
from ..errors import CtxagentError, UsageError
from ..lazy import dataclass
from .options import project_of, say
from .progress import Progress

if TYPE_CHECKING:
    from ..replay.recording import Recording
    from ..replay.request_check import RequestCheck

OWN_FORMAT = "ctxagent"


@dataclass(slots=True)
class LoadedRecordings:
    """The recordings, and messages about reading them."""

    recordings: "list[Recording]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # reasons for skipped files, by path
    checked: "RequestCheck | None" = None  # check of our own sessions; None if there are none

    def print_skipped(self, *, unnamed: bool) -> None:
        """Print the skipped files, or only their number with `unnamed`."""
        if unnamed:
            for what, count in (("skipped", len(self.skipped)), ("note", len(self.notes()))):
                if count:
                    files = count_of(count, "file")
                    say(f"{what}: {files}; omit --unnamed to see their names", err=True)
            return
        for why in self.skipped.values():
            say(f"skipped: {clean(why)}", err=True)
        for name, notes in self.notes().items():
            say(f"note: {clean(name)}: {clean('; '.join(notes))}", err=True)

    def notes(self) -> dict[str, list[str]]:
        """Return notes on the skipped parts of each recording, by its name."""
        found: dict[str, list[str]] = {}
        for each in self.recordings:
            rows = [count_of(each.skipped, "unreadable line or item", "unreadable lines or items")]
            rows *= each.skipped > 0
            rows += [count_of(each.orphans, "result") + " without a call"] * (each.orphans > 0)
            if rows := [*rows, *each.notes]:
                found[each.name] = rows
        return found

    def requests(self, *, unnamed: bool) -> dict[str, Any]:
        """Return the check of our own sessions as JSON data: counts and the first difference."""
        from ..replay.request_check import RequestCheck

        checked = self.checked or RequestCheck()
        document: dict[str, Any] = asdict(checked.total)
        document["first"] = None if checked.first is None else checked.first.text(named=not unnamed)
        if not unnamed:
            document["warnings"] = list(checked.warnings)
        return document

    def print_request_check(self, *, unnamed: bool) -> None:
        """Print the check of our own sessions."""
        if self.checked is None:
            return
        say(f"\nOur own sessions: {self.checked.line()}")
        if self.checked.first is not None:
            say(f"! {clean(self.checked.first.text(named=not unnamed))}")
        for warning in () if unnamed else self.checked.warnings:
            say(f"note: {clean(warning)}", err=True)


def load_all(
    options: dict[str, Any], files: Sequence[str], *, unnamed: bool = False
) -> LoadedRecordings:
    """Read the recordings in these files. Raises UsageError if none can be used."""
    from ..replay.formats import load_recording

    found, paths = LoadedRecordings(), _paths(options, files)
    read: list[tuple[Path, Recording]] = []
    with Progress("reading") as progress:
        for number, path in enumerate(paths, 1):
            name = f"session {number}" if unnamed else path.name
            progress.show(f"{number} of {len(paths)}: {name}")
            try:
                recording = load_recording(path)
            except CtxagentError as error:
                if len(paths) == 1:
                    raise
                found.skipped[str(path)] = error.message
                continue
            steps = (recording.format, recording.steps)
            same = next((p for p, other in read if (other.format, other.steps) == steps), None)
            if same is not None:
                found.skipped[str(path)] = f"{path} has the same session as {same}"
                continue
            read.append((path, recording))
            if _is_own(path, recording):
                _check(found, path)
    found.recordings = _with_unique_names(read)
    found.print_skipped(unnamed=unnamed)
    if not found.recordings:
        raise UsageError(
            "no usable recorded session", hint="Give files of recorded sessions, or a session ID."
        )
    return found


def _check(found: LoadedRecordings, log: Path) -> None:
    """Rebuild the requests of one of our own sessions and compare them with the recorded ones."""
    from ..replay.request_check import RequestCheck, check_with_subagents

    try:
        checked = check_with_subagents(log)
    except CtxagentError as error:  # e.g. an unreadable log of a subagent
        checked = RequestCheck(warnings=(error.message,))
    found.checked = (found.checked or RequestCheck()) + checked


def _is_own(path: Path, recording: "Recording") -> bool:
    from ..session.log import LOG_NAME

    return recording.format == OWN_FORMAT and path.name == LOG_NAME


def _with_unique_names(read: "Sequence[tuple[Path, Recording]]") -> "list[Recording]":
    """Return the recordings. Folders are added to names that several recordings have."""
    from dataclasses import replace

    names = [recording.name for _, recording in read]
    folders = [
        (path.parent if _is_own(path, recording) else path).absolute().parts[:-1]
        for path, recording in read
    ]
    for depth in range(1, max(map(len, folders), default=0) + 1):
        counts = Counter(names)
        names = [
            "/".join((*folder[-depth:], recording.name)) if counts[name] > 1 else name
            for name, folder, (_, recording) in zip(names, folders, read, strict=True)
        ]
    return [replace(recording, name=name) for name, (_, recording) in zip(names, read, strict=True)]


def _paths(options: dict[str, Any], files: Sequence[str]) -> list[Path]:
    """Return the named files, or all sessions of the directory."""
    from ..session.log import LOG_NAME

    project = project_of(options)
    if not files:
        logs = project.logs()
        if not logs:
            raise UsageError(
                f"there is no session for {project.cwd} yet",
                hint="Name files: ctxagent replay FILE..., such as ~/.claude/projects/*/*.jsonl",
            )
        return list(logs)
    paths = []
    for name in files:
        path = Path(name)
        inside = path / LOG_NAME
        if path.is_dir() and inside.is_file():
            path = inside
        elif not path.exists() and path.name == name and "." not in name:
            path = project.find_log(name)
        paths.append(path)
    return list(dict.fromkeys(paths))
