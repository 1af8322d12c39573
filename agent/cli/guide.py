"""`ctxagent guide`: print the pages of the guide."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from .options import exits_with_code, say

_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
_MIN_LIKENESS = 0.75  # similarity from which a page is suggested
_PAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


if TYPE_CHECKING:
    _Names = click.ParamType[str]
else:
    _Names = click.ParamType  # click 8.2 has no type arguments


class _Page(_Names):
    """The name of a page. The error for an unknown name suggests similar names and pages that have
    the word in a heading.
    """

    name = "page"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(page) for page in _PAGES if page.startswith(incomplete)]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in _PAGES:
            return value
        near = get_close_matches(value, _PAGES, 3, _MIN_LIKENESS)
        hint = f" Did you mean {_either(near)}?" if near else ""
        if found := [page for page in _with_word(value) if page not in near]:
            hint += f" Pages with this word: {', '.join(found)}."
        return self.fail(
            f"there is no page {value!r}.{hint} `ctxagent guide` lists the pages.", param
        )


@click.command(epilog="Example: ctxagent guide permissions")
@click.argument("page", required=False, type=_Page(), metavar="[PAGE]")
@click.option("--search", "word", metavar="TEXT", help="List the lines with all words of TEXT.")
@exits_with_code
def guide(page: str | None, word: str | None) -> int:
    """Print a PAGE of the guide. Without PAGE, list the pages."""
    if word is not None:
        return _search(word, (page,) if page else _PAGES)
    if page is not None:
        say((_FOLDER / f"{page}.md").read_text(encoding="utf-8"), nl=False)
        return 0
    for name in _PAGES:
        with (_FOLDER / f"{name}.md").open(encoding="utf-8") as file:
            say(f"{name:<16} {file.readline().removeprefix('# ').strip()}")
    say("\n`ctxagent guide PAGE` prints one, `--search TEXT` finds lines.", err=True)
    return 0


def _either(names: Sequence[str]) -> str:
    return " or ".join(f"`ctxagent guide {name}`" for name in names)


def _lines(page: str) -> list[str]:
    return (_FOLDER / f"{page}.md").read_text(encoding="utf-8").splitlines()


def _with_word(word: str) -> list[str]:
    """Return the pages that have a word in a heading."""
    wanted = word.lower()
    return [
        page
        for page in _PAGES
        if any(line.startswith("#") and wanted in line.lower() for line in _lines(page))
    ]


def _search(text: str, pages: Sequence[str]) -> int:
    """Print the lines with all words of a text, in any letter case and order. Pages with a heading
    that has all words come first. Return 1 if there is no line.
    """
    words = text.lower().split()
    found: dict[str, list[tuple[int, str]]] = {page: [] for page in pages}
    for page in pages:
        for number, line in enumerate(_lines(page), 1):
            if words and all(word in line.lower() for word in words):
                found[page].append((number, line))
    for page in sorted(pages, key=lambda page: not any(line[0] == "#" for _, line in found[page])):
        for number, line in found[page]:
            say(f"{page}:{number}: {line.strip()}")
    if not any(found.values()):
        say(f"no line of the guide has {text!r}", err=True)
    return 0 if any(found.values()) else 1
