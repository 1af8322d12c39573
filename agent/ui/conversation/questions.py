"""Questions to the person, one at a time: for permission, and those of commands."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ....tools.system.shorten import cut_after
from ....tools.system.unicode import clean, reveal_invisible
from ...errors import CtxagentError, UsageError
from ...events import Answer, Question
from ..question import BACK
from ..screen import Screen

if TYPE_CHECKING:
    from ...permissions.rule_files import RuleFiles, RulesFile

SESSION = "session"  # where a rule is kept that ends with the session
MIN_REPEATED_LINES = 12  # lines from which on a question may have left the screen
MAX_TITLE_CHARS = 60
PERMISSION_KEYS = "ya"  # keys that answer a question of permission at once
BUSY_CHOICES = "[r]ead only · [f]ork: go on in a copy · [w]ait · [l]eave it"
BUSY_WORDS = ("read", "fork", "wait", "leave")  # each may be answered by its first letter


async def ask_rule(screen: Screen, question: Question, files: "RuleFiles | None") -> Answer | None:
    """Ask for a rule and where to keep it, write it there, and return the answer that names both.

    None when the person went back. Without `files` rules are kept for the session alone.
    """
    from ...permissions.rules import parse_rule

    typed, problem = question.offers[0], ""
    while True:
        others = [rule for rule in question.offers if rule != typed]
        typed = await screen.answer(partial(_rule_prompt, problem), BACK, [typed, *others])
        if typed == BACK:
            return None
        problem = ""
        try:
            rule = str(parse_rule(typed))
            objection = question.check(rule)
        except UsageError as error:
            problem = _error_lines(error)
            continue
        if objection and not await _is_sure(screen, rule, objection):
            continue
        where = await _keep(screen, rule, files) if files else SESSION
        if where:
            return Answer(True, rule=rule, where=where)


async def _is_sure(screen: Screen, rule: str, objection: str) -> bool:
    text = f"{rule} is a wide rule: {objection}.\nKeep it all the same? [y]es · [n]o, change it"
    answer = await screen.answer(lambda typed: text, f"yn{BACK}")
    return answer.strip().lower() in ("y", "yes")


async def _keep(screen: Screen, rule: str, files: "RuleFiles") -> str:
    """Ask where to keep a rule, write it there, and return the place; "" to go back."""
    places: dict[str, str] = {SESSION: "until you leave it"}
    places |= {where: _describe(where, files.describe_file(where), rule) for where in files.paths}
    problem = ""
    while True:
        keys = "".join(place[0] for place in places)
        prompt = partial(_place_prompt, rule, problem, places)
        answer = (await screen.answer(prompt, keys + BACK)).lower()
        if answer == BACK:
            return ""
        place = next((p for p in places if answer.strip() in (p, p[0])), "")
        if place == SESSION:
            return SESSION
        if not place:
            continue
        file: RulesFile = "project" if place == "project" else "user"
        try:
            return await asyncio.to_thread(files.add, rule, file)
        except CtxagentError as error:
            problem = _error_lines(error)
            del places[place]


def _rule_prompt(problem: str, typed: str) -> str:
    from ...permissions.suggestions import describe_rule

    meaning = describe_rule(typed)
    lines = [problem] if problem else []
    if meaning or not problem:
        lines.append(f"Always allow {meaning}?" if meaning else "This is not a rule yet")
    return "\n".join(lines)


def _place_prompt(rule: str, problem: str, places: dict[str, str], typed: str) -> str:
    from ...permissions.suggestions import describe_rule

    lines = [problem] if problem else []
    lines.append(f"{rule}: always allow {describe_rule(rule)}. Where is that kept?")
    lines += [f"[{place[0]}]{place[1:]:<7} {what}" for place, what in places.items()]
    return "\n".join(lines)


def _describe(where: str, path: str, rule: str) -> str:
    """Describe a settings file as a place for a rule."""
    if where == "project":
        return f"for all who work here: {path}"
    from ...permissions.rules import parse_rule

    paths = ", its paths counted from each" if parse_rule(rule).relative else ""
    return f"for you, in every project{paths}: {path}"


def _error_lines(error: CtxagentError) -> str:
    return f"✗ {error.message}" + (f"\n  {error.hint}" if error.hint else "")


class Questions:
    """Puts questions on a screen, one after another.

    A question that waited is not put any more when the answer to the one before settles it.
    """

    def __init__(
        self,
        screen: Screen,
        show: Callable[[Question], None],  # prints what permission is asked for
        at_once: Callable[[str], bool],  # starts a command that need not wait; False if it is none
        files: "RuleFiles | None" = None,  # where rules can be kept besides the session
    ) -> None:
        self.always_yes = False  # whether every answer is yes, without asking
        self._screen = screen
        self._show = show
        self._at_once = at_once
        self._files = files
        self._turn = asyncio.Lock()

    async def choose(self, choices: str, keys: str) -> str:
        """Ask a command's question, and return the answer; a key of `keys` answers at once."""
        async with self._turn:
            if self.always_yes:
                return "y"
            return await self._screen.answer(lambda typed: choices, keys)

    async def busy_session(self) -> str:
        """Ask what to do with a session that another process has, and return one of BUSY_WORDS."""
        keys = "".join(word[0] for word in BUSY_WORDS)
        while not self.always_yes:
            answer, _, _ = (await self.choose(BUSY_CHOICES, keys)).strip().lower().partition(" ")
            if answer in ("n", "no"):
                break
            if word := next((word for word in BUSY_WORDS if answer in (word, word[0])), ""):
                return word
        return "leave"

    async def permission(self, question: Question) -> Answer:
        """Ask whether a tool may run."""
        from ..render import tool_calls

        async with self._turn:
            answer = question.settled()
            if answer is None:
                self._show(question)
                answer = Answer(True) if self.always_yes else await self._put(question)
                self._screen.put(tool_calls.answer(answer))
            return answer

    async def _put(self, question: Question) -> Answer:
        shown = partial(permission_choices, question, reminder=reminder_of(question))
        while True:
            line = await self._screen.answer(shown, permission_keys(question))
            answer: Answer | None = None
            if line.strip().startswith("/") and self._at_once(line):
                await asyncio.sleep(0)  # what it prints stands above the question
                answer = question.settled()
            elif _only_word(line) in ("a", "always") and question.offers:
                answer = await ask_rule(self._screen, question, self._files)
            else:
                answer = parse_answer(line)
            if answer is not None:
                return answer


def permission_keys(question: Question) -> str:
    """Return the keys that answer this question at once."""
    return PERMISSION_KEYS if question.offers else "y"


def permission_choices(question: Question, typed: str = "", *, reminder: str = "") -> str:
    """Return the choices in one line, or, while a refusal is typed, what becomes of it. Below it
    stands the `reminder` of what is asked."""
    answer = None if typed.strip().startswith("/") else parse_answer(typed)
    if answer is None or answer.allow:
        always = " · [a]lways …" if question.offers else ""
        line = f"[y]es{always} · [n]o, or n and why"
    else:
        line = "no, with these words to the model" if answer.reason else "no · why? or enter alone"
    return f"{line}\n{reminder}" if reminder else line


def reminder_of(question: Question) -> str:
    """Return a long question, which may have left the screen, in one line; "" for a short one."""
    lines = (question.diff or "\n".join(map(str, question.input.values()))).split("\n")
    if sum(1 + len(line) // MAX_TITLE_CHARS for line in lines) < MIN_REPEATED_LINES:
        return ""
    title = clean(reveal_invisible(" ".join(question.title.split())))
    title = cut_after(title, MAX_TITLE_CHARS)
    if not question.diff:
        return f"{question.tool} {title}"
    body = lines[2:]  # below the names of the two files
    added, removed = (sum(line.startswith(mark) for line in body) for mark in "+-")
    return f"{question.tool} {title} (+{added:,} −{removed:,})"


def parse_answer(text: str) -> Answer | None:
    """Return the answer that a line gives; None when it must be asked again.

    Words that are none of the choices are a refusal with a reason: never a permission.
    """
    first, _, rest = text.strip().partition(" ")
    word = first.lower().rstrip(",.:;")
    if not word or _only_word(text) in ("a", "always"):
        return None
    if word in ("n", "no"):
        return Answer(False, reason=rest.strip())
    if word in ("y", "yes") and not rest:
        return Answer(True)
    return Answer(False, reason=text.strip())


def _only_word(text: str) -> str:
    return text.strip().lower().rstrip(",.:;")
