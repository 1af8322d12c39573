"""The keys of the input and of an open question.

Enter sends; Alt-Enter, Ctrl-J or a backslash before Enter makes a new line. Esc and Ctrl-C stop
what runs; at rest Ctrl-C clears the input, and twice in an empty one it leaves, as Ctrl-D does.
Up in an empty input takes out words that wait to be sent, the newest first, Down puts them back.
"""

import asyncio
import time
from typing import Any, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_focus,
    is_searching,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, merge_key_bindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys

from ...errors import CtxagentError
from ..screen.asked import BACK, INSTANT, Asked
from ..screen.base import Host
from .pasted import Pasted

LEAVING = 2.0  # seconds in which a second Ctrl-C leaves
ALONE = 0.15  # seconds without another key after which a key stands alone


class Editor(Protocol):
    """What the keys act on: `words` is the input, in which `pasted` has what is folded, `reply` the
    answer to an open question, `asked` the question itself, and `instant` holds the keys that
    answer it at once. `away` is True while another program has the terminal."""

    host: Host
    words: Buffer
    pasted: Pasted
    reply: Buffer
    asked: Asked
    app: Application[Any]

    @property
    def away(self) -> bool: ...

    @property
    def asking(self) -> bool: ...

    @property
    def drafting(self) -> bool:
        """Whether words of their own are still typed while a question stands there."""
        ...

    def take_keys(self) -> None:
        """Give the keyboard to the open question."""
        ...

    @property
    def instant(self) -> str: ...

    def give(self, text: str) -> None:
        """Answer the open question."""
        ...

    async def edit(self, text: str) -> str:
        """The text as the person leaves it in their editor. Raises CtxagentError."""
        ...

    def hint(self, text: str) -> None: ...

    def suspend(self) -> None:
        """Stop until the shell lets us go on."""
        ...


def editing_keys(editor: Editor) -> KeyBindingsBase:
    """Keys of the input."""
    parts = (_typing_keys(editor), _going_keys(editor), _pasting_keys(editor))
    return merge_key_bindings(parts)


def _typing_keys(editor: Editor) -> KeyBindings:
    keys = KeyBindings()
    words = editor.words
    typing = has_focus(words)
    waiting = Condition(lambda: not words.text)

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        state = words.complete_state
        if state and state.current_completion:
            words.apply_completion(state.current_completion)
        elif words.document.text_before_cursor.endswith("\\"):
            words.delete_before_cursor()
            words.insert_text("\n")
        elif words.text.strip():
            editor.host.submit(editor.pasted.unfold(words.text))
            words.reset(append_to_history=not words.text[0].isspace())
            words.load_history_if_not_yet_loaded()  # or only the next paint would

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _(event: KeyPressEvent) -> None:
        words.insert_text("\n")

    @keys.add("tab", filter=Condition(lambda: editor.drafting and not words.complete_state))
    def _(event: KeyPressEvent) -> None:
        editor.take_keys()

    @keys.add("c-d", filter=typing & waiting)
    def _(event: KeyPressEvent) -> None:
        editor.host.leave()

    @keys.add("c-x", "c-e", filter=typing & emacs_mode)
    @keys.add("v", filter=typing & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        event.app.create_background_task(_compose(editor))

    return keys


def _going_keys(editor: Editor) -> KeyBindings:
    """Keys that go up and down: in the text, then among the words that wait, then in history."""
    keys = KeyBindings()
    words = editor.words
    choosing = Condition(lambda: words.complete_state is not None)
    moving = has_focus(words) & ~choosing
    first = Condition(lambda: words.document.on_first_line)
    last = Condition(lambda: words.document.on_last_line)

    @keys.add("up", filter=moving & first)
    @keys.add("c-p", filter=moving & first & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        given = editor.host.earlier(editor.pasted.unfold(words.text))
        if given is None:
            words.auto_up(event.arg)
        else:
            _put_in(words, editor.pasted.fold(given))

    @keys.add("down", filter=moving & last)
    @keys.add("c-n", filter=moving & last & emacs_mode)
    def _(event: KeyPressEvent) -> None:
        given = editor.host.later(editor.pasted.unfold(words.text))
        if given is None:
            words.auto_down(event.arg)
        else:
            _put_in(words, editor.pasted.fold(given))

    return keys


def _pasting_keys(editor: Editor) -> KeyBindings:
    """What a paste does to the input: it never sends, and what is long stands there as a mark."""
    keys = KeyBindings()
    words = editor.words
    typing = has_focus(words)

    def ending() -> int:
        return editor.pasted.ending(words.document.text_before_cursor)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        words.insert_text(editor.pasted.paste(text))

    @keys.add("backspace", filter=typing & ~vi_navigation_mode & Condition(lambda: ending() > 0))
    def _(event: KeyPressEvent) -> None:
        words.delete_before_cursor(ending())

    return keys


async def _compose(editor: Editor) -> None:
    """Have the input edited in the person's own editor. It comes back, and is not sent."""
    typed = editor.words.text
    try:
        text = await editor.edit(editor.pasted.unfold(typed))
    except CtxagentError as error:
        editor.host.tell(error)
        return
    given_back = editor.words.text.removesuffix(typed)  # by a turn that ended meanwhile
    editor.words.save_to_undo_stack()
    _put_in(editor.words, given_back + editor.pasted.fold(text.removesuffix("\n")))


def answer_keys(editor: Editor) -> KeyBindings:
    """Keys of an open question."""
    keys = KeyBindings()
    replying = has_focus(editor.reply)

    def add(key: str) -> None:
        @keys.add(key, filter=replying & Condition(lambda: key in editor.instant))
        def _(event: KeyPressEvent) -> None:
            editor.reply.insert_text(key)
            _answer_if_alone(editor, key)

    for key in INSTANT:
        add(key)

    empty = Condition(lambda: not editor.reply.text)
    several = Condition(lambda: editor.asked.several)
    vi = Condition(lambda: editor.app.editing_mode == EditingMode.VI)

    @keys.add("escape", filter=replying & returnable(editor) & empty)
    @keys.add("escape", filter=replying & returnable(editor) & (~vi | vi_navigation_mode))
    def _(event: KeyPressEvent) -> None:
        if editor.asked.back:
            editor.give(BACK)
        else:
            editor.reply.reset()

    @keys.add("up", filter=replying & several)
    def _(event: KeyPressEvent) -> None:
        _put_in(editor.reply, editor.asked.other(editor.reply.text, -1))

    @keys.add("down", filter=replying & several)
    @keys.add("tab", filter=replying & several)
    def _(event: KeyPressEvent) -> None:
        _put_in(editor.reply, editor.asked.other(editor.reply.text, 1))

    return keys


def _answer_if_alone(editor: Editor, key: str) -> None:
    """Give the key as the answer, unless another comes at once: then it begins words, or Enter
    sends it."""
    asked, keys = editor.asked, editor.app.key_processor
    editor.app.vi_state.reset()  # what follows is typed, whatever keys meant before

    def drop(_: object) -> None:
        timer.cancel()
        keys.before_key_press.remove_handler(drop)

    def settle() -> None:
        drop(None)
        if editor.asking and editor.asked is asked and not keys.key_buffer:
            editor.give(key)

    timer = asyncio.get_running_loop().call_later(ALONE, settle)
    keys.before_key_press.add_handler(drop)


def returnable(editor: Editor) -> Condition:
    """Whether Esc goes back within an open question, instead of interrupting."""
    return Condition(
        lambda: editor.asking and (editor.asked.back or bool(editor.reply.text.strip()))
    )


def _put_in(buffer: Buffer, text: str) -> None:
    buffer.document = Document(text)


def _hint_until_a_key(editor: Editor, text: str) -> None:
    """A hint that goes by itself too, as the status line has its place."""
    pressed = editor.app.key_processor.before_key_press

    def drop(_: object = None) -> None:
        timer.cancel()
        pressed.remove_handler(drop)
        editor.hint("")

    timer = asyncio.get_running_loop().call_later(LEAVING, drop)
    pressed.add_handler(drop)
    editor.hint(text)


def session_keys(editor: Editor, *others: KeyBindingsBase) -> KeyBindingsBase:
    """Keys that mean the same wherever the focus is, merged with `others`."""
    keys = KeyBindings()
    words = editor.words
    working = Condition(lambda: editor.host.working)
    vi = Condition(lambda: editor.app.editing_mode == EditingMode.VI)
    empty = Condition(lambda: not (editor.reply if editor.asking else words).text)
    back = returnable(editor)
    asked_at = -LEAVING

    @keys.add("escape", filter=working & ~back & empty & ~is_searching)
    @keys.add("escape", filter=working & ~back & (~vi | vi_navigation_mode) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        editor.host.interrupt()

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>", filter=Condition(lambda: not editor.away))
    def _(event: KeyPressEvent) -> None:
        nonlocal asked_at
        if editor.host.working:
            editor.host.interrupt()
        elif words.text:
            words.reset()
            editor.host.drop()
            asked_at = -LEAVING
        elif event.is_repeat and time.monotonic() - asked_at < LEAVING:
            editor.host.leave()
        else:
            asked_at = time.monotonic()
            _hint_until_a_key(editor, "Press Ctrl-C again to leave.")

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        editor.host.cycle_mode()

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.erase()  # what stands above is nobody's to clear
        event.app.invalidate()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        editor.suspend()

    @keys.add("c-o", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        editor.host.unfold()

    return merge_key_bindings([keys, *others])
