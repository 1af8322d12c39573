"""Commands about the work: its intent, phase and plan, and the user's own additions to it.

The additions are shell commands, and notes kept in every summary. Other commands create AGENTS.md,
unfold output and check the setup.
"""

import asyncio
from typing import TYPE_CHECKING

from ....tools.system.phrasing import one_line
from ...errors import CompactionFailed, UsageError
from ...extensions.command import Prompt, command
from ...lazy import regex
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from ...compaction.phases import PhaseForm
    from ...loop.agent import AgentState

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
async def _init(repl: CommandContext, argument: str) -> Prompt:
    from ...prompts import prompt_text

    return Prompt("\n\n".join(filter(None, (prompt_text("init"), argument))))


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


NO_PLAN = "there is no plan"
HOW_TO_PLAN = "In the mode plan (`/permissions plan`) the agent proposes one."


@command(
    "the plan you approved; edit it, or drop it",
    argument="[edit | drop]",
    complete=completions.fixed(("edit", "drop")),
    group="files and work",
)
async def _plan(repl: CommandContext, argument: str) -> None:
    from ...features.plan import PLAN_FILE, PlanFeature

    agent = repl.agent
    feature = agent.features.find(PlanFeature)
    fact = agent.ledger.plan
    if argument not in ("", "edit", "drop"):
        raise UsageError(f"/plan does not take {argument!r}", hint="/plan, /plan edit, /plan drop")
    if feature is None and (argument or fact is None):
        raise UsageError("plans are switched off", hint="See the setting features.off.")
    if fact is None:
        raise UsageError(NO_PLAN, hint=HOW_TO_PLAN)
    if argument == "drop" and feature:
        feature.drop()
        repl.say("the plan is dropped; the todo list is unchanged")
        return
    if argument == "edit" and feature:
        text = (await repl.screen.edit(fact.text, PLAN_FILE)).strip()
        if text == fact.text.strip():
            repl.say("the plan is unchanged")
            return
        feature.check(text)
        await agent.begin()
        feature.keep(text)
        repl.say("the plan is saved; the agent gets it with your next message")
        return
    repl.show_report(fact.text)
    state = "approved" if fact.agreed else "proposed, not approved"
    todos = agent.ledger.todos
    done = sum(todo["status"] == "completed" for todo in todos)
    repl.say(f"{state} in #{fact.ref} · {done} of {len(todos)} on the todo list done")


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
        text = pin_entry(agent, ref)
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


def pin_entry(agent: "AgentState", ref: int) -> str:
    """Pin the text of a log entry, and return it. Raises UsageError."""
    from ...session.entries import Pin
    from ...session.store import find_text

    found = find_text(agent.log.path, ref)
    text = found.part(0, MAX_READ_CHARS)[0] if found else ""
    if not text.strip():
        raise UsageError(f"there is no entry #{ref} with text", hint="/log lists the newest.")
    _check_room(agent, text)
    agent.record(Pin(ref=ref, text=text))
    return text


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
