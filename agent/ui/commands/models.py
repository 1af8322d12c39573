"""Commands about models: the one in use, and the available ones."""

from collections.abc import Collection, Iterator, Sequence

from ..menu import Menu, Option
from . import completions
from .command_context import CommandContext
from .registry import command

PRICES = "$ per million: in/out/cached"


@command(
    "choose the model from a list, or by its ID or a short name",
    argument="[ID]",
    complete=completions.models,
    group="model and cost",
)
async def _model(repl: CommandContext, argument: str) -> None:
    from ...models.model_names import full_model_id, unknown_model_notice

    if not argument and (chosen := await repl.screen.pick(_models(repl))):
        argument = chosen.key
    if argument:
        repl.conversation.set_model(argument)
    window = await repl.agent.model.window()
    limits = repl.agent.model.limits
    source = f", by {limits.source}" if limits else ""
    if limits and window.size < limits.window:
        source = ", learned from the server"
    repl.say(f"{repl.agent.model.id} · window {window.size:,} tokens{source}")
    confirmed = limits is not None and limits.source == "server"  # the server knows the model
    id = full_model_id(argument, None, {}) if argument and not confirmed else ""
    if id and (warning := unknown_model_notice(id, None, {})):
        repl.notify("warning", warning)


def _models(repl: CommandContext) -> Menu:
    """Return a menu of the known models by provider, with a mark on the one in use."""
    now, rows = repl.agent.model.id, [*repl.services.models()]

    def load(scope: int) -> Iterator[list[Option]]:
        without_key = repl.services.without_key()
        shown = [row[0] for row in rows]
        known = ([] if now in shown else [(now, "", "", "")]) + rows
        providers = [*dict.fromkeys(row[-1] for row in known)]
        known.sort(key=lambda row: providers.index(row[-1]))
        yield [_option(now, row, without_key) for row in known]
        listed = repl.services.listed_models()
        yield [_option(now, row) for row in listed if row[0] not in (*shown, now)]

    return Menu(
        title=f"Model · {PRICES}",
        load=load,
        action="use this model",
        empty_text="there is no list of models",
        takes_other=True,
    )


def _option(now: str, row: Sequence[str], without_key: Collection[str] = ()) -> Option:
    """Return the option of a row: ID and, where known, prices, window and provider."""
    id, prices, window, provider = (*row, "", "", "")[:4]
    mark = "now" if id == now else "needs a key" if provider in without_key else ""
    return Option(id, id, (prices, window, provider, mark))
