"""Answers to requests of MCP servers. `e2e/test_mcp_inputs.py` tests them with the real command."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from ctxagent.agent.events import Answer, FormQuestion, Question
from ctxagent.agent.extensions.mcp.inputs import FormRequest, VisitRequest, form_fields
from ctxagent.agent.features.mcp_respondent import MAX_TRIES, McpRespondent
from ctxagent.agent.loop.call_gate import CallGate
from ctxagent.agent.loop.live_session import LiveSession

SCHEMA = {
    "properties": {
        "size": {"type": "integer", "minimum": 5},
        "town": {"type": "string", "enum": [f"Town {n}" for n in range(12)]},
    },
    "required": ["size", "town"],
}


class User:
    """A user who answers the questions of forms in order; None declines a form."""

    def __init__(self, *answers: str | None) -> None:
        self.answers, self.forms = list(answers), list[Sequence[FormQuestion]]()

    async def __call__(self, question: Question) -> Answer:
        self.forms.append(question.form)
        said = [self.answers.pop(0) for _ in question.form]
        return Answer(None not in said, words=[each or "" for each in said])


def filled_in(session: LiveSession, user: User) -> Any:
    session.ask = user
    respondent = McpRespondent(session, cast(CallGate, None), None, {})
    form = FormRequest("shop", "What do you want?", form_fields(SCHEMA) or ())
    return asyncio.run(respondent.fill_in(form))


def test_many_choices_are_named_in_the_question(session: LiveSession) -> None:
    user = User("7", "town 11")
    assert filled_in(session, user) == {"size": 7, "town": "Town 11"}
    ((first, second),) = user.forms
    assert first.text == "The MCP server shop asks: What do you want?\nsize"
    assert second.text.startswith("town (of Town 0, Town 1,")
    assert second.choices == []


def test_only_what_is_wrong_is_asked_again(session: LiveSession) -> None:
    user = User("4", "Town 1", "six", "6")
    assert filled_in(session, user) == {"size": 6, "town": "Town 1"}
    assert [form[0].text for form in user.forms[1:]] == [
        "'4' is not valid: at least 5.\nsize",
        "'six' is not valid: it is not a whole number.\nsize",
    ]


def test_invalid_values_and_declined_forms(session: LiveSession) -> None:
    user = User("1", "Town 1", "2", "3")
    assert filled_in(session, user) is None
    assert len(user.forms) == MAX_TRIES
    assert filled_in(session, User(None, None)) is None
    assert filled_in(session, User("1", "Town 1", None)) is None


def test_only_agreement_opens_a_page(session: LiveSession) -> None:
    asked = VisitRequest("shop", "Pay.", "https://pay.example/1")
    for said, agreed in (("open it", True), ("do not open it", False), ("later", False)):
        session.ask = User(said)
        respondent = McpRespondent(session, cast(CallGate, None), None, {})
        assert asyncio.run(respondent.visit(asked)) is agreed
