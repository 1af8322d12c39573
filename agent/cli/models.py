"""`ctxagent models`: the providers, their models, windows and prices."""

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.unicode import clean
from ..errors import UsageError
from .options import exits_with_code, launch_of, load, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..models.overview import ProviderState, ServedModel
    from ..models.providers import Provider


@click.command(epilog="Example: ctxagent models anthropic")
@click.argument("provider", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def models(options: dict[str, Any], provider: str | None, as_json: bool) -> int:
    """List the providers, or ask PROVIDER for its models.

    Choose a model with --model PROVIDER/NAME. Servers on this machine are searched on their default
    ports.
    """
    from ..models.overview import provider_states
    from ..models.providers import find_provider

    load(options)  # adds the user's own providers
    if provider is None:
        states = asyncio.run(provider_states(os.environ))
        _say_states(states, as_json=as_json)
        return 0
    if (chosen := find_provider(provider)) is None:
        raise UsageError(f"there is no provider {provider!r}", hint="`ctxagent models` lists them.")
    _say_models(_served(options, chosen), as_json=as_json)
    return 0


def _served(options: dict[str, Any], provider: "Provider") -> "list[ServedModel]":
    from ..models.overview import served_models

    launch = launch_of(options)
    return asyncio.run(
        served_models(provider, launch.settings, launch.places.environ, launch.places.state)
    )


def _say_states(states: "Sequence[ProviderState]", *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "provider": each.provider.name,
                "protocol": each.protocol,
                "address": each.address,
                "ready": each.ready,
                "state": each.state,
            }
            for each in states
        ]
        say(json.dumps({"providers": rows}, ensure_ascii=False))
        return
    for each in states:
        mark, name = "ready" if each.ready else "-", each.provider.name
        say(clean(f"{mark:<6} {name:<12} {each.protocol:<10} {each.state}"))
    say(
        "\n`ctxagent models PROVIDER` lists its models; `--model PROVIDER/NAME` uses one.", err=True
    )


def _say_models(found: "Sequence[ServedModel]", *, as_json: bool) -> None:
    from ..models.overview import price_and_window

    if as_json:
        rows = [
            {
                "id": each.id,
                "window": each.limits.window if each.limits else None,
                "input_price": each.price.input if each.price else None,
                "output_price": each.price.output if each.price else None,
                "cached_price": each.price.cache_read if each.price else None,
            }
            for each in found
        ]
        say(json.dumps({"models": rows}, ensure_ascii=False))
        return
    width = max(len(each.id) for each in found)
    for each in found:
        prices, window = price_and_window(each.limits, each.price)
        say(clean(f"{each.id:<{width}}  {window:>5}  {prices}").rstrip())
    say("\nPrices are dollars per million tokens: in/out/cached.", err=True)
