"""Commands about models: which one answers, and what can be used."""

import asyncio
from collections.abc import Iterator

from ...lazy import regex
from ..menu import Menu, Option
from . import completions
from .command_context import CommandContext
from .registry import command

_DATE = regex(r"-\d{8}$")  # at the end of a model's id


@command("choose the model from a list, or by its id", argument="[ID]", complete=completions.models)
async def _model(repl: CommandContext, argument: str) -> None:
    if not argument and (chosen := await repl.screen.pick(_models(repl))):
        argument = chosen.key
    if argument:
        repl.conversation.set_model(argument)
    window = await repl.agent.model.window()
    limits = repl.agent.model.limits
    source = f", by {limits.source}" if limits else ""
    repl.say(f"{repl.agent.model.id} · window {window.size:,} tokens{source}")
    confirmed = limits is not None and limits.source == "server"  # the server knows the model
    if argument and not confirmed and (warning := _unknown_model(repl, argument)):
        repl.notify("warning", warning)


def _models(repl: CommandContext) -> Menu:
    """Return a menu of the known models and the one in use, which is marked."""
    now, rows = repl.agent.model.id, [*repl.services.models()]

    def load(scope: int) -> Iterator[list[Option]]:
        shown = [row[0] for row in rows]
        yield [_option(now, *row) for row in ([] if now in shown else [(now, "", "")]) + rows]
        listed = repl.services.listed_models()
        yield [_option(now, *row) for row in listed if row[0] not in (*shown, now)]

    return Menu(
        title="Continue with the model",
        load=load,
        action="use this model",
        empty_text="there is no list of models",
        takes_other=True,
    )


def _option(now: str, id: str, *facts: str) -> Option:
    return Option(id, id, ("now" if id == now else "", *facts))


def _unknown_model(repl: CommandContext, id: str) -> str:
    """Return a warning about a model of which nothing is known, which a server may have; or ""."""
    from difflib import get_close_matches

    from ...models.catalog import known_model

    if known_model(id) or id.startswith("scripted:"):
        return ""
    near = get_close_matches(id, [row[0] for row in repl.services.models()], 1)
    meant = f": did you mean {near[0]}?" if near else "."
    return f"{id} is not a known model{meant} It will be used anyway."


@command("the providers of models, and how each gets its key", anytime=True)
async def _login(repl: CommandContext, argument: str) -> None:
    repl.show_table(await asyncio.to_thread(repl.services.providers))
    repl.say("set a key where you start ctxagent: export NAME=…; then /model PROVIDER/NAME")
