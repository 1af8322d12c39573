"""`ctxagent sessions adopt`: use the sessions of a renamed folder here. The terminal asks before it
starts.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...tools.system.unicode import clean
from ..errors import NoSuchSession, UsageError
from .options import can_ask, exits_with_code, is_confirmed, load_for_reading, project_of, say

if TYPE_CHECKING:
    from ..session.store import Project


@click.command("adopt")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("oldpath")
@click.pass_obj
@exits_with_code
def adopt(options: dict[str, Any], yes: bool, oldpath: str) -> int:
    """Move the sessions of a renamed folder to this directory.

    OLDPATH is the path before the folder was renamed. If this directory is not known to be the same
    folder, the command asks.
    """
    from ...tools.system.plural import count_of
    from ..session.project_record import is_same_folder, load_record, project_logs

    project = project_of(options, load_for_reading(options))
    path = os.path.normpath(os.path.join(project.cwd, oldpath))  # noqa: PTH118 - links stay
    source = _project_at(project, path)
    record, logs = load_record(source), project_logs(source)
    if source == project.folder:
        raise UsageError(f"{path} is this directory", hint="Its sessions are already used here.")
    if not logs:
        hint = "`ctxagent sessions list --all` lists the sessions of every directory."
        raise NoSuchSession(f"there are no sessions of {path}", hint=hint)
    is_same = record is not None and is_same_folder(record, project.cwd)
    _check_left(path, project.cwd)
    if not (is_same or yes):
        what = f"{count_of(len(logs), 'session')} of {path}"
        if not can_ask():
            why = f"nothing was moved: {project.cwd} is not known to be the folder {path}"
            raise UsageError(why, hint="Give --yes to use its sessions here.")
        if not is_confirmed(f"This may be another folder. Move {what} here?"):
            say("nothing was moved", err=True)
            return 1
    move_here(project, source, record.path if record else path)
    return 0


def move_here(project: "Project", source: Path, old: str) -> None:
    """Move the sessions of another project here, and print what was moved. Raises SessionBusy and
    RecordError.
    """
    from ...tools.system.descriptors import raise_limit
    from ...tools.system.plural import count_of
    from ..session.adoption import adopt_sessions

    raise_limit()  # each session is locked
    ids, left = adopt_sessions(source, old, project.cwd)
    say(f"{count_of(len(ids), 'session')} of {old} moved to {project.cwd}", err=True)
    for name in left:
        say(f"note: this file stays, because this directory has another: {name}", err=True)


def offer_former(project: "Project") -> None:
    """Ask once whether to use the sessions of the folder that this one was before it was renamed.
    Does nothing if this folder has sessions or if there is no terminal.
    """
    from ..session.project_record import decline, find_former

    if not can_ask() or project.logs() or not project.cwd.is_dir():
        return
    former = find_former(project.folder, project.cwd)
    if former is None:
        return
    keys = click.Choice(["y", "n"], case_sensitive=False)
    question = clean(f"{former.line} Use them here? [y]es [n]o")
    try:
        answer = click.prompt(question, type=keys, show_choices=False, err=True)
    except click.Abort:  # no answer: the next start asks again
        return
    if answer == "y":
        move_here(project, former.folder, former.path)
    else:
        decline(project.folder, project.cwd)


def _project_at(project: "Project", path: str) -> Path:
    """Return the folder with the sessions of a path that may no longer exist."""
    from ..session.project_record import project_folder

    projects = project.state / "projects"
    found = [project_folder(projects, each) for each in (path, os.path.realpath(path))]
    return next((folder for folder in found if folder.is_dir()), found[0])


def _check_left(path: str, cwd: Path) -> None:
    """Raise UsageError if the old folder, or another folder at its path, still exists."""
    from ..session.project_record import is_gone

    if not is_gone(path, cwd):
        raise UsageError(
            f"{path} still exists, so its sessions stay there",
            hint="To go on in a copy of a session: `ctxagent --resume ID --fork`.",
        )
