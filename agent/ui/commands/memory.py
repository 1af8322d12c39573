"""/memory: the instruction files that the model gets, and an editor for them."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....tools.system.files import replacing
from ....tools.system.plural import count_of
from ...errors import CtxagentError, UsageError
from ..menu import Menu, Option
from ..status import path_within, short_path
from .command_context import CommandContext
from .registry import command

NEW_FILE = "AGENTS.md"
NEW_FILE_MODE = 0o644


@command("the instruction files that the model gets; edit one", group="context")
async def _memory(repl: CommandContext, argument: str) -> None:
    from ...features.environment import EnvironmentFeature

    feature = repl.agent.features.find(EnvironmentFeature)
    if feature is None:
        raise UsageError("the model gets no instruction files", hint="See features.off.")
    found = await asyncio.to_thread(feature.instruction_states)
    rows = [
        (
            path_within(each.path, repl.services.cwd),
            count_of(each.tokens, "token"),
            each.origin,
            each.state,
        )
        for each in found
    ]
    new = repl.services.cwd / NEW_FILE
    if not repl.screen.paints:
        repl.show_table(rows)
        if not new.exists():
            repl.say(f"there is no {NEW_FILE} here: /init lets the agent write one")
        return
    paths = [each.path for each in found]
    chosen = await repl.screen.pick(_menu(rows, None if new in paths else new))
    if chosen is None:
        return
    path = paths[int(chosen.key)] if chosen.key else new
    if not await _edit(repl, path):
        repl.say(f"{short_path(path)} is as it was")
        return
    states = {each.path: each for each in await asyncio.to_thread(feature.instruction_states)}
    now = states[path].state if path in states else "it is empty: the model gets nothing of it"
    repl.say(f"{short_path(path)} is saved · {now}")


def _menu(rows: Sequence[Sequence[str]], new: Path | None) -> Menu:
    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [
            Option(str(n), path, (tokens, origin), detail=state)
            for n, (path, tokens, origin, state) in enumerate(rows)
        ]
        if new:
            about = "empty, in your editor; /init lets the agent write it"
            yield [Option("", f"create {new.name} here", detail=about)]

    return Menu(
        title=f"What the model is told in files · {count_of(len(rows), 'file')}",
        load=load,
        action="open it in your editor",
        empty_text="there are none",
        preview=lambda key: [("", rows[int(key)][-1] if key else "")],
        preview_rows=3,
    )


async def _edit(repl: CommandContext, path: Path) -> bool:
    """Let the user edit a file, and save it; return whether it changed. Raises CtxagentError."""
    before = await asyncio.to_thread(_read, path)
    text = await repl.screen.edit(before, path.name)
    if text == before:
        return False
    await asyncio.to_thread(_save, path, before, text)
    return True


def _read(path: Path) -> str:
    """Return the text of a file, "" for a missing one. Raises CtxagentError."""
    try:
        return path.read_text("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CtxagentError(f"cannot read {path}: {why}") from error


def _save(path: Path, before: str, text: str) -> None:
    """Replace a file. One that has changed meanwhile stays, and the text goes next to it. Raises
    CtxagentError."""
    changed = _read(path) != before
    target = path.with_name(f"{path.name}.edited") if changed else path.resolve()
    try:
        with replacing(target, new_mode=NEW_FILE_MODE, keep_mode=True) as file:
            file.write(text.encode())
    except OSError as error:
        raise CtxagentError(f"cannot write {target}: {error.strerror}") from error
    if changed:
        raise CtxagentError(f"{path} has changed meanwhile", hint=f"Your text is in {target}.")
