"""What the person types: keys, history, completion.

Enter sends; Alt-Enter, Ctrl-J or a backslash before Enter makes a new line. Esc and Ctrl-C stop
what runs; at rest Ctrl-C clears the input, and twice in an empty one it leaves, as Ctrl-D does.
Shift-Tab cycles the permission modes, Up in an empty input takes back words that wait to be sent.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_focus, is_searching
from prompt_toolkit.history import FileHistory, History, InMemoryHistory, ThreadedHistory
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, merge_key_bindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent

from .commands import COMMANDS
from .questions import INSTANT
from .screen import Host

LEAVING = 2.0  # seconds in which a second Ctrl-C leaves
FILES = 200_000  # paths that a completion looks at
FRESH = 5.0  # seconds for which a listing of the files is used
SHOWN = 40  # completions offered

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/([\w-]*)$")


class Editor(Protocol):
    """What the keys act on: `words` is the input, `reply` the answer to an open question, and
    `instant` holds the keys that answer it at once."""

    host: Host
    words: Buffer
    reply: Buffer
    app: Application[Any]

    @property
    def asking(self) -> bool: ...

    @property
    def instant(self) -> str: ...

    def give(self, text: str) -> None:
        """Answer the open question."""
        ...

    def restore(self, words: str) -> None:
        """Put words back in front of what is typed."""
        ...

    def hint(self, text: str) -> None: ...


class PrivateHistory(FileHistory):
    """What was typed, in a file that only its owner can read. A file that cannot be written costs
    the history, never the words."""

    def store_string(self, string: str) -> None:
        try:
            path = Path(os.fsdecode(self.filename))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            super().store_string(string.encode(errors="replace").decode())
        except OSError:
            return


def history_of(path: Path | None) -> History:
    return ThreadedHistory(PrivateHistory(str(path))) if path else InMemoryHistory()


class WordsCompleter(Completer):
    """Completes `/commands` with their help, and `@paths` of the project."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._files: list[str] = []
        self._listed = -FRESH

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        typed = _COMMAND.fullmatch(document.text)
        for command in COMMANDS.values() if typed else ():
            if typed and command.name.startswith(typed[1]):
                yield Completion(f"/{command.name}", -len(document.text), display_meta=command.help)

    async def get_completions_async(
        self, document: Document, event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, event):
            yield completion
        mention = _MENTION.search(document.text_before_cursor)
        if mention:
            files = await self._listing()
            for path in await asyncio.to_thread(rank, mention[1], files, SHOWN):
                yield Completion(f"@{path}", -len(mention[0]), display=path)

    async def _listing(self) -> list[str]:
        if time.monotonic() - self._listed > FRESH:
            from ...tools.listing import list_files

            self._files = await list_files(self._cwd, FILES)
            self._listed = time.monotonic()
        return self._files


def rank(typed: str, paths: Sequence[str], limit: int) -> list[str]:
    """The paths that match what was typed, best first: in the name, then in the path, then with
    its letters in order. Upper and lower case are one."""
    wanted = typed.lower()
    if not wanted:
        return sorted(paths, key=lambda p: (p.count("/"), p))[:limit]
    letters = re.compile(".*?".join(map(re.escape, wanted)), re.DOTALL)
    found: list[tuple[int, int, str]] = []
    for path in paths:
        low = path.lower()
        name = low.rstrip("/").rpartition("/")[2]
        if name.startswith(wanted):
            found.append((0, len(path), path))
        elif wanted in name:
            found.append((1, len(path), path))
        elif wanted in low:
            found.append((2, len(path), path))
        elif letters.search(low):
            found.append((3, len(path), path))
    return [path for _, _, path in sorted(found)[:limit]]


def editing_keys(editor: Editor) -> KeyBindings:
    """Keys of the input."""
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
            text = words.text
            words.reset(append_to_history=True)
            editor.host.submit(text)

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _(event: KeyPressEvent) -> None:
        words.insert_text("\n")

    @keys.add("c-d", filter=typing & waiting)
    def _(event: KeyPressEvent) -> None:
        editor.host.leave()

    @keys.add("up", filter=typing & waiting)
    def _(event: KeyPressEvent) -> None:
        if queued := editor.host.recall():
            editor.restore(queued)
        else:
            words.auto_up(event.arg)

    return keys


def answer_keys(editor: Editor) -> KeyBindings:
    """Keys of an open question."""
    keys = KeyBindings()
    replying = has_focus(editor.reply)

    def add(key: str) -> None:
        @keys.add(key, filter=replying & Condition(lambda: key in editor.instant))
        def _(event: KeyPressEvent) -> None:
            editor.give(key)

    for key in INSTANT:
        add(key)
    return keys


def session_keys(editor: Editor, *others: KeyBindingsBase) -> KeyBindingsBase:
    """Keys that mean the same wherever the focus is, merged with `others`."""
    keys = KeyBindings()
    words = editor.words
    working = Condition(lambda: editor.host.working)
    vi = Condition(lambda: editor.app.editing_mode == EditingMode.VI)
    empty = Condition(lambda: not (editor.reply if editor.asking else words).text)
    asked_at = -LEAVING

    @keys.add("escape", filter=working & empty & ~is_searching, eager=True)
    @keys.add("escape", filter=working & ~vi & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        editor.host.interrupt()

    @keys.add("c-c", filter=~is_searching)
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        nonlocal asked_at
        if editor.host.working:
            editor.host.interrupt()
        elif words.text:
            words.reset()
        elif time.monotonic() - asked_at < LEAVING:
            editor.host.leave()
        else:
            asked_at = time.monotonic()
            editor.hint("Press Ctrl-C again to leave.")
            event.app.loop.call_later(LEAVING, editor.hint, "")  # type: ignore[union-attr]

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        editor.host.cycle_mode()

    return merge_key_bindings([keys, *others])
