"""`ctxagent extensions`: the Python extensions of the user, the project and packages."""

import json
import os
from typing import TYPE_CHECKING, Any

import click

from ..library.launch_parts import extension_source
from .group import Group
from .options import cwd_of, exits_with_code, load, say

if TYPE_CHECKING:
    from ..extensions.python_extensions import Extension
    from ..loop.interface import Feature


@click.group(cls=Group, epilog="Example: ctxagent extensions list")
def extensions() -> None:
    """Extensions: Python files that add tools, commands and hooks."""


@extensions.command(name="list", epilog="Example: ctxagent extensions list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def list_extensions(options: dict[str, Any], as_json: bool) -> int:
    """List the extensions, where they come from and what they add. This runs their code. The exit
    code is 1 if an extension fails.
    """
    from ..config.places import config_home
    from ..features.extension_features import load_extensions

    source = extension_source(load(options), cwd_of(options), os.environ)
    rows = [_row(each) for each in load_extensions(source).extensions]
    if as_json:
        say(json.dumps(rows, indent=1))
    elif not rows:
        say(f"no extension: put a file into {config_home(os.environ) / 'extensions'}", err=True)
    else:
        for row in rows:
            what = row["problem"] or ", ".join(row["adds"]) or "nothing"
            say(f"{row['name']}  {row['source']}\n    {what}")
    return 1 if any(row["problem"] for row in rows) else 0


def _row(extension: "Extension[Feature]") -> dict[str, Any]:
    """Return the facts about an extension."""
    return {
        "name": extension.name,
        "source": extension.source,
        "problem": extension.problem,
        "adds": [part for each in extension.classes for part in each.parts()],
    }
