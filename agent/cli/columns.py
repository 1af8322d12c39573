"""What a replay is played under: settings as the options give them, as columns of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .options import check_key, launch_of, load

if TYPE_CHECKING:
    from ..replay.player import Terms
    from ..settings import Settings

ALONE = "summaries alone"  # what others are compared with: nothing is cleared, moved or cut short
SECTIONS = ("compact", "microcompact", "demote", "truncate", "checkpoint", "preserve")
_FLAGS_ALONE = ("microcompact.when=off", "demote.above=off", "truncate.at=off")


@dataclass(frozen=True, slots=True)
class Columns:
    """`options` are those of the command line, `flags` the settings among them. Each column gives
    the `Terms` to play under."""

    options: Mapping[str, Any]
    ask_model: bool = False
    presets: Sequence[str] = ()
    against: Sequence[str] = ()
    fills: int = 0

    def all(self) -> "list[Terms]":
        """What others are compared with first; then the presets as they are or, without any, the
        settings as they stand; then these with changes."""
        from ..config import flagged

        flags = tuple(self.options["settings"])
        found = [self._terms(ALONE, flagged((*flags, *_FLAGS_ALONE)))]
        for preset in dict.fromkeys(self.presets):
            found.append(self._terms(preset, flagged((f"compact.preset={preset}", *flags))))
        if not self.presets:
            found.append(self.changed({}))
        for text in dict.fromkeys(self.against):
            found.append(self.changed(_changes(text), text))
        return found

    def changed(self, values: Mapping[str, str], label: str = "") -> "Terms":
        """The settings as they stand, with these values in the place of theirs. Raises ConfigError
        for what is no setting or none of its values, UsageError for one that changes nothing here.
        """
        given = tuple(f"{key}={value}" for key, value in values.items())
        options = {**self.options, "settings": (*self.options["settings"], *given)}
        settings = load(options).settings
        if other := next((key for key in values if key.partition(".")[0] not in SECTIONS), ""):
            raise UsageError(
                f"{other} is the same in all columns",
                hint=f"What may differ: {', '.join(SECTIONS)}. --model and -c count for all.",
            )
        return self._terms(label or _named(settings), settings)

    def _terms(self, label: str, settings: "Settings") -> "Terms":
        from ..compose import every_tool, make_model, policy_of
        from ..model.base import MODELS, known
        from ..prompt import system
        from ..replay.player import Terms

        stands = load(dict(self.options)).settings  # whose model counts in every column
        id = stands.model.id
        row = known(id)
        if row is None:
            raise UsageError(
                f"no price is known for the model {id}",
                hint=f"Name one with a price by --model: {', '.join(MODELS)}.",
            )
        writer = None
        if self.ask_model:
            launch = launch_of(dict(self.options))
            check_key(launch)
            writer = make_model(launch.settings, launch.environ)
        return Terms(
            label=label,
            policy=policy_of(settings),
            model=id,
            window=stands.model.context_window or row[0].window,
            system=system(),
            tools=tuple(tool.schema() for tool in every_tool()),
            writer=writer,
            fills=self.fills,
        )


def _changes(text: str) -> dict[str, str]:
    """The settings of `KEY=VALUE,KEY=VALUE`. Raises UsageError."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign for key, sign, _ in pairs):
        raise UsageError(
            f"--against {text!r} is not KEY=VALUE,KEY=VALUE",
            hint="As in --against microcompact.keep=5,demote.above=20000.",
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


def _named(settings: "Settings") -> str:
    """A preset's own name where the settings are just that, else that they are the person's."""
    from ..compaction.policy import PRESETS
    from ..compose import policy_of

    preset = settings.compact.preset
    return preset if policy_of(settings) == PRESETS[preset] else "yours"
