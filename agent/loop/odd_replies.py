"""Handle replies that are neither an answer nor tool calls."""

from ...tools.system.shorten import shorten
from ..context.request import PAUSED_STOP_REASON
from ..context.view import REPEATED
from ..errors import CtxagentError, LimitReached
from ..lazy import dataclass
from ..models.base import Reply, text_of

MAX_ODD_REPLIES = 3  # consecutive
MAX_REPEATED_CHARS = 300  # of a repeated text, in the notice

CONTINUE_CUT_REPLY = (
    "Your reply was cut off at the output limit of {limit:,} tokens. Go on exactly where it \
stopped. If you were writing a file, write it in smaller pieces."
)
CONTINUE_EMPTY_REPLY = "Your reply was empty. Go on with the task; if it is done, say what you did."
CONTINUE_REPEATED_REPLY = """\
Your reply was stopped because it repeated this text over and over:
{text}
Do not write it again. Go on with the task; if it is done, say what you did."""


@dataclass(slots=True)
class OddReplies:
    """The number of consecutive odd replies."""

    _count: int = 0

    def count(self, reply: Reply, notice: str | None) -> CtxagentError | None:
        """Count a reply that did not end the turn. `notice` is its continuation prompt. After too
        many, reset the count and return the error.
        """
        if any(block.get("type") == "tool_use" for block in reply.content):
            self._count = 0
        elif notice is not None:
            self._count += 1
        if self._count < MAX_ODD_REPLIES:
            return None
        self._count = 0
        if reply.stop_reason == "max_tokens":
            return LimitReached(
                f"{MAX_ODD_REPLIES} replies in a row were cut off at the output limit",
                limit="output",
                hint="Raise --max-tokens or ask for less at a time.",
            )
        if reply.stop_reason == REPEATED:
            return LimitReached(
                f"{MAX_ODD_REPLIES} replies in a row repeated the same text and were stopped",
                limit="loop",
                hint="Say what to do next, or choose another model.",
            )
        what = "paused" if reply.stop_reason == PAUSED_STOP_REASON else "were empty"
        return CtxagentError(
            f"{MAX_ODD_REPLIES} replies in a row {what}", hint="Say what to do next."
        )


def continuation_prompt(reply: Reply) -> str | None:
    """Return a prompt to continue an unfinished reply. Return None for an answer, and "" to call
    the model again without a prompt.
    """
    if reply.stop_reason == PAUSED_STOP_REASON:
        return ""
    if reply.stop_reason == "max_tokens":
        return CONTINUE_CUT_REPLY.format(limit=reply.usage.output)
    if reply.stop_reason == REPEATED:
        return CONTINUE_REPEATED_REPLY.format(text=shorten(reply.repeats, MAX_REPEATED_CHARS))
    return None if text_of(reply.content).strip() else CONTINUE_EMPTY_REPLY


def raise_if_turn_ends(reply: Reply) -> None:
    """Raise an error for a reply that ends the turn. Its tool calls are not run."""
    if reply.stop_reason == "refusal":
        raise CtxagentError(
            "the model declined to answer (stop reason: refusal)",
            hint="Its reply is in the log but not in the context. Rephrase your message.",
        )
