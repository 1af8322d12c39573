"""Read tool calls that a model wrote as text, in the forms that models are trained on:

- `<tool_call>{"name": "Bash", "arguments": {"command": "ls"}}</tool_call>`
- `<function=Bash><parameter=command>ls</parameter></function>`
- `<invoke name="Bash"><parameter name="command">ls</parameter></invoke>`
- the JSON object of the first form alone, bare or in a code fence
- this object, or a name and the arguments, after special tokens: `[TOOL_CALLS]Bash[ARGS]{…}`

The JSON may have the shape of any API: see `_json_calls`. Only calls at the end of a reply are
read. A code fence with more text after it is an example. This module knows no tools: `dialects`
decides which calls run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ..lazy import dataclass, regex

CallForm = Literal["tool_call", "function", "invoke", "json"]

_FENCE = regex(r"[ \t]*(?:>[ \t]*)*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})")  # also in a list
_TEXT_LINE = regex(r" {0,3}[^\s]")  # a line with more indentation is code, as in Markdown
# Special tokens of models around a call, which a server did not read.
_TOKEN = r"(?:<[|｜](?:/?tool|python_tag|call)[^|｜<>\s]*[|｜]>|\[/?(?:TOOL_CALLS|ARGS)\])"
_WRAPPER = regex(rf"\s*(?:</?(?:\w+:)?(?:tool_call|function_calls)>|{_TOKEN})")
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
    """The calls at the end of a reply. Without `calls`, a tag began a call that is unreadable."""

    form: CallForm
    calls: tuple[WrittenCall, ...]
    start: int  # offset of the calls, with their fence
    end: int
    is_fenced: bool = False
    is_alone: bool = False  # the reply has no other text
    is_last: bool = False  # no other text follows

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
    return _placed(replace(found, is_fenced=True), text) if found else None


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
