"""The available providers, whether each has a key, and the models that each serves."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...tools.system.phrasing import count_of
from ..errors import ModelError, NoCredentials, conceal
from .catalog import Limits, Price, known_model
from .factory import PROTOCOLS, make_model, with_model
from .gaps import listed_models, parse_limits
from .local_servers import LocalServer, find_local_servers
from .providers import (
    DEFAULT_PROVIDER,
    LOCAL,
    Provider,
    canonical_id,
    endpoint_of,
    providers,
    resolve_model,
)

if TYPE_CHECKING:
    from ..config.settings import Settings

LIST_TIMEOUT_S = 10.0  # for a list of models
_ANY = "any"  # placeholder for a model name


class ProviderState(NamedTuple):
    """A provider and whether it can be used."""

    provider: Provider
    protocol: str
    address: str
    ready: bool
    state: str  # shown to the user: where its key is, or what is missing


class ServedModel(NamedTuple):
    """A model that a provider serves."""

    id: str
    limits: Limits | None  # None if unknown
    price: Price | None


async def provider_states(environ: Mapping[str, str]) -> list[ProviderState]:
    """Return all providers, usable ones first. Query the model servers on this machine."""
    local = {server.provider.name: server for server in await find_local_servers(environ)}
    rows = [_state(each, environ, local) for each in providers().values() if each.name != LOCAL]
    return sorted(rows, key=lambda row: not row.ready)


def _state(
    provider: Provider, environ: Mapping[str, str], local: Mapping[str, LocalServer]
) -> ProviderState:
    endpoint = endpoint_of(f"{provider.name}/{_ANY}", None, environ)
    if provider.local:
        server = local.get(provider.name)
        state = (
            f"runs here, {count_of(len(server.models), 'model')}" if server else "does not answer"
        )
        return ProviderState(
            provider, endpoint.protocol, endpoint.address, server is not None, state
        )
    try:
        found = PROTOCOLS[endpoint.protocol]().find_key(endpoint, environ)
    except NoCredentials as error:
        state = error.message.partition(": ")[2].rstrip(".") or error.message
        return ProviderState(provider, endpoint.protocol, endpoint.address, False, state)
    return ProviderState(
        provider, endpoint.protocol, endpoint.address, True, found or "needs no key"
    )


def providers_without_key(environ: Mapping[str, str]) -> set[str]:
    """Return the names of the providers that need a key and have none."""
    hosted = (each for each in providers().values() if not each.local)
    return {each.name for each in hosted if not _state(each, environ, {}).ready}


async def served_models(
    provider: Provider, settings: "Settings", environ: Mapping[str, str], state: Path
) -> list[ServedModel]:
    """Return the models that a provider lists, with limits and prices. Raises ModelError."""
    from .server_model import ServerModel

    chosen = with_model(settings.model, f"{provider.name}/{_ANY}")
    model = make_model(replace(settings, model=chosen), environ, state)
    assert isinstance(model, ServerModel)
    transport, path = model.access.transport, model.wire.models_path
    try:
        await transport.connect()
        answer: object = None
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_TIMEOUT_S):
                answer = await transport.get(f"{path}?limit=1000")
    finally:
        await model.close()
    rows = listed_models(answer)
    if not rows:
        where = model.access.endpoint.address or provider.name
        raise ModelError(
            f"{provider.name} does not list its models at {conceal(where)}",
            hint="Start it, or set its address in providers.toml."
            if provider.local
            else f"Check the key, or name a model: --model {provider.name}/NAME.",
        )
    return [_model(provider, row) for row in rows if isinstance(row.get("id"), str)]


def _model(provider: Provider, row: Mapping[str, object]) -> ServedModel:
    id = canonical_id(f"{provider.name}/{str(row['id']).removeprefix('models/')}")
    known = known_model(id)
    limits = (known.limits if known else None) or parse_limits(dict(row))
    return ServedModel(id, limits, known.price if known else None)


def price_and_window(limits: Limits | None, price: Price | None) -> tuple[str, str]:
    """Return (prices, window) as short texts, "" if unknown. Prices are dollars per million tokens
    for input/output/cached input.
    """
    size = limits.window if limits else 0
    window = f"{size / 1_000_000:.2g}M" if size > 999_499 else f"{size / 1_000:.0f}k" * bool(size)
    if price is None:
        return "", window
    prices = (f"{each:.3g}" for each in (price.input, price.output, price.cache_read))
    return ("$" + "/".join(prices) if price.input or price.output else "free"), window


def list_row(id: str, limits: Limits | None, price: Price | None) -> tuple[str, str, str, str]:
    """Return a model's ID, prices, window and provider for a list."""
    return id, *price_and_window(limits, price), resolve_model(id).provider.name


async def models_of_other_providers(
    settings: "Settings", environ: Mapping[str, str], state: Path
) -> list[ServedModel]:
    """Return the models of all usable providers except the default one."""
    states = await provider_states(environ)
    others = [s.provider for s in states if s.ready and s.provider.name != DEFAULT_PROVIDER]

    async def listed(provider: Provider) -> list[ServedModel]:
        with suppress(ModelError):
            return await served_models(provider, settings, environ, state)
        return []

    return [row for found in await asyncio.gather(*map(listed, others)) for row in found]
