"""The fill of the context window: notices for the user and for the model at chosen shares.

At the shares in `context.notify`, the user gets a notice, and hooks run before anything is
compacted. At the shares in `context.tell_model`, the model gets a line: how much of the window is
used, and what was left out of it. The line follows a message, so no cached prefix changes. Each
share counts once until a summary.

With `context.tool`, the model has the tool Context: it lists what is large, drops what it is done
with, and asks for a summary between two tasks. It can drop only its own replies and their results,
never what the user wrote. The summary comes after the step, when all calls have their results.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from ...tools.base import Tool
from ...tools.offered import Phrase
from ...tools.system.phrasing import count_of
from ..compaction.apply_summary import TASK_BOUNDARY
from ..compaction.policy import PolicyThreshold, reached, threshold_tokens
from ..context.window import Window
from ..errors import CompactionFailed, ToolError, UsageError
from ..loop.agent import AgentState
from ..loop.interface import Feature, tool
from ..session.entries import Entry, Note, Revert, Summary, User
from .hooks import HooksFeature

WINDOW = "window"  # topic of the notes, and key of the details: the share of the window
_LEFT_OUT = {  # by the state of an item
    "moved": "moved to files",
    "cleared": "cleared",
    "outlined": "outlined",
    "dropped": "dropped",
}
_USED: Phrase = "[{share} of the context window is used."
_REPLACED: Phrase = (" So far: {left_out}; {Recall} has all of it.", " So far: {left_out}.")
_TOOL: Phrase = (" {Context} drops what you are done with.",)
_GO_ON: Phrase = " The program makes room as needed: work on as before.]"

MAX_LISTED, MIN_LISTED_TOKENS = 20, 200  # items in the list for the model
BY_MODEL = f"{TASK_BOUNDARY}: the model asked for it"


class WindowFeature(Feature):
    """Announces the fill of the window."""

    name = "window"

    def __init__(self, agent: AgentState) -> None:
        super().__init__(agent)
        settings = agent.options.settings.context
        self.agent = agent
        self._notify_at = () if agent.parent else settings.notify
        self._tell_at = () if agent.policy.brief else settings.tell_model
        self._has_tool = settings.tool and not agent.policy.brief
        self._is_known = False  # False if the log must be searched for the next two fields
        self._notified = 0.0  # the highest share that the user knows
        self._told = 0.0  # the highest share that the model knows
        self._is_summary_due = False  # the model asked for one

    def tools(self) -> Sequence[Tool[Any]]:
        """Return the tool of the model, if the setting asks for it."""
        return super().tools() if self._has_tool else ()

    @tool("none")
    async def Context(
        self, action: Literal["list", "drop", "compact"], refs: list[int] | None = None
    ) -> str:
        """Makes room in your context. list: the largest replies and results, with refs. drop:
        replaces `refs` that you are done with by a line each; drop several at once. compact:
        summarises earlier work after this step; use it between tasks.
        """
        if action == "list":
            return self._listed()
        if action == "compact":
            self._is_summary_due = True
            return "A summary follows after this step, if it at least halves the context."
        try:
            plan = await self.agent.edits.drop(refs or [], author="model")
        except (UsageError, CompactionFailed) as error:
            raise ToolError(error.message) from None
        saved = plan.tokens_before - plan.tokens_after
        return f"{count_of(len(plan.refs), 'item')} dropped: {saved:,} tokens less."

    def _listed(self) -> str:
        """Return the list of large items for the model."""
        window, items = self.session.model.current_window(), self.agent.edits.items_of_model()
        used = f"{window.share:.0%} of the window is used: {window.tokens:,} of {window.size:,}"
        lines = [
            f"#{each.ref} {each.kind}, {each.tokens:,} tokens, {count_of(each.age, 'call')} ago: "
            f"{each.what}"
            for each in items[:MAX_LISTED]
            if each.tokens >= MIN_LISTED_TOKENS
        ]
        return "\n".join([f"{used} tokens.", *(lines or ["There is nothing large to drop."])])

    async def step_finished(self) -> None:
        """Make the summary that the model asked for."""
        if not self._is_summary_due:
            return
        self._is_summary_due = False
        try:
            async with self.agent.edits.lock:
                await self.agent.engine.compact(trigger=BY_MODEL, must_halve=True)
        except CompactionFailed as error:
            self.session.notify("info", f"not compacted: {error.message}")
            text = f"[No summary was made: {error.message}]"
            self.session.record(User(content=text, source="notice"))

    async def before_call(self) -> None:
        """Announce a share that the context has reached. Raises RecordError."""
        if not (self._notify_at or self._tell_at):
            return
        if not self._is_known:
            self._find_known()
        window = await self.session.model.window()
        if (share := _share_reached(self._notify_at, window)) > self._notified:
            self._notified = share
            await self._notify(window, share)
        if (share := _share_reached(self._tell_at, window)) > self._told:
            self._told = share
            line = self._line(window)
            self.session.record(User(content=line, source="notice", details={WINDOW: share}))

    def recorded(self, entry: Entry) -> None:
        """Announce shares again after a summary or an undo."""
        if isinstance(entry, Summary | Revert):
            self._is_known = False

    def _find_known(self) -> None:
        """Find what the user and the model know. A summary removes the lines for the model."""
        view = self.session.view
        summary = view.summary.seq if view.summary else 0
        told, notified = [0.0], [0.0]
        told += [
            view.facts(item)[0].get(WINDOW, 0.0) for item in view.items if item.source == "notice"
        ]
        for entry in reversed(self.session.log.entries()) if self._notify_at else ():
            if entry.seq <= summary:
                break
            if isinstance(entry, Note) and entry.topic == WINDOW:
                notified.append(entry.data.get("share", 0.0))
        self._told, self._notified, self._is_known = max(told), max(notified), True

    async def _notify(self, window: Window, share: float) -> None:
        """Show the user a notice, then run the hooks."""
        used = f"{window.tokens:,} of {window.size:,} tokens"
        text = f"the context is {window.share:.0%} full: {used}"
        self.session.record(Note(topic=WINDOW, text=text, data={"share": share}))
        self.session.notify("warning", text)
        if hooks := self.agent.features.find(HooksFeature):
            event = {"tokens": window.tokens, "window": window.size, "share": share}
            await hooks.context_reached(text, event)

    def _line(self, window: Window) -> str:
        """Return the line for the model."""
        states = Counter[str](item.state for item in self.agent.edits.items())
        parts = [f"{states[each]} {word}" for each, word in _LEFT_OUT.items() if states[each]]
        parts += ["the oldest part summarised"] if self.session.view.summary else []
        return self.session.context.offered.say(
            _USED,
            *([_REPLACED] if parts else []),
            _TOOL,
            _GO_ON,
            share=f"{window.share:.0%}",
            left_out=", ".join(parts),
        )


def _share_reached(thresholds: Sequence[PolicyThreshold], window: Window) -> float:
    """Return the highest share of the window among the reached thresholds, else 0."""
    found = (threshold_tokens(each, window) for each in thresholds if reached(each, window))
    return max(((tokens or 0) / window.size for tokens in found), default=0.0)
