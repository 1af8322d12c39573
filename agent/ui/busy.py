"""A session that another process has open: what the person makes of it. It can be looked at, gone
on with in a copy, waited for, or left."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from ..errors import SessionBusy

if TYPE_CHECKING:
    from .questions import Questions

Wish = Literal["read", "fork", "wait", "leave"]

POLL = 0.2  # seconds between two tries to open what another process has
CHOICES = "[r]ead only · [f]ork: go on in a copy · [w]ait · [l]eave it"
_KEYS: dict[str, Wish] = {"r": "read", "f": "fork", "w": "wait", "l": "leave"}
T = TypeVar("T")


async def wish_of(questions: "Questions") -> Wish:
    """What the person wants; where nobody can be asked, it is left."""
    while not questions.assent:
        answer = await questions.choose(CHOICES, "".join(_KEYS))
        said, _, _ = answer.strip().lower().partition(" ")
        for key, wish in _KEYS.items():
            if said in (key, wish):
                return wish
        if said in ("n", "no"):
            break
    return "leave"


async def when_free(open: Callable[[], Awaitable[T]]) -> T:
    """What opens, as soon as nobody else has it. Raises whatever else `open` does."""
    while True:
        with suppress(SessionBusy):
            return await open()
        await asyncio.sleep(POLL)
