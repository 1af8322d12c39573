"""`ctxagent plugin marketplace`: lists of plugins in repositories and folders."""

import json
import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import click

from ...api.cli import Group, exits_with_code, say, say_lines
from ...api.text import count_of

if TYPE_CHECKING:
    from .marketplaces import OfferedPlugin


@click.group(cls=Group, epilog="Example: ctxagent plugin marketplace list")
def marketplace() -> None:
    """Marketplaces: lists of plugins in repositories and folders."""


@marketplace.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: ctxagent plugin marketplace add https://example.com/plugins.git",
)
@click.option("--ref", default="", metavar="REF", help="A branch, tag or commit of a repository.")
@click.argument("source", metavar="PATH|GIT-URL", type=click.UNPROCESSED)
@exits_with_code
def add(ref: str, source: str) -> int:
    """Add the marketplace in a folder or repository. This adds none of its plugins."""
    from ...api.settings import config_home
    from .marketplaces import add_marketplace
    from .plugin_fetch import FileSource

    added = add_marketplace(FileSource(source, ref), config_home(os.environ), os.environ)
    offered = count_of(len(added.offers), "plugin")
    say(f"added: {added.name}, {offered}. `ctxagent plugin search` lists them.")
    return 0


@marketplace.command(name="list", epilog="Example: ctxagent plugin marketplace list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@exits_with_code
def list_marketplaces(as_json: bool) -> int:
    """List the marketplaces."""
    from ...api.settings import config_home
    from .marketplaces import read_marketplaces

    markets = read_marketplaces(config_home(os.environ)).values()
    keys = ("name", "source", "ref", "commit", "updated")
    if as_json:
        rows = [
            {key: getattr(each, key) for key in keys} | {"plugins": len(each.offers)}
            for each in markets
        ]
        say(json.dumps(rows, ensure_ascii=False))
    elif not markets:
        say("there is no marketplace: `ctxagent plugin marketplace add PATH|GIT-URL` adds one")
    for each in () if as_json else markets:
        at = f" · commit {each.commit[:12]}" if each.commit else ""
        offered = count_of(len(each.offers), "plugin")
        say(f"{each.name}: {offered} · read {each.updated[:10]}{at} · {each.source}")
    return 0


@marketplace.command(epilog="Example: ctxagent plugin marketplace remove my-plugins")
@click.argument("name")
@exits_with_code
def remove(name: str) -> int:
    """Remove the marketplace NAME. Its installed plugins stay."""
    from ...api.settings import config_home
    from .marketplaces import remove_marketplace

    remove_marketplace(name, config_home(os.environ))
    say(f"removed: {name}")
    return 0


@marketplace.command(epilog="Example: ctxagent plugin marketplace update")
@click.argument("name", required=False)
@exits_with_code
def update(name: str | None) -> int:
    """Read the list of the marketplace NAME, or of all marketplaces, again. This updates no
    plugin.
    """
    from ...api.base import CtxagentError
    from ...api.settings import config_home
    from .marketplaces import add_marketplace, marketplace_named, read_marketplaces
    from .plugin_fetch import FileSource

    own = config_home(os.environ)
    markets = read_marketplaces(own)
    chosen = [marketplace_named(markets, name)] if name else [*markets.values()]
    failed = False
    for each in chosen:
        try:
            now = add_marketplace(FileSource(each.source, each.ref), own, os.environ)
        except CtxagentError as error:
            if name:
                raise
            failed = True
            say(f"{each.name}: {error.message}", err=True)
            continue
        was, has = ({offer.name for offer in market.offers} for market in (each, now))
        changes = [
            *(f"+{new}" for new in sorted(has - was)),
            *(f"-{old}" for old in sorted(was - has)),
        ]
        say(f"{each.name}: {count_of(len(has), 'plugin')} {' '.join(changes)}".rstrip())
    return 1 if failed else 0


def say_offers(
    offers: "Iterable[OfferedPlugin]", installed: Collection[str] = (), as_json: bool = False
) -> None:
    """Print plugins of marketplaces."""
    from ...api.text import reveal_invisible

    if as_json:
        rows = [
            {
                "name": each.name,
                "marketplace": each.market,
                "description": each.description,
                "installed": each.id in installed,
            }
            for each in offers
        ]
        say(json.dumps(rows, ensure_ascii=False))
        return
    for each in offers:
        mark = " (installed)" if each.id in installed else ""
        say_lines(reveal_invisible(f"{each.id}{mark}: {each.description}".rstrip(": ")))
