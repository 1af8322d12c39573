"""What stands at the bottom of a real terminal, from above: the live region, the input (or an open
question), the search line, the status line, the menu of completions."""

from collections.abc import Callable
from functools import cache
from typing import Protocol

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.keys import Keys
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

from ..input.keys import Editor, answer_keys, editing_keys, session_keys
from ..look.theme import Palette, classes
from .output import Inline, SteadyOutput
from .picker import Picker, keys_of

ROOMY = 12  # rows from which on blank lines set the input apart
ESCAPE = 0.05  # seconds until an escape byte is the Esc key, and once more until it stands alone
CHORD = 1.0  # seconds between two keys that mean something together

# What prompt_toolkit's own parts look like: as little as can be seen on any background.
_PARTS = {
    "completion-menu": "noinherit",
    "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "reverse",
    "scrollbar.background": "noinherit",
    "scrollbar.button": "reverse",
}
_META = ("completion-menu.meta.completion", "completion-menu.meta.completion.current")


@cache
def style_of(palette: Palette) -> Style:
    roles = classes(palette)
    metas = dict.fromkeys(_META, f"noinherit {roles['dim']}")
    return Style.from_dict({**roles, **_PARTS, **metas})


class Surface(Editor, Protocol):
    """What is shown, besides what the keys act on."""

    output: SteadyOutput
    picker: Picker

    @property
    def palette(self) -> Palette: ...

    @property
    def unfinished(self) -> StyleAndTextTuples:
        """The live region, with the blank line above it."""
        ...

    @property
    def choices(self) -> str:
        """Those of the open question."""
        ...

    @property
    def waits(self) -> bool:
        """Whether the choices wait to be read before a key alone takes one."""
        ...

    def status(self) -> StyleAndTextTuples: ...

    def paintable(self) -> bool:
        """Whether the terminal can be painted on now."""
        ...

    def painted(self) -> None:
        """It has been painted on."""
        ...

    def resized(self) -> None: ...


def application(surface: Surface, *, input: Input, vi: bool) -> "Application[None]":
    app = _Application(
        layout=_layout(surface),
        key_bindings=session_keys(
            surface, editing_keys(surface), answer_keys(surface), keys_of(surface.picker)
        ),
        style=style_of(surface.palette),
        editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
        erase_when_done=True,
        cursor=ModalCursorShapeConfig() if vi else None,
        input=input,
        output=surface.output,
        terminal_size_polling_interval=None,
    )
    app.ttimeoutlen = ESCAPE
    app.key_processor.after_key_press += _wait_for_more
    app.renderer = Inline(app.renderer.style, surface.output, surface.paintable, surface.painted)
    app.resized = surface.resized
    return app


class _Application(Application[None]):
    """Leaves it to the surface what to do about a new size of the terminal, and when."""

    resized: Callable[[], None]

    def _on_resize(self) -> None:
        self.resized()


def _wait_for_more(keys: KeyProcessor) -> None:
    """Esc is a key of its own, and what is typed after it is not Alt with a letter: a terminal
    sends those together. Other keys that begin a sequence are pressed one by one."""
    escaped = any(press.key == Keys.Escape for press in keys.key_buffer)
    get_app().timeoutlen = ESCAPE if escaped else CHORD


def _layout(surface: Surface) -> Layout:
    asking = Condition(lambda: surface.asking)
    picking = Condition(lambda: surface.picker.is_open)
    drafting = Condition(lambda: surface.drafting)
    roomy = Condition(lambda: surface.output.get_size().rows >= ROOMY)
    gap = ConditionalContainer(Window(height=1), roomy)
    live = FormattedTextControl(lambda: surface.unfinished)
    search = SearchToolbar()
    words = _words(surface, search)
    root = HSplit(
        [
            ConditionalContainer(
                Window(live, dont_extend_height=True),
                Condition(lambda: bool(surface.unfinished)) & ~picking,
            ),
            gap,
            ConditionalContainer(_question(surface), asking),
            ConditionalContainer(surface.picker.container(), picking),
            ConditionalContainer(words, (~asking | drafting) & ~picking),
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
        height=lambda: _half(surface),
    )


def _half(surface: Surface) -> Dimension:
    return Dimension(min=1, max=max(1, surface.output.get_size().rows // 2))


def _question(surface: Surface) -> Container:
    def said() -> StyleAndTextTuples:
        return [("class:dim" if surface.waits else "class:choices", surface.choices)]

    choices = FormattedTextControl(said)
    reply = Window(
        BufferControl(surface.reply),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=_prefix("? "),
        height=lambda: _half(surface),
    )
    return HSplit([Window(choices, wrap_lines=True, dont_extend_height=True), reply])


def _prefix(mark: str) -> Callable[[int, int], StyleAndTextTuples]:
    blank = " " * fragment_list_width([("", mark)])

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", mark if line == 0 and wrapped == 0 else blank)]

    return prefix
