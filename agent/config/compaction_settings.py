"""The settings of compaction, memory and state directory.

The names of the presets are here. Their numbers are in `compaction.policy`.
"""

from pathlib import Path
from typing import Literal, get_args

from ..lazy import dataclass
from .keys import (
    DAYS_OR_OFF,
    FOLDER,
    GIGABYTES_OR_OFF,
    MODEL_ID,
    SENTENCES,
    SWITCH,
    THRESHOLD_OR_OFF,
    THRESHOLDS,
    TOKENS,
    TOOL_NAME_LIST,
    ValueType,
    loosens_if_different,
    loosens_if_later,
    loosens_if_turned,
    loosens_never,
    one_of,
    or_none,
    or_preset,
    setting,
    text_matching,
    whole_number,
)

PresetName = Literal["default", "lean", "append", "small", "v5", "ctx-001", "anchored", "ledger"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)


MemoryOffer = Literal["auto", "always"]
_PLACE = text_matching(
    'a folder: within the project, absolute, or below "~/"',
    r"(?!\s)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+",
    Path,
)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """[memory]"""

    path: Path | None = setting(
        None,
        or_none("auto", _PLACE),
        'The folder of the facts about the project, such as ".ctxagent/memory". "auto": in '
        "your state folder.",
        loosens=loosens_if_different,
    )
    offer: MemoryOffer = setting(
        "auto",
        one_of(MemoryOffer),
        'When the model can save facts. "auto": in projects that already have facts.',
        loosens=loosens_if_later(MemoryOffer),
    )


@dataclass(frozen=True, slots=True)
class StateSettings:
    """[state]"""

    dir: Path | None = setting(
        None,
        or_none("auto", FOLDER),
        'Where sessions are kept. "auto": $XDG_STATE_HOME/ctxagent or ~/.local/state/ctxagent.',
        loosens=loosens_if_different,
    )
    redact: bool = setting(
        False,
        SWITCH,
        "Whether to remove apparent keys and tokens from results before they are stored.",
        loosens=loosens_if_turned(False),
    )
    max_gb: float | None = setting(
        5,
        GIGABYTES_OR_OFF,
        "The limit of the state directory in GB. To meet it, the oldest sessions that no one used "
        'for 30 days are removed. "off": no limit.',
        loosens=loosens_if_different,
    )
    max_age_days: int | None = setting(
        None,
        DAYS_OR_OFF,
        "The days without use after which a session is removed; below 30, only by `ctxagent "
        'sessions prune`. "off": never.',
        loosens=loosens_if_different,
    )


Preset = Literal["preset"]  # stands for the value in the policy
CompactMode = Literal["auto", "remind", "off"]
Summarizer = Literal["model", "api", "mechanical"]
ClearingMode = Literal["auto", "every-call", "from", "off"]
Threshold = int | float | Preset | None  # tokens, share of the window, or off


def _by_preset(value_type: ValueType, help: str) -> Preset:
    return setting("preset", or_preset(value_type), help, loosens=loosens_if_different)


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """[compact]"""

    preset: PresetName = setting(
        "default",
        one_of(PresetName),
        'The set of rules that gives every key with the value "preset" its value.',
        loosens=loosens_if_different,
    )
    mode: CompactMode = setting(
        "auto",
        one_of(CompactMode),
        '"auto" summarises at compact.at, "remind" only reminds you, "off" also clears nothing.',
        loosens=loosens_if_later(CompactMode),
    )
    at: Threshold = _by_preset(
        THRESHOLD_OR_OFF, 'The context size that triggers a summary. "off": no size.'
    )
    prepare_at: Threshold = _by_preset(
        THRESHOLD_OR_OFF,
        'The context size at which to write the summary in the background. "off": at compact.at.',
    )
    keep_tokens: int | Preset = _by_preset(
        TOKENS,
        "How many of the newest tokens a summary keeps unchanged, at most 15 % of the window.",
    )
    keep_messages: int | Preset = _by_preset(
        whole_number("messages", 0),
        "How many of the newest messages a summary always keeps unchanged.",
    )
    while_away: bool | Preset = _by_preset(
        SWITCH,
        "Whether to summarise from the log, if it pays, when you return after the cache has "
        "expired.",
    )
    model: str | None = setting(
        None,
        or_none("auto", MODEL_ID),
        'The model that summarises. "auto": model.id, "small": model.small.',
        loosens=loosens_if_different,
    )
    summarizer: Summarizer | Preset = _by_preset(
        one_of(Summarizer),
        'Who writes the summary: the "model", the "api" itself if it can, or "mechanical": no '
        "model.",
    )
    instructions: tuple[str, ...] = setting(
        (),
        SENTENCES,
        "What every summary must keep, in your words.",
        adds=True,
        loosens=loosens_never,
    )


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """[move]"""

    above: int | Preset | None = _by_preset(
        or_none("off", whole_number("tokens", 1)),
        'Move a larger result of a command, search or MCP server to a file. "off": never.',
    )
    reads_above: int | Preset = _by_preset(
        whole_number("tokens", 1),
        "The same for files and pages that are read; the larger of the two limits applies.",
    )
    preview_chars: int | Preset = _by_preset(
        whole_number("characters", 0), "The length of the preview that the model gets."
    )
    line_numbers: bool | Preset = _by_preset(SWITCH, "Whether files are read with line numbers.")


@dataclass(frozen=True, slots=True)
class ClearSettings:
    """[clear]"""

    when: ClearingMode = setting(
        "auto",
        one_of(ClearingMode),
        "When to clear old results: as set by the preset, at each call, from a size on, or never.",
        loosens=loosens_if_different,
    )
    from_: Threshold = _by_preset(
        THRESHOLD_OR_OFF,
        'The context size for clear.when = "from". "off": no size.',
    )
    keep: int | Preset = _by_preset(
        whole_number("results", 0), "How many of the newest results are never cleared."
    )
    above: int | Preset = _by_preset(TOKENS, "Only results above this size are cleared.")
    tools: tuple[str, ...] | Preset = _by_preset(
        TOOL_NAME_LIST, "Only results of these tools are cleared."
    )
    outline: bool | Preset = _by_preset(
        SWITCH, "Whether to outline old, finished calls if this saves money: one line for each."
    )


@dataclass(frozen=True, slots=True)
class TruncateSettings:
    """[truncate]"""

    at: Threshold = _by_preset(
        THRESHOLD_OR_OFF,
        'The context size from which to truncate long inputs of old calls. "off": never.',
    )


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """[checkpoint]"""

    at: Threshold = _by_preset(
        THRESHOLD_OR_OFF, 'The context size at which to save a checkpoint. "off": at no size.'
    )


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """[context]"""

    notify: tuple[int | float, ...] = setting(
        (),
        THRESHOLDS,
        "The context sizes at which to notify you and run hooks.context_reached.",
        loosens=loosens_never,
    )
    tell_model: tuple[int | float, ...] = setting(
        (0.5, 0.75),
        THRESHOLDS,
        "The context sizes at which the model gets a line about its window.",
        loosens=loosens_if_different,
    )
    tool: bool = setting(
        False,
        SWITCH,
        "Whether the model has a tool to list and drop large results and to ask for a summary.",
        loosens=loosens_if_turned(True),
    )
