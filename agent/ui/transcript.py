"""From events to what is seen. What is finished is printed once, in order; what is not stands in
`live()`, a few lines that are painted again and again until they are finished too.
"""

import asyncio
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
    Waiting,
)
from .folds import Fold, Folds, ends
from .look import calls, render
from .look.blocks import Blocks, Piece
from .look.lines import Tail
from .look.markdown import Prose
from .subagents import Subagent, Subagents
from .visible import clean
from .waits import Waits

TEXT, THOUGHT = 16, 3  # rows of unfinished text, and of unfinished thinking
OUTPUT = 5  # lines of a running tool's output
TASK = "Task"  # the tool that subagents are started with


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
    begins is printed otherwise, where it may take long, and where it `speaks` in any case. `share`
    gives how full the context is, None where that is not known. `clock` gives seconds."""

    def __init__(
        self,
        out: Callable[[RenderableType], None],
        *,
        echo: bool = True,
        paints: bool = True,
        speaks: bool = False,
        share: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._echo = echo
        self._paints, self._speaks = paints, speaks
        self._share = share
        self._clock = clock
        self._way = " (ctrl-o)" if paints else " (/unfold)"
        self._blocks, self._prose = Blocks(), Prose()
        self._said = False  # whether text of this attempt is printed already
        self._thinking: list[str] = []
        self._thinking_since = 0.0
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, Subagent] = {}  # of which the call has no result yet
        self.subagents = Subagents()
        self._folds = Folds()
        self._spent = _Spent(clock())
        self._waits = Waits(clock)
        self._between = ""  # what stands there between two waits
        self._last = ""  # the kind of thing printed last, for the spacing

    def show(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self._opened(event)
            case UserSaid():
                self._begin(event.text)
            case CallStarted():
                self._said = False
                self._waits.enter("waiting for the model")
            case Waiting():
                self._waits.enter(event.what or self._between)
            case TextDelta() | ThinkingDelta() | ToolDraft():
                self._delta(event)
            case Retrying():
                self._retry(event)
            case CallFinished():
                self._settle()
                self._spent.add(event)
                self._waits.enter(self._between)
            case ToolStarted():
                self._running[event.id] = _Running(event.name, event.title, self._clock())
                if self._speaks:
                    self.put("tool", calls.starting(event.name, event.title))
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
            case Accepted():
                pass

    def put(self, kind: str, *renderables: RenderableType, joined: bool = False) -> None:
        """Print something finished. Things of one kind stand together, kinds a blank line apart;
        each `text` stands apart from everything unless it is `joined` to the one before, a receipt
        never."""
        apart = kind != self._last or (kind == "text" and not joined)
        if self._last and apart and kind != "receipt":
            self._out("")
        for renderable in renderables:
            self._out(renderable)
        self._last = kind

    def ask(self, question: Question) -> None:
        """Print what permission is asked for, and which subagent asks."""
        self._waits.enter("")
        self.put("question", calls.question(question, self.subagents.name(question.agent)))

    def doing(self, text: str) -> None:
        """Say in the live region what a command waits for; "" when it is over."""
        self._between = text
        self._waits.enter(text)

    async def unfold(self, whole: Callable[[int], str | None]) -> None:
        """Print the newest thing that was folded, in full; asked for again, the one before it.
        `whole` gives the text of an entry of the log."""
        fold = self._folds.next()
        if fold is None:
            more = " else" if len(self._folds) else ""
            self.put("notice", render.notice("info", f"nothing{more} is folded"))
            return
        text: str | None = fold.text
        if fold.ref and not text:
            text = await asyncio.to_thread(whole, fold.ref)
        self.put("text", self._unfolded(fold, text or "the log does not have it"))

    def live(self) -> list[RenderableType]:
        """What is not finished, to be painted below everything printed. It begins with a blank
        line, unless it goes on with what was printed last."""
        now = self._clock()
        parts: list[list[RenderableType]] = []
        joined = False
        if self._thinking:
            text = clean("".join(self._thinking[-200:])).strip()
            parts.append([Tail(Text(text, style="thought"), THOUGHT)])
        if pieces := self._blocks.tail():
            joined = self._last == "text" and pieces[0].gap != "" and not self._thinking
            parts.append([Tail(self._prose.preview(pieces), TEXT)])
        parts.append(
            self._tools(now) or [render.doing(line) for line in [self._waits.line()] if line]
        )
        out = [line for part in parts if part for line in ("", *part)]
        return out[1:] if joined else out

    def _tools(self, now: float) -> list[RenderableType]:
        """The calls that run."""
        lines: list[RenderableType] = []
        for tool in self._running.values():
            if tool.name != TASK:
                lines.append(calls.running(tool.name, tool.title, now - tool.started, tool.tail()))
        if tasks := [tool for tool in self._running.values() if tool.name == TASK]:
            agents = self.subagents.running()
            since = now - min(task.started for task in tasks)
            lines.append(calls.delegating([task.title for task in tasks], agents, since))
        return lines

    def _opened(self, event: SessionOpened) -> None:
        self._folds.clear()
        if event.resumed:
            text = f"session {event.session_id} goes on, with {event.resumed:,} entries so far"
            self.put("notice", render.notice("info", text))
        if event.model.startswith("scripted"):
            text = "a scripted model plays the answers; nobody is asked over the network"
            self.put("notice", render.notice("info", text))

    def _begin(self, words: str) -> None:
        self._spent, self._between = _Spent(self._clock()), "working"
        self._waits.enter("starting")
        if self._echo:
            self.put("words", render.words(words))

    def _delta(self, event: TextDelta | ThinkingDelta | ToolDraft) -> None:
        if isinstance(event, ThinkingDelta):
            if not self._thinking:
                self._thinking_since = self._clock()
            self._waits.enter("thinking", streams=True)
            self._thinking.append(event.text)
            return
        self._fold_thinking()
        if isinstance(event, ToolDraft):
            self._print_text(self._blocks.finish())
            size = f", {event.size:,} characters"
            self._waits.enter(f"writing a call of {event.name}", size, streams=True)
        else:
            self._waits.enter("answering", streams=True)
            self._print_text(self._blocks.feed(clean(event.text)))

    def _retry(self, event: Retrying) -> None:
        self._blocks, self._prose, self._thinking = Blocks(), Prose(), []
        if self._said:
            self.put("notice", render.notice("info", "the reply was cut off; it starts again"))
            self._said = False
        failed = f"attempt {event.attempt} of {event.of} failed"
        self._waits.again(failed, event.reason, event.seconds)

    def _result(self, event: ToolFinished) -> None:
        self._running.pop(event.id, None)
        self._spent.tools += 1
        shown = calls.result(event, way=self._way)
        parts = shown.parts
        if agent := self._ended.pop(str(event.details.get("agent")), None):
            parts.insert(1, calls.delegated(agent))
        self.put("text" if len(parts) > 1 else "tool", *parts)
        if shown.folded:
            title = f"{event.name}  {event.title}"
            difference = None if event.is_error else event.details.get("diff")
            if isinstance(difference, str) and difference:
                self._folds.add(Fold(title, difference, "diff"))
            else:
                offloaded = event.ref and event.details.get("tokens_saved")
                text = "" if offloaded else event.text
                self._folds.add(Fold(title, text, "output", event.ref))
        self._waits.enter(self._between)

    def _unfolded(self, fold: Fold, text: str) -> RenderableType:
        if fold.kind == "diff":
            return calls.unfolded_diff(fold.title, text, fold.title.partition("  ")[2])
        where = (
            f"/log #{fold.ref} has all of it" if fold.ref else "there is more than a screen's worth"
        )
        style = "thought" if fold.kind == "thought" else ""
        return calls.unfolded(fold.title, ends(clean(text), where), style)

    def _follow(self, event: AgentStarted | AgentProgress | AgentFinished) -> None:
        about = self.subagents.follow(event)
        if isinstance(event, AgentStarted) and not self._paints:
            self.put("tool", render.dim(f"  {about.name} · started"))
        elif isinstance(event, AgentFinished):
            self._ended[event.id] = about
            self._spent.add(event)
            self._spent.tools += about.tools

    def abandon(self) -> None:
        """Nothing of the turn runs any more; what stood in the live region is finished."""
        self._settle()
        self._running.clear()
        for agent in self._ended.values():
            self.put("tool", calls.delegated(agent, named=True))
        self._ended.clear()
        self._between = ""
        self._waits.enter("")

    def _finish(self, event: TurnFinished) -> None:
        self.abandon()
        if event.error:
            message, _, hint = event.error.get("message", "").partition("\n")
            self.put("error", render.failure(message, hint))
        elif event.status == "interrupted":
            self.put("notice", render.notice("info", "interrupted; what was done is kept"))
        spent = self._spent
        if spent.usage:
            seconds = self._clock() - spent.started
            took = render.receipt(
                spent.usage, spent.cost_usd, spent.tools, seconds, share=self._share()
            )
            self.put("receipt", took)

    def _settle(self) -> None:
        """The model has stopped writing: what stood in the live region is finished."""
        self._fold_thinking()
        self._print_text(self._blocks.finish())

    def _fold_thinking(self) -> None:
        if text := "".join(self._thinking).strip():
            seconds = self._clock() - self._thinking_since
            self.put("thought", render.thought(text, seconds, self._way))
            self._folds.add(Fold(f"thought for {render.duration(seconds)}", text, "thought"))
        self._thinking = []

    def _print_text(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._said = True
            self.put("text", self._prose.show(piece), joined=piece.gap != "")
