"""Read replies whose tool calls are not in the form of the API.

A tool name in another case becomes the known name. A call that was written as text becomes a real
call if it is certainly meant as one. It then needs the same permissions as every call. If it is not
certain, the model is asked once for a real call. A turn that ends without one fails, so that a
headless run does not report success for work that was not done.

A written call is certain if all of this is true:

- It ends a complete reply that has no real call.
- The tool is known, and its arguments are valid.
- Neither the user nor a result wrote the same text, so it is no quotation.
- It is in tags outside a code fence. Or the reply has no other text, and the model has not made
  real calls: a model that can make real calls writes JSON as an example.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ...tools.base import Tool
from ..errors import CallNotRun, ToolError
from ..lazy import dataclass, regex
from ..models.base import Reply
from ..session.entries import Block
from .agent import AgentState
from .call_arguments import argument_error
from .repairs import read_arguments, tool_name
from .written_calls import WrittenCall, WrittenCalls, written_calls

TEXT_CALL_PREFIX = "text_"  # of the IDs of calls that were read from text
_COMPLETE = ("end_turn", "stop_sequence", "tool_use", None)  # stop reasons
_LINE_NUMBER = regex(r"(?m)^ *\d+\t")

LESSON = """\
[This is a notice of the program. Your reply had a tool call written as text. It was read as a \
call and run. From now on, make calls with the tool interface of the API and not as text.]"""
ASK_FOR_CALL = """\
[This is a notice of the program. Your reply has text that looks like a tool call. It was not run: \
{reason}
If you meant a call, make it with the tool interface of the API. If you cannot, write nothing but \
<tool_call>{{"name": "TOOL", "arguments": {{…}}}}</tool_call> with a known tool. If it was no \
call, give your whole answer again without it.]"""


@dataclass(frozen=True, slots=True)
class _Doubt:
    reason: str
    must_call: bool  # the turn fails if no call follows


class DialectReader:
    """Reads the replies of one turn. `takes_json` is False if the answer of the turn is JSON."""

    def __init__(self, agent: AgentState, *, takes_json: bool) -> None:
        self._agent = agent
        self._takes_json = takes_json
        self._doubt: _Doubt | None = None  # about the newest reply
        self._unanswered: _Doubt | None = None  # the model was asked for a call, and made none

    def read(self, reply: Reply) -> Reply:
        """Return a reply with known tool names, and with its written calls as real calls."""
        self._doubt = None
        if reply.stop_reason not in _COMPLETE:
            return reply
        if any(block.get("type") == "tool_use" for block in reply.content):
            self._unanswered = None
            return self._with_known_names(reply)
        last = reply.content[-1] if reply.content else {}
        text = str(last.get("text", "")) if last.get("type") == "text" else ""
        found = written_calls(text)
        if found is None or (found.is_data and not self._takes_json):
            return reply
        self._doubt = self._doubt_about(found)
        if self._doubt is not None:
            return reply
        self._unanswered = None
        kept = text[: found.start].rstrip()
        words = [{**last, "text": kept}] if kept else []
        return replace(
            reply,
            content=[*reply.content[:-1], *words, *self._real_calls(found)],
            stop_reason="tool_use",
            dialect={"form": found.form, "text": text[found.start :]},
        )

    def notice(self, reply: Reply) -> str | None:
        """Return the notice for the model about its reply, or None. The model is told once per
        context how to call, and asked once for a call until it makes one.
        """
        if reply.dialect.get("form"):
            blocks = (block for item in self._agent.view.items for block in item.blocks)
            return None if any(block.get("text") == LESSON for block in blocks) else LESSON
        if self._doubt is None or self._unanswered is not None:
            return None
        self._unanswered = self._doubt
        return ASK_FOR_CALL.format(reason=self._doubt.reason)

    def check_answer(self) -> None:
        """Raise CallNotRun if the turn would end although a written call did not run."""
        if self._agent.denials.unasked():  # reported instead, with another exit code
            return
        if self._unanswered is not None and self._unanswered.must_call:
            raise CallNotRun(
                "the model wrote a tool call as text, which was not run, and made no call when "
                f"asked for it: {self._unanswered.reason}",
                hint="Its replies are in the log. Use a model that can call tools, or start its "
                "server with tool calls (llama.cpp: --jinja).",
            )

    @property
    def _tools(self) -> Mapping[str, Tool[Any]]:
        return self._agent.runner.tools

    def _with_known_names(self, reply: Reply) -> Reply:
        """Return the reply with the known names of its tools."""
        names = dict[str, str]()
        content = list[Block]()
        for block in reply.content:
            if block.get("type") == "tool_use":
                name = tool_name(self._tools, str(block.get("name")))
                if name != block.get("name"):
                    names[str(block["id"])] = str(block["name"])
                    block = {**block, "name": name}
            content.append(block)
        return replace(reply, content=content, dialect={"names": names}) if names else reply

    def _real_calls(self, found: WrittenCalls) -> list[Block]:
        seq = self._agent.log.last_seq + 1
        return [
            {
                "type": "tool_use",
                "id": f"{TEXT_CALL_PREFIX}{seq}_{number}",
                "name": tool_name(self._tools, call.name),
                "input": dict(call.arguments),
            }
            for number, call in enumerate(found.calls, 1)
        ]

    def _doubt_about(self, found: WrittenCalls) -> _Doubt | None:
        """Return why written calls are not certain; None for certain calls."""
        can_call = self._has_real_calls()
        must_call = not (found.is_data and can_call)
        if any(self._is_quoted(call) for call in found.calls):
            return _Doubt("the same text is in a message or a result.", must_call=False)
        if problem := self._problem(found):
            return _Doubt(problem, must_call)
        if found.is_data and (can_call or not found.is_alone):
            return _Doubt("it may be an example.", must_call)
        return None

    def _problem(self, found: WrittenCalls) -> str:
        if not found.calls:
            return "the call could not be read."
        for call in found.calls:
            tool = self._tools.get(tool_name(self._tools, call.name))
            if tool is None:
                return f"there is no tool {call.name!r}. The tools: {', '.join(self._tools)}."
            try:
                tool.resolve(read_arguments(tool, call.arguments).params)
            except ValidationError as error:
                return argument_error(tool, error)
            except ToolError as error:
                return str(error)
        return "" if found.is_last else "more text follows it."

    def _has_real_calls(self) -> bool:
        """Return True if the current model has made a real call in this context."""
        return any(
            block.get("type") == "tool_use" and not str(block["id"]).startswith(TEXT_CALL_PREFIX)
            for item in self._agent.view.items
            if item.role == "assistant" and not item.by_other_model
            for block in item.blocks
        )

    def _is_quoted(self, call: WrittenCall) -> bool:
        """Return True if a text that the model did not write has the same call."""
        wanted = _plain(call.text)
        texts = (
            text
            for item in self._agent.view.items
            if item.role == "user"
            for block in item.blocks
            for text in _texts(block)
        )
        return any(call.name in text and wanted in _plain(text) for text in texts)


def _texts(block: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a block, also those in the content of a result."""
    content = block.get("content")
    if isinstance(text := content if isinstance(content, str) else block.get("text"), str):
        yield text
    for part in content if isinstance(content, list) else ():
        yield from _texts(part)


def _plain(text: str) -> str:
    """Return a text without whitespace and the line numbers of Read, for comparison."""
    return "".join(_LINE_NUMBER.sub("", text).split())
