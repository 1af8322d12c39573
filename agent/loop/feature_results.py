"""Check the return values of features' methods, since extensions may return anything."""

import json
from collections.abc import Mapping
from inspect import iscoroutine
from types import NoneType
from typing import Any, TypeVar, get_args

from ...tools.base import Effect, Output, Tool
from ..lazy import regex
from ..session.entries import Entry, User, encode
from .feature import FeatureCommand, Ruling

T = TypeVar("T")

# Allowed return types: of single values, then of the items of sequences.
_VALUES: Mapping[str, tuple[type, ...]] = {
    "status": (str,),
    "message_received": (str, list, NoneType),
    "reply_received": (str, NoneType),
    "reply_streamed": (str,),
    "before_tool": (Mapping, Ruling, NoneType),
    "before_question": (Ruling, NoneType),
    "after_tool": (Output, NoneType),
    "step_finished": (str, NoneType),
}
_ITEMS: Mapping[str, type] = {
    "tools": Tool,
    "commands": FeatureCommand,
    "first_entries": Entry,
    "reinserted": Entry,
}
_TOOL_NAME = regex(r"[A-Za-z0-9_-]{1,64}")  # accepted by the Messages API


def check_result(event: str, found: Any) -> Any:
    """Return the checked result of a method for an event, with sequences as lists. Raises TypeError
    or ValueError for invalid results.
    """
    if iscoroutine(found):
        found.close()
        raise TypeError(f"{event} must not be async")
    if event in _ITEMS:
        return check_items(event, _ITEMS[event], () if found is None else found)
    if event in _VALUES:
        _check(event, found, *_VALUES[event])
        if isinstance(found, list):
            _check_content(event, found)
        elif isinstance(found, Mapping):
            json.dumps(dict(found), default=str)
        elif isinstance(found, Ruling):
            _check(f"the reason of {event}", found.reason, str)
            _check(f"the arguments of {event}", found.arguments, Mapping, NoneType)
            json.dumps(dict(found.arguments or {}), default=str)
        elif isinstance(found, Output):
            _check(f"the text of {event}", found.text, str)
            json.dumps([found.details, found.blocks], default=str)
    return found


def check_items(what: str, kind: type[T], found: Any) -> list[T]:
    """Return the items as a list. Raises TypeError or ValueError for invalid items."""
    items = list(found)
    for each in items:
        _check(what, each, kind)
        if isinstance(each, FeatureCommand):
            for text in (each.name, each.help, each.argument):
                _check(f"a text of {what}", text, str)
        elif isinstance(each, Tool):
            _check_tool(each)
        elif isinstance(each, User):
            _check_content(what, each.content)
        elif isinstance(each, Entry):
            json.dumps(encode(each), default=str)
    return items


def _check(what: str, found: Any, *kinds: type) -> None:
    if not isinstance(found, kinds):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise TypeError(f"{what} must give {names}, not {type(found).__name__}")


def _check_tool(tool: Tool[Any]) -> None:
    if not _TOOL_NAME.fullmatch(tool.name):
        raise ValueError(f"{tool.name!r} cannot be the name of a tool")
    if tool.effect not in get_args(Effect):
        raise ValueError(f"the effect of {tool.name} is one of {', '.join(get_args(Effect))}")
    json.dumps(tool.schema())


def _check_content(what: str, content: Any) -> None:
    """Raise TypeError for content that cannot be sent. It would stay in the log and break every
    request.
    """
    _check(what, content, str, list)
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise TypeError(f"{what} must give blocks with a type, not {block!r:.80}")
