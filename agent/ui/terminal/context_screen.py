"""The screen of `/context` on a real terminal: the items of the context in rows, what an edit would
change before it is applied, and the text of an item.

It takes the whole height. Only visible rows are formatted, so a key costs the same however many
items there are. Each state has its own word or letter, so no colour is needed.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    UIControl,
    Window,
)
from prompt_toolkit.utils import get_cwidth

from ....tools.system.phrasing import count_of
from ....tools.system.unicode import clean
from ...errors import CtxagentError
from ...lazy import regex
from ..cells import cut_to_cells, hang_lines, wrap_words
from ..context_rows import ContextEdit, ContextPage, ContextSource, EditKind
from ..edit_report import dollars, searched_text, state_of

if TYPE_CHECKING:
    from ...compaction.edits import ContextItem

MIN_WIDE_COLUMNS = 72  # below this width, a row has no costs, and a letter for its state
MIN_ROOMY_ROWS = 16  # below this height, there are no table head, breakdown and rule
STATE_CELLS = 10
FOOT_ROWS = 3  # for the selected item, or the edit, which may take more
WHEEL_ROWS = 3
MIN_RELOAD_S = 0.2  # between two loads of the items while a turn changes them
MAX_TEXT_CHARS = 2_000_000  # shown of one item
KEYS = (  # the most important first
    "d drop", "r restore", "u undo", "c compact", "m mark", "? keys", "Esc close", "Enter text",
    "b before", "p pin", "/ search", "s size", "i report",
)  # fmt: skip
WAITING = "the edit waits until the model has answered this call"
STOPPABLE = " · a summary is being written · Esc stops it"
HELP = """\
↑ ↓ PgUp PgDn Home End    move; with a mouse: the wheel, and a click
Enter    read the text of the item; Esc goes back
/    search the items; Enter goes to the list, Esc ends the search
s    sort by size, or by place
m    mark from here; then move: all rows up to the selected one are marked
d    drop: only a line with the ref stays, and Recall finds the text
r    restore what was dropped, cleared or outlined
p    pin: keep the text in every summary, or stop that
c    compact the marked rows, or the selected one, into a summary
b    compact everything before the selected row
u    undo the newest edit or compaction
i    the report: what fills the context, and the next compaction
Esc    clear the mark, end the search, then close

Nothing changes before Enter: you see the tokens and the money before and after, and what it
costs to write the cache again. While a turn runs, an edit waits for the next call.

In a narrow terminal, the state is a letter: d dropped, c cleared, m moved to a file, t truncated,
o outlined, s summary, p pinned. A row without a letter is whole."""
_CLICK = regex(r"\x1b\[<(\d+);(\d+);(\d+)M")
_LEFT, _WHEEL_UP, _WHEEL_DOWN = 0, 64, 65
ScreenMode = Literal["list", "search", "text"]


class ContextScreen:
    """The state and the appearance of the open screen.

    `size` returns the terminal's size. `changed` is called when there is something new to show,
    `focus` with the control that gets the keys, and `closed` when the screen closes.
    """

    def __init__(
        self,
        size: Callable[[], Size],
        changed: Callable[[], None],
        focus: Callable[[UIControl], None],
        closed: Callable[[], None],
    ) -> None:
        self.search = Buffer(multiline=False, on_text_changed=lambda _: self._arrange())
        self.list = FormattedTextControl(self._lines, focusable=True, show_cursor=False)
        self._search_line = BufferControl(self.search)
        self._size, self._changed, self._focus, self._closed = size, changed, focus, closed
        self._source: ContextSource | None = None
        self._left: asyncio.Future[None] | None = None
        self._tasks = set[asyncio.Task[None]]()
        self.keys = _keys(self)
        self.container = self._container()
        self._page, self._version = ContextPage((), ()), object()
        self._loading = self._planning = False
        self._applying: EditKind | None = None
        self._shown: list[ContextItem] = []
        self._words: list[str] = []  # of each item, for the search
        self._index = self._top = 0
        self._ref: int | None = None  # of the selected row
        self._by_size = False
        self._mark: int | None = None  # the ref where the marked rows begin
        self._edit: ContextEdit | None = None  # shown, and applied on Enter
        self._note = ""
        self._title = ""
        self._text: list[str] = []  # the text that is read, in rows
        self._text_top = 0
        self.mode: ScreenMode = "list"

    @property
    def is_open(self) -> bool:
        return self._source is not None

    async def show(self, source: ContextSource) -> None:
        """Show the items until the user leaves."""
        self._source = source
        self._left = asyncio.get_running_loop().create_future()
        self._set_mode("list")
        self.refresh()
        try:
            await self._left
        finally:
            self.leave()
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def leave(self) -> None:
        if self._source is None:
            return
        self._source = None
        if self._left and not self._left.done():
            self._left.set_result(None)
        self._closed()  # at once: the next keys are for the input

    def refresh(self) -> None:
        """Load the items again if they may have changed."""
        source = self._source
        if source and not self._loading and source.version != self._version:
            self._loading, self._version = True, source.version
            self._start(self._load(source))

    async def _load(self, source: ContextSource) -> None:
        try:
            self._page = await source.load()
            self._words = [searched_text(item) for item in self._page.items]
            self._arrange()
            if self._edit:
                await self._plan_again(source, self._edit)
            await asyncio.sleep(MIN_RELOAD_S)
        finally:
            self._loading = False

    def _arrange(self) -> None:
        """Search and sort the rows. The selected item stays selected."""
        words = self.search.text.casefold().split()
        said = zip(self._page.items, self._words, strict=True)
        rows = [item for item, text in said if all(word in text for word in words)]
        if self._by_size:
            rows.sort(key=lambda row: -row.tokens)
        self._shown = rows
        places = (n for n, row in enumerate(rows) if row.ref == self._ref)
        newest = 0 if self._by_size else max(0, len(rows) - 1)
        self._index = next(places, newest)
        self._changed()

    @property
    def _selected(self) -> "ContextItem | None":
        return self._shown[self._index] if self._shown else None

    @property
    def _marked(self) -> tuple[int, int]:
        """The first and the last index of the marked rows, or of the selected one."""
        at, mark = self._mark, self._index
        if at is not None:
            mark = next((n for n, item in enumerate(self._shown) if item.ref == at), mark)
        return min(mark, self._index), max(mark, self._index)

    # Keys

    def move(self, step: int) -> None:
        if self.mode == "text":
            highest = max(0, len(self._text) - self._text_rows)
            self._text_top = max(0, min(self._text_top + step, highest))
            return
        self._index = max(0, min(self._index + step, len(self._shown) - 1))
        self._ref = self._shown[self._index].ref if self._shown else None
        if not self._applying:
            self._edit, self._note = None, ""

    def page(self, direction: int) -> None:
        rows = self._text_rows if self.mode == "text" else self._space()[1]
        self.move(direction * max(1, rows - 1))

    def enter(self) -> None:
        if self.mode == "search":
            self._set_mode("list")
        elif self._planning:  # nothing is applied before it was shown
            return
        elif self._edit and self._source and not self._applying:
            edit = self._edit
            self._edit, self._applying = None, edit.kind
            self._start(self._apply(self._source, edit))
        elif self._selected and self.mode == "list":
            self._start(self._read(self._selected))

    def back(self) -> None:
        """Go back by one step, at last out of the screen."""
        if self.mode == "text":
            self._set_mode("list")
        elif self._applying in ("compact", "before") and self._source:
            self._source.stop()
        elif self._edit:
            self._edit = None
        elif self.mode == "search" or (self.search.text and self._mark is None):
            self.search.reset()
            self._arrange()
            self._set_mode("list")
        elif self._mark is not None:
            self._mark = None
        else:
            self.leave()

    def find(self) -> None:
        self._edit, self._note = None, ""
        self._set_mode("search")

    def sort(self) -> None:
        self._by_size = not self._by_size
        self._arrange()

    def mark(self) -> None:
        selected = self._selected
        self._edit = None
        self._mark = selected.ref if selected and self._mark is None else None

    def edit(self, kind: EditKind) -> None:
        """Show what an edit of the marked rows, or of the selected one, would change."""
        if self._applying or not (self._shown or kind == "undo"):
            return
        first, last = (self._index, self._index) if kind == "before" else self._marked
        refs = [row.ref for row in self._shown[first : last + 1]] if self._shown else []
        self._planning = True
        self._start(self._plan(kind, refs))

    def help(self) -> None:
        self._start(self._open_text("keys", hang_lines(HELP, self._size().columns - 1)))

    def report(self) -> None:
        if self._source:
            self._start(self._read_report(self._source))

    def click(self, y: int) -> None:
        """Select the row at this line of the screen; open it if it is selected."""
        head, rows = self._space()
        place = self._top + y - head - self._has_search
        if self.mode == "text" or not 0 <= place - self._top < rows or place >= len(self._shown):
            return
        if place == self._index and not self._edit:  # a click never applies an edit
            self.enter()
        else:
            self.move(place - self._index)

    # Work

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that may fail; its error becomes the note."""

        async def guarded() -> None:
            try:
                await work
            except CtxagentError as error:
                self._edit = None
                self._note = ". ".join(filter(None, (error.message, error.hint)))
            self._changed()

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error and self._left and not self._left.done():
            self._left.set_exception(error)

    async def _plan(self, kind: EditKind, refs: Sequence[int]) -> None:
        if self._source:
            try:
                self._edit = await self._source.plan(kind, refs)
                self._note = ""
            finally:
                self._planning = False

    async def _plan_again(self, source: ContextSource, edit: ContextEdit) -> None:
        """Plan a shown edit for the context as it is now, unless the user goes on meanwhile."""
        try:
            planned = await source.plan(edit.kind, edit.refs)
        except CtxagentError:
            if self._edit is edit:
                raise
        else:
            self._edit = planned if self._edit is edit else self._edit

    async def _apply(self, source: ContextSource, edit: ContextEdit) -> None:
        self._note = WAITING if source.waits else "…"
        self._note += STOPPABLE if edit.kind in ("compact", "before") else ""
        try:
            self._note = await source.apply(edit)
            self._mark = None
        except asyncio.CancelledError:
            self._note = "stopped; nothing has changed"
            raise
        finally:
            self._applying = None
        self.refresh()

    async def _read(self, item: "ContextItem") -> None:
        if self._source:
            text = await self._source.text(item.ref)
            await self._open_text(f"#{item.ref} {item.kind}", text or "no text")

    async def _read_report(self, source: ContextSource) -> None:
        await self._open_text("report", await source.report(self._size().columns - 1))

    async def _open_text(self, title: str, text: str) -> None:
        width = self._size().columns - 1
        self._text = await asyncio.to_thread(_text_rows, text[:MAX_TEXT_CHARS], width)
        self._title, self._text_top = title, 0
        self._set_mode("text")

    def _set_mode(self, mode: ScreenMode) -> None:
        self.mode = mode
        if self.is_open:
            self._focus(self._search_line if mode == "search" else self.list)
        self._changed()

    # Appearance

    @property
    def _has_search(self) -> bool:
        return self.mode == "search" or (self.mode == "list" and bool(self.search.text))

    @property
    def _text_rows(self) -> int:
        return max(1, self._size().rows - 2)

    def _container(self) -> Container:
        search = Window(
            self._search_line,
            height=1,
            get_line_prefix=lambda line, wrapped: [("class:prompt", "search: ")],
        )
        rest = Window(self.list, height=lambda: Dimension.exact(self._height))
        return HSplit([ConditionalContainer(search, Condition(lambda: self._has_search)), rest])

    @property
    def _height(self) -> int:
        return max(1, self._size().rows - self._has_search)

    def _space(self) -> tuple[int, int]:
        """Return the number of lines above the rows, and of the rows."""
        head, foot = len(self._head()), len(self._foot())
        return head, max(1, self._height - head - foot)

    def _lines(self) -> StyleAndTextTuples:
        if not self.is_open:
            return []
        if self.mode == "text":
            return self._text_lines()
        head, foot = self._head(), self._foot()
        rows = max(1, self._height - len(head) - len(foot))
        shown = self._rows(rows)
        blank: list[StyleAndTextTuples] = [[] for _ in range(rows - len(shown))]
        lines = [*head, *shown, *blank, *foot][-self._height :]
        return _joined(lines)

    def _text_lines(self) -> StyleAndTextTuples:
        width, rows = self._size().columns - 1, self._text_rows
        end = min(self._text_top + rows, len(self._text))
        where = f"lines {self._text_top + 1:,} to {end:,} of {len(self._text):,}"
        shown: list[StyleAndTextTuples] = [[("", row)] for row in self._text[self._text_top : end]]
        shown += [[] for _ in range(rows - len(shown))]
        heading = cut_to_cells(f"{self._title} · {where}", width)
        keys = cut_to_cells("Esc: back · ↑↓ PgUp PgDn: move", width)
        return _joined([[("class:choices", heading)], *shown, [("class:dim", keys)]])

    def _head(self) -> list[StyleAndTextTuples]:
        size = self._size()
        roomy, width = size.rows >= MIN_ROOMY_ROWS, size.columns - 1
        page = self._page.head[: None if roomy else 1] or ("reading …",)
        lines: list[StyleAndTextTuples] = [
            [("class:choices" if n == 0 else "class:dim", cut_to_cells(line, width))]
            for n, line in enumerate(page)
        ]
        if roomy:
            lines.append([("class:dim", cut_to_cells(self._columns_line(size.columns), width))])
        return lines

    def _columns_line(self, columns: int) -> str:
        count = f"{len(self._shown):,} of {len(self._page.items):,} items"
        order = "by size" if self._by_size else "oldest first"
        if columns < MIN_WIDE_COLUMNS:
            return f"{'ref':>{self._ref_cells + 2}} {'tokens':>7}   {count}, {order}"
        return (
            f"{'ref':>{self._ref_cells + 2}} {'tokens':>8} {'a call':>7} {'so far':>8} {'age':>4}  "
            f"{'state':<{STATE_CELLS}} {count}, {order}"
        )

    @property
    def _ref_cells(self) -> int:
        newest = self._page.items[-1].ref if self._page.items else 0
        return max(4, len(f"#{newest}"))

    def _rows(self, fitting: int) -> list[StyleAndTextTuples]:
        if not self._shown:
            text = "no item matches" if self._page.items else "" if self._loading else "no items"
            return [[("class:dim", f"  {text}")]]
        highest = min(self._top, self._index, len(self._shown) - fitting)
        self._top = max(0, highest, self._index - fitting + 1)
        size, (first, last) = self._size(), self._marked
        ref_cells = self._ref_cells
        out: list[StyleAndTextTuples] = []
        for place, row in enumerate(self._shown[self._top : self._top + fitting], self._top):
            is_marked = self._mark is not None and first <= place <= last
            sign = "❯" if place == self._index else " "
            sign += "*" if is_marked else " "
            text = cut_to_cells(_row_text(row, size.columns, ref_cells), size.columns - 3)
            style = "class:chosen" if place == self._index else ""
            out.append([("class:prompt", sign), (style, text)])
        return out

    def _foot(self) -> list[StyleAndTextTuples]:
        size = self._size()
        roomy, width = size.rows >= MIN_ROOMY_ROWS, size.columns - 1
        said = [line for text in self._told() for line in wrap_words(text, width, "  ").split("\n")]
        said = [cut_to_cells(line, width) for line in said]
        said = said[: max(2, size.rows - 5)]
        said += [""] * (FOOT_ROWS - len(said))
        style = "class:warning" if self._edit or self._note else ""
        lines: list[StyleAndTextTuples] = [[("class:dim", "─" * width)]] if roomy else []
        lines += [[(style, line)] for line in said]
        lines += [[("class:dim", line)] for line in self._keys_lines(width)]
        return lines

    def _told(self) -> Sequence[str]:
        """Return the edit that Enter applies, or the note, or what the selected row is."""
        if self._edit:
            return self._edit.lines
        if self._note:
            return [self._note]
        selected = self._selected
        if selected is None:
            return []
        first, last = self._marked
        if self._mark is not None:
            marked = self._shown[first : last + 1]
            tokens = sum(row.tokens for row in marked)
            refs = f"#{min(row.ref for row in marked)} to #{max(row.ref for row in marked)}"
            return [f"{count_of(len(marked), 'item')} marked, {refs}: {tokens:,} tokens"]
        age = "new" if not selected.age else f"{count_of(selected.age, 'call')} old"
        facts = [f"{selected.tokens:,} tokens", age, state_of(selected)]
        if selected.call_usd is not None:
            cost = f"{dollars(selected.call_usd)} a call, {dollars(selected.spent_usd)} so far"
            facts.insert(1, cost)
        what = f"#{selected.ref} {selected.kind}: {selected.what}".rstrip(": ")
        return [cut_to_cells(clean(what), self._size().columns - 1), " · ".join(facts)]

    def _keys_lines(self, width: int) -> list[str]:
        if self._edit:
            return ["Enter: apply · Esc: no"]
        if self.mode == "search":
            return [cut_to_cells("Enter: to the list · Esc: end the search", width)]
        lines = [""]
        for key in KEYS:
            longer = f"{lines[-1]} · {key}" if lines[-1] else key
            if get_cwidth(longer) <= width:
                lines[-1] = longer
            elif len(lines) < 2:
                lines.append(key)
            else:
                break
        return lines


def _row_text(item: "ContextItem", columns: int, ref_cells: int) -> str:
    """Return the text of one row; it may be too long."""
    ref = f"{f'#{item.ref}':>{ref_cells}}"
    what = clean(f"{item.kind}: {item.what}"[:columns] if item.what else item.kind)
    state = "pinned" if item.pinned and item.state == "whole" else state_of(item)
    if columns < MIN_WIDE_COLUMNS:
        letter = " " if state == "whole" else state[:1]
        return f"{ref} {item.tokens:>7,} {letter} {what}"
    costs = f"{dollars(item.call_usd):>7} {dollars(item.spent_usd):>8}"
    state = f"{cut_to_cells(state, STATE_CELLS):<{STATE_CELLS}}"
    return f"{ref} {item.tokens:>8,} {costs} {item.age:>4,}  {state} {what}"


def _text_rows(text: str, width: int) -> list[str]:
    """Return a text in rows of at most `width` cells."""
    lines = clean(text.expandtabs(4)).split("\n")
    return [row for line in lines for row in _folded(line, width)]


def _folded(line: str, width: int) -> list[str]:
    """Cut a line into rows of `width` cells."""
    if len(line) <= width // 2 or get_cwidth(line) <= width:
        return [line]
    rows, row, cells = list[str](), "", 0
    for character in line:
        wide = get_cwidth(character)
        if cells + wide > width:
            rows.append(row)
            row, cells = "", 0
        row, cells = row + character, cells + wide
    return [*rows, row]


def _joined(lines: Sequence[StyleAndTextTuples]) -> StyleAndTextTuples:
    out: StyleAndTextTuples = []
    for line in lines:
        out += [("", "\n"), *line]
    return out[1:]


def _keys(screen: ContextScreen) -> KeyBindings:
    """Return the key bindings of the open screen."""
    keys = KeyBindings()
    listing = has_focus(screen.list)
    is_open = Condition(lambda: screen.is_open)
    in_list = listing & Condition(lambda: screen.mode == "list")

    def add(*names: str, act: Callable[[], None], when: Any = is_open) -> None:
        for name in names:

            @keys.add(name, filter=when)
            def _(event: KeyPressEvent) -> None:
                # Each paint leaves thousands of tuples in cycles. Otherwise they are collected at
                # every twentieth key, which takes longer than the key itself.
                gc.collect(0)
                act()

    add("up", "c-p", act=lambda: screen.move(-1))
    add("down", "c-n", act=lambda: screen.move(1))
    add("k", act=lambda: screen.move(-1), when=listing)
    add("j", act=lambda: screen.move(1), when=listing)
    add("pageup", act=lambda: screen.page(-1))
    add("pagedown", act=lambda: screen.page(1))
    add("home", act=lambda: screen.move(-(1 << 30)), when=listing)
    add("end", act=lambda: screen.move(1 << 30), when=listing)
    add("enter", act=screen.enter)
    add("escape", "c-g", act=screen.back)
    add("q", act=screen.back, when=listing)
    add("c-c", "<sigint>", "c-d", act=screen.leave)
    add("/", act=screen.find, when=in_list)
    add("s", act=screen.sort, when=in_list)
    add("m", act=screen.mark, when=in_list)
    add("?", act=screen.help, when=in_list)
    add("i", act=screen.report, when=in_list)
    edits: dict[str, EditKind] = {
        "d": "drop", "r": "restore", "p": "pin", "c": "compact", "b": "before", "u": "undo",
    }  # fmt: skip
    for key, kind in edits.items():
        add(key, act=lambda kind=kind: screen.edit(kind), when=in_list)  # type: ignore[misc]
    keys.add(Keys.Any, filter=listing)(lambda _: None)  # nothing is typed into the input

    @keys.add(Keys.Vt100MouseEvent, filter=is_open)
    def _(event: KeyPressEvent) -> None:
        found = _CLICK.fullmatch(event.data)
        button, y = (int(found[1]), int(found[3]) - 1) if found else (-1, 0)
        if button in (_WHEEL_UP, _WHEEL_DOWN):
            screen.move(WHEEL_ROWS if button == _WHEEL_DOWN else -WHEEL_ROWS)
        elif button == _LEFT:
            screen.click(y)

    return keys
