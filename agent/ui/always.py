"""What a person is asked who says "always": which rule is kept, and where. Nothing is kept before
both are answered, and there is a way back from each."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ..errors import CtxagentError, UsageError
from ..events import Answer, Question
from .screen.asked import BACK
from .screen.base import Screen

if TYPE_CHECKING:
    from ..keeping import RuleFiles, Where

SESSION = "session"


async def ask_rule(screen: Screen, question: Question, files: "RuleFiles | None") -> Answer | None:
    """The answer that keeps a rule, which is kept by then where it is to stand in a file; None
    when the person went back. Without `files` rules are kept for the session alone."""
    from ..approval import parse_rule

    typed, wrong = question.offers[0], ""
    while True:
        others = [rule for rule in question.offers if rule != typed]
        typed = await screen.answer(partial(_rule, wrong), BACK, [typed, *others])
        if typed == BACK:
            return None
        wrong = ""
        try:
            rule = str(parse_rule(typed))
            against = question.check(rule)
        except UsageError as error:
            wrong = _told(error)
            continue
        if against and not await _is_sure(screen, rule, against):
            continue
        where = await _keep(screen, rule, files) if files else SESSION
        if where:
            return Answer(True, rule=rule, where=where)


async def _is_sure(screen: Screen, rule: str, against: str) -> bool:
    text = f"{rule} is a wide rule: {against}.\nKeep it all the same? [y]es · [n]o, change it"
    answer = await screen.answer(lambda typed: text, f"yn{BACK}")
    return answer.strip().lower() in ("y", "yes")


async def _keep(screen: Screen, rule: str, files: "RuleFiles") -> str:
    """Where the rule is kept from now on, "" when the person went back."""
    places: dict[str, str] = {SESSION: "until you leave it"}
    places |= {where: _shown(where, files.shown(where), rule) for where in files.paths}
    wrong = ""
    while True:
        keys = "".join(place[0] for place in places)
        answer = (await screen.answer(partial(_places, rule, wrong, places), keys + BACK)).lower()
        if answer == BACK:
            return ""
        place = next((p for p in places if answer.strip() in (p, p[0])), "")
        if place == SESSION:
            return SESSION
        if not place:
            continue
        try:
            return await asyncio.to_thread(files.keep, rule, _where(place))
        except CtxagentError as error:
            wrong = _told(error)
            del places[place]


def _where(place: str) -> "Where":
    return "project" if place == "project" else "user"


def _rule(wrong: str, typed: str) -> str:
    from ..grants import meaning

    about = meaning(typed)
    lines = [wrong] if wrong else []
    if about or not wrong:
        lines.append(f"Always allow {about}?" if about else "This is no rule yet")
    return "\n".join(lines)


def _places(rule: str, wrong: str, places: dict[str, str], typed: str) -> str:
    from ..grants import meaning

    lines = [wrong] if wrong else []
    lines.append(f"{rule}: always allow {meaning(rule)}. Where is that kept?")
    lines += [f"[{place[0]}]{place[1:]:<7} {what}" for place, what in places.items()]
    return "\n".join(lines)


def _shown(where: str, path: str, rule: str) -> str:
    """What is said of a settings file."""
    if where == "project":
        return f"for all who work here: {path}"
    from ..approval import parse_rule

    paths = ", its paths counted from each" if parse_rule(rule).relative else ""
    return f"for you, in every project{paths}: {path}"


def _told(error: CtxagentError) -> str:
    return f"✗ {error.message}" + (f"\n  {error.hint}" if error.hint else "")
