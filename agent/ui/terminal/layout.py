"""The layout of the application, from the live region down to the completion menu."""

from typing import Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
    WindowAlign,
)
from prompt_toolkit.widgets import SearchToolbar

from ..question import OpenQuestion
from .output import BatchedOutput
from .picker import Picker
from .windows import completions_menu, question_window, text_window

MIN_ROOMY_ROWS = 12  # terminal rows needed for a blank line above the input


class LayoutParts(Protocol):
    """The part of the terminal that the layout uses."""

    output: BatchedOutput
    picker: Picker
    draft: Buffer  # the input
    reply: Buffer  # the answer to an open question
    live: StyleAndTextTuples
    asked: OpenQuestion

    @property
    def asking(self) -> bool: ...

    @property
    def drafting(self) -> bool: ...

    @property
    def unfinished(self) -> bool: ...

    def send_keys(self) -> StyleAndTextTuples: ...

    def choices(self) -> StyleAndTextTuples: ...

    def status(self) -> StyleAndTextTuples: ...

    def status_command_line(self) -> StyleAndTextTuples: ...


def make_layout(terminal: LayoutParts) -> Layout:
    """Return the layout of a terminal's application."""
    asking = Condition(lambda: terminal.asking)
    picking = Condition(lambda: terminal.picker.is_open)
    drafting = Condition(lambda: terminal.drafting)
    roomy = Condition(lambda: terminal.output.get_size().rows >= MIN_ROOMY_ROWS)
    gap = ConditionalContainer(
        Window(FormattedTextControl(terminal.send_keys), height=1, align=WindowAlign.RIGHT), roomy
    )
    live = FormattedTextControl(lambda: terminal.live)
    search = SearchToolbar()
    control = BufferControl(
        terminal.draft, search_buffer_control=search.control, preview_search=True
    )
    size = terminal.output.get_size
    draft = text_window(size, control, "❯ ")
    hidden = Condition(lambda: terminal.asked.hidden)
    question = question_window(terminal.choices, terminal.reply, hidden, size)
    root = HSplit(
        [
            ConditionalContainer(
                Window(live, dont_extend_height=True),
                Condition(lambda: terminal.unfinished) & ~picking,
            ),
            gap,
            ConditionalContainer(question, asking),
            ConditionalContainer(terminal.picker.container(), picking),
            ConditionalContainer(draft, (~asking | drafting) & ~picking),
            search,
            Window(FormattedTextControl(terminal.status), height=1, style="class:status"),
            ConditionalContainer(
                Window(
                    FormattedTextControl(terminal.status_command_line),
                    height=1,
                    style="class:status",
                ),
                Condition(lambda: bool(terminal.status_command_line())),
            ),
            completions_menu(),
            Window(height=Dimension(min=0, preferred=0)),
        ]
    )
    return Layout(root, focused_element=draft)
