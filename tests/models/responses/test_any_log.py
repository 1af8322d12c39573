"""Requests from arbitrary logs are valid for the Responses API, and each extends the
previous one.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.models.responses.draft import ResponseDraft
from ctxagent.agent.models.responses.wire import body, parameters
from ctxagent.agent.session.entries import Assistant, Entry

from ...context.test_request import MODEL, Line, decoded, honest, lines
from ...support.server.loopback import Say
from ...support.server.responses import items_of, read_body
from ...support.server.validator import validate


def sent(log: list[Entry]) -> list[Line]:
    """The items for a log, checked against the rules of the API."""
    request = build_request(fold(log), model=MODEL, max_tokens=1_000, effort="high")
    made = body(request, parameters(request))
    validate(read_body(made), allow_paused=True)
    items: list[Line] = made["input"]
    return items


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(lines, max_size=12))
def test_any_log_gives_a_request_the_api_accepts(garbage: list[Line]) -> None:
    sent(decoded(garbage))


def over_responses(log: list[Entry]) -> list[Entry]:
    """The log with replies as they come from the Responses API."""
    made = []
    for number, entry in enumerate(log):
        if isinstance(entry, Assistant):
            kinds = {block["type"] for block in entry.content}
            if kinds <= {"thinking", "text", "tool_use"}:
                whole = {"id": f"msg_{number}", "model": MODEL, "content": entry.content}
                draft = ResponseDraft(MODEL)
                [*draft.take_unstreamed({"output": [*items_of(Say(), whole)]})]
                entry = replace(entry, content=draft.reply().content)
        made.append(entry)
    return made


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(honest())
def test_a_request_begins_with_the_one_before(case: tuple[list[Entry], list[int]]) -> None:
    log, calls = over_responses(case[0]), case[1]
    before: list[Any] = []
    for end in calls:
        items = sent(log[:end])
        same = [item for item in before[:-1] if "[A search" not in str(item)]
        assert [item for item in items if "[A search" not in str(item)][: len(same)] == same
        before = items
