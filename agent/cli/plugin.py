"""`ctxagent plugin`: the plugins that are installed: add, list, remove."""

import json
import os
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.shorten import one_line
from ..errors import UsageError
from .options import can_ask, ends_process, is_confirmed, load, say

if TYPE_CHECKING:
    from ..extensions.plugin_install import Staged
    from ..extensions.plugins import Plugin

ABOUT = ("version", "description")  # what a manifest says of a plugin


@click.group()
def plugin() -> None:
    """Plugins: folders of commands, skills, subagents, hooks and MCP servers."""


@plugin.command(context_settings={"ignore_unknown_options": True})
@click.option("--ref", default="", metavar="REF", help="A branch, tag or commit of a repository.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("source", metavar="PATH|GIT-URL", type=click.UNPROCESSED)
@ends_process
def add(ref: str, yes: bool, source: str) -> int:
    """Add a plugin, or put it again in place of what is there; show first what it contains.

    What is added is a copy: the content of a folder, or of one commit of a git repository.
    """
    from ..config.places import config_home
    from ..extensions.plugin_install import put_in_place, staged

    own = config_home(os.environ)
    with staged(source, ref, own, os.environ) as ready:
        _show(ready)
        if not yes and not _is_wanted(ready.plugin.name):
            say("not added", err=True)
            return 1
        added = put_in_place(ready, own)
    say(f"added, pinned to {added.pinned_to}: {added.name}")
    return 0


@plugin.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
@ends_process
def list_plugins(options: dict[str, Any], as_json: bool) -> int:
    """Say which plugins there are and what they contain; exit code 1 if one has changed."""
    from ..config.places import config_home
    from ..extensions.plugin_contents import contents_of
    from ..extensions.plugins import check_plugins

    found = check_plugins(config_home(os.environ), load(options).trust_dir)
    if as_json:
        say(json.dumps([_row(each, why) for each, why in found], ensure_ascii=False))
    elif not found:
        say("no plugin is installed: `ctxagent plugin add PATH|GIT-URL` adds one")
    else:
        for each, why in found:
            contents = contents_of(each)
            state = f"{why}, so it is not used: `{each.add_command}`" if why else contents.counts
            say(_shown(f"{each.name}: {state} · {each.pinned_to} · {each.source}"))
            for problem in () if why else contents.problems:
                say(_shown(f"  note: {problem}"))
    return 1 if any(why for _, why in found) else 0


@plugin.command()
@click.argument("name")
@ends_process
def remove(name: str) -> int:
    """Remove the plugin NAME."""
    from ..config.places import config_home
    from ..extensions.plugin_install import remove_plugin

    remove_plugin(name, config_home(os.environ))
    say(f"removed: {name}")
    return 0


def _show(ready: "Staged") -> None:
    """Say what a plugin contains, before it is added."""
    from ..extensions.plugin_contents import contents_of

    about = [one_line(str(given), 300) for key in ABOUT if (given := ready.manifest.get(key))]
    at = ready.plugin.pinned_to
    say(_shown(" · ".join([f"{ready.plugin.name}, from {ready.plugin.source}, {at}", *about])))
    for line in contents_of(ready.plugin, ready.manifest).lines():
        say(_shown(f"  {line}"))
    if ready.replaced:
        same = ready.replaced.digest == ready.plugin.digest
        was = "which was the same" if same else "which was another one"
        say(f"It takes the place of {ready.replaced.pinned_to}, {was}.")


def _is_wanted(name: str) -> bool:
    """Ask whether the plugin is to be added. Raises UsageError where nobody can be asked."""
    if not can_ask():
        hint = "Read above what it contains; `--yes` adds it."
        raise UsageError(f"{name} was not added: nobody can be asked here", hint=hint)
    return is_confirmed("Its hooks and servers run with your rights. Add it?")


def _shown(text: str) -> str:
    """Return a line of a plugin with everything in it visible."""
    from ...tools.system.unicode import reveal_invisible

    return reveal_invisible(text).replace("\n", "\\n")


def _row(each: "Plugin", why: str) -> dict[str, Any]:
    from ..extensions.plugin_contents import contents_of

    contents = contents_of(each)
    return {
        "name": each.name,
        **each.record(),
        "problem": why,
        "commands": sorted(contents.commands),
        "skills": contents.skills,
        "subagents": contents.subagents,
        "hooks": [
            {"event": hook.event, hook.kind if hook.kind == "command" else "url": hook.run}
            for hook in contents.hooks
        ],
        "servers": sorted(contents.servers),
    }
