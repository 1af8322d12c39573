"""The schema of a turn's answer: the model gets the schema, and the problems of an answer that does
not fit. `e2e/test_json_schema.py` tests the option with the real command.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ResultError, UsageError
from ctxagent.agent.features.result_schema import (
    MAX_SCHEMA_BYTES,
    ResultSchema,
    ResultSchemaFeature,
    as_schema,
    read_schema,
)
from ctxagent.agent.loop.denials import Denial
from ctxagent.agent.loop.interface import Turn
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Summary, Usage, User

COUNT = {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}}


def schema(given: Any = COUNT) -> ResultSchema:
    found = as_schema(given)
    assert found is not None
    return found


def feature(session: LiveSession, given: ResultSchema | None) -> ResultSchemaFeature:
    """Return the feature in a turn with this schema."""
    made = ResultSchemaFeature(session)
    asyncio.run(made.turn_started(Turn(given)))
    return made


def reply(made: ResultSchemaFeature, text: str, *, is_final: bool = True) -> str | None:
    received = Reply([{"type": "text", "text": text}], "end_turn", Usage(), "m")
    return asyncio.run(made.reply_received(received, is_final=is_final))


def told(session: LiveSession) -> list[str]:
    entries = session.log.entries()
    return [str(e.content) for e in entries if isinstance(e, User) and e.source == "notice"]


def test_the_model_is_told_the_schema_once_and_again_after_a_summary(session: LiveSession) -> None:
    made = feature(session, schema())
    session.record(User(content="Count."))
    for _ in range(2):
        asyncio.run(made.before_call())
    assert told(session) == [schema().instruction]
    session.record(Summary(document={}, text="Counted.", covers=[1, 2], keep_from=3))
    asyncio.run(made.before_call())
    assert told(session) == [schema().instruction] * 2


def test_a_turn_without_a_schema_tells_nothing_and_takes_any_answer(session: LiveSession) -> None:
    made = feature(session, None)
    asyncio.run(made.before_call())
    assert reply(made, "Three.") is None
    assert told(session) == []


def test_an_answer_that_does_not_fit_is_tried_again_once(session: LiveSession) -> None:
    made = feature(session, schema())
    assert reply(made, "I count first.", is_final=False) is None
    again = reply(made, '{"count": "three"}')
    assert again is not None
    assert "/count: 'three' is not of type 'integer' (rule /properties/count/type)" in again
    assert again.endswith(schema().text)
    with pytest.raises(ResultError, match="does not fit the schema, after 2 tries"):
        reply(made, "Three.")


def test_each_turn_has_its_own_tries(session: LiveSession) -> None:
    made = feature(session, schema())
    assert reply(made, "Three.") is not None
    assert reply(made, '{"count": 3}') is None
    asyncio.run(made.turn_started(Turn(schema())))
    assert reply(made, "Three.") is not None


def test_a_denial_explains_an_answer_that_does_not_fit(session: LiveSession) -> None:
    made = feature(session, schema())
    session.denials.add(Denial("Bash", "count", "Bash(count:*)", "not allowed here", asked=False))
    assert reply(made, "I may not count.") is not None
    assert reply(made, "I may not count.") is None


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"count": 3}', {"count": 3}),
        ('\n{"count": 3}\n', {"count": 3}),
        ('```json\n{"count": 3}\n```', {"count": 3}),
    ],
)
def test_an_answer_is_json_alone_or_in_one_fence(answer: str, value: object) -> None:
    read = schema().read(answer)
    assert (read.value, read.document.strip(), read.problems) == (value, '{"count": 3}', ())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('Here: {"count": 3}', "it is not JSON alone"),
        ("", "it is not JSON alone"),
        ('{"count": NaN}', "NaN is no JSON"),
        ('{"count": 1e999}', "1e999 is too large a number"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "the document: 'count' is a required property (rule /required)"),
    ],
)
def test_what_is_wrong_with_an_answer(answer: str, problem: str) -> None:
    read = schema().read(answer)
    assert problem in " ".join(read.problems)
    assert (read.value, read.document) == (None, "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"type": "whole"}, "is not valid under any of the given schemas"),
        ({"$schema": "https://example.org/mine"}, "is not a known draft"),
        ({"$ref": "https://example.org/other.json"}, "is not defined in the file"),
        ({"$ref": "#/$defs/nowhere"}, "is not defined in the file"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"count": {1, 2}}, "not JSON serializable"),
    ],
)
def test_invalid_schemas(given: Any, problem: str) -> None:
    with pytest.raises(UsageError, match="this is not a valid schema: ") as error:
        as_schema(given)
    assert problem in str(error.value)


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    with pytest.raises(UsageError, match=r"schema\.json: No such file"):
        read_schema(path)
    path.write_text('{"type": "integer"}')
    assert read_schema(path).read("3").value == 3
    assert as_schema(None) is None
    path.write_text('{"a": "' + "x" * MAX_SCHEMA_BYTES + '"}')
    with pytest.raises(UsageError):
        read_schema(path)
