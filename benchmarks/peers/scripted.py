"""The script that replaces the model, and its measurements of each agent's requests.

A recorded reply may write facts that came from the agent's own tools and that the request no longer
contains. The script first fetches these facts again, as a model would have to: with `Recall` if
there is one, else by repeating the call that returned them.

The server is the strict one of the tests. Requests are first normalized to the form it accepts, so
that only rules that apply to every client are checked.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import TERMS
from replies import Call, Command, NewContent, Page, Reply

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.compaction_block import COMPACTION
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.replay.cache_prices import CacheBill, PromptCache
from ctxagent.agent.replay.lost_facts import FactDetector, facts_in
from ctxagent.tests.support.server.loopback import Fail, Say, Server, Step
from ctxagent.tests.support.server.validator import Invalid

Body = dict[str, Any]
TASK = "Run the commands, one after another."
SUMMARY = """## Session Intent
Run the commands, one after another. (This summary is scripted: no model wrote it.)
## Key Decisions
1. One after another.
## Current State
- Done: the first ones.
## Critical Facts
{facts}
## Next Steps
1. Run the next one.
"""
SUMMARY_TOKENS = 1_500  # maximum tokens of the facts in a summary
ROUNDS = 3  # maximum rounds of repeated calls before one reply
MAX_AGAIN = 8  # maximum calls in a round
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
    """Server for any client of the Messages API."""

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        if COMPACTION in body:  # the server offers no compaction
            return Fail(400, f"{COMPACTION}: Extra inputs are not permitted"), "", {}
        return super().answer(common(body), headers, raw)


@dataclass(slots=True)
class Memory:
    """The results that came into the context, to find those that a reply needs and the request
    lacks.
    """

    again: dict[int, Call] = field(default_factory=dict)  # calls by the number of their result
    _facts: FactDetector = field(default_factory=FactDetector)
    _added: int = 0

    def add(self, text: str, source: Call) -> None:
        """Record the result of a call."""
        self._added += 1
        self._facts.add(self._added, text, is_result=True)
        self.again[self._added] = source

    def lacking(self, reply: Reply, body: Body) -> dict[Call, str]:
        """Return the calls whose results contain facts that the reply writes and the request lacks,
        each with one of these facts.
        """
        found = self._facts.find(0, written(reply), lambda _: True, lambda: _whole_text(body))
        needed: dict[Call, str] = {}
        for fact in found:
            needed.setdefault(self.again[fact.ref], fact.text)
        return dict([*needed.items()][:MAX_AGAIN])


@dataclass(slots=True)
class Script:
    """Player of one reply per request. A request without a shell tool is treated as a request for a
    summary. `clock` returns the CPU and wall seconds when the first request arrives.
    """

    replies: Sequence[Reply]
    window: int
    clock: Callable[[], tuple[float, float]]
    started: tuple[float, float] = (0.0, 0.0)
    said: int = 0  # replies sent
    asked: int = 0  # calls requested
    ended: bool = False
    whole: int = 0  # outputs that came back complete
    summaries: int = 0
    too_long: int = 0
    first: int = 0
    peak: int = 0
    bill: CacheBill = field(default_factory=CacheBill)
    again: int = 0  # calls that fetched a fact again
    again_bill: CacheBill = field(default_factory=CacheBill)  # of the requests after these
    _memory: Memory = field(default_factory=Memory)
    _rounds: int = 0  # rounds so far before the next reply
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
        results = [_text(block) for block in newest if block["type"] == "tool_result"]
        if self._rounds:
            self.again_bill += bill
        elif self.said:
            calls = self.replies[self.said - 1].calls
            self.whole += sum(any(_is_whole(call, text) for text in results) for call in calls)
            for call, text in zip(calls, results, strict=False):
                if not isinstance(call, NewContent):
                    self._memory.add(text, call)
        if self.said == len(self.replies):
            self.ended = True
            return Say("The script is at its end.")
        reply = self.replies[self.said]
        lacking = self._memory.lacking(reply, body) if self._rounds < ROUNDS else {}
        if lacking:
            self._rounds += 1
            self.again += len(lacking)
            return Say("I need this again.", tools=[*_calls_again(lacking, body)])
        self._rounds = 0
        self.said += 1
        self.asked += len(reply.calls)
        return Say(reply.text, tools=[_tool_call(call, body) for call in reply.calls])

    def aside(self, body: Body) -> Step | None:
        """Return the answer to a request outside the task, such as for a summary; None for a
        request of the task.
        """
        newest = body["messages"][-1]["content"][-1]
        if _tool(body, *SHELLS) and not is_summary_question(newest.get("text", "")):
            return None
        self.summaries += 1
        return Say(SUMMARY.format(facts=_facts_of(body)))


def written(reply: Reply) -> str:
    """Return the text and call arguments that a reply writes."""
    return "\n".join([reply.text, *(call.asked for call in reply.calls)])


def _calls_again(lacking: Mapping[Call, str], body: Body) -> Iterator[tuple[str, Body]]:
    for call, fact in lacking.items():
        recall = _tool(body, "recall")
        yield (recall["name"], {"query": fact}) if recall else _tool_call(call, body)


def _facts_of(body: Body) -> str:
    """Return the most frequent facts of a conversation, up to SUMMARY_TOKENS."""
    named = Counter(text for _, text in facts_in(_whole_text(body)))
    kept, room = list[str](), SUMMARY_TOKENS
    for text, _ in named.most_common():
        room -= estimate(text) + 2
        if room < 0:
            break
        kept.append(f"- {text}")
    return "\n".join(kept)


def _whole_text(body: Body) -> str:
    """Return all texts of a request's messages and system prompt."""
    parts = [block for message in body["messages"] for block in message["content"]]
    return "\n".join(_texts([*body.get("system", []), *parts]))


def _texts(blocks: Sequence[Body]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "tool_use":
            values = block["input"].values()
            yield "\n".join(v if isinstance(v, str) else json.dumps(v) for v in values)
        else:
            yield _text(block) if block["type"] == "tool_result" else block.get("text", "")


def _tool_call(call: Call, body: Body) -> tuple[str, Body]:
    """Return the call as a call of this agent's tool, and prepare its file."""
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
    """Return the name of the tool's argument for a file path."""
    return next(name for name in PATHS if name in tool["input_schema"]["properties"])


def _is_whole(call: Call, text: str) -> bool:
    """Return True if a result contains the complete output. Tools that read files may add line
    numbers.
    """
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
    """Normalize a request to ctxagent's form: texts as blocks, one message per change of role, and
    no settings unrelated to the conversation. System messages between other messages become user
    messages.
    """
    one = {name: body[name] for name in FIELDS if name in body}
    if "system" in body:
        one["system"] = _blocks(body["system"])
    if "tools" in body:
        one["tools"] = [_only(tool, OF_TOOL) for tool in body["tools"] if "input_schema" in tool]
    one["messages"] = []
    for message in body["messages"]:
        content = _blocks(message["content"])
        role = "user" if message["role"] == "system" else message["role"]
        if one["messages"] and one["messages"][-1]["role"] == role:
            one["messages"][-1]["content"] += content
        else:
            one["messages"].append({"role": role, "content": content})
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
    """Keep the named fields; a null field is dropped, which is equivalent."""
    return {name: whole[name] for name in names if whole.get(name) is not None}
