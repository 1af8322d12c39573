"""The settings: one declaration of every key, its shape, its default and what it does.

A section is a frozen dataclass, a key one of its fields, annotated with the `Key` that tells how
to read it. Parsing, the names of environment variables, `config --explain`, the documentation and
the checks of `.agentrc.example` all follow from `KEYS`; to add a key, add a field (to add a
section, a class and a field of `Settings`). Where values come from is `config.py`'s concern.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_args

from ..keys import Key, differs, off
from ..shapes import SWITCH, one_of, optional, whole
from .context import (
    CheckpointSettings,
    CompactSettings,
    DemoteSettings,
    MicrocompactSettings,
    PreserveSettings,
    TruncateSettings,
)
from .effects import BashSettings, HookSettings, PermissionSettings, SandboxSettings
from .values import ADDRESS, FOLDER, MODEL_ID, Editing, Effort, Theme, scripted


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """[model]"""

    # The same id as `model.base.DEFAULT_MODEL`, which would bring the whole wire along.
    id: Annotated[str, Key(MODEL_ID, "The model that answers.", loosens=scripted)] = (
        "claude-sonnet-5-5"
    )
    context_window: Annotated[
        int | None,
        Key(
            optional("auto", whole("tokens", 1)), 'Its window. "auto": what is known of the model.'
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        Key(
            optional("auto", whole("tokens", 1)), 'The longest reply. "auto": as the model allows.'
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        Key(
            optional("auto", one_of(Effort)),
            'How hard it thinks. "auto": the model\'s own default.',
        ),
    ] = None
    base_url: Annotated[
        str | None,
        Key(
            optional("auto", ADDRESS),
            'The server that is asked, and is sent the key. "auto": the public API.',
            loosens=differs,
            alias="ANTHROPIC_BASE_URL",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class StateSettings:
    """[state]"""

    dir: Annotated[
        Path | None,
        Key(
            optional("auto", FOLDER),
            'Where sessions are kept. "auto": $XDG_STATE_HOME/ctxagent or ~/.local/state/ctxagent.',
            loosens=differs,
        ),
    ] = None
    redact: Annotated[
        bool,
        Key(
            SWITCH,
            "Known shapes of keys and tokens are taken out of results before they are kept.",
            loosens=off,
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class UiSettings:
    """[ui]"""

    theme: Annotated[
        Theme,
        Key(
            one_of(Theme),
            'Colours for a "dark" or "light" background; "ansi": the terminal\'s sixteen; '
            '"auto" finds out.',
        ),
    ] = "auto"
    editing_mode: Annotated[Editing, Key(one_of(Editing), "Keys of the input line.")] = "emacs"
    plain: Annotated[bool, Key(SWITCH, "Lines only: no colour, nothing animated or redrawn.")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked."""

    model: ModelSettings = field(default_factory=ModelSettings)
    compact: CompactSettings = field(default_factory=CompactSettings)
    demote: DemoteSettings = field(default_factory=DemoteSettings)
    microcompact: MicrocompactSettings = field(default_factory=MicrocompactSettings)
    truncate: TruncateSettings = field(default_factory=TruncateSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    preserve: PreserveSettings = field(default_factory=PreserveSettings)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    bash: BashSettings = field(default_factory=BashSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    hooks: HookSettings = field(default_factory=HookSettings)
    state: StateSettings = field(default_factory=StateSettings)
    ui: UiSettings = field(default_factory=UiSettings)


def _declared() -> Iterator[Key]:
    for section, group in SECTIONS.items():
        for each in fields(group):
            key: Key = get_args(each.type)[1]
            yield key._replace(name=_name(section, each), default=each.default)


def _name(section: str, one: Field[Any]) -> str:
    return f"{section}.{one.name.removesuffix('_')}"  # `from` is a word of Python's own


SECTIONS: dict[str, Any] = {each.name: each.type for each in fields(Settings)}
KEYS: dict[str, Key] = {key.name: key for key in _declared()}


def build(given: dict[str, Any]) -> Settings:
    """Settings from a value for each of `KEYS`."""
    return Settings(
        **{
            section: group(**{f.name: given[_name(section, f)] for f in fields(group)})
            for section, group in SECTIONS.items()
        }
    )


def by_key(settings: Settings) -> dict[str, Any]:
    """The value of each of `KEYS`: `build` the other way round."""
    return {
        _name(section, f): getattr(getattr(settings, section), f.name)
        for section, group in SECTIONS.items()
        for f in fields(group)
    }
