"""Commands about the work: its intent and phase, AGENTS.md, folded output, and the setup."""

import asyncio
from typing import TYPE_CHECKING

from ...errors import CompactionFailed, UsageError
from ...lazy import regex
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...compaction.phases import PhaseForm

SUMMARISING = "summarising the work of the phase"
_NAME = regex(r"\w[\w -]{0,39}")


@command("what this session is for, and how far it has got", anytime=True, group="context")
async def _intent(repl: CommandContext, argument: str) -> None:
    from .. import compaction_report

    agent = repl.agent
    repl.show(compaction_report.intent(agent.view.summary, agent.ledger.typed_messages))


@command(
    "let the agent write AGENTS.md from what it finds here",
    argument="[WORDS]",
    group="files and work",
)
async def _init(repl: CommandContext, argument: str) -> None:
    from ...prompts import prompt_text

    repl.send_prompt("\n\n".join(filter(None, (prompt_text("init").strip(), argument))))


@command(
    "show the phase, or start a new one with a summary",
    argument="[NAME]",
    complete=completions.phases,
    group="context",
)
async def _phase(repl: CommandContext, argument: str) -> None:
    from ...compaction import phases

    agent = repl.agent
    old, new = agent.ledger.phase, argument.strip().lower()
    if not new:
        repl.say(_describe(phases.phase_form(old)) if old else "no phase is set")
        repl.say(f"/phase NAME changes it: {', '.join(phases.PHASES)}, or any other")
        return
    if not _NAME.fullmatch(new):
        raise UsageError(
            f"{new!r} is not a name for a phase", hint="Letters, digits, spaces and -, at most 40."
        )
    if new != old:
        await _change(repl, old, new)
    repl.say(_describe(phases.phase_form(new)))


async def _change(repl: CommandContext, old: str, new: str) -> None:
    """Change the phase, and summarise the work of the old phase.

    The phase is recorded first, so that text re-inserted after the summary names it. If the summary
    is interrupted, the change is undone.
    """
    from ...compaction import phases
    from ...session.entries import Note, User

    agent = repl.agent
    if old:
        repl.show_activity(SUMMARISING)
        await agent.model.window()
    agent.record(Note(topic=phases.PHASE_TOPIC, text=new, data={"from": old}))
    if old:
        try:
            trigger = f"phase: {old} to {new}"
            form = phases.phase_form(old)
            words = form.word_limits[1] if form.word_limits else None
            await agent.engine.compact(form.instructions, trigger=trigger, max_words=words)
        except CompactionFailed as error:
            repl.say(f"not summarised: {error.message}")
        except asyncio.CancelledError:
            agent.record(Note(topic=phases.PHASE_TOPIC, text=old, data={"from": new}))
            raise
    if agent.view.items:  # announce it only if there is a conversation
        form = phases.phase_form(new)
        text = f"The phase of the work is now {form.name}. It ends with a record of "
        text += f"{form.description}."
        agent.record(User(content=text, source="notice"))


def _describe(form: "PhaseForm") -> str:
    size = (
        f", in {form.word_limits[0]:,} to {form.word_limits[1]:,} words" if form.word_limits else ""
    )
    return f"phase: {form.name} · leaving it turns the work into {form.description}{size}"


@command(
    "show the last folded result in full; again: the previous one",
    anytime=True,
    group="context",
)
async def _unfold(repl: CommandContext, argument: str) -> None:
    await repl.unfold()


@command("check the set-up", anytime=True, group="setup")
async def _doctor(repl: CommandContext, argument: str) -> None:
    repl.show_table(await asyncio.to_thread(repl.checks))
