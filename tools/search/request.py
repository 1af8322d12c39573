"""What is searched for, and what is found."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from ...agent.lazy import dataclass

Mode = Literal["files", "content", "count"]


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """A file that is searched in an encoding other than UTF-8. `path` is relative to the root."""

    path: str
    encoding: str
    bom_bytes: int  # length of the byte order mark


@dataclass(frozen=True, slots=True)
class OpenText:
    """The text of a file as UTF-8, in an unnamed file. `path` is relative to the root."""

    path: str
    file: IO[bytes]

    @property
    def name(self) -> str:
        """The path of the unnamed file in a process that inherits it."""
        return f"/dev/fd/{self.file.fileno()}"


@dataclass(frozen=True, slots=True)
class Search:
    """The pattern, files and options of a search."""

    root: Path
    pattern: str
    mode: Mode
    only: str | None = None
    glob: str | None = None
    type: str | None = None
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    env: Mapping[str, str] | None = None
    inside: Path = Path()  # an unchangeable path of the root (see `listed`)
    listing_s: float = 10.0  # limit for the list of files that are not UTF-8
    bounds: Callable[[], None] | None = None  # restricts the thread that starts the program

    @property
    def unwanted(self) -> bool:
        """Whether the glob excludes files."""
        return self.glob is not None and self.glob.startswith("!")


@dataclass(frozen=True, slots=True)
class GrepHit:
    """A line or a file. `path` is relative to the root. `number` is the line number, or the number
    of matches in the file. `start` is the offset of a match in `text`, None for a context line.
    """

    path: str
    number: int = 0
    text: str = ""
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """What a search left out."""

    unreadable: int  # files and directories, known if the search went to its end
    as_utf8: bool  # whether files that may have other encodings were searched as UTF-8


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A match in a text, with the line around it."""

    start: int  # characters of the text before the match
    excerpt: str
    excerpt_end: int  # characters of the text before the end of the excerpt


@dataclass(frozen=True, slots=True)
class SearchCommand:
    """A command line with its stdin and the descriptors that it inherits."""

    argv: Sequence[str]
    given: bytes = b""
    passed: Sequence[int] = ()


class Refused(Exception):
    """The pattern or the type is not valid. The message gives the reason."""
