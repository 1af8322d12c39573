"""Find the shell commands that a page shows its readers.

In a page, these are shell commands:

- each command in a block that begins with a word in lower case or with a variable. A block of
  other text that begins like this is a fence with a name, such as `text`
- code in a text that begins with a program of `READERS`. Commands of other programs in a text, such
  as `git push`, are commands of the agent

A page says what a command needs that not every reader has:

- `# needs a key` behind the command
- "This needs a key" or "These commands need a key" in the paragraph before the block
- a sentence, or a row of a table, in which "needs a key" or "takes an hour" follows the command

A command that needs something in one place of a page needs it everywhere in the page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import tree_sitter_bash
from markdown_it import MarkdownIt
from markdown_it.token import Token
from tree_sitter import Language, Parser

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")))
READERS = ("ctxagent", "make", "pip", "pipx", "uv", "python", "python3", ".venv/bin/")
SHELL_NAMES = ("", "sh", "bash", "shell", "console")  # of fences
SHELL = re.compile(r"(?:[a-z.~][\w./~-]*|\w+=\S*)(?=\s)")
THING = r"needs? (?!no\b|it\b)(?P<thing>(?:[^.:;|]|\.(?=\S))+)"
TIME = r"takes? (?P<time>[\w ]{0,20}?(?:minutes?|hours?)\b)"
NEED = rf"\b(?:{THING}|{TIME})"
NEED_OF_BLOCK = rf"(?:^|[.:] )(?:This|These commands) {NEED}"
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
SENTENCE_END = re.compile(r"(?<=[.;])\s+")
SAVED = re.compile(r"\bSave this file as `([^`]+)`:$")


@dataclass(frozen=True, slots=True)
class PageCommand:
    page: str
    line: int
    text: str  # without its comment
    in_block: bool
    needs: str = ""  # what not every reader has, in the words of the page

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def commands_of(path: Path) -> list[PageCommand]:
    """Return the shell commands of a page, in order. Raises ValueError for a block that bash could
    not read.
    """
    found: list[PageCommand] = []
    for token, before in _parts(path):
        if token.type not in ("code_block", "fence"):
            found += _in_text(path.name, token)
        elif token.info in SHELL_NAMES:
            found += _in_block(path.name, token, before)
    needs = {each.text: each.needs for each in found if each.needs}
    return [replace(each, needs=needs.get(each.text, "")) for each in found]


def files_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that a page asks its readers to save: its path, and its text."""
    for token, before in _parts(path):
        if token.type == "fence" and (saved := SAVED.search(before)):
            yield saved[1], token.content


def _parts(path: Path) -> Iterator[tuple[Token, str]]:
    """Yield each text, row of a table and block of a page, with the text right before it."""
    before, cells = "", list[str]()
    row: Token | None = None
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8")):
        if token.type == "tr_open":
            row, cells = token, []
        elif token.type == "tr_close" and row:
            row.content = " | ".join(cells)
            yield row, ""
            row = None
        elif token.type == "inline" and row:
            cells.append(token.content)
        elif token.content:
            yield token, before
        if token.content or token.type == "heading_close":
            before = " ".join(token.content.split()) if token.type == "inline" else ""


def _in_block(page: str, token: Token, before: str) -> Iterator[PageCommand]:
    if SHELL.match(token.content):
        needs = _need(NEED_OF_BLOCK, before)
        for row, text, comment in _statements(token.content):
            line = _line(token) + row + (token.type == "fence")
            yield PageCommand(page, line, text, True, _need(NEED, comment) or needs)


def _in_text(page: str, token: Token) -> Iterator[PageCommand]:
    text = " ".join(token.content.split())
    for sentence in [text] if token.type == "tr_open" else SENTENCE_END.split(text):
        for code in CODE.finditer(sentence):
            if is_of_reader(code[1]):
                needs = _need(NEED, sentence[code.end() :])
                yield PageCommand(page, _line(token), code[1], False, needs)


def is_of_reader(code: str) -> bool:
    """Return True if code in a text is a program of `READERS` with arguments."""
    program, _, arguments = code.partition(" ")
    return bool(arguments) and (program in READERS or program.startswith(READERS[-1]))


def _need(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return " ".join((found["thing"] or found["time"]).split()) if found else ""


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


def _statements(block: str) -> Iterator[tuple[int, str, str]]:
    """Yield each command of a block: its row, its text, and the comment behind it."""
    source = block.encode()
    root = _bash().parse(source).root_node
    if root.has_error:
        raise ValueError(f"this is not shell:\n{block}")
    for node, behind in pairwise([*root.children, None]):
        if node.is_named and node.type != "comment":
            row, comment = node.start_point.row, b""
            if behind and behind.type == "comment" and behind.start_point.row == node.end_point.row:
                comment = source[behind.start_byte : behind.end_byte]
            text = source[node.start_byte : node.end_byte].decode().rstrip()
            yield row, text, comment.decode()


@cache
def _bash() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))
