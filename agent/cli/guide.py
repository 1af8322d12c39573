"""`ctxagent guide`: print the pages of the guide."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ...tools.system.phrasing import shorten
from ..errors import UsageError
from .options import exits_with_code, say

_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
_MIN_LIKENESS = 0.75  # similarity from which a page is suggested
_PAGES_HINT = "`ctxagent guide` lists the pages."
_MAX_ANSWERS = 5  # sections for a question
_MAX_TEXT_CHARS = 240  # of the text of a section
_PAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


if TYPE_CHECKING:
    _Names = click.ParamType[str]
else:
    _Names = click.ParamType  # click 8.2 has no type arguments


class _Page(_Names):
    """The name of a page, or a word of a question."""

    name = "page"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(page) for page in _PAGES if page.startswith(incomplete)]


@click.command(epilog="Example: ctxagent guide how do I undo a compaction")
@click.argument("words", nargs=-1, type=_Page(), metavar="[PAGE | QUESTION]")
@click.option("--search", "text", metavar="TEXT", help="List the lines with all words of TEXT.")
@exits_with_code
def guide(words: tuple[str, ...], text: str | None) -> int:
    """Print a PAGE of the guide, or the sections that answer a QUESTION. Without either, list the
    pages.
    """
    question = " ".join(words)
    if text is not None or question in _PAGES:
        if question and question not in _PAGES:
            raise UsageError(f"there is no page {question!r}", hint=_PAGES_HINT)
        if text is not None:
            return _search(text, (question,) if question else _PAGES)
        say((_FOLDER / f"{question}.md").read_text(encoding="utf-8"), nl=False)
        return 0
    if question.strip():
        return _answer(question)
    for name in _PAGES:
        with (_FOLDER / f"{name}.md").open(encoding="utf-8") as file:
            say(f"{name:<16} {file.readline().removeprefix('# ').strip()}")
    say("\n`ctxagent guide PAGE` prints one, `ctxagent guide QUESTION` finds sections.", err=True)
    return 0


def _answer(question: str) -> int:
    """Print the sections for a question, best first. Return 1 if there is none. Raises UsageError
    for a mistyped page.
    """
    from .guide_index import build_index, sections_of

    if near := get_close_matches(question, _PAGES, 3, _MIN_LIKENESS):
        what = f"there is no page {question!r}. Did you mean {_either(near)}?"
        raise UsageError(what, hint=_PAGES_HINT)
    sections = [each for page in _PAGES for each in sections_of(page, "\n".join(_lines(page)))]
    found = build_index(sections).rank(question)[:_MAX_ANSWERS]
    for number in found:
        section = sections[number]
        name = section.place.partition("#")[0]
        say(f"{section.page}: {section.title}" if "#" in section.place else section.page)
        say(f"    {shorten(_plain(section.text), _MAX_TEXT_CHARS)}")
        say(f"    `ctxagent guide {name}` prints the page\n")
    if not found:
        say("no section of the guide has these words; `ctxagent guide` lists the pages", err=True)
    return 0 if found else 1


def _plain(markdown: str) -> str:
    """Return a text on one line, without the frames of its tables."""
    lines = (line.strip(" |") for line in markdown.splitlines())
    told = (line.replace(" | ", " · ") for line in lines if line.strip("-:| "))
    return " ".join(" ".join(told).split())


def _either(names: Sequence[str]) -> str:
    return " or ".join(f"`ctxagent guide {name}`" for name in names)


def _lines(page: str) -> list[str]:
    return (_FOLDER / f"{page}.md").read_text(encoding="utf-8").splitlines()


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
