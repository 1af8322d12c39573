"""Forms of MCP servers, the values of answers, and sampling requests."""

import asyncio
from typing import Any

import mcp_types as types
import pytest

from ctxagent.agent.extensions.mcp.inputs import (
    FormField,
    FormRequest,
    SampledReply,
    SamplingRequest,
    Value,
    VisitRequest,
    elicit,
    form_fields,
    sample,
)


def field(schema: dict[str, Any], *, required: bool = True) -> FormField:
    names = ["f"] if required else []
    fields = form_fields({"properties": {"f": schema}, "required": names})
    assert fields
    return fields[0]


TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green, dark"}]


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        ({"type": "string"}, "a b", "a b"),
        ({"type": "string", "format": "email"}, "a@b.c", "a@b.c"),
        ({"type": "string", "format": "date"}, "2026-11-26", "2026-11-26"),
        ({"type": "string", "format": "date-time"}, "2026-11-26T10:00:00Z", "2026-11-26T10:00:00Z"),
        ({"type": "string", "enum": ["a", "b"]}, "B", "b"),
        ({"type": "string", "enum": ["a"], "enumNames": ["First"]}, "First", "a"),
        ({"type": "string", "oneOf": TITLED}, "Green  dark", "g"),
        ({"type": "string", "oneOf": TITLED}, "r", "r"),
        ({"type": "integer"}, "-7", -7),
        ({"type": "integer"}, "7.0", 7),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number", "minimum": 1, "maximum": 2}, "2", 2),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "array", "items": {"anyOf": TITLED}}, "Red, g", ["r", "g"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "b", ["b"]),
    ],
)
def test_the_value_of_an_answer(schema: dict[str, Any], answer: str, value: Value) -> None:
    found = field(schema).value(answer)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("schema", "answer", "problem"),
    [
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 characters"),
        ({"type": "string", "format": "email"}, "ab", "it is not a valid email"),
        ({"type": "string", "format": "uri"}, "a b", "it is not a valid uri"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "choose one of a, b"),
        ({"type": "integer"}, "1.5", "it is not a whole number"),
        ({"type": "integer"}, "nan", "it is not a whole number"),
        ({"type": "number"}, "1e9", "it is not a number"),
        ({"type": "number", "minimum": 1}, "0", "at least 1"),
        ({"type": "number", "maximum": 1}, "2", "at most 1"),
        ({"type": "boolean"}, "perhaps", "choose one of yes, no"),
        ({"type": "array", "items": {"enum": ["a"]}}, "a, b", "choose one of a"),
        ({"type": "string", "minLength": 30}, "leave it out", "at least 30 characters"),
    ],
)
def test_an_invalid_answer_is_refused(schema: dict[str, Any], answer: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        field(schema).value(answer)


def test_what_a_form_offers() -> None:
    assert field({"type": "string", "default": "x"}).labels == ["x"]
    assert field({"type": "string"}, required=False).labels == ["leave it out"]
    assert field({"type": "boolean"}, required=False).labels == ["yes", "no", "leave it out"]
    many = field({"type": "string", "enum": [f"v{n}" for n in range(30)]})
    assert (many.labels, many.value("v29")) == ([], "v29")
    assert field({"type": "integer"}, required=False).value("leave it out") is None
    hostile = field({"type": "string", "title": "a\x1b[2Jb\u202e", "description": "c\nd"})
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text
    assert "\n" not in hostile.text


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"f": {"type": "object"}}},
        {"properties": {"f": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"f": "text"}},
        {"properties": ["f"]},
        {"properties": {f"f{n}": {"type": "string"} for n in range(21)}},
    ],
)
def test_a_form_that_cannot_be_shown_is_declined(schema: dict[str, Any]) -> None:
    assert form_fields(schema) is None
    params = types.ElicitRequestFormParams(message="?", requested_schema=schema)
    assert asyncio.run(elicit("s", params, Person())).action == "decline"


class Person:
    """A respondent that gives fixed answers and records the questions."""

    def __init__(self) -> None:
        self.asked: list[FormRequest | VisitRequest | SamplingRequest] = []

    async def fill_in(self, asked: FormRequest) -> dict[str, Value] | None:
        self.asked.append(asked)
        return {"f": "x"}

    async def visit(self, asked: VisitRequest) -> bool:
        self.asked.append(asked)
        return True

    async def reply_to(self, asked: SamplingRequest) -> SampledReply:
        self.asked.append(asked)
        return SampledReply("A heron.", "model", is_cut=True)


@pytest.mark.parametrize(
    "url", ["file:///a", "javascript:x", "https://a b", "https://a/\u202e", ""]
)
def test_an_invalid_url_is_not_shown(url: str) -> None:
    person = Person()
    params = types.ElicitRequestURLParams(message="?", url=url, elicitation_id="1")
    assert asyncio.run(elicit("s", params, person)).action == "decline"
    assert person.asked == []


def asks(*messages: tuple[str, str], **more: Any) -> types.CreateMessageRequestParams:
    return types.CreateMessageRequestParams.model_validate(
        {
            "messages": [
                {"role": role, "content": {"type": "text", "text": text}} for role, text in messages
            ],
            "maxTokens": 100_000,
            **more,
        }
    )


def test_a_sampling_request_becomes_a_prompt() -> None:
    person = Person()
    talk = (("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d"))
    answer = asyncio.run(sample("s", asks(*talk, stopSequences=["."]), person))
    assert isinstance(answer, types.CreateMessageResult)
    assert (answer.model, answer.stop_reason) == ("model", "maxTokens")
    (asked,) = person.asked
    assert asked == SamplingRequest(
        "s", "", [("user", "a\nb"), ("assistant", "c"), ("user", "d")], 8_192, ["."]
    )


@pytest.mark.parametrize(
    "params",
    [
        asks(),
        asks(("assistant", "a")),
        asks(("user", "a"), ("assistant", "b")),
        asks(("user", "a" * 200_001)),
        asks(("user", "a"), tools=[{"name": "t", "inputSchema": {"type": "object"}}]),
        types.CreateMessageRequestParams.model_validate(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": {"type": "image", "data": "", "mimeType": "image/png"},
                    }
                ],
                "maxTokens": 1,
            }
        ),
    ],
)
def test_unsupported_sampling_requests_are_refused(
    params: types.CreateMessageRequestParams,
) -> None:
    person = Person()
    answer = asyncio.run(sample("s", params, person))
    assert isinstance(answer, types.ErrorData)
    assert "supported" in answer.message or "allowed" in answer.message
    assert person.asked == []
