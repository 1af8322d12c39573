"""The screen for slash commands called from an editor. Their output becomes text."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ....tools.system.unicode import clean
from ...errors import CtxagentError
from ...lazy import regex
from ..question import ChoiceRow, Choices
from ..screen import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..menu import Menu, Option

WIDTH = 100  # columns of command output
NOBODY_ANSWERS = "n"

_CHOICE = regex(r"\[(\w)\](\w*[^·\n]*)")

# Asks a question with (ID, name) choices; returns the chosen ID, "" for none.
Choose = Callable[[str, Sequence[tuple[str, str]]], Awaitable[str]]


class CommandScreen(Screen):
    """A screen for commands only, without typed input or live painting."""

    echoes = paints = speaks = unfinished = False
    palette = ""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._printed: list[RenderableType] = []
        self.printed = 0

    def take(self) -> str:
        """Return the output since the last call as text."""
        from ..render.render import render_text

        shown, self._printed = self._printed, []
        return clean(render_text(shown, width=WIDTH, depth="plain")).strip("\n") if shown else ""

    def put(self, renderable: "RenderableType") -> None:
        self._printed.append(renderable)
        self.printed += 1

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        asked = choices("")
        options = [(key, f"{key}{rest}".strip()) for key, rest in _CHOICE.findall(asked)]
        text = "\n\n".join(filter(None, [self.take(), _CHOICE.sub("", asked).strip(" ·\n")]))
        offered = [(key, name) for key, name in options if key in keys]
        offered += [(row.key, row.label) for row in rows]
        return await self._choose(text, offered) or NOBODY_ANSWERS

    async def pick(self, menu: "Menu") -> "Option | None":
        options = [option for page in menu.load(0) for option in page]
        names = [(o.key, " · ".join(filter(None, (o.title, *map(str, o.facts))))) for o in options]
        chosen = await self._choose(menu.title, names)
        return next((option for option in options if option.key == chosen), None)

    async def edit(self, text: str, name: str) -> str:
        raise CtxagentError(
            f"{name} cannot be edited from here", hint="Say no, and what to change."
        )

    async def run(self, ready: Callable[[], None]) -> None:
        ready()

    def print_line(self, line: str) -> None:
        self.put(line)

    def hint(self, text: str) -> None:
        self.put(text)
