"""Facts about a project that are kept between sessions: one Markdown file per fact, in one folder.

The front matter of a file has one line about the fact, for the index. A change is drafted first, to
show it as a diff, and written only if the file has not changed since the draft. If two sessions
change the same fact, the second change is refused.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

from ...tools.system.files import edit_file, make_private_folder, replace_file
from ...tools.system.phrasing import one_line
from ...tools.system.safe_open import open_regular
from ...tools.system.unicode import clean, reveal_invisible
from ...tools.text import compare
from ..config.trust import is_file_trusted, mark_outside, other_writer, outside_mark, remove_mark
from ..errors import CtxagentError, UsageError
from ..lazy import dataclass, regex
from .front_matter import split_front_matter, text_value

MAX_FACTS = 1_000  # per folder
MAX_READ_BYTES = 100_000  # of one file
MAX_TEXT_CHARS = 8_000  # of a fact when it is written
MAX_ABOUT_CHARS = 150
NAME_WORDS = 6  # first words of the text that form a name
SUFFIX = ".md"
_LINK_LEAVES_PROJECT = "it is a link that leads out of the project"
_ABOUT = regex(r"^about: .*$", re.MULTILINE)
_HEAD = regex(r"\A---\n.*?^---\n+", re.MULTILINE | re.DOTALL)
_NAME = regex(r"[A-Za-z0-9][\w-]{0,79}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact and its file."""

    name: str
    about: str  # one line
    text: str  # of the whole file
    path: Path


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A change of a fact that is not written yet. None means no file."""

    name: str
    before: str | None
    after: str | None

    @property
    def diff(self) -> str:
        return compare(self.before, self.after or "", f"{self.name}{SUFFIX}").whole


class MemoryFolder:
    """The facts of one project. All methods block."""

    def __init__(
        self,
        folder: Path,
        *,
        trust_dir: Path,
        root: Path | None = None,
        is_shared: bool = False,
        denies: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Facts that the agent wrote after it had read text from outside are used in later sessions
        only after they are trusted. In a shared folder this also holds for files that other users
        can write. The folder must be inside `root`. `denies` returns True for paths that a rule
        protects from reading.
        """
        self.folder = folder
        self._root, self._trust_dir, self._denies = root, trust_dir, denies
        self._is_shared = is_shared
        self._written = set[Path]()  # facts of this session
        self._known = dict[Path, tuple[tuple[int, ...], Fact]]()  # (stamp from `stat`, fact)

    @property
    def is_used(self) -> bool:
        """True if the folder has a file that may be a fact."""
        return any(True for _ in self._files())

    def facts(self) -> tuple[list[Fact], list[str]]:
        """Return the facts, the last changed first, and a warning for each skipped file."""
        found = list[tuple[int, Fact]]()
        problems = [f"{self.folder}: no facts: {_LINK_LEAVES_PROJECT}"] if self._leaves_root else []
        for path, status in self._files():
            try:
                if why := self._why_left_out(path):
                    raise ValueError(why)
                found.append((status.st_mtime_ns, self._read(path, status)))
            except FileNotFoundError:  # another session has just removed it
                continue
            except (OSError, ValueError) as error:
                why = str(error.strerror if isinstance(error, OSError) else error)
                problems.append(f"{path}: this fact is left out: {why}")
        if len(found) > MAX_FACTS:
            more = len(found) - MAX_FACTS
            problems.append(f"{self.folder}: the oldest {more:,} facts are left out")
        found.sort(key=lambda each: (-each[0], each[1].name))
        return [fact for _, fact in found[:MAX_FACTS]], problems

    def fact(self, name: str) -> Fact:
        """Return a fact by its name. Raises UsageError."""
        facts, _ = self.facts()
        found = next((fact for fact in facts if fact.name == name), None)
        if found is None:
            raise _no_fact(name, [fact.name for fact in facts])
        return found

    def add(self, name: str, about: str, text: str, origin: Mapping[str, str]) -> FactDraft:
        """Return the draft of a new fact, with `origin` in its front matter. Raises UsageError."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{one_line(name, 80)!r} is not a valid name of a fact",
                hint="A name has letters, digits and -, such as build-command.",
            )
        if os.path.lexists(self._path(name)):
            raise UsageError(f"there is a fact {name} already", hint="Edit it, or choose a name.")
        _check_text(text)
        line = one_line(about.strip() or text.strip(), MAX_ABOUT_CHARS)
        head = {"about": line, "saved": date.today().isoformat(), **origin}
        values = [_head_line(key, value) for key, value in head.items()]
        whole = "\n".join(["---", *values, "---", "", text.strip(), ""])
        return FactDraft(name, None, whole)

    def edit(self, name: str, old: str, new: str, about: str = "") -> FactDraft:
        """Return a draft that replaces `old` by `new` in a fact, and also in its `about` line
        unless `about` is given. Raises UsageError.
        """
        fact = self.fact(name)
        head, body = _parts(fact.text)
        count = body.count(old) if old else 0
        if count != 1:
            found = f"{count} times" if count else "nowhere"
            raise UsageError(f"the text to replace occurs {found} in {name}", hint="Read it again.")
        body = body.replace(old, new)
        _check_text(body)
        line = one_line(about.strip() or fact.about.replace(old, new), MAX_ABOUT_CHARS)
        if line != fact.about:
            head = _ABOUT.sub(lambda found: _head_line("about", line), head)
        return FactDraft(name, fact.text, head + body)

    def forget(self, name: str) -> FactDraft:
        """Return a draft that removes a fact. Raises UsageError."""
        return FactDraft(name, self.fact(name).text, None)

    def write(self, draft: FactDraft, after: str = "") -> None:
        """Write a change; `after` is the text from outside that was read before. Raises UsageError
        if the file has changed since the draft, and CtxagentError if it cannot be written.
        """
        path = self._path(draft.name)
        try:
            with self._locked():
                now = _text_of(path) if os.path.lexists(path) else None
                if now != draft.before:
                    raise UsageError(
                        f"the fact {draft.name} has changed meanwhile", hint="Read it again."
                    )
                if after:
                    mark_outside(path, after, self._trust_dir, (draft.after or "").encode())
                self._written.add(path)
                if draft.after is None:
                    path.unlink()
                    remove_mark(path, self._trust_dir)
                elif self._is_shared:
                    edit_file(path, draft.after.encode())
                else:
                    replace_file(path, draft.after.encode())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise CtxagentError(
                f"cannot change the fact {path}: {why}", hint="Check the permissions of the folder."
            ) from error

    def free_name(self, text: str) -> str:
        """Return an unused name for a fact, made of the first words of its text."""
        words = re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS]
        base = "-".join(words)[:60] or "note"
        names = (base if number == 1 else f"{base}-{number}" for number in range(1, MAX_FACTS))
        return next(name for name in names if not os.path.lexists(self._path(name)))

    @property
    def _leaves_root(self) -> bool:
        root = self._root
        return root is not None and not self.folder.resolve().is_relative_to(root.resolve())

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files that may be facts."""
        if self._leaves_root:
            return
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                name = entry.name.removesuffix(SUFFIX)
                if name == entry.name or not _NAME.fullmatch(name) or self._denies(entry.path):
                    continue
                with suppress(OSError):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _why_left_out(self, path: Path) -> str:
        """Return the reason to skip a file, "" to use it."""
        if path.is_symlink():
            return "it is a link; copy the file there"
        why = other_writer(path) if self._is_shared else ""
        if path not in self._written:
            why = outside_mark(path, self._trust_dir) or why
        if not why or is_file_trusted(path, self._trust_dir):
            return ""
        return f"{why}. Read it, then accept it with `ctxagent config --trust`"

    def _read(self, path: Path, status: os.stat_result) -> Fact:
        key = (status.st_mtime_ns, status.st_size, status.st_ino)
        if path not in self._known or self._known[path][0] != key:
            text = _text_of(path)
            values, body = split_front_matter(text)
            about = text_value(values, "about") or body.strip().partition("\n")[0]
            shown = one_line(reveal_invisible(clean(about)), MAX_ABOUT_CHARS)
            self._known[path] = key, Fact(path.name.removesuffix(SUFFIX), shown, text, path)
        return self._known[path][1]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder during the block. The kernel releases the lock when the process ends.
        Raises OSError.
        """
        if self._leaves_root:
            raise OSError(errno.EXDEV, _LINK_LEAVES_PROJECT)
        if self._is_shared:
            self.folder.mkdir(parents=True, exist_ok=True)
        else:
            make_private_folder(self.folder)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def index_lines(facts: Sequence[Fact]) -> list[str]:
    """Return one line per fact for the index."""
    return [f"- {fact.name}: {fact.about}" for fact in facts]


def _head_line(key: str, value: str) -> str:
    return f"{key}: {json.dumps(value, ensure_ascii=False)}"


def _parts(text: str) -> tuple[str, str]:
    """Return the front matter of a fact ("" if there is none) and the text below."""
    found = _HEAD.match(text)
    end = found.end() if found else 0
    return text[:end], text[end:]


def _text_of(path: Path) -> str:
    """Return the text of a file with LF line ends. Raises OSError and ValueError."""
    with os.fdopen(open_regular(path.parent.resolve() / path.name), "rb") as file:
        data = file.read(MAX_READ_BYTES + 1)
    if len(data) > MAX_READ_BYTES:
        raise ValueError(f"it is larger than {MAX_READ_BYTES:,} bytes")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def _check_text(text: str) -> None:
    if not text.strip():
        raise UsageError("a fact has no text", hint="Give its text.")
    if len(text) > MAX_TEXT_CHARS:
        raise UsageError(
            f"the fact has {len(text):,} characters, but at most {MAX_TEXT_CHARS:,} are allowed",
            hint="Split it into several facts, or write it to a file of the project.",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the fact has characters that UTF-8 cannot encode", hint="Remove these characters."
        ) from None


def _no_fact(name: str, names: Sequence[str]) -> UsageError:
    import difflib

    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names[:30]) or 'none'}."
    return UsageError(f"there is no fact {one_line(name, 80)!r}", hint=hint)
