"""Questions to the person, one at a time: those of permission, with the choices there are and what
an answer means, and those of commands."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..events import Answer, Question
from .screen.base import Screen

if TYPE_CHECKING:
    from ..keeping import RuleFiles

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

        while True:
            line = await self._screen.answer(partial(choices, question), keys(question))
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


def choices(question: Question, typed: str = "") -> str:
    """The choices in one line; of a refusal that is being typed, what becomes of it."""
    given = None if typed.strip().startswith("/") else answer_of(typed)
    if given is None or given.allow:
        always = " · [a]lways …" if question.offers else ""
        return f"[y]es{always} · [n]o, or n and why"
    return "no, with these words to the model" if given.reason else "no · why? or enter alone"


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
