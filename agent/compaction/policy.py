"""Policy: when each layer acts and what it keeps. The presets carry each source document's numbers.

| | default | v5 (S4) | ctx-001 (S0, S1) | anchored (S2) | ledger (S3) |
| --- | --- | --- | --- | --- | --- |
| demote above, tokens | 10,000 | 40,000 | 15,000 | 10,000 | 10,000 |
| clear old results | when it pays | every call | from 50 % | 85 % | default |
| truncate persisted inputs | from 50 % | off | from 50 % | from 85 % | from 50 % |
| prepare a summary | from 70 % | off | off | from 70 % | off |
| summarise | at 93 % | 93 % | 75 % | 85 % | 95 % (190k of 200k) |
| keep verbatim | tail | 5 messages | tail | tail | tail |
| checkpoint | at 85 % | off | at 75 %, 85 % | with a summary | before a summary, at the end |
| summarise besides | | | | todo list done, 20 turns | at the end |
"""

from dataclasses import dataclass, replace
from typing import Literal

from ..context.window import Window
from .categories import STANDARD, Rules

Threshold = int | float | None  # tokens, share of the window up to 1.0, or off
When = Literal["pays", "every-call", "from", "off"]
Mode = Literal["auto", "remind", "off"]
Summarizer = Literal["model", "mechanical"]


@dataclass(frozen=True, slots=True)
class Policy:
    """All thresholds. Sizes are in estimated tokens.

    `clear_when`: with "pays" the account decides, for results and from `truncate_at` on for inputs
    too. "from" clears at every call from `clear_from` on. The tail that
    a summary leaves verbatim is `keep_messages` messages at least and `keep_tokens` (at most
    `keep_share` of the window) where that is more; `keep_tokens` 0 keeps exactly the messages.
    `preview_lines` shortens a reference to that many lines from the beginning. With `brief_reads`
    the stub of a Read that was superseded names path and lines (S3), and `rules` say what is kept
    and what may go.

    A checkpoint is taken as the context reaches `checkpoint_at`, and with `checkpoint_always`
    before every summary. At `fresh_at` one more is taken and a fresh session recommended (S1's
    HOOK-CTX-005). With `boundaries` a finished todo list (S2's "task boundary") and more than
    `turns` turns since the last summary are reasons for one too; with `at_end`, the end of the
    session (S3).
    """

    preset: str = "default"
    mode: Mode = "auto"
    demote_above: int | None = 10_000
    preview_chars: int = 2_000
    preview_lines: int | None = None
    clear_when: When = "pays"
    clear_from: Threshold = 0.50
    clear_keep: int = 3
    clear_above: int = 1_000
    clear_tools: tuple[str, ...] = ("Bash", "Read", "Grep", "Glob")
    truncate_at: Threshold = 0.50
    prepare_at: Threshold = 0.70
    summarize_at: Threshold = 0.93
    keep_tokens: int = 20_000
    keep_share: float = 0.15
    keep_messages: int = 5
    summarizer: Summarizer = "model"
    model: str | None = None
    checkpoint_at: Threshold = 0.85
    checkpoint_always: bool = False
    fresh_at: Threshold = None
    boundaries: bool = False
    turns: int | None = None
    at_end: bool = False
    brief_reads: bool = False
    rules: Rules = STANDARD


DEFAULT = Policy()
PRESETS: dict[str, Policy] = {
    "default": DEFAULT,
    "v5": replace(
        DEFAULT,
        preset="v5",
        demote_above=40_000,
        clear_when="every-call",
        truncate_at=None,
        prepare_at=None,
        keep_tokens=0,
        checkpoint_at=None,
    ),
    "ctx-001": replace(
        DEFAULT,
        preset="ctx-001",
        demote_above=15_000,
        preview_lines=10,
        clear_when="from",
        prepare_at=None,
        summarize_at=0.75,
        checkpoint_at=0.75,
        fresh_at=0.85,
    ),
    "anchored": replace(
        DEFAULT,
        preset="anchored",
        clear_when="from",
        clear_from=0.85,
        truncate_at=0.85,
        summarize_at=0.85,
        checkpoint_at=None,
        checkpoint_always=True,
        boundaries=True,
        turns=20,
    ),
    "ledger": replace(
        DEFAULT,
        preset="ledger",
        prepare_at=None,
        summarize_at=0.95,
        checkpoint_at=None,
        checkpoint_always=True,
        at_end=True,
        brief_reads=True,
        rules=replace(STANDARD, expected=True),
    ),
}


def reached(threshold: Threshold, window: Window) -> bool:
    """Whether the context has come to a threshold; never, when it is off."""
    limit = tokens_at(threshold, window)
    return limit is not None and window.tokens >= limit


def tokens_at(threshold: Threshold, window: Window) -> float | None:
    """The tokens of context at which a threshold is reached; None when it is off."""
    return threshold * window.size if isinstance(threshold, float) else threshold
