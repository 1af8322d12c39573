"""`ctxagent proxy`: the context engine between another agent and its model."""

import asyncio
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import ends_process, load, project_of, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.presets import PresetName
    from ..proxy.serve import ProxyOptions

DEFAULT_PORT = 8765
# Unless the user chose one: who puts a proxy in front of an agent wants to save.
PRESET: "PresetName" = "lean"


@click.group(invoke_without_command=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port on 127.0.0.1; 0 for one that is free.",
)
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="PROTOCOL=URL",
    help="Where requests go: messages=URL or openai=URL; by default what ANTHROPIC_BASE_URL and "
    "OPENAI_BASE_URL say, else the APIs of Anthropic and OpenAI.",
)
@click.option("--no-summaries", is_flag=True, help="Clear and shorten only, never summarize.")
@click.pass_context
def proxy(
    context: click.Context, port: int, upstreams: tuple[str, ...], no_summaries: bool
) -> None:
    """Stand between another agent and its model, and keep its context small.

    Any client that takes a base URL can use the proxy. It sends its own key. The sessions are those
    of this directory: `ctxagent sessions`, `log`, `replay` and `compact --undo` work on them.
    """
    if context.invoked_subcommand is None:
        _serve(context.obj, port, upstreams, no_summaries)


@ends_process
def _serve(
    options: dict[str, Any], port: int, upstreams: tuple[str, ...], no_summaries: bool
) -> int:
    started = proxy_options(options, port, upstreams, summaries=not no_summaries)
    return asyncio.run(_run(started))


async def _run(started: "ProxyOptions") -> int:
    from ..proxy.serve import serving

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with serving(started, os.environ) as address:
        say(f"ctxagent proxy: {address} (Ctrl-C ends it)")
        await stopped.wait()
    return 0


def proxy_options(
    options: dict[str, Any], port: int, upstreams: "Sequence[str]", *, summaries: bool
) -> "ProxyOptions":
    """Return how a proxy of this directory is started. Raises UsageError and ConfigError."""
    from ..compaction.policy import policy_of
    from ..proxy.forward import UPSTREAMS
    from ..proxy.serve import ProxyOptions
    from ..session.searches import SEARCH_TOOL

    given = {}
    for each in upstreams:
        name, _, url = each.partition("=")
        if name not in UPSTREAMS or not url.startswith(("http://", "https://")):
            names = " or ".join(f"{name}=https://…" for name in UPSTREAMS)
            raise UsageError(f"--upstream {each!r} names no server", hint=f"Write {names}.")
        given[name] = url
    loaded = load(options)
    settings = loaded.settings
    if loaded.origins["compact.preset"] == "default":
        settings = replace(settings, compact=replace(settings.compact, preset=PRESET))
    policy = policy_of(settings)
    # What the server's own searches found is in replies, which are the client's.
    tools = tuple(name for name in policy.clear_tools if name != SEARCH_TOOL)
    return ProxyOptions(
        project_of(options, loaded),
        replace(policy, clear_tools=tools),
        port,
        given,
        summaries=summaries,
        window=loaded.settings.model.context_window,
        report=lambda text: say(f"ctxagent proxy: {text}", err=True),
    )
