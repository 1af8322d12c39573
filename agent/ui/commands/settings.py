"""Commands that show and change what the session runs with."""

import asyncio
import re
from typing import TYPE_CHECKING

from ...errors import UsageError
from . import offers
from .registry import Desk, command

if TYPE_CHECKING:
    from ...approval import Mode

MODES: "tuple[Mode, ...]" = ("ask", "accept-edits", "plan", "bypass")
_DATE = re.compile(r"-\d{8}$")  # of a model
EFFORTS = ("low", "medium", "high", "xhigh", "max")


@command("show or change the model", argument="[ID]", complete=offers.models)
async def _model(desk: Desk, argument: str) -> None:
    from ..look import render

    if argument:
        desk.set_model(argument)
    window = await desk.loop.window()
    limits = desk.loop.limits
    source = f", by {limits.source}" if limits else ""
    desk.put(render.dim(f"{desk.loop.model.id} · window {window.size:,} tokens{source}"))
    asked = limits is not None and limits.source == "server"  # which knows the model then
    if argument and not asked and (unheard := _unheard_of(desk, argument)):
        desk.put(render.notice("warning", unheard))


def _unheard_of(desk: Desk, id: str) -> str:
    """What is said of a model that is not in the table: servers may have others."""
    from difflib import get_close_matches

    known = [row[0] for row in desk.models()]
    if _DATE.sub("", id) in known or id.startswith("scripted:"):
        return ""
    near = get_close_matches(id, known, 1)
    meant = f": did you mean {near[0]}?" if near else "."
    return f"{id} is not a model that is known here{meant} It is used all the same."


@command(
    "show or set how hard the model thinks", argument="[LEVEL]", complete=offers.among(EFFORTS)
)
async def _effort(desk: Desk, argument: str) -> None:
    from ..look import render

    if argument and argument not in EFFORTS:
        raise UsageError(f"there is no effort {argument!r}", hint=f"One of {', '.join(EFFORTS)}.")
    if argument:
        desk.loop.effort = argument
    desk.put(render.dim(f"effort: {desk.loop.effort or 'as the model has it'}"))


@command(
    "show the rules, or set the mode",
    argument="[MODE | forget RULE]",
    anytime=True,
    complete=offers.among(MODES, also=offers.allowing),
)
async def _permissions(desk: Desk, argument: str) -> None:
    from ..look import render

    approval = desk.loop.approval
    word, _, rule = argument.partition(" ")
    if word == "forget":
        await _forget(desk, rule.strip())
        return
    if argument:
        mode = next((mode for mode in MODES if mode == argument), None)
        if mode is None:
            raise UsageError(f"there is no mode {argument!r}", hint=f"One of {', '.join(MODES)}.")
        approval.mode = mode
    sandbox = desk.loop.context.sandbox
    confined = ("sandbox", sandbox.describe() if sandbox else "off", "")
    desk.put(render.table([("mode", approval.mode, ""), confined, *_rules(desk)]))


def _rules(desk: Desk) -> list[tuple[str, str, str]]:
    """What each rule does, the rule, and where it comes from."""
    return [
        (
            "allow" if kind == "session" else kind,
            rule,
            desk.rules.origin(kind, rule) if desk.rules else "",
        )
        for kind, rules in desk.loop.approval.rules().items()
        for rule in rules
    ]


async def _forget(desk: Desk, text: str) -> None:
    """Allow it no longer, here and where it is kept; of no rule, say which can be forgotten."""
    from ...approval import parse_rule
    from ...record.entries import Note
    from ..look import render

    if not text:
        found = [(rule, origin) for kind, rule, origin in _rules(desk) if kind == "allow"]
        if not found:
            raise UsageError("there is no rule to forget", hint="None allows anything.")
        desk.put(render.dim("/permissions forget RULE, one of these:"), render.table(found))
        return
    rule = str(parse_rule(text))
    known = desk.loop.approval.forget(rule)
    files = await asyncio.to_thread(desk.rules.forget, rule) if desk.rules else []
    if not (known or files):
        raise UsageError(f"no rule {rule} allows anything", hint="/permissions lists the rules.")
    if desk.loop.log.last_seq:
        data = {"answer": "forgotten", "rule": rule, "where": ", ".join(files)}
        desk.loop.record(Note(topic="permission", text=f"forgotten: {rule}", data=data))
    where = f" · taken out of {', '.join(files)}" if files else ""
    desk.put(render.dim(f"forgotten: {rule}{where}"))


@command("the tools the model has", anytime=True)
async def _tools(desk: Desk, argument: str) -> None:
    from ..look import render

    rows = [(t.name, t.effect, t.description.strip().split("\n")[0]) for t in desk.loop.tools]
    desk.put(render.table(rows))


@command(
    "every setting, and where it came from; or those of a name",
    argument="[NAME]",
    anytime=True,
    complete=offers.settings,
)
async def _config(desk: Desk, argument: str) -> None:
    from ..look import render

    rows = [row for row in desk.settings() if argument in row[0]]
    if not rows:
        raise UsageError(f"there is no setting {argument!r}", hint="/config lists them all.")
    desk.put(render.table(rows))
