"""/memory: the instruction files and facts that the model gets, and an editor for them."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.files import replacing
from ....tools.system.phrasing import count_of
from ...errors import CtxagentError, UsageError
from ...extensions.command import command
from ..screen import Menu, Option
from ..status import path_within, short_path
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from ...features.memory import MemoryFeature

NEW_FILE = "AGENTS.md"
NEW_FILE_MODE = 0o644


_Row = tuple[str, str, str, str]  # name, tokens, origin, state


@command(
    "instruction files and kept facts: list, edit or forget",
    argument="[forget NAME]",
    complete=completions.fixed(("forget",)),
    group="context",
)
async def _memory(repl: CommandContext, argument: str) -> None:
    if argument:
        await _forget(repl, argument)
        return
    facts = await asyncio.to_thread(_facts, repl)
    rows = [*await asyncio.to_thread(_instructions, repl), *facts]
    new = repl.services.cwd / NEW_FILE
    if not repl.screen.paints:
        repl.show_table([row for _, row in rows])
        if not new.exists():
            repl.say(f"there is no {NEW_FILE} here: /init lets the agent write one")
        return
    paths = [path for path, _ in rows]
    chosen = await repl.screen.pick(_menu([row for _, row in rows], None if new in paths else new))
    if chosen is None:
        return
    path = paths[int(chosen.key)] if chosen.key else new
    if not await _edit(repl, path):
        repl.say(f"{short_path(path)} is unchanged")
        return
    states = {path: row[-1] for path, row in await asyncio.to_thread(_instructions, repl)}
    told = "the model gets it with your next message"
    states |= dict.fromkeys((each for each, _ in facts), told)
    now = states.get(path, "it is empty, so the model gets nothing from it")
    repl.say(f"{short_path(path)} is saved · {now}")


def memory_feature(repl: CommandContext) -> "MemoryFeature":
    """Return the session's memory feature. Raises UsageError if it is off."""
    from ...features.memory import MemoryFeature

    feature = repl.agent.features.find(MemoryFeature)
    if feature is None:
        raise UsageError("the memory is off", hint="See features.off.")
    return feature


async def _forget(repl: CommandContext, argument: str) -> None:
    """Remove facts. Raises CtxagentError."""
    act, *names = argument.split()
    if act != "forget" or not names:
        raise UsageError(f"/memory {argument}: name the fact to forget", hint="/memory forget NAME")
    folder = memory_feature(repl).folder
    for draft in [folder.forget(name) for name in dict.fromkeys(names)]:
        await asyncio.to_thread(folder.write, draft)
        repl.say(f"forgotten: {draft.name}")


def _instructions(repl: CommandContext) -> list[tuple[Path, _Row]]:
    """Return the instruction files with their rows. Blocks."""
    from ...features.environment import EnvironmentFeature

    feature = repl.agent.features.find(EnvironmentFeature)
    return [
        (
            each.path,
            (
                path_within(each.path, repl.services.cwd),
                count_of(each.tokens, "token"),
                each.origin,
                each.state,
            ),
        )
        for each in (feature.instruction_states() if feature else ())
    ]


def _facts(repl: CommandContext) -> list[tuple[Path, _Row]]:
    """Return the facts with their rows. Blocks."""
    from ...context.tokens import estimate
    from ...features.memory import MemoryFeature

    feature = repl.agent.features.find(MemoryFeature)
    facts = feature.folder.facts()[0] if feature else ()
    return [
        (each.path, (each.name, count_of(estimate(each.text), "token"), "memory", each.about))
        for each in facts
    ]


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
        title=f"Instruction files and facts · {count_of(len(rows), 'file')}",
        load=load,
        action="open it in your editor",
        empty_text="there are none",
        preview=lambda key: [("", rows[int(key)][-1] if key else "")],
        preview_rows=3,
    )


async def _edit(repl: CommandContext, path: Path) -> bool:
    """Let the user edit a file, and save it; return True if it changed. Raises CtxagentError."""
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
        raise CtxagentError(
            f"cannot read {path}: {why}", hint="Correct the file in your editor."
        ) from error


def _save(path: Path, before: str, text: str) -> None:
    """Replace a file. If another process changed it, keep it and save the text next to it. Raises
    CtxagentError.
    """
    changed = _read(path) != before
    target = path.with_name(f"{path.name}.edited") if changed else path.resolve()
    try:
        with replacing(target, new_mode=NEW_FILE_MODE, keep_mode=True) as file:
            file.write(text.encode())
    except OSError as error:
        raise CtxagentError(
            f"cannot write {target}: {error.strerror}", hint="Check the permissions of the folder."
        ) from error
    if changed:
        raise CtxagentError(
            f"another program changed {path} meanwhile", hint=f"Your text is in {target}."
        )
