"""Answers to requests that MCP servers make during a call: forms, page visits and model replies."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...tools.mcp import SamplingParams, SamplingTool
from ..context.request import Request
from ..errors import CtxagentError, ToolError
from ..events import Answer, FormQuestion, GivenAnswers
from ..loop.call_arguments import CallRefused
from ..loop.call_gate import CallGate
from ..loop.interface import ToolCall
from ..loop.live_session import LiveSession
from ..models.base import text_of
from ..session.entries import SAMPLING
from .questions import fill_in

if TYPE_CHECKING:
    from ..extensions.mcp.inputs import (
        FormField,
        FormRequest,
        SampledReply,
        SamplingRequest,
        Value,
        VisitRequest,
    )

MAX_TRIES = 3  # for one field of a form
OPEN, DECLINE = "open it", "do not open it"
SEND, REFUSE = "yes", "no"


class McpRespondent:
    """Answers server requests for the user of a conversation."""

    def __init__(
        self,
        session: LiveSession,
        gate: CallGate,
        given: GivenAnswers | None,
        environ: Mapping[str, str],
    ) -> None:
        """`given` are prepared answers from the command line."""
        self._session, self._gate, self._given, self._environ = session, gate, given, environ

    async def fill_in(self, asked: "FormRequest") -> "Mapping[str, Value] | None":
        """Return the values that the user enters, or None if the user declines or is absent."""
        head = f"The MCP server {asked.server} asks: {asked.message}"
        if not asked.fields:
            answer = await self._ask(FormQuestion(head, ((SEND, ""), (REFUSE, ""))))
            return {} if answer and answer.words[0] == SEND else None
        form = [_question(field, "" if place else head) for place, field in enumerate(asked.fields)]
        answer = await self._ask(*form)
        if answer is None:
            return None
        values: dict[str, Value] = {}
        for field, said in zip(asked.fields, answer.words, strict=True):
            value = await self._value(field, said)
            if isinstance(value, ValueError):
                return None
            values |= {} if value is None else {field.name: value}
        return values

    async def visit(self, asked: "VisitRequest") -> bool:
        """Ask the user to visit a page. If they agree, open it in a browser on a desktop, or print
        its address.
        """
        text = f"The MCP server {asked.server} asks you to open {asked.url} — {asked.message}"
        answer = await self._ask(FormQuestion(text, ((OPEN, ""), (DECLINE, ""))))
        if answer is None or answer.words[0] != OPEN:
            return False
        is_desktop = self._environ.get("DISPLAY") or self._environ.get("WAYLAND_DISPLAY")
        if is_desktop and self._session.ask is not None:
            import webbrowser

            webbrowser.open(asked.url)
        else:
            self._session.notify("info", f"open this address in a browser: {asked.url}")
        return True

    async def reply_to(self, asked: "SamplingRequest") -> "SampledReply":
        """Return a reply of the conversation's model, within its budget, if a rule or the user
        allows it. Raises ToolError.
        """
        from ..extensions.mcp.inputs import SampledReply

        session, tool = self._session, SamplingTool()
        params = SamplingParams(
            server=asked.server,
            system=asked.system,
            messages=[text for _, text in asked.messages],
            max_tokens=asked.max_tokens,
        )
        call = ToolCall("", tool.name, tool.title(params), params.model_dump(), session.context.cwd)
        try:
            await self._gate.permit(tool, params, call)
            session.model.budget_meter.call()
            reply = await session.model.ask(_request(asked, session), SAMPLING)
        except CallRefused as refused:
            raise ToolError(refused.output.text) from None
        except CtxagentError as error:
            raise ToolError(f"The model does not answer: {error.message}") from None
        text = text_of(reply.content)
        ends = [text.find(stop) for stop in asked.stop if stop and stop in text]
        is_cut = reply.stop_reason == "max_tokens"
        return SampledReply(text[: min(ends, default=len(text))], session.model.id, is_cut)

    async def _value(self, field: "FormField", said: str) -> "Value | ValueError | None":
        """Return the value of a field. Ask again if it is invalid. Return the last error if all
        attempts fail.
        """
        for left in reversed(range(MAX_TRIES)):
            try:
                return field.value(said)
            except ValueError as error:
                again = f"{said[:100]!r} is not valid: {error}."
                answer = await self._ask(_question(field, again)) if left else None
                if answer is None:
                    return error
                said = answer.words[0]
        return None

    async def _ask(self, *form: FormQuestion) -> Answer | None:
        """Return the answers to a form, or None if the user declines or is absent."""
        answer = await fill_in(self._session, self._given, form)
        return answer if answer and answer.allow else None


def _question(field: "FormField", head: str) -> FormQuestion:
    text = f"{head}\n{field.text}" if head else field.text
    if field.choices and not field.labels:
        text += f" (of {', '.join(field.choices)})"
    return FormQuestion(text, [(each, "") for each in field.labels], field.kind == "array")


def _request(asked: "SamplingRequest", session: LiveSession) -> Request:
    return Request(
        model=session.model.id,
        system=[{"type": "text", "text": asked.system}] if asked.system else [],
        tools=[],
        messages=[
            {"role": role, "content": [{"type": "text", "text": text}]}
            for role, text in asked.messages
        ],
        max_tokens=asked.max_tokens,
        effort=session.model.effort,
        thinking=False,
    )
