"""The recordings that a command is about: by path, by the id of a session, or all of a directory.
What cannot be read among several is skipped, and so is a session that comes twice; that is told.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CtxagentError, UsageError
from ..ui.visible import clean
from .options import project_of, say
from .progress import Progress

if TYPE_CHECKING:
    from ..replay.faithful import Faithful
    from ..replay.recording import Recording

OWN = "ctxagent"  # the format of our own logs


@dataclass(slots=True)
class Loaded:
    """The recordings; why files were skipped, by path; and whether the requests of our own sessions
    can be made again: None where none of them is ours."""

    recordings: "list[Recording]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    checked: "Faithful | None" = None

    def tell_left_out(self, *, unnamed: bool) -> None:
        if unnamed:
            for what, count in (("skipped", len(self.skipped)), ("note", len(self.notes()))):
                if count:
                    files = f"{count} file{'s' * (count > 1)}"
                    say(f"{what}: {files}; without --unnamed it is said which, and why", err=True)
            return
        for why in self.skipped.values():
            say(f"skipped: {clean(why)}", err=True)
        for name, notes in self.notes().items():
            say(f"note: {clean(name)}: {clean('; '.join(notes))}", err=True)

    def notes(self) -> dict[str, list[str]]:
        """What of each recording was left out, by its name."""
        found: dict[str, list[str]] = {}
        for each in self.recordings:
            rows = [f"{each.skipped:,} lines or items could not be read"] * (each.skipped > 0)
            rows += [f"{each.orphans:,} results have no call"] * (each.orphans > 0)
            if rows := [*rows, *each.notes]:
                found[each.name] = rows
        return found

    def requests(self, *, unnamed: bool) -> dict[str, Any]:
        """Of our own sessions, for programs: how many requests are equal and so on, and the first
        that differs."""
        from ..replay.faithful import Faithful

        checked = self.checked or Faithful()
        told: dict[str, Any] = asdict(checked.total)
        told["first"] = None if checked.first is None else checked.first.told(named=not unnamed)
        if not unnamed:
            told["warnings"] = list(checked.warnings)
        return told

    def tell_checked(self, *, unnamed: bool) -> None:
        """The same for people."""
        if self.checked is None:
            return
        say(f"\nOur own sessions: {self.checked.line()}")
        if self.checked.first is not None:
            say(f"! {clean(self.checked.first.told(named=not unnamed))}")
        for warning in () if unnamed else self.checked.warnings:
            say(f"note: {clean(warning)}", err=True)


def load_all(options: dict[str, Any], files: Sequence[str], *, unnamed: bool = False) -> Loaded:
    """What the files hold. Raises UsageError when nothing is left."""
    from ..replay.formats import load

    found, paths = Loaded(), _paths(options, files)
    read: list[tuple[Path, Recording]] = []
    with Progress("reading") as progress:
        for number, path in enumerate(paths, 1):
            progress.begin(number, len(paths), f"session {number}" if unnamed else path.name)
            try:
                recording = load(path)
            except CtxagentError as error:
                if len(paths) == 1:
                    raise
                found.skipped[str(path)] = error.message
                continue
            same = next((p for p, other in read if _same(recording, other)), None)
            if same is not None:
                found.skipped[str(path)] = f"{path} holds the same session as {same}"
                continue
            read.append((path, recording))
            if _is_own(path, recording):
                _check(found, path)
    found.recordings = _told_apart(read)
    found.tell_left_out(unnamed=unnamed)
    if not found.recordings:
        raise UsageError("no recorded session is left", hint="Name files of one, or a session's id")
    return found


def _check(found: Loaded, log: Path) -> None:
    """Make the requests of one of our own sessions again."""
    from ..replay.faithful import Faithful, check_all

    try:
        checked = check_all(log)
    except CtxagentError as error:  # of a subagent's log
        checked = Faithful(warnings=(error.message,))
    found.checked = (found.checked or Faithful()) + checked


def _is_own(path: Path, recording: "Recording") -> bool:
    from ..record.log import NAME

    return recording.format == OWN and path.name == NAME


def _same(one: "Recording", other: "Recording") -> bool:
    return one.format == other.format and one.steps == other.steps


def _told_apart(read: "Sequence[tuple[Path, Recording]]") -> "list[Recording]":
    """With folders before the names that are alike."""
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
    """The files that are meant."""
    from ..record.log import NAME

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
        inside = path / NAME
        if path.is_dir() and inside.is_file():
            path = inside
        elif not path.exists() and path.name == name and "." not in name:
            path = project.find(name)
        paths.append(path)
    return list(dict.fromkeys(paths))
