"""The command lines of ripgrep.

It respects ignore files, reads hidden files but not `.git`, skips binary files and links. Patterns
use Rust's syntax, or PCRE2 if Rust's does not support them.

Hits are printed with a NUL behind the path and behind the numbers of a match. The exit code is 0 or
1, or another one if ripgrep refuses the search. It complains about each unreadable file with
`(os error N)`.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..system.program_copy import ProgramCopy
from .request import OpenText, Search, SearchCommand

# What valid UTF-8 does not contain, and a NUL.
_NOT_UTF8 = (
    r"(?-u:\x00|[\xC0\xC1\xF5-\xFF]|(?:^|[\x00-\x7F])[\x80-\xBF]"
    r"|[\xC2-\xDF](?:[^\x80-\xBF]|$|[\x80-\xBF]{2})"
    r"|[\xE0-\xEF][\x80-\xBF]?(?:[^\x80-\xBF]|$)|[\xE0-\xEF][\x80-\xBF]{3}"
    r"|[\xF0-\xF4][\x80-\xBF]{0,2}(?:[^\x80-\xBF]|$)|[\xF0-\xF4][\x80-\xBF]{4}"
    r"|\xE0[\x80-\x9F]|\xED[\xA0-\xBF]|\xF0[\x80-\x8F]|\xF4[\x90-\xBF])"
)
_OPTIONS = ("--no-config", "--crlf", "--color=never", "--engine=auto")


class Ripgrep:
    """A ripgrep that commands cannot change: a program, or the copy of one."""

    def __init__(self, program: str, copy: ProgramCopy | None = None) -> None:
        self.program = program
        self.copy = copy
        if copy is None:
            real = Path(os.path.realpath(program))
            self.files: Sequence[str] = (str(real), str(real.parent.parent / "lib"))
        else:
            self.files = (copy.path,) if copy.descriptor is None else ()

    def command(self, search: Search) -> SearchCommand:
        """Return the command that searches the files in the working directory. Blocks. Raises
        OSError if the copy of the program has changed.
        """
        return self._of_folder(search, f"--regexp={search.pattern}")

    def encoding_command(self, search: Search) -> SearchCommand:
        """Return the command that lists the files that have a NUL or are not UTF-8."""
        search = replace(search, mode="files", ignore_case=False, multiline=False)
        return self._of_folder(search, "--text", f"--regexp={_NOT_UTF8}")

    def text_files_command(self, texts: Sequence[OpenText], search: Search) -> SearchCommand:
        """Return the command that searches decoded texts instead of the files."""
        files = f"--regexp={search.pattern}", "--", *(text.name for text in texts)
        command = self._command(*_file_options(search), *files)
        passed = (*command.passed, *(text.file.fileno() for text in texts))
        return replace(command, passed=passed)

    def text_command(self, pattern: str, text: bytes) -> SearchCommand:
        """Return the command that prints the offset of each match in a text, in bytes."""
        shown = ("--only-matching", "--byte-offset", "--no-line-number", "--no-filename")
        return self._command("--text", *shown, f"--regexp={pattern}", "-", given=text)

    def _of_folder(self, search: Search, *options: str) -> SearchCommand:
        from ..system.project_files import is_ignored  # imports asyncio

        above = ["--no-ignore-parent"] if is_ignored(search.inside) else []
        end = (*options, "--", f"./{search.only or ''}")
        return self._command(*_file_options(search), *above, *end)

    def _command(self, *arguments: str, given: bytes = b"") -> SearchCommand:
        if self.copy is None:
            return SearchCommand([self.program, *_OPTIONS, *arguments], given)
        self.copy.check()
        passed = () if self.copy.descriptor is None else (self.copy.descriptor,)
        return SearchCommand([self.copy.path, *_OPTIONS, *arguments], given, passed)


def _file_options(search: Search) -> Iterator[str]:
    yield from ("--no-require-git", "--no-ignore-messages", "--hidden")
    yield from ("--null", "--with-filename", "--no-heading", "--sort=path")
    yield "--ignore-case" if search.ignore_case else "--case-sensitive"
    if search.mode == "files":
        yield "--files-with-matches"
    elif search.mode == "count":
        yield "--count-matches" if search.multiline else "--count"
    else:
        # A match that needs the line before it has no column, so the numbers end in a NUL, which
        # ripgrep 13 knows only as \x00.
        yield from ("--line-number", "--column", r"--field-match-separator=\x00")
        yield "--no-context-separator"
        yield from (f"--before-context={search.before}", f"--after-context={search.after}")
    if search.multiline:
        yield from ("--multiline", "--multiline-dotall")
    # An including `--glob` would override ignore files and types: pass only an excluding one.
    if search.unwanted:
        yield f"--glob={search.glob}"
    yield "--glob=!.git"
    if search.type:
        yield f"--type={search.type}"
    elif name := _name_of(search):
        yield from (f"--type-add=wanted:{name}", "--type=wanted")


def _name_of(search: Search) -> str:
    """Return a wildcard for the file names that the glob matches; "" if the glob gives none."""
    directory, _, name = (search.glob or "").rpartition("/")
    if search.unwanted or ":" in name or any(c in directory for c in "{[\\"):
        return ""
    return name
