"""The features of one conversation, called in order, with checks of what they return.

Features that do not override an event's method cost nothing at that event. An extension that fails
is named in a warning and switched off for the session. It fails if it raises an exception (except a
Veto where that is allowed) or returns a value of the wrong type.
"""

import asyncio
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import iscoroutine
from types import NoneType
from typing import Any, TypeVar, get_args

from ...tools.base import Effect, Output, Tool
from ...tools.system.foreign_code import foreign_code
from ..compaction.layers.layer import Layer
from ..errors import CtxagentError, RecordError, RequestRejected
from ..events import Delta, Emit, Notice, StatusPart, TurnFinished
from ..extensions.command import Command, Offers, Prompt
from ..lazy import regex
from ..models.base import Reply
from ..session.entries import Entry, User, encode
from .interface import Feature, IncomingMessage, Ruling, ToolCall, Turn, Veto

T = TypeVar("T")

# Allowed return types: of single values, then of the items of sequences.
_VALUES: Mapping[str, tuple[type, ...]] = {
    "status": (str, StatusPart),
    "message_received": (str, list, NoneType),
    "reply_received": (str, NoneType),
    "reply_streamed": (str,),
    "before_tool": (Mapping, Ruling, NoneType),
    "before_question": (Ruling, NoneType),
    "after_tool": (Output, NoneType),
    "step_finished": (str, NoneType),
}
_ITEMS: Mapping[str, type] = {
    "tools": Tool,
    "commands": Command,
    "first_entries": Entry,
    "reinserted": Entry,
}
_STYLE = regex(r"(?:class:[\w.-]+)?")
_TOOL_NAME = regex(r"[A-Za-z0-9_-]{1,64}")  # accepted by the Messages API


def check_result(event: str, found: Any) -> Any:
    """Return the checked result of a method for an event, with sequences as lists. Raises TypeError
    or ValueError for invalid results.
    """
    if iscoroutine(found):
        found.close()
        raise TypeError(f"{event} must not be async")
    if event in _ITEMS:
        return check_items(event, _ITEMS[event], () if found is None else found)
    if event in _VALUES:
        _check(event, found, *_VALUES[event])
        if isinstance(found, list):
            _check_content(event, found)
        elif isinstance(found, Mapping):
            json.dumps(dict(found), default=str)
        elif isinstance(found, Ruling):
            _check(f"the reason of {event}", found.reason, str)
            _check(f"the arguments of {event}", found.arguments, Mapping, NoneType)
            json.dumps(dict(found.arguments or {}), default=str)
        elif isinstance(found, StatusPart):
            for text in (found.text, found.style, found.rest, found.short):
                _check(f"a text of {event}", text, str)
            _check(f"the rank of {event}", found.rank, int, float)
            if not (math.isfinite(found.rank) and _STYLE.fullmatch(found.style)):
                raise ValueError(f"{event} must give a finite rank, and a style like class:NAME")
        elif isinstance(found, Output):
            _check(f"the text of {event}", found.text, str)
            json.dumps([found.details, found.blocks], default=str)
    return found


def check_items(what: str, kind: type[T], found: Any) -> list[T]:
    """Return the items as a list. Raises TypeError or ValueError for invalid items."""
    items = list(found)
    for each in items:
        _check(what, each, kind)
        if isinstance(each, Command):
            for text in (each.name, each.help, each.argument):
                _check(f"a text of {what}", text, str)
        elif isinstance(each, Tool):
            _check_tool(each)
        elif isinstance(each, User):
            _check_content(what, each.content)
        elif isinstance(each, Entry):
            json.dumps(encode(each), default=str)
    return items


def _check(what: str, found: Any, *kinds: type) -> None:
    if not isinstance(found, kinds):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise TypeError(f"{what} must give {names}, not {type(found).__name__}")


def _check_tool(tool: Tool[Any]) -> None:
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ValueError(f"{tool.name!r} cannot be the name of a tool")
    if tool.effect not in get_args(Effect):
        raise ValueError(f"the effect of {tool.name} is one of {', '.join(get_args(Effect))}")
    json.dumps(tool.schema())


def _check_content(what: str, content: Any) -> None:
    """Raise TypeError for content that cannot be sent. It would stay in the log and break every
    request.
    """
    _check(what, content, str, list)
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise TypeError(f"{what} must give blocks with a type, not {block!r:.80}")


def guarded_command(command: Command) -> Command:
    """Return the command of an extension so that a failure of its functions is a CtxagentError."""
    complete = command.complete and partial(_complete_guarded, command.complete)
    help, run = f"{command.help} · extension", partial(_run_guarded, command)
    return replace(command, help=help, run=run, complete=complete)


async def _run_guarded(command: Command, argument: str) -> str | Prompt | None:
    with foreign_code(CtxagentError) as problems:
        found: Any = command.run and command.run(argument)
        found = await found if inspect.isawaitable(found) else found
        text = found.text if isinstance(found, Prompt) else found
        if isinstance(text, str) or found is None:
            return found  # type: ignore[no-any-return]
        raise TypeError(f"it must give a text, a Prompt or None, not {type(text).__name__}")
    raise CtxagentError(
        f"the command /{command.name} failed: {problems[0]}",
        hint="Correct the extension, or start with --safe.",
    )


async def _complete_guarded(complete: Callable[[], Awaitable[Offers]]) -> Offers:
    with foreign_code(CtxagentError) as problems:
        found = [(str(text), str(about)) for text, about in await complete()]
    return () if problems else found


F = TypeVar("F", bound=Feature)

VETO_EVENTS = (
    "message_received", "before_call", "before_tool", "before_question", "before_summary",
)  # fmt: skip
ENDING_EVENTS = ("close", "session_ended")
MAX_ENDING_SECONDS = 10.0  # for an extension, in each of ENDING_EVENTS


class Features:
    """The features of a conversation."""

    def __init__(self, emit: Emit) -> None:
        self._features: list[Feature] = []
        self._guarded: dict[int, Feature] = {}  # by `id`: an extension may override equality
        self._add_ons = set[int]()  # by `id`; they stay when extensions are reloaded
        self._by_event: dict[str, list[Feature]] = {}
        self._layers: dict[int, list[Layer]] = {}  # by `id` of the feature
        self._emit = emit
        self.extension_tools: list[Tool[Any]] = []  # also of extensions that are switched off

    def add(self, *features: Feature, guarded: bool = False, add_on: bool = False) -> None:
        """Append features. `guarded` ones are switched off when they fail. They are extensions, or
        features of an `add_on`.
        """
        self._features += features
        self._add_ons |= {id(each) for each in features if add_on}
        self._guarded |= {id(each): each for each in features} if guarded else {}
        self._by_event.clear()
        for each in features:
            self._add_layers(each)

    def _add_layers(self, feature: Feature) -> None:
        """Create the layers of a feature, without those whose name is taken."""
        own, taken = list[Layer](), {layer.name for layer in self.layers()}
        for kind in feature.layers:
            if kind.name in taken:
                text = f"the layer {kind.name} of an extension is left out: the name is taken"
                self._emit(Notice("warning", text))
                continue
            layer = kind(feature.values(feature.session.options.settings.extensions))
            layer.guard = partial(self._guard, feature, f"the layer {layer.name}")
            own.append(layer)
            taken.add(layer.name)
        self._layers[id(feature)] = own

    @property
    def extensions(self) -> list[Feature]:
        """The features that are extensions."""
        return [each for each in self._features if self._is_extension(each)]

    def _is_extension(self, feature: Feature) -> bool:
        return id(feature) in self._guarded and id(feature) not in self._add_ons

    def drop(self, feature: Feature) -> None:
        """Switch a feature off."""
        self._features = [each for each in self._features if each is not feature]
        self._by_event.clear()

    async def remove_extensions(self) -> None:
        """Close the extensions and switch them off."""
        for each in self.extensions:
            await self._ask(each, "close")
            self.drop(each)
        self.extension_tools.clear()

    async def start_extensions(self) -> None:
        """Announce the start of the session to the extensions."""
        for event in ("prepare", "session_started"):
            for each in self.extensions:
                await self._ask(each, event)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._features)

    def find(self, kind: type[F]) -> F | None:
        """Return the feature of a class; None if it is switched off."""
        return next((each for each in self._features if isinstance(each, kind)), None)

    def tools(self) -> list[Tool[Any]]:
        """Return the tools of all features."""
        return [tool for each in [*self._features] for tool in self.tools_of(each)]

    def tools_of(self, feature: Feature) -> list[Tool[Any]]:
        """Return the tools of a feature."""
        found: list[Tool[Any]] = self._call(feature, "tools") or []
        self.extension_tools += found if self._is_extension(feature) else []
        return found

    def commands(self) -> list[Command]:
        """Return the slash commands of all features."""
        found = list[Command]()
        for each in [*self._features]:
            own = self._call(each, "commands") or ()
            found += map(guarded_command, own) if id(each) in self._guarded else own
        return found

    def command(self, name: str) -> Command | None:
        """Return the slash command with this name, or None."""
        return next((each for each in self.commands() if each.name == name), None)

    def layers(self) -> list[Layer]:
        """Return the layers of compaction of all features. A failure switches the extension off."""
        return [layer for each in self._features for layer in self._layers.get(id(each), ())]

    def status(self) -> list[StatusPart]:
        """Return the parts of the status line of all features."""
        found = (self._call(each, "status") for each in self._for("status"))
        parts = (StatusPart(each) if isinstance(each, str) else each for each in found if each)
        return [part for part in parts if part.text]

    def first_entries(self) -> list[Entry]:
        """Return the entries to record before the first turn. Blocking."""
        return self._collect("first_entries")

    def reinserted(self, staying: Collection[int]) -> list[Entry]:
        """Return the entries to add after a summary."""
        return self._collect("reinserted", staying)

    def recorded(self, entry: Entry) -> None:
        """Announce a new log entry."""
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
        """Return a message after changes by the features. Raises Veto."""
        for each in self._for("message_received"):
            changed = await self._ask(each, "message_received", message)
            message = message if changed is None else replace(message, content=changed)
        return message

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Announce a recorded message."""
        await self._each("message_recorded", message)

    async def before_call(self) -> None:
        """Announce a model call. Raises Veto."""
        await self._each("before_call")

    def reply_streamed(self, delta: Delta) -> str:
        """Announce a part of a streaming reply. Return the repeated text if the reply must be
        stopped, else "".
        """
        for each in self._for("reply_streamed"):
            if repeats := self._call(each, "reply_streamed", delta):
                return str(repeats)
        return ""

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Announce a reply. Return the first notice to continue the turn, if any."""
        for each in self._for("reply_received"):
            go_on = await self._ask(each, "reply_received", reply, is_final=is_final)
            if go_on is not None and is_final:
                return str(go_on)
        return None

    async def before_tool(self, call: ToolCall) -> tuple[ToolCall, Ruling]:
        """Return a call after changes by the features, and the strictest ruling. Raises Veto."""
        strictest = Ruling()
        for each in self._for("before_tool"):
            found = await self._ask(each, "before_tool", call)
            ruling = found if isinstance(found, Ruling) else Ruling(arguments=found)
            if ruling.arguments is not None:
                call = replace(call, arguments=ruling.arguments)
            if ruling.action and strictest.action != "ask":
                strictest = ruling
        return call, strictest

    async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
        """Return the first ruling that answers a question about a call. Raises Veto."""
        for each in self._for("before_question"):
            ruling: Ruling | None = await self._ask(each, "before_question", call, reason)
            if ruling is not None and ruling.action == "allow":
                return ruling
        return None

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output:
        """Return an output after changes by the features."""
        for each in self._for("after_tool"):
            changed = await self._ask(each, "after_tool", call, output, seconds)
            output = changed or output
        return output

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Announce a recorded output."""
        await self._each("tool_finished", call, output, seconds)

    async def step_finished(self) -> str | None:
        """Announce the end of a step. Return the first answer that ends the turn, else None."""
        for each in self._for("step_finished"):
            if (answer := await self._ask(each, "step_finished")) is not None:
                return str(answer)
        return None

    async def request_refused(self, refusal: RequestRejected) -> bool:
        """Return True if a feature has removed the cause of a refusal."""
        for each in self._for("request_refused"):
            if await self._ask(each, "request_refused", refusal):
                return True
        return False

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Announce a summary. Raises Veto."""
        await self._each("before_summary", event)

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Announce a recorded summary."""
        await self._each("after_summary", event)

    def _for(self, event: str) -> Sequence[Feature]:
        """Return the features that override an event's method."""
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
            await self._ask(each, event, *given)

    def _call(self, feature: Feature, event: str, *given: Any) -> Any:
        with self._guard(feature, event):
            return check_result(event, getattr(feature, event)(*given))

    async def _ask(self, feature: Feature, event: str, *given: Any, **named: Any) -> Any:
        """Call a method that may be asynchronous."""
        is_bounded = event in ENDING_EVENTS and self._is_extension(feature)
        with self._guard(feature, event):
            try:
                async with asyncio.timeout(MAX_ENDING_SECONDS if is_bounded else None) as bound:
                    found = getattr(feature, event)(*given, **named)
                    found = await found if inspect.isawaitable(found) else found
            except TimeoutError as error:
                late = f"it took longer than {MAX_ENDING_SECONDS:g} s"
                raise (TimeoutError(late) if bound.expired() else error) from None
            return check_result(event, found)

    @contextmanager
    def _guard(self, feature: Feature, event: str) -> Iterator[None]:
        """Switch an extension or add-on off if it fails. Errors of built-in features are not
        caught.
        """
        if id(feature) not in self._guarded:
            yield
            return
        named = f"the {'extension' if self._is_extension(feature) else 'add-on'} {feature.name}"
        allowed = (Veto, RecordError) if event in VETO_EVENTS else (RecordError,)
        try:
            with foreign_code(*allowed) as problems:
                yield
        except Veto as veto:
            text = f"{named} prevented it: {veto.message}"
            raise Veto(text) from None
        if problems:
            self.drop(feature)
            text = f"{named} failed in {event} and is switched off for this "
            self._emit(Notice("warning", f"{text}session: {problems[0]}"))
