"""The transcript: turns events into output. Finished output is printed once, in order. Unfinished
output is in `live()`, a few lines that are repainted until they are finished.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Literal

from rich.console import RenderableType
from rich.text import Text

from ...tools.system.kept_text import KeptText
from ...tools.system.phrasing import count_of
from ...tools.system.unicode import clean
from .. import events
from ..config.keyboard import DEFAULT_KEYS, KeyboardSettings, key_name
from ..lazy import dataclass
from ..models.catalog import priced_as
from .render import render, tool_calls
from .render.diffs import diff
from .render.markdown import Prose, document
from .render.markdown_stream import Blocks, Piece
from .render.render import LastRows
from .status import is_scripted
from .tasks import Subagent, SubagentEvent, Subagents

MAX_FOLDS = 50  # newest outputs that can be unfolded
MAX_HELD_CHARS = 20_000  # longer texts are read from the log again
MAX_WHOLE_LINES = 200  # longer texts are cut when unfolded
END_LINES = 100  # lines shown at each end of a cut text
MAX_END_CHARS = 100_000  # kept of the end of a text, in addition to its last piece
SILENCE_S = 2.0  # without streamed output until the wait line shows it
TEXT_ROWS, THOUGHT_ROWS = 16, 3  # shown of unfinished text and thinking
OUTPUT_LINES = 5  # shown of a running tool
MAX_PROMPT_LINES = 3  # longest command message that is shown whole


@dataclass(frozen=True, slots=True)
class Fold:
    """An output that was printed only in part."""

    title: str  # one line
    text: str  # full text; "" if it is read from log entry `ref`
    kind: Literal["output", "thought", "diff", "answer"]
    ref: int = 0


class FoldedOutputs:
    """The newest MAX_FOLDS folds."""

    def __init__(self) -> None:
        self._kept: deque[Fold] = deque(maxlen=MAX_FOLDS)
        self._shown = 0  # number of folds that `next` has returned

    def add(self, fold: Fold) -> None:
        if fold.ref and len(fold.text) > MAX_HELD_CHARS and fold.kind != "diff":
            fold = replace(fold, text="")
        self._kept.append(fold)
        self._shown = 0

    def next(self) -> Fold | None:
        """Return the newest fold not yet returned; None after the oldest, then start again."""
        if self._shown >= len(self._kept):
            self._shown = 0
            return None
        self._shown += 1
        return self._kept[-self._shown]

    def __len__(self) -> int:
        return len(self._kept)


def cut_middle(text: KeptText, where: str) -> list[str]:
    """Return the lines of a text. Cut a long one to its ends; `where` says how to see the rest."""
    first, last, breaks, count = "", "", 0, 0
    for count, piece in enumerate(text.pieces(), 1):
        breaks += piece.count("\n")
        first = first + piece if count <= 2 else first
        last = (last + piece)[-len(piece) - MAX_END_CHARS :]
    head, tail = (clean(part).strip("\n").split("\n") for part in (first, last))
    if count <= 2:  # `first` has the whole text
        if len(head) <= MAX_WHOLE_LINES:
            return head
        breaks, last, tail = len(head), "\n", head
    left = breaks + (not last.endswith("\n")) - 2 * END_LINES
    gap = f"… {count_of(max(0, left), 'line')} left out: {where}"
    return [*head[:END_LINES], gap, *tail[-END_LINES:]]


class WaitLine:
    """The line that shows the current activity and its duration. `clock` returns seconds;
    `stop_key` is the name of the interrupt key.
    """

    def __init__(self, clock: Callable[[], float], stop_key: str) -> None:
        self._clock = clock
        self._stop_key = stop_key
        self._what = ""
        self._more = ""
        self._why = ""  # shown last, because it may be long and lines are cut at their end
        self._since = self._last_output_at = clock()
        self._streams = False
        self._retry_at: float | None = None
        self._retry_end: float | None = None  # time limit for an overload

    def enter(self, what: str, more: str = "", *, streams: bool = False) -> None:
        """Set the current activity, "" for none. `more` may change while `what` stays the same.
        With `streams`, each call counts as output from the model.
        """
        what = " ".join(what.split())  # model output may contain a line break
        self._last_output_at = self._clock()
        if what != self._what or self._retry_at is not None:
            self._since = self._last_output_at
        self._what, self._more, self._streams, self._retry_at = what, more, streams, None
        self._why, self._retry_end = "", None

    def retry(self, event: events.Retrying) -> None:
        """Show the wait for the next attempt to reach the model."""
        what, why = f"attempt {event.attempt} of {event.of} failed", event.reason
        if event.left is not None:
            what, _, why = event.reason.partition(": ")
        self.enter(what)
        self._why = " ".join(why.split())
        self._retry_at = self._clock() + event.seconds
        if event.left is not None:
            self._retry_end = self._clock() + event.left

    def overload(self) -> str:
        """Return the description of the overload being waited out; "" if there is none."""
        return self._what if self._retry_end is not None else ""

    def line(self) -> str:
        """Return the line; "" if there is no activity."""
        if not self._what:
            return ""
        now = self._clock()
        what, since = self._what + self._more, now - self._since
        if self._streams and now - self._last_output_at >= SILENCE_S:
            what, since = "the model is silent", now - self._last_output_at
        if self._retry_at is not None and self._retry_end is not None:
            wait = self._retry_at - now
            again = f"again in {wait:.0f} s" if wait > 0 else "asking again"
            minutes, seconds = divmod(max(0, round(self._retry_end - now)), 60)
            limit = f"for {minutes}:{seconds:02} more"
            stop = f"{self._stop_key} to give up"
            return " · ".join(filter(None, [what, again, stop, limit, self._why]))
        stop = f"{self._stop_key} to stop"
        if self._retry_at is not None and self._retry_at > now:
            return f"again in {self._retry_at - now:.0f} s · {stop} · {what}: {self._why}"
        parts = [what, f"{since:.0f} s" if since >= 1 else "", stop, self._why]
        return " · ".join(filter(None, parts))


@dataclass
class _Running:
    name: str
    title: str
    started: float
    output: deque[str] = field(default_factory=lambda: deque([""], maxlen=OUTPUT_LINES + 1))

    def take(self, text: str) -> None:
        first, *more = text.split("\n")
        self.output[-1] += first
        self.output.extend(more)

    def tail(self) -> list[str]:
        return [line for line in self.output if line.strip()][-OUTPUT_LINES:]


@dataclass
class _TurnUsage:
    """The time, tokens and cost of the turn so far."""

    started: float
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    tools: int = 0

    def add(self, some: events.CallFinished | events.AgentFinished) -> None:
        for name, tokens in some.usage.items():
            self.usage[name] = self.usage.get(name, 0) + tokens
        if self.cost_usd is not None:
            self.cost_usd = None if some.cost_usd is None else self.cost_usd + some.cost_usd


class Transcript:
    """The output of a conversation's events.

    `out` prints a finished renderable. With `echo`, the user's messages are printed. `paints` means
    that `live` is visible; otherwise subagents are announced when they start. With `speaks`, every
    tool that starts is announced. `share` returns how full the context is, None if unknown. `clock`
    returns seconds; `keys` are the key bindings.
    """

    def __init__(
        self,
        out: Callable[[RenderableType], None],
        *,
        echo: bool = True,
        paints: bool = True,
        speaks: bool = False,
        share: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        keys: KeyboardSettings = DEFAULT_KEYS,
    ) -> None:
        self._out = out
        self._echo, self._paints, self._speaks = echo, paints, speaks
        self._share, self._clock = share, clock
        self._keys = keys
        self._unfold_hint = f" ({key_name(keys.unfold)})" if paints else " (/unfold)"
        self._blocks, self._prose = Blocks(), Prose()
        self._spends = True  # whether calls cost real money
        self._said = False  # whether text of this attempt was printed
        self._thinking: list[str] = []
        self._thinking_since = 0.0
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, Subagent] = {}  # ended subagents whose call has no result yet
        self.subagents = Subagents()
        self._folds = FoldedOutputs()
        self._unfolding = asyncio.Lock()
        self._spent = _TurnUsage(clock())
        self._wait_line = WaitLine(clock, key_name(keys.interrupt))
        self._activity = ""  # shown between two waits
        self._prompt = ""  # the message of a command, shown in one line
        self._last = ""  # kind of the last printed output, for the spacing

    def show(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened():
                self._opened(event)
            case events.UserSaid():
                self._show_user_message(event)
            case events.CallStarted():
                self._said = False
                self._wait_line.enter("waiting for the model")
            case events.Waiting():
                self._wait_line.enter(event.what or self._activity)
            case events.TextDelta() | events.ThinkingDelta() | events.ToolDraft():
                self._delta(event)
            case events.Retrying():
                self._retry(event)
            case events.CallFinished():
                self._settle()
                self._spent.add(event)
                self._wait_line.enter(self._activity)
            case events.ToolStarted():
                self._running[event.id] = _Running(event.name, event.title, self._clock())
                if self._speaks:
                    self.put("tool", tool_calls.started(event.name, event.title))
            case events.ToolOutput():
                if event.id in self._running:
                    self._running[event.id].take(event.text)
            case events.ToolFinished():
                self._result(event)
            case events.AgentStarted() | events.AgentProgress() | events.AgentFinished():
                self._follow(event)
            case events.Notice():
                who = f"{self.subagents.name(event.agent)}: " if event.agent else ""
                self.put("notice", render.notice(event.level, who + event.text))
            case events.Compacted():
                agent = self.subagents.name(event.agent)
                receipt = render.compaction_receipt(event, agent, spends=self._spends)
                self.put("notice", receipt)
            case events.TurnFinished():
                self._finish(event)

    def put(self, kind: str, *renderables: RenderableType, joined: bool = False) -> None:
        """Print finished output. Insert a blank line before another kind of output and before each
        `text` that is not `joined` to the previous one. A receipt never gets a blank line.
        """
        apart = kind != self._last or (kind == "text" and not joined)
        if self._last and apart and kind != "receipt":
            self._out("")
        for renderable in renderables:
            self._out(renderable)
        self._last = kind

    def recap(self, said: str, answer: str) -> None:
        """Print the end of a resumed session: the user's last message and the shortened answer."""
        self.put("user", render.last_user_message(said))
        if text := answer.strip():
            beginning = text[: render.MAX_RECAP_CHARS]
            if beginning != text:
                beginning = beginning.rpartition("\n")[0] or beginning
            rows, more = render.RECAP_ANSWER_LINES, text.count("\n", len(beginning))
            shown = render.FirstRows(document(beginning), rows, more, self._unfold_hint)
            self.put("text", shown)
            self._folds.add(Fold("the last answer", text, "answer"))

    def ask(self, question: events.Question, *, explains: bool = False) -> None:
        """Print a permission question and the subagent that asks. `explains` adds that the sandbox
        would make the question unnecessary, if so.
        """
        self._wait_line.enter("")
        name, hint = self.subagents.name(question.agent), ""
        whole = tool_calls.command_text(question)
        if self._paints and whole.is_long:
            hint = f" · {key_name(self._keys.unfold)} shows all of it"
            self._folds.add(Fold(f"{question.tool}  {question.title}", whole.command, "output"))
        shown = tool_calls.question(question, name, explains=explains, unfold_hint=hint)
        self.put("question", shown)

    def propose(self, plan: str) -> None:
        """Print a plan that waits for the user's approval."""
        self._wait_line.enter("")
        self.put("text", *tool_calls.plan(plan))

    def waits_for_answer(self, question: events.Question, waits: bool) -> None:
        """Record that a subagent's question was asked or answered."""
        self.subagents.asks(question.agent, 1 if waits else -1)

    def show_activity(self, text: str) -> None:
        """Show a command's current activity in the live region; "" when it is done."""
        self._activity = text
        self._wait_line.enter(text)

    async def unfold(self, whole: Callable[[int], KeptText | None]) -> None:
        """Print the newest fold in full; a repeated call prints the previous one. `whole` reads an
        entry's text from the log. Calls print in order, also if one has to read a longer text.
        """
        async with self._unfolding:
            await self._unfold_next(whole)

    async def _unfold_next(self, whole: Callable[[int], KeptText | None]) -> None:
        fold = self._folds.next()
        if fold is None:
            more = " else" if len(self._folds) else ""
            self.put("notice", render.notice("info", f"nothing{more} to show in full"))
            return
        where = f"/log #{fold.ref} shows them"
        if fold.ref and not fold.text:
            found = await asyncio.to_thread(whole, fold.ref)
            text = found or KeptText("the log no longer has this text")
            lines = await asyncio.to_thread(cut_middle, text, where)
        elif fold.ref:
            lines = cut_middle(KeptText(fold.text), where)
        else:
            lines = clean(fold.text).strip("\n").split("\n")
        self.put("text", self._unfolded(fold, lines))

    def live(self) -> list[RenderableType]:
        """Return unfinished output, to be painted below the printed text. It begins with a blank
        line unless it continues the last printed text.
        """
        now = self._clock()
        parts: list[list[RenderableType]] = []
        joined = False
        if self._thinking:
            text = clean("".join(self._thinking[-200:])).strip()
            parts.append([LastRows(Text(text, style="thought"), THOUGHT_ROWS)])
        if pieces := self._blocks.tail():
            joined = self._last == "text" and pieces[0].gap != "" and not self._thinking
            parts.append([LastRows(self._prose.preview(pieces), TEXT_ROWS)])
        parts.append(
            self._tools(now) or [render.activity(line) for line in [self._wait_line.line()] if line]
        )
        out = [line for part in parts if part for line in ("", *part)]
        return out[1:] if joined else out

    def _tools(self, now: float) -> list[RenderableType]:
        lines: list[RenderableType] = []
        for tool in self._running.values():
            if tool.name != tool_calls.TASK_TOOL:
                since = now - tool.started
                lines.append(
                    tool_calls.running(tool.name, tool.title, since, tool.tail(), self._keys)
                )
        if tasks := [tool for tool in self._running.values() if tool.name == tool_calls.TASK_TOOL]:
            agents = self.subagents.awaited()
            since = now - min(task.started for task in tasks)
            titles = [task.title for task in tasks]
            lines.append(tool_calls.tasks(titles, agents, since, self._keys))
        return lines

    def _opened(self, event: events.SessionOpened) -> None:
        self._folds = FoldedOutputs()
        if event.resumed:
            entries = count_of(event.resumed, "entry", "entries")
            text = f"session {event.session_id} resumed ({entries})"
            self.put("notice", render.notice("info", text))
        self._spends = not is_scripted(event.model)
        if not self._spends:
            text = "a scripted model plays the answers; no request is sent over the network"
            if model := priced_as(event.model):
                text += f", and nothing is spent: prices are those of {model}"
            self.put("notice", render.notice("info", text))

    def _show_user_message(self, event: events.UserSaid) -> None:
        if not event.mid_turn:
            self._spent, self._activity = _TurnUsage(self._clock()), "working"
            self._wait_line.enter("starting")
        prompt, self._prompt = self._prompt, ""
        if not self._echo:
            return
        first, _, more = event.text.partition("\n")
        lines = more.count("\n") + 2
        if first != prompt.partition("\n")[0] or lines <= MAX_PROMPT_LINES:
            self.put("user", render.user_message(event.text))
        else:
            self.put(
                "user", render.dim(f"sent its instructions: {lines:,} lines{self._unfold_hint}")
            )
            self.fold("the prompt of the command", event.text)

    def _delta(self, event: events.TextDelta | events.ThinkingDelta | events.ToolDraft) -> None:
        if isinstance(event, events.ThinkingDelta):
            if not self._thinking:
                self._thinking_since = self._clock()
            self._wait_line.enter("thinking", streams=True)
            self._thinking.append(event.text)
            return
        self._fold_thinking()
        if isinstance(event, events.ToolDraft):
            self._print_text(self._blocks.finish())
            size = f", {count_of(event.size, 'character')}"
            self._wait_line.enter(f"writing a call to {event.name}", size, streams=True)
        else:
            self._wait_line.enter("answering", streams=True)
            self._print_text(self._blocks.feed(clean(event.text)))

    def _retry(self, event: events.Retrying) -> None:
        self._blocks, self._prose, self._thinking = Blocks(), Prose(), []
        self._running.clear()  # server-side searches of the failed attempt
        if self._said:
            self.put("notice", render.notice("info", "the reply was cut off and starts again"))
            self._said = False
        self._wait_line.retry(event)
        if not self._paints:
            self.put("notice", render.notice("info", str(event)))

    def _result(self, event: events.ToolFinished) -> None:
        if self._running.pop(event.id, None):  # else it never ran
            self._spent.tools += 1
        self._said = True  # in case the server searched in the middle of a reply
        shown = tool_calls.result(event, unfold_hint=self._unfold_hint)
        parts = shown.parts
        if agent := self._ended.pop(str(event.details.get("agent")), None):
            parts.insert(1, tool_calls.finished_subagent(agent))
        self.put("text" if len(parts) > 1 else "tool", *parts)
        if shown.folded:
            title = f"{event.name}  {event.title}".rstrip()
            difference = None if event.is_error else event.details.get("diff")
            if isinstance(difference, str) and difference:
                self._folds.add(Fold(title, difference, "diff"))
            else:
                offloaded = event.ref and event.details.get("tokens_saved")
                text = "" if offloaded else event.text
                self._folds.add(Fold(title, text, "output", event.ref))
        self._wait_line.enter(self._activity)

    def expect_prompt(self, prompt: str) -> None:
        """Print this message from a command as one line when it is sent."""
        self._prompt = prompt

    def fold(self, title: str, text: str) -> None:
        """Make a text available to `unfold`, unless it is empty."""
        if text:
            self._folds.add(Fold(title, text, "output"))

    def _unfolded(self, fold: Fold, lines: Sequence[str]) -> RenderableType:
        shown: list[RenderableType]
        if fold.kind == "diff":
            shown = [diff(fold.text, path=fold.title.partition("  ")[2])]
        elif fold.kind == "answer":
            shown = ["", document("\n".join(lines))]
        else:
            style = "thought" if fold.kind == "thought" else ""
            shown = [Text(f"  {line}", style=style, overflow="fold") for line in lines]
        return tool_calls.unfolded(fold.title, shown)

    def _follow(self, event: SubagentEvent) -> None:
        subagent = self.subagents.follow(event)
        if isinstance(event, events.AgentStarted) and not self._paints:
            begins = "in the background" if subagent.background else "started"
            self.put("tool", render.dim(f"  {subagent.name} · {begins}"))
        elif isinstance(event, events.AgentFinished):
            if subagent.background:
                self.put("notice", tool_calls.ended_in_background(subagent))
            else:
                self._ended[event.id] = subagent
            self._spent.add(event)
            self._spent.tools += subagent.tools

    def abandon(self) -> None:
        """Print the live output as finished, because the turn has ended."""
        self._settle()
        self._running.clear()
        for agent in self._ended.values():
            self.put("tool", tool_calls.finished_subagent(agent, named=True))
        self._ended.clear()
        self._activity = ""
        self._wait_line.enter("")

    def _finish(self, event: events.TurnFinished) -> None:
        overload = self._wait_line.overload()
        self.abandon()
        if event.error:
            message, _, hint = event.error.get("message", "").partition("\n")
            self.put("error", render.failure(message, hint))
        elif event.status == "interrupted":
            became = "interrupted; what was done is kept"
            if overload:
                became = f'gave up: {overload}; your message is kept, send "go on" to try again'
            self.put("notice", render.notice("info", became))
        spent = self._spent
        if spent.usage:
            seconds = self._clock() - spent.started
            share = self._share()
            receipt = render.receipt(
                spent.usage, spent.cost_usd, spent.tools, seconds, share=share, spends=self._spends
            )
            self.put("receipt", receipt)

    def _settle(self) -> None:
        """Print the model's text as finished, because the model has stopped writing."""
        self._fold_thinking()
        self._print_text(self._blocks.finish())

    def _fold_thinking(self) -> None:
        if text := "".join(self._thinking).strip():
            seconds = self._clock() - self._thinking_since
            self.put("thought", render.thought(text, seconds, self._unfold_hint))
            self._folds.add(Fold(f"thought for {render.duration(seconds)}", text, "thought"))
        self._thinking = []

    def _print_text(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self._said = True
            self.put("text", self._prose.show(piece), joined=piece.gap != "")
