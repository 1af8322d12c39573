"""`ctxagent memory`: list, show and forget facts about the project."""

import json
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .group import Group
from .options import can_ask, exits_with_code, is_confirmed, launch_of, say

if TYPE_CHECKING:
    from ..extensions.memory import Fact, MemoryFolder


@click.group(cls=Group, invoke_without_command=True, epilog="Example: ctxagent memory list")
@click.pass_context
def memory(context: click.Context) -> None:
    """The memory: facts about this project that outlast its sessions. Without a command, list
    the facts.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_facts)


@memory.command(name="list", epilog="Example: ctxagent memory list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def list_facts(options: dict[str, Any], as_json: bool = False) -> int:
    """List the facts, the most recently changed first."""
    folder = _folder(options)
    facts, problems = folder.facts()
    if as_json:
        rows = [{"name": fact.name, "about": fact.about, "path": str(fact.path)} for fact in facts]
        say(json.dumps(rows, ensure_ascii=False))
    else:
        for fact in facts:
            say(f"{fact.name}: {fact.about}")
        kept = "there are no facts" if not facts else f"{len(facts)} in all"
        say(f"{kept} · {folder.folder}", err=True)
    for problem in problems:
        say(problem, err=True)
    return 0


@memory.command(epilog="Example: ctxagent memory show test-command")
@click.argument("name")
@click.pass_obj
@exits_with_code
def show(options: dict[str, Any], name: str) -> int:
    """Print the fact NAME."""
    from ...tools.system.unicode import clean, reveal_invisible

    say(reveal_invisible(clean(_folder(options).fact(name).text)), nl=False)
    return 0


@memory.command(epilog="Example: ctxagent memory forget test-command")
@click.option("--all", "is_all", is_flag=True, help="Forget every fact.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.pass_obj
@exits_with_code
def forget(options: dict[str, Any], is_all: bool, yes: bool, names: tuple[str, ...]) -> int:
    """Remove facts by NAME."""
    folder = _folder(options)
    if is_all == bool(names):
        raise UsageError("no facts named", hint="`ctxagent memory` lists them.")
    facts = folder.facts()[0] if is_all else [folder.fact(name) for name in dict.fromkeys(names)]
    if is_all and facts and not yes and not _is_wanted(facts):
        say("nothing was forgotten", err=True)
        return 1
    for fact in facts:
        folder.write(folder.forget(fact.name))
        say(f"forgotten: {fact.name}")
    return 0


def _folder(options: dict[str, Any]) -> "MemoryFolder":
    from ..features.memory import memory_of

    return memory_of(launch_of(options))


def _is_wanted(facts: "list[Fact]") -> bool:
    """Ask whether to forget all facts. Raises UsageError if there is no terminal to ask."""
    if not can_ask():
        raise UsageError(
            "nothing was forgotten, because there is no terminal to ask", hint="Give --yes."
        )
    return is_confirmed(f"Forget all {len(facts)} facts?")
