"""One conversation, from its opening to its end."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Notice, Waiting
from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Entry, Note
from ctxagent.tools.bash import BashParams, BashTool

from ..support.sessions.conversation import Conversation


class Listener(Feature):
    """Records the events and entries that it gets."""

    name = "listener"

    def __init__(self, talk: Conversation) -> None:
        super().__init__(talk.agent)
        self.heard: list[str] = []
        self.entries: list[Entry] = []
        talk.agent.features.add(self)

    async def prepare(self) -> None:
        self.heard.append("prepare")

    async def session_started(self) -> None:
        self.heard.append("session_started")

    async def close(self) -> None:
        self.heard.append("close")

    async def session_ended(self) -> None:
        self.heard.append("session_ended")

    def recorded(self, entry: Entry) -> None:
        self.entries.append(entry)


def closed(talk: Conversation) -> list[str]:
    """Close the agent. Return what was closed, in order."""
    closed: list[str] = []
    close = talk.model.close

    async def close_model() -> None:
        closed.append("model")
        await close()

    talk.model.close = close_model  # type: ignore[method-assign]
    asyncio.run(talk.agent.close())
    return closed


def test_a_session_begins_once(project: Path) -> None:
    talk = Conversation(project)
    listener = Listener(talk)
    talk.environment.startup = lambda: [Note(topic="t", text="first")]

    async def begin_twice() -> None:
        for _ in range(2):
            await talk.agent.begin()

    assert not talk.agent.is_open
    asyncio.run(begin_twice())
    assert talk.agent.is_open
    assert talk.kinds() == ["session", "note"]
    assert listener.heard == ["prepare", "session_started"]
    assert listener.entries == talk.entries()
    assert [event.what for event in talk.seen(Waiting)] == [
        "reading the project's instructions",
        "",
    ]


def test_a_session_ends_after_its_log_is_closed(project: Path) -> None:
    talk = Conversation(project, [Step(text="hi")])
    listener = Listener(talk)
    talk.say("hello")
    listener.heard.clear()
    assert closed(talk) == ["model"]
    assert listener.heard == ["close", "session_ended"]
    with pytest.raises(Exception, match="closed"):
        talk.agent.record(Note(topic="t", text="late"))


def test_a_session_that_was_never_opened_does_not_end(project: Path) -> None:
    talk = Conversation(project)
    listener = Listener(talk)
    assert closed(talk) == ["model"]
    assert listener.heard == ["close"]


def test_the_model_is_closed_also_if_the_session_cannot_end(project: Path) -> None:
    class Failing(Feature):
        async def close(self) -> None:
            raise ZeroDivisionError("by zero")

    talk = Conversation(project)
    talk.agent.features.add(Failing(talk.agent))
    model_closed: list[bool] = []

    async def close_model() -> None:
        model_closed.append(True)

    talk.model.close = close_model  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(talk.agent.close())
    assert model_closed == [True]
    Conversation(project)  # the log is released


def test_a_cancelled_end_announces_nothing(project: Path) -> None:
    talk = Conversation(project, [Step(text="hi")])
    listener = Listener(talk)
    talk.say("hello")

    async def interrupted() -> None:
        leaving = asyncio.ensure_future(talk.agent.close_except_model())
        talk.agent.resume_cache.save_at_close = (  # type: ignore[method-assign]
            lambda log: loop.call_soon_threadsafe(leaving.cancel) and None
        )
        loop = asyncio.get_running_loop()
        await asyncio.wait({leaving})

    asyncio.run(interrupted())
    assert "session_ended" not in listener.heard


def test_a_file_that_a_job_left_for_other_programs_is_reported_at_the_end(project: Path) -> None:
    talk, go, done = Conversation(project), project.parent / "go", project.parent / "done"
    os.mkfifo(go)
    os.mkfifo(done)

    async def run() -> None:
        await talk.agent.begin()
        command = f"cat {go}; echo x > .envrc; : > {done}; exec sleep 60"
        params = BashParams(command=command, run_in_background=True)
        await talk.agent.runner.watched(BashTool(), params, "c1")
        await asyncio.to_thread(go.write_text, "x")
        await asyncio.to_thread(done.read_text)
        await talk.agent.close()

    asyncio.run(run())
    (notice,) = talk.seen(Notice)
    assert (notice.level, ".envrc" in notice.text) == ("warning", True)
    (job,) = talk.agent.context.jobs.values()
    assert not job.process.running


class Fence:
    """A sandbox with only the parts that the end of a session needs."""

    absent = ""

    def __init__(self) -> None:
        self.removed = 0

    def set_aside(self) -> Sequence[str]:
        return []

    def remove_empty(self) -> None:
        self.removed += 1


class Tracker:
    """A change tracker with only the parts that the end of a session needs."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("session", "times"), [("s", 1), ("s/agents/a-1", 0)])
def test_a_subagent_leaves_what_is_shared_to_its_session(
    project: Path, session: str, times: int
) -> None:
    (project.parent / "project-state" / "sessions" / "s").mkdir(parents=True)
    talk = Conversation(project, session=session)
    fence, tracker = Fence(), Tracker()
    shared: Any = talk.agent
    shared.context.sandbox, shared.runner.change_tracker = fence, tracker
    asyncio.run(talk.agent.close_except_model())
    assert (fence.removed, tracker.closed) == (times, times)


def test_only_an_open_session_is_prepared_for_its_end(project: Path) -> None:
    talk = Conversation(project, [Step(text="hi")])
    finished: list[bool] = []

    async def finish() -> None:
        finished.append(True)

    talk.agent.engine.finish = finish  # type: ignore[method-assign]
    asyncio.run(talk.agent.finish())
    assert finished == []
    talk.say("hello")
    asyncio.run(talk.agent.finish())
    assert finished == [True]
