"""The interface of features: the parts of the agent outside the loop.

A feature is a subclass of `Feature` that overrides the methods for the events it needs. The loop
calls the features in a fixed order and does not depend on any of them. Extensions use the same
interface.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import isfunction
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from ...tools.base import Effect, Output, Tool
from ...tools.function_tool import function_tool
from ..compaction.layers.layer import Layer
from ..config.keys import Setting as Setting
from ..config.settings import ModelSettings
from ..errors import CtxagentError, RequestRejected
from ..events import Delta, StatusPart, TurnFinished
from ..extensions.command import Command as Command
from ..extensions.command import Prompt as Prompt
from ..extensions.command import command as command
from ..extensions.command import commands_in
from ..lazy import dataclass
from ..models.base import Model, Reply
from ..session.entries import Content, Entry
from .live_session import LiveSession

MakeModel = Callable[[ModelSettings, Mapping[str, str]], Model]  # given settings and environment


class Veto(CtxagentError):
    """Raised by a feature to stop the announced event. Its message is shown."""


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A user message."""

    content: Content
    attached: Sequence[Any] = ()  # see `features.attachments`
    verbatim: bool = False  # not searched for names of files, skills or resources
    mid_turn: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The options of a turn."""

    schema: Any = None  # see `features.result_schema`


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool with valid arguments."""

    id: str
    tool: str
    title: str  # one line, for display
    arguments: Mapping[str, Any]
    cwd: Path


@dataclass(frozen=True, slots=True)
class Ruling:
    """A feature's decision about a call that is about to run."""

    # "allow" counts as an allow rule for the tool or, in `before_question`, as the user's yes.
    # "ask" asks the user even if the rules allow the call.
    action: Literal["", "allow", "ask"] = ""
    reason: str = ""
    arguments: Mapping[str, Any] | None = None  # new arguments; None keeps the old ones


M = TypeVar("M", bound=Callable[..., Any])


def tool(effect: Effect = "run") -> Callable[[M], M]:
    """Make a method of a feature a tool. The model gets its name, docstring and type hints. A tool
    with the effect "none" or "read" runs without asking the user.
    """

    if effect not in get_args(Effect):
        raise TypeError(f"write @tool(EFFECT), with an effect of {', '.join(get_args(Effect))}")

    def mark(method: M) -> M:
        method.__dict__["tool_effect"] = effect
        return method

    return mark


def check_settings(
    name: str, declared: Mapping[str, Setting], given: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise ValueError if a feature has a setting that it does not declare, or a wrong value.
    `given` has the settings of all features.
    """
    for key, value in given.get(name, {}).items():
        if key not in declared:
            known = ", ".join(declared) or "none"
            raise ValueError(f"extensions.{name}.{key} is not a setting; known settings: {known}")
        try:
            declared[key].read(value)
        except ValueError:
            text = f"extensions.{name}.{key} is {value!r}"
            raise ValueError(f"{text}; expected {declared[key].wanted}") from None


class Feature:
    """A part of the agent. Methods do nothing unless a subclass overrides them.

    Methods may record entries (`self.session.record`), which raises RecordError on failure.
    """

    name: ClassVar[str] = ""  # for settings and messages
    # Model providers by the prefix of their model IDs: "echo" for "echo:small".
    providers: ClassVar[Mapping[str, MakeModel]] = {}
    # Readers of recorded sessions for `ctxagent replay`, by the name of the format.
    recording_formats: ClassVar[Mapping[str, Any]] = {}
    layers: ClassVar[Sequence[type[Layer]]] = ()  # of compaction
    # The settings `extensions.NAME.KEY`, by key. `self.setting(key)` gives the value.
    settings: ClassVar[Mapping[str, Setting]] = {}

    def __init__(self, session: LiveSession) -> None:
        self.session = session

    @property
    def handle(self) -> LiveSession:
        """The session, by the name that older extensions use."""
        return self.session

    def setting(self, key: str) -> Any:
        """Return the value of a declared setting. Raises KeyError for another key."""
        return self.values(self.session.options.settings.extensions)[key]

    @classmethod
    def values(cls, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the values of the declared settings. `given` has the settings of all extensions
        that are not the default. Raises ValueError for an invalid value.
        """
        own = given.get(cls.name, {})
        return {
            key: each.read(own[key]) if key in own else each.default
            for key, each in cls.settings.items()
        }

    def tools(self) -> Sequence[Tool[Any]]:
        """Return the tools that this feature adds: the methods marked with `tool`."""
        return [
            function_tool(getattr(self, method), effect)
            for method, effect in self.marked("tool_effect")
        ]

    def commands(self) -> Sequence[Command]:
        """Return the slash commands that this feature adds: the methods marked with `command`."""
        return [each.bound(self) for each in commands_in(vars(type(self)))]

    @classmethod
    def marked(cls, mark: str) -> list[tuple[str, Any]]:
        """Return (method name, mark) for each method that a decorator has marked."""
        methods = ((name, each) for name, each in vars(cls).items() if isfunction(each))
        return [(name, vars(each)[mark]) for name, each in methods if mark in vars(each)]

    @classmethod
    def tool_names(cls) -> list[str]:
        """Return the names of the tools among the methods."""
        return [name for name, _ in cls.marked("tool_effect")]

    @classmethod
    def command_names(cls) -> list[str]:
        """Return the names of the slash commands among the methods."""
        return [each.name for each in commands_in(vars(cls))]

    @classmethod
    def parts(cls) -> list[str]:
        """Return a short description of each part that this class adds."""
        events = (each for each in vars(cls) if not each.startswith("_") and hasattr(Feature, each))
        return [
            *(f"tool {name}" for name in cls.tool_names()),
            *(f"command /{name}" for name in cls.command_names()),
            *(f"setting {name}" for name in cls.settings),
            *(f"provider {name}" for name in cls.providers),
            *(f"format {name}" for name in cls.recording_formats),
            *(f"layer {each.name}" for each in cls.layers),
            *(name for name in events if callable(getattr(Feature, name))),
        ]

    def status(self) -> str | StatusPart:
        """Return a short text or a part for the status line, "" for none. Must be quick."""
        return ""

    def first_entries(self) -> Sequence[Entry]:
        """Return entries to record before the first turn. Runs in a thread and may block."""
        return ()

    async def prepare(self) -> None:
        """Prepare, once, before the list of tools is recorded."""

    async def session_started(self) -> None:
        """Act once, after the first entries are recorded."""

    async def session_ended(self) -> None:
        """Act after the log is closed."""

    async def turn_started(self, turn: Turn) -> None:
        """Act before the first model call of a turn."""

    async def message_received(self, message: IncomingMessage) -> Content | None:
        """Return a replacement for a user message before it is recorded; None keeps it. Raises
        Veto.
        """
        return None

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Act after a user message is recorded."""

    async def before_call(self) -> None:
        """Act before a model call. Raises Veto to end the turn."""

    def reply_streamed(self, delta: Delta) -> str:
        """Act on a part of a streaming reply. Must be quick. Return the repeated text to stop a
        reply that repeats itself, else "".
        """
        return ""

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Act on a recorded reply. For a final reply, return a notice to continue the turn ("" to
        continue without a notice), or None to end it.
        """
        return None

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any] | Ruling | None:
        """Return new arguments for a call that is about to run, or a ruling; None changes nothing.
        Raises Veto.
        """
        return None

    async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
        """Return a ruling that answers a permission question for the user; None leaves the question
        to the user. Raises Veto.
        """
        return None

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        """Return a replacement for a call's output before it is recorded; None keeps it."""
        return None

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Act after the output of a call is recorded."""

    async def step_finished(self) -> str | None:
        """Act after a reply and its results are recorded, if the turn continues. Return a text to
        end the turn with it as the answer.
        """
        return None

    async def request_refused(self, refusal: RequestRejected) -> bool:
        """Return True to send the request again, after a change of the view. An empty message means
        that the reason is unknown: remove what the request can do without.
        """
        return False

    def recorded(self, entry: Entry) -> None:
        """Act on a new log entry. Must be quick."""

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Act before a summary is made. Raises Veto."""

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Act after a summary is recorded."""

    def reinserted(self, staying: Collection[int]) -> Sequence[Entry]:
        """Return entries to add after a summary. `staying` has the seqs of the entries that stay in
        the view.
        """
        return ()

    async def turn_ended(self, finished: TurnFinished) -> None:
        """Act after the end of a turn is recorded."""

    async def close(self) -> None:
        """Release resources before the log is closed."""
