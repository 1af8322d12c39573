r"""Path forms for matching rules, and the files that a shell pattern can expand to.

Patterns have `?`, `*` (within one component), `**` (spans folders), and `\*` for a literal
star.

Matching tracks all positions in the pattern that the text so far can reach, as the bits of one
integer. There is no backtracking: the time is linear in the length of the text for any pattern.
"""

import glob
import os
import pwd
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby, islice, pairwise
from pathlib import Path

from ..errors import UsageError
from ..lazy import dataclass, regex

UNESCAPED_WILDCARD = regex(r"(?<!\\)[*?]")
_TOKEN = regex(r"\\[*?]|(?<![^/])(?:\*\*/)+|\*\*+|.", re.DOTALL)


def unescape_path(pattern: str) -> str:
    return re.sub(r"\\([*?])", r"\1", pattern)


@dataclass(frozen=True, slots=True)
class PathGlob:
    """A compiled pattern. Bit N is the position before token N after `start`."""

    start: str  # the text before the first wildcard
    needed: str  # a text that every match contains after `start`
    steps: dict[str, int]  # by character: the positions that it advances
    others: int  # the positions that any other character except `/` advances
    stars: int  # `*`: any character except `/` may follow, or the next token
    spans: int  # `**`: any character may follow, or the next token
    folders: int  # `**/`: any character may follow; after `/` also the next token
    ends: int  # the positions at which a match may end

    def matches(self, path: str) -> bool:
        if not path.startswith(self.start) or path.find(self.needed, len(self.start)) < 0:
            return False
        optional = self.stars | self.spans
        now = 1 | (self.folders & 1) << 1  # `**/` matches at the start of a component only
        now |= (now & optional) << 1
        for char in path[len(self.start) :]:
            is_slash = char == "/"
            stay = self.spans | self.folders if is_slash else optional | self.folders
            now = (now & self.steps.get(char, self.others)) << 1 | now & stay
            if is_slash:
                now |= (now & self.folders) << 1
            now |= (now & optional) << 1
            if not now:
                return False
        return bool(now & self.ends)


def path_glob(pattern: str) -> PathGlob:
    """Compile a pattern. A pattern that ends in a plain name also matches everything below it."""
    is_plain = not UNESCAPED_WILDCARD.search(pattern.rpartition("/")[2])
    tokens = _TOKEN.findall(pattern)
    if is_plain and tokens[-1:] == ["/"]:
        del tokens[-1]
    runs = [(wild, [*run]) for wild, run in groupby(tokens, lambda each: each[0] in "*?")]
    start = runs.pop(0)[1] if runs and not runs[0][0] else []
    texts = (unescape_path("".join(run)) for is_wild, run in runs if not is_wild)
    tokens = tokens[len(start) :]
    ends = 1 << len(tokens)
    if is_plain:
        tokens += ["/", "**"]
        ends |= 1 << len(tokens)
    wild, steps = dict.fromkeys(("?", "*", "**", "**/"), 0), {"/": 0}
    for place, token in enumerate(tokens):
        kind = token if len(token) < 2 or token[0] == "\\" else "**/" if token[-1] == "/" else "**"
        group = wild if kind in wild else steps
        group[kind] = group.get(kind, 0) | 1 << place
    single = wild["?"]
    return PathGlob(
        start=unescape_path("".join(start)),
        needed=max(texts, key=len, default=""),
        steps={unescape_path(c): bits | single * (c != "/") for c, bits in steps.items()},
        others=single,
        stars=wild["*"],
        spans=wild["**"],
        folders=wild["**/"],
        ends=ends,
    )


MAX_GLOB_MATCHES = 1000
_MAX_WILD_COMPONENTS = 2
_BRACKETS = regex(r"(?P<plain>\[(?:\w+|\d-\d)\])|(?P<other>\[[!^]?\]?[^\]/]*\])|\[", re.ASCII)

_ODD_NAME = regex(r"^[-~]|[\s'\"\\]|[^\x20-\x7e\u00a1-\U0010ffff]")

# Links whose target depends on the process that opens them: a command gets other targets than we.
_OWN_PROC_LINK = regex(r"/proc/(?:self|thread-self)(?:/task/[^/]+)?/(cwd|root)(?=/|$)")


def path_forms(text: str, base: str) -> list[str]:
    """Return the path as written and, if links lead elsewhere, the resolved path. Returns [] for an
    impossible path.
    """
    try:
        path = os.path.join(base, os.path.expanduser(text))  # noqa: PTH111, PTH118
        while own := _OWN_PROC_LINK.match(os.path.normpath(path)):
            rest = os.path.normpath(path)[own.end() :]
            path = (base if own[1] == "cwd" else "") + rest or "/"
        return list(dict.fromkeys((os.path.normpath(path), os.path.realpath(path))))
    except (ValueError, OSError):
        return []


def all_path_forms(places: Iterable[Path]) -> list[str]:
    """Return each path as given and with links resolved."""
    return [form for place in places for form in (str(place), os.path.realpath(place))]


def is_within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def is_in_project(text: str, bases: Iterable[str], project: Iterable[str]) -> bool:
    """Return True if a path in a command, as written, is in the project and not inside `.git`."""
    forms = [form for base in bases for form in path_forms(text, base)]
    return bool(forms) and all(
        is_within(form, project) and ".git" not in form.casefold().split("/") for form in forms
    )


def protected_name(
    path: str, roots: Iterable[str], rule_path: str = "", own: Iterable[str] = ()
) -> str:
    """Return the first protected name in a path, "" if there is none. A protected file takes effect
    when another program runs. Folders above the root that contains the path, and names in the path
    pattern `rule_path`, do not count. `own` are the agent's own folders and files.
    """
    root = next((root for root in roots if is_within(path, (root,))), "")
    named, folded = rule_path.casefold().split("/"), path.casefold()
    for place in own:
        name = place.rpartition("/")[2].casefold()
        if is_within(folded, (place.casefold(),)) and name not in named:
            return place
    for home in home_folders():
        # The user's programs read and run these files. A project below home is exempt.
        if is_within(folded, (home.casefold(),)) and is_within(home, (root,)):
            first = folded[len(home.casefold()) :].lstrip("/").partition("/")[0]
            if (first.startswith(".") or first == "bin") and first not in named:
                return first
    parts = path[len(root) :].casefold().split("/")
    pairs = ("/".join(pair) for pair in pairwise(parts))
    known = (name for name in (*parts, *pairs) if name in protected_names())
    return next((name for name in known if not set(name.split("/")) <= set(named)), "")


@cache
def protected_names() -> Mapping[str, str]:
    """Return the kind of each protected name, "runs" or "instructs". A name may have two parts."""
    text = Path(__file__).with_name("protected_names.toml").read_text(encoding="utf-8")
    return {name: kind for kind, names in tomllib.loads(text).items() for name in names}


def is_instruction(path: str) -> bool:
    """Return True if an agent reads the file as its instructions: by its name or a folder's, or as
    Markdown in a folder of an agent.
    """
    parts = path.casefold().split("/")
    pairs = ("/".join(pair) for pair in pairwise(parts))
    kinds = {protected_names().get(name) for name in (*parts, *pairs)}
    return "instructs" in kinds or ("runs" in kinds and parts[-1].endswith((".md", ".mdc")))


def home_folders() -> list[str]:
    """Return the user's home folders, as given and with links resolved."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    found = dict.fromkeys(all_path_forms(Path(home) for home in homes))
    return [home for home in found if home.startswith("/") and home != "/"]


def is_plain_name(path: str) -> bool:
    """Return True if a shell can read a path only as a single file name."""
    return not any(map(_ODD_NAME.search, path.split("/")))


def expand_glob(pattern: str, base: str) -> list[str] | None:
    """Return the paths that the unquoted `pattern` matches in the folder `base`, relative as the
    shell gives them. Returns None if there are too many, if one looks like an option, or if the
    shell may interpret the pattern differently.
    """
    wild = re.findall(r"[*?\[][^/]*(?:/|$)", pattern)
    if len(wild) > _MAX_WILD_COMPONENTS or re.search(r"\[[:.=]", pattern):
        return None
    try:
        widened = _BRACKETS.sub(_widen_bracket, os.path.expanduser(pattern))  # noqa: PTH111
        found = list(islice(glob.iglob(widened, root_dir=base), MAX_GLOB_MATCHES + 1))  # noqa: PTH207
    except ValueError:  # an impossible path
        return None
    too_many = len(found) > MAX_GLOB_MATCHES
    return None if too_many or any(path.startswith("-") for path in found) else found


def _widen_bracket(bracket: re.Match[str]) -> str:
    """Replace a bracket with `?` if its meaning depends on the shell or the locale."""
    return bracket["plain"] or ("?" if bracket["other"] else "[[]")


class WorkFolders:
    """The folders of a session. Iterating yields each path as given and resolved, the project
    first.
    """

    def __init__(self, cwd: Path | str) -> None:
        self.cwd = os.path.abspath(cwd)  # noqa: PTH100 - links must stay as they are
        self.project = (self.cwd, os.path.realpath(cwd))
        self.added: list[str] = []  # links resolved; the sandbox shares this list
        self.names: list[str] = []  # the same, as the user named them
        self.pinned: Sequence[str] = ()  # files that hooks and servers run, which no mode edits

    def __iter__(self) -> Iterator[str]:
        yield from (*self.project, *self.names, *self.added)

    @property
    def real(self) -> list[str]:
        """All folders with links resolved, the project first."""
        return [self.project[1], *self.added]

    def add(self, name: str) -> None:
        """Add a directory returned by `checked_directory`."""
        self.names.append(name)
        self.added.append(os.path.realpath(name))


def checked_directory(text: str | Path, base: str | Path, own: Sequence[str]) -> str:
    """Return the absolute path of a directory that may be added to a session. A relative path
    starts at `base`; `own` are the agent's own files and folders. Raises UsageError.
    """
    name = os.path.abspath(os.path.join(base, os.path.expanduser(text)))  # noqa: PTH100, PTH111, PTH118
    if "\0" in name or not os.path.lexists(name):
        raise _refusal(text, "it does not exist", "Create it first, or correct the path.")
    real = os.path.realpath(name)
    if not Path(real).is_dir():
        raise _refusal(text, "it is not a directory", "Name its parent directory.")
    if real == "/":
        raise _refusal(text, "it is the root of the file system")
    if any(is_within(home, (real,)) for home in home_folders()):
        raise _refusal(text, "it is your home folder, or contains it")
    if found := [place for place in own if is_within(place, (real,))]:
        raise _refusal(text, f"it contains {found[0]}, where the agent keeps its own files")
    if protected := protected_name(real, (), own=own):
        raise _refusal(text, f"{protected} is protected")
    return name


def _refusal(text: str | Path, why: str, hint: str = "Name a project's directory.") -> UsageError:
    return UsageError(f"the directory {str(text)!r} cannot be added: {why}", hint=hint)
