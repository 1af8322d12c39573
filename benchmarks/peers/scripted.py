"""The script that replaces the model, and its measurements of each agent's requests.

A recorded reply may write facts that came from the agent's own tools and that the request no longer
contains. The script first fetches these facts again, as a model would have to: with a tool that
recalls, or from the file that the request names in place of the result, else by repeating the call.

The server is the strict one of the tests. Requests are first normalized to the form it accepts, so
that only rules that apply to every client are checked.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import TERMS
from replies import END, Call, Command, NewContent, Page, Reply, Subagent, Wait

from ctxagent.addons.replay.cache_prices import CacheBill, PromptCache
from ctxagent.addons.replay.lost_facts import FactDetector, facts_in
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.context.items import COMPACTION
from ctxagent.agent.context.tokens import estimate
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
MAX_QUERY_CHARS = 200
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
SHELLS = ("bash", "shell", "exec_command", "run_shell_command")
READERS = ("read", "readfile", "read_file", "view")
WRITERS = ("write", "writefile", "write_file", "create")
AGENTS = ("agent", "task", "spawn_agent", "subagent")
WAITERS = ("wait_agent",)
AGENT_ID = re.compile(r'"agent_id":\s*"([^"]+)"')
PATHS = ("path", "file_path", "filePath", "absolute_path")
CONTENTS = ("content", "file_text")
MAX_OUTPUT_TOKENS = 50_000  # for shells whose call limits its output
RECALL = re.compile(r"(?:.*[-_.])?recall")  # names of the tool of ctxagent and of its proxy
REF = re.compile(r"[\w.-]+#\d+(?=[],. \n]|$)")
FILE = re.compile(r"/\S+/sessions/\S+/offloaded/\S+?\.md")
# Phrases that identify a client's summary request, in its system prompt or its last text.
COMPACTIONS = (
    "create a detailed summary of",  # claude, of the whole conversation or its newest part
    "CONTEXT CHECKPOINT COMPACTION",  # codex
    "context summarization agent",  # opencode
    "context summarization assistant",  # pi
    "compacts conversation context",  # kimi-cli
    "Create a handoff summary",  # Kimi Code
)
OF_TOOL = ("name", "description", "input_schema", "cache_control")


class Scripted(Server):
    """Server for any client of the Messages API."""

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        if COMPACTION in body:  # the server offers no compaction
            return Fail(400, f"{COMPACTION}: Extra inputs are not permitted"), "", {}
        return super().answer(common(body), headers, raw)


@dataclass(frozen=True, slots=True)
class Source:
    """A call that returned a result."""

    call: Call
    id: str  # of the result in the requests


@dataclass(slots=True)
class Memory:
    """The results that came into the context, to find those that a reply needs and the request
    lacks.
    """

    sources: list[Source] = field(default_factory=list)
    _facts: FactDetector = field(default_factory=FactDetector)

    def add(self, text: str, source: Source) -> None:
        """Record the result of a call."""
        self._facts.add(len(self.sources), text, is_result=True)
        self.sources.append(source)

    def lacking(self, reply: Reply, body: Body) -> dict[Source, str]:
        """Return the calls with results that the reply needs and the request lacks, each with a
        text of the result.
        """
        needed: dict[Source, str] = {}
        texts = [_text(block) for block in _results(body)] if reply.needs else []
        for source in (self.sources[number] for number in reply.needs):
            if not any(_is_whole(source.call, text) for text in texts):
                needed[source] = source.call.output
        found = self._facts.find(0, written(reply), lambda _: True, lambda: _whole_text(body))
        for fact in found:
            needed.setdefault(self.sources[fact.ref], fact.text)
        return dict([*needed.items()][:MAX_AGAIN])


@dataclass(slots=True)
class Script:
    """Player of one reply per request. Requests without a shell tool, and known requests of clients
    for a summary, get a summary. `clock` returns the CPU and wall seconds when the first request
    arrives.
    """

    replies: Sequence[Reply]
    window: int
    clock: Callable[[], tuple[float, float]]
    has_marks: bool = True  # the server caches only up to the marks of a request
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
    # Results asked for again, and those that came back whole with one call, by the way used.
    wanted: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    _memory: Memory = field(default_factory=Memory)
    _rounds: int = 0  # rounds so far before the next reply
    _newest_ids: list[str] = field(default_factory=list)  # of results that were asked for again
    _asked_again: list[tuple[Source, str]] = field(default_factory=list)  # in the last round
    _cache: PromptCache = field(default_factory=lambda: PromptCache(TERMS.life))

    def __call__(self, body: Body) -> Step:
        bill = self._cache.charge(body if self.has_marks else marked(body))
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
        newest = [b for b in body["messages"][-1]["content"] if b["type"] == "tool_result"]
        results = [_text(block) for block in newest]
        self._newest_ids = [block["tool_use_id"] for block in newest] if self._rounds else []
        if self._rounds:
            self.again_bill += bill
            for source, way in self._asked_again:
                self.returned[way] += any(_is_whole(source.call, text) for text in results)
        elif self.said:
            calls = self.replies[self.said - 1].calls
            self.whole += sum(any(_is_whole(call, text) for text in results) for call in calls)
            for call, block, text in zip(calls, newest, results, strict=False):
                if isinstance(call, Command | Page):
                    self._memory.add(text, Source(call, block["tool_use_id"]))
        if self.said == len(self.replies):
            self.ended = True
            return Say("The script is at its end.")
        reply = self.replies[self.said]
        lacking = self._memory.lacking(reply, body) if self._rounds < ROUNDS else {}
        if lacking:
            return Say("I need this again.", tools=self._calls_again(lacking, body))
        self._rounds, self._asked_again = 0, []
        self.said += 1
        self.asked += len(reply.calls)
        return Say(reply.text, tools=[_tool_call(call, body) for call in reply.calls])

    def aside(self, body: Body) -> Step | None:
        """Return the answer to a request outside the task, such as for a summary; None for a
        request of the task.
        """
        ours = is_summary_question(body["messages"][-1]["content"][-1].get("text", ""))
        if _tool(body, *SHELLS) and not (ours or asks_for_summary(body)):
            return None
        self.summaries += 1
        return Say(SUMMARY.format(facts=_facts_of(body)))

    def _calls_again(self, lacking: Mapping[Source, str], body: Body) -> Sequence[tuple[str, Body]]:
        """Return the calls that get results again: in the first round each in another way than the
        one before, if the request offers several.
        """
        calls, asked = list[tuple[str, Body]](), list[tuple[Source, str]]()
        for source, text in lacking.items():
            # A repeated call can return a line that names a file, too.
            ids = {source.id, *self._newest_ids} if len(lacking) == 1 else {source.id}
            ways = dict(ways_back(source, ids, text, body))
            turn = self.again + len(calls) if not self._rounds else 0
            way = [*ways][turn % len(ways)]
            asked.append((source, way))
            calls.append(ways[way])
        self._rounds += 1
        self.again += len(calls)
        self.wanted.update(way for _, way in asked)
        self._asked_again = asked
        return calls


def asks_for_summary(body: Body) -> bool:
    """Return True for a known client's request for a summary."""
    newest = body["messages"][-1]["content"][-1].get("text", "")
    system = " ".join(block["text"] for block in body.get("system", ()))
    return any(phrase in newest or phrase in system for phrase in COMPACTIONS)


def ways_back(
    source: Source, ids: Container[str], text: str, body: Body
) -> Iterator[tuple[str, tuple[str, Body]]]:
    """Yield the ways to get a result again, each with its call: those that the line in its place
    names, in the results `ids`; `Recall` of ctxagent, which finds texts; else the same call again.
    """
    line = "\n".join(_text(b) for b in _results(body) if b["tool_use_id"] in ids)
    ref, file = REF.search(line), FILE.search(line)
    recall = next((t for t in body.get("tools", []) if RECALL.fullmatch(t["name"].lower())), None)
    taken = recall["input_schema"].get("properties", {}) if recall else {}
    named = False
    if recall and ref and "ref" in taken:
        named = True
        yield "recall", (recall["name"], {"ref": ref[0]})
    if file and (_tool(body, *READERS) or _tool(body, *SHELLS)):
        named = True
        yield "file", _reading(file[0], body)
    if recall and "query" in taken and not named:
        yield "recall", (recall["name"], {"query": text[:MAX_QUERY_CHARS]})
    elif not named:
        yield "call", _tool_call(source.call, body)


def _reading(file: str, body: Body) -> tuple[str, Body]:
    """Return the call that reads a whole file."""
    tool = _tool(body, *READERS)
    if tool is None:
        return _tool_call(Command(f"cat '{file}'", ""), body)
    return tool["name"], {_path_of(tool): file}


def written(reply: Reply) -> str:
    """Return the text and call arguments that a reply writes."""
    return "\n".join([reply.text, *(call.asked for call in reply.calls)])


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


def _results(body: Body) -> Iterator[Body]:
    """Yield the results in a request."""
    parts = (block for message in body["messages"] for block in message["content"])
    return (block for block in parts if block["type"] == "tool_result")


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
        if "max_output_tokens" in schema["properties"]:
            more["max_output_tokens"] = MAX_OUTPUT_TOKENS
        return tool["name"], {**more, name: call.command}
    if isinstance(call, Subagent):
        return _subagent(call, body)
    if isinstance(call, Wait):
        started = AGENT_ID.findall("".join(_text(block) for block in _results(body)))
        return _required(body, *WAITERS)["name"], {"targets": started}
    call.prepare()
    if isinstance(call, NewContent):
        tool = _tool(body, *WRITERS)
        if tool is None:
            return _tool_call(
                Command(f"cat > {call.file} <<'{END}'\n{call.content}\n{END}", ""), body
            )
        name = next(name for name in CONTENTS if name in tool["input_schema"]["properties"])
        return tool["name"], {_path_of(tool): str(call.file), name: call.content}
    lines = call.output.count("\n") + 1
    tool = _tool(body, *READERS)
    if tool is None:
        last = call.first + lines - 1
        return _tool_call(Command(f"sed -n {call.first},{last}p {call.file}", call.output), body)
    given: Body = {_path_of(tool): str(call.file)}
    for name in tool["input_schema"]["properties"]:
        if name in ("offset", "line_offset"):
            given[name] = call.first
        elif name in ("limit", "n_lines"):
            given[name] = lines
    return tool["name"], given


def _subagent(call: Subagent, body: Body) -> tuple[str, Body]:
    """Return the call that starts a subagent."""
    tool = _required(body, *AGENTS)
    schema = tool["input_schema"]
    taken = schema["properties"]
    asked = next(name for name in ("prompt", "message", "task") if name in taken)
    kind = "general-purpose" if "general-purpose" in json.dumps(tool) else "general"
    given = dict.fromkeys(schema.get("required", ()), "Second part")
    given |= {name: kind for name in given if name.endswith("_type")}
    if "sync" in taken.get("mode", {}).get("enum", ()):
        given["mode"] = "sync"
    return tool["name"], {**given, asked: call.asked}


def _path_of(tool: Body) -> str:
    """Return the name of the tool's argument for a file path."""
    return next(name for name in PATHS if name in tool["input_schema"]["properties"])


def _is_whole(call: Call, text: str) -> bool:
    """Return True if a result contains the complete output. Tools that read files may add line
    numbers.
    """
    if isinstance(call, NewContent) or call.output.strip() in text:
        return True
    return all(line in text for line in call.output.splitlines())


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


def marked(body: Body) -> Body:
    """Return a request with a cache mark on each block. Servers of protocols without marks cache
    every prefix.
    """
    mark = {"cache_control": {"type": "ephemeral"}}
    out = {**body, "messages": [
        {**message, "content": [{**block, **mark} for block in message["content"]]}
        for message in body["messages"]
    ]}  # fmt: skip
    for part in ("tools", "system"):
        if part in body:
            out[part] = [{**block, **mark} for block in body[part]]
    return out


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
