"""The prompt_toolkit application of a terminal."""

from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.cursor_shapes import DynamicCursorShapeConfig, ModalCursorShapeConfig
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding.key_bindings import DynamicKeyBindings
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.keys import Keys

from ..input.keys import KeyTarget, key_bindings, vi_keys
from ..render.theme import Palette, prompt_toolkit_style
from .output import InlineRenderer
from .picker import LayoutParts, make_layout, picker_keys

ESCAPE_TIMEOUT_S = 0.05  # until an escape byte counts as the Esc key, and then as Esc alone
CHORD_TIMEOUT_S = 1.0  # between two keys of a sequence


class ApplicationParts(LayoutParts, KeyTarget, Protocol):
    """The part of the terminal that its application uses."""

    palette: Palette

    def paintable(self) -> bool: ...

    def painted(self) -> None: ...

    def resized(self) -> None: ...


def make_application(terminal: ApplicationParts, *, input: Input, vi: bool) -> Application[None]:
    app: _Application = _Application(
        layout=make_layout(terminal),
        key_bindings=key_bindings(
            terminal,
            picker_keys(terminal.picker),
            DynamicKeyBindings(lambda: terminal.context.keys if terminal.context else None),
            vi_keys(),
        ),
        style=prompt_toolkit_style(terminal.palette),
        editing_mode=EditingMode.VI if vi else EditingMode.EMACS,
        erase_when_done=True,
        cursor=DynamicCursorShapeConfig(
            lambda: ModalCursorShapeConfig() if app.editing_mode == EditingMode.VI else None
        ),
        input=input,
        output=terminal.output,
        terminal_size_polling_interval=None,
    )
    app.ttimeoutlen = ESCAPE_TIMEOUT_S
    app.key_processor.after_key_press += _wait_for_more
    app.renderer = InlineRenderer(
        app.renderer.style,
        terminal.output,
        terminal.paintable,
        terminal.painted,
        Condition(lambda: terminal.context is not None),
    )
    app.resized = terminal.resized
    return app


class _Application(Application[None]):
    """An application whose resize handling is done by the screen."""

    resized: Callable[[], None]

    def _on_resize(self) -> None:
        self.resized()


def _wait_for_more(keys: KeyProcessor) -> None:
    """Set the timeout for the next key of a sequence. It is short after Esc, because terminals send
    Alt with a letter at once, and longer after other prefix keys.
    """
    escaped = any(press.key == Keys.Escape for press in keys.key_buffer)
    get_app().timeoutlen = ESCAPE_TIMEOUT_S if escaped else CHORD_TIMEOUT_S
