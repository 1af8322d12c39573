"""Constraints: what the person or a summary says must not be done, held against a call.

A sentence is read into paths that must stay as they are, a command that must not run, or a call
that was not authorised. Only plain forms are read: a sentence with a condition in it, or one that
names neither path nor command, is no constraint here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from ...session.entries import Block
from ...session.ledger import DENIAL_REASON
from ..language.signs import MAX_TEXT_CHARS, arguments_of, path_argument, sentences

MAX_WRITTEN_CHARS = 20_000  # of what a call writes
MAX_CACHED_TEXTS = 128  # with their constraints: each summary asks for them again

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_HEREDOC = re.compile(r"((?<!<)<<-?\s*['\"\\]?\w[^\n]*)\n.*", re.DOTALL)
_REDIRECTED = re.compile(r"(?<![-=])>{1,2}\|?\s*([^\s;&|<>()]+)")

_DONT = (
    r"(?<!\bI )(?<!\bwe )(?<!\bthey )(?<!\bwhy )\b(?:do not|don['’]?t|never|must not|mustn['’]t|"
    r"should not|shouldn['’]t|may not|not allowed to) (?:ever |directly |please )?"
)
_CHANGE = (
    r"touch|modify|edit|change|alter|delete|remove|overwrite|rename|move|rewrite|update|write to"
)
_KEEP = re.compile(rf"{_DONT}(?:{_CHANGE})\b(?: or (?:{_CHANGE})\b)*|\bhands off\b", re.I)
_LEAVE = re.compile(
    r"\bleave\b(.{1,120}?)\b(?:alone|untouched|unchanged|as (?:it |they )?\w+)", re.I
)
_FIXED = re.compile(
    r"\b(?:(?:is|are) (?:read-only|off[- ]limits)|(?:must|should|may) not be (?:touched|modified|"
    r"edited|changed|deleted|overwritten))",
    re.I,
)
_ONLY = re.compile(
    r"\b(?:only (?:touch|modify|edit|change|write to|work (?:in|on|under))"
    r"|(?:touch|modify|edit|change|work) only(?: (?:in|on|under))?)\b",
    re.I,
)
_RUN = re.compile(rf"{_DONT}(run|execute|invoke|use)\b", re.I)
_VERB = r"(?:commit|push|force-push|merge|rebase|deploy|publish)"
_GIT = re.compile(
    rf"{_DONT}(?:locally )?(?P<verbs>{_VERB}(?:(?:, or|,| or| nor| and) {_VERB})*)\b(?: directly)?"
    r"(?: to (?:the )?[`'\"]?(?P<to>[\w./-]+\w))?"
    r"(?=\W*$|\W*[.,;:!)—–]|\s+(?:anything|and|nor|or|but|it|this|that|any|yet|until|unless|without"
    r"|changes|the changes|your)\b)",
    re.I,
)
_UNAUTHORISED = re.compile(r"^\W*not authori[sz]ed:?\s+", re.I)
_DOING = re.compile(
    r"\b(?P<verb>commit|push|merg|rebas|deploy|publish)(?:t?ing|es|ed|e)?\b"
    r"(?: (?:directly )?to (?:the )?[`'\"]?(?P<to>[\w./-]+\w))?",
    re.I,
)
_WAITS = re.compile(r"\b(?:until|unless|without)\b", re.I)
_CONSENT = (
    r"(?:my|our|asking|(?:an? |the |explicit |prior )*(?:permission|approval|authority|consent))"
)
_CONDITION = re.compile(
    rf"\b(?:if|when|except|without(?! {_CONSENT}\b)|before|while|instead of"
    r"|unless(?! (?:I|we|you are (?:told|asked))\b))\b",
    re.I,
)
_REASON = re.compile(r"\b(?:but|because|since|so|as)\b|[;:(—–]", re.I)
_PATH = re.compile(
    r"`([^`\s]+)`|([\w.@~*-]*(?:/[\w.@*{},-]*)*/(?=[\s,;:.)]|$)|[\w.@~*-]+(?:/[\w.@*-]+)+"
    r"|\.?[\w*][\w*-]*\.[a-z]\w{0,4}\b|\.env\b|[\w.-]+(?= (?:folder|directory|dir)\b))"
)
_PROSE = re.compile(r"[a-z]+/[a-z]+|e\.g|i\.e|etc", re.I)  # "read/write" is no path
_PROGRAM = re.compile(
    r"`([^`\n]+)`|\b((?:git|npm|npx|pnpm|yarn|pip3?|uv|poetry|rm|sudo|docker|kubectl|terraform|cargo"
    r"|make|curl|wget|apt|apt-get|brew|psql|alembic|gh|sed)\b(?: (?!(?:in|on|for|to|the|here|at|as"
    r"|it|this|that|any|ever|and|or|again|with|yet)\b)[\w./:=-]+){0,2})"
)
_CHANGING = re.compile(rf"\b(?:{_CHANGE}|fix|add|you (?:can|may)|go ahead)\b", re.I)
_NEGATED = re.compile(r"\b(?:not|never|no|without)\b|n['’]t\b", re.I)
_YES = re.compile(
    r"^\W*(?:y|yes|yep|ok|okay|sure|lgtm|approved|go ahead|do it|proceed|ship it|looks? good)\b",
    re.I,
)

_HANDOVER = re.compile(r"\b(?:prs?|pull requests?|ship|release|merge)\b")  # asks for both

_WRITERS = {"rm", "mv", "cp", "tee", "truncate", "touch", "chmod", "ln", "patch", "sed", "perl"}
_GIT_WRITERS = {"rm", "mv", "checkout", "restore"}
_PREFIXES = {"sudo", "time", "nohup", "command", "then", "do", "else", "!", "env", "exec"}


@dataclass(frozen=True, slots=True)
class Constraint:
    """Something that must not be done."""

    kind: Literal["keep", "only", "command", "call"]
    # keep, only: paths, folders and patterns; command: the command and what must stand in it;
    # call: the tool and the title of a call that was not authorised.
    names: tuple[str, ...]
    said: str
    open: bool = False  # waits for a word of the person ("until I say so")


def constraints_in(text: str) -> list[Constraint]:
    """Return what a text says must not be done. A record of what was not authorised is one
    sentence, whatever the call in it looks like."""
    if _UNAUTHORISED.match(text):
        return _unauthorised_call(text)
    return list(_stated(text[:MAX_TEXT_CHARS]))


@lru_cache(MAX_CACHED_TEXTS)
def _stated(text: str) -> tuple[Constraint, ...]:
    return tuple(found for sentence in sentences(text) for found in _read(sentence))


def _unauthorised_call(text: str) -> list[Constraint]:
    rest = _UNAUTHORISED.sub("", text).partition(DENIAL_REASON)[0]
    tool, _, title = rest.partition(" ")
    if tool in ("Bash", "Edit", "Write") and title:
        return [Constraint("call", (tool, title), text)]
    if doing := _DOING.search(rest):
        return [Constraint("command", _named(doing["verb"], doing["to"]), text)]
    return [Constraint("command", (command,), text) for command in _commands(rest)]


def _read(sentence: str) -> list[Constraint]:
    if sentence.endswith("?") or _CONDITION.search(sentence):
        return []
    found: list[Constraint] = []
    waits = _WAITS.search(sentence) is not None

    def state(kind: Literal["keep", "only", "command"], names: Sequence[str]) -> None:
        if names:
            found.append(Constraint(kind, tuple(names), sentence, waits))

    for pattern in (_KEEP, _ONLY):
        if match := pattern.search(sentence):
            rest = _REASON.split(sentence[match.end() :], maxsplit=1)[0]
            state("keep" if pattern is _KEEP else "only", _paths(rest))
    if match := _LEAVE.search(sentence):
        state("keep", _paths(match[1]))
    if match := _FIXED.search(sentence):
        state("keep", _paths(sentence[: match.start()]))
    if match := _RUN.search(sentence):
        for command in _commands(_REASON.split(sentence[match.end() :], maxsplit=1)[0]):
            state("command", (command,))
    if match := _GIT.search(sentence):
        for verb in re.findall(_VERB, match["verbs"], re.I):
            state("command", _named(verb, match["to"]))
    return found


def _named(verb: str, to: str | None) -> tuple[str, ...]:
    """Return the command that a verb stands for, and what must stand in it."""
    verb = {"merg": "merge", "rebas": "rebase"}.get(verb.lower(), verb.lower())
    verb = verb.replace("force-push", "push --force")
    command = verb if verb in ("deploy", "publish") else f"git {verb}"
    return (command, to) if to else (command,)


def _paths(text: str) -> list[str]:
    found = (match[1] or match[2] for match in _PATH.finditer(text))
    return [path.removeprefix("./") for path in found if not _PROSE.fullmatch(path)]


def _commands(text: str) -> list[str]:
    return [(match[1] or match[2]).strip() for match in _PROGRAM.finditer(text)]


def breaks(constraint: Constraint, call: Block, shown: Callable[[str], str]) -> bool:
    """Return whether a call does what a constraint forbids. `shown` gives a path as the session has
    it."""
    tool, arguments = str(call.get("name")), arguments_of(call)
    command = str(arguments.get("command", "")) if tool == "Bash" else ""
    names = constraint.names
    if constraint.kind == "call":
        subject = command.strip() or path_argument(arguments)
        title = names[1].removesuffix(" …")
        return tool == names[0] and (
            subject == title or (title != names[1] and subject.startswith(f"{title}\n"))
        )
    if constraint.kind == "command":
        forbidden = names[0].split()
        return any(
            _starts(words, forbidden) and all(n in " ".join(words) for n in names[1:])
            for words in commands_in(command)
        )
    written = [path_argument(arguments)] if tool in ("Edit", "Write") else _written(command)
    paths = [shown(path) for path in written if path]
    if constraint.kind == "only":
        inside = [path for path in paths if not path.startswith("/")]
        return tool != "Bash" and any(not _under(path, names) for path in inside)
    return any(_under(path, names) for path in paths)


def is_lifted(constraint: Constraint, later: Sequence[str]) -> bool:
    """Return whether the person's newer words take a constraint back: they ask for what it bars."""
    if constraint.kind == "only" and later:
        return True
    for sentence in (s for text in later for s in sentences(text)):
        waits = constraint.open or constraint.kind == "call"
        if waits and _YES.match(sentence):
            return True
        lowered = sentence.lower()
        if _NEGATED.search(lowered):
            continue
        if constraint.kind == "keep":
            bases = [name.lower().strip("*/").rpartition("/")[2] for name in constraint.names]
            if _CHANGING.search(lowered) and any(base in lowered for base in bases if base):
                return True
            continue
        named = constraint.names[1] if constraint.kind == "call" else constraint.names[0]
        program, *words = named.lower().split()
        if words and words[0] in ("commit", "push") and _HANDOVER.search(lowered):
            return True
        if any(re.search(rf"\b{re.escape(word)}\b", lowered) for word in words or [program]):
            return True
    return False


def _under(path: str, names: Sequence[str]) -> bool:
    for name in names:
        bare = name.rstrip("/*") if name.endswith(("/", "/**", "/*")) else name
        if f"/{path}/".find(f"/{bare.lstrip('/')}/") >= 0 or path == bare:
            return True
        if "*" in name and (fnmatchcase(path, name) or fnmatchcase(path.rpartition("/")[2], name)):
            return True
    return False


def commands_in(command: str) -> list[list[str]]:
    """Return the words of each simple command, roughly."""
    found = []
    for piece in re.split(r"[;&|\n()]+", _bare(command)):
        words = piece.split()
        if words[:1] == ["sudo"]:
            found.append(list(words))
        while words and (words[0] in _PREFIXES or re.match(r"\w+=", words[0])):
            del words[0]
        if words[:1] == ["git"]:
            while len(words) > 2 and words[1] in ("-C", "-c"):
                del words[1:3]
        if words:
            found.append(words)
    return found


def _bare(command: str) -> str:
    """Return a command without here-document bodies, quoted texts of several words as one word."""
    head = _HEREDOC.sub(r"\1", command[:MAX_WRITTEN_CHARS])
    return _QUOTED.sub(lambda q: "_" if re.search(r"\s", q[0]) else q[0][1:-1], head)


def _starts(words: Sequence[str], forbidden: Sequence[str]) -> bool:
    if forbidden in (["deploy"], ["publish"]):
        script = words[0].rpartition("/")[2].partition(".")[0]
        only_looks = words[0] in ("git", "cd", "ls", "cat", "echo", "grep")
        return not only_looks and forbidden[0] in (script, *words[1:3])
    plain = [words[0].rpartition("/")[2], *words[1:]]
    size = len(forbidden)
    flags = [word for word in forbidden if word.startswith("-")]
    if flags and plain[: size - len(flags)] == [w for w in forbidden if w not in flags]:
        return all(flag in plain for flag in flags)
    return plain[:size] == list(forbidden)


def _written(command: str) -> list[str]:
    """Return the paths that a command plainly writes to."""
    redirected = _REDIRECTED.findall(_bare(command))
    found = [path for path in redirected if not path.startswith(("&", "/dev/"))]
    for words in commands_in(command):
        program, rest = words[0].rpartition("/")[2], words[1:]
        if program == "git" and rest and rest[0] in _GIT_WRITERS:
            found += rest[1:]
        elif program in ("sed", "perl") and not any(w.startswith(("-i", "-pi")) for w in rest):
            continue
        elif program in _WRITERS:
            found += rest[-1:] if program in ("cp", "ln") else rest
    return [path for path in found if not path.startswith("-")]
