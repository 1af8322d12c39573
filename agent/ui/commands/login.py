"""Commands about models and provider keys, and the setup form of the first start."""

import asyncio
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from ....tools.system.phrasing import count_of
from ...errors import CtxagentError, KeyRefused, ModelError, UsageError, conceal
from ...extensions.command import command
from ...recordings.other_sessions import MAX_COMPARISON_S
from ..screen import BACK, ChoiceRow, Menu, Option
from ..status import short_path
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...library.login import Logins
    from ...models.overview import ProviderState, ServedModel
    from ...models.providers import Provider

PRICES = "$ per million: in/out/cached"


@command(
    "choose the model from a list, or by its ID or a short name",
    argument="[ID]",
    complete=completions.models,
    group="model and cost",
)
async def _model(repl: CommandContext, argument: str) -> None:
    from ...models.factory import full_model_id, unknown_model_notice

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


OWN_TASK = "w"  # the row of FIRST_TASKS for the user's own task
FIRST_TASKS = (
    ChoiceRow("1", "explain this project to me"),
    ChoiceRow("2", "write an AGENTS.md that tells you how to work here (/init)"),
    ChoiceRow(OWN_TASK, "[w]rite a task of my own"),
)
SHOW_ROWS = (ChoiceRow("s", "[s]how the page"), ChoiceRow("c", "[c]ontinue"))
SKIPPED = "no key yet: run /login to add one, or try `ctxagent demo` without a key"


@command(
    "choose a provider, and give its key",
    argument="[PROVIDER]",
    complete=completions.providers,
    group="model and cost",
)
async def _login(repl: CommandContext, argument: str) -> None:
    logins = repl.services.logins
    if logins is None or not (repl.screen.paints or repl.screen.echoes):
        repl.show_table(await asyncio.to_thread(repl.services.providers))
        repl.say("set a key where you start ctxagent: export NAME=…; then /model PROVIDER/NAME")
        return
    if argument:
        from ...models.providers import find_provider

        named = find_provider(argument)
        offered = {each.provider.name: each for each in await logins.choices()}
        if named is None or named.name not in offered:
            raise _not_offered(argument, named, [*offered])
        if _is_down(offered[named.name]):
            raise _no_server(offered[named.name])
        await _enter_key(repl, logins, offered[named.name].provider)
    else:
        await _choose_provider(repl, logins)


@command(
    "remove the key of a provider that /login saved",
    argument="PROVIDER",
    complete=completions.providers,
    group="model and cost",
)
async def _logout(repl: CommandContext, argument: str) -> None:
    from ...models.providers import find_provider

    if (provider := find_provider(argument)) is None:
        what = f"{argument!r} is not a provider" if argument else "/logout needs a provider"
        raise UsageError(what, hint="/logout PROVIDER removes its key; /login lists them.")
    logins = repl.services.logins
    if logins is not None and await asyncio.to_thread(logins.remove_key, provider):
        repl.say(f"removed the key of {provider.name}")
    else:
        repl.say(f"no saved key for {provider.name}: it may be set in a shell variable")


async def first_start(repl: CommandContext, *, has_task: bool) -> None:
    """Ask for a provider, its key and, unless the user has given one, a first task."""
    logins = repl.services.logins
    assert logins is not None
    logins.note_asked()
    await _show_history(repl)
    repl.say("Welcome. Three steps and you can begin; Esc skips them.")
    repl.conversation.is_choosing_model = True
    try:
        has_model = await _choose_provider(repl, logins, step="Step 1 of 3: ")
    finally:
        repl.conversation.is_choosing_model = False
    if not has_model:
        repl.notify("info", SKIPPED)
    elif not has_task:
        asked = "Step 3 of 3: what comes first?"
        row = await repl.questions.choose_row(asked, FIRST_TASKS)
        if row is not None and row.key != OWN_TASK:
            repl.send_next("/init" if "/init" in row.label else row.label.capitalize())


async def _show_history(repl: CommandContext) -> None:
    """Compare the cost of the newest sessions of other agents on this machine. Say nothing if there
    are none.
    """
    try:
        recordings = repl.services.recordings() if repl.services.recordings else None
        found = await asyncio.to_thread(recordings.newest_of_others) if recordings else []
        if recordings is None or not found:
            return
        work = asyncio.create_task(asyncio.to_thread(recordings.compare_newest))
        for second in count():
            bar = "▰" * second + "▱" * (MAX_COMPARISON_S - second)
            what = f"comparing your last {count_of(len(found), 'session')}"
            repl.show_activity(f"{what}, on this machine only {bar}")
            if (await asyncio.wait({work}, timeout=1))[0]:
                break
        compared = await work
    except (CtxagentError, OSError):
        return
    finally:
        repl.show_activity("")
    if compared is None:
        repl.say("the comparison is not finished; run `ctxagent replay` in a shell to see it")
        return
    sessions = "session" if compared.sessions == 1 else f"{compared.sessions} sessions"
    costs = f"${compared.dollars:,.2f}. With ctxagent ${compared.own_dollars:,.2f}."
    told = f"Your last {sessions}: {costs} Nothing left this machine."
    if await repl.questions.choose_row(told, SHOW_ROWS) == SHOW_ROWS[0]:
        repl.say(f"the page is {compared.page}; `ctxagent replay` makes it again")
        if sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
            import webbrowser  # in a terminal alone, it would start a browser in our place

            await asyncio.to_thread(webbrowser.open, compared.page.as_uri())


async def ask_key_again(repl: CommandContext, error: "Mapping[str, str]") -> None:
    """Ask for a new key if a turn ended because the provider refused the key saved by /login."""
    from ...models.providers import resolve_model

    logins, provider = repl.services.logins, resolve_model(repl.agent.model.id).provider
    refused = error["type"] == KeyRefused.__name__ and "(401)" in error["message"]
    if refused and logins is not None and await asyncio.to_thread(logins.has_stored, provider):
        await _enter_key(repl, logins, provider)


def _not_offered(name: str, known: "Provider | None", offered: "Sequence[str]") -> UsageError:
    """Return the error for a provider that `/login` does not offer."""
    from difflib import get_close_matches

    if known is None:
        near = get_close_matches(name, offered, 1)
        hint = f"Did you mean {near[0]}?" if near else "/login lists them."
        return UsageError(f"{name!r} is not a provider", hint=hint)
    if known.local:
        return UsageError(f"no server of {known.name} runs on this machine", hint="Start it first.")
    hint = f"`ctxagent models {known.name}` shows what is missing."
    return UsageError(f"{known.name} needs more than a key", hint=hint)


def _is_down(state: "ProviderState") -> bool:
    return state.provider.local and not state.ready


def _no_server(state: "ProviderState") -> UsageError:
    name, variable = state.provider.name, state.provider.address_variable
    return UsageError(
        f"no server of {name} at {conceal(state.address)}",
        hint=f"Start it, or set its address where you start ctxagent: export {variable}=…",
    )


async def _choose_provider(repl: CommandContext, logins: "Logins", step: str = "") -> bool:
    """Let the user choose a provider and enter its key; return True if done."""

    async def states_by_name() -> "dict[str, ProviderState]":
        repl.show_activity("checking for servers on this machine")
        found = await logins.choices()
        repl.show_activity("")
        return {state.provider.name: state for state in found}

    states = await states_by_name()

    def load(scope: int) -> "Iterator[Sequence[Option]]":
        yield [_provider_option(state) for state in states.values()]

    leaving = "skip" if step else "back"
    menu = Menu(f"{step}Choose a provider", load, "choose", "there is no provider", leaving)
    while (chosen := await repl.screen.pick(menu)) is not None:
        if _is_down(states[chosen.key]):
            states = await states_by_name()  # it may run now
        state = states[chosen.key]
        if _is_down(state):
            error = _no_server(state)
            repl.notify("info", f"{error.message}. {error.hint}")
        elif await _enter_key(repl, logins, state.provider, step="Step 2 of 3: " if step else ""):
            return True
    return False


def _provider_option(state: "ProviderState") -> Option:
    from ...models.providers import other_names

    name, words = state.provider.name, other_names(state.provider.name)
    fact = "has a key" if state.ready else "needs a key"
    if state.provider.local:
        fact, words = "runs here" if state.ready else "no server", [*words, "local"]
    title = f"{name} at {conceal(state.address)}" if _is_down(state) else name
    return Option(name, title, (fact,), words=" ".join(words))


async def _enter_key(
    repl: CommandContext, logins: "Logins", provider: "Provider", *, step: str = "",
    problem: str = "",
) -> bool:  # fmt: skip
    """Ask for a key until the provider accepts it, save it, and use a model of the provider. Return
    False if the user went back.
    """
    asks = not provider.local
    while True:
        key = ""
        if asks:
            page = f"create a key at {provider.key_page}" if provider.key_page else ""
            lines = [problem, page, f"{step}the {provider.name} key (hidden)"]
            key = (await repl.questions.secret("\n".join(filter(None, lines)))).strip()
            if key == BACK:
                return False
            if not key:
                continue
        try:
            model = await _find_accepted_model(repl, logins, provider, key, step)
            if not model:
                return False
            file = await asyncio.to_thread(logins.store_key, provider, key) if key else None
        except CtxagentError as error:
            asks = asks or isinstance(error, KeyRefused)
            if not asks:
                raise
            problem = f"✗ {error.message}"
            continue
        finally:
            repl.show_activity("")
        if key:
            where = f"in {short_path(file)}" if file else "in the system's keyring"
            repl.say(f"the key is accepted, and saved {where}")
        repl.conversation.set_model(model)
        if repl.services.rules and model != logins.chosen_model:
            await asyncio.to_thread(repl.services.rules.choose_model, model)
        repl.say(f"using {model} from now on; /model chooses another one")
        if small := logins.proposed_small_model(provider, model):
            repl.say(f"for cheaper searches by subagents: /settings model.small {small}")
        return True


async def _find_accepted_model(
    repl: CommandContext, logins: "Logins", provider: "Provider", key: str, step: str
) -> str:
    """Return a model of the provider that answered a tiny request, "" if none was chosen. Raises
    ModelError.
    """
    from ...models.keys import check_key

    if key:
        check_key(provider.keys[0], key)
    repl.show_activity(f"asking {provider.name}")
    model = logins.default_model(provider)
    if not model:
        try:
            found = await logins.models(provider, key)
        except ModelError:
            await logins.try_key(provider, key, f"{provider.name}/any")  # raises the reason
            raise
        model = found[0].id if len(found) == 1 else await _pick_model(repl, provider, found, step)
    if model:
        repl.show_activity(f"trying {model}")
        await logins.try_key(provider, key, model)
    return model


async def _pick_model(
    repl: CommandContext, provider: "Provider", found: "Sequence[ServedModel]", step: str
) -> str:
    from ...models.overview import price_and_window

    def load(scope: int) -> "Iterator[Sequence[Option]]":
        yield [
            Option(each.id, each.id, price_and_window(each.limits, each.price)) for each in found
        ]

    menu = Menu(
        f"{step}the model · {PRICES}", load, "use this model", "the provider lists no model"
    )
    chosen = await repl.screen.pick(menu)
    return chosen.key if chosen else ""
