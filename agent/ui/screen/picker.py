"""A menu of many things as it stands on a real terminal, in the place of the input: what is looked
for, the options in rows, and what there is to say of the one that is chosen. It opens at once and
fills while it is open; nothing of it stays.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    Window,
)
from prompt_toolkit.utils import get_cwidth

from ..look.options import WIDE, Room, cut, folded, pattern, row_of
from .menu import Menu, Option, Shelf, Styled

DEEP = 24  # rows from which on there is a preview
MOST = 24  # rows of options


class Picker:
    """`size` is the terminal's; `changed` is called when there is something else to show, `closed`
    at once when there is nothing any more: what is typed from then on is not meant for the menu. It
    is given the words that were typed ahead of the menu, if they have found nothing."""

    def __init__(
        self,
        size: Callable[[], Size],
        changed: Callable[[], None],
        closed: Callable[[str], None],
    ) -> None:
        self.search = Buffer(multiline=False, on_text_changed=lambda _: self._searched())
        self._size = size
        self._changed = changed
        self._closed = closed
        self._ahead = False
        self._menu: Menu | None = None
        self._shelves: dict[int, Shelf] = {}
        self._scope = 0
        self._top = 0
        self._previews: dict[str, Sequence[Styled]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._choice: asyncio.Future[Option | None] | None = None

    @property
    def is_open(self) -> bool:
        return self._menu is not None

    async def pick(self, menu: Menu, typed: str = "") -> Option | None:
        """Show the menu, with words to look for, until the person chooses or leaves."""
        self._menu, self._scope, self._top = menu, 0, 0
        self._shelves, self._previews, self._ahead = {}, {}, bool(typed)
        self._choice = asyncio.get_running_loop().create_future()
        self.search.reset(Document(typed))
        self._open(0)
        try:
            return await self._choice
        finally:
            self._close(None)
            tasks, self._tasks = [*self._tasks.values()], {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def choose(self) -> None:
        if chosen := self._shelf.chosen:
            self._close(chosen)

    def leave(self) -> None:
        self._close(None)

    def move(self, step: int) -> None:
        self._shelf.move(step)
        self._look()

    def page(self, direction: int) -> None:
        room = self._room()
        self.move(direction * max(1, room.rows // room.each - 1))

    def widen(self) -> None:
        """Go over to the options of the next scope."""
        if self._menu:
            self._open((self._scope + 1) % len(self._menu.scopes))

    @property
    def several(self) -> bool:
        """Whether there is another scope."""
        return self._menu is not None and len(self._menu.scopes) > 1

    @property
    def _shelf(self) -> Shelf:
        return self._shelves.setdefault(self._scope, Shelf())

    def _open(self, scope: int) -> None:
        self._scope, self._top = scope, 0
        if scope not in self._shelves and self._menu:
            self._start(f"load {scope}", self._load(self._menu, scope))
        self._searched()

    def _close(self, chosen: Option | None) -> None:
        if self._menu is None:
            return
        self._menu = None
        if self._choice and not self._choice.done():
            self._choice.set_result(chosen)
        self._closed(self.search.text if self._ahead and chosen is None else "")

    async def _load(self, menu: Menu, scope: int) -> None:
        shelf = self._shelves.setdefault(scope, Shelf())
        shelf.search(self.search.text)
        parts = menu.load(scope)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            shelf.add(part)
            self._look()
            self._changed()
        shelf.complete = True
        self._changed()

    def _searched(self) -> None:
        if self.is_open:
            self._shelf.search(self.search.text)
            self._look()
            self._changed()

    def _look(self) -> None:
        """See to it that there is a preview of what is chosen."""
        chosen = self._shelf.chosen
        if not chosen or chosen.key in self._previews or "look" in self._tasks:
            return
        if self._menu and self._menu.preview and self._room().preview:
            self._start("look", self._preview(self._menu.preview))

    async def _preview(self, preview: Callable[[str], Sequence[Styled]]) -> None:
        while (chosen := self._shelf.chosen) and chosen.key not in self._previews:
            self._previews[chosen.key] = await asyncio.to_thread(preview, chosen.key)
            self._changed()

    def _start(self, name: str, work: Any) -> None:
        def done(task: asyncio.Task[None]) -> None:
            if self._tasks.get(name) is task:
                del self._tasks[name]
            if not task.cancelled() and (error := task.exception()) and self._choice:
                with suppress(asyncio.InvalidStateError):
                    self._choice.set_exception(error)
            elif self.is_open:
                self._look()

        self._tasks[name] = task = asyncio.create_task(work)
        task.add_done_callback(done)

    # What it looks like.

    def container(self) -> Container:
        def fixed(height: Callable[[], int], text: Callable[[], StyleAndTextTuples]) -> Window:
            return Window(
                FormattedTextControl(text),
                height=lambda: Dimension.exact(height()),
                dont_extend_height=True,
            )

        search = Window(
            BufferControl(self.search),
            height=1,
            get_line_prefix=lambda line, wrapped: [("class:prompt", "search: ")],
        )
        return HSplit(
            [
                fixed(lambda: 1, self._heading),
                search,
                fixed(lambda: self._room().rows, self._rows),
                fixed(lambda: self._room().preview, self._shown),
            ]
        )

    def keys_line(self, width: int) -> StyleAndTextTuples:
        """The keys there are, as many as fit."""
        if self._menu is None:
            return []
        others = [scope for n, scope in enumerate(self._menu.scopes) if n != self._scope]
        said = [f"enter: {self._menu.act}", *(f"tab: {other}" for other in others[:1]), "esc: back"]
        while len(said) > 1 and get_cwidth(" · ".join(said)) > width:
            said.pop()
        return [("", cut(" · ".join(said), width))]

    def _room(self) -> Room:
        size = self._size()
        left = max(1, size.rows - 4 - (size.rows >= 12))
        previewed = self._menu is not None and self._menu.preview is not None
        preview = min(10, left // 3) if size.rows >= DEEP and previewed else 0
        each = 1 if size.columns >= WIDE or left - preview < 10 else 2
        total = max((shelf.total for shelf in self._shelves.values()), default=0)
        rows = min(left - preview, MOST, total * each)
        return Room(size.columns - 1, max(1, rows - rows % each), preview, each)

    def _heading(self) -> StyleAndTextTuples:
        if self._menu is None:
            return []
        shelf, columns = self._shelf, self._room().columns
        count = f"{len(shelf.found):,} of {shelf.total:,}" if self._words else f"{shelf.total:,}"
        count += "" if shelf.complete else " …"
        scope = self._menu.scopes[self._scope]
        left = cut(f"{self._menu.title} · {scope}" if scope else self._menu.title, columns)
        gap = columns - get_cwidth(left) - get_cwidth(count)
        more: StyleAndTextTuples = [("class:dim", " " * gap + count)] if gap > 1 else []
        return [("class:choices", left), *more]

    @property
    def _words(self) -> list[str]:
        return self.search.text.split()

    def _rows(self) -> StyleAndTextTuples:
        shelf, room = self._shelf, self._room()
        if not shelf.found and self._menu:
            said = self._menu.nothing if shelf.complete else "reading …"
            return [("class:dim", cut("nothing holds these words" if shelf.total else said, 60))]
        fitting = max(1, room.rows // room.each)
        self._top = max(
            shelf.at - fitting + 1, min(self._top, shelf.at, len(shelf.found) - fitting)
        )
        self._top = max(0, self._top)
        marks = pattern(self._words)
        out: StyleAndTextTuples = []
        for place, option in enumerate(shelf.found[self._top : self._top + fitting], self._top):
            out += [("", "\n")] if out else []
            out += row_of(option, room, shelf.columns, marks, chosen=place == shelf.at)
        return out

    def _shown(self) -> StyleAndTextTuples:
        chosen, room = self._shelf.chosen, self._room()
        lines = self._previews.get(chosen.key, ()) if chosen else ()
        out: StyleAndTextTuples = [("class:dim", "─" * room.columns)]
        for role, text in folded(lines, room):
            out += [("", "\n"), (f"class:{role}" if role else "", text)]
        return out


def keys_of(picker: Picker) -> KeyBindings:
    """The keys while it is open."""
    keys = KeyBindings()
    picking = has_focus(picker.search)
    several = picking & Condition(lambda: picker.several)

    def add(*names: str, act: Callable[[], None]) -> None:
        for name in names:

            @keys.add(name, filter=picking)
            def _(event: KeyPressEvent) -> None:
                act()

    add("up", "c-p", act=lambda: picker.move(-1))
    add("down", "c-n", act=lambda: picker.move(1))
    add("pageup", act=lambda: picker.page(-1))
    add("pagedown", act=lambda: picker.page(1))
    add("home", act=lambda: picker.move(-(1 << 30)))
    add("end", act=lambda: picker.move(1 << 30))
    add("enter", act=picker.choose)
    add("escape", "c-c", "<sigint>", "c-g", act=picker.leave)

    @keys.add("tab", filter=several)
    @keys.add("s-tab", filter=picking)
    @keys.add("c-a", filter=several)
    def _(event: KeyPressEvent) -> None:
        picker.widen()

    return keys
