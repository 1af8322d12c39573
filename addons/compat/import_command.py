"""`ctxagent import-settings`: show the settings of other agents, and copy them."""

import difflib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.cli import cwd_of, exits_with_code, load, say, say_lines

if TYPE_CHECKING:
    from .other_settings import OtherSettings

HEADINGS = {
    "taken": "Already used",
    "copy": "Can be copied",
    "kept": "Kept unchanged",
    "not": "Not supported",
}


@click.command(name="import-settings", epilog="Example: ctxagent import-settings --write")
@click.option("--write", is_flag=True, help="Copy what can be copied.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def import_settings(options: dict[str, Any], write: bool, as_json: bool) -> int:
    """Show the settings of other agents in this project and your home: what is used, what can be
    copied, and how files would change. With --write, change the files.

    Copies add to your settings; no existing setting changes. A changed file of the project needs
    your trust again.
    """
    from ...api.settings import config_home, home_folder, user_file, write_settings_file
    from .other_settings import other_settings

    found = other_settings(
        cwd_of(options),
        config_home=config_home(os.environ),
        home=home_folder(os.environ),
        user_file=user_file(os.environ),
        trust_dir=load(options).trust_dir,
    )
    if not as_json:
        _show(found)
    for path, data in found.after.items() if write else ():
        write_settings_file(path, data, new_mode=found.new_mode(path))
    if as_json:
        files = [{"path": str(path), "diff": _diff(found, path)} for path in found.after]
        rows = [asdict(each) for each in found.findings]
        say(json.dumps({"findings": rows, "files": files, "written": write}, ensure_ascii=False))
    elif found.after:
        done = "written" if write else "nothing is written: use --write"
        say_lines(
            f"{done}. A changed file of the project needs your trust: `ctxagent config --trust`."
        )
    return 0


def _show(found: "OtherSettings") -> None:
    from ...api.text import reveal_invisible

    for status, heading in HEADINGS.items():
        places = dict[str, list[str]]()
        for each in found.findings:
            if each.status == status:
                target = f" -> {each.target}" if each.target else ""
                places.setdefault(f"{each.source}{target}", []).append(each.what)
        for number, (place, lines) in enumerate(places.items()):
            say(f"{heading}:\n" * (not number), nl=False)
            for line in (f"  {place}", *(f"    {what}" for what in lines)):
                say_lines(reveal_invisible(line).replace("\n", "\\n"))
    if not found.findings:
        say("no settings of other agents found")
    for path in found.after:
        say(_diff(found, path), nl=False)


def _diff(found: "OtherSettings", path: Path) -> str:
    """Return the change of a file as a diff."""
    from ...api.text import reveal_invisible

    contents = (found.before[path], found.after[path])
    before, after = (data.decode("utf-8", "replace").splitlines() for data in contents)
    shown = found.shown(path)
    lines = difflib.unified_diff(before, after, shown, shown, lineterm="")
    return "".join(f"{reveal_invisible(line)}\n" for line in lines)
