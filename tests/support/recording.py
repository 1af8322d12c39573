"""A recorded session played again through the real loop: its words, replies and results, with our
engine deciding what stays in the context.

played = play(recording, folder, window=20_000, record=USELESS)
played.summaries, played.context(), played.lost()

A recording is what the Messages API would have been sent: `{"system": "…", "messages": [{"role",
"content": [blocks]}]}`, where every call is answered in the next user message. Tools are known by
the names that other agents give them; what they changed follows from their arguments.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.compaction.summarize import is_question
from ctxagent.agent.context.view import shown
from ctxagent.agent.context.wire import Request
from ctxagent.agent.model.scripted import ScriptedModel, Step
from ctxagent.agent.record.entries import Summary, ToolResult
from ctxagent.agent.record.sessions import plain, whole_text
from ctxagent.tools.base import Context, Output, Params, Tool

from .conversation import Conversation
from .validator import validate

USELESS = """## Session Intent
The person wants something done in this project.
## Key Decisions
None.
## Current State
Phase: the work goes on
## Next Steps
None.
"""
_EDITS = {"edit", "write", "create", "str_replace", "insert", "multiedit"}
_COMMANDS = {"bash", "exec_command", "shell"}
_PATH = ("file_path", "filePath", "path")
_PATCHED = re.compile(r'\*\*\* (Add|Update|Delete) File: ([^\s\\"]+)')
_ACTIONS = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_FAILED = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code)?|Exit code:?|code) (\d+)", re.I)


class AnyParams(Params):
    model_config = ConfigDict(extra="allow")


class Recorded(Tool[AnyParams]):
    """A tool whose results were recorded: it gives them in the order of its calls."""

    description = "As it was recorded."
    effect = "none"
    Params = AnyParams

    def __init__(self, name: str, results: list[Output]) -> None:
        self.name = name  # type: ignore[misc]
        self.results = results

    async def run(self, params: AnyParams, context: Context) -> Output:
        return self.results.pop(0)


@dataclass
class Played:
    """What came of it. `given` are the texts of the results, in the order of the log."""

    talk: Conversation
    given: list[str] = field(default_factory=list)

    @property
    def summaries(self) -> list[Summary]:
        return list(self.talk.of(Summary))

    def context(self) -> str:
        """All text that the next request would have."""
        texts = []
        for item in self.talk.loop.view.items:
            for block in shown(item):
                texts.append(str(block.get("text", "")) + str(block.get("input", "")))
                texts.append(plain(block["content"]) if "content" in block else "")
        return "\n".join(texts)

    def modified(self) -> list[str]:
        return list(self.talk.loop.ledger.files)

    def missing_paths(self) -> list[str]:
        """Paths the session changed that the context does not name."""
        context = self.context()
        return [path for path in self.modified() if path not in context]

    def lost(self) -> list[int]:
        """Refs of results whose text does not come back whole."""
        log = self.talk.loop.log.path
        results = [entry.seq for entry in self.talk.of(ToolResult)]
        assert len(results) == len(self.given)
        return [
            seq for seq, text in zip(results, self.given, strict=True)
            if whole_text(log, seq) != text
        ]  # fmt: skip


def made(calls: int = 120) -> dict[str, Any]:
    """A recording of our own making: an agent that reads, edits, runs and fails, told now and then
    what it must not do. Every result is different, and every fifth is large."""
    asked = [
        "Bring `src/billing` over to decimal amounts. Never touch migrations/0007_freeze.sql.",
        "Use the ROUND_HALF_EVEN of the decimal module, not round(). The ticket is PAY-4711.",
        "Now the reports, please. Do not change the column names of the CSV.",
    ]
    messages: list[dict[str, Any]] = []

    def add(role: str, *blocks: dict[str, Any]) -> None:
        messages.append({"role": role, "content": list(blocks)})

    for number in range(calls):
        if number % (calls // len(asked)) == 0:
            text = asked[min(number * len(asked) // calls, len(asked) - 1)]
            if number:
                add("assistant", {"type": "text", "text": f"Part {number} is done."})
            add("user", {"type": "text", "text": text})
        name, given, told, failed = _work(number)
        use = {"type": "tool_use", "id": f"r{number}", "name": name, "input": given}
        said = f"We decided to keep module {number} apart because its tests are slow."
        add("assistant", {"type": "text", "text": said}, use)
        result = {"type": "tool_result", "tool_use_id": f"r{number}", "content": told}
        add("user", {**result, "is_error": failed})
    return {"system": "", "messages": messages}


def _work(number: int) -> tuple[str, dict[str, Any], str, bool]:
    path = f"src/billing/part_{number:03}/amounts.py"
    lines = [f"{number}.{n}: total = money({n * number}) # row {n}" for n in range(40)]
    large = "\n".join(lines * (8 if number % 5 == 0 else 1))
    if number % 4 == 1:
        return "Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, "Done.", False
    if number % 4 == 2:
        code = number % 8 == 2
        tail = f"E   AssertionError: part {number} rounds to {number}.005" if code else "ok"
        command = {"command": f"pytest -q tests/part_{number:03}"}
        return "Bash", command, f"{large}\n{tail}\nexit code {int(code)}", code
    return "Read", {"file_path": path}, large, False


def play(
    recording: dict[str, Any],
    cwd: Path,
    *,
    window: int,
    record: str = USELESS,
    policy: Policy = DEFAULT,
) -> Played:
    """Play a recording in a folder of its own. Every request is held against the API's rules."""
    steps = list(_steps(recording["messages"]))
    results: dict[str, list[Output]] = {}
    turns: list[str] = []
    script: list[Step] = []
    given: list[str] = []
    for words, step, outputs in steps:
        if words is not None:
            if _open(script):
                script.append(Step(text="[the person speaks]"))
            turns.append(words)
            continue
        script.append(step)
        for (name, _), output in zip(step.tools, outputs, strict=True):
            results.setdefault(name, []).append(output)
            given.append(output.text)
    script_left = iter(script)

    def answer(request: Request) -> Step:
        asked = request.messages[-1]["content"]
        if is_question(str(asked[-1].get("text", ""))):
            return Step(text=record)
        if not any(block["type"] == "tool_result" for block in asked) and _is_check(asked[-1]):
            return Step(
                text="[nothing was recorded here]"
            )  # a question that the agent then had not
        return next(script_left, Step(text="[the recording ends]"))

    talk = Conversation(
        cwd,
        tools=[Recorded(name, outputs) for name, outputs in results.items()],
        model=ScriptedModel(answer, check=validate, window=window),
        policy=replace(policy),
    )

    async def run() -> None:
        for words in turns:
            finished = await talk.loop.turn(words)
            assert finished.status == "ok", finished
        await talk.loop.close()

    asyncio.run(run())
    return Played(talk, given)


def _is_check(block: dict[str, Any]) -> bool:
    return str(block.get("text", "")).startswith("[Goal check]")


def _open(script: Sequence[Step]) -> bool:
    return bool(script) and bool(script[-1].tools)


def _steps(
    messages: Sequence[dict[str, Any]],
) -> Iterator[tuple[str | None, Step, list[Output]]]:
    """In order: the person's words, or a reply with the results of its calls."""
    answers = {
        block["tool_use_id"]: block
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    said = False
    for message in messages:
        blocks = message["content"]
        text = "\n".join(b["text"] for b in blocks if b["type"] == "text" and b["text"].strip())
        if message["role"] == "user":
            if text:
                yield text, Step(), []
                said = True
            continue
        if not said:
            yield "Go on.", Step(), []
            said = True
        calls = [b for b in blocks if b["type"] == "tool_use"]
        tools = [(_named(b["name"], b["input"]), b["input"]) for b in calls]
        outputs = [
            _output(name, given, answers[b["id"]])
            for (name, given), b in zip(tools, calls, strict=True)
        ]
        yield None, Step(text=text or ("" if tools else "[nothing]"), tools=tools), outputs


def _named(name: str, given: dict[str, Any]) -> str:
    """Our name for a recorded tool; one that we have none for keeps its own."""
    low = name.lower()
    if low == "str_replace_editor":
        low = "read" if given.get("command") == "view" else "edit"
    ours = {**dict.fromkeys(_EDITS, "Edit"), **dict.fromkeys(_COMMANDS, "Bash")}
    ours |= {"read": "Read", "view": "Read", "grep": "Grep", "glob": "Glob", "write": "Write"}
    return ours.get(low) or re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]


def _output(name: str, given: dict[str, Any], answer: dict[str, Any]) -> Output:
    text, failed = answer["content"], bool(answer.get("is_error"))
    details: dict[str, Any] = {}
    path = next((given[key] for key in _PATH if isinstance(given.get(key), str)), None)
    if name == "Bash":
        code = 0
        if failed:
            found = _FAILED.search(text[:2_000])
            code = int(found[1]) if found else 1
        command = given.get("command") or given.get("cmd") or ""
        details = {"command": str(command), "exit_code": code}
        failed = failed or bool(code)
    elif name in ("Edit", "Write", "Read") and path:
        details = {"path": path, "created": name == "Write"}
        if name != "Read":
            new = str(given.get("content") or given.get("new_string") or given.get("new_str") or "")
            details |= {"added": new.count("\n") + 1, "removed": 0}
    patched = [(act, file) for value in given.values() if isinstance(value, str)
               for act, file in _PATCHED.findall(value)]  # fmt: skip
    if patched and not failed:
        details["changes"] = [
            {"path": file, "action": _ACTIONS[act], "added": 0, "removed": 0}
            for act, file in patched
        ]
    return Output(text or "[empty]", details, is_error=failed)
