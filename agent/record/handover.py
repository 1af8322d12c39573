"""Handing over: what a subagent has left in its folder, for its parent and for those after it.

A session has its subagents in `agents/<id>/`, each with an ordinary log. What a parent must know of
one stands in entries of its own log; what a process could not record there any more because it was
killed is made up for from the subagent's.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..errors import SessionError
from .archive import SUMMARY
from .entries import Agent, Assistant, End, Entry, Note, ToolResult, User
from .ledger import Ledger
from .log import NAME, Entries
from .sessions import AGENTS, file_text, placed, plain
from .totals import Totals

ANSWER = 8_000  # characters of an earlier answer that are handed on
LEAST = 500  # of each, where several are handed on together
LISTED = 12  # subagents that are listed

Status = Literal["done", "error", "interrupted", "limit"]
STATUS: dict[str, Status] = {  # how a subagent has ended, by how its turn has
    "ok": "done", "denied": "done", "error": "error", "limit": "limit",
    "interrupted": "interrupted",
}  # fmt: skip
_REF = re.compile(r"(?<![\w/&])#(\d{1,18})\b")  # not the `&#38;` of a summary
GO_ON = "Task with resume set to its id goes on with one where it was"


def log_of(folder: Path, id: str) -> Path:
    """The log of a subagent of the session in `folder`."""
    return folder / AGENTS / id / NAME


def prior(folder: Path, ledger: Ledger, type: str, description: str) -> str:
    """What a new subagent is given of the newest earlier one for the same work (S2 "Integration
    with Orchestrator"): its summary and its answer; "" when there was none."""
    wanted = description.casefold().split()
    same = [
        agent
        for agent in ledger.agents.values()
        if agent.type == type and agent.description.casefold().split() == wanted
    ]
    for agent in reversed(same):
        log = log_of(folder, agent.id)
        summary = (file_text(log.with_name(SUMMARY)) or "").strip()
        if summary or agent.answer:
            head = f"An earlier subagent was given the same work; it ended as: {agent.status}."
            said = f"Its answer:\n{beginning(agent.answer, ANSWER)}" if agent.answer else ""
            return outward("\n\n".join(filter(None, (head, summary, said))), log, _last(log))
    return ""


def outward(text: str, log: Path, last: int) -> str:
    """A subagent's text for other conversations: a ref to an entry of its `log`, which ends with
    entry `last`, names the log as well."""
    name = placed(log)[1]

    def named(found: re.Match[str]) -> str:
        return f"{name}{found[0]}" if 0 < int(found[1]) <= last else found[0]

    return _REF.sub(named, text)


def changed(before: Ledger, now: Ledger, id: str) -> list[dict[str, Any]]:
    """The files that a subagent has changed since `before`, as a result's details tell of them."""
    rows = []
    for shown, fact in now.files.items():
        known = before.files.get(shown)
        if known is not None and known.times == fact.times:
            continue
        path = now.absolute(shown)
        kind, _, digest = now.contents.get(path, "").partition(":")
        row = {
            "path": path,
            "action": fact.action,
            "added": fact.added - (known.added if known else 0),
            "removed": fact.removed - (known.removed if known else 0),
            "by": id,
        }
        rows.append(row | ({kind: digest} if digest else {}))
    return rows


def told_of(entries: Iterable[Entry], agent: Agent | None) -> Ledger:
    """What a parent knows by an entry of a subagent of what that has done."""
    ledger = Ledger()
    for entry in entries:
        if agent is not None and entry.seq <= agent.told:
            ledger.add(entry)
    return ledger


def left_behind(folder: Path, untold: Collection[str], agents: Iterable[Agent]) -> list[Entry]:
    """What must be recorded when a session goes on: for each of its subagents whose own log has
    more than the session's tells of, how it stands by that; and for the model, once, those whose
    results never came (`untold`), with the answers of the ones that had finished."""
    found, silent = list[Entry](), list[Agent]()
    for agent in agents:
        log = log_of(folder, agent.id)
        if agent.status == "running" or _last(log) > agent.told:
            *rows, agent = _caught_up(log, agent)
            found += [*rows, agent]
        if agent.id in untold:
            silent.append(agent)
    if silent:
        head = "The session was left while subagents were at work."
        told = "\n".join(filter(None, (f"{head} {listing(silent)}".strip(), _answers(silent))))
        found.append(User(content=told, source="notice"))
    return found


def listing(agents: Iterable[Agent]) -> str:
    """The subagents that did not finish, for the model; "" when all did."""
    rows = [
        f"- {agent.id} ({agent.type}): {agent.description}"
        for agent in agents
        if agent.status != "done"
    ]
    if not rows:
        return ""
    return "\n".join([f"Subagents that did not finish ({GO_ON}):", *rows[-LISTED:]])


def _answers(agents: Iterable[Agent]) -> str:
    """What those that did finish have answered, for the model; "" when none did."""
    done = [agent for agent in agents if agent.status == "done"][-LISTED:]
    if not done:
        return ""
    room = max(LEAST, ANSWER // len(done))
    texts = [
        f"{agent.id} ({agent.type}): {agent.description}\n{beginning(agent.answer, room)}"
        for agent in done
    ]
    return "\n\n".join(["Subagents that had finished, and their answers:", *texts])


def hear(untold: set[str], entry: Entry) -> None:
    """Fold one more entry into the set of the subagents that were begun and of which the model has
    heard nothing since, neither by their result nor by a notice."""
    if isinstance(entry, Agent) and entry.status == "running":
        untold.add(entry.id)
    elif isinstance(entry, ToolResult):
        untold.discard(str(entry.details.get("agent")))
    elif isinstance(entry, User) and entry.source == "notice" and untold:
        words = plain(entry.content)
        untold -= {id for id in untold if f"{id} (" in words}


def _caught_up(log: Path, agent: Agent) -> tuple[*tuple[Entry, ...], Agent]:
    """The files that a subagent has changed since it was told of, and how it stands now. One that
    was killed may have come to its end before; what a person has had it do by hand since then is
    not its answer, and counts in the sums alone."""
    totals, told, ledger, answer, end, turns, last = Totals(), Ledger(), Ledger(), "", "", 0, 0
    for entry in Entries(log) if log.is_file() else ():
        totals.add(entry)
        ledger.add(entry)
        last = max(last, entry.seq)
        if entry.seq <= agent.told:
            told.add(entry)
            continue
        turns += isinstance(entry, User) and entry.source == "person"
        if turns == 1 and isinstance(entry, Assistant) and entry.purpose == "turn":
            answer = "".join(str(b.get("text", "")) for b in entry.content) or answer
        elif turns == 1 and isinstance(entry, End):
            end = entry.status
    now = replace(agent, told=max(last, agent.told))
    if agent.status == "running":
        status = STATUS.get(end, "interrupted")
        now = replace(now, status=status, answer=outward(answer, log, last))
    rows = changed(told, ledger, agent.id)
    if not rows:
        return (totals.all.on(now),)
    text = f"{agent.id} had changed files that were not told of: {len(rows)}"
    return Note(topic="agent", text=text, data={"changes": rows}), totals.all.on(now)


def _last(log: Path) -> int:
    """The number of a log's last entry; 0 without one."""
    try:
        return next((entry.seq for entry in reversed(Entries(log))), 0)
    except SessionError:
        return 0


def beginning(text: str, most: int) -> str:
    """So many characters of a text at most, with a mark where it goes on."""
    return text if len(text) <= most else f"{text[:most]} …"
