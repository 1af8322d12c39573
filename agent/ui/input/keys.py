"""The key bindings of the input and of an open question, with corrected vi keys.

The settings `keys` define the keys to send, to insert a new line and so on. A backslash before the
send key also inserts a new line. Ctrl-C stops the running task. When no task runs, Ctrl-C clears
the input, and Ctrl-C twice in an empty input leaves, as Ctrl-D does. When no task runs, Ctrl-B
moves the cursor left. Up in an empty input takes out queued messages for editing, newest first;
Down puts them back.

Two vi keys of prompt_toolkit are corrected. `cw` and `cW` change up to the end of the word and keep
the space after it; on a space they change spaces. `"x` before `c`, `d` or `y` stores the text in
register x, which fails in prompt_toolkit.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_focus,
    is_searching,
    vi_navigation_mode,
    vi_waiting_for_text_object_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, merge_key_bindings
from prompt_toolkit.key_binding.bindings import search
from prompt_toolkit.key_binding.bindings.named_commands import get_by_name
from prompt_toolkit.key_binding.bindings.vi import (
    TextObject,
    create_text_object_decorator,
    vi_register_names,
)
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from ...config.keyboard import CTRL_J, DEFAULT_KEYS, ENTER, ESC, KeyboardSettings
from ...errors import CtxagentError
from ...lazy import dataclass
from ..screen import BACK, INSTANT_KEYS, LEAVE_WINDOW_S, OpenQuestion, ScreenHost
from .pasted import PastedTexts

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


Handler = Callable[[KeyPressEvent], None]

SINGLE_KEY_S = 0.15  # a key counts as single if no other key follows within this time


class KeyTarget(Protocol):
    """The part of the screen that the keys use."""

    host: ScreenHost
    keys: KeyboardSettings
    draft: Buffer  # the input
    pasted: PastedTexts  # the long texts behind the marks in the input
    reply: Buffer  # the answer to an open question
    asked: OpenQuestion
    app: Application[Any]
    away: bool  # whether another program has the terminal

    @property
    def asking(self) -> bool:
        """Whether a question is open."""

    @property
    def drafting(self) -> bool:
        """Whether the user is still typing a message while a question is open."""

    def focus_question(self) -> None:
        """Move the focus to the open question."""

    @property
    def instant(self) -> str:
        """The keys that answer the open question at once."""

    @property
    def takes_rows(self) -> bool:
        """Whether the arrows select rows of the open question."""

    def give_answer(self, text: str) -> None:
        """Answer the open question."""

    async def edit(self, text: str, name: str) -> str:
        """Let the user edit a text in their editor, in a file called `name`; return the result.
        Raises CtxagentError.
        """

    async def paste_image(self) -> str:
        """Return a mark for the image in the clipboard. Raises CtxagentError if there is none."""

    def completes_mention(self) -> bool:
        """Return True if the input ends in an `@` mention of nothing that exists."""

    def dropped(self, text: str) -> str:
        """Return `@` mentions if a paste consists of paths of image files, else ""."""

    def hint(self, text: str) -> None: ...

    def suspend(self) -> None:
        """Stop the process until the shell continues it."""


def key_sequence(key: str) -> list[str]:
    """Convert a key from the settings to prompt_toolkit's names."""
    sequence = list[str]()
    for each in key.split(" "):
        modifier, dash, rest = each.partition("-")
        if modifier == "alt":
            sequence += ["escape", rest]
        else:
            sequence.append("escape" if each == ESC else f"{modifier[0]}-{rest}" if dash else each)
    return sequence


def key_bindings(target: KeyTarget, *others: KeyBindingsBase) -> KeyBindingsBase:
    """Return all key bindings of the input and of an open question, merged with `others`."""
    parts = (
        _keys_of_other_agents,
        _search_keys,
        _stop_keys,
        _session_keys,
        _typing_keys,
        _completing_keys,
        _moving_keys,
        _pasting_keys,
        _answer_keys,
    )
    return merge_key_bindings([*(part(target) for part in parts), *others])


def _typing_keys(target: KeyTarget) -> KeyBindings:
    keys = KeyBindings()
    draft = target.draft
    typing = has_focus(draft)
    waiting = Condition(lambda: not draft.text)
    working = Condition(lambda: target.host.working)

    def send(*, alt: bool) -> None:
        if draft.document.text_before_cursor.endswith("\\"):
            draft.delete_before_cursor()
            draft.insert_text("\n")
        elif draft.text.strip():
            target.host.submit(target.pasted.unfold(draft.text), alt=alt)
            draft.reset(append_to_history=not draft.text[0].isspace())
            draft.load_history_if_not_yet_loaded()  # otherwise only the next paint would load it

    bound, other = target.keys, key_sequence(target.keys.send_other)

    # Shift-Enter and pasted lines arrive as Ctrl-J, so it must not send by default.
    @keys.add(*key_sequence(CTRL_J), filter=typing)
    @keys.add(*other, filter=typing & ~working)
    @keys.add(*key_sequence(bound.newline), filter=typing)
    def _(event: KeyPressEvent) -> None:
        draft.insert_text("\n")

    keys.add(*key_sequence(bound.send), filter=typing)(lambda _: send(alt=False))

    keys.add(*other, filter=typing & working)(lambda _: send(alt=True))

    @keys.add("tab", filter=Condition(lambda: target.drafting and not draft.complete_state))
    def _(event: KeyPressEvent) -> None:
        target.focus_question()

    keys.add("c-d", filter=typing & waiting)(lambda _: target.host.leave())

    @keys.add(*key_sequence(bound.editor), filter=typing & ~vi_navigation_mode)
    @keys.add("v", filter=typing & vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        event.app.create_background_task(_compose(target))

    return keys


def _completing_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys that take a completion from the menu."""
    keys, draft, bound = KeyBindings(), target.draft, target.keys
    typing = has_focus(draft)
    by_tab = ""  # the input as Tab has completed it

    def completion() -> Completion | None:
        """Return the selected completion, or the first for an `@` mention of no file."""
        if (state := draft.complete_state) is None or not state.completions:
            return None
        first = state.completions[0] if target.completes_mention() else None
        return state.current_completion or first

    choosing = Condition(lambda: draft.complete_state is not None)
    taking = Condition(lambda: completion() is not None)
    completing = Condition(lambda: completion() is not None and draft.text != by_tab)

    @keys.add("enter", filter=typing & (completing if bound.send == ENTER else taking))
    @keys.add(*key_sequence(bound.send), filter=typing & completing)
    def _(event: KeyPressEvent) -> None:
        if chosen := completion():
            draft.apply_completion(chosen)

    @keys.add("tab", filter=typing & choosing)
    def _(event: KeyPressEvent) -> None:
        nonlocal by_tab
        draft.complete_next()
        state = draft.complete_state
        by_tab = draft.text if state and state.current_completion else ""

    return keys


def _moving_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys that move up and down in the text, the queued messages and the history."""
    keys = KeyBindings()
    draft = target.draft
    moving = has_focus(draft) & Condition(lambda: draft.complete_state is None)
    first = Condition(lambda: draft.document.on_first_line)
    last = Condition(lambda: draft.document.on_last_line)

    def move(waiting: Callable[[str], str | None], otherwise: Callable[[int], None]) -> Handler:
        def act(event: KeyPressEvent) -> None:
            found = waiting(target.pasted.unfold(draft.text))
            if found is None:
                otherwise(event.arg)
            else:
                _set_text(draft, target.pasted.fold(found))

        return act

    up = move(lambda typed: target.host.earlier(typed), draft.auto_up)
    keys.add("up", filter=moving & first)(up)
    keys.add("c-p", filter=moving & first & emacs_mode)(up)
    down = move(lambda typed: target.host.later(typed), draft.auto_down)
    keys.add("down", filter=moving & last)(down)
    keys.add("c-n", filter=moving & last & emacs_mode)(down)
    return keys


def _pasting_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys for pastes. A paste never sends, and a long text becomes a mark."""
    keys = KeyBindings()
    draft = target.draft
    typing = has_focus(draft)

    def mark_length() -> int:
        return target.pasted.mark_length_at_end(draft.document.text_before_cursor)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        if mentions := target.dropped(text):
            _insert_spaced(draft, mentions)
        elif text:
            draft.insert_text(target.pasted.paste(text))
        else:  # some terminals paste an empty text if the clipboard has an image
            event.app.create_background_task(_paste_image(target))

    paste = key_sequence(target.keys.paste_image)
    keys.add(*paste, filter=typing & ~vi_navigation_mode)(lambda _: _paste_image(target))

    after_mark = Condition(lambda: mark_length() > 0)

    @keys.add("backspace", filter=typing & ~vi_navigation_mode & after_mark)
    def _(event: KeyPressEvent) -> None:
        draft.delete_before_cursor(mark_length())

    return keys


async def _paste_image(target: KeyTarget) -> None:
    """Insert a mark for the image in the clipboard, or show a hint if there is none."""
    try:
        mark = await target.paste_image()
    except CtxagentError as error:
        _hint_until_a_key(target, f"{error.message}. {error.hint}")
        return
    _insert_spaced(target.draft, mark)


def _insert_spaced(draft: Buffer, text: str) -> None:
    """Insert a mention or a mark with spaces around it."""
    before = draft.document.text_before_cursor
    draft.insert_text(f"{' ' * bool(before and not before[-1].isspace())}{text} ")


async def _compose(target: KeyTarget) -> None:
    """Open the input in the user's editor. The result goes back to the input and is not sent."""
    typed = target.draft.text
    try:
        text = await target.edit(target.pasted.unfold(typed), "message.md")
    except CtxagentError as error:
        target.host.show_error(error)
        return
    restored = target.draft.text.removesuffix(
        typed
    )  # unsent messages put back by a turn that ended meanwhile
    target.draft.save_to_undo_stack()
    _set_text(target.draft, restored + target.pasted.fold(text.removesuffix("\n")))


def _answer_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys of an open question."""
    keys = KeyBindings()
    replying = has_focus(target.reply)

    def add(key: str) -> None:
        @keys.add(key, filter=replying & Condition(lambda: key in target.instant))
        def _(event: KeyPressEvent) -> None:
            target.reply.insert_text(key)
            _answer_if_single(target, key)

    for key in INSTANT_KEYS:
        add(key)

    keys.add("escape", "enter", filter=replying)(lambda _: target.reply.validate_and_handle())

    empty = Condition(lambda: not target.reply.text)
    leaving = Condition(lambda: target.host.is_leaving)
    has_others = Condition(lambda: target.asked.has_other_texts)
    vi = Condition(lambda: target.app.editing_mode == EditingMode.VI)

    @keys.add("escape", filter=replying & _can_go_back(target) & empty)
    @keys.add("escape", filter=replying & _can_go_back(target) & (~vi | vi_navigation_mode))
    def _(event: KeyPressEvent) -> None:
        if target.asked.allows_back:
            target.give_answer(BACK)
        elif target.reply.text:
            target.reply.reset()
        elif not target.host.withdraw():
            target.give_answer(BACK)

    keys.add("c-d", filter=replying & empty & leaving)(lambda _: target.host.leave())

    takes_rows = Condition(lambda: target.takes_rows)
    keys.add("up", filter=replying & takes_rows)(lambda _: target.asked.move(-1))
    keys.add("down", filter=replying & takes_rows)(lambda _: target.asked.move(1))

    @keys.add("up", filter=replying & has_others)
    def _(event: KeyPressEvent) -> None:
        _set_text(target.reply, target.asked.switch_text(target.reply.text, -1))

    @keys.add("down", filter=replying & has_others)
    @keys.add("tab", filter=replying & has_others)
    def _(event: KeyPressEvent) -> None:
        _set_text(target.reply, target.asked.switch_text(target.reply.text, 1))

    return keys


def _answer_if_single(target: KeyTarget, key: str) -> None:
    """Answer with the key unless another key follows at once. In that case, both keys are text of
    the reply.
    """
    asked, keys = target.asked, target.app.key_processor
    target.app.vi_state.reset()  # following keys are text, whatever the vi mode was

    def drop(_: object) -> None:
        timer.cancel()
        keys.before_key_press.remove_handler(drop)

    def settle() -> None:
        drop(None)
        if target.asking and target.asked is asked and not keys.key_buffer:
            target.give_answer(key)

    timer = asyncio.get_running_loop().call_later(SINGLE_KEY_S, settle)
    keys.before_key_press.add_handler(drop)


def _can_go_back(target: KeyTarget) -> Condition:
    """Return whether Esc goes back in an open question instead of interrupting. Between turns there
    is nothing to interrupt, so Esc leaves any question.
    """

    def can_go_back() -> bool:
        typed = bool(target.reply.text.strip())
        return target.asking and (target.asked.allows_back or typed or not target.host.working)

    return Condition(can_go_back)


def _set_text(buffer: Buffer, text: str) -> None:
    buffer.document = Document(text)


def _hint_until_a_key(target: KeyTarget, text: str) -> None:
    """Show a hint over the status line until the next key, for at most two seconds."""
    pressed = target.app.key_processor.before_key_press

    def drop(_: object = None) -> None:
        timer.cancel()
        pressed.remove_handler(drop)
        target.hint("")

    timer = asyncio.get_running_loop().call_later(LEAVE_WINDOW_S, drop)
    pressed.add_handler(drop)
    target.hint(text)


def _keys_of_other_agents(target: KeyTarget) -> KeyBindings:
    """Return the keys that most other agents have. The keys of the settings come first."""
    keys = KeyBindings()
    draft, taken = target.draft, {getattr(target.keys, each.name) for each in fields(target.keys)}
    typing = has_focus(draft) & ~is_searching
    idle = Condition(lambda: not (target.host.working or target.asking))
    choosing = Condition(lambda: draft.complete_state is not None)
    stashed, escaped_at = "", -LEAVE_WINDOW_S

    def add(key: str, act: Handler) -> None:
        if key not in taken:
            keys.add(*key_sequence(key), filter=typing & ~choosing)(act)

    def edit(event: KeyPressEvent) -> None:
        event.app.create_background_task(_compose(target))

    def stash(_: KeyPressEvent) -> None:
        nonlocal stashed
        stashed, typed = target.pasted.unfold(draft.text) or stashed, draft.text
        _set_text(draft, "" if typed else target.pasted.fold(stashed))
        if typed:
            _hint_until_a_key(target, "The message is set aside: Ctrl-S brings it back.")

    def escape(event: KeyPressEvent) -> None:
        nonlocal escaped_at
        again = event.is_repeat and time.monotonic() - escaped_at < LEAVE_WINDOW_S
        escaped_at = -LEAVE_WINDOW_S if again else time.monotonic()
        if not again:
            what = "clear the input" if draft.text else "go back to an earlier point"
            _hint_until_a_key(target, f"Press Esc again to {what}.")
        elif draft.text:
            draft.reset()
            target.host.drop()
        else:
            target.host.submit("/rewind")

    vi = Condition(lambda: target.app.editing_mode == EditingMode.VI)
    add("ctrl-g", edit)
    add("ctrl-s", stash)
    add("ctrl-t", lambda _: target.host.submit("/todo"))
    add("alt-p", lambda _: target.host.submit("/model"))
    keys.add("escape", filter=typing & idle & ~choosing & (~vi | vi_navigation_mode))(escape)
    keys.add("escape", filter=typing & choosing & ~vi)(lambda _: draft.cancel_completion())
    return keys


def _search_keys(target: KeyTarget) -> KeyBindings:
    """Return the history search keys if they differ from prompt_toolkit's."""
    keys = KeyBindings()
    if target.keys.history_search != DEFAULT_KEYS.history_search:
        former, key = (key_sequence(each.history_search) for each in (DEFAULT_KEYS, target.keys))
        keys.add(*former, filter=~vi_navigation_mode)(lambda _: None)
        keys.add(*key)(search.start_reverse_incremental_search)
        keys.add(*key)(search.reverse_incremental_search)
    return keys


def _stop_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys other than Ctrl-C that stop the running task."""
    keys = KeyBindings()
    working = Condition(lambda: target.host.working)
    vi = Condition(lambda: target.app.editing_mode == EditingMode.VI)
    empty = Condition(lambda: not (target.reply if target.asking else target.draft).text)
    back = _can_go_back(target)
    bound = target.keys
    # In a question during a turn, Esc declines, whichever key stops the turn.
    by_esc = Condition(lambda: target.asking or bound.interrupt == ESC)
    stopping = working & by_esc & ~is_searching

    @keys.add("escape", filter=stopping & ~back & empty)
    @keys.add("escape", filter=stopping & ~back & (~vi | vi_navigation_mode))
    def stop(event: KeyPressEvent) -> None:
        if not target.host.withdraw():
            target.host.interrupt()

    if bound.interrupt != ESC:
        keys.add(*key_sequence(bound.interrupt), filter=working & ~is_searching)(stop)

    return keys


def _session_keys(target: KeyTarget) -> KeyBindings:
    """Return the keys that work independently of the focus."""
    keys = KeyBindings()
    draft = target.draft
    commands = Condition(lambda: target.host.runs_command)
    vi = Condition(lambda: target.app.editing_mode == EditingMode.VI)
    asked_at = -LEAVE_WINDOW_S
    bound = target.keys

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>", filter=Condition(lambda: not target.away))
    def _(event: KeyPressEvent) -> None:
        nonlocal asked_at
        if target.host.working:
            target.host.interrupt()
        elif draft.text:
            draft.reset()
            target.host.drop()
            asked_at = -LEAVE_WINDOW_S
        elif event.is_repeat and time.monotonic() - asked_at < LEAVE_WINDOW_S:
            target.host.leave()
        else:
            asked_at = time.monotonic()
            _hint_until_a_key(target, "Press Ctrl-C again to leave.")

    # Not in a menu, because a menu hides the mode.
    outside = has_focus(draft) | has_focus(target.reply) | is_searching
    keys.add(*key_sequence(bound.cycle_mode), filter=outside)(lambda _: target.host.cycle_mode())

    @keys.add(*key_sequence(bound.redraw))
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.erase()  # keep the scrollback above
        event.app.invalidate()

    keys.add("c-z")(lambda _: target.suspend())

    left = get_by_name("backward-char").handler
    keys.add("c-b", filter=has_focus(draft) & vi & ~commands)(left)

    background, unfold = key_sequence(bound.background), key_sequence(bound.unfold)
    keys.add(*background, filter=commands & ~is_searching)(
        lambda _: target.host.send_to_background()
    )
    keys.add(*unfold, filter=~is_searching)(lambda _: target.host.unfold())

    return keys
