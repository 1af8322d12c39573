"""`ctxagent plugin`: add, list, update, remove and search plugins."""

import json
import os
import re
from typing import TYPE_CHECKING, Any

import click

from ...api.base import CtxagentError, UsageError
from ...api.cli import Group, can_ask, exits_with_code, is_confirmed, load, say
from ...api.text import one_line
from .marketplace_command import marketplace, say_offers

if TYPE_CHECKING:
    from pathlib import Path

    from ...api.session import Plugin
    from .plugin_install import InstallRequest, StagedPlugin

MAX_VERSION_CHARS = 40
ABOUT = ("version", "description")  # fields of a manifest that are printed
OFFERED = r"([A-Za-z0-9][\w.-]*)@([A-Za-z0-9][\w.-]*)"  # NAME@MARKETPLACE


@click.group(cls=Group, epilog="Example: ctxagent plugin list")
def plugin() -> None:
    """Plugins: folders of commands, skills, subagents, hooks and servers."""


plugin.add_command(marketplace)


@plugin.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: ctxagent plugin add ./my-plugin",
)
@click.option("--ref", default="", metavar="REF", help="A branch, tag or commit of a repository.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("source", metavar="NAME@MARKETPLACE|PATH|GIT-URL", type=click.UNPROCESSED)
@exits_with_code
def add(ref: str, yes: bool, source: str) -> int:
    """Add or replace a plugin. Its contents are shown first.

    The plugin is copied from a folder or from one commit of a git repository. If the source is a
    marketplace with several plugins, they are listed and none is added.
    """
    from ...api.settings import config_home
    from .plugin_install import IsMarketplace, install_staged, stage_plugin

    own = config_home(os.environ)
    try:
        with stage_plugin(_wanted(source, ref, own), own, os.environ) as ready:
            _show(ready)
            if not yes and not _is_wanted(ready.plugin.name, "add"):
                say("not added", err=True)
                return 1
            added = install_staged(ready, own)
    except IsMarketplace as error:
        say_offers(error.offers)
        raise
    say(f"added, pinned to {added.pinned_to}: {added.name}")
    return 0


@plugin.command(epilog="Example: ctxagent plugin update my-plugin")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("name", required=False)
@exits_with_code
def update(yes: bool, name: str | None) -> int:
    """Update the plugin NAME, or all plugins, from their sources.

    Changed contents and files are shown first. The lists of the marketplaces are read again.
    Exit code 1 if a plugin was not updated.
    """
    from ...api.session import read_plugins
    from ...api.settings import config_home
    from .marketplaces import add_marketplace, read_marketplaces
    from .plugin_fetch import FileSource
    from .plugin_install import plugin_named, update_request

    own = config_home(os.environ)
    plugins = read_plugins(own)
    chosen = [plugin_named(plugins, name)] if name else plugins
    markets, fresh = read_marketplaces(own), set[str]()
    left = 0
    for each in chosen:
        try:
            if each.market in markets and each.market not in fresh:
                market = markets[each.market]
                source = FileSource(market.source, market.ref)
                markets[each.market] = add_marketplace(source, own, os.environ)
                fresh.add(each.market)
            left += not _updated(each, update_request(each, markets), own, yes)
        except CtxagentError as error:
            if len(chosen) == 1:
                raise
            left += 1
            message = error.message.removeprefix(f"{each.name}: ")
            say(f"{each.name}: {message}. {error.hint or ''}".rstrip(), err=True)
    if not chosen:
        say("no plugin is installed")
    return 1 if left else 0


@plugin.command(epilog="Example: ctxagent plugin search review")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.argument("words", nargs=-1)
@exits_with_code
def search(as_json: bool, words: tuple[str, ...]) -> int:
    """List the plugins of your marketplaces that have all WORDS in their name, description or
    keywords; exit code 1 if there is none.
    """
    from ...api.session import read_plugins
    from ...api.settings import config_home
    from .marketplaces import read_marketplaces

    own = config_home(os.environ)
    markets = read_marketplaces(own)
    if not markets and not as_json:
        raise UsageError(
            "there is no marketplace yet",
            hint="`ctxagent plugin marketplace add PATH|GIT-URL` adds one.",
        )
    found = [offer for each in markets.values() for offer in each.offers if offer.fits(words)]
    found.sort(key=lambda offer: not any(word.lower() in offer.name.lower() for word in words))
    say_offers(found, {f"{each.offer}@{each.market}" for each in read_plugins(own)}, as_json)
    if not found and not as_json:
        say("no plugin of your marketplaces has all of these words", err=True)
    return 0 if found else 1


@plugin.command(name="list", epilog="Example: ctxagent plugin list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def list_plugins(options: dict[str, Any], as_json: bool) -> int:
    """List the plugins and their contents; exit code 1 if one has changed."""
    from ...api.session import check_plugins
    from ...api.settings import config_home
    from .plugin_install import contents_of

    found = check_plugins(config_home(os.environ), load(options).trust_dir)
    if as_json:
        say(json.dumps([_row(each, why) for each, why in found], ensure_ascii=False))
    elif not found:
        say("no plugin is installed: `ctxagent plugin add PATH|GIT-URL` adds one")
    else:
        for each, why in found:
            contents = contents_of(each)
            state = f"{why}, so it is not used: `{each.add_command}`" if why else contents.counts
            about = [each.name, *filter(None, [_version(each), each.offered_as])]
            say(_escaped(f"{' · '.join(about)}: {state} · {each.pinned_to} · {each.origin}"))
            for problem in () if why else contents.problems:
                say(_escaped(f"  note: {problem}"))
    return 1 if any(why for _, why in found) else 0


@plugin.command(epilog="Example: ctxagent plugin remove my-plugin")
@click.argument("name")
@exits_with_code
def remove(name: str) -> int:
    """Remove the plugin NAME."""
    from ...api.settings import config_home
    from .plugin_install import remove_plugin

    remove_plugin(name, config_home(os.environ))
    say(f"removed: {name}")
    return 0


def _wanted(source: str, ref: str, own: "Path") -> "InstallRequest":
    """Return the plugin to add. Raises UsageError."""
    from pathlib import Path

    from .marketplaces import marketplace_named, read_marketplaces
    from .plugin_fetch import FileSource
    from .plugin_install import InstallRequest

    named = re.fullmatch(OFFERED, source, re.ASCII)
    if named is None or Path(source).is_dir():
        return InstallRequest(FileSource(source, ref))
    if ref:
        raise UsageError(f"--ref is for a URL of git, not for {source}", hint="Leave out --ref.")
    market = marketplace_named(read_marketplaces(own), named[2])
    offer = market.offer(named[1])
    return InstallRequest(market.source_of(offer), offer)


def _updated(plugin: "Plugin", wanted: "InstallRequest", own: "Path", yes: bool) -> bool:
    """Update a plugin from its source. Return True if it is up to date afterwards, False if the
    user declines. Raises CtxagentError.
    """
    from ...api.session import is_intact
    from .plugin_install import differences, install_staged, stage_plugin

    intact = is_intact(plugin)
    if intact and wanted.source.commit and wanted.source.commit == plugin.commit:
        say(f"{plugin.name}: unchanged, {plugin.pinned_to}")
        return True
    with stage_plugin(wanted, own, os.environ) as ready:
        if intact and ready.plugin.digest == plugin.digest:
            say(f"{plugin.name}: unchanged, {plugin.pinned_to}")
            return True
        say(_escaped(f"{plugin.name}: {plugin.pinned_to} -> {ready.plugin.pinned_to}"))
        for line in differences(plugin, ready.plugin):
            say(_escaped(f"  {line}"))
        if not yes and not _is_wanted(plugin.name, "update"):
            say(f"not updated: {plugin.name}", err=True)
            return False
        added = install_staged(ready, own)
    say(f"updated, pinned to {added.pinned_to}: {added.name}")
    return True


def _show(ready: "StagedPlugin") -> None:
    """Print the contents of a plugin before it is added."""
    from .plugin_install import contents_of

    about = [one_line(str(given), 300) for key in ABOUT if (given := ready.manifest.get(key))]
    at = ready.plugin.pinned_to
    say(_escaped(" · ".join([f"{ready.plugin.name}, from {ready.plugin.origin}, {at}", *about])))
    for line in contents_of(ready.plugin).lines():
        say(_escaped(f"  {line}"))
    if ready.name_taken_by:
        say(_escaped(f"It is renamed, because {ready.name_taken_by} has the same name."))
    if ready.replaced:
        same = ready.replaced.digest == ready.plugin.digest
        was = "with the same content" if same else "with different content"
        say(f"It replaces {ready.replaced.pinned_to}, {was}.")


def _is_wanted(name: str, verb: str) -> bool:
    """Ask whether to add or update the plugin. Raises UsageError if there is no terminal to ask."""
    if not can_ask():
        raise UsageError(
            f"{name}: not {verb.removesuffix('e')}ed, because there is no terminal to ask",
            hint=f"`--yes` {verb}s it.",
        )
    return is_confirmed(f"Its hooks and servers run with your rights. {verb.capitalize()} it?")


def _escaped(text: str) -> str:
    """Return a line of a plugin with invisible characters escaped."""
    from ...api.text import reveal_invisible

    return reveal_invisible(text).replace("\n", "\\n")


def _version(plugin: "Plugin") -> str:
    """Return the version in the manifest of a plugin, "" if it names none."""
    from ...api.session import read_manifest

    try:
        given = read_manifest(plugin.folder).get("version")
    except (OSError, ValueError):
        return ""
    return one_line(str(given), MAX_VERSION_CHARS) if given else ""


def _row(each: "Plugin", why: str) -> dict[str, Any]:
    from .plugin_install import contents_of

    contents = contents_of(each)
    return {
        "name": each.name,
        "version": _version(each),
        **each.record(),
        "problem": why,
        "commands": sorted(contents.commands),
        "skills": [*contents.skills],
        "subagents": contents.subagents,
        "hooks": [
            {"event": hook.event, hook.kind if hook.kind == "command" else "url": hook.run}
            for hook in contents.hooks
        ],
        "servers": sorted(contents.servers),
        "language_servers": sorted(contents.language_servers),
    }
