"""Questions to the person, one at a time: those of permission, with the choices there are and what
an answer means, and those of commands."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..events import Answer, Question
from ..unseen import revealed
from .screen.base import Screen
from .visible import clean

if TYPE_CHECKING:
    from ..keeping import RuleFiles

LONG = 12  # lines from which on a question may have left the screen
TITLE = 60  # characters of what it is about that are said again
ANSWERS = "ya"  # characters that answer a question of permission at once


class Questions:
    """Puts questions on a screen. However many ask at once, each waits for the one before it, and
    is not put any more when that one's answer settles it.

    `show` prints what permission is asked for. `at_once` starts what a line calls, if that is a
    command that need not wait; the question stays open then. `files` are where rules can be kept.
    With `assent` nobody is asked: every answer is yes.
    """

    def __init__(
        self,
        screen: Screen,
        show: Callable[[Question], None],
        at_once: Callable[[str], bool],
        files: "RuleFiles | None" = None,
    ) -> None:
        self.assent = False
        self._screen = screen
        self._show = show
        self._at_once = at_once
        self._files = files
        self._turn = asyncio.Lock()

    async def choose(self, choices: str, keys: str) -> str:
        async with self._turn:
            return "y" if self.assent else await self._screen.answer(lambda typed: choices, keys)

    async def permission(self, question: Question) -> Answer:
        from .look import calls

        async with self._turn:
            answer = question.settled()
            if answer is None:
                self._show(question)
                answer = Answer(True) if self.assent else await self._put(question)
                self._screen.put(calls.answer(answer))
            return answer

    async def _put(self, question: Question) -> Answer:
        from .always import ask_rule

        shown = partial(choices, question, about=about(question))
        while True:
            line = await self._screen.answer(shown, keys(question))
            answer: Answer | None = None
            if line.strip().startswith("/") and self._at_once(line):
                await asyncio.sleep(0)  # what it prints stands above the question
                answer = question.settled()
            elif _word(line) in ("a", "always") and question.offers:
                answer = await ask_rule(self._screen, question, self._files)
            else:
                answer = answer_of(line)
            if answer is not None:
                return answer


def keys(question: Question) -> str:
    """Those of `ANSWERS` that this question takes."""
    return ANSWERS if question.offers else "y"


def choices(question: Question, typed: str = "", *, about: str = "") -> str:
    """The choices in one line; of a refusal that is being typed, what becomes of it. Below
    them, what the question is `about`."""
    return _choices(question, typed) + (f"\n{about}" if about else "")


def _choices(question: Question, typed: str) -> str:
    given = None if typed.strip().startswith("/") else answer_of(typed)
    if given is None or given.allow:
        always = " · [a]lways …" if question.offers else ""
        return f"[y]es{always} · [n]o, or n and why"
    return "no, with these words to the model" if given.reason else "no · why? or enter alone"


def about(question: Question) -> str:
    """A long question in one short line; "" of a short one."""
    lines = (question.diff or "\n".join(map(str, question.input.values()))).split("\n")
    if sum(1 + len(line) // TITLE for line in lines) < LONG:
        return ""
    title = clean(revealed(" ".join(question.title.split())))
    title = title if len(title) <= TITLE else f"{title[:TITLE]}…"
    if not question.diff:
        return f"{question.tool} {title}"
    body = lines[2:]  # below the names of the two files
    added, removed = (sum(line.startswith(mark) for line in body) for mark in "+-")
    return f"{question.tool} {title} (+{added:,} −{removed:,})"


def answer_of(text: str) -> Answer | None:
    """What was answered; None when it must be asked again.

    Words that are none of the choices are a refusal with a reason: never a permission.
    """
    first, _, rest = text.strip().partition(" ")
    word = first.lower().rstrip(",.:;")
    if not word or _word(text) in ("a", "always"):
        return None
    if word in ("n", "no"):
        return Answer(False, reason=rest.strip())
    if word in ("y", "yes") and not rest:
        return Answer(True)
    return Answer(False, reason=text.strip())


def _word(text: str) -> str:
    """The only word that is typed, without a full stop."""
    return text.strip().lower().rstrip(",.:;")
