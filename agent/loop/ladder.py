"""What to try after a server refused a request: smaller and plainer forms of the same request.

The server's message decides only what is tried first. Whether a form is possible is shown by the
server's next answer. If the server may refuse everything, a tiny request shows it before anything
is removed from the context. `models.server_model` has already tried the request without features
that the server never accepted.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import field

from ..compaction.layers.known import DropThinking
from ..context.request import Request
from ..context.window import learn_from_refusal, window_named
from ..errors import (
    LimitReached,
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    RequestRejected,
)
from ..events import Notice
from ..lazy import dataclass, regex
from ..models.base import Reply
from ..models.refusals import may_be_cause
from ..models.retry import RATE_LIMITED
from ..session.entries import CHECK, Mask, Revert
from .agent import AgentState

PLAIN = "without all optional parts"
REPEATED_RUNGS = {"images", "smaller"}  # each of them ends when nothing is left
SAME_FAILURES = 3  # equal failures of a server after which the request may be the cause
MAX_FEATURE_RETRIES = 5  # a feature may ask for a retry that changes nothing
MAX_WHY_CHARS = 200  # of a refusal in a notice
WINDOW_FULL = "model_context_window_exceeded"  # a stop reason
CHECK_PROMPT = "Answer with the word OK."
_CHECK_TOKENS = 16
_NO_RETRY = 1_000  # failed attempts: more than any policy allows
_NAMES_THINKING = regex(r"thinking|signature|reasoning|encrypted", re.I)
_HINT = (
    "Nothing recorded is lost: send another message. If it is refused too, start with an empty "
    "context (/clear) or choose another model (/model)."
)

Rung = Callable[[ModelError], Awaitable[str]]  # returns what the next request is, "" if no change


@dataclass
class Ladder:
    """The attempts to get one reply. Each form is tried once."""

    agent: AgentState
    tried: list[str] = field(default_factory=list)
    refused_tokens: int = 0  # of the context in the first refused request
    _first: ModelError | None = None  # the first refusal
    _newest: int = 0  # seq of the newest entry before it
    _done: set[str] = field(default_factory=set)  # names of rungs
    _size_before: int | None = field(init=False)  # of the window
    _is_at_fault: bool | None = None  # the server accepts other requests; None if unknown
    _is_patient: bool = False  # the server fails for every request
    _last: str = ""  # the last rung
    _feature_retries: int = 0  # how often the features were asked

    def __post_init__(self) -> None:
        self._size_before = self.agent.model.learned_window.size

    @property
    def failed_attempts(self) -> int:
        """The attempts that count as failed before the next request is sent."""
        return SAME_FAILURES + 1 if self._is_patient else 0

    @property
    def same_failures(self) -> int | None:
        """The equal failures after which the next request may be the cause; None for no limit."""
        if self._is_patient:
            return None
        return 1 if self.tried else SAME_FAILURES

    async def climb(self, error: ModelError) -> bool:
        """Change the next request so that the server may accept it. Return False if the refusal has
        another reason, or if nothing is left to try.
        """
        if not may_be_cause(error):
            return False
        model = self.agent.model
        if self._first is None:
            self._first, self.refused_tokens = error, model.current_window().tokens
            self._newest = self.agent.view.last_seq
        is_failure = isinstance(error, ModelUnavailable)
        if is_failure and self._is_patient:
            return False
        features = self.agent.features
        if isinstance(error, RequestRejected) and self._feature_retries < MAX_FEATURE_RETRIES:
            self._feature_retries += 1
            if await features.request_refused(error):
                return self._retry("feature", "without a feature", error)
        if self._is_at_fault is None and self._needs_check(error):
            gaps = model.client.gaps
            if gaps.end_trial():
                return self._retry("plain", PLAIN, error)
            withheld = [] if model.learned_window.accepted else gaps.withhold_all()
            self._is_at_fault = await self._answers_others()
            if self._is_at_fault and withheld:
                return self._retry("plain", PLAIN, error)
        if self._is_at_fault is False:
            self._is_patient = is_failure and error.status != RATE_LIMITED
            return self._is_patient
        for name, rung in self._rungs(error):
            if name not in self._done:
                self._done |= {name} - REPEATED_RUNGS
                if what := await rung(error):
                    return self._retry(name, what, error)
        return False

    def _retry(self, name: str, what: str, error: ModelError) -> bool:
        self._last = name
        self.tried.append(what)
        is_told = name == "feature" or (name == "images" and not self.agent.model.takes_images())
        if not is_told:
            self.agent.emit(Notice("info", f"retrying {what}: {error.message[:MAX_WHY_CHARS]}"))
        return True

    def accepted(self) -> None:
        """Keep what helped for this server and model."""
        model = self.agent.model
        learned, gaps = model.learned_window, model.client.gaps
        if self._last in ("size", "smaller") and learned.size is not None:
            gaps.keep_window(learned.size)
        elif self.tried:
            learned.size = self._size_before  # the size was not the reason
        if gaps.hides_thinking:  # their next requests have no thinking of earlier replies
            self.agent.engine.drop_optional(images=False)

    def failure(self, error: ModelError) -> ModelError | LimitReached:
        """Return the error for a request that was refused in every form. Forget what was assumed,
        so that the next turn starts without it.
        """
        model = self.agent.model
        model.client.gaps.give_up()
        model.learned_window.forget()
        model.token_correction = 1.0
        if self._first is None or not (self.tried or isinstance(self._first, PromptTooLong)):
            return error
        error = self._first
        if isinstance(error, PromptTooLong):
            return self._too_long(error)
        if isinstance(error, ModelUnavailable):
            self._restore_thinking()
            return error
        also = "; ".join(self.tried)
        message = f"{error.message}. The request was refused in other forms too: {also}"
        return RequestRejected(
            message, hint=_HINT, status=error.status, request_id=error.request_id
        )

    def _restore_thinking(self) -> None:
        """Undo the removal of thinking, because the server itself may have failed."""
        new = [
            entry.seq
            for entry in self.agent.log.entries()
            if entry.seq > self._newest
            and isinstance(entry, Mask)
            and entry.layer == DropThinking.name
        ]
        for seq in new:
            self.agent.record(Revert(target=seq, reason="it did not help"))
        if new:
            self.agent.rebuild_view()

    def _too_long(self, refusal: PromptTooLong) -> LimitReached:
        first, tokens = self.refused_tokens, self.agent.model.current_window().tokens
        tried = f"reduced from about {first:,} tokens to {tokens:,}, it was refused again"
        if tokens >= first:
            tried = f"its {tokens:,} tokens (estimated) could not be reduced"
        told = "the server refused the request as too long"
        said = f"{told}; {tried}. The server said: {refusal.message}"
        return LimitReached(said, limit="context", hint=_HINT)

    def _needs_check(self, error: ModelError) -> bool:
        """Return True if the server may refuse all requests."""
        is_hinted = any(name not in self._done for name, _ in self._hinted(error))
        if isinstance(error, RequestRejected) and is_hinted:
            return False
        return isinstance(error, ModelUnavailable) or not self.agent.model.learned_window.accepted

    async def _answers_others(self) -> bool:
        """Return True if the server answers a tiny request."""
        model = self.agent.model
        block = {"type": "text", "text": CHECK_PROMPT}
        messages = [{"role": "user", "content": [block]}]
        request = Request(
            model.id, [], [], messages, _CHECK_TOKENS, thinking=False, failed_attempts=_NO_RETRY
        )
        try:
            await model.ask(request, CHECK)
        except ModelError:
            model.client.gaps.give_up()
            return False
        return True

    def _hinted(self, error: ModelError) -> list[tuple[str, Rung]]:
        """Return the rungs that the server's message suggests, by name."""
        agent, found = self.agent, list[tuple[str, Rung]]()
        is_about_images = agent.engine.names_images(error) or not agent.model.takes_images()
        if is_about_images and agent.engine.has_images():
            found.append(("images", self._without_images))
        if isinstance(error, PromptTooLong):
            found.append(("size", self._fit))
        elif _NAMES_THINKING.search(error.message) and agent.view.thinking_items():
            found.append(("thinking", self._without_thinking))
        return found

    def _rungs(self, error: ModelError) -> list[tuple[str, Rung]]:
        """Return the rungs by name, in the order to try them after this refusal."""
        rest: list[tuple[str, Rung]] = [("size", self._fit), ("plain", self._plain)]
        if not self.agent.model.learned_window.accepted:
            rest.reverse()
        return [
            *self._hinted(error),
            ("images", self._without_images),
            *rest,
            ("smaller", self._smaller),
        ]

    async def _without_images(self, error: ModelError) -> str:
        if not self.agent.engine.drop_refused_images(error):
            return ""
        self.agent.model.client.gaps.suspect_images()
        return "without images"

    async def _without_thinking(self, error: ModelError) -> str:
        dropped = self.agent.engine.drop_optional(images=False)
        return "without the thinking of earlier replies" if dropped else ""

    async def _plain(self, error: ModelError) -> str:
        withheld = self.agent.model.client.gaps.withhold_all()
        dropped = self.agent.engine.drop_optional(images=True)
        no_reason = RequestRejected("", status=error.status)
        without_feature = await self.agent.features.request_refused(no_reason)
        return PLAIN if withheld or dropped or without_feature else ""

    async def _fit(self, error: ModelError) -> str:
        """Fit the context into the window that the server names, else into the size of the largest
        accepted prompt or half the size of this one.
        """
        model = self.agent.model
        tokens, maximum = None, None
        if isinstance(error, PromptTooLong):
            tokens, maximum = error.tokens, error.maximum
        before, least = model.current_window(), model.least_window()
        size, factor = learn_from_refusal(before, tokens, maximum, least=least)
        if size is None:
            named = window_named(error.message, least, before.tokens)
            size, factor = named or max(least, before.tokens // 2), 1.0
        return await self._shrink(size, factor)

    async def _smaller(self, error: ModelError) -> str:
        """Fit the context into the size of the largest accepted prompt, else halve it."""
        model = self.agent.model
        tokens, accepted = model.current_window().tokens, model.learned_window.accepted
        size = max(model.fixed_tokens(), tokens // 2)
        if "accepted" not in self._done and size < accepted < tokens:
            size = accepted
        self._done.add("accepted")
        return await self._shrink(size, 1.0, again=True)

    async def _shrink(self, size: int, factor: float, *, again: bool = False) -> str:
        """Make the context fit into `size` tokens, as far as possible. Return the new size, "" if
        the request stays the same.
        """
        model, room, before = self.agent.model, self.agent.model.reply_room(), self.agent.view.size
        model.learned_window.size = size
        model.token_correction *= factor
        try:
            await self.agent.engine.force_fit(again=again)
        except LimitReached:
            model.learned_window.size = self._size_before  # the server decides
            model.token_correction = 1.0
        is_smaller = self.agent.view.size < before
        if not is_smaller and (again or model.reply_room() >= room):
            return ""
        return f"with about {model.current_window().tokens:,} tokens of context"


def refusal_in(reply: Reply) -> PromptTooLong | None:
    """Return the refusal in a reply that says that the window is full, or that has no content
    because no token was left. None for other replies.
    """
    is_full = reply.stop_reason == WINDOW_FULL
    has_no_room = reply.stop_reason == "max_tokens" and not reply.content and not reply.usage.output
    if not (is_full or has_no_room):
        return None
    size = reply.usage.total if is_full and reply.usage.prompt else None
    return PromptTooLong("the model's context window is full", maximum=size, status=200)
