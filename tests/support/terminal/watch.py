"""The visible text of a transcript, with a clock controlled by the test."""

import asyncio
import re

from ctxagent.agent.events import Event
from ctxagent.agent.ui.render import render
from ctxagent.agent.ui.transcript import Transcript
from ctxagent.tools.system.kept_text import KeptText


def seen(*renderables: object, width: int = 80) -> str:
    """Return the text as on a terminal, without styles."""
    text = render.render_text(renderables, width=width, depth="mono")  # type: ignore[arg-type]
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class Watch:
    """A transcript, its output, and a clock controlled by the test."""

    def __init__(self, **options: object) -> None:
        self.now = 100.0
        self.printed: list[object] = []
        self.log: dict[int, str] = {}
        self.transcript = Transcript(
            self.printed.append,
            clock=lambda: self.now,
            **options,  # type: ignore[arg-type]
        )

    def show(self, *events: Event) -> None:
        for event in events:
            self.transcript.show(event)

    def unfold(self) -> str:
        """Return the output of one more Ctrl-O."""
        before = len(self.printed)
        texts = {ref: KeptText(text) for ref, text in self.log.items()}
        asyncio.run(self.transcript.unfold(texts.get))
        return seen(*self.printed[before:])

    @property
    def text(self) -> str:
        return seen(*self.printed)

    @property
    def live(self) -> str:
        return seen(*self.transcript.live())
