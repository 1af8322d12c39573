r"""Permission rules: `Tool` or `Tool(subject)`, and matching them.

The subject of a Bash rule is a command: exact, with `:*` for any further words, or with `*` for any
text. The subject of a Read or Edit rule is a path pattern: `*` stays within one component, `**`
spans folders, and a pattern that ends in a plain name also matches everything below it. `\*` is a
literal star. Deny and ask rules match broadly, allow rules match narrowly.
"""

import difflib
import glob
import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from ..errors import UsageError
from ..lazy import dataclass, regex
from .paths import UNESCAPED_WILDCARD, PathGlob, path_glob, unescape_path
from .shell.command_table import first_operand, plainly_inside, stray_word
from .shell.parser import Script, SimpleCommand, Word
from .shell.reach import RuleMatch, has_options, match_in_any_order
from .shell.read_only import arguments_may_change, has_read_only_form
from .shell.wrappers import name_set

TOOL_NAMES = (
    "Bash", "Read", "Grep", "Glob", "Write", "Edit", "Todo", "Job", "Task", "Recall", "Network",
    "Mcp", "Sampling", "Skill", "Memory", "WebFetch", "WebSearch", "AskUser", "Plan",
)  # fmt: skip
_added_names: dict[str, None] = {}  # tool names of extensions
MCP_PREFIX = "mcp__"  # tools of MCP servers: mcp__SERVER__TOOL
_FAMILIES = {"Read": ("Read", "Grep", "Glob"), "Edit": ("Edit", "Write")}
_RULE_EXAMPLES = "For example Bash(git status:*), Read(~/notes/**), Edit(src/**) or Grep."
BLANKS = " \t\n"
MAX_SCANNED_FILES = 50_000  # files scanned to find a match below a folder

# A rule with only the first words of these would allow too much, in any version (`sqlite3`).
_RISKY_COMMANDS = name_set(
    "rm rmdir dd kill pkill killall chmod chown curl wget ssh scp rsync cp mv ln tee install "
    "truncate patch awk gawk mawk nawk sed tar vi vim nvim ex ed emacs sqlite psql mysql gdb npx "
    "bunx uvx pipx less more man telnet ftp sftp nc ncat netcat socat zip "
    # other shells, and programs that start a program or a shell
    "csh tcsh ksh mksh fish ash rbash su runuser pkexec tmux screen script expect unbuffer rlwrap "
    "systemd-run nsenter setpriv prlimit at batch crontab watch watchexec entr nodemon sg newgrp "
    "runcon numactl start-stop-daemon daemonize run-parts dbus-run-session xvfb-run xterm cpulimit "
    "firejail bwrap proot fakeroot torsocks proxychains valgrind ltrace perf rr lldb hyperfine "
    "mpirun mpiexec srun pssh ansible ansible-playbook nix-shell"
)
# Build tools: a file names the commands to run; an option names another file or a command.
BUILD_TOOLS = name_set(
    "make gmake bmake remake just ninja samu rake bundle scons waf cmake meson task mage ant mvn "
    "mvnw gradle gradlew"
)
_INTERPRETERS = name_set(
    "python pypy node nodejs deno bun ruby perl php lua luajit bash sh zsh dash pwsh Rscript tclsh "
    "julia ipython ts-node tsx raku groovy scala elixir guile racket sbcl octave runghc jshell"
)
# The next word of these is a file, not a subcommand, so a rule for the name alone is enough.
_WITHOUT_SUBCOMMANDS = name_set(
    "pytest py.test mypy pyright flake8 pylint black isort prettier eslint tsc jest vitest mocha "
    "touch mkdir"
)
_VERSION = regex(r"-?\d[\d.]*$")
UNESCAPED_STAR = regex(r"(?<!\\)\*")
_RISKY_SECOND_WORDS = name_set("exec run dlx eval")
_RISKY_SUBCOMMANDS = {
    ("npm", "x"), ("bun", "x"), ("git", "config"), ("git", "bisect"), ("git", "rebase"),
    ("git", "submodule"), ("git", "filter-branch"), ("git", "hook"), ("git", "difftool"),
    ("git", "mergetool"), ("git", "clone"), ("git", "fetch"), ("git", "pull"),
    ("git", "ls-remote"), ("git", "archive"), ("git", "send-email"),
}  # fmt: skip
# These run scripts that the project lists.
SCRIPT_RUNNERS = {("npm", "run"), ("pnpm", "run"), ("yarn", "run")}
_SUBCOMMAND = regex(r"[a-z][a-z0-9:_-]*")
_MCP_RULE = regex(r"\s*(mcp__[\w*-]+)\s*", re.ASCII)
_SCRIPT_NAME = regex(r"[\w./][\w./-]*")


@dataclass(frozen=True, slots=True)
class Rule:
    """A permission rule."""

    tool: str
    subject: str | None = None  # None: every call of the tool

    def __str__(self) -> str:
        return self.tool if self.subject is None else f"{self.tool}({self.subject})"

    def covers(self, tool: str) -> bool:
        """Return True if the rule applies to a tool. `Read` includes Grep and Glob, `Edit` includes
        Write, `Mcp` includes the tools of all MCP servers, and `mcp__SERVER` the tools of one
        server.
        """
        if tool.startswith(MCP_PREFIX):
            own = self.tool
            return own == "Mcp" or fnmatchcase(tool, own) or tool.startswith(f"{own}__")
        return tool in _FAMILIES.get(self.tool, (self.tool,))

    @property
    def any(self) -> bool:
        """Whether the rule matches every call of its tools."""
        return self.subject is None or (self.tool == "Bash" and self.subject == "*")

    @property
    def path(self) -> str:
        """The subject if it is a path pattern, else ""."""
        return (self.subject or "") if any(self.tool in f for f in _FAMILIES.values()) else ""

    @property
    def relative(self) -> bool:
        """Whether the rule's path is relative to the session's folder."""
        return bool(self.path) and self.path[0] not in "/~"


def add_tool_names(names: Iterable[str]) -> None:
    """Accept these tool names in rules, too."""
    _added_names.update(dict.fromkeys(names))


def parse_rule(text: str) -> Rule:
    """Parse a rule from a setting, an option or user input. Raises UsageError."""
    if of_server := _MCP_RULE.fullmatch(text):
        return Rule(of_server[1])
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)(?:\((.+)\))?\s*", text, re.DOTALL)
    if match is None or (
        match[1] == "Bash" and match[2] is not None and not match[2].strip(BLANKS)
    ):
        raise UsageError(f"{text!r} is not a permission rule", hint=_RULE_EXAMPLES)
    tool, subject = match[1], match[2]
    if tool not in (names := (*TOOL_NAMES, *_added_names)):
        near = difflib.get_close_matches(tool.capitalize(), names, 1, 0.5)
        meant = f"Did you mean {near[0]}?" if near else f"The tools are {', '.join(names)}."
        raise UsageError(f"the rule {text!r} names no tool", hint=f"{meant} {_RULE_EXAMPLES}")
    if tool == "Bash" and subject and subject.endswith(":*"):
        words = subject[:-2]
        if not words.strip() or UNESCAPED_STAR.search(words):
            raise UsageError(f"`:*` in {text!r} must follow plain words", hint=_RULE_EXAMPLES)
    rule = Rule(tool, subject)
    if not _is_possible_path(rule.path):
        raise UsageError(f"the path in the rule {text!r} is invalid", hint=_RULE_EXAMPLES)
    return rule


def _is_possible_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def exact_command(text: str) -> str:
    """Return a Bash rule subject that matches only this command."""
    return text.strip(BLANKS).replace("*", "\\*")


def exact_path(path: str) -> str:
    """Return a path rule subject that matches only this path and everything below it."""
    return re.sub(r"([*?])", r"\\\1", path)


def narrowest_subject(part: SimpleCommand, script: Script) -> str:
    """Return the subject of the narrowest useful rule that allows a command: its first one or two
    words with `:*`, or its exact text if a prefix would allow too much.
    """
    if part.doubt or script.doubt or part.name == "cd":
        return exact_command(script.text)
    taken = _identifying_words(part)
    if not taken or stray_word(part, len(taken), "", plainly_inside):
        return exact_command(part.source)
    return exact_command(shlex.join(word.text for word in taken)) + ":*"


def _identifying_words(part: SimpleCommand) -> tuple[Word, ...]:
    name, words = _VERSION.sub("", part.name.rpartition("/")[2]), part.words
    plain = [word.fixed and not word.glob for word in words]
    second = words[1].text if len(words) > 1 else ""
    runs = (name, second) in _RISKY_SUBCOMMANDS or second in _RISKY_SECOND_WORDS
    if name in _RISKY_COMMANDS | BUILD_TOOLS or (runs and (name, second) not in SCRIPT_RUNNERS):
        return ()
    if has_read_only_form(name) and name not in _INTERPRETERS and name != "git":
        return ()  # it needs approval only for more than reading
    if name in _INTERPRETERS:
        place = 2 if second == "-m" else 1
        if len(words) > place and plain[place] and _SCRIPT_NAME.fullmatch(words[place].text):
            return words[: place + 1]
        return ()
    if name in _WITHOUT_SUBCOMMANDS:
        return words[:1]
    if second.startswith("-"):
        return ()
    return words[:2] if second and plain[1] and _SUBCOMMAND.fullmatch(second) else words[:1]


@dataclass(frozen=True, slots=True)
class _CommandPattern:
    """The compiled subject of a Bash rule."""

    words: tuple[str, ...]
    pattern: re.Pattern[str] | None  # of the whole command; None for a rule that ends in `:*`


@lru_cache(maxsize=512)
def _command_pattern(subject: str) -> _CommandPattern:
    if subject.endswith(":*"):
        return _CommandPattern(tuple(_split(unescape_command(subject[:-2]))), None)
    pieces = UNESCAPED_STAR.split(subject)
    body = ".*".join(re.escape(unescape_command(piece)) for piece in pieces)
    return _CommandPattern(tuple(_split(unescape_command(subject))), re.compile(body, re.DOTALL))


def unescape_command(subject: str) -> str:
    return subject.replace("\\*", "*")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def allows_text(rule: Rule, command: str) -> bool:
    """Return True if the rule names exactly this whole command, or any command."""
    if rule.any:
        return True
    subject = rule.subject or ""
    starred = subject.endswith(":*") or UNESCAPED_STAR.search(subject)
    return not starred and unescape_command(subject).strip(BLANKS) == command.strip(BLANKS)


def allows_part(
    rule: Rule, part: SimpleCommand, inside: Callable[[str], bool] = plainly_inside
) -> bool:
    """Return True if an allow rule matches this simple command as written. A prefix rule covers
    only words that cannot change the kind of command (see `stray_word`). `inside` tests whether a
    path is in the project.
    """
    if rule.any:
        return True
    subject = rule.subject or ""
    command = _command_pattern(subject)
    if command.pattern:
        matches = bool(command.pattern.fullmatch(part.source))
        starred = UNESCAPED_STAR.search(subject)
        strays = starred and (stray_word(part, 1, subject, inside) or arguments_may_change(part))
        return matches and not strays
    return not uncovered_word(rule, part, inside)


def uncovered_word(rule: Rule, part: SimpleCommand, inside: Callable[[str], bool]) -> str:
    """Return the first word of a command that a prefix rule does not cover. Return "" if the rule
    covers all words, and the command's name if the rule is for another kind of command.
    """
    words = _command_pattern(rule.subject or "").words
    if not is_prefix(rule) or _match_prefix(words, part.words) != "yes":
        return part.name
    stray = stray_word(part, len(words), "", inside)
    return stray or (part.words[-1].text if arguments_may_change(part) else "")


def forbids_part(rule: Rule, part: SimpleCommand) -> RuleMatch:
    """Return "yes" if a deny or ask rule matches this simple command, "no" if it does not.

    Only the last component of the program's path counts (`/bin/rm`). Options before a subcommand
    are ignored (`git -C x push`), and the rule's own options match in any order (`rm x -fr`).
    "maybe" means that the answer depends on a word that is known only when the command runs.
    """
    if rule.any:
        return "yes"
    command = _command_pattern(rule.subject or "")
    answers: set[RuleMatch] = set()
    for words in _equivalent_spellings(part.words):
        if command.pattern is None:
            answers.add(_match_prefix(command.words, words))
            if has_options(command.words):
                answers.add(match_in_any_order(command.words, words))
            continue
        lines = (part.source, " ".join(word.text for word in words))
        if any(command.pattern.fullmatch(line) for line in lines):
            return "yes"
        vague = any(not word.fixed or word.glob for word in words)
        if vague and _match_prefix(command.words[:1], words[:1]) != "no":
            answers.add("maybe")
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


def is_prefix(rule: Rule) -> bool:
    return (rule.subject or "").endswith(":*")


def _match_prefix(wanted: Sequence[str], words: Sequence[Word]) -> RuleMatch:
    for text, word in zip(wanted, words, strict=False):
        if not word.fixed or word.glob:
            return "maybe"
        if word.text != text:
            return "no"
    return "yes" if len(words) >= len(wanted) else "no"


def _equivalent_spellings(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield a command with its program's bare name, with and without options before operands."""
    first = words[0]
    name = Word(first.text.rpartition("/")[2] or first.text, first.fixed, first.glob)
    yield (name, *words[1:])
    start = first_operand([name.text, *(word.text for word in words[1:])])
    if 1 < start < len(words):
        yield (name, *words[start:])


@dataclass(frozen=True, slots=True)
class PathMatcher:
    """The compiled path patterns of a rule's subject."""

    patterns: tuple[str, ...]  # absolute
    globs: tuple[PathGlob, ...]  # one for each pattern

    def matches(self, path: str) -> bool:
        return any(glob.matches(path) for glob in self.globs)

    def below(self, folder: str, max_files: int = MAX_SCANNED_FILES) -> bool:
        """Return True if matching files exist below a folder. A folder with more than `max_files`
        files is not searched and counts as a match.
        """
        plain = [p for p in self.patterns if "**/" not in p]
        if len(plain) < len(self.patterns) and self._deep_below(folder, max_files):
            return True
        for pattern in plain:
            python = re.sub(r"\\([*?])", r"[\1]", pattern.replace("[", "[[]"))
            found = glob.iglob(python, include_hidden=True)  # noqa: PTH207
            if any(path.startswith(folder.rstrip("/") + "/") for path in found):
                return True
        return False

    def find(self, roots: Iterable[str], max_files: int = MAX_SCANNED_FILES) -> list[str] | None:
        """Return the existing paths that match, without the contents of matching folders. Return
        None if the search takes more than `max_files` files. Patterns with `**` are searched only
        below `roots`.
        """
        found = []
        for pattern in self.patterns:
            if not UNESCAPED_WILDCARD.search(pattern):
                found += [path for path in [unescape_path(pattern)] if os.path.lexists(path)]
            elif "**" not in pattern:
                python = re.sub(r"\\([*?])", r"[\1]", pattern.replace("[", "[[]"))
                found += glob.glob(python, include_hidden=True)  # noqa: PTH207
        if not any("**" in pattern for pattern in self.patterns):
            return found
        seen, folders = 0, deque(roots)
        while folders:
            try:
                entries = list(os.scandir(folders.popleft()))
            except OSError:
                continue
            seen += len(entries)
            if seen > max_files:
                return None
            for entry in entries:
                if self.matches(entry.path):
                    found.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        return found

    def _deep_below(self, folder: str, max_files: int) -> bool:
        seen, folders = 0, deque([folder])
        while folders:
            try:
                entries = list(os.scandir(folders.popleft()))
            except OSError:
                continue
            seen += len(entries)
            if seen > max_files or any(self.matches(entry.path) for entry in entries):
                return True
            folders += [each.path for each in entries if each.is_dir(follow_symlinks=False)]
        return False


def path_matcher(subject: str, cwd: str, *, widely: bool, added: Sequence[str] = ()) -> PathMatcher:
    """Compile a path pattern for the folder `cwd`.

    With `widely`, a single name matches in every folder, and links in the pattern are followed.
    Otherwise links are followed only in patterns outside the project, since the project may contain
    forged links. `added` are further folders of the session; relative patterns apply to them only
    with `widely`.
    """
    project = (cwd, os.path.realpath(cwd))
    if subject.startswith(("/", "~")):
        expanded = _expand_home(subject) if subject.startswith("~") else "/" + subject.lstrip("/")
        patterns = [expanded]
        own = any(expanded.startswith(f"{exact_path(root)}/") for root in (*project, *added))
    else:
        if widely and "/" not in subject.rstrip("/"):
            subject = f"**/{subject}"
        roots = (*project, *added) if widely else project
        patterns = [f"{exact_path(root)}/{subject}" for root in roots]
        own = True
    patterns = [os.path.normpath(pattern) for pattern in patterns]
    if widely:  # a rule for everything in a folder also covers the folder
        patterns += [p.removesuffix("/**") for p in patterns if p.endswith("/**") and p != "/**"]
    if widely or not own:
        patterns += [_follow_links(pattern) for pattern in patterns]
    unique = tuple(dict.fromkeys(patterns))
    return PathMatcher(unique, tuple(map(path_glob, unique)))


def _expand_home(subject: str) -> str:
    name, slash, rest = subject.partition("/")
    return exact_path(os.path.expanduser(name)) + slash + rest  # noqa: PTH111


def _follow_links(pattern: str) -> str:
    """Resolve links in the part of a pattern before the first wildcard."""
    parts = pattern.split("/")
    plain = next((i for i, p in enumerate(parts) if UNESCAPED_WILDCARD.search(p)), len(parts))
    beginning = os.path.realpath(unescape_path("/".join(parts[:plain])) or "/")
    return os.path.normpath("/".join([exact_path(beginning), *parts[plain:]]))


_RULE = regex(r"\s*([A-Za-z_][\w*-]*)(?:\((.+)\))?\s*", re.DOTALL)
_TOOLS = {
    "MultiEdit": "Edit", "NotebookEdit": "Edit", "LS": "Glob", "TodoWrite": "Todo", "Agent": "Task",
    "BashOutput": "Job", "KillShell": "Job", "AskUserQuestion": "AskUser", "ExitPlanMode": "Plan",
}  # fmt: skip
_TYPES = {"Explore": "explore", "general-purpose": "general"}  # of subagents
_READING, _EDITING = ("Read", "Grep", "Glob", "LS"), ("Edit", "Write", "MultiEdit", "NotebookEdit")
_DOMAIN = "domain:"


def convert_rule(text: str, *, allows: bool, in_project: bool) -> str:
    """Return the equivalent ctxagent rule. `in_project` is False for rules from the user's own
    settings. Raises ValueError with the reason if there is no equivalent.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError("it is not a rule")
    tool, subject = _TOOLS.get(found[1], found[1]), found[2]
    if subject and found[1] in (*_READING, *_EDITING):
        tool = "Read" if found[1] in _READING else "Edit"
        subject = _convert_path(subject, allows=allows, in_project=in_project)
    elif subject and tool == "WebFetch":
        if not subject.startswith(_DOMAIN):
            raise ValueError("it names no domain")
        host = subject.removeprefix(_DOMAIN)
        subject = None if host == "*" else host
    elif subject and tool == "Task":
        subject = _TYPES.get(subject, subject)
    rule = tool if subject is None else f"{tool}({subject})"
    try:
        return str(parse_rule(rule))
    except UsageError as error:
        raise ValueError(error.message) from None


def _convert_path(pattern: str, *, allows: bool, in_project: bool) -> str:
    """Convert a gitignore-style path pattern to ctxagent's form. Raises ValueError."""
    if pattern.startswith("!"):
        raise ValueError("patterns with ! are not supported")
    if pattern.startswith(("//", "~")):
        return pattern
    if pattern.startswith("/"):  # relative to the folder of the settings
        if not in_project:
            raise ValueError("a path from the folder of the user's settings")
        return pattern.lstrip("/")
    plain = pattern.removeprefix("./")
    is_name = plain == pattern and "/" not in plain.rstrip("/")
    # Claude Code searches a plain name in every folder. Our deny rules do that without `**/`.
    return f"**/{plain}" if is_name and plain != "**" and (allows or "*" in plain) else plain
