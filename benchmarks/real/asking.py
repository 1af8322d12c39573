"""Make questions with exact answers about a recorded session, and grade the answers.

The questions come from records alone: calls, their results, messages, the todo list. A question is
left out if a second answer would be right too, or if it names its answer.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import cutting

from ctxagent.agent.recordings.recording import (
    UNANSWERED,
    RecordedMessage,
    RecordedReply,
    Recording,
)
from ctxagent.agent.recordings.tool_names import TranslatedCall, translate

MAX_QUESTIONS = 30  # of a session
MAX_OF_KIND = {"said": 3, "rule": 3, "message": 3, "file": 4, "command": 3}  # others: the next
MAX_OF_OTHERS = 6
AGES = ("new", "middle", "old")  # thirds of the session, from its end
WORDS = 6  # asked for, of a message
MAX_TITLE_CHARS = 120  # of a command in a question
MIN_LINE_CHARS, MAX_LINE_CHARS = 12, 100  # of a line that is asked for
MAX_ERROR_LINES = 6  # of an output; each of them is a right answer
MIN_PART_SHARE, MIN_PART_CHARS = 0.6, 12  # of a long answer, that a reply must have
MAX_PER_RESULT = 3  # values and names asked for, of one result

_BLANK = "____"
_NUMBERED = r"^[ \t]*(?:\d+[ \t]*[→|:\t][ \t]*)?"
_VALUE = re.compile(
    rf"""{_NUMBERED}[-+*]?[ \t]*(?:(?:const|let|var|export|static|final|readonly|pub) )*"""
    r"""["']?(?P<key>[A-Za-z][\w.-]{2,40})["']?(?:: ?[\w.]+)?[ \t]*:?[:=][ \t]*"""
    r"""(?P<value>["'`]?[\w./@~^$-][\w ./@:~^*+$-]{1,50}["'`]?)[,;]?[ \t]*$""",
    re.MULTILINE,
)
_COMMIT = re.compile(r"^(?P<hash>[0-9a-f]{7,10}) (?P<title>\S[^\n]{15,90})$", re.MULTILINE)
_LINE = re.compile(r"^(?P<number>\d{1,5}):(?P<text>[^\n]{15,110})$", re.MULTILINE)
_PLAIN = re.compile(
    r"true|false|null|none|yes|no|string|number|boolean|int|any|object|[a-z]{1,4}", re.I
)
_SYMBOL = re.compile(
    rf"{_NUMBERED}(?:export |pub |async |default |static )*"
    r"(?:def|class|func(?: \([^)]*\))?|function|fn|interface|struct|type) "
    r"(?P<name>[A-Za-z_]\w{4,50})\b",
    re.MULTILINE,
)  # fmt: skip
_FOUND = re.compile(r"^(?P<path>[\w./@-]+\.\w{1,5}):(?:\d+:)?(?P<text>.{15,110})$", re.MULTILINE)
_TEST = re.compile(
    r"^(?:FAILED (?P<py>\S+)(?: - .*)?|\s*--- FAIL: (?P<go>\w+) .*"
    r"|test (?P<rust>[\w:]+) \.\.\. FAILED"
    r"|\s*FAIL +(?P<js>\S+\.(?:test|spec)\.\w+ > [^\n]{4,90}))$",
    re.MULTILINE,
)
_PASSED = re.compile(r"\b(\d{1,5}) (?:tests? )?pass(?:ed|ing)?\b")
_SENTENCE = re.compile(r"[^\n.!?]*(?:[.!?](?=\S)[^\n.!?]*)*")
_ERROR = re.compile(
    r"error\b|exception\b|\bfail(?:ed|ure|s)?\b|\bfatal\b|\bpanic\b|denied|not found|no such"
    r"|undefined|unexpected|\bcannot\b|\bunable\b",
    re.I,
)
_NO_ERROR = re.compile(r"\b(?:0|no) (?:errors?|fail)", re.I)
_QUOTED = re.compile(r"`([^`\n]{4,60})`")
_DECIDES = re.compile(
    r"\bdecid|instead of|rather than|\b(?:i'll|i will|let's|we|should) use|\bchose|\bapproach"
    r"|root cause|\bthe (?:issue|problem|fix) is|\bbecause\b",
    re.I,
)
_STRING = re.compile(
    rf"""{_NUMBERED}(?P<before>[^"'`\n]{{12,70}})(?P<mark>["'`])(?P<text>[^"'`\n]{{5,60}})(?P=mark)""",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Question:
    id: str
    kind: str
    age: str  # one of AGES, of the fact
    text: str
    answers: tuple[str, ...]  # each is right

    def is_right(self, reply: str) -> bool:
        """Return True if a reply has one of the answers."""
        return any(_has(reply, answer) for answer in self.answers)


@dataclass(frozen=True)
class _Fact:
    """A question before it is chosen. `at` is the place of its answer, in characters."""

    kind: str
    text: str
    answers: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class _Call:
    """A call of the session, and the place of its result."""

    name: str
    ours: TranslatedCall
    text: str
    at: int

    @property
    def command(self) -> str:
        return str(self.ours.input.get("command", "")) if self.ours.name == "Bash" else ""

    @property
    def path(self) -> str:
        return str(self.ours.input.get("path", ""))

    @property
    def is_short(self) -> bool:
        return "\n" not in self.command and len(self.command) <= MAX_TITLE_CHARS

    @property
    def title(self) -> str:
        """What names the call in a question, "" if nothing short does."""
        if self.command:
            if self.is_short:
                return f"the command `{self.command}`"
            return f"the command that begins with `{self.command[:MAX_TITLE_CHARS].strip()}`"
        if self.ours.name == "Read":
            return f"the file `{self.path}`" if self.path else ""
        if self.ours.name == "Grep" and (pattern := str(self.ours.input.get("pattern", ""))):
            return f"the search for `{pattern}`"
        return ""


def questions(recording: Recording, limit: int = MAX_QUESTIONS) -> list[Question]:
    """Return at most `limit` questions about a recording, balanced by kind and age."""
    session = _Session(recording)
    asked, groups = set[str](), defaultdict[tuple[str, str], list[_Fact]](list)
    for fact in session.facts():
        unclear = fact.text in asked or any(_has(fact.text, answer) for answer in fact.answers)
        if fact.answers and not unclear and all(map(str.strip, fact.answers)):
            asked.add(fact.text)
            groups[fact.kind, session.age(fact.at)].append(fact)
    chosen: list[Question] = []
    taken, by_age = Counter[str](), Counter[str]()
    while groups and len(chosen) < limit:
        # The rarest kind so far, then the rarest age.
        kind, age = min(groups, key=lambda k: (taken[k[0]], by_age[k[1]], k))
        fact = groups[kind, age].pop(0)
        if not groups[kind, age]:
            del groups[kind, age]
        taken[kind] += 1
        if taken[kind] == MAX_OF_KIND.get(kind, MAX_OF_OTHERS):
            groups = {key: facts for key, facts in groups.items() if key[0] != kind}
        by_age[age] += 1
        id = f"{kind}-{taken[kind]}"
        chosen.append(Question(id, kind, age, fact.text, fact.answers))
    return chosen


class _Session:
    def __init__(self, recording: Recording) -> None:
        self.calls: list[_Call] = []
        self.said: list[tuple[str, int]] = []  # texts of the agent, and their places
        self.messages: list[tuple[str, int]] = []  # of the user
        at = 0
        for step in recording.steps:
            if isinstance(step, RecordedMessage):
                at += len(step.text)
                self.messages.append((step.text, at))
            elif isinstance(step, RecordedReply):
                at += len(step.text)
                self.said.append((step.text, at))
                for call in step.calls:
                    at += len(str(call.input)) + len(call.text)
                    self.calls.append(_Call(call.name, translate(call), call.text, at))
        self.length = at
        titles = Counter(call.title for call in self.calls)
        self.named = [call for call in self.calls if call.title and titles[call.title] == 1]
        self.whole = "\n".join(text for step in recording.steps for text in cutting.texts(step))

    def age(self, at: int) -> str:
        """Return the third of the session, from its end."""
        return AGES[min(2, 3 * (self.length - at) // max(1, self.length))]

    def facts(self) -> Iterator[_Fact]:
        yield from self._files()
        yield from self._commands()
        yield from self._errors()
        yield from self._user_messages()
        yield from self._todos()
        yield from self._tests()
        yield from self._edits()
        for call in self.named:
            yield from self._values(call)
            yield from self._matches(call)
            yield from self._lines(call)
            yield from self._strings(call)
            yield from self._outputs(call)
        yield from self._symbols()
        yield from self._sentences()

    @cached_property
    def _names(self) -> Counter[str]:
        """How many paths have a last part, so that the part alone can be an answer."""
        found = {call.path for call in self.calls if call.path}
        found |= {path for call in self.calls for path in call.ours.changes}
        return Counter(map(_last_part, found))

    def _is_clear(self, path: str) -> bool:
        return bool(path) and self._names[_last_part(path)] <= 1

    def _files(self) -> Iterator[_Fact]:
        changed = [
            (call.ours.changes[0], call.at)
            for call in self.calls
            if len(call.ours.changes) == 1 and not call.ours.is_error
        ]
        if any(len(call.ours.changes) > 1 for call in self.calls):
            changed = []  # the order of the files of one call is not certain
        if changed:
            yield self._path("Which file was changed last?", *changed[-1])
        if len({path for path, _ in changed}) > 1:
            yield self._path("Which file was changed first?", *changed[0])
        distinct = [pair for n, pair in enumerate(changed) if not n or changed[n - 1][0] != pair[0]]
        times = Counter(path for path, _ in distinct)
        for (before, _), (after, at) in pairwise(distinct):
            if times[before] == 1:
                text = f"Which file was the next one to be changed after `{before}`?"
                yield self._path(text, after, at)
        read = [call for call in self.calls if call.ours.name == "Read" and not call.ours.is_error]
        if len({call.path for call in read}) > 1:
            yield self._path("Which file was read first, with Read?", read[0].path, read[0].at)
            yield self._path("Which file was read last, with Read?", read[-1].path, read[-1].at)

    def _path(self, text: str, path: str, at: int) -> _Fact:
        return _Fact("file", text, (path,) if self._is_clear(path) else (), at)

    def _commands(self) -> Iterator[_Fact]:
        ran = [call for call in self.calls if call.command]
        if ran and ran[-1].is_short:
            yield _Fact("command", "Which command was run last, with Bash?",
                        (ran[-1].command,), ran[-1].at)  # fmt: skip
        if len(ran) > 1 and ran[0].is_short:
            yield _Fact("command", "Which command was run first, with Bash?",
                        (ran[0].command,), ran[0].at)  # fmt: skip
        for before, after in pairwise(self.calls):
            if after.command and after.is_short and len(before.ours.changes) == 1:
                edits = [c for c in self.calls if before.ours.changes == c.ours.changes]
                if len(edits) == 1:
                    text = f"Which command was run right after `{edits[0].path}` was changed?"
                    yield _Fact("command", text, (after.command,), after.at)
        for call in self.named:
            code = call.ours.details.get("exit_code")
            if call.command and isinstance(code, int) and code not in (0, 1):
                text = f"With which exit code did {call.title} end?"
                yield _Fact("exit code", text, (str(code),), call.at)

    def _errors(self) -> Iterator[_Fact]:
        failed = [call for call in self.calls if call.ours.name == "Bash" and call.ours.is_error]
        lines = {id(call): _error_lines(call) for call in failed}
        if failed and lines[id(failed[-1])]:
            text = "What is the error line of the newest command that failed?"
            yield _Fact("error", text, lines[id(failed[-1])], failed[-1].at)
        for call in self.named:
            if lines.get(id(call)):
                text = f"{_upper(call.title)} failed. What is the error line of its output?"
                yield _Fact("error", text, lines[id(call)], call.at)
        if len(failed) > 1 and failed[0].is_short:
            text = "Which command was the first that failed?"
            yield _Fact("error", text, (failed[0].command,), failed[0].at)

    def _user_messages(self) -> Iterator[_Fact]:
        for number, (text, at) in enumerate(self.messages, 1):
            beginning = " ".join(text.split()[:WORDS])
            if len(beginning.split()) == WORDS and text.lstrip()[:1].isalnum():
                asked = f"How does the user's message number {number} begin?"
                asked += f" Give its first {WORDS} words."
                yield _Fact("message", asked, (beginning,), at)

    def _todos(self) -> Iterator[_Fact]:
        lists = [call for call in self.calls if call.ours.details.get("todos")]
        if not lists:
            return
        last, todos = lists[-1], lists[-1].ours.details["todos"]
        for status, text in (
            ("in_progress", "Which item of the todo list is in progress?"),
            ("pending", "Which open item of the todo list comes next (the first pending one)?"),
        ):
            items = [todo["content"] for todo in todos if todo["status"] == status]
            if items and (status == "pending" or len(items) == 1):
                yield _Fact("todo", text, (items[0],), last.at)
        if todos[-1]["status"] == "pending":
            yield _Fact("todo", "What is the last item of the todo list?",
                        (todos[-1]["content"],), last.at)  # fmt: skip

    def _tests(self) -> Iterator[_Fact]:
        for call in self.named:
            if names := [
                name
                for m in _TEST.finditer(call.text)
                if (name := next(filter(None, m.groups()), ""))
            ]:
                text = f"Which test failed first in the output of {call.title}?"
                yield _Fact("test", text, (names[0], names[0].rpartition("::")[2]), call.at)
            counts = _PASSED.findall(call.text)
            if call.command and len(counts) == 1 and int(counts[0]) > 2:
                text = f"How many tests passed in the output of {call.title}?"
                yield _Fact("test", text, (counts[0],), call.at)

    def _edits(self) -> Iterator[_Fact]:
        edits = [call for call in self.calls if call.ours.name == "Edit" and not call.ours.is_error]
        for call in edits:
            old, new = (str(call.ours.input.get(k, "")) for k in ("old_string", "new_string"))
            one_line = "\n" not in old + new and 8 <= len(old) <= 100 and 8 <= len(new) <= 80
            if one_line and sum(old in str(c.ours.input) for c in edits) == 1:
                text = f"By which text was `{old.strip()}` replaced in `{_last_part(call.path)}`?"
                yield _Fact("edit", text, (new.strip(),), call.at)

    def _values(self, call: _Call) -> Iterator[_Fact]:
        """Yield values that a result names once: ports, versions, names."""
        if call.ours.name not in ("Bash", "Read") or call.text == UNANSWERED:
            return
        where = "in" if call.ours.name == "Read" else "in the output of"
        found, place = 0, call.at - len(call.text)
        for match in _VALUE.finditer(call.text):
            key, value = match["key"], match["value"]
            value = value.strip("\"'` ")
            clear = _count(key, call.text) == 1 and _count(value, call.text) == 1
            telling = not _PLAIN.fullmatch(value) and len(value) > 1
            if clear and telling and key.lower() not in value.lower() and found < MAX_PER_RESULT:
                found += 1
                text = f"What is the value of `{key}` {where} {call.title}?"
                yield _Fact("value", text, (value,), place + match.start())

    def _matches(self, call: _Call) -> Iterator[_Fact]:
        """Yield the files in which a search found a text."""
        if call.ours.name not in ("Bash", "Grep"):
            return
        found = 0
        for match in _FOUND.finditer(call.text):
            text = match["text"].strip()
            known = {m["path"] for m in _FOUND.finditer(call.text) if text in m["text"]}
            if len(known) == 1 and self.whole.count(text) == 1 and found < MAX_PER_RESULT:
                found += 1
                at = call.at - len(call.text) + match.start()
                asked = f"In which file did {call.title} find the line `{text}`?"
                yield _Fact("found", asked, (match["path"],), at)

    def _lines(self, call: _Call) -> Iterator[_Fact]:
        """Yield the commits in an output, and the numbers of the lines that a search found."""
        if call.ours.name not in ("Bash", "Grep"):
            return
        place = call.at - len(call.text)
        commits = list(_COMMIT.finditer(call.text))
        for match in commits[-1:] + commits[1:2]:
            title = match["title"].strip()
            if self.whole.count(title) == 1:
                text = f"What is the hash of the commit `{title}` in the output of {call.title}?"
                yield _Fact("commit", text, (match["hash"],), place + match.start())
        lines = list(_LINE.finditer(call.text))
        for match in lines[-1:] + lines[1:2]:
            line = match["text"].strip()
            if call.text.count(line) == 1:
                text = f"On which line number did {call.title} find `{line}`?"
                yield _Fact("line", text, (match["number"],), place + match.start())

    def _outputs(self, call: _Call) -> Iterator[_Fact]:
        """Yield the only or the last line of an output."""
        lines = call.text.strip().splitlines()
        if not call.command or not lines or call.ours.is_error:
            return
        line = lines[-1].strip()
        clear = len(lines) > 1 or self.whole.count(line) <= 2
        if MIN_LINE_CHARS <= len(line) <= MAX_LINE_CHARS and clear and re.search(r"\w{3}", line):
            what = "What is the last line of" if len(lines) > 1 else "What is"
            yield _Fact("output", f"{what} the output of {call.title}?", (line,), call.at)

    def _strings(self, call: _Call) -> Iterator[_Fact]:
        """Yield texts in quotation marks in a file, by the beginning of their lines."""
        if call.ours.name != "Read":
            return
        found, place = 0, call.at - len(call.text)
        for match in _STRING.finditer(call.text):
            before, text = match["before"].strip(), match["text"].strip()
            clear = call.text.count(before) == 1 and self.whole.count(text) == 1
            if clear and "\\" not in text and len(before) > 9 and found < MAX_PER_RESULT:
                found += 1
                asked = f"Which text in quotation marks follows `{before}` in {call.title}?"
                yield _Fact("string", asked, (text,), place + match.start())

    def _symbols(self) -> Iterator[_Fact]:
        """Yield the files that were read and define a name."""
        read = [call for call in self.named if call.ours.name == "Read"]
        defined = defaultdict[str, list[tuple[_Call, int]]](list)
        for call in read:
            for match in _SYMBOL.finditer(call.text):
                at = call.at - len(call.text) + match.start()
                defined[match["name"]].append((call, at))
        taken = Counter[str]()
        for name, places in defined.items():
            call, at = places[0]
            if len(places) == 1 and self._is_clear(call.path) and taken[call.path] < MAX_PER_RESULT:
                taken[call.path] += 1
                text = f"Which file that was read defines `{name}`?"
                yield _Fact("symbol", text, (call.path,), at)
        for call in read:
            found = list(_SYMBOL.finditer(call.text))
            for before, after in list(pairwise(found))[:MAX_PER_RESULT]:
                alone = {_count(each["name"], call.text) for each in (before, after)} == {1}
                if alone and "[…]" not in call.text[before.start() : after.start()]:
                    text = f"Which name does {call.title} define next after `{before['name']}`?"
                    at = call.at - len(call.text) + after.start()
                    yield _Fact("next name", text, (after["name"],), at)

    def _sentences(self) -> Iterator[_Fact]:
        """Yield sentences of the agent and of the user with one name left out."""
        for who, spoken in (("The agent", self.said), ("The user", self.messages)):
            for text, at in spoken:
                for sentence in map(str.strip, _SENTENCE.findall(text)):
                    quoted = _QUOTED.findall(sentence)
                    name = quoted[0].strip() if quoted else ""
                    long = 40 <= len(sentence) <= 200 and "|" not in sentence
                    if (
                        long
                        and len(name) > 3
                        and sentence.count(name) == 1
                        and self.whole.count(sentence) == 1
                    ):
                        blank = sentence.replace(name, _BLANK)
                        decides = bool(_DECIDES.search(sentence)) and who == "The agent"
                        kind = "decision" if decides else ("said" if who == "The agent" else "rule")
                        asked = f'{who} wrote: "{blank}" What stands in place of {_BLANK}?'
                        yield _Fact(kind, asked, (name,), at)


def _error_lines(call: _Call) -> tuple[str, ...]:
    """Return the lines that report an error; () if there are too many to ask for one."""
    lines = (line.strip() for line in call.text.splitlines())
    found = [each for each in lines if len(each) >= MIN_LINE_CHARS and _ERROR.search(each)]
    told = tuple(dict.fromkeys(line for line in found if not _NO_ERROR.search(line)))
    return told if len(told) <= MAX_ERROR_LINES else ()


def _has(reply: str, answer: str) -> bool:
    """Return True if a reply contains an answer, or is a large part of a long one. Of a path, its
    end is enough.
    """
    said, right = _plain(reply), _plain(answer)
    if not said or not right:
        return False
    if _count(right, said):
        return True
    if "/" in right and " " not in right:
        named = {word.strip("():,;[]") for word in said.split()}
        return any(_is_end(word, right) or _is_end(right, word) for word in named if word)
    long_enough = len(said) >= max(MIN_PART_CHARS, MIN_PART_SHARE * len(right))
    return long_enough and _count(said, right) > 0


def _is_end(part: str, path: str) -> bool:
    part = part.lstrip("./")
    return path == part or path.endswith(f"/{part}")


def _plain(text: str) -> str:
    """Return a text without quotation marks and emphasis, in lower case, with single blanks."""
    words = re.sub(r"```\w*|[`\"'*“”‘’\\]", "", text).casefold().split()
    return " ".join(words).strip(" .,;:")


def _count(part: str, text: str) -> int:
    """Count a part of a text that neither begins nor ends within a word."""
    return len(re.findall(rf"(?<!\w){re.escape(part)}(?!\w)", text))


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def answerable(asked: Sequence[Question], whole: Iterable[str]) -> list[Question]:
    """Return the questions whose answers are in the texts of the whole context."""
    text = _plain("\n".join(whole))
    return [q for q in asked if any(_plain(answer) in text for answer in q.answers)]
