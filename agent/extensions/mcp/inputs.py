"""Requests of MCP servers during a call: a form, a visit to a web page, or a reply of the model.

The protocol calls the first two elicitation and the third sampling. The `Respondent` of the call
answers. Requests outside of a call are refused.
"""

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ....tools.mcp import shown_text
from ....tools.system.phrasing import one_line, shorten
from ...errors import ToolError
from ...lazy import dataclass, regex

if TYPE_CHECKING:
    import mcp_types as types

MAX_MESSAGE_CHARS = 1_000
MAX_FIELD_CHARS = 300  # of a field's title or description
MAX_FIELDS = 20
MAX_CHOICES = 9  # shown as rows
MAX_URL_CHARS = 2_000
MAX_PROMPT_CHARS = 200_000
MAX_SAMPLED_TOKENS = 8_192  # of one reply
LEAVE_OUT, YES, NO = "leave it out", "yes", "no"

T = TypeVar("T")
Value = str | int | float | bool | list[str]
_KINDS = ("string", "number", "integer", "boolean", "array")
_FORMATS = {
    "email": regex(r"[^@\s]+@[^@\s]+"),
    "uri": regex(r"[A-Za-z][\w+.-]*:\S+"),
    "date": regex(r"\d{4}-\d{2}-\d{2}"),
    "date-time": regex(
        r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:\d{2})?"
    ),
}


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form."""

    name: str
    text: str
    kind: str  # one of _KINDS
    choices: Mapping[str, Any]  # values by label, {} for any text
    is_required: bool
    schema: Mapping[str, Any]

    @property
    def labels(self) -> list[str]:
        """The choices to show. An optional field also has the choice to leave it out."""
        own = list(self.choices) if len(self.choices) <= MAX_CHOICES else []
        default = self.schema.get("default")
        if isinstance(default, str | int | float) and not self.choices:
            own = [_shown(default)]
        return own if self.is_required or (not own and self.kind == "array") else [*own, LEAVE_OUT]

    def value(self, answer: str) -> Value | None:
        """Parse an answer. Return None for a field that is left out. Raises ValueError with the
        reason.
        """
        if answer == LEAVE_OUT and not self.is_required:
            return None
        if self.kind == "array":
            return [self._chosen(each.strip()) for each in answer.split(",") if each.strip()]
        if self.choices:
            chosen: Value = self._chosen(answer)
            return chosen
        if self.kind == "string":
            return self._text(answer)
        return self._number(answer)

    def _chosen(self, answer: str) -> Any:
        found = {label.lower(): value for label, value in self.choices.items()}
        found |= {str(value).lower(): value for value in self.choices.values()}
        if answer.lower() not in found:
            raise ValueError(f"choose one of {', '.join(self.choices)}")
        return found[answer.lower()]

    def _text(self, answer: str) -> str:
        least, most = self.schema.get("minLength"), self.schema.get("maxLength")
        if isinstance(least, int) and len(answer) < least:
            raise ValueError(f"at least {least} characters")
        if isinstance(most, int) and len(answer) > most:
            raise ValueError(f"at most {most} characters")
        form = str(self.schema.get("format", ""))
        if form in _FORMATS and not _FORMATS[form].fullmatch(answer):
            raise ValueError(f"it is not a valid {form}")
        return answer

    def _number(self, answer: str) -> int | float:
        what = "a whole number" if self.kind == "integer" else "a number"
        if not re.fullmatch(r"[+-]?\d{1,300}(\.\d{1,300})?", answer.strip()):
            raise ValueError(f"it is not {what}")
        number = float(answer) if "." in answer else int(answer)
        if self.kind == "integer":
            if number != int(number):
                raise ValueError(f"it is not {what}")
            number = int(number)
        least, most = self.schema.get("minimum"), self.schema.get("maximum")
        if isinstance(least, int | float) and number < least:
            raise ValueError(f"at least {least}")
        if isinstance(most, int | float) and number > most:
            raise ValueError(f"at most {most}")
        return number


@dataclass(frozen=True, slots=True)
class FormRequest:
    """A form that a server asks the user to fill in."""

    server: str
    message: str
    fields: Sequence[FormField]


@dataclass(frozen=True, slots=True)
class VisitRequest:
    """A web page that a server asks the user to visit."""

    server: str
    message: str
    url: str


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A prompt that a server sends to the model."""

    server: str
    system: str
    messages: Sequence[tuple[str, str]]  # (role, text), alternating, starting with "user"
    max_tokens: int
    stop: Sequence[str]


@dataclass(frozen=True, slots=True)
class SampledReply:
    """A reply of the model for a server."""

    text: str
    model: str
    is_cut: bool


class Respondent(Protocol):
    """The interface that answers requests of servers."""

    async def fill_in(self, asked: FormRequest) -> Mapping[str, Value] | None:
        """Return the values of a form, None to decline."""

    async def visit(self, asked: VisitRequest) -> bool:
        """Return True if the user agrees to visit a page."""

    async def reply_to(self, asked: SamplingRequest) -> SampledReply:
        """Return a reply of the model. Raises ToolError if no reply is possible."""


async def elicit(
    server: str, params: "types.ElicitRequestParams", respondent: Respondent
) -> "types.ElicitResult":
    """Answer an elicitation."""
    import mcp_types as types

    message = shorten(shown_text(params.message[: 4 * MAX_MESSAGE_CHARS]), MAX_MESSAGE_CHARS)
    if isinstance(params, types.ElicitRequestURLParams):
        url = params.url
        is_shown = re.fullmatch(r"https?://[!-~]+", url) and len(url) <= MAX_URL_CHARS
        agreed = is_shown and await respondent.visit(VisitRequest(server, message, url))
        return types.ElicitResult(action="accept" if agreed else "decline")
    fields = form_fields(params.requested_schema)
    values = None
    if fields is not None:
        values = await respondent.fill_in(FormRequest(server, message, fields))
    if values is None:
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content=dict(values))


async def sample(
    server: str, params: "types.CreateMessageRequestParams", respondent: Respondent
) -> "types.CreateMessageResult | types.ErrorData":
    """Answer a sampling request."""
    import mcp_types as types

    try:
        asked = _asked_reply(server, params)
        given = await respondent.reply_to(asked)
    except ToolError as error:
        return types.ErrorData(code=-1, message=str(error))  # the protocol's form of a refusal
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(type="text", text=given.text),
        model=given.model,
        stop_reason="maxTokens" if given.is_cut else "endTurn",
    )


def form_fields(schema: Mapping[str, Any]) -> list[FormField] | None:
    """Return the fields of a form; None for a form that cannot be shown."""
    properties, required = schema.get("properties", {}), schema.get("required") or []
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        return None
    fields = []
    for name, about in properties.items():
        kind = about.get("type") if isinstance(about, dict) else None
        if kind not in _KINDS:
            return None
        choices = _choices(about, kind)
        if kind == "array" and not choices:
            return None
        texts = [about.get("title") or name, about.get("description")]
        shown = ": ".join(_shown(text) for text in texts if text)
        fields.append(FormField(name, shown, kind, choices, name in required, about))
    return fields


def _choices(about: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the allowed values of a field by label, {} for any text."""
    if kind == "boolean":
        return {YES: True, NO: False}
    of = about.get("items", {}) if kind == "array" else about
    of = of if isinstance(of, dict) else {}
    titled = of.get("oneOf") or of.get("anyOf")
    if isinstance(titled, list):
        options = [each for each in titled if isinstance(each, dict)]
        named = [(each.get("title"), each.get("const")) for each in options]
    else:
        values = of.get("enum")
        values = values if isinstance(values, list) else []
        labels = of.get("enumNames")
        labels = labels if isinstance(labels, list) and len(labels) == len(values) else values
        named = list(zip(labels, values, strict=True))
    return {
        _shown(label or value).replace(",", " "): value
        for label, value in named
        if isinstance(value, str)
    }


def _shown(text: Any) -> str:
    return one_line(shown_text(str(text)), MAX_FIELD_CHARS)


def _asked_reply(server: str, params: "types.CreateMessageRequestParams") -> SamplingRequest:
    """Return the prompt in a sampling request. Raises ToolError for unsupported content."""
    messages = list[tuple[str, str]]()
    for message in params.messages:
        texts = [getattr(part, "text", None) for part in message.content_as_list]
        if not all(isinstance(text, str) for text in texts):
            raise ToolError("Only texts are supported.")
        text = "\n".join(str(each) for each in texts)
        if messages and messages[-1][0] == message.role:
            messages[-1] = message.role, f"{messages[-1][1]}\n{text}"
        elif text.strip():
            messages.append((message.role, text))
    if params.tools or not messages or messages[0][0] != "user" or messages[-1][0] != "user":
        raise ToolError("Tools are not supported; the first and last message must be a user's.")
    system = params.system_prompt or ""
    if len(system) + sum(len(text) for _, text in messages) > MAX_PROMPT_CHARS:
        raise ToolError(f"At most {MAX_PROMPT_CHARS:,} characters are allowed.")
    most = max(1, min(params.max_tokens, MAX_SAMPLED_TOKENS))
    return SamplingRequest(server, system, messages, most, params.stop_sequences or ())


class CrossLoopRespondent:
    """A respondent that runs in another event loop."""

    def __init__(self, respondent: Respondent, loop: asyncio.AbstractEventLoop) -> None:
        self._respondent, self._loop = respondent, loop

    async def fill_in(self, asked: FormRequest) -> Mapping[str, Value] | None:
        return await self._there(self._respondent.fill_in(asked))

    async def visit(self, asked: VisitRequest) -> bool:
        return await self._there(self._respondent.visit(asked))

    async def reply_to(self, asked: SamplingRequest) -> SampledReply:
        return await self._there(self._respondent.reply_to(asked))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
