"""Permission rules: `Tool` or `Tool(subject)`, and what they match.

The subject of a Bash rule is a command: whole, with `:*` for any further words, or with `*` for
any text. The subject of a Read or Edit rule is a path pattern: `*` stays inside one component,
`**` spans folders, a pattern that ends in a plain name covers what is below it. `\\*` is a star.
A rule that forbids or asks is read widely, one that allows is read narrowly.
"""

import difflib
import glob
import os
import re
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from .errors import UsageError
from .shell.options import has_options, meets
from .shell.readonly import may_look
from .shell.straying import straying
from .shell.syntax import Part, Script, Word
from .shell.wrappers import names

TOOLS = ("Bash", "Read", "Grep", "Glob", "Write", "Edit", "Todo", "Job", "Task", "Recall")
_FAMILIES = {"Read": ("Read", "Grep", "Glob"), "Edit": ("Edit", "Write")}
_EXAMPLES = "For example Bash(git status:*), Read(~/notes/**), Edit(src/**) or Grep."
BLANKS = " \t\n"
_MOST = 50_000  # files looked at to find one below a folder

Match = Literal["yes", "maybe", "no"]

# Whose first words alone would allow too much, in any version (`sqlite3`, `python3.11`).
_RISKY = names(
    "rm rmdir dd kill pkill killall chmod chown curl wget ssh scp rsync cp mv ln tee install "
    "truncate patch awk gawk mawk nawk sed tar vi vim nvim ex ed emacs sqlite psql mysql gdb npx "
    "bunx uvx pipx less more man telnet ftp sftp nc ncat netcat socat zip "
    # shells other than those below, and what starts a program or a shell
    "csh tcsh ksh mksh fish ash rbash su runuser pkexec tmux screen script expect unbuffer rlwrap "
    "systemd-run nsenter setpriv prlimit at batch crontab watch watchexec entr nodemon sg newgrp "
    "runcon numactl start-stop-daemon daemonize run-parts dbus-run-session xvfb-run xterm cpulimit "
    "firejail bwrap proot fakeroot torsocks proxychains valgrind ltrace perf rr lldb hyperfine "
    "mpirun mpiexec srun pssh ansible ansible-playbook nix-shell"
)
# Which build by a file that says what to run; an option names another file, or what to run.
BUILDERS = names(
    "make gmake bmake remake just ninja samu rake bundle scons waf cmake meson task mage ant mvn "
    "mvnw gradle gradlew"
)
_INTERPRETERS = names(
    "python pypy node nodejs deno bun ruby perl php lua luajit bash sh zsh dash pwsh Rscript tclsh "
    "julia ipython ts-node tsx raku groovy scala elixir guile racket sbcl octave runghc jshell"
)
_VERSION = re.compile(r"-?\d[\d.]*$")
_STAR = re.compile(r"(?<!\\)\*")
_RUNS_ANYTHING = names("exec run dlx eval")
_RUNNERS = {
    ("npm", "x"), ("bun", "x"), ("git", "config"), ("git", "bisect"), ("git", "rebase"),
    ("git", "submodule"), ("git", "filter-branch"), ("git", "hook"), ("git", "difftool"),
    ("git", "mergetool"), ("git", "clone"), ("git", "fetch"), ("git", "pull"),
    ("git", "ls-remote"), ("git", "archive"), ("git", "send-email"),
}  # fmt: skip
_LISTED = {("npm", "run"), ("pnpm", "run"), ("yarn", "run")}  # run what the project has listed
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")
_SCRIPT_NAME = re.compile(r"[\w./][\w./-]*")


@dataclass(frozen=True, slots=True)
class Rule:
    """`subject` is None in a rule for every call of the tool."""

    tool: str
    subject: str | None = None

    def __str__(self) -> str:
        return self.tool if self.subject is None else f"{self.tool}({self.subject})"

    def covers(self, tool: str) -> bool:
        """`Read` rules cover all tools that read, `Edit` rules all that write."""
        return tool in _FAMILIES.get(self.tool, (self.tool,))

    @property
    def any(self) -> bool:
        return self.subject is None or (self.tool == "Bash" and self.subject == "*")

    @property
    def path(self) -> str:
        """The pattern of paths that its subject is, "" when it is none."""
        return (self.subject or "") if any(self.tool in f for f in _FAMILIES.values()) else ""

    @property
    def relative(self) -> bool:
        """Whether the paths that it names count from the folder of a session."""
        return bool(self.path) and self.path[0] not in "/~"


def parse_rule(text: str) -> Rule:
    """The rule that a setting, an option or a person wrote. Raises UsageError."""
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)(?:\((.+)\))?\s*", text, re.DOTALL)
    if match is None or (
        match[1] == "Bash" and match[2] is not None and not match[2].strip(BLANKS)
    ):
        raise UsageError(f"{text!r} is not a permission rule", hint=_EXAMPLES)
    tool, subject = match[1], match[2]
    if tool not in TOOLS:
        near = difflib.get_close_matches(tool.capitalize(), TOOLS, 1, 0.5)
        meant = f"Did you mean {near[0]}?" if near else f"The tools are {', '.join(TOOLS)}."
        raise UsageError(f"the rule {text!r} names no tool", hint=f"{meant} {_EXAMPLES}")
    if tool == "Bash" and subject and subject.endswith(":*"):
        words = subject[:-2]
        if not words.strip() or re.search(r"(?<!\\)\*", words):
            raise UsageError(f"`:*` in {text!r} must follow plain words", hint=_EXAMPLES)
    rule = Rule(tool, subject)
    if not _possible(rule.path):
        raise UsageError(f"no path is as {text!r} says", hint=_EXAMPLES)
    return rule


def _possible(text: str) -> bool:
    """Whether a path could be called so."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def exact_command(text: str) -> str:
    """The subject of a Bash rule for this command alone."""
    return text.strip(BLANKS).replace("*", "\\*")


def exact_path(path: str) -> str:
    """The subject of a path rule for this path alone (and what is below it)."""
    return re.sub(r"([*?])", r"\\\1", path)


def narrowest(part: Part, script: Script) -> str:
    """The subject of the narrowest rule worth keeping that allows this part: its first word or
    two with `:*`, or the exact text where that would say too much."""
    if part.doubt or script.doubt or part.name == "cd":
        return exact_command(script.text)
    taken = _telling_words(part)
    if not taken or straying(part, len(taken)):
        return exact_command(part.source)
    return exact_command(shlex.join(word.text for word in taken)) + ":*"


def _telling_words(part: Part) -> tuple[Word, ...]:
    name, words = _VERSION.sub("", part.name.rpartition("/")[2]), part.words
    plain = [word.fixed and not word.glob for word in words]
    second = words[1].text if len(words) > 1 else ""
    runs = (name, second) in _RUNNERS or second in _RUNS_ANYTHING
    if name in _RISKY | BUILDERS or (runs and (name, second) not in _LISTED):
        return ()
    if may_look(name) and name not in _INTERPRETERS and name != "git":
        return ()  # what it is asked about is more than looking
    if name in _INTERPRETERS:
        place = 2 if second == "-m" else 1
        if len(words) > place and plain[place] and _SCRIPT_NAME.fullmatch(words[place].text):
            return words[: place + 1]
        return ()
    if second.startswith("-"):
        return ()
    return words[:2] if second and plain[1] and _SUBCOMMAND.fullmatch(second) else words[:1]


@dataclass(frozen=True, slots=True)
class _Command:
    """A Bash subject, ready to match. `words` of a prefix rule; else `pattern` of the whole."""

    words: tuple[str, ...]
    pattern: re.Pattern[str] | None


@lru_cache(maxsize=512)
def _command(subject: str) -> _Command:
    if subject.endswith(":*"):
        return _Command(tuple(_split(_plain_command(subject[:-2]))), None)
    pieces = re.split(r"(?<!\\)\*", subject)
    body = ".*".join(re.escape(_plain_command(piece)) for piece in pieces)
    return _Command(tuple(_split(_plain_command(subject))), re.compile(body, re.DOTALL))


def _plain_command(subject: str) -> str:
    return subject.replace("\\*", "*")


def _plain_path(pattern: str) -> str:
    return re.sub(r"\\([*?])", r"\1", pattern)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def allows_text(rule: Rule, command: str) -> bool:
    """Whether the rule names exactly this whole command, or any."""
    if rule.any:
        return True
    subject = rule.subject or ""
    starred = subject.endswith(":*") or re.search(r"(?<!\\)\*", subject)
    return not starred and _plain_command(subject).strip(BLANKS) == command.strip(BLANKS)


def allows_part(rule: Rule, part: Part) -> bool:
    """Whether an allow rule matches this simple command, as it is written. One for a kind of
    command is not for what strays from it."""
    if rule.any:
        return True
    subject = rule.subject or ""
    command = _command(subject)
    if command.pattern:
        matches = bool(command.pattern.fullmatch(part.source))
        return matches and not (_STAR.search(subject) and straying(part, 1, subject))
    begins = _begins(command.words, part.words) == "yes"
    return begins and not straying(part, len(command.words))


def forbids_part(rule: Rule, part: Part) -> Match:
    """Whether a deny or ask rule matches this simple command: the program by its last name
    (`/bin/rm`), options before a subcommand left out (`git -C x push`), those of the rule in any
    order (`rm x -fr`). "maybe" when a word that decides is known only when it runs."""
    if rule.any:
        return "yes"
    command = _command(rule.subject or "")
    answers: set[Match] = set()
    anywhere = has_options(command.words) and not command.pattern
    for words in _spellings(part.words):
        answers.add(_begins(command.words, words) if not command.pattern else "no")
        if anywhere:
            answers.add(meets(command.words, words))
        if command.pattern:
            lines = (part.source, " ".join(word.text for word in words))
            if any(command.pattern.fullmatch(line) for line in lines):
                return "yes"
            if any(not word.fixed or word.glob for word in words):
                answers.add("no" if _begins(command.words[:1], words[:1]) == "no" else "maybe")
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


def _begins(wanted: Sequence[str], words: Sequence[Word]) -> Match:
    for text, word in zip(wanted, words, strict=False):
        if not word.fixed or word.glob:
            return "maybe"
        if word.text != text:
            return "no"
    return "yes" if len(words) >= len(wanted) else "no"


_GIT_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")


def _spellings(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    first = words[0]
    name = Word(first.text.rpartition("/")[2] or first.text, first.fixed, first.glob)
    yield (name, *words[1:])
    place = 1
    while place < len(words) and words[place].text.startswith("-"):
        place += 2 if name.text == "git" and words[place].text in _GIT_VALUED else 1
    if 1 < place < len(words):
        yield (name, *words[place:])


@dataclass(frozen=True, slots=True)
class Place:
    """The paths that a rule's subject means: absolute patterns, and the same as expressions."""

    patterns: tuple[str, ...]
    expressions: tuple[re.Pattern[str], ...]

    def matches(self, path: str) -> bool:
        return any(expression.fullmatch(path) for expression in self.expressions)

    def below(self, folder: str, most: int = _MOST) -> bool:
        """Whether files that it means exist below a folder, or may: one with more than `most`
        files is not looked through, and taken to hold them."""
        plain = [p for p in self.patterns if "**/" not in p]
        if len(plain) < len(self.patterns) and self._deep_below(folder, most):
            return True
        for pattern in plain:
            python = re.sub(r"\\([*?])", r"[\1]", pattern.replace("[", "[[]"))
            found = glob.iglob(python, include_hidden=True)  # noqa: PTH207
            if any(path.startswith(folder.rstrip("/") + "/") for path in found):
                return True
        return False

    def _deep_below(self, folder: str, most: int) -> bool:
        seen, folders = 0, deque([folder])
        while folders:
            try:
                entries = list(os.scandir(folders.popleft()))
            except OSError:
                continue
            seen += len(entries)
            if seen > most or any(self.matches(entry.path) for entry in entries):
                return True
            folders += [each.path for each in entries if each.is_dir(follow_symlinks=False)]
        return False


def make_place(subject: str, cwd: str, *, widely: bool) -> Place:
    """What a path pattern means in `cwd`. `widely`: a name alone is meant in every folder, and a
    link in the pattern is followed; else only what a project cannot have changed is followed."""
    real_cwd = os.path.realpath(cwd)
    if subject.startswith(("/", "~")):
        expanded = _at_home(subject) if subject.startswith("~") else "/" + subject.lstrip("/")
        patterns = [expanded]
        own = any(expanded.startswith(f"{exact_path(root)}/") for root in (cwd, real_cwd))
    else:
        if widely and "/" not in subject.rstrip("/"):
            subject = f"**/{subject}"
        patterns = [f"{exact_path(root)}/{subject}" for root in (cwd, real_cwd)]
        own = True
    patterns = [os.path.normpath(pattern) for pattern in patterns]
    if widely:  # what is said of all in a folder is said of the folder
        patterns += [p.removesuffix("/**") for p in patterns if p.endswith("/**") and p != "/**"]
    if widely or not own:
        patterns += [_followed(pattern) for pattern in patterns]
    unique = tuple(dict.fromkeys(patterns))
    return Place(unique, tuple(re.compile(_expression(p), re.DOTALL) for p in unique))


def _at_home(subject: str) -> str:
    """`~/x` with the home folder in place of `~`."""
    name, slash, rest = subject.partition("/")
    return exact_path(os.path.expanduser(name)) + slash + rest  # noqa: PTH111


def _followed(pattern: str) -> str:
    """The pattern with the links in its plain beginning followed."""
    parts = pattern.split("/")
    plain = next((i for i, p in enumerate(parts) if re.search(r"(?<!\\)[*?]", p)), len(parts))
    beginning = os.path.realpath(_plain_path("/".join(parts[:plain])) or "/")
    return os.path.normpath("/".join([exact_path(beginning), *parts[plain:]]))


def _expression(pattern: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\\[*?]|(?:(?<=/)|^)\*\*/|\*\*|\*|\?)", pattern)
    body = "".join(wild.get(p) or re.escape(_plain_path(p)) for p in pieces)
    last = pattern.rpartition("/")[2]
    return body if re.search(r"(?<!\\)[*?]", last) else f"{body.removesuffix('/')}(?:/.*)?"
