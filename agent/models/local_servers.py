"""Find model servers on this machine, on their default ports."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from .http_client import open_client, start_import
from .providers import LOCAL, Provider, endpoint_of, providers

TIMEOUT_S = 1.0  # for each step of a server's answer
MAX_SECONDS = 3.0  # for the whole answer
MAX_MODELS = 200  # per server


class LocalServer(NamedTuple):
    """A model server on this machine that answered."""

    provider: Provider
    address: str
    models: tuple[str, ...]  # their names


async def find_local_servers(environ: Mapping[str, str]) -> list[LocalServer]:
    """Return the servers on this machine that answer, with their models."""
    await asyncio.wrap_future(start_import())
    local = [p for p in providers().values() if p.local and p.name != LOCAL]
    found = await asyncio.gather(*(_ask(provider, environ) for provider in local))
    return [server for server in found if server is not None]


async def _ask(provider: Provider, environ: Mapping[str, str]) -> LocalServer | None:
    import httpx2

    address = endpoint_of(f"{provider.name}/any", None, environ).address
    key = next((environ[name] for name in provider.keys if environ.get(name)), "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with suppress(httpx2.HTTPError, TimeoutError, ValueError, KeyError, TypeError):
        async with (
            asyncio.timeout(MAX_SECONDS),
            open_client(httpx2.AsyncClient, address, timeout=TIMEOUT_S) as client,
        ):
            answer = await client.get(f"{address}/models", headers=headers)
            rows = answer.json()["data"] if answer.status_code == 200 else None
            if isinstance(rows, list):
                names = [row["id"] for row in rows[:MAX_MODELS] if isinstance(row["id"], str)]
                return LocalServer(provider, address, tuple(names))
    return None


async def address_of_local(environ: Mapping[str, str]) -> str:
    """Return the address of the first server on this machine that answers, "" if none does."""
    found = await find_local_servers(environ)
    return found[0].address if found else ""
