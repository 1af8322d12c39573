"""`ctxagent config --trust`: show what a project's files would start, then accept them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ...tools.system.unicode import clean
from ..config.pinned_files import FileChange, PinnedFiles
from ..config.start_gate import ProgramStart, StartGate
from ..config.trust import accept, is_trusted, read_untrusted
from ..errors import UsageError
from ..security.program_starts import gate_of
from .options import can_ask, cwd_of, launch_of, load, say
from .trust_items import CHANGED, KINDS, TrustItem, project_files, trust_items

OWN_PROGRAMS = "your own hooks and servers"
ALL, SOME, NONE = "a", "o", "n"
QUESTION = "Accept [a]ll, [o]ne by one, or [n]othing?"


def trust_project(
    options: dict[str, Any], files: Sequence[str] = (), *, preview: bool = False
) -> None:
    """Show the project's files that need trust, with the programs that they would start. Then
    accept the shown content of the chosen `files`, of those that the user chooses at a terminal, or
    of all files. With `preview`, accept nothing. Raises UsageError if there are no files.
    """
    loaded, launch = load(options), launch_of(options)
    items, gate = _chosen(trust_items(loaded, launch), files, cwd_of(options)), gate_of(launch)
    if not items:
        raise UsageError(
            "nothing in this project needs trust: no .agentrc, .mcp.json, .ctxagent/agents, hooks "
            "file, folder of commands, extensions or skills, and no AGENTS.md that other users "
            "may write or that the agent wrote after it had read text from outside"
        )
    shown = [item for item in items if item.is_open]
    for line in screen(shown, gate, cwd_of(options)):
        say(clean(line), err=not preview)
    if preview:
        return
    for item in _accepted(shown, items, cwd_of(options)):
        _accept(item, gate, loaded.trust_dir)


def screen(items: Sequence[TrustItem], gate: StartGate, cwd: Path) -> Iterator[str]:
    """Yield the lines that show these items."""
    if not items:
        yield "every file is accepted with its current content"
    for item in items:
        yield f"{_name(item, cwd)}: {item.state if item.path else 'changed files'}"
        yield f"  {KINDS.get(item.kind, 'programs outside the sandbox, with your rights')}"
        yield from (f"  {effect}" for effect in item.effects)
        for each in item.starts:
            yield f"  {each.start.what}: {each.start.shown}"
            yield f"    {_place(each.start, gate)}"
            if each.changes:
                files = (f"{_shown(c.path, cwd)} ({_state(c)})" for c in each.changes)
                yield f"    runs {', '.join(files)}"
        if item.state == CHANGED and item.path:
            whole = FileChange(_shown(item.path, cwd), "", item.data, item.before)
            yield from _indented(whole.diff())
        changed = {c.path: c for each in item.starts for c in each.changes if not c.is_new}
        for change in changed.values():
            yield from _indented(change.diff())


def _place(start: ProgramStart, gate: StartGate) -> str:
    """Return where a program runs, and its rights."""
    rights = start.rights
    if not start.of_project or rights.outside:
        return "outside the sandbox, with your rights"
    if gate.confine(start) is None:
        return "with your rights: there is no sandbox here"
    network = "with" if rights.network else "without"
    more = f", writes to {', '.join(rights.write)}" if rights.write else ""
    return f"inside the sandbox, {network} network{more}"


def _state(change: FileChange) -> str:
    return "new" if change.is_new else "changed"


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.splitlines())


def _name(item: TrustItem, cwd: Path) -> str:
    return _shown(item.path, cwd) if item.path else OWN_PROGRAMS


def _shown(path: Path | str, cwd: Path) -> str:
    return str(path).removeprefix(f"{cwd}/")


def _chosen(items: list[TrustItem], files: Sequence[str], cwd: Path) -> list[TrustItem]:
    """Return the items of these files, or all without files. A file that programs run stands for
    the items that start them. Raises UsageError for other files.
    """
    chosen = list[TrustItem]()
    for name in files:
        path = str(cwd / name)
        found = [item for item in items if str(item.path) == path or path in _programs(item)]
        if not found:
            hint = "`ctxagent config --trust --preview` lists the files."
            raise UsageError(f"{name} does not need trust", hint=hint)
        chosen += [item for item in found if item not in chosen]
    return chosen if files else items


def _programs(item: TrustItem) -> set[str]:
    return {change.path for each in item.starts for change in each.changes}


def _accepted(shown: Sequence[TrustItem], items: Sequence[TrustItem], cwd: Path) -> list[TrustItem]:
    """Return the items to accept. Ask the user if there is one at a terminal."""
    if not shown or not can_ask():
        return [*items]
    answer = _answer(QUESTION, (ALL, SOME, NONE))
    if answer == SOME:
        return [
            item
            for item in shown
            if _answer(f"Accept {_name(item, cwd)}? [y]es [n]o", ("y", "n")) == "y"
        ]
    return [*shown] if answer == ALL else []


def _answer(question: str, keys: Sequence[str]) -> str:
    """Return the user's answer, the last key without one."""
    choice = click.Choice(keys, case_sensitive=False)
    try:
        return str(click.prompt(clean(question), type=choice, show_choices=False, err=True))
    except click.Abort:
        return keys[-1]


def _accept(item: TrustItem, gate: StartGate, trust_dir: Path) -> None:
    """Accept an item with the shown content, and print it. Raises ConfigError."""
    if item.path:
        accept(item.path, item.data, trust_dir)
        say(f"trusted with its current content: {item.path}", err=True)
    for each in item.starts:
        gate.pins.accept(each.start.key, each.changes)
    for path in sorted(_programs(item)):
        say(f"accepted with its current content: {path}", err=True)


def accept_server(options: dict[str, Any], name: str) -> None:
    """Accept the current files that an MCP server of the project runs. Raises ConfigError."""
    from ..features.started_programs import programs_of

    launch = launch_of(options)
    chosen = (each for each in programs_of(launch) if each.what == f"the MCP server {name}")
    gate_of(launch).accept(chosen)


def trust_worktree(checkout: Path, worktree: Path, cwd: Path, trust_dir: Path) -> None:
    """Trust the files of a worktree, for work in its folder `cwd`, whose content is trusted in the
    checkout, and the pinned files of programs. Raises ConfigError.
    """
    for path, bound, _ in project_files(cwd, trust_dir):
        if not path.is_relative_to(worktree):
            continue
        try:
            data = read_untrusted(path, bound)
        except OSError:
            continue
        accepted = is_trusted(checkout / path.relative_to(worktree), data, trust_dir)
        if accepted and not is_trusted(path, data, trust_dir):
            accept(path, data, trust_dir)
    PinnedFiles(trust_dir).copy_pins(checkout, worktree)
