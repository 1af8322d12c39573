"""The user's own additions to the conversation: shell commands, and notes kept in every summary."""

import asyncio
from typing import TYPE_CHECKING

from ....tools.system.shorten import one_line
from ...errors import UsageError
from ...lazy import regex
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...loop.agent import AgentState

MAX_PINS_SHARE = 0.10  # share of the context window
MAX_READ_CHARS = 4_000_000  # of a text to pin: no context window has room for more
REMEMBER = "--remember"  # flag at either end of a note
MAX_SHOWN_CHARS = 80  # of a pinned text in the list
_REF = regex(r"#?(-?\d+)")
_CD = regex(r"(?:cd|pushd)(?:\s+[^;&|\n]*)?")


@command("run a shell command yourself: !COMMAND", argument="COMMAND", group="files and work")
async def _shell(repl: CommandContext, argument: str) -> None:
    from ...loop import user_commands

    if not argument:
        raise UsageError(
            "no command given",
            hint="!COMMAND runs a command here without a question; the agent sees the command and "
            "its output with your next message.",
        )
    await user_commands.run_shell_command(repl.agent, argument)
    if _CD.fullmatch(argument):
        repl.say("cd applies to one command only: the next command runs in the project again")


@command(
    "keep text in every summary; --remember: in later sessions too",
    argument="[REF|WORDS]",
    complete=completions.refs,
    group="context",
)
async def _pin(repl: CommandContext, argument: str) -> None:
    from ...loop.user_commands import pin_note
    from ...session.entries import Pin
    from ...session.store import find_text

    agent = repl.agent
    if not argument:
        pins = agent.ledger.pins.items()
        rows = [(f"#{ref}", one_line(text, MAX_SHOWN_CHARS)) for ref, text in pins]
        if rows:
            repl.show_table(rows, wrap=False)
        else:
            repl.say("nothing is pinned: /pin REF, or #WORDS")
        return
    if found := _REF.fullmatch(argument):
        ref = int(found[1])
        found_text = find_text(agent.log.path, ref)
        text = found_text.part(0, MAX_READ_CHARS)[0] if found_text else ""
        if not text.strip():
            raise UsageError(f"there is no entry #{ref} with text", hint="/log lists the newest.")
        _check_room(agent, text)
        agent.record(Pin(ref=ref, text=text))
    else:
        text, is_remembered = _without_flag(argument)
        if not text:
            raise UsageError("there is nothing to remember", hint=f"#WORDS {REMEMBER}")
        _check_room(agent, text)
        if is_remembered:
            await _remember(repl, text)
        ref = await pin_note(agent, text)
    shown = one_line(text, MAX_SHOWN_CHARS)
    repl.say(f"pinned as #{ref}: {shown} · /unpin {ref} removes it")


async def _remember(repl: CommandContext, text: str) -> None:
    """Save a text as a fact for later sessions. Raises CtxagentError."""
    from .memory import memory_feature

    draft = await asyncio.to_thread(memory_feature(repl).remember, text)
    repl.say(f"remembered as {draft.name} · /memory forget {draft.name} removes it")


def _without_flag(note: str) -> tuple[str, bool]:
    """Remove `--remember` from either end; return the rest and whether the flag was there."""
    for text in (note.removeprefix(f"{REMEMBER} "), note.removesuffix(f" {REMEMBER}")):
        if text != note:
            return text.strip(), True
    return ("", True) if note == REMEMBER else (note, False)


@command(
    "stop keeping a pinned entry",
    argument="REF",
    complete=completions.pinned,
    group="context",
)
async def _unpin(repl: CommandContext, argument: str) -> None:
    from ...loop.user_commands import unpin

    if not argument:
        raise UsageError("name the entry: /unpin REF", hint="/pin lists what is pinned.")
    found = _REF.fullmatch(argument)
    if found is None or int(found[1]) not in repl.agent.ledger.pins:
        raise UsageError(f"{argument} is not pinned", hint="/pin lists what is pinned.")
    unpin(repl.agent, int(found[1]))
    repl.say(f"#{found[1]} is no longer pinned")


def _check_room(agent: "AgentState", text: str) -> None:
    """Raise UsageError if the pins would exceed their share of the window."""
    from ...compaction.summary.request import pinned_section
    from ...context import tokens

    room = int(MAX_PINS_SHARE * agent.model.current_window().size)
    if tokens.estimate(pinned_section({**agent.ledger.pins, 0: text})) > room:
        raise UsageError(
            f"all pins together may have {room:,} tokens, a tenth of the context window",
            hint="/unpin one first; /pin lists them.",
        )
