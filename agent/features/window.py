"""The fill of the context window: notices for the user and for the model at chosen shares.

At the shares in `context.notify`, the user gets a notice, and hooks run before anything is
compacted. At the shares in `context.tell_model`, the model gets a line: how much of the window is
used, and what was left out of it. The line follows a message, so no cached prefix changes. Each
share counts once until a summary.
"""

from collections import Counter
from collections.abc import Sequence

from ...tools.offered import Phrase
from ..compaction.policy import PolicyThreshold, reached, threshold_tokens
from ..context.window import Window
from ..loop.agent import AgentState
from ..loop.interface import Feature
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
_GO_ON: Phrase = " The program makes room as needed: work on as before.]"


class WindowFeature(Feature):
    """Announces the fill of the window."""

    name = "window"

    def __init__(self, agent: AgentState) -> None:
        super().__init__(agent)
        settings = agent.options.settings.context
        self.agent = agent
        self._notify_at = () if agent.parent else settings.notify
        self._tell_at = () if agent.policy.brief else settings.tell_model
        self._is_known = False  # False if the log must be searched for the next two fields
        self._notified = 0.0  # the highest share that the user knows
        self._told = 0.0  # the highest share that the model knows

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
            _GO_ON,
            share=f"{window.share:.0%}",
            left_out=", ".join(parts),
        )


def _share_reached(thresholds: Sequence[PolicyThreshold], window: Window) -> float:
    """Return the highest share of the window among the reached thresholds, else 0."""
    found = (threshold_tokens(each, window) for each in thresholds if reached(each, window))
    return max(((tokens or 0) / window.size for tokens in found), default=0.0)
