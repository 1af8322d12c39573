"""The features of one conversation, called in order.

A feature that overrides no method for an event costs nothing there. An extension that raises
anything but Veto is named in a warning and switched off for the session.
"""

from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ...tools.base import Output, Tool
from ..context import tokens
from ..context.view import View
from ..context.window import Window
from ..errors import CtxagentError, RecordError, RequestRejected
from ..events import Emit, Notice, TurnFinished
from ..extensions.foreign_code import foreign_code
from ..models.base import Reply
from ..session.entries import Content, Entry
from .feature import Clear, Feature, FeatureCommand, IncomingMessage, ToolCall, Turn, Veto

F = TypeVar("F", bound=Feature)
T = TypeVar("T")


class Features:
    """The features of a conversation."""

    def __init__(self, emit: Emit) -> None:
        self._features: list[Feature] = []
        self._guarded: set[Feature] = set()
        self._by_event: dict[str, list[Feature]] = {}
        self._emit = emit

    def add(self, *features: Feature, guarded: bool = False) -> None:
        """Append features. `guarded` ones are switched off when they fail."""
        self._features += features
        self._guarded |= set(features) if guarded else set()
        self._by_event.clear()

    @property
    def extensions(self) -> list[Feature]:
        """The features from outside."""
        return [each for each in self._features if each in self._guarded]

    def drop(self, feature: Feature) -> None:
        """Switch a feature off."""
        self._features.remove(feature)
        self._by_event.clear()

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def find(self, kind: type[F]) -> F | None:
        """Return the feature of a class, None if it is switched off."""
        return next((each for each in self._features if isinstance(each, kind)), None)

    def tools(self) -> list[Tool[Any]]:
        """Return the tools of all features."""
        found = list[Tool[Any]]()
        for each in [*self._features]:
            found += self._call(each, "tools") or ()
        return found

    def commands(self) -> list[FeatureCommand]:
        """Return the slash commands of all features."""
        found = list[FeatureCommand]()
        for each in [*self._features]:
            found += self._call(each, "commands") or ()
        return found

    def clears(self, view: View, window: Window) -> Iterator[tuple[str, Sequence[Clear]]]:
        """Yield the name of each layer that features add, and what it clears. The next layer runs
        when the caller goes on."""
        for each in self._for("layers"):
            for layer in self._call(each, "layers") or ():
                with self._guard(each):
                    found = [
                        clear
                        for clear in layer.plan(view, window)
                        if not clear.result.masked
                        and tokens.estimate(clear.text) < clear.result.size
                    ]
                    yield layer.name, found

    def status(self) -> list[str]:
        """Return the words of all features for the status line."""
        found = (self._call(each, "status") for each in self._for("status"))
        return [text for text in found if text]

    def first_entries(self) -> list[Entry]:
        """Return the entries to record before the first turn; blocking."""
        return self._collect("first_entries")

    def reinserted(self, staying: Collection[int]) -> list[Entry]:
        """Return the entries to add after a summary."""
        return self._collect("reinserted", staying)

    def recorded(self, entry: Entry) -> None:
        """Pass an entry on."""
        for each in self._for("recorded"):
            self._call(each, "recorded", entry)

    async def prepare(self) -> None:
        """Prepare all features."""
        await self._each("prepare")

    async def session_started(self) -> None:
        """Announce the start of the session."""
        await self._each("session_started")

    async def session_ended(self) -> None:
        """Announce the end of the session."""
        await self._each("session_ended")

    async def turn_started(self, turn: Turn) -> None:
        """Announce a turn."""
        await self._each("turn_started", turn)

    async def turn_ended(self, finished: TurnFinished) -> None:
        """Announce the end of a turn."""
        await self._each("turn_ended", finished)

    async def close(self) -> None:
        """Close all features."""
        await self._each("close")

    async def message_received(self, message: IncomingMessage) -> IncomingMessage:
        """Return a message as the features change it. Raises Veto."""
        for each in self._for("message_received"):
            changed: Content | None = await self._await(each, each.message_received(message))
            message = message if changed is None else replace(message, content=changed)
        return message

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Announce a recorded message."""
        await self._each("message_recorded", message)

    async def before_call(self) -> None:
        """Announce a model call. Raises Veto."""
        await self._each("before_call")

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Announce a reply. Return the first notice to continue the turn, if any."""
        for each in self._for("reply_received"):
            call = each.reply_received(reply, is_final=is_final)
            go_on = await self._await(each, call)
            if go_on is not None and is_final:
                return go_on
        return None

    async def before_tool(self, call: ToolCall) -> ToolCall:
        """Return a call as the features change it. Raises Veto."""
        for each in self._for("before_tool"):
            given = await self._await(each, each.before_tool(call))
            call = call if given is None else replace(call, arguments=given)
        return call

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output:
        """Return an output as the features change it."""
        for each in self._for("after_tool"):
            changed = await self._await(each, each.after_tool(call, output, seconds))
            output = changed or output
        return output

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Announce a recorded output."""
        await self._each("tool_finished", call, output, seconds)

    async def step_finished(self) -> str | None:
        """Announce the end of a step. Return the first answer that a feature ends the turn with."""
        for each in self._for("step_finished"):
            if (answer := await self._await(each, each.step_finished())) is not None:
                return answer
        return None

    async def request_refused(self, refusal: RequestRejected) -> bool:
        """Return True if a feature has removed the cause of a refusal."""
        for each in self._for("request_refused"):
            if await self._await(each, each.request_refused(refusal)):
                return True
        return False

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Announce a summary. Raises Veto."""
        await self._each("before_summary", event)

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Announce a recorded summary."""
        await self._each("after_summary", event)

    def _for(self, event: str) -> Sequence[Feature]:
        """Return the features that override the method for an event."""
        if event not in self._by_event:
            default = getattr(Feature, event)
            self._by_event[event] = [
                each for each in self._features if getattr(type(each), event) is not default
            ]
        return self._by_event[event]

    def _collect(self, event: str, *given: Any) -> list[Any]:
        found = list[Any]()
        for each in self._for(event):
            found += self._call(each, event, *given) or ()
        return found

    async def _each(self, event: str, *given: Any) -> None:
        for each in self._for(event):
            await self._await(each, getattr(each, event)(*given))

    def _call(self, feature: Feature, event: str, *given: Any) -> Any:
        with self._guard(feature):
            return getattr(feature, event)(*given)

    async def _await(self, feature: Feature, call: Awaitable[T]) -> T | None:
        with self._guard(feature):
            return await call
        return None

    @contextmanager
    def _guard(self, feature: Feature) -> Iterator[None]:
        """Switch an extension off when it fails. Errors of our own features are passed on."""
        if feature not in self._guarded:
            yield
            return
        try:
            with foreign_code() as problems:
                yield
        except Veto as veto:
            text = f"the extension {feature.name} prevented it: {veto.message}"
            raise Veto(text) from None
        except RecordError:
            raise
        except CtxagentError as error:  # raised by code of the extension
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            if feature in self._features:
                self.drop(feature)
            text = f"the extension {feature.name} failed and is switched off for this session"
            self._emit(Notice("warning", f"{text}: {problems[0]}"))
