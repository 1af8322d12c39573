"""The settings: one declaration of every key, its shape, its default and what it does.

A section is a frozen dataclass, a key one of its fields, annotated with the `Key` that tells how
to read it. Parsing, the names of environment variables, `config --explain`, the documentation and
the checks of `.agentrc.example` all follow from `KEYS`; to add a key, add a field (to add a
section, a class and a field of `Settings`). Where values come from is `config.py`'s concern.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from .compaction.categories import ALWAYS, COMPACTABLE, Always, Compactable, canonical
from .keys import Key, differs, fewer, more, off
from .shapes import (
    SWITCH,
    THRESHOLD,
    including,
    many,
    matching,
    one_of,
    optional,
    or_preset,
    respelled,
    whole,
)

_VISIBLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # nothing that moves a cursor when it is shown


def _scripted(new: Any, current: Any) -> bool:
    return str(new).startswith("scripted:")  # such a model says what the project wrote for it


def _laxer(new: Any, current: Any) -> bool:
    modes = get_args(Mode)
    return modes.index(new) > modes.index(current)


Preset = Literal["preset"]
PresetName = Literal["default", "v5", "ctx-001", "anchored", "ledger"]
Compacting = Literal["auto", "remind", "off"]
Summarizer = Literal["model", "mechanical"]
Clearing = Literal["auto", "every-call", "off"]
Threshold = int | float | Preset | None  # tokens, share of the window, off
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Mode = Literal["plan", "ask", "accept-edits", "bypass"]  # from the strictest to the laxest
Theme = Literal["auto", "dark", "light", "ansi"]
Editing = Literal["emacs", "vi"]

MODEL_ID = matching("the id of a model", rf"(?!\s){_VISIBLE}+")
ADDRESS = matching("an http:// or https:// address", r"https?://[!-.0-~][!-~]*")
FOLDER = matching('a folder, absolute or below "~/"', rf"(?:/|~(?=/|$)){_VISIBLE}*", Path)
VARIABLES = many(matching("the name of a variable", r"[A-Za-z_][A-Za-z0-9_]*"))
RULES = many(matching('a rule such as "Bash(git status:*)"', rf"(?!\s){_VISIBLE}+"))
TOOLS = many(matching("the name of a tool", r"[A-Za-z_][A-Za-z0-9_]*"))
COMMANDS = many(matching("a shell command on one line", rf"(?!\s){_VISIBLE}+"))
INSIDE = matching("a path within the project", rf"(?![/~\s])(?!(?:.*/)?\.\.(?:/|$)){_VISIBLE}+")
KEPT = many(respelled(canonical, one_of(Always)))
TAKEN = including("thinking_blocks", many(respelled(canonical, one_of(Compactable))))


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """[model]"""

    # The same id as `model.base.DEFAULT_MODEL`, which would bring the whole wire along.
    id: Annotated[str, Key(MODEL_ID, "The model that answers.", loosens=_scripted)] = (
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
class CompactSettings:
    """[compact]"""

    preset: Annotated[
        PresetName,
        Key(one_of(PresetName), 'The policy: the numbers of every key that says "preset".'),
    ] = "default"
    mode: Annotated[
        Compacting,
        Key(
            one_of(Compacting),
            '"auto" summarises when due, "remind" says so instead, "off" clears nothing either.',
        ),
    ] = "auto"
    at: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'From here on a summary is due. "off": at no size.',
        ),
    ] = "preset"
    prepare_at: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'From here on it is written in the background. "off": when it is due.',
        ),
    ] = "preset"
    keep_tokens: Annotated[
        int | Preset,
        Key(
            or_preset(whole("tokens", 0)),
            "The newest part that a summary leaves as it is, at most 15 % of the window.",
        ),
    ] = "preset"
    keep_messages: Annotated[
        int | Preset,
        Key(or_preset(whole("messages", 0)), "So many of the newest messages stay in any case."),
    ] = "preset"
    model: Annotated[
        str | None,
        Key(
            optional("auto", MODEL_ID),
            'The model that summarises. "auto": the one that answers.',
            loosens=_scripted,
        ),
    ] = None
    summarizer: Annotated[
        Summarizer,
        Key(one_of(Summarizer), 'Who summarises; "mechanical" works from the records alone.'),
    ] = "model"


@dataclass(frozen=True, slots=True)
class DemoteSettings:
    """[demote]"""

    above: Annotated[
        int | Preset | None,
        Key(
            or_preset(optional("off", whole("tokens", 1))),
            'A larger tool result goes to a file, and a preview to the model. "off": never.',
        ),
    ] = "preset"
    preview_chars: Annotated[
        int | Preset, Key(or_preset(whole("characters", 0)), "The length of that preview.")
    ] = "preset"


@dataclass(frozen=True, slots=True)
class MicrocompactSettings:
    """[microcompact]"""

    when: Annotated[
        Clearing,
        Key(one_of(Clearing), 'When old tool results are cleared. "auto": as the preset says.'),
    ] = "auto"
    from_: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'From here on they are cleared even if it does not pay yet. "off": at no size.',
        ),
    ] = "preset"
    keep: Annotated[
        int | Preset, Key(or_preset(whole("results", 0)), "So many of the newest always stay.")
    ] = "preset"
    above: Annotated[
        int | Preset, Key(or_preset(whole("tokens", 0)), "Only larger results are cleared.")
    ] = "preset"
    tools: Annotated[
        tuple[str, ...] | Preset,
        Key(or_preset(TOOLS), "Only results of these tools are cleared."),
    ] = "preset"


@dataclass(frozen=True, slots=True)
class TruncateSettings:
    """[truncate]"""

    at: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'From here on, old edits that are on disk are cut to a summary. "off": never.',
        ),
    ] = "preset"


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """[checkpoint]"""

    at: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'As the context gets here, a checkpoint is taken. "off": at no size.',
        ),
    ] = "preset"


@dataclass(frozen=True, slots=True)
class PreserveSettings:
    """[preserve]"""

    always: Annotated[
        tuple[str, ...],
        Key(KEPT, "What every compaction keeps: `ctxagent rules` explains each.", loosens=fewer),
    ] = ALWAYS
    compactable: Annotated[
        tuple[str, ...],
        Key(
            TAKEN,
            "Which old results may be cleared. Thinking always goes with what it was bound to.",
            loosens=more,
        ),
    ] = COMPACTABLE
    strict: Annotated[
        bool, Key(SWITCH, "A section that is missing prevents a compaction.", loosens=off)
    ] = False
    notes: Annotated[str, Key(INSIDE, "The file with the sections that are kept.")] = "NOTES.md"
    run_state: Annotated[
        str, Key(INSIDE, "A pattern for files that tell whether a run goes on by itself.")
    ] = ".run/*.json"


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[permissions]"""

    mode: Annotated[
        Mode,
        Key(
            one_of(Mode),
            'What is done where no rule speaks. "plan" changes nothing, "bypass" asks nothing.',
            loosens=_laxer,
        ),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...],
        Key(RULES, "Calls that need no question.", adds=True, loosens=differs),
    ] = ()
    ask: Annotated[
        tuple[str, ...], Key(RULES, "Calls that are always asked about.", adds=True)
    ] = ()
    deny: Annotated[tuple[str, ...], Key(RULES, "Calls that are never made.", adds=True)] = ()


@dataclass(frozen=True, slots=True)
class BashSettings:
    """[bash]"""

    keep_env: Annotated[
        tuple[str, ...],
        Key(
            VARIABLES,
            "Variables that commands may see although they look like secrets.",
            loosens=differs,
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class HookSettings:
    """[hooks]"""

    before_compact: Annotated[
        tuple[str, ...],
        Key(
            COMMANDS,
            "Shell commands to run before each compaction; exit code 2 prevents it.",
            adds=True,
            loosens=differs,
        ),
    ] = ()
    after_compact: Annotated[
        tuple[str, ...],
        Key(
            COMMANDS,
            "Shell commands to run after each compaction.",
            adds=True,
            loosens=differs,
        ),
    ] = ()


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

    model: ModelSettings = ModelSettings()
    compact: CompactSettings = CompactSettings()
    demote: DemoteSettings = DemoteSettings()
    microcompact: MicrocompactSettings = MicrocompactSettings()
    truncate: TruncateSettings = TruncateSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    preserve: PreserveSettings = PreserveSettings()
    permissions: PermissionSettings = PermissionSettings()
    bash: BashSettings = BashSettings()
    hooks: HookSettings = HookSettings()
    state: StateSettings = StateSettings()
    ui: UiSettings = UiSettings()


def _declared() -> Iterator[Key]:
    for section, group in SECTIONS.items():
        for field in fields(group):
            key: Key = get_args(field.type)[1]
            yield key._replace(name=_name(section, field), default=field.default)


def _name(section: str, field: Field[Any]) -> str:
    return f"{section}.{field.name.removesuffix('_')}"  # `from` is a word of Python's own


SECTIONS: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
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
