"""Mentions: the names behind an `@` in a message, and which of them are files.

People, packages, decorators and hosts have such names too. They are text.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from posixpath import splitext

from ..lazy import dataclass, regex
from ..session.entries import Content

MAX_PATH_CHARS = 1_000  # of a mention
MAX_NAMES_CHECKED = 1_000  # names per message that are looked up as files

MAX_NAMED = 5  # files attached per message that it names without `@`
MAX_NAMED_BYTES = 4_000  # of each of them
_NAME = regex(r"[\w.-]+(?:/[\w.-]+)*")
_MENTION = regex(r"""(?:^|(?<=[\s(\[{<"'`,;:]))@(?:"((?:[^"\n\\]|\\.)*)"|([^\s"]+))""")
_CODE = regex(r"```.*?(?:```|\Z)|`[^`\n]*`", re.S)
_LINES = regex(r"(.+):(\d{1,9})(?:-(\d{1,9}))?")
_TRAILING_PUNCTUATION = ".,;:!?'`)]}>*…"  # punctuation after a path
_QUOTES = "'`\"‘’“”«»"
_NOT_IN_FILES = "()[]{}=:@"  # characters of calls, annotations and addresses
_DOMAINS = frozenset((".ai", ".io", ".me", ".org"))  # also types of files, which are rarer


@dataclass(frozen=True, slots=True)
class Mention:
    """A file or directory that a message names."""

    path: str  # as written in the message
    first: int = 1  # line number
    last: int | None = None  # line number; None for the end
    typed: bool = True  # by the user; otherwise attach only files that may be read without asking

    @property
    def as_written(self) -> str:
        """The mention as written in the message, without quotes."""
        if self.last is None and self.first == 1:
            return self.path
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last else "")


@dataclass(frozen=True, slots=True)
class ResourceMention:
    """A resource of an MCP server, named in a message as `@SERVER:URI`."""

    server: str
    uri: str


def find_mentions(
    words: Content, cwd: Path, *, typed: bool = True, servers: Collection[str] = ()
) -> list[Mention | ResourceMention]:
    """Return the files and directories that a message names with `@`, and resources of `servers` if
    the user `typed` the message. Blocks.

    Names of files that do not exist, such as e-mail addresses, decorators or packages, are not
    mentions.
    """
    text = words if isinstance(words, str) else ""
    names = islice(dict.fromkeys(_MENTION.findall(text)), MAX_NAMES_CHECKED)
    found = list[Mention | ResourceMention]()
    for quoted, bare in names:
        server, _, uri = (quoted or bare.rstrip(_TRAILING_PUNCTUATION)).partition(":")
        if server in servers and uri and typed:
            found.append(ResourceMention(server, uri))
            continue
        forms = _forms(quoted, bare)
        if mention := next((form for form in forms if _exists(form.path, cwd)), None):
            found.append(replace(mention, typed=typed))
    return list(dict.fromkeys(found))


def missing_names(words: Content, cwd: Path, *, servers: Collection[str] = ()) -> dict[str, bool]:
    """Return the names behind an @ that are not files, directories or resources of `servers`, and
    whether each was probably meant as a file. Blocks.
    """
    missing = list[str]()
    for forms in mention_forms(words if isinstance(words, str) else ""):
        is_resource = forms[0].path.partition(":")[0] in servers
        if not is_resource and not any(_exists(form.path, cwd) for form in forms):
            missing.append(forms[-1].path)
    files = file_names(missing, _names_in(cwd) if missing else ())
    return {name: name in files for name in missing}


def mention_forms(text: str) -> Iterator[list[Mention]]:
    """Yield what each name behind an @ may mean; the first form whose file exists counts. Names
    behind a quote and in code between backticks are text.
    """
    text = _CODE.sub("`", text)
    found = islice(_MENTION.finditer(text), MAX_NAMES_CHECKED)
    names = (each.groups("") for each in found if not text[: each.start()].endswith(tuple(_QUOTES)))
    for quoted, bare in dict.fromkeys(names):
        if forms := list(_forms(quoted, bare)):
            yield forms


def file_names(names: Sequence[str], place: Collection[str]) -> list[str]:
    """Return which names of nothing were probably meant as files. `place` has the names in a
    directory, or the paths in a commit.

    Such a name begins in a folder that exists, or ends like a type of file. A package like
    `@types/node` in a project of npm is not a file, and neither is a host.
    """
    if not names:
        return []
    endings = _file_types() - _DOMAINS | {splitext(name)[1].lower() for name in place} - {""}
    tops = {path.partition("/")[0] for path in place}
    files = list[str]()
    for name in names:
        *folders, last = name.split("/")
        if any(char in name for char in _NOT_IN_FILES):
            continue
        is_typed = last.startswith(".") or splitext(last)[1].lower() in endings
        is_package = len(folders) == 1 and "package.json" in tops
        if is_typed or (_begins_in_folder(folders, tops) and not is_package):
            files.append(name)
    return files


def _begins_in_folder(folders: Sequence[str], tops: Collection[str]) -> bool:
    match folders:
        case [] | [""]:
            return False
        case ["." | ".." | "~", *_]:
            return True
        case ["", top, *_]:
            return Path("/", top).is_dir()
        case [top, *_]:
            return top in tops
    return False


@cache
def _file_types() -> frozenset[str]:
    """Return the endings of files that Python knows, and those that are the name of a language, as
    `.py`. Other endings of Pygments are common words, as `.patch` and `.service`.
    """
    from mimetypes import MimeTypes

    from pygments.lexers import get_all_lexers

    languages = (
        name[1:].lower()
        for _, aliases, names, _ in get_all_lexers(plugins=False)
        for name in names
        if name[:2] == "*." and name[2:].lower() in aliases
    )
    return frozenset((*MimeTypes().types_map[1], *languages))


def similar_name(name: str, folder: Path) -> str:
    """Return the existing name in the same folder that is most like a missing one, or ""."""
    from difflib import get_close_matches

    names = _names_in((folder / Path(name).expanduser()).parent)
    near = get_close_matches(Path(name).name, names, 1)
    return str(Path(name).with_name(near[0])) if near else ""


def _names_in(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


def named_files(words: Content, cwd: Path) -> list[Mention]:
    """Return the short text files below the directory that a message names without `@`. Blocks."""
    text = words if isinstance(words, str) else ""
    names = dict.fromkeys(name.rstrip(".") for name in _NAME.findall(text))
    paths = [name for name in names if "." in name.strip("./") or "/" in name.strip("./")]
    inside = (name for name in paths[:MAX_NAMES_CHECKED] if ".." not in Path(name).parts)
    return list(islice((Mention(n, typed=False) for n in inside if _is_short(cwd / n)), MAX_NAMED))


def _is_short(file: Path) -> bool:
    try:
        return file.is_file() and 0 < file.stat().st_size <= MAX_NAMED_BYTES
    except OSError:
        return False


def _forms(quoted: str, bare: str) -> Iterator[Mention]:
    """Yield what a name may mean: with and without line numbers and the punctuation behind it."""
    named = re.sub(r"\\(.)", r"\1", quoted) or bare
    while named and len(named) <= MAX_PATH_CHARS:
        yield Mention(named)
        if lines := _LINES.fullmatch(named):
            first = max(1, int(lines[2]))
            yield Mention(lines[1], first, max(first, int(lines[3] or first)))
        if quoted or named[-1] not in _TRAILING_PUNCTUATION:
            return
        named = named[:-1]


def _exists(named: str, cwd: Path) -> bool:
    try:
        return (cwd / Path(named).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, the home of an unknown user
        return False
