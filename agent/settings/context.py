"""The sections of how the context is kept small."""

from dataclasses import dataclass
from typing import Annotated

from ..compaction.categories import ALWAYS, COMPACTABLE
from ..keys import Key, fewer, more, off
from ..shapes import SWITCH, THRESHOLD, one_of, optional, or_preset, whole
from .values import (
    INSIDE,
    KEPT,
    MODEL_ID,
    TAKEN,
    TOOLS,
    Clearing,
    Compacting,
    Preset,
    PresetName,
    Summarizer,
    Threshold,
    scripted,
)


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
            loosens=scripted,
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
        Key(
            one_of(Clearing),
            "When old results are cleared: by the preset, at each call, from a level on, never.",
        ),
    ] = "auto"
    from_: Annotated[
        Threshold,
        Key(
            or_preset(optional("off", THRESHOLD)),
            'That level, in ctx-001, anchored, and where "when" is "from". "off": at no size.',
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
            'From here on, inputs of old edits that are on disk may be cut short. "off": never.',
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
