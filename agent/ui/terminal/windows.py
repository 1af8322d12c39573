"""Windows of the terminal's layout: the input, an open question and the completion menu."""

from collections.abc import Callable
from typing import cast

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.layout import (
    BufferControl,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    ScrollbarMargin,
    Window,
    WindowRenderInfo,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor

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
