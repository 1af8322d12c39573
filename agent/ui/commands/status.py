"""/status and /copy: the state of this session, and its last answer to the clipboard."""

import asyncio
import os
import re
from collections.abc import Reversible
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ....tools.system.unicode import clean
from ...errors import UsageError
from ...lazy import regex
from . import completions
from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...loop.agent import AgentState
    from ...session.entries import Entry

_CODE = regex(r"^ *(`{3,}|~{3,})[^\n]*\n(.*?)^ *\1", re.MULTILINE | re.DOTALL)


@command(
    "session, model, window, mode and cost on one screen",
    anytime=True,
    group="model and cost",
)
async def _status(repl: CommandContext, argument: str) -> None:
    from .. import compaction_plan
    from ..render import render
    from ..status import sandbox_mark, short_path

    agent, facts = repl.agent, repl.conversation.facts()
    sandbox, title = agent.context.sandbox, agent.ledger.title
    branch = f" · branch {facts['branch']}" if facts["branch"] else ""
    jobs, agents = len(repl.conversation.running_jobs), len(agent.context.agents)
    rows = [
        ("session", f"{facts['session']}{f' · {title}' if title else ''}"),
        ("log", short_path(agent.log.path)),
        ("directory", f"{short_path(repl.services.cwd)}{branch}"),
        *(("", short_path(Path(name))) for name in agent.approval.folders.names),
        *_fallback(agent),
        ("model", f"{facts['model']} · effort {facts['effort'] or 'model default'}"),
        ("window", compaction_plan.usage_line(agent.model.current_window())),
        ("mode", facts["mode"]),
        ("sandbox", f"{sandbox_mark(sandbox)} {sandbox.describe()}".strip() if sandbox else "off"),
        ("cost", render.price(facts["cost_usd"])),
        ("running", f"{jobs:,} jobs, {agents:,} subagents"),
        ("version", facts["version"]),
    ]
    repl.show_table(rows)


def _fallback(agent: "AgentState") -> list[tuple[str, str]]:
    """Return a row with the overloaded model that the fallback replaces, if there is one."""
    first, seconds = agent.model.roles.overloaded
    if not first:
        return []
    again = datetime.now() + timedelta(seconds=seconds)
    when = f"from {again:%H:%M:%S} on" if seconds else "at the next request"
    return [("overloaded", f"{first}, retried {when}; the fallback is answering")]


@command(
    "copy the last answer, or the last code block",
    argument="[code]",
    anytime=True,
    complete=completions.fixed(("code",)),
    group="conversation",
)
async def _copy(repl: CommandContext, argument: str) -> None:
    if argument not in ("", "code"):
        raise UsageError(f"/copy does not take {argument!r}", hint="/copy or /copy code")
    what = "code block" if argument else "answer"
    text = await asyncio.to_thread(_last, repl.agent.log.entries(), code=bool(argument))
    if not text:
        raise UsageError(f"there is no {what} to copy yet", hint="/export writes the session.")
    repl.screen.copy(clean(text))
    repl.say(f"sent to the terminal's clipboard: the last {what}, {len(text):,} characters")
    if os.environ.get("TMUX"):
        repl.say("tmux passes it on after: tmux set -g set-clipboard on")


def _last(entries: "Reversible[Entry]", *, code: bool) -> str:
    """Return the newest text of the agent, or the newest code block in it; "" if there is none."""
    from ...session.entries import Assistant

    for entry in reversed(entries):
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            texts = [str(block["text"]) for block in entry.content if block.get("type") == "text"]
            text = "\n\n".join(filter(str.strip, texts))
            blocks = _CODE.findall(text)
            if found := (blocks[-1][1] if code and blocks else "" if code else text):
                return found
    return ""
