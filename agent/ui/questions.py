"""Questions to the person, one at a time: those of permission, with the choices there are and what
an answer means, and those of commands."""

import asyncio
from collections.abc import Callable

from ..events import Answer, Question
from .screen import Screen

ANSWERS = "ya"  # characters that answer a question of permission at once
INSTANT = "yaencfb"  # those that any question may take so


class Questions:
    """Puts questions on a screen. However many ask at once, each waits for the one before it.

    `show` prints what permission is asked for. `at_once` starts what a line calls, if that is a
    command that need not wait; the question stays open then. With `assent` nobody is asked: every
    answer is yes.
    """

    def __init__(
        self,
        screen: Screen,
        show: Callable[[Question], None],
        at_once: Callable[[str], bool],
    ) -> None:
        self.assent = False
        self._screen = screen
        self._show = show
        self._at_once = at_once
        self._turn = asyncio.Lock()

    async def choose(self, choices: str, keys: str) -> str:
        async with self._turn:
            return "y" if self.assent else await self._screen.answer(choices, keys)

    async def permission(self, question: Question) -> Answer:
        from . import calls

        async with self._turn:
            self._show(question)
            answer = Answer(True) if self.assent else None
            while answer is None:
                line = await self._screen.answer(choices(question), keys(question))
                if line.strip().startswith("/") and self._at_once(line):
                    await asyncio.sleep(0)  # what it prints stands above the question
                else:
                    answer = answer_of(line, question)
            self._screen.put(calls.answer(answer, question.rule))
            return answer


def keys(question: Question) -> str:
    """Those of `ANSWERS` that this question takes."""
    return ANSWERS if question.rule else "y"


def choices(question: Question) -> str:
    """The choices in one line, with the exact rule that would be remembered."""
    always = f" · [a]lways this session: {question.rule}" if question.rule else ""
    return f"[y]es{always} · [n]o, or n and why"


def answer_of(text: str, question: Question) -> Answer | None:
    """What was answered; None when it must be asked again.

    Words that are none of the choices are a refusal with a reason: never a permission.
    """
    first, _, rest = text.strip().partition(" ")
    word = first.lower().rstrip(",.:;")
    if not word:
        return None
    if word in ("n", "no"):
        return Answer(False, reason=rest.strip())
    if word in ("y", "yes") and not rest:
        return Answer(True)
    if word in ("a", "always") and not rest:
        return Answer(True, remember=True) if question.rule else None
    return Answer(False, reason=text.strip())
