"""The columns of a comparison: the settings to replay recorded sessions with."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...tools.system.foreign_code import foreign_code
from ...tools.system.unicode import clean
from ..errors import CtxagentError, UsageError
from ..lazy import dataclass
from ..library.launching import check_key, extension_source
from .options import cwd_of, launch_of, load, say

if TYPE_CHECKING:
    from ..compaction.layers.layer import Layer
    from ..config.settings import Settings
    from ..replay.player import Terms

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
        from ..compaction.layers.known import LAYERS
        from ..config.load import settings_from_flags

        flags, off = tuple(self.options["settings"]), (f for each in LAYERS for f in each.off)
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
        from ..compaction.layers.known import LAYERS
        from ..compaction.policy import PRESETS, policy_of

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
        from ...tools.ask_user import AskUserTool
        from ...tools.plan import PlanTool
        from ..assembly import base_tools
        from ..compaction.policy import policy_of
        from ..features.prompt import system_prompt
        from ..models.catalog import known_model
        from ..models.factory import make_model
        from ..replay.player import Terms

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
            writer = make_model(launch.settings, launch.environ, launch.state)
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
    from ..features.extension_features import load_extensions

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
