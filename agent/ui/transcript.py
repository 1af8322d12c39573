"""From events to what is seen. What is finished is printed once, in order; what is not stands in
`live()`, a few lines that are painted again and again until they are finished too.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.text import Text

from ..events import (
    Accepted,
    AgentFinished,
    AgentProgress,
    AgentStarted,
    CallFinished,
    CallStarted,
    Compacted,
    Event,
    Notice,
    Question,
    Retrying,
    SessionOpened,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    UserSaid,
)
from . import calls, render
from .markdown import Blocks, prose
from .subagents import Subagent, Subagents
from .visible import clean

TAIL = 8  # lines of unfinished text
OUTPUT = 5  # lines of a running tool's output
TASK = "Task"  # the tool that subagents are started with
STYLED = 2_000  # characters up to which unfinished text is painted as Markdown


@dataclass
class _Running:
    name: str
    title: str
    started: float
    output: deque[str] = field(default_factory=lambda: deque([""], maxlen=OUTPUT + 1))

    def take(self, text: str) -> None:
        first, *more = text.split("\n")
        self.output[-1] += first
        self.output.extend(more)

    def tail(self) -> list[str]:
        return [line for line in self.output if line.strip()][-OUTPUT:]


@dataclass
class _Spent:
    """What the turn has taken so far."""

    started: float
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    tools: int = 0

    def add(self, some: CallFinished | AgentFinished) -> None:
        for name, tokens in some.usage.items():
            self.usage[name] = self.usage.get(name, 0) + tokens
        if self.cost_usd is not None:
            self.cost_usd = None if some.cost_usd is None else self.cost_usd + some.cost_usd


class Transcript:
    """`out` prints a finished renderable; `echo` says whether the person's words are printed (not
    where the terminal itself has shown them), `paints` whether anybody sees what is live: what
    begins is printed otherwise, where it may take long. `clock` gives seconds."""

    def __init__(
        self,
        out: Callable[[RenderableType], None],
        *,
        theme: str,
        echo: bool = True,
        paints: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._code = "ansi_light" if theme == "light" else "ansi_dark"
        self._echo = echo
        self._paints = paints
        self._clock = clock
        self._blocks = Blocks()
        self._said = False  # whether text of this attempt is printed already
        self._thinking: list[str] = []
        self._thinking_since = 0.0
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, Subagent] = {}  # of which the call has no result yet
        self.subagents = Subagents()
        self._spent = _Spent(clock())
        self._phase = ""
        self._phase_since = clock()
        self._retry_at = 0.0
        self._last = ""  # the kind of thing printed last, for the spacing

    def show(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self._opened(event)
            case Accepted():
                pass
            case UserSaid():
                self._begin(event.text)
            case CallStarted():
                self._said = False
                self._enter("waiting for the model")
            case TextDelta() | ThinkingDelta() | ToolDraft():
                self._delta(event)
            case Retrying():
                self._retry(event)
            case CallFinished():
                self._settle()
                self._spent.add(event)
                self._enter("")
            case ToolStarted():
                self._running[event.id] = _Running(event.name, event.title, self._clock())
            case ToolOutput():
                if event.id in self._running:
                    self._running[event.id].take(event.text)
            case ToolFinished():
                self._result(event)
            case AgentStarted() | AgentProgress() | AgentFinished():
                self._follow(event)
            case Notice():
                who = f"{self.subagents.name(event.agent)}: " if event.agent else ""
                self.put("notice", render.notice(event.level, who + event.text))
            case Compacted():
                self.put("notice", render.compacted(event, self.subagents.name(event.agent)))
            case TurnFinished():
                self._finish(event)

    def put(self, kind: str, *renderables: RenderableType) -> None:
        """Print something finished. Things of one kind stand together, kinds a blank line apart;
        each `text` stands apart from everything, a receipt never."""
        if self._last and (kind != self._last or kind == "text") and kind != "receipt":
            self._out("")
        for renderable in renderables:
            self._out(renderable)
        self._last = kind

    def ask(self, question: Question) -> None:
        """Print what permission is asked for, and which subagent asks."""
        self.put("question", calls.question(question, self.subagents.name(question.agent)))

    def doing(self, text: str) -> None:
        """Say in the live region what is waited for; "" when it is over."""
        self._enter(text)

    def live(self) -> list[RenderableType]:
        """What is not finished, to be painted below everything printed."""
        now = self._clock()
        lines: list[RenderableType] = []
        if self._thinking:
            lines.append(self._unfinished_thinking())
        if tail := clean(self._blocks.tail(TAIL)):
            lines.append(self._unfinished_text(tail))
        for tool in self._running.values():
            if tool.name != TASK:
                lines.append(calls.running(tool.name, tool.title, now - tool.started, tool.tail()))
        if tasks := [tool for tool in self._running.values() if tool.name == TASK]:
            agents = self.subagents.running()
            since = now - min(task.started for task in tasks)
            lines.append(calls.delegating([task.title for task in tasks], agents, since))
        if self._phase and not self._running:
            lines.append(render.doing(self._doing(now)))
        return lines

    def _opened(self, event: SessionOpened) -> None:
        if event.resumed:
            text = f"session {event.session_id} goes on, with {event.resumed:,} entries so far"
            self.put("notice", render.notice("info", text))
        if event.model.startswith("scripted"):
            text = "a scripted model plays the answers; nobody is asked over the network"
            self.put("notice", render.notice("info", text))

    def _begin(self, words: str) -> None:
        self._spent = _Spent(self._clock())
        self._enter("starting")
        if self._echo:
            self.put("words", render.words(words))

    def _delta(self, event: TextDelta | ThinkingDelta | ToolDraft) -> None:
        if isinstance(event, ThinkingDelta):
            if not self._thinking:
                self._thinking_since = self._clock()
                self._enter("thinking")
            self._thinking.append(event.text)
            return
        self._fold_thinking()
        if isinstance(event, ToolDraft):
            self._print_text(self._blocks.finish())
            if not self._phase.startswith("writing"):
                self._enter("")
            self._phase = f"writing a call of {event.name}, {event.size:,} characters"
        else:
            self._enter("")
            self._print_text(self._blocks.feed(event.text))

    def _retry(self, event: Retrying) -> None:
        self._blocks, self._thinking = Blocks(), []
        if self._said:
            self.put("notice", render.notice("info", "the reply was cut off; it starts again"))
            self._said = False
        self._enter(f"{event.reason} · attempt {event.attempt} of {event.of} failed")
        self._retry_at = self._clock() + event.seconds

    def _result(self, event: ToolFinished) -> None:
        self._running.pop(event.id, None)
        self._spent.tools += 1
        parts = calls.result(event)
        if agent := self._ended.pop(str(event.details.get("agent")), None):
            parts.insert(1, calls.delegated(agent))
        self.put("text" if len(parts) > 1 else "tool", *parts)

    def _follow(self, event: AgentStarted | AgentProgress | AgentFinished) -> None:
        about = self.subagents.follow(event)
        if isinstance(event, AgentStarted) and not self._paints:
            self.put("tool", render.dim(f"  {about.name} · started"))
        elif isinstance(event, AgentFinished):
            self._ended[event.id] = about
            self._spent.add(event)
            self._spent.tools += about.tools

    def _finish(self, event: TurnFinished) -> None:
        self._settle()
        self._running.clear()
        for agent in self._ended.values():
            self.put("tool", calls.delegated(agent, named=True))
        self._ended.clear()
        self._enter("")
        if event.error:
            message, _, hint = event.error.get("message", "").partition("\n")
            self.put("error", render.failure(message, hint))
        elif event.status == "interrupted":
            self.put("notice", render.notice("info", "interrupted; what was done is kept"))
        spent = self._spent
        if spent.usage:
            seconds = self._clock() - spent.started
            self.put("receipt", render.receipt(spent.usage, spent.cost_usd, spent.tools, seconds))

    def _settle(self) -> None:
        """The model has stopped writing: what stood in the live region is finished."""
        self._fold_thinking()
        self._print_text(self._blocks.finish())

    def _fold_thinking(self) -> None:
        if text := "".join(self._thinking).strip():
            self.put("thought", render.thought(text, self._clock() - self._thinking_since))
        self._thinking = []

    def _print_text(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            self._said = True
            self.put("text", prose(clean(block), theme=self._code))

    def _unfinished_text(self, tail: str) -> RenderableType:
        """As Markdown while that is cheap; half a table would be none."""
        if len(tail) < STYLED and not tail.lstrip().startswith("|"):
            return prose(tail, theme=self._code)
        return Text(tail[-STYLED:])

    def _unfinished_thinking(self) -> RenderableType:
        text = clean("".join(self._thinking[-200:]))
        return Text("\n".join(text.strip().split("\n")[-3:]), style="dim italic")

    def _enter(self, phase: str) -> None:
        self._phase, self._phase_since, self._retry_at = phase, self._clock(), 0.0

    def _doing(self, now: float) -> str:
        if self._retry_at > now:
            return f"{self._phase} · again in {self._retry_at - now:.0f} s · esc to stop"
        since = now - self._phase_since
        return self._phase + (f" · {since:.0f} s · esc to stop" if since >= 1 else "")
