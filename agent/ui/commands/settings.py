"""Commands that show and change the session's effort, permissions, extensions and tools."""

import asyncio

from ...errors import UsageError
from ..conversation.open_session import MODES
from . import completions
from .command_context import CommandContext
from .registry import command

EFFORTS = ("low", "medium", "high", "xhigh", "max")
BYPASS_CHOICES = "[y]es, ask nothing from now on · [n]o · Enter: no"


@command(
    "show or set how hard the model thinks",
    argument="[LEVEL]",
    complete=completions.fixed(EFFORTS),
    group="model and cost",
)
async def _effort(repl: CommandContext, argument: str) -> None:
    if argument and argument not in EFFORTS:
        raise UsageError(f"there is no effort {argument!r}", hint=f"One of {', '.join(EFFORTS)}.")
    if argument:
        repl.agent.model.effort = argument
    repl.say(f"effort: {repl.agent.model.effort or 'model default'}")


@command(
    "show the rules, or set the mode",
    argument="[MODE | forget RULE]",
    anytime=True,
    complete=completions.fixed(MODES, also=completions.allow_rules),
    group="setup",
)
async def _permissions(repl: CommandContext, argument: str) -> None:
    approval = repl.agent.approval
    word, _, rule = argument.partition(" ")
    if word == "forget":
        await _forget(repl, rule.strip())
        return
    if argument:
        mode = next((mode for mode in MODES if mode == argument), None)
        if mode is None:
            raise UsageError(f"there is no mode {argument!r}", hint=f"One of {', '.join(MODES)}.")
        if mode == "bypass" and not await _confirm_bypass(repl):
            repl.say(f"the mode stays {approval.mode}")
            return
        repl.conversation.set_mode(mode)
    sandbox = repl.agent.context.sandbox
    confined = ("sandbox", sandbox.describe() if sandbox else "off", "")
    rows = [("mode", approval.mode, ""), confined]
    if approval.sandboxed:
        why = f"you are asked anyway: {approval.unconfined}" if approval.unconfined else ""
        rows.append(("confined", why or "sandboxed commands run without a question", ""))
    repl.show_table([*rows, *_rules(repl)])


async def _confirm_bypass(repl: CommandContext) -> bool:
    """Ask whether to enter bypass, unless the session began with it. Raises UsageError while
    another question is open.
    """
    if "bypass" in repl.conversation.modes:
        return True
    if repl.questions.is_asking:
        raise UsageError("bypass needs a confirmation", hint="Answer the open question first.")
    answer = await repl.questions.choose(BYPASS_CHOICES, "yn")
    return answer.strip().lower() in ("y", "yes")


def _rules(repl: CommandContext) -> list[tuple[str, str, str]]:
    """Return rows of (effect, rule, origin)."""
    return [
        (
            "allow" if kind == "session" else kind,
            rule,
            repl.services.rules.origin(kind, rule) if repl.services.rules else "",
        )
        for kind, rules in repl.agent.approval.rules().items()
        for rule in rules
    ]


async def _forget(repl: CommandContext, text: str) -> None:
    """Remove an allow rule from the session and from the settings files.

    Without a rule, list the rules that can be removed.
    """
    from ...permissions.rules import parse_rule
    from ...session.entries import Note

    if not text:
        found = [(rule, origin) for kind, rule, origin in _rules(repl) if kind == "allow"]
        if not found:
            raise UsageError("there is no rule to forget", hint="There are no allow rules.")
        repl.say("/permissions forget RULE, one of these:")
        repl.show_table(found)
        return
    rule = str(parse_rule(text))
    known = repl.agent.approval.revoke(rule)
    files = await asyncio.to_thread(repl.services.rules.remove, rule) if repl.services.rules else []
    if not (known or files):
        raise UsageError(f"there is no rule {rule}", hint="/permissions lists the rules.")
    if repl.agent.log.last_seq:
        data = {"answer": "forgotten", "rule": rule, "where": ", ".join(files)}
        repl.agent.record(Note(topic="permission", text=f"forgotten: {rule}", data=data))
    where = f" · removed from {', '.join(files)}" if files else ""
    repl.say(f"forgotten: {rule}{where}")


@command("load the extensions again", group="setup")
async def _reload(repl: CommandContext, argument: str) -> None:
    if repl.services.reload_extensions is None:
        raise UsageError("extensions cannot be loaded here", hint="Start ctxagent again.")
    names, warnings = await repl.services.reload_extensions(repl.agent)
    for warning in warnings:
        repl.notify("warning", warning)
    repl.say(f"loaded: {', '.join(names) or 'no extension'}")


@command("the tools the model has", anytime=True, group="model and cost")
async def _tools(repl: CommandContext, argument: str) -> None:
    rows = [
        (t.name, t.effect, t.description.strip().split("\n")[0]) for t in repl.agent.handle.tools
    ]
    repl.show_table(rows)
