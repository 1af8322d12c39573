"""A scripted model for the demo and tests: replays steps without a server.

Everything else is real: tools, approval, log, token counts. The model's ID is "scripted". If the
script has no step left, it raises an error.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.system.phrasing import count_of
from ..config.keys import SCRIPTED
from ..context import tokens
from ..context.request import Request
from ..errors import ModelError, ScriptExhausted, UsageError
from ..events import Accepted, Delta, TextDelta, ThinkingDelta, ToolDraft
from ..lazy import dataclass, regex
from ..prompts import prompt_text
from ..session.entries import Block, Usage
from .base import Abilities, Model, Reply, abilities_of
from .catalog import DEFAULT_LIMITS, Limits
from .gaps import ServerGaps
from .messages.body import WIRE
from .wire import encode

if TYPE_CHECKING:
    from ..config.settings import ModelSettings
    from .providers import Endpoint

rebuild = WIRE.rebuild  # the scripted model uses the Messages API
_WORDS = regex(r"\s*\S+\s*|\s+")
_MAX_OUTPUT_TOKENS = 32_000
_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "thinking": (str,),
    "tools": (list,),
    "stop_reason": (str, type(None)),
    "delay": (int, float),
}
_KIND_NAMES: dict[type, str] = {str: "text", list: "list", int: "number"}
_EXAMPLE_HINT = (
    'Example: {"steps": [{"text": "I look.", "tools": [{"name": "Bash", "input": {"command": '
    '"ls"}}]}, {"text": "Done."}]}'
)


@dataclass(frozen=True, slots=True)
class Step:
    """A reply in a script."""

    text: str = ""
    thinking: str = ""
    # (name, input) pairs. An input of type str is raw text that is not a JSON object.
    tools: Sequence[tuple[str, dict[str, Any] | str]] = ()
    stop_reason: str | None = None  # None: "tool_use" with tools, else "end_turn"
    error: ModelError | None = None  # raised after the text, if any
    delay: float = 0.0  # seconds before the reply


class ScriptedModel:
    """A model that replays steps. See `base.Model`."""

    def __init__(
        self,
        steps: Sequence[Step] | Callable[[Request], Step],
        *,
        id: str = "scripted",
        pace: float = 0.0,
        window: int = 200_000,
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Replay `steps` in order, one per call. If `steps` is a function, it returns the step for
        each request. `pace` is the seconds between two words, `window` the context size in tokens.
        `check` is called with the JSON body of each request and can raise an error.
        """
        self.id = id
        self.gaps = ServerGaps(None, "", id, {})
        self.pace = pace
        self.window = window
        self.check = check
        self.requests: list[Request] = []  # all so far
        self._part_tokens: dict[int, int] = {}  # by `id()` of a message, tool or system block
        self._steps = steps if callable(steps) else list(steps)
        self._played = 0  # number of replayed steps
        self._summary: Step | None = None

    @classmethod
    def from_file(cls, path: Path, *, pace: float = 0.0, window: int = 200_000) -> "ScriptedModel":
        """Return a model that replays the steps of a JSON file: `{"steps": [{"text": …, "thinking":
        …, "tools": [{"name": …, "input": {…}}], "stop_reason": …, "delay": …}], "summary": {…}}`.
        Every key of a step is optional. `summary` is optional too: the step to answer each request
        for a summary. Raises UsageError with the file and the step.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            why = f"{path}: the script cannot be read: {error.strerror}"
            raise UsageError(why, hint=_EXAMPLE_HINT) from error
        except ValueError as error:
            why = f"{path}: the script is not JSON: {error}"
            raise UsageError(why, hint=_EXAMPLE_HINT) from error
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
            why = f"{path}: a script is an object with a list of `steps`"
            raise UsageError(why, hint=_EXAMPLE_HINT)
        steps = [_step(step, f"{path}: step {n}") for n, step in enumerate(data["steps"], 1)]
        model = cls(steps, pace=pace, window=window)
        if "summary" in data:
            model._summary = _step(data["summary"], f"{path}: summary")
        return model

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Replay the next step. Raises ScriptExhausted, the step's error, and the errors of
        `check`.
        """
        import asyncio

        kept = self._copy(request)
        self.requests.append(kept)
        asked = WIRE.body(request, WIRE.parameters(request))
        if self.check is not None:
            self.check(asked)
        sent = WIRE.sent_of(request, encode(asked), ())
        step, number = self._next(request), len(self.requests)
        await asyncio.sleep(step.delay)
        if step.error is not None and not step.text:
            raise step.error
        prompt = Usage(input=self._prompt_tokens(kept))
        yield Accepted(prompt.to_json(), sent)
        for kind, text in ((ThinkingDelta, step.thinking), (TextDelta, step.text)):
            for word in _WORDS.findall(text):
                await asyncio.sleep(self.pace)
                yield kind(word)
        if step.error is not None:
            raise step.error
        for name, given in step.tools:
            raw = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            yield ToolDraft(name, len(raw))
        reply = _reply(step, number, self.id, prompt, request.call_ids())
        yield replace(reply, sent=sent)

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.id)

    def assumed_limits(self) -> Limits:
        return Limits(self.window, min(_MAX_OUTPUT_TOKENS, self.window), "setting")

    async def limits(self) -> Limits:
        return self.assumed_limits()

    async def close(self) -> None:
        pass

    def _copy(self, request: Request) -> Request:
        """Return a copy that later changes do not affect. Share equal parts with the
        previous copy.
        """
        kept = self.requests[-1] if self.requests else None
        parts: dict[str, Any] = {}
        for name in ("system", "tools", "messages"):
            new = getattr(request, name)
            pairs = zip_longest(getattr(kept, name, [])[: len(new)], new)
            parts[name] = [old if old == each else deepcopy(each) for old, each in pairs]
        return replace(request, **parts)

    def _prompt_tokens(self, kept: Request) -> int:
        """Return the tokens of a request in `requests`. Sizes are cached by `id()` of each part;
        `requests` keeps the parts alive, so the IDs stay valid.
        """
        sizes, parts = self._part_tokens, [*kept.system, *kept.tools, *kept.messages]
        for part in parts:
            if id(part) not in sizes:
                blocks = part["content"] if "role" in part else [part]
                sizes[id(part)] = sum(map(tokens.estimate_block, blocks))
        return sum(sizes[id(part)] for part in parts)

    def _next(self, request: Request) -> Step:
        if callable(self._steps):
            return self._steps(request)
        if self._summary is not None and _asks_for_summary(request):
            return self._summary
        self._played += 1
        if self._played > len(self._steps):
            raise ScriptExhausted(
                f"The script has {count_of(len(self._steps), 'step')} and this is call "
                f"{self._played}.",
                hint="Add a step to the script.",
            )
        return self._steps[self._played - 1]


def make(chosen: "ModelSettings", environ: Mapping[str, str], state: Path) -> Model:
    """Return a model that replays the file from the settings. See `base.ProtocolModule`."""
    window = chosen.context_window or DEFAULT_LIMITS.window
    return ScriptedModel.from_file(Path(chosen.id.removeprefix(SCRIPTED)), window=window)


def find_key(endpoint: "Endpoint", environ: Mapping[str, str]) -> str:
    """Return "": no key is needed."""
    return ""


def start_import(endpoint: "Endpoint", environ: Mapping[str, str]) -> None:
    """Do nothing: no import is needed."""


def _asks_for_summary(request: Request) -> bool:
    asked = str(request.messages[-1]["content"][-1].get("text", ""))
    return asked.startswith(prompt_text("summary").partition(".")[0])


def _step(data: Any, where: str) -> Step:
    if not isinstance(data, dict):
        raise UsageError(f"{where} is not an object", hint=_EXAMPLE_HINT)
    for key, value in data.items():
        if key not in _KINDS:
            raise UsageError(f"{where}: unknown key {key!r}", hint=f"Keys: {', '.join(_KINDS)}.")
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool):
            expected = _KIND_NAMES[_KINDS[key][0]]
            raise UsageError(f"{where}: `{key}` is not a {expected}", hint=_EXAMPLE_HINT)
    tools = [_tool(tool, where) for tool in data.get("tools", [])]
    return Step(**{**data, "tools": tools})


def _tool(data: Any, where: str) -> tuple[str, dict[str, Any] | str]:
    if (
        not isinstance(data, dict)
        or set(data) != {"name", "input"}
        or not isinstance(data["name"], str)
        or not isinstance(data["input"], (dict, str))
    ):
        why = f'{where}: a tool is {{"name": "…", "input": {{…}}}}'
        raise UsageError(why, hint=_EXAMPLE_HINT)
    return data["name"], data["input"]


def _reply(step: Step, number: int, model: str, prompt: Usage, taken: Set[str]) -> Reply:
    """Return the reply of a step. `taken` are IDs that its calls must not use."""
    content: list[Block] = []
    broken: dict[str, str] = {}
    if step.thinking:
        signed = f"scripted-{number}"
        content.append({"type": "thinking", "thinking": step.thinking, "signature": signed})
    if step.text:
        content.append({"type": "text", "text": step.text})
    for place, (name, given) in enumerate(step.tools, 1):
        call, copies = f"call_{number}_{place}", 1
        while call in taken:  # an earlier process played the script in this session
            copies += 1
            call = f"call_{number}_{place}_{copies}"
        if isinstance(given, str):
            broken[call], given = given, {}
        content.append({"type": "tool_use", "id": call, "name": name, "input": deepcopy(given)})
    return Reply(
        content,
        step.stop_reason or ("tool_use" if step.tools else "end_turn"),
        prompt + Usage(output=tokens.estimate_content(content)),
        model,
        f"scripted-{number}",
        broken,
    )
