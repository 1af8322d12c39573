"""Analysis of git commands and repositories: the files a command shows, and the programs git would
run because of a repository's configuration.

A read-only command such as `git status` is harmless only if the configuration names no programs. A
downloaded folder can bring its own configuration with filters, diff drivers and hooks.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ....tools.system.git_links import OutsideLink, outside_links, settings_in
from ...lazy import regex
from .parser import Script, SimpleCommand, Word
from .wrappers import name_set

# Without options these show names and messages, but no file contents.
_BRIEF_SUBCOMMANDS = name_set("log reflog whatchanged diff-tree diff-index diff-files")
_PATCH_SUBCOMMANDS = name_set("diff stash")
_CONTENT_SUBCOMMANDS = name_set("show blame grep cat-file range-diff archive format-patch")
_SUMMARY_OPTION = regex(
    r"-s|--(?:stat|shortstat|numstat|dirstat|summary|name-only|name-status|raw|no-patch|quiet)"
    r"(?:=.*)?"
)
_NEUTRAL_OPTION = regex(
    r"-\d+|-n\d*|-[iEFPrzRbwMC]|-[SG].*|--(?:oneline|graph|all|decorate|no-decorate|format|pretty"
    r"|date|since|until|after|before|author|committer|grep|max-count|skip|abbrev|abbrev-commit"
    r"|reverse|follow|merges|no-merges|first-parent|topo-order|date-order|branches|tags|remotes"
    r"|no-color|color|no-renames|find-renames|diff-filter|cached|staged|merge-base|no-pager"
    r"|exit-code|no-ext-diff|no-textconv|show-signature)(?:=.*)?|--|-P"
)
_WIDENING_OPTION = regex(r"--(?:fu|fo|stdi).*")  # the output is not limited to the paths
# An object name, which may be a file's content.
_OBJECT_NAME = regex(r"[0-9a-f]{4,64}|.*\{.*|:/.*", re.IGNORECASE | re.DOTALL)
_REVISION_PATH = regex(r"(?::[0-3]:|[^:]*:)(.+)", re.DOTALL)  # REV:path
_PATHSPEC_MAGIC = regex(r"[*?\[\\]|^:")  # git's own patterns, even in quotes

MAX_GIT_FILE_BYTES = 64 << 20
_MAX_REPOSITORY_DEPTH = 3  # repositories in repositories
_LEAVING = regex(rb"\0/|\.\.[/\0]")  # a path out of the repository, or similar bytes
_COMPRESSED = b"\0\0\0\4"  # index version 4, with prefix-compressed paths
_GITLINK = b"\0\0\xe0\0"  # the mode of a submodule in an index
_UNREADABLE = (OSError, ValueError, IndexError, struct.error)
_SPARSE_EXTENSION = b"sdir\0\0\0\0"  # a sparse index: some entries are whole folders
# Settings that name programs or other places.
_SETTINGS = name_set(
    "external command textconv clean smudge process program promisor partialclone path hookspath "
    "worktree alternaterefscommand driver submodule objectformat showsignature"
)
# Those that only commands with changes use. The last two name a program only with a path or `!`.
_CHANGING_SETTINGS = name_set("editor sshcommand askpass gitproxy uploadpack receivepack vcs cmd")
_PERHAPS_PROGRAMS = name_set("helper update")
# These subcommands run only the hooks of the index and of references.
_PLAIN_CHANGES = name_set("add rm mv reset restore stash tag branch")
_HOOKS_OF_PLAIN_CHANGES = ("post-index-change", "reference-transaction")
_HEAD = regex(r"ref: refs/|[0-9a-f]{40}")
_GIT_LFS_COMMAND = regex(r'"?git-lfs (?:clean|smudge|filter-process)[\w %.-]*"?\s*')


def may_show_file(part: SimpleCommand, base: str, guarded: Callable[[str], bool]) -> bool:
    """Return True if a git command in the folder `base` may show a file that is `guarded`."""
    if not _shows_file_content([word.text for word in part.words[1:]]):
        return False
    files, shown = tracked_paths(base), _shown_paths(part, base)
    if files is None:
        return True
    within = tuple(f"{path}/" for path in shown)
    return any(
        (not shown or path in shown or path.startswith(within)) and guarded(path) for path in files
    )


def takes_ignored_files(part: SimpleCommand) -> bool:
    """Return True if a git command stores ignored files in the repository without naming them."""
    words = [word.text for word in part.words[1:]]
    option = {"add": r"-\w*f.*|--f.*", "stash": r"-\w*a.*|--a.*"}.get(_subcommand(words), "(?!)")
    return any(re.fullmatch(option, word) for word in words)


def paths_in_commits(part: SimpleCommand, base: str) -> list[str]:
    """Return the paths that a git command names as `REV:path`, relative to the folder `base`."""
    if part.name != "git":
        return []
    found = (_REVISION_PATH.fullmatch(word.text) for word in part.words[1:])
    return [_path_in_commit(match[1], base) for match in found if match]


def _path_in_commit(path: str, base: str) -> str:
    """Return the path of a file in a commit. It starts at the repository's top, or at `base` after
    `./`.
    """
    start = base if re.match(r"\.\.?(?:/|$)", path) else repository_top(base)
    return os.path.normpath(os.path.join(start, path))  # noqa: PTH118


def _shows_file_content(words: Sequence[str]) -> bool:
    command = _subcommand(words)
    options = [word for word in words if word.startswith("-")]
    if command == "status":
        return any(re.fullmatch(r"-\w*v.*|--v.*", word) for word in options)
    if command == "cat-file":
        return not any(word in ("-t", "-s", "-e") for word in options)
    if command not in _BRIEF_SUBCOMMANDS | _PATCH_SUBCOMMANDS:
        return command in _CONTENT_SUBCOMMANDS
    summaries = [word for word in options if _SUMMARY_OPTION.fullmatch(word)]
    plain = all(word in summaries or _NEUTRAL_OPTION.fullmatch(word) for word in options)
    is_list = list(words[:2]) == ["stash", "list"]
    return not (plain and (command in _BRIEF_SUBCOMMANDS or is_list or summaries))


def _subcommand(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _shown_paths(part: SimpleCommand, base: str) -> set[str]:
    """Return the paths that a command is limited to; an empty set if it may show any path."""
    words = part.words[1:]
    texts = [word.text for word in words]
    command = _subcommand(texts)
    end = texts.index("--") if "--" in texts else len(texts)
    named = [word for word in words[:end] if not word.text.startswith("-")][1:]
    if any(_OBJECT_NAME.fullmatch(word.text) for word in named):
        return set()
    if command in ("show", "cat-file") and end == len(texts):
        found = [(w, _REVISION_PATH.fullmatch(w.text)) for w in named if w.text != "blob"]
        chosen = [Word(match[1] if match else "", w.fixed, w.glob) for w, match in found]
        bounds = [_path_in_commit(word.text, base) for word in chosen]
    elif command == "cat-file" or any(
        ":" in w or _WIDENING_OPTION.fullmatch(w) for w in texts[:end]
    ):
        return set()
    else:
        there = [w for w in named if os.path.lexists(os.path.join(base, w.text))]  # noqa: PTH118
        chosen = list(words[end + 1 :]) if end < len(texts) else there
        bounds = [os.path.normpath(os.path.join(base, word.text)) for word in chosen]  # noqa: PTH118
    clear = (w.text and w.fixed and not _PATHSPEC_MAGIC.search(w.text) for w in chosen)
    return set(bounds) if all(clear) else set()


def program_git_runs(folder: str, changing: SimpleCommand | None = None) -> str:
    """Describe the first program that a folder's repository makes git run; "" if there is none.
    Without `changing`, a command that is not read-only, only programs count that git runs while it
    reads.
    """
    by = "" if changing is None else _subcommand([word.text for word in changing.words[1:]]) or "-"
    roots = _repository_roots(folder)
    return next((program for root in roots for program in _configured_programs(root, by, 0)), "")


def repository_outside_links(folder: str) -> Iterator[OutsideLink]:
    """Yield links and settings in git's own folders that point outside them, for the repository of
    a folder and its submodules. Unreadable parts are left to `program_git_runs`.
    """
    pending = [(root, 0) for root in _repository_roots(folder)]
    while pending:
        root, depth = pending.pop()
        yield from outside_links(str(root))
        if depth < _MAX_REPOSITORY_DEPTH:
            with suppress(*_UNREADABLE):
                pending += [(inner, depth + 1) for inner in _repositories_inside(root)]


def has_known_folder(part: SimpleCommand, script: Script) -> bool:
    """Return True if the part's folder is known. Git also runs programs that the configuration
    there names.
    """
    if part.name == "cd":
        return is_leading_cd(part, script)
    changes = script.folder_changes
    return (
        part.name != "git"
        or not changes
        or (
            len(changes) == 1
            and is_leading_cd(changes[0], script)
            and len(changes[0].words) == 2
            and changes[0].words[1].fixed
            and not changes[0].words[1].glob
        )
    )


def without_folder(part: SimpleCommand) -> tuple[SimpleCommand, str]:
    """Return a git command without `-C FOLDER` before its subcommand, and FOLDER. Return the
    command unchanged and "" if it names no folder or the folder is not certain.
    """
    words = part.words
    if part.name != "git" or len(words) < 4 or words[1].text != "-C":
        return part, ""
    if not words[2].fixed or words[2].glob or not words[2].text:
        return part, ""
    return replace(part, words=(words[0], *words[3:])), words[2].text


def is_leading_cd(part: SimpleCommand, script: Script) -> bool:
    """Return True if the part is a `cd` at the start of the whole command."""
    return part.name == "cd" and part is script.parts[0] and script.text.lstrip().startswith("cd ")


def tracked_paths(folder: str) -> list[str] | None:
    """Return the absolute paths in the index of a folder's repository; None if it is unreadable."""
    try:
        roots = _repository_roots(folder)
        return [f"{root}/{path}" for root in roots for path in _index_paths(root)]
    except _UNREADABLE:
        return None


def index_path_outside(folder: str) -> str:
    """Return a path in a repository's index that leads out of the repository, "" for none. Git
    never writes such a path, but reads the file that such a path names. An unreadable index counts
    as such a path.
    """
    for root in _repository_roots(folder):
        try:
            own = _git_folder(root)
            for index in (own / "index", *own.glob("sharedindex.*")):
                data = _read_bytes(index)
                if _LEAVING.search(data) or data[4:8] == _COMPRESSED:
                    paths = [os.path.normpath(path) for _, path in _index_entries(data)]
                    if found := next((p for p in paths if f"{p}/".startswith(("/", "../"))), ""):
                        return found
        except _UNREADABLE:
            return f"{root}/.git/index, which cannot be read"
    return ""


def repository_top(folder: str) -> str:
    """Return the top folder of a folder's repository; the folder itself outside a repository."""
    return str(next(iter(_repository_roots(folder)), folder))


def _repository_roots(folder: str) -> list[Path]:
    """Return the top folder of a folder's repository: for the path as written and, if links lead
    into another repository, for the resolved path.
    """
    found = [*filter(None, map(_nearest_repository, (folder, os.path.realpath(folder))))]
    same = len({os.path.realpath(root) for root in found}) == 1
    return found[:1] if same else found


def _nearest_repository(folder: str) -> Path | None:
    for place in (Path(folder), *Path(folder).parents):
        git = place / ".git"
        # Git skips a `.git` folder without HEAD and continues upward.
        if os.path.lexists(git / "HEAD" if git.is_dir() else git):
            return place
    return None


def _index_paths(root: Path) -> Iterator[str]:
    """Yield the paths in a repository's index."""
    own = _git_folder(root)
    if any(key == "objectformat" for _, key, _ in _settings(root)):
        raise ValueError("its index is of another kind")
    for index in (own / "index", *own.glob("sharedindex.*")):
        yield from (path for _, path in _index_entries(_read_bytes(index)))


def _configured_programs(root: Path, by: str, depth: int) -> Iterator[str]:
    try:
        yield from _read_configured_programs(root, by, depth)
    except _UNREADABLE:
        yield f"{root}/.git, which cannot be read"


def _read_configured_programs(root: Path, by: str, depth: int) -> Iterator[str]:
    """Yield the programs of a repository. `by` is a subcommand that changes something, or ""."""
    folder = _git_folder(root)
    hooks = [_common_folder(folder) / "hooks"]
    for file, key, value in _settings(root, changing=bool(by)):
        if key == "hookspath":
            hooks.append(root / os.path.expanduser(value.strip('"')))  # noqa: PTH111
        elif key == "worktree":
            if os.path.realpath(folder / value.strip('"')) != os.path.realpath(root):
                yield f"the work tree {value}"
        elif key != "objectformat" and not _GIT_LFS_COMMAND.fullmatch(value):
            yield f"`{key} = {value[:60]}` in {file}"
    for name in (name for each in hooks for name in _hooks(each, by)):
        yield f"the hook {name}"
    for inner in _repositories_inside(root):
        if depth == _MAX_REPOSITORY_DEPTH:
            raise ValueError(inner)
        yield from _configured_programs(inner, by, depth + 1)


def _hooks(folder: Path, by: str) -> Iterator[str]:
    """Yield the names of the hooks in a folder that git runs for a subcommand, or to read."""
    if not by or by in _PLAIN_CHANGES:
        names = [*_HOOKS_OF_PLAIN_CHANGES] if by else ["post-index-change"]
    else:
        found = os.scandir(folder) if os.path.isdir(folder) else ()  # noqa: PTH112
        names = sorted(e.name for e in found if e.is_file() and not e.name.endswith(".sample"))
    yield from (name for name in names if os.access(folder / name, os.X_OK))


def checked_out_submodules(root: Path) -> list[Path]:
    """Return the top folders of a repository's checked-out submodules; [] if its index is
    unreadable.
    """
    try:
        return list(_repositories_inside(root))
    except _UNREADABLE:
        return []


def _repositories_inside(root: Path) -> Iterator[Path]:
    """Yield the top folders of a repository's checked-out submodules."""
    folder = _git_folder(root)
    formats = [value for _, key, value in _settings(root) if key == "objectformat"]
    # A split index has its entries in a second file.
    for index in (folder / "index", *folder.glob("sharedindex.*")):
        for path in _submodule_paths(index, formats[-1] if formats else "sha1"):
            if os.path.lexists(root / path / ".git"):
                yield root / path


def _settings(root: Path, *, changing: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield the file name, the key and the value of each relevant setting."""
    known = _SETTINGS | _CHANGING_SETTINGS if changing else _SETTINGS
    folder = _git_folder(root)
    for file in (_common_folder(folder) / "config", folder / "config.worktree"):
        for key, value in settings_in(_read_text(file)):
            runs = changing and key in _PERHAPS_PROGRAMS and ("/" in value or "!" in value)
            if runs or key in known or "%G" in value:  # a format that starts gpg
                yield file.name, key, value.strip()


def _git_folder(root: Path) -> Path:
    """Return the folder `.git`, or the folder that a `.git` file names. Raises ValueError if it is
    not a repository.
    """
    git = root / ".git"
    if not git.is_dir():
        named = _read_line(git)
        if not named.startswith("gitdir: "):
            raise ValueError("it names no folder")
        git = root / named.removeprefix("gitdir: ")
    head, shared = git / "HEAD", _common_folder(git)
    whole = all(os.access(shared / name, os.X_OK) for name in ("objects", "refs"))
    # Git also skips an incomplete `.git` and continues upward.
    if not whole or head.is_symlink() or not _HEAD.match(_read_text(head)):
        raise ValueError("it is no repository")
    return git


def _common_folder(folder: Path) -> Path:
    """Return the folder that a work tree's git folder shares with the other work trees."""
    return folder / _read_line(folder / "commondir")


def _read_line(path: Path) -> str:
    """Return the single line of a file with all its spaces, as git reads it."""
    text = _read_text(path).rstrip("\r\n")
    if "\0" in text:
        raise ValueError("it names no folder")
    return text


def _read_text(path: Path) -> str:
    return _read_bytes(path).decode("utf-8", "surrogateescape")


def _read_bytes(path: Path) -> bytes:
    """Return a regular file's content; b"" if there is none. Raises ValueError if it is large."""
    if not path.is_file():
        return b""
    if path.stat().st_size > MAX_GIT_FILE_BYTES:
        raise ValueError("it is too large")
    return path.read_bytes()


def _submodule_paths(index: Path, hashes: str) -> Iterator[str]:
    """Yield the paths of the submodules in an index."""
    data = _read_bytes(index)
    if _GITLINK not in data and _SPARSE_EXTENSION not in data:
        return
    if hashes != "sha1":
        raise ValueError("its index is of another kind")
    for mode, path in _index_entries(data):
        if mode == _GITLINK:
            if not path:
                raise ValueError("its index names them elsewhere")
            yield path


def _index_entries(data: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield the mode and the path of each entry in an index of a SHA-1 repository."""
    if not data:
        return
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3, 4) or _SPARSE_EXTENSION in data:
        raise ValueError("its index is of another kind")
    place, path = 12, b""
    for _ in range(count):
        extended = version > 2 and data[place + 60] & 0x40
        name, kept = place + (64 if extended else 62), 0
        if version == 4:  # the path drops N bytes from the previous path, then adds a suffix
            cut, name = _variable_length(data, name)
            kept = len(path) - cut
        end = data.index(b"\0", name)
        path = path[:kept] + data[name:end]
        yield data[place + 24 : place + 28], os.fsdecode(path)
        place = end + 1 if version == 4 else place + ((end - place + 8) & ~7)


def _variable_length(data: bytes, place: int) -> tuple[int, int]:
    """Decode a variable-length number at an offset of an index; also return the offset after it."""
    value = data[place] & 127
    while data[place] & 128:
        place += 1
        value = (value + 1 << 7) | data[place] & 127
    return value, place + 1
