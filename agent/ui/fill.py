"""How full the context is, and the next step of compaction, in words.

Status line, `/context` and reports use these words. Names of the source documents (levels, tiers,
gates) are shown with the presets that follow these documents, and on request (`--levels`).
"""

from typing import TYPE_CHECKING

from ..compaction.history import Act, readable_trigger
from ..compaction.layers.known import layer_named
from ..compaction.policy import Policy, PolicyThreshold, summary_due_at, threshold_tokens
from ..lazy import dataclass, regex

if TYPE_CHECKING:
    from ..compaction.engine import CompactionEngine
    from ..context.window import Window

_SEVERITY = regex(r"^(?:LOW|MEDIUM|HIGH|CRITICAL): ")
SOON_SHARE = 0.20  # of the window: a step that is nearer than this is announced


def fullness(window: "Window", *, levels: bool = False) -> str:
    """Return how full the window is, e.g. "51% full"; with `levels`, e.g. "51% ORANGE"."""
    return f"{window.share:.0%} {window.level if levels else 'full'}"


def kind_of(act: Act, *, levels: bool) -> str:
    """Return the kind of an act, e.g. "cleared"; with `levels`, its tier, e.g. "TIER_1"."""
    return act.tier if levels else layer_named(act.layer).heading()


def trigger_text(text: str, *, levels: bool) -> str:
    """Return a trigger or the text of a mark without names of gates and severities; with `levels`,
    as recorded.
    """
    return text if levels else readable_trigger(_SEVERITY.sub("", text))


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step that makes room in the context."""

    text: str = ""  # "" if none comes soon
    user_acts: bool = False  # nothing happens unless the user acts


def next_step(engine: "CompactionEngine", window: "Window") -> NextStep:
    """Return the next step, if it comes soon. Makes no model call."""
    policy = engine.policy
    due_at = summary_due_at(policy, window)
    last = window.full_at if due_at is None else due_at
    if policy.mode == "off":
        return NextStep("run /compact: compaction is off", True) if _when(last, window) else _NONE
    if policy.mode == "remind":
        return NextStep("run /compact", True) if window.tokens >= last else _NONE
    if engine.is_preparing:
        return NextStep("a summary is being written")
    first = _clears_from(policy, window)
    if first is not None and window.tokens < first:
        when = _when(first, window)
        return NextStep(f"{CLEARING} {when}") if when else _NONE
    if not (when := _when(last, window)):
        return _NONE
    clears = due_at is None or engine.tokens_freed_instead_of_summary() is not None
    return NextStep(f"{CLEARING if clears else SUMMARIZING} {when}")


CLEARING, SUMMARIZING = "old results are cleared", "old messages are summarised"
_NONE = NextStep()


def _clears_from(policy: Policy, window: "Window") -> float | None:
    """Return the tokens from which on old results are cleared at every call; None if not so."""
    start: PolicyThreshold = policy.clear_from if policy.clear_when == "from" else None
    return threshold_tokens(start, window)


def _when(at: float, window: "Window") -> str:
    """Return when a step comes that is due at a size of the context; "" if not soon."""
    if window.tokens >= at:
        return "next"
    return "soon" if window.tokens >= at - SOON_SHARE * window.size else ""
