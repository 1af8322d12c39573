"""Replies: what one without a call means. An answer, something unfinished, or the end of a turn."""

from typing import Any

from .errors import CtxagentError, LimitReached
from .model.base import Reply

PATIENCE = 3  # replies in a row that are neither an answer nor a call

CUT = "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
EMPTY = "Your reply was empty. Go on with the task; if it is done, say what you did."


def missing(reply: Reply) -> str | None:
    """What a reply without calls still lacks: None when it is an answer, else words that ask for
    the rest, or "" to call again as it stands."""
    if reply.stop_reason == "pause_turn":
        return ""
    if reply.stop_reason == "max_tokens":
        return CUT.format(limit=reply.usage.output)
    return None if text_of(reply.content).strip() else EMPTY


def check_ending(reply: Reply) -> None:
    """Raises for replies that end the turn whatever else is in them: their calls are not run."""
    if reply.stop_reason == "refusal":
        raise CtxagentError(
            "the model declined to answer (stop reason: refusal)",
            hint="Its reply is in the log but not in the context. Say it in other words.",
        )
    if reply.stop_reason == "model_context_window_exceeded":
        raise LimitReached(
            "the model's context window is full",
            limit="context",
            hint="Start a fresh session; everything said stays in the log.",
        )


def text_of(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(b.get("text", "")) for b in blocks if b.get("type") == "text")


def gave_up(reply: Reply) -> CtxagentError:
    if reply.stop_reason == "max_tokens":
        return LimitReached(
            f"{PATIENCE} replies in a row were cut off at the output limit",
            limit="output",
            hint="Raise --max-tokens or ask for less at a time.",
        )
    what = "paused" if reply.stop_reason == "pause_turn" else "were empty"
    return CtxagentError(f"{PATIENCE} replies in a row {what}", hint="Say what to do next.")
