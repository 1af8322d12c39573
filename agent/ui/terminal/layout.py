"""The layout of the terminal application, from the live region down to the completion menu."""

from collections.abc import Callable
from typing import Protocol, cast

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    ScrollbarMargin,
    Window,
    WindowAlign,
    WindowRenderInfo,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.widgets import SearchToolbar

from ..screen import OpenQuestion
from .output import BatchedOutput
from .picker import Picker

MAX_COMPLETION_ROWS = 8


def text_window(size: Callable[[], Size], control: BufferControl, mark: str) -> Window:
    """Return a window of at most half the terminal's height, with a mark before its first line."""
    blank = " " * fragment_list_width([("", mark)])

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", mark if line == 0 and wrapped == 0 else blank)]

    return Window(
        control,
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=prefix,
        height=lambda: Dimension(min=1, max=max(1, size().rows // 2)),
    )


def question_window(
    choices: Callable[[], StyleAndTextTuples],
    reply: Buffer,
    hidden: Condition,
    size: Callable[[], Size],
) -> Container:
    """Return the open question with the reply below it. `hidden` masks the reply."""
    above = Window(FormattedTextControl(choices), wrap_lines=True, dont_extend_height=True)
    stars = ConditionalProcessor(PasswordProcessor(), hidden)
    return HSplit([above, text_window(size, BufferControl(reply, input_processors=[stars]), "? ")])


def completions_menu() -> Container:
    """Return the completion menu, with a scrollbar only if it can scroll."""
    menu = CompletionsMenu(max_height=MAX_COMPLETION_ROWS)
    cast(Window, menu.content).right_margins = [_Scrollbar()]
    return menu


class _Scrollbar(ScrollbarMargin):
    def create_margin(
        self, window_render_info: WindowRenderInfo, width: int, height: int
    ) -> StyleAndTextTuples:
        if window_render_info.content_height <= window_render_info.window_height:
            return []
        return super().create_margin(window_render_info, width, height)


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
