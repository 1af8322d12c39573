"""Corrections to prompt_toolkit's vi keys, and the name of the vi mode.

`cw` and `cW` change up to the end of the word and keep the space after it; on a space they change
spaces. `"x` before `c`, `d` or `y` stores the text in register x, which fails in prompt_toolkit.
"""

from typing import Any

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, vi_navigation_mode, vi_waiting_for_text_object_mode
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.bindings.vi import (
    TextObject,
    create_text_object_decorator,
    vi_register_names,
)
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from ...lazy import dataclass

_MODE_NAMES = {
    InputMode.INSERT: "INSERT",
    InputMode.INSERT_MULTIPLE: "INSERT",
    InputMode.NAVIGATION: "NORMAL",
    InputMode.REPLACE: "REPLACE",
    InputMode.REPLACE_SINGLE: "REPLACE",
}


def mode_name(app: Application[Any]) -> str:
    """Return the name of the vi mode, "" if vi keys are off."""
    if app.editing_mode != EditingMode.VI:
        return ""
    return "VISUAL" if app.current_buffer.selection_state else _MODE_NAMES[app.vi_state.input_mode]


@dataclass(frozen=True, slots=True)
class _Operator:
    """The operator `c`, `d` or `y`, waiting for its text object."""

    key: str
    register: str  # "" for the clipboard

    def __call__(self, event: KeyPressEvent, what: TextObject) -> None:
        document, cut = what.cut(event.current_buffer)
        if self.key != "y":
            event.current_buffer.document = document
        if self.register in vi_register_names:
            event.app.vi_state.named_registers[self.register] = cut
        elif cut.text and not self.register:
            event.app.clipboard.set_data(cut)
        if self.key == "c":
            event.app.vi_state.input_mode = InputMode.INSERT


def vi_keys() -> KeyBindings:
    """Return the corrected vi keys."""
    keys = KeyBindings()
    text_object = create_text_object_decorator(keys)
    ready = vi_navigation_mode & ~vi_waiting_for_text_object_mode

    @keys.add("c", filter=ready)
    @keys.add('"', Keys.Any, "c", filter=ready)
    @keys.add('"', Keys.Any, "d", filter=ready)
    @keys.add('"', Keys.Any, "y", filter=ready)
    def _(event: KeyPressEvent) -> None:
        *named, key = (press.data for press in event.key_sequence)
        event.app.vi_state.operator_func = _Operator(key, named[1] if named else "")
        event.app.vi_state.operator_arg = event.arg

    def is_changing() -> bool:
        operator = get_app().vi_state.operator_func
        return isinstance(operator, _Operator) and operator.key == "c"

    for key in "wW":

        @text_object(
            key, filter=Condition(is_changing), no_move_handler=True, no_selection_handler=True
        )
        def _(event: KeyPressEvent) -> TextObject:
            document, large = event.current_buffer.document, event.data == "W"
            if document.current_char.isspace():
                end = document.find_next_word_beginning(count=event.arg, WORD=large)
            else:
                end = document.find_next_word_ending(
                    include_current_position=True, count=event.arg, WORD=large
                )
            return TextObject(end or document.get_end_of_document_position())

    return keys
