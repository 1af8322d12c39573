"""What stands at the bottom of a real terminal, from above: the live region, the input (or an open
question), the search line, the status line, the menu of completions."""

from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.input import Input
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from .input import Editor, answer_keys, editing_keys, session_keys
from .output import SteadyOutput

ROOMY = 12  # rows from which on blank lines set the input apart
ESCAPE = 0.05  # seconds until an escape byte is the Esc key

STYLE = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "status": "dim",
        "choices": "bold",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit dim",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "reverse",
    }
)


class Surface(Editor, Protocol):
    """What is shown, besides what the keys act on."""

    output: SteadyOutput

    @property
    def unfinished(self) -> StyleAndTextTuples:
        """The live region."""
        ...

    @property
    def choices(self) -> str:
        """Those of the open question."""
        ...

    def status(self) -> StyleAndTextTuples: ...


def application(surface: Surface, *, input: Input, vi: bool) -> "Application[None]":
    app: Application[None] = Application(
        layout=_layout(surface),
        key_bindings=session_keys(surface, editing_keys(surface), answer_keys(surface)),
        style=STYLE,
        editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
        erase_when_done=True,
        input=input,
        output=surface.output,
        terminal_size_polling_interval=None,
    )
    app.ttimeoutlen, app.timeoutlen = ESCAPE, 10 * ESCAPE
    return app


def _layout(surface: Surface) -> Layout:
    asking = Condition(lambda: surface.asking)
    roomy = Condition(lambda: surface.output.get_size().rows >= ROOMY)
    gap = ConditionalContainer(Window(height=1), roomy)
    live = FormattedTextControl(lambda: surface.unfinished)
    search = SearchToolbar()
    words = _words(surface, search)
    root = HSplit(
        [
            ConditionalContainer(
                HSplit([gap, Window(live, dont_extend_height=True)]),
                Condition(lambda: bool(surface.unfinished)),
            ),
            gap,
            ConditionalContainer(_question(surface), asking),
            ConditionalContainer(words, ~asking),
            search,
            Window(FormattedTextControl(surface.status), height=1, style="class:status"),
            CompletionsMenu(max_height=8),
            Window(height=Dimension(min=0, preferred=0)),
        ]
    )
    return Layout(root, focused_element=words)


def _words(surface: Surface, search: SearchToolbar) -> Window:
    return Window(
        BufferControl(surface.words, search_buffer_control=search.control, preview_search=True),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=_prefix("❯ "),
        height=lambda: Dimension(min=1, max=max(1, surface.output.get_size().rows // 2)),
    )


def _question(surface: Surface) -> Container:
    choices = FormattedTextControl(lambda: [("class:choices", surface.choices)])
    reply = Window(
        BufferControl(surface.reply),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=_prefix("? "),
    )
    return HSplit([Window(choices, wrap_lines=True, dont_extend_height=True), reply])


def _prefix(mark: str) -> Callable[[int, int], StyleAndTextTuples]:
    blank = " " * fragment_list_width([("", mark)])

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", mark if line == 0 and wrapped == 0 else blank)]

    return prefix
