"""Read replies whose tool calls are not in the form of the API.

A tool name in another case becomes the known name. A call that was written as text becomes a real
call if it is certainly meant as one. It then needs the same permissions as every call. If it is not
certain, the model is asked once for a real call. A turn that ends without one fails, so that a
headless run does not report success for work that was not done. A reply that is nothing but a call
of a known tool is never an answer, even if the call is unreadable. Only a quotation is.

A written call is certain if all of this is true:

- It ends a complete reply that has no real call.
- The tool is known, and its arguments are valid.
- Neither the user nor a result wrote the same text, so it is no quotation.
- It is in tags outside a code fence. Or the reply has no other text, and the model has not made
  real calls: a model that can make real calls writes JSON as an example.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError

from ...tools.base import Tool
from ..errors import CallNotRun, ToolError
from ..lazy import dataclass, regex
from ..models.base import Reply
from ..session.entries import Block
from .agent import AgentState
from .call_arguments import argument_error, read_arguments, tool_name

CallForm = Literal["tool_call", "function", "invoke", "json"]

_FENCE = regex(r"[ \t]*(?:>[ \t]*)*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})")  # also in a list
_TEXT_LINE = regex(r" {0,3}[^\s]")  # a line with more indentation is code, as in Markdown
# Special tokens of models around a call, which a server did not read.
_TOKEN = r"(?:<[|｜](?:/?tool|python_tag|call)[^|｜<>\s]*[|｜]>|\[/?(?:TOOL_CALLS|ARGS)\])"
_WRAPPER = regex(rf"\s*(?:</?(?:\w+:)?(?:tool_calls?|function_calls?|tools?)>|{_TOKEN})")
_NAME_IN_TOKENS = regex(rf"\s*([\w.-]{{1,128}})(?::\d+)?\s*{_TOKEN}(?=\s*\{{)")
_LAST_TOKENS = regex(r"(?:\s*(?:<[|｜][^|｜<>\s]{1,40}[|｜]>|</s>))*\s*\Z")
_OPENING = regex(r'\s*<(?:function=|(?:\w+:)?invoke name=")([\w.-]{1,128})"?>')
_CLOSING = regex(r"\s*</(?:\w+:)?(?:function|invoke)>|\s*\Z")
_PARAMETER = regex(r'\s*<(?:\w+:)?parameter(?:=|\s+name=")([\w.-]{1,128})"?>')
# A value may contain this tag. It ends where a parameter or the end of the call follows.
_PARAMETER_END = regex(
    r"</(?:\w+:)?parameter>(?=\s*(?:<(?:\w+:)?parameter\b|</(?:\w+:)?(?:function|invoke)>|\Z))"
)
_TAG = regex(
    r"\s*<(?:\w+:)?(?:tool_call>\s*(?:[{\[<]|[\w.-]+\s*[<{])|function_calls>\s*<"
    r'|function=[\w.-]+>|invoke name=")'
    rf"|\s*{_TOKEN}\s*(?:{_TOKEN}|[{{\[<]|[\w.:-]+\s*(?:{_TOKEN}|[<{{]))"
    r"|\s*(?:<\|start\|>assistant)?<\|channel\|>commentary\s+to="
)
# The beginning of a reply with nothing but a call in JSON, whether the JSON can be read or not.
_ALONE = regex(
    rf"\s*(?:(?:`{{3,}}|~{{3,}})[^\S\n]*\w*\s*)?(?:(?:<[\w:]{{1,40}}>|{_TOKEN})\s*)*(?P<json>[\[\s]*\{{[\[{{\s]*"
    r"(?:[\"'](?:tool_calls|function|type|id)[\"']\s*:\s*(?:[\"'][^\"']{0,128}[\"']\s*,\s*)?[\[{\s]*)*"
    r"[\"'](?:name|tool)[\"']\s*:\s*[\"'](?P<name>[\w.-]{1,128})[\"'])"
)
_AFTER_ALONE = regex(r"(?:`{3,}|~{3,}|</[\w:]{1,40}>|<[|｜][^|｜<>\s]{1,40}[|｜]>|</s>)\s*\Z")
_ARGUMENTS_KEY = regex(r"[\"'](?:arguments|parameters|input)[\"']\s*:")
_STRING_OR_DOUBLED = regex(r'"(?:[^"\\]|\\.)*"|\{\{|\}\}', re.S)
_JSON_START = regex(r'\s*(?:\{\s*"|\[\s*\{)')
_NAME_KEYS, _ARGUMENT_KEYS = ("name", "tool"), ("arguments", "parameters", "input")
_CALL_KEYS = {*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "type"}
_DECODER = json.JSONDecoder(strict=False)  # models do not escape the line ends in their texts


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One call in a text. In the forms with tags, values of arguments are texts."""

    name: str
    arguments: Mapping[str, Any]
    text: str  # as written


@dataclass(frozen=True, slots=True)
class WrittenCalls:
    """The calls at the end of a reply. Without `calls`, there is a call that is unreadable: after a
    tag, or as the whole reply (`unread`).
    """

    form: CallForm
    calls: tuple[WrittenCall, ...]
    start: int  # offset of the calls, with their fence
    end: int
    is_fenced: bool = False
    is_alone: bool = False  # the reply has no other text
    is_last: bool = False  # no other text follows
    unread: WrittenCall | None = None  # has no arguments

    @property
    def is_data(self) -> bool:
        """Whether an answer could have the same form."""
        return self.form == "json" or self.is_fenced


def written_calls(text: str) -> WrittenCalls | None:
    """Return the calls at the end of a reply, or None."""
    place, fences = 0, list[tuple[int, int, str]]()
    while place < len(text):
        if fence := _FENCE.match(text, place):
            end, body = _fence(text, place, fence[1])
            fences.append((place, end, body))
            place = end
            continue
        if _TEXT_LINE.match(text, place) and (found := _block(text, place)):
            return _placed(found, text)
        place = _next_line(text, _json_end(text, place))
    found = None
    for start, end, body in reversed(fences):
        block = _block(body, 0)
        between = text[end : found.start] if found else _LAST_TOKENS.sub("", text[end:])
        if between.strip() or block is None:
            break
        if not block.calls or body[block.end :].strip():
            break
        more = found.calls if found else ()
        found = replace(block, calls=(*block.calls, *more), start=start, end=len(text))
    return _placed(replace(found, is_fenced=True), text) if found else _alone(text)


def _alone(text: str) -> WrittenCalls | None:
    """Return the call of a reply that has nothing but a call, None if it has other text.

    Doubled braces are read as single ones, except those in strings: a call with all braces doubled
    has only one meaning.
    """
    begin = _ALONE.match(text)
    if begin is None:
        return None
    body = text[begin.start("json") :].rstrip()
    while after := _AFTER_ALONE.search(body, max(0, len(body) - 80)):
        body = body[: after.start()].rstrip()
    single = _STRING_OR_DOUBLED.sub(lambda m: m[0] if m[0][0] == '"' else m[0][0], body)
    calls = list[WrittenCall]()
    try:
        value = _DECODER.decode(body)
    except (ValueError, RecursionError):
        with suppress(ValueError, RecursionError):
            calls = _json_calls(_DECODER.decode(single), body)
        if not calls and "}" in body and body[-1] not in "}])\"'":  # text follows
            return None
    else:
        if not _ARGUMENTS_KEY.search(body) or not isinstance(value, dict | list):
            return None
    unread = None if calls else WrittenCall(begin["name"], {}, body)
    return WrittenCalls(
        "json", tuple(calls), 0, len(text), is_alone=True, is_last=True, unread=unread
    )


def _placed(found: WrittenCalls, text: str) -> WrittenCalls:
    is_last = _LAST_TOKENS.match(text, found.end) is not None
    return replace(found, is_last=is_last, is_alone=is_last and not text[: found.start].strip())


def _fence(text: str, place: int, mark: str) -> tuple[int, str]:
    """Return the end of a code fence and its body. An unclosed fence ends with the text."""
    begin = line = _next_line(text, place)
    while line < len(text):
        end = _next_line(text, line)
        closing = text[line:end].strip()
        if closing.startswith(mark) and not closing.strip(mark[0]):
            return end, text[begin:line]
        line = end
    return len(text), text[begin:]


def _next_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _json_end(text: str, place: int) -> int:
    """Return the end of the JSON value at an offset, or the offset if there is none."""
    if start := _JSON_START.match(text, place):
        try:
            return _DECODER.raw_decode(text, place + len(start[0]) - len(start[0].lstrip()))[1]
        except (ValueError, RecursionError):
            pass
    return place


def _block(text: str, start: int) -> WrittenCalls | None:
    """Return the calls that begin at an offset, one after another. None if neither a call nor the
    tag of one is there.
    """
    calls, place = list[WrittenCall](), start
    form: CallForm = "json"
    while True:
        while wrapper := _WRAPPER.match(text, place):
            place, form = wrapper.end(), form if calls else "tool_call"
        if opening := _OPENING.match(text, place):
            form = "function" if "<function=" in opening[0] else "invoke"
            call, end = _tagged(text, opening)
            found = [] if call is None else [call]
        elif place > start and (named := _NAME_IN_TOKENS.match(text, place)):
            call, end = _after_name(text, named)
            found = [] if call is None else [call]
        else:
            found, end = _from_json(text, place)
        if not found:
            break
        calls += found
        place = end
    if not calls and not _TAG.match(text, start):
        return None
    return WrittenCalls(form, tuple(calls), start, place)


def _tagged(text: str, opening: re.Match[str]) -> tuple[WrittenCall | None, int]:
    """Return the call in tags after its opening tag, or None, and its end."""
    place, given = opening.end(), dict[str, Any]()
    while parameter := _PARAMETER.match(text, place):
        end = _PARAMETER_END.search(text, parameter.end())
        if end is None:
            return None, place
        value = text[parameter.end() : end.start()]
        given[parameter[1]] = value.removeprefix("\n").removesuffix("\n")
        place = end.end()
    if not given and (start := _JSON_START.match(text, place)):
        try:
            given, place = _DECODER.raw_decode(text, text.index("{", start.start()))
        except (ValueError, RecursionError):
            return None, place
    closing = _CLOSING.match(text, place)
    if closing is None:
        return None, place
    written = text[opening.start() : closing.end()].strip()
    return WrittenCall(opening[1], given, written), closing.end()


def _after_name(text: str, named: re.Match[str]) -> tuple[WrittenCall | None, int]:
    """Return the call whose arguments follow its name, or None, and its end."""
    try:
        given, end = _DECODER.raw_decode(text, text.index("{", named.end()))
    except (ValueError, RecursionError):
        return None, named.start()
    return WrittenCall(named[1], given, text[named.start() : end].strip()), end


def _from_json(text: str, place: int) -> tuple[list[WrittenCall], int]:
    """Return the calls in the JSON value at an offset, none for another value, and its end."""
    end = _json_end(text, place)
    if end == place:
        return [], place
    written = text[place:end].strip()
    calls = _json_calls(_DECODER.decode(written), written)
    return (calls, end) if calls else ([], place)


def _json_calls(value: Any, written: str) -> list[WrittenCall]:
    """Return the calls that a JSON value describes, none if a part of it is other data: a call, a
    list, `{"tool_calls": […]}` or `{"type": "function", "function": …}`.
    """
    if isinstance(value, dict) and value.keys() <= {"tool_calls"}:
        value = value.get("tool_calls")
    calls = [_json_call(each, written) for each in (value if isinstance(value, list) else [value])]
    found = [call for call in calls if call is not None]
    return found if len(found) == len(calls) else []


def _json_call(value: Any, written: str) -> WrittenCall | None:
    """Return the call that a JSON value describes, or None for other data."""
    if isinstance(value, dict) and value.keys() <= {"function", "id", "type", "index"}:
        value = value.get("function")
    if not isinstance(value, dict) or not value.keys() <= _CALL_KEYS:
        return None
    name, given = (
        next((value[key] for key in keys if key in value), None)
        for keys in (_NAME_KEYS, _ARGUMENT_KEYS)
    )
    if isinstance(given, str):
        try:
            given = _DECODER.decode(given)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not isinstance(given, dict):
        return None
    return WrittenCall(name, given, written)


TEXT_CALL_PREFIX = "text_"  # of the IDs of calls that were read from text
_COMPLETE = ("end_turn", "stop_sequence", "tool_use", None)  # stop reasons
_LINE_NUMBER = regex(r"(?m)^ *\d+\t")

LESSON = """\
[This is a notice of the program. Your reply had a tool call written as text. It was read as a \
call and run. From now on, make calls with the tool interface of the API and not as text.]"""
ASK_FOR_REAL_CALL = """\
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
        if found.unread and not self._are_known([found.unread]):
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
        return ASK_FOR_REAL_CALL.format(reason=self._doubt.reason)

    def check_answer(self) -> None:
        """Raise CallNotRun if the turn would end although a written call did not run."""
        if self._agent.denials.unasked():  # reported instead, with another exit code
            return
        if self._unanswered is not None and self._unanswered.must_call:
            raise CallNotRun(
                "the model wrote a tool call as text, which was not run, and made no call when "
                f"asked for it: {self._unanswered.reason}",
                hint="Its replies are in the log. `ctxagent doctor --server` says what its server "
                "lacks, such as a chat template for tools.",
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
        calls = [found.unread] if found.unread else found.calls
        is_alone = found.is_alone and self._are_known(calls)
        must_call = is_alone or not (found.is_data and can_call)
        if any(self._is_quoted(call) for call in calls):
            return _Doubt("the same text is in a message or a result.", must_call=False)
        if problem := self._problem(found):
            return _Doubt(problem, must_call)
        if found.is_data and (can_call or not found.is_alone):
            return _Doubt("it may be an example.", must_call)
        return None

    def _are_known(self, calls: Sequence[WrittenCall]) -> bool:
        return all(tool_name(self._tools, call.name) in self._tools for call in calls)

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
