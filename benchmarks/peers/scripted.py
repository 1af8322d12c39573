"""The script that stands in for the model, and what it counts of each agent's requests.

The server is the strict one of the tests. A request is first brought into the one form that it
takes, where the API allows several, so that only rules that hold for any client are left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import TERMS
from replies import Call, Command, NewContent, Page, Reply

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.compaction_block import COMPACTION
from ctxagent.agent.replay.cache_prices import CacheBill, PromptCache
from ctxagent.tests.support.server.loopback import Fail, Say, Server, Step
from ctxagent.tests.support.server.validator import Invalid

Body = dict[str, Any]
TASK = "Run the commands, one after another."
SUMMARY = """## Session Intent
Run the commands, one after another. (This summary is scripted: no model wrote it.)
## Key Decisions
1. One after another.
## Current State
- Done: the first ones; nothing failed.
## Next Steps
1. Run the next one.
"""
FIELDS = (
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream",
    "stop_sequences",
)  # fmt: skip
OF_BLOCK = {
    "text": ("type", "text", "cache_control"),
    "tool_use": ("type", "id", "name", "input", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
}
SHELLS = ("bash", "shell", "exec_command")
PATHS = ("path", "file_path", "filePath")
OF_TOOL = ("name", "description", "input_schema", "cache_control")


class Scripted(Server):
    """Speaks to any client of the Messages API."""

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        if COMPACTION in body:  # it summarises nothing by itself
            return Fail(400, f"{COMPACTION}: Extra inputs are not permitted"), "", {}
        return super().answer(common(body), headers, raw)


@dataclass(slots=True)
class Script:
    """Says one of `replies` at each request, and ends. A request that offers no shell is for a
    summary. `clock` tells when the first request has come."""

    replies: Sequence[Reply]
    window: int
    clock: Callable[[], tuple[float, float]]
    started: tuple[float, float] = (0.0, 0.0)
    said: int = 0  # replies
    asked: int = 0  # calls
    ended: bool = False
    whole: int = 0  # outputs that came back as they were
    summaries: int = 0
    too_long: int = 0
    first: int = 0
    peak: int = 0
    bill: CacheBill = field(default_factory=CacheBill)
    _cache: PromptCache = field(default_factory=lambda: PromptCache(TERMS.life))

    def __call__(self, body: Body) -> Step:
        bill = self._cache.charge(body)
        if not self.bill.prompt:
            self.first = bill.prompt
            self.started = self.clock()
        self.bill += bill
        self.peak = max(self.peak, bill.prompt)
        if bill.prompt > self.window:
            self.too_long += 1
            return Fail(400, f"prompt is too long: {bill.prompt} tokens > {self.window} maximum")
        if (aside := self.aside(body)) is not None:
            return aside
        newest = body["messages"][-1]["content"]
        if self.said:
            results = [_text(block) for block in newest if block["type"] == "tool_result"]
            calls = self.replies[self.said - 1].calls
            self.whole += sum(any(_is_whole(call, text) for text in results) for call in calls)
        if self.said == len(self.replies):
            self.ended = True
            return Say("The script is at its end.")
        reply = self.replies[self.said]
        self.said += 1
        self.asked += len(reply.calls)
        return Say(reply.text, tools=[_tool_call(call, body) for call in reply.calls])

    def aside(self, body: Body) -> Step | None:
        """The answer to a request that is no part of the task: one that is for a summary."""
        newest = body["messages"][-1]["content"][-1]
        if _tool(body, *SHELLS) and not is_summary_question(newest.get("text", "")):
            return None
        self.summaries += 1
        return Say(SUMMARY)


def _tool_call(call: Call, body: Body) -> tuple[str, Body]:
    """Return the call for a tool of this agent, and have its file as it needs it."""
    if isinstance(call, Command):
        tool = _required(body, *SHELLS)
        schema = tool["input_schema"]
        name = "cmd" if "cmd" in schema["properties"] else "command"
        texts = (n for n, given in schema["properties"].items() if given.get("type") == "string")
        more = {each: "Run it" for each in texts if each in schema.get("required", ())}
        return tool["name"], {**more, name: call.command}
    call.prepare()
    if isinstance(call, NewContent):
        tool = _required(body, "write", "writefile")
        return tool["name"], {_path_of(tool): str(call.file), "content": call.content}
    tool = _required(body, "read", "readfile")
    given: Body = {_path_of(tool): str(call.file)}
    for name in tool["input_schema"]["properties"]:
        if name in ("offset", "line_offset"):
            given[name] = call.first
        elif name in ("limit", "n_lines"):
            given[name] = call.output.count("\n") + 1
    return tool["name"], given


def _path_of(tool: Body) -> str:
    """The name of the argument that is a file's path."""
    return next(name for name in PATHS if name in tool["input_schema"]["properties"])


def _is_whole(call: Call, text: str) -> bool:
    """Return whether a result has all of the output. What reads files may number its lines."""
    if isinstance(call, Page):
        return all(line in text for line in call.output.splitlines())
    return isinstance(call, NewContent) or call.output.strip() in text


def _tool(body: Body, *names: str) -> Body | None:
    return next((t for t in body.get("tools", []) if t["name"].lower() in names), None)


def _required(body: Body, *names: str) -> Body:
    tool = _tool(body, *names)
    if tool is None:
        raise Invalid(f"the agent offers no tool named {' or '.join(names)}")
    return tool


def _text(result: Body) -> str:
    content = result.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def common(body: Body) -> Body:
    """The same request in the form that ctxagent uses: texts as blocks, a message for each change
    of role, and without settings that say nothing about the conversation."""
    one = {name: body[name] for name in FIELDS if name in body}
    if "system" in body:
        one["system"] = _blocks(body["system"])
    if "tools" in body:
        one["tools"] = [_only(tool, OF_TOOL) for tool in body["tools"] if "input_schema" in tool]
    one["messages"] = []
    for message in body["messages"]:
        content = _blocks(message["content"])
        if one["messages"] and one["messages"][-1]["role"] == message["role"]:
            one["messages"][-1]["content"] += content
        else:
            one["messages"].append({"role": message["role"], "content": content})
    return one


def _blocks(content: str | list[Body]) -> list[Body]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(block) for block in content]


def _block(block: Body) -> Body:
    kept = _only(block, OF_BLOCK.get(block["type"], tuple(block)))
    if block["type"] == "tool_result":
        if not kept.get("content"):  # a result may be empty
            kept.pop("content", None)
        elif isinstance(kept["content"], list):
            kept["content"] = _blocks(kept["content"])
    return kept


def _only(whole: Body, names: tuple[str, ...]) -> Body:
    """Without fields that are null either, which is the same as without them."""
    return {name: whole[name] for name in names if whole.get(name) is not None}
