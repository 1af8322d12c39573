"""The features of a conversation: called in order, and switched off where an extension fails."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ctxagent.agent.errors import RecordError, RequestRejected
from ctxagent.agent.events import Notice, TurnFinished
from ctxagent.agent.loop.feature import Feature, IncomingMessage, ToolCall, Turn, Veto
from ctxagent.agent.loop.features import Features
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Content, Entry, Note, Usage
from ctxagent.tools.base import Output, Tool
from ctxagent.tools.bash import BashTool

REPLY = Reply(content=[], usage=Usage(), stop_reason="end_turn", model="m")
CALL = ToolCall("t", "Bash", "ls", {"command": "ls"}, Path("/"))


class Named(Feature):
    """A feature that says what it was called for."""

    def __init__(self, name: str, said: list[str]) -> None:
        super().__init__(cast(Any, None))
        self.own, self.said = name, said

    def tools(self) -> Sequence[Tool[Any]]:
        return [BashTool()]

    def first_entries(self) -> Sequence[Entry]:
        return [Note(topic="note", text=self.own)]

    def recorded(self, entry: Entry) -> None:
        self.said.append(f"{self.own} recorded")

    async def turn_started(self, turn: Turn) -> None:
        self.said.append(f"{self.own} started")

    async def message_received(self, message: IncomingMessage) -> Content | None:
        return f"{message.content}{self.own}"

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any] | None:
        return {"command": f"{call.arguments['command']} {self.own}"}

    async def after_tool(self, call: ToolCall, output: Output, seconds: float) -> Output | None:
        return Output(output.text + self.own)

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        self.said.append(f"{self.own} reply")
        return f"go on, says {self.own}"

    async def step_finished(self) -> str | None:
        return f"answer of {self.own}"

    async def request_refused(self, refusal: RequestRejected) -> bool:
        self.said.append(f"{self.own} refused")
        return self.own == "b"


class Quiet(Feature):
    """A feature that overrides one method."""

    async def turn_ended(self, finished: TurnFinished) -> None:
        raise ValueError("broken")


def features(*names: str) -> tuple[Features, list[str], list[Any]]:
    said: list[str] = []
    told: list[Any] = []
    found = Features(told.append)
    found.add(*(Named(name, said) for name in names))
    return found, said, told


def test_they_are_called_in_order() -> None:
    found, said, _ = features("a", "b")
    asyncio.run(found.turn_started(Turn()))
    found.recorded(Note(topic="x", text="y"))
    assert said == ["a started", "b started", "a recorded", "b recorded"]
    assert [tool.name for tool in found.tools()] == ["Bash", "Bash"]
    assert [cast(Note, entry).text for entry in found.first_entries()] == ["a", "b"]
    assert len(list(found)) == 2


def test_each_changes_what_the_one_before_left() -> None:
    found, _, _ = features("a", "b")
    message = asyncio.run(found.message_received(IncomingMessage("x", verbatim=True)))
    assert (message.content, message.verbatim) == ("xab", True)
    call = asyncio.run(found.before_tool(CALL))
    assert (call.arguments, call.id) == ({"command": "ls a b"}, "t")
    assert asyncio.run(found.after_tool(CALL, Output("out "), 1.0)).text == "out ab"


def test_the_first_answer_counts() -> None:
    found, said, _ = features("a", "b")
    assert asyncio.run(found.reply_received(REPLY, is_final=True)) == "go on, says a"
    assert said == ["a reply"]
    assert asyncio.run(found.reply_received(REPLY, is_final=False)) is None
    assert said == ["a reply", "a reply", "b reply"]
    assert asyncio.run(found.step_finished()) == "answer of a"


def test_the_first_that_removes_the_cause_of_a_refusal() -> None:
    found, said, _ = features("a", "b", "c")
    refusal = RequestRejected("no")
    assert asyncio.run(found.request_refused(refusal))
    assert said == ["a refused", "b refused"]
    assert not asyncio.run(features("a")[0].request_refused(refusal))


def test_without_features_nothing_changes() -> None:
    found, _, _ = features()
    message = IncomingMessage("x")
    assert asyncio.run(found.message_received(message)) is message
    assert asyncio.run(found.before_tool(CALL)) is CALL
    output = Output("x")
    assert asyncio.run(found.after_tool(CALL, output, 1.0)) is output
    assert asyncio.run(found.step_finished()) is None
    assert found.tools() == found.first_entries() == []


def test_one_is_found_by_its_class_and_switched_off() -> None:
    found, said, _ = features("a")
    quiet = Quiet(cast(Any, None))
    found.add(quiet)
    assert found.find(Quiet) is quiet
    asyncio.run(found.turn_started(Turn()))
    found.drop(quiet)
    assert found.find(Quiet) is None
    named = found.find(Named)
    assert named is not None
    found.drop(named)
    asyncio.run(found.turn_started(Turn()))
    assert said == ["a started"]


def test_an_extension_that_fails_is_switched_off_and_named() -> None:
    found, _, told = features("a")
    broken = Quiet(cast(Any, None))
    found.add(broken, guarded=True)
    asyncio.run(found.turn_ended(TurnFinished("ok", "")))
    assert found.find(Quiet) is None
    (notice,) = told
    assert isinstance(notice, Notice)
    assert "failed and is switched off for this session: ValueError: broken" in notice.text
    assert found.find(Named) is not None


def test_errors_of_the_agents_own_features_are_passed_on() -> None:
    found, _, told = features()
    found.add(Quiet(cast(Any, None)))
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(found.turn_ended(TurnFinished("ok", "")))
    assert told == []


@pytest.mark.parametrize("error", [Veto("no"), RecordError("full")])
def test_a_veto_and_a_failed_record_are_passed_on(error: Exception) -> None:
    class Raising(Feature):
        async def before_call(self) -> None:
            raise error

    found, _, _ = features()
    found.add(Raising(cast(Any, None)), guarded=True)
    with pytest.raises(type(error)):
        asyncio.run(found.before_call())
    assert found.find(Raising) is not None


def test_a_veto_has_a_reason() -> None:
    assert (Veto("why").reason, str(Veto("why"))) == ("why", "why")
