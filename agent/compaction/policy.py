"""Policy: when each layer acts and what it keeps, with the numbers of the main presets.

| | default | v5 | ctx-001 | anchored | ledger |
| --- | --- | --- | --- | --- | --- |
| move to a file above, tokens | 3,000 (reads: 10,000) | 40,000 | 15,000 | 10,000 | 10,000 |
| line numbers of files | no | yes | yes | yes | yes |
| clear old results | when it pays | every call | from 50 % | from 85 % | when it pays |
| outline old calls | when it pays | off | off | off | off |
| shorten old inputs from | 1 % (when it pays) | off | 50 % | 85 % | 50 % (when it pays) |
| inputs to shorten | all | none | on disk | on disk | on disk |
| prepare a summary | from 70 % | off | off | from 70 % | off |
| summarise | at 93 % | 93 % | 75 % | 85 % | 95 % (190k of 200k) |
| keep verbatim | tail | 5 messages | tail | tail | tail |
| checkpoint | at 85 % | off | at 75 %, 85 % | before a summary | before a summary, at the end |
| also summarise | after a pause | | | todo list done, 20 turns | at the end |
"""

from dataclasses import asdict, field, replace
from math import ceil
from typing import Any, Literal

from ..config.compaction_settings import CompactMode, Summarizer
from ..config.keys import PRESET, value_text
from ..config.load import SettingRow
from ..config.preservation import DEFAULT_PRESERVE_RULES, PreserveRules
from ..config.settings import KEYS, Settings, values_by_key
from ..context.window import Window
from ..lazy import dataclass

PolicyThreshold = int | float | None  # tokens, share of the window up to 1.0, or off
ClearWhen = Literal["pays", "every-call", "from", "off"]
SummarizeWhen = Literal["full", "pays"]

# Tools that return a text to read in full: a file, an entry, a page, a report. Of other tools'
# results, little is used later.
_READING_TOOLS = ("Read", "Recall", "WebFetch", "Skill", "Task")


@dataclass(frozen=True, slots=True)
class Policy:
    """All thresholds. Sizes are in estimated tokens."""

    preset: str = "default"
    mode: CompactMode = "auto"
    move_above: int | None = 3_000
    move_reads_above: int = 10_000  # the same for tools that read (`_READING_TOOLS`)
    preview_chars: int = 4_000
    preview_lines: int | None = None  # limits a preview to this many lines from the beginning
    preview_end: bool = True  # False: a preview shows only the beginning of a text
    line_numbers: bool = False  # show the line numbers of files that were read
    clear_when: ClearWhen = "pays"  # "from" clears at every call from `clear_from` on
    # What reading the old texts must have cost before an edit, as a multiple of the price of the
    # rewrite. With 1.0, edits come sooner, and fewer texts share a rewrite.
    edit_margin: float = 2.0
    clear_from: PolicyThreshold = 0.50
    clear_keep: int = 3  # newest results that are not cleared
    clear_above: int = 100
    clear_tools: tuple[str, ...] = (
        "Bash", "Job", "Read", "Grep", "Glob", "Mcp", "WebFetch", "WebSearch", "Recall",
    )  # fmt: skip
    clear_silently: bool = False  # clearing is only logged, not shown
    # Shorten old inputs from this fill level on; if `clear_when` is "pays", only when it pays.
    truncate_at: PolicyThreshold = 0.01
    truncate: Literal["all", "persisted"] = "all"  # inputs of any tool, or of edits still on disk
    prepare_at: PolicyThreshold = 0.70
    outline: bool = True  # shorten old exchanges to one line each, when that pays
    while_away: bool = True  # summarise when the user returns after the cache has expired
    summarize_at: PolicyThreshold = 0.93
    summarize_when: SummarizeWhen = "full"  # "pays": also below `summarize_at`, when that pays
    summarize_first: bool = False  # when a summary is due, summarise first and clear afterwards
    # A summary leaves a tail verbatim: at least `keep_messages` messages, and more up to
    # `keep_tokens` (at most `keep_share` of the window).
    keep_tokens: int = 20_000
    keep_share: float = 0.15
    keep_messages: int = 5
    summarizer: Summarizer = "model"
    model: str | None = None  # writes summaries; None: the session's model
    examiner: str | None = None  # answers the probes of a summary; None: `model`
    checkpoint_at: PolicyThreshold = 0.85
    checkpoint_always: bool = False  # before every summary
    fresh_at: PolicyThreshold = None  # take a checkpoint and recommend a fresh session
    boundaries: bool = False  # summarise when the todo list is done
    turns: int | None = None  # summarise after more turns than this
    at_end: bool = False  # a summary or checkpoint at the end of the session
    brief: bool = False  # fewer tools and shorter texts, for small models
    brief_reads: bool = False  # the stub of a superseded Read names only path and lines
    instructions: tuple[str, ...] = ()  # of the user, for every summary
    rules: PreserveRules = DEFAULT_PRESERVE_RULES  # categories that are kept or may be cleared
    saves_time: bool = True  # follows the speed of a local server, see `in_time`
    fixed: frozenset[str] = field(default=frozenset(), compare=False)  # fields set by the user

    @property
    def is_published(self) -> bool:
        """True if the numbers are those of a published document, whose names are then shown."""
        return self.preset in PUBLISHED_PRESETS

    def moves_above(self, tool: str) -> int | None:
        """Return the token limit above which a result of a tool is moved to a file; None if off."""
        if self.move_above is None or tool not in _READING_TOOLS:
            return self.move_above
        return max(self.move_above, self.move_reads_above)

    def moving_above(self, tokens: int) -> "Policy":
        """Return the policy with this limit for the results of all tools."""
        return replace(self, move_above=tokens, move_reads_above=tokens)


PUBLISHED_PRESETS = ("v5", "ctx-001", "anchored", "ledger")
DEFAULT = Policy()
# Outlines and summaries after a pause were measured to help only with the settings of the default.
_WITHOUT_OUTLINES = replace(DEFAULT, outline=False, while_away=False)
_PUBLISHED = replace(
    _WITHOUT_OUTLINES, saves_time=False, line_numbers=True, preview_chars=2_000, clear_above=1_000
)
PRESETS: dict[str, Policy] = {
    "default": DEFAULT,
    "lean": replace(
        _WITHOUT_OUTLINES,
        preset="lean",
        edit_margin=1.0,
        clear_keep=1,  # the chances of a miss protect the newest results
        move_reads_above=6_000,
        preview_chars=3_000,
        summarize_when="pays",
        keep_tokens=8_000,
    ),
    "append": replace(
        _WITHOUT_OUTLINES,
        preset="append",
        move_reads_above=4_000,
        preview_chars=3_000,
        clear_when="off",
        truncate_at=None,
        summarize_when="pays",
        summarizer="api",
        keep_tokens=8_000,
    ),
    # For models that cannot write a usable summary, in windows of 8,000 to 32,000 tokens.
    "small": replace(
        _WITHOUT_OUTLINES,
        preset="small",
        move_above=1_500,
        move_reads_above=1_500,
        preview_chars=1_000,
        prepare_at=None,
        keep_tokens=2_000,
        keep_messages=2,
        summarizer="mechanical",
        brief=True,
    ),
    "v5": replace(
        _PUBLISHED,
        preset="v5",
        move_above=40_000,
        preview_end=False,
        clear_when="every-call",
        clear_silently=True,
        truncate_at=None,
        prepare_at=None,
        keep_tokens=0,
        checkpoint_at=None,
    ),
    "ctx-001": replace(
        _PUBLISHED,
        preset="ctx-001",
        move_above=15_000,
        preview_lines=10,
        clear_when="from",
        truncate_at=0.50,
        truncate="persisted",
        prepare_at=None,
        summarize_at=0.75,
        checkpoint_at=0.75,
        fresh_at=0.85,
    ),
    "anchored": replace(
        _PUBLISHED,
        preset="anchored",
        move_above=10_000,
        clear_when="from",
        clear_from=0.85,
        truncate_at=0.85,
        truncate="persisted",
        summarize_at=0.85,
        summarize_first=True,
        checkpoint_at=None,
        checkpoint_always=True,
        boundaries=True,
        turns=20,
    ),
    "ledger": replace(
        _PUBLISHED,
        preset="ledger",
        move_above=10_000,
        truncate_at=0.50,
        truncate="persisted",
        prepare_at=None,
        summarize_at=0.95,
        checkpoint_at=None,
        checkpoint_always=True,
        at_end=True,
        brief_reads=True,
        rules=replace(DEFAULT_PRESERVE_RULES, expected=True),
    ),
}


def reached(threshold: PolicyThreshold, window: Window) -> bool:
    """Return True if the context has reached a threshold; False if the threshold is off."""
    limit = threshold_tokens(threshold, window)
    return limit is not None and window.tokens >= limit


def threshold_tokens(threshold: PolicyThreshold, window: Window) -> float | None:
    """Return the threshold in tokens; None if it is off."""
    return threshold * window.size if isinstance(threshold, float) else threshold


def summary_due_at(policy: Policy, window: Window) -> int | None:
    """Return the size of the context, in tokens, at which a summary is due; None if off. In a small
    window, this may be below the threshold, to leave room for a reply and for estimation errors.
    """
    level = threshold_tokens(policy.summarize_at, window)
    return None if level is None else min(ceil(level), window.full_at)


def clearing_trigger(policy: Policy, window: Window) -> str:
    """Return the trigger for clearing at this call without break-even; "" for none."""
    if policy.clear_when == "every-call":
        return "every call"
    return "level" if policy.clear_when == "from" and reached(policy.clear_from, window) else ""


_FIELDS = {  # the field of each setting that can be "preset"
    "compact.at": "summarize_at",
    "compact.prepare_at": "prepare_at",
    "compact.keep_tokens": "keep_tokens",
    "compact.keep_messages": "keep_messages",
    "compact.while_away": "while_away",
    "compact.summarizer": "summarizer",
    "move.above": "move_above",
    "move.reads_above": "move_reads_above",
    "move.preview_chars": "preview_chars",
    "move.line_numbers": "line_numbers",
    "clear.from": "clear_from",
    "clear.keep": "clear_keep",
    "clear.above": "clear_above",
    "clear.tools": "clear_tools",
    "clear.outline": "outline",
    "truncate.at": "truncate_at",
    "checkpoint.at": "checkpoint_at",
}


def with_preset_value(row: SettingRow, settings: Settings) -> SettingRow:
    """Return a row that also shows the preset's value if the setting is "preset"."""
    key, name = KEYS.get(row.key), _FIELDS.get(row.key)
    if key is None or name is None or values_by_key(settings)[row.key] != PRESET:
        return row
    value = getattr(PRESETS[settings.compact.preset], name)
    return row._replace(value=f"{PRESET} ({value_text(key, value)})")


def policy_of(settings: Settings) -> Policy:
    """Return the policy of the chosen preset, with the overrides of the settings."""
    compact, clearing, small = settings.compact, settings.clear, settings.model.small
    values = values_by_key(settings)
    chosen: dict[str, Any] = {
        **{name: values[key] for key, name in _FIELDS.items()},
        "mode": compact.mode,
        "model": small if compact.model == "small" else compact.model,
        "examiner": small,
        "clear_when": PRESET if clearing.when == "auto" else clearing.when,
        "instructions": compact.instructions,
        "rules": replace(PRESETS[compact.preset].rules, **asdict(settings.preserve)),
    }
    given = {name: value for name, value in chosen.items() if value != PRESET}
    return replace(PRESETS[compact.preset], **given, fixed=frozenset(given))
