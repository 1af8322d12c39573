"""Find the functions that pass on a text in a session, with a trace of all calls.

    with TextPath("a text") as path:
        ...  # the session
    path.before("agent/context/view.py:View._append")  # the functions, each once

A function passes the text on if the text is in its arguments or its result and reaches the last
function through arguments and results, in order of time. A function that only reads the text does
not count. A nested function counts as its enclosing function. Texts in the session's state (view,
ledger, log) are not found, because only values are searched.
"""

import asyncio
import gc
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from inspect import CO_ASYNC_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import FrameType
from typing import Any, Self

import ctxagent
from ctxagent.agent.session.entries import Entry

ROOT = f"{Path(ctxagent.__file__).parent}/"
MAX_DEPTH = 9  # maximum nesting of searched values


def holds(value: Any, text: str, depth: int = MAX_DEPTH) -> bool:
    """Return True if a value contains a text."""
    if isinstance(value, str):
        return text in value
    if isinstance(value, bytes):
        return text.encode() in value
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif is_dataclass(value) and (_is_frozen(value) or isinstance(value, Entry)):
        inner = [getattr(value, field.name, None) for field in fields(value)]
    else:
        return False
    return depth > 0 and any(holds(each, text, depth - 1) for each in inner)


def _is_frozen(value: Any) -> bool:
    return not isinstance(value, type) and type(value).__setattr__ is not object.__setattr__


def name_of(frame: FrameType) -> str:
    """Return the file and the name of a function, without names nested in it."""
    code = frame.f_code
    return f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname.partition('.<locals>')[0]}"


@dataclass(frozen=True, slots=True)
class Step:
    """A text that one call passes to another."""

    source: FrameType | None
    target: FrameType | None
    is_call: bool  # else a result


class TextPath:
    """A trace of a text through functions of `agent/`. Functions for threads run synchronously."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[Step] = []
        self._seen: dict[int, FrameType] = {}  # kept, so that no other frame gets the same ID
        self._to_thread = asyncio.to_thread

    def __enter__(self) -> Self:
        async def at_once(run: Callable[..., Any], *given: Any, **named: Any) -> Any:
            return run(*given, **named)

        asyncio.to_thread = at_once
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        asyncio.to_thread = self._to_thread

    def _note(self, frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not _is_ours(frame):
            return
        sys.setprofile(None)
        try:
            if event == "return":
                if frame.f_code.co_flags & CO_ASYNC_GENERATOR and result is not None:
                    result = (result, *gc.get_referents(result))  # yielded values are wrapped
                if holds(result, self.text):
                    self.steps.append(Step(frame, self._caller(frame, _is_ours), False))
            elif id(frame) not in self._seen:
                self._seen[id(frame)] = frame
                if holds(_arguments(frame), self.text):
                    self.steps.append(Step(self._caller(frame, self._has_text), frame, True))
        finally:
            sys.setprofile(self._note)

    def _has_text(self, frame: FrameType) -> bool:
        return _is_ours(frame) and holds(frame.f_locals, self.text)

    @staticmethod
    def _caller(frame: FrameType, is_it: Callable[[FrameType], bool]) -> FrameType | None:
        caller = frame.f_back
        while caller is not None and not is_it(caller):
            caller = caller.f_back
        return caller

    def before(self, last: str, start: int = 0) -> tuple[list[str], int]:
        """Return the functions that the text passes from step `start` until `last`, and the next
        step.
        """
        found: dict[FrameType, None] = {}
        end = start
        for place in range(len(self.steps) - 1, start - 1, -1):
            step = self.steps[place]
            source, target = step.source, step.target
            if step.is_call and target is not None and name_of(target) == last:
                found[target] = None
                end = max(end, place + 1)
            if target in found and source is not None:
                found[source] = None
        return list(dict.fromkeys(name_of(frame) for frame in reversed(found))), end

    def handed_over(self, names: Collection[str]) -> set[str]:
        """Return those of the public functions in `names` that pass the text to another module of
        `names`, or get it from one.
        """
        found = set[str]()
        for step in self.steps:
            if step.source is not None and step.target is not None:
                ends = {name_of(step.source), name_of(step.target)} & {*names}
                if len({name.partition(":")[0] for name in ends}) == 2:
                    found |= ends
        return {name for name in found if not re.search(r"[:.]_", name)}


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(f"{ROOT}agent/")


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return [frame.f_locals.get(name) for name in code.co_varnames[:count]]
