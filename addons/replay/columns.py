"""The input of `ctxagent replay`: the recordings, and the settings to replay them with.

The settings are the columns of the comparison. Recordings are given by path, by session ID, or as
all of a directory. If there are several, unreadable and duplicate recordings are skipped with a
message.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api.base import CtxagentError, UsageError, dataclass
from ...api.cli import Progress, cwd_of, launch_of, load, project_of, say
from ...api.programs import foreign_code
from ...api.session import check_key, extension_source
from ...api.text import clean, count_of

if TYPE_CHECKING:
    from ...api.context import Layer
    from ...api.recordings import Recording
    from ...api.settings import Settings
    from .player import Terms
    from .request_check import RequestCheck

OWN_FORMAT = "ctxagent"


@dataclass(slots=True)
class LoadedRecordings:
    """The recordings, and messages about reading them."""

    recordings: "list[Recording]" = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # reasons for skipped files, by path
    checked: "RequestCheck | None" = None  # check of our own sessions; None if there are none
    of_others: bool = False  # the newest sessions of other agents, because no file was named

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
        from .request_check import RequestCheck

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
    from .formats import load_recording

    found = LoadedRecordings(of_others=not (files or project_of(options).logs()))
    paths = _paths(options, files)
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
    from .request_check import RequestCheck, check_with_subagents

    try:
        checked = check_with_subagents(log)
    except CtxagentError as error:  # e.g. an unreadable log of a subagent
        checked = RequestCheck(warnings=(error.message,))
    found.checked = (found.checked or RequestCheck()) + checked


def _is_own(path: Path, recording: "Recording") -> bool:
    from ...api.record import LOG_NAME

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
    """Return the named files, or all sessions of the directory. If it has none, return the newest
    sessions of other agents on this machine.
    """
    from ...api.record import LOG_NAME
    from .own_history import newest_sessions

    project = project_of(options)
    if not files:
        logs = [*project.logs()]
        logs = logs or [Path(each.path) for each in newest_sessions(Path.home(), os.environ)]
        if not logs:
            raise UsageError(
                f"there is no session for {project.cwd} yet, and none of another agent",
                hint="Name files: ctxagent replay FILE..., such as ~/.claude/projects/*/*.jsonl",
            )
        return logs
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


BASELINE = "summaries only"  # the column that others are compared with


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that the command-line options select."""

    options: Mapping[str, Any]
    ask_model: bool = False  # whether a model writes the summaries
    presets: Sequence[str] = ()
    against: Sequence[str] = ()  # changes of settings, as KEY=VALUE,KEY=VALUE
    fills: int = 0  # points at which to record what fills the window
    layers: "tuple[Callable[[], Layer], ...]" = ()  # of the extensions

    def all(self) -> "list[Terms]":
        """Return the baseline, the presets (by default the current settings), and the changed
        settings.
        """
        from ...api.context import LAYERS
        from ...api.settings import settings_from_flags

        flags = tuple(self.options["settings"])
        off = *(f for each in LAYERS for f in each.off), "compact.while_away=false"
        found = [replace(self._terms(BASELINE, settings_from_flags((*flags, *off))), layers=())]
        for preset in dict.fromkeys(self.presets):
            settings = settings_from_flags((f"compact.preset={preset}", *flags))
            found.append(self._terms(preset, settings))
        if not self.presets:
            found.append(self.changed({}))
        for text in dict.fromkeys(self.against):
            found.append(self.changed(_parse_changes(text), text))
        return found

    def changed(self, values: Mapping[str, str], label: str = "") -> "Terms":
        """Return a column for the current settings with these values changed.

        Raises ConfigError for an unknown setting or value, and UsageError for a setting that must
        be the same in all columns.
        """
        from ...api.context import LAYERS, PRESETS, policy_of

        off = (flag.partition(".")[0] for layer in LAYERS for flag in layer.off)
        sections = ("compact", *dict.fromkeys(off), "checkpoint", "preserve")
        given = tuple(f"{key}={value}" for key, value in values.items())
        options = {**self.options, "settings": (*self.options["settings"], *given)}
        settings = load(options).settings
        same = [key for key in values if key.partition(".")[0] not in sections]
        if same:
            raise UsageError(
                f"{same[0]} must be the same in all columns",
                hint=f"Sections that may differ: {', '.join(sections)}. "
                "--model and -c apply to all columns.",
            )
        if not label:  # use a preset's name if the settings equal it
            preset = settings.compact.preset
            label = preset if policy_of(settings) == PRESETS[preset] else "yours"
        return self._terms(label, settings)

    def _terms(self, label: str, settings: "Settings") -> "Terms":
        from ...api.context import policy_of
        from ...api.models import known_model, make_model
        from ...api.session import base_tools, system_prompt
        from ...api.tools import AskUserTool, PlanTool
        from .player import Terms

        base = load(dict(self.options)).settings  # its model applies to all columns
        id = base.model.id
        row = known_model(id)
        if row is None:
            raise UsageError(
                f"no price is known for the model {id}",
                hint="Choose another with --model, or add its prices to models.toml.",
            )
        window = base.model.context_window or (row.limits.window if row.limits else None)
        if window is None:
            raise UsageError(
                f"the context window of {id} is not known", hint="Set it with --context-window."
            )
        writer = None
        if self.ask_model:
            launch = launch_of(dict(self.options))
            check_key(launch)
            writer = make_model(launch.settings, launch.places.environ, launch.places.state)
        policy = policy_of(settings)
        tools = base_tools(brief=policy.brief)
        tools += () if policy.brief else (AskUserTool(), PlanTool())
        return Terms(
            label=label,
            policy=policy,
            model=id,
            window=window,
            system=system_prompt(brief=policy.brief),
            tools=tuple(tool.schema() for tool in tools),
            writer=writer,
            fills=self.fills,
            layers=self.layers,
        )


def extension_layers(options: dict[str, Any]) -> "tuple[Callable[[], Layer], ...]":
    """Load the extensions, with their formats, and return functions that create their layers."""
    from ...api.session import load_extensions

    loaded = load(options)
    source = extension_source(loaded, cwd_of(options), os.environ)
    if not source.exists:
        return ()
    found = load_extensions(source)
    for warning in found.warnings:
        say(f"warning: {clean(warning)}", err=True)
    given = loaded.settings.extensions
    return tuple(
        partial(_guarded, layer, kind.values(given))
        for kind in found.classes
        for layer in kind.layers
    )


def _guarded(kind: "type[Layer]", settings: Mapping[str, Any]) -> "Layer":
    """Create a layer whose failure ends the replay with an error that names it."""

    @contextmanager
    def guard() -> Iterator[None]:
        with foreign_code() as problems:
            yield
        if problems:
            hint = "Repair the extension, or replay without it."
            raise CtxagentError(f"the layer {kind.name} failed: {problems[0]}", hint=hint)

    layer = kind(settings)
    layer.guard = guard
    return layer


def _parse_changes(text: str) -> dict[str, str]:
    """Parse `KEY=VALUE,KEY=VALUE`. Raises UsageError."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign for key, sign, _ in pairs):
        raise UsageError(
            f"--against {text!r} is not KEY=VALUE,KEY=VALUE",
            hint="As in --against compact.at=0.8,compact.keep_messages=8.",
        )
    return {key.strip(): value.strip() for key, _, value in pairs}
