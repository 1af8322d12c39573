"""A menu on a real terminal, in place of the input: a search line, the options in rows, and a
preview of the selected option.

It opens before its options are loaded. Rows are cut to the width, with the search words marked.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples, fragment_list_width
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    DynamicContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    ScrollbarMargin,
    Window,
    WindowAlign,
    WindowRenderInfo,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from ....tools.system.unicode import clean
from ...lazy import dataclass
from ..cells import cut_to_cells, first_cells
from ..screen import Menu, OpenQuestion, Option, OptionList, Styled
from .output import BatchedOutput

if TYPE_CHECKING:
    from .context_screen import ContextScreen

MIN_ONE_ROW_COLUMNS = 100  # at this width or more, an option with details takes one row
MIN_FACTS_COLUMNS = 60  # below this width, only one fact is shown
MAX_FACT_CELLS = 20  # longest fact
GAP = "  "


@dataclass(frozen=True, slots=True)
class MenuSpace:
    """The room of a menu on the terminal."""

    columns: int
    rows: int  # rows for options
    preview: int  # rows
    each: int  # rows per option


def option_row(
    option: Option,
    space: MenuSpace,
    columns: Sequence[int],
    words: re.Pattern[str] | None,
    *,
    chosen: bool,
) -> StyleAndTextTuples:
    """Return the rows of an option. `columns` are the widths of the facts; `words` matches the
    search text.
    """
    style = "class:chosen" if chosen else ""
    width = space.columns - 2
    facts: StyleAndTextTuples = []
    # On a narrow terminal, the title gets all room that the fact does not need.
    narrow = space.columns < MIN_FACTS_COLUMNS
    sizes = [*map(get_cwidth, option.facts[:1])] if narrow else columns
    for fact, size in zip(option.facts, sizes, strict=False):
        if size:
            text = GAP + _padded(fact, min(size, MAX_FACT_CELLS), None)
            facts += _marked(text, "class:dim", words if fact in option.words else None)
    left = max(10, width - fragment_list_width(facts))
    out: StyleAndTextTuples = [("class:prompt", "❯ ") if chosen else ("", "  ")]
    if space.each == 1 and space.columns >= MIN_ONE_ROW_COLUMNS - 1 and option.detail:
        title = left // 2
        detail = left - title - len(GAP)
        out += _marked(_padded(option.title, title, words), style, words)
        out += [("", GAP)]
        out += _marked(_padded(option.detail, detail, words), "class:dim", words)
    else:
        out += _marked(_padded(option.title, left, words), style, words)
    out += facts
    if space.each == 2:
        out += [("", "\n    ")]
        out += _marked(_cut_around(option.detail, width - 2, words), "class:dim", words)
    return out


def preview_rows(lines: Iterable[Styled], space: MenuSpace) -> list[Styled]:
    """Return the lines as preview rows. The last line takes as many rows as fit."""
    out: list[Styled] = []
    for role, text in lines:
        rest = " ".join(clean(text[: 20 * space.columns]).split())
        for _ in range(2 if role else space.preview):
            if not rest or len(out) == space.preview - 1:
                break
            row = first_cells(rest, space.columns)
            end = row.rfind(" ") if len(row) < len(rest) and " " in row else len(row)
            out.append((role, row[:end]))
            rest = rest[end:].lstrip()
    return out


def words_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    return re.compile("|".join(longest_first), re.IGNORECASE) if words else None


def _marked(text: str, style: str, words: re.Pattern[str] | None) -> StyleAndTextTuples:
    """Return the text with the matches of `words` highlighted."""
    out: StyleAndTextTuples = []
    at = 0
    for found in words.finditer(text) if words else ():
        out += [(style, text[at : found.start()]), (f"{style} class:match", found[0])]
        at = found.end()
    return [*out, (style, text[at:])]


def _cut_around(text: str, cells: int, words: re.Pattern[str] | None) -> str:
    """Return a cleaned text cut to `cells`, so that the first match of `words` stays visible."""
    text = clean(text)
    found = words.search(text) if words else None
    if found and get_cwidth(text[: found.end()]) >= cells and get_cwidth(text) > cells:
        text = f"…{text[max(0, found.start() - cells // 3) :]}"
    return cut_to_cells(text, cells)


def _padded(text: str, cells: int, words: re.Pattern[str] | None) -> str:
    text = _cut_around(text, cells, words)
    return text + " " * (cells - get_cwidth(text))


MIN_ROWS_FOR_PREVIEW = 24  # terminal rows
MAX_OPTION_ROWS = 24


class Picker:
    """The state and the appearance of the open menu.

    `size` returns the terminal's size. `changed` is called when there is something new to show.
    `closed` is called when the menu closes, before further keys are handled. Its argument is the
    search text if the menu opened with a typed text and nothing was chosen, else "".
    """

    def __init__(
        self, size: Callable[[], Size], changed: Callable[[], None], closed: Callable[[str], None]
    ) -> None:
        self.search = Buffer(multiline=False, on_text_changed=lambda _: self._searched())
        self._size = size
        self._changed = changed
        self._closed = closed
        self._typed_before = False  # whether the input had text when the menu opened
        self._menu: Menu | None = None
        self._lists: dict[int, OptionList] = {}
        self._scope = 0
        self._top = 0
        self._moved_to = ""  # key of the option selected last
        self._previews: dict[str, Sequence[Styled]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._choice: asyncio.Future[Option | None] | None = None

    @property
    def is_open(self) -> bool:
        return self._menu is not None

    async def pick(self, menu: Menu, typed: str = "") -> Option | None:
        """Show the menu, with an initial search text, until the user chooses or leaves."""
        self._menu, self._scope, self._top, self._moved_to = menu, 0, 0, ""
        self._lists, self._previews, self._typed_before = {}, {}, bool(typed)
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
        if chosen := self._options.chosen or self._other:
            self._close(chosen)

    def leave(self) -> None:
        self._close(None)

    def move(self, step: int) -> None:
        self._options.move(step)
        self._update_preview()

    def page(self, direction: int) -> None:
        space = self._space()
        self.move(direction * max(1, space.rows // space.each - 1))

    def change_scope(self, step: int) -> None:
        """Show the options of another scope. End a search across all scopes."""
        if self._menu:
            if self._menu.searches_all:
                self.search.reset()
            self._open((self._scope + step) % len(self._menu.scopes))

    @property
    def has_scopes(self) -> bool:
        """Whether there is more than one scope."""
        return self._menu is not None and len(self._menu.scopes) > 1

    @property
    def _other(self) -> Option | None:
        """The typed word as an option, if the menu accepts words outside its list."""
        complete = self._menu is not None and self._options.complete and not self._typed_before
        return self._menu.other(self.search.text) if self._menu and complete else None

    @property
    def _shown_scope(self) -> int:
        """The open scope, or the one after the last during a search across all scopes."""
        searches_all = self._menu is not None and self._menu.searches_all and bool(self._words)
        return len(self._menu.scopes) if self._menu and searches_all else self._scope

    @property
    def _options(self) -> OptionList:
        return self._lists.setdefault(self._shown_scope, OptionList())

    def _open(self, scope: int) -> None:
        self._scope, self._top = scope, 0
        self._searched()

    def _close(self, chosen: Option | None) -> None:
        if self._menu is None:
            return
        self._menu = None
        if self._choice and not self._choice.done():
            self._choice.set_result(chosen)
        self._closed(self.search.text if self._typed_before and chosen is None else "")

    async def _load(self, menu: Menu, scope: int) -> None:
        options = self._lists.setdefault(scope, OptionList())
        options.search(self.search.text)
        parts = menu.load(scope)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            options.add(part)
            self._update_preview()
            self._changed()
        options.complete = True
        self._changed()

    def _searched(self) -> None:
        if self._menu:
            scope = self._shown_scope
            if scope not in self._lists:
                self._start(f"load {scope}", self._load(self._menu, scope))
            self._options.search(self.search.text)
            self._update_preview()
            self._changed()

    def _update_preview(self) -> None:
        """Notify the menu of the selected option, and load its preview if it is missing."""
        chosen = self._options.chosen
        if chosen and self._menu and chosen.key != self._moved_to:
            self._moved_to = chosen.key
            self._menu.moved(chosen.key)
        if not chosen or chosen.key in self._previews or "preview" in self._tasks:
            return
        if self._menu and self._menu.preview and self._space().preview:
            self._start("preview", self._load_preview(self._menu.preview))

    async def _load_preview(self, preview: Callable[[str], Sequence[Styled]]) -> None:
        while (chosen := self._options.chosen) and chosen.key not in self._previews:
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
                self._update_preview()

        self._tasks[name] = task = asyncio.create_task(work)
        task.add_done_callback(done)

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
                fixed(lambda: self._space().rows, self._rows),
                fixed(lambda: self._space().preview, self._preview_rows),
            ]
        )

    def keys_line(self, width: int) -> StyleAndTextTuples:
        """Return the keys of the menu, as many as fit."""
        if self._menu is None:
            return []
        scopes = self._menu.scopes
        keys = [f"Enter: {self._menu.action}"]
        keys += [f"Tab: {scopes[(self._scope + 1) % len(scopes)]}"] if self.has_scopes else []
        keys.append(f"Esc: {self._menu.leaving}")
        while len(keys) > 1 and get_cwidth(" · ".join(keys)) > width:
            keys.pop()
        return [("", cut_to_cells(" · ".join(keys), width))]

    def _space(self) -> MenuSpace:
        size = self._size()
        left = max(1, size.rows - 4 - (size.rows >= 12))
        previewed = self._menu is not None and self._menu.preview is not None
        preview = 0
        if self._menu and previewed and size.rows >= MIN_ROWS_FOR_PREVIEW:
            preview = min(self._menu.preview_rows, left // 3)
        narrow = size.columns < MIN_ONE_ROW_COLUMNS and left - preview >= 10
        each = 2 if narrow and any(each.has_details for each in self._lists.values()) else 1
        total = max((options.total for options in self._lists.values()), default=0)
        rows = min(left - preview, MAX_OPTION_ROWS, total * each)
        return MenuSpace(size.columns - 1, max(1, rows - rows % each), preview, each)

    def _heading(self) -> StyleAndTextTuples:
        if self._menu is None:
            return []
        options, columns = self._options, self._space().columns
        count = f"{len(options.matches):,} of " if self._words else ""
        count += f"{options.total:,}" + ("" if options.complete else " …")
        scope = "all" if self._shown_scope != self._scope else self._menu.scopes[self._scope]
        left = cut_to_cells(f"{self._menu.title} · {scope}" if scope else self._menu.title, columns)
        gap = columns - get_cwidth(left) - get_cwidth(count)
        more: StyleAndTextTuples = [("class:dim", " " * gap + count)] if gap > 1 else []
        return [("class:choices", left), *more]

    @property
    def _words(self) -> list[str]:
        return self.search.text.split()

    def _rows(self) -> StyleAndTextTuples:
        options, space = self._options, self._space()
        if not options.matches and self._menu:
            text = self._menu.empty_text if options.complete else "reading …"
            text = "no match in the list" if options.total else text
            text = "not in the list, but it can be used" if self._other else text
            return [("class:dim", cut_to_cells(text, 60))]
        fitting = max(1, space.rows // space.each)
        highest = min(self._top, options.index, len(options.matches) - fitting)
        self._top = max(0, highest, options.index - fitting + 1)
        words = words_pattern(self._words)
        out: StyleAndTextTuples = []
        for place, option in enumerate(options.matches[self._top : self._top + fitting], self._top):
            out += [("", "\n")] if out else []
            out += option_row(option, space, options.columns, words, chosen=place == options.index)
        return out

    def _preview_rows(self) -> StyleAndTextTuples:
        chosen, space = self._options.chosen, self._space()
        lines = self._previews.get(chosen.key, ()) if chosen else ()
        out: StyleAndTextTuples = [("class:dim", "─" * space.columns)]
        for role, text in preview_rows(lines, space):
            out += [("", "\n"), (f"class:{role}" if role else "", text)]
        return out


def picker_keys(picker: Picker) -> KeyBindings:
    """Return the key bindings of the open menu."""
    keys = KeyBindings()
    picking = has_focus(picker.search)
    has_scopes = picking & Condition(lambda: picker.has_scopes)

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

    add("s-tab", act=lambda: picker.change_scope(-1))

    @keys.add("tab", filter=has_scopes)
    @keys.add("c-a", filter=has_scopes)
    def _(event: KeyPressEvent) -> None:
        picker.change_scope(1)

    return keys


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


MIN_ROOMY_ROWS = 12  # terminal rows needed for a blank line above the input
MIN_QUESTION_ROWS = 16  # below this height, a question takes the whole terminal


class LayoutParts(Protocol):
    """The part of the terminal that the layout uses."""

    output: BatchedOutput
    picker: Picker
    context: "ContextScreen | None"  # None if it is not open
    draft: Buffer  # the input
    reply: Buffer  # the answer to an open question
    live: StyleAndTextTuples
    asked: OpenQuestion

    @property
    def asking(self) -> bool: ...

    @property
    def drafting(self) -> bool: ...

    @property
    def unfinished(self) -> bool: ...

    @property
    def is_short(self) -> bool: ...

    def send_keys(self) -> StyleAndTextTuples: ...

    def choices(self) -> StyleAndTextTuples: ...

    def status(self) -> StyleAndTextTuples: ...

    def status_command_line(self) -> StyleAndTextTuples: ...


def make_layout(terminal: LayoutParts) -> Layout:
    """Return the layout of a terminal's application."""
    asking = Condition(lambda: terminal.asking)
    picking = Condition(lambda: terminal.picker.is_open)
    drafting = Condition(lambda: terminal.drafting)
    roomy = Condition(
        lambda: (
            terminal.output.get_size().rows >= MIN_ROOMY_ROWS
            and not (terminal.asking and terminal.is_short)
        )
    )
    gap = ConditionalContainer(
        Window(FormattedTextControl(terminal.send_keys), height=1, align=WindowAlign.RIGHT), roomy
    )
    live = FormattedTextControl(lambda: terminal.live)
    search = SearchToolbar()
    control = BufferControl(
        terminal.draft, search_buffer_control=search.control, preview_search=True
    )
    size = terminal.output.get_size
    draft = text_window(size, control, "❯ ")
    hidden = Condition(lambda: terminal.asked.hidden)
    question = question_window(terminal.choices, terminal.reply, hidden, size)
    root = HSplit(
        [
            ConditionalContainer(
                Window(live, dont_extend_height=True),
                Condition(lambda: terminal.unfinished) & ~picking,
            ),
            gap,
            ConditionalContainer(question, asking),
            ConditionalContainer(terminal.picker.container(), picking),
            ConditionalContainer(draft, (~asking | drafting) & ~picking),
            search,
            Window(FormattedTextControl(terminal.status), height=1, style="class:status"),
            ConditionalContainer(
                Window(
                    FormattedTextControl(terminal.status_command_line),
                    height=1,
                    style="class:status",
                ),
                Condition(lambda: bool(terminal.status_command_line())),
            ),
            completions_menu(),
            Window(height=Dimension(min=0, preferred=0)),
        ]
    )
    shown = DynamicContainer(lambda: terminal.context.container if terminal.context else root)
    return Layout(shown, focused_element=draft)
