"""Sessions over Chat Completions: the real command against strict servers of each dialect."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.events import TurnFinished
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.session.entries import Summary

from ..support.command import Place
from ..support.server.chat import DIALECTS, ChatServer
from ..support.server.faults import NEVER, OVER_ANY_WIRE, Faults
from ..support.server.loopback import Fail, Say, uneven
from ..support.server.mixture import Mixture
from ..support.server.wires import model_of
from ..support.sessions.conversation import Conversation
from .test_images import png


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(place: Place, server: ChatServer, *arguments: str) -> Any:
    return place.run(*arguments, env=place.environ(server.variables))


def bash(*commands: str, **more: Any) -> Say:
    return Say("", tools=[("Bash", {"command": each}) for each in commands], **more)


@pytest.mark.variants
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session(place: Place, dialect: str) -> None:
    """Parallel calls, reasoning and a resume. The server refuses nothing that its dialect supports.
    A missing feature is learned once. Every request is rebuilt to the byte.
    """
    (place.project / "notes.txt").write_text("the walrus was here\n")
    steps = [
        bash("cat notes.txt", "pwd", thinking="Who was it? Let me look."),
        bash("ls", thinking="And now?"),
        Say("A walrus.", thinking="It says so."),
        bash("cat notes.txt", thinking="Once more."),
        Say("Yes, a walrus."),
    ]
    with ChatServer(steps, dialect=dialect) as server:
        first = run(place, server, "-p", "who was here?")
        assert (first.returncode, first.stdout) == (0, "A walrus.\n"), first.stderr
        refused = len(server.refused)
        again = run(place, server, "--continue", "-p", "sure?")
        assert (again.returncode, again.stdout) == (0, "Yes, a walrus.\n"), again.stderr
    assert server.rejected == []
    assert len(server.refused) == refused, "learned in the first process"
    requests = server.requests
    assert len(requests) == 5
    for earlier, later in pairwise(requests):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
        assert (later["system"], later["tools"]) == (earlier["system"], earlier["tools"])
    results = [b["content"][0]["text"] for b in requests[1]["messages"][-1]["content"]]
    assert "the walrus was here" in results[0]
    assert str(place.project) in results[1]

    answered = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert [entry["request"]["protocol"] for entry in answered] == ["chat"] * 5
    assert [entry["model"] for entry in answered] == [server.model] * 5
    assert answered[1]["usage"]["cache_read"] > 0
    checked = run(place, server, "replay")
    assert checked.returncode == 0, checked.stderr
    assert "Our own sessions: 5 of 5 requests rebuilt byte for byte" in checked.stdout
    assert "\n! " not in checked.stdout


@pytest.mark.variants
@pytest.mark.parametrize(("dialect", "seed"), [("openai", 2), ("gemini", 3), ("mistral", 4)])
def test_long_work(tmp_path: Path, dialect: str, seed: int) -> None:
    """Fifty calls in a small window with summaries and faults. The server refuses nothing that its
    dialect supports, and no call of a broken reply runs.
    """
    (project := tmp_path / "project").mkdir()
    plan = Faults(Mixture(50, seed), rate=0.3, seed=seed, kinds=OVER_ANY_WIRE)
    size_of = uneven(0.4)
    with ChatServer(plan, dialect=dialect, strict=True, window=24_000, size_of=size_of) as server:
        model = model_of(server, tmp_path / "state", context_window=24_000)
        talk = Conversation(project, model=model, policy=PRESETS["default"])

        async def play() -> None:
            try:
                finished = await run_turn(talk.agent, "Count everything.")
                assert finished == TurnFinished("ok", "All done."), finished
            finally:
                await talk.agent.close()

        asyncio.run(play())
    assert [message for message, _ in server.rejected] == []
    assert talk.of(Summary)
    assert len(plan.count) > 5
    assert not (project / NEVER).exists()


def calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for message in body["messages"] for call in message.get("tool_calls", ())]


def test_fields_that_servers_require_back(place: Place) -> None:
    """The signature of a call, IDs of nine characters, and the reasoning of the last reply."""
    for dialect in ("gemini", "mistral", "deepseek"):
        steps = [bash("echo a", "echo b", thinking="Hm."), Say("Done.")]
        with ChatServer(steps, dialect=dialect) as server:
            assert run(place, server, "-p", "go").returncode == 0
        last = server.bodies[-1]
        if dialect == "gemini":
            signed = [call.get("extra_content") for call in calls(last)]
            id = calls(last)[0]["id"]
            assert signed == [{"google": {"thought_signature": f"sig-{id}"}}, None]
        elif dialect == "mistral":
            assert [len(call["id"]) for call in calls(last)] == [9, 9]
        else:
            assert last["messages"][2]["reasoning_content"] == "Hm."


def test_call_without_reasoning_when_the_server_requires_it(place: Place) -> None:
    steps = [bash("echo a"), bash("echo b"), Say("Done.")]
    with ChatServer(steps, dialect="deepseek") as server:
        done = run(place, server, "-p", "go")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert len(server.refused) == 1
    assert server.bodies[-1]["messages"][2]["reasoning_content"] == " "


def test_reasoning_between_tags_is_shown_and_never_sent_back(place: Place) -> None:
    steps = [
        Say("<think>Who was it?</think>\n\nI look.", tools=[("Bash", {"command": "pwd"})]),
        Say("<think>So.</think>A walrus."),
    ]
    with ChatServer(steps, dialect="mistral") as server:
        done = run(place, server, "-p", "go")
    assert (done.returncode, done.stdout) == (0, "A walrus.\n"), done.stderr
    assert server.bodies[-1]["messages"][2]["content"] == "I look."
    (thought, *_) = next(e for e in place.entries() if e["kind"] == "assistant")["content"]
    assert thought["thinking"] == "Who was it?"


def test_images_in_messages_and_in_results(place: Place) -> None:
    for name in ("a", "b"):
        (place.project / f"{name}.png").write_bytes(png(40, 30))
    steps = [Say(tools=[("Read", {"path": "b.png"}), ("Bash", {"command": "pwd"})]), Say("Black.")]
    with ChatServer(steps, dialect="gemini") as server:
        done = run(place, server, "-p", "look at @a.png")
    assert (done.returncode, done.stdout) == (0, "Black.\n"), done.stderr
    assert server.rejected == []
    first, second = server.bodies
    parts = first["messages"][1]["content"]
    assert [part["type"] for part in parts].count("image_url") == 1
    roles = [message["role"] for message in second["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert second["messages"][-1]["content"][-1]["type"] == "image_url"


def test_broken_arguments_are_answered(place: Place) -> None:
    steps = [Say(tools=[("Bash", '{"command": "touch x')]), bash("touch y"), Say("Done.")]
    with ChatServer(steps, dialect="gemini") as server:
        done = run(place, server, "-p", "go", "--allow", "Bash(touch:*)")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert server.rejected == []
    assert [path.name for path in place.project.iterdir()] == ["y"]
    (first, *_) = calls(server.bodies[1])
    assert first["function"]["arguments"] == "{}"


def test_a_filtered_reply_ends_the_turn(place: Place) -> None:
    steps = [Say("I", stop_reason="refusal"), Say("Hello.")]
    with ChatServer(steps) as server:
        filtered = run(place, server, "-p", "go")
        assert filtered.returncode != 0
        again = run(place, server, "--continue", "-p", "hi")
    assert (again.returncode, again.stdout) == (0, "Hello.\n"), again.stderr
    assert server.rejected == []


def test_a_key_that_is_refused(place: Place) -> None:
    with ChatServer([Fail(401, "Incorrect API key provided: test-key-1.")]) as server:
        done = run(place, server, "-p", "go")
    assert done.returncode == 5
    assert "OPENAI_API_KEY" in done.stderr
    assert "test-key-1" not in done.stderr


def test_requests_of_an_unknown_protocol_are_not_rebuilt(place: Place) -> None:
    with ChatServer([Say("Hello.")], dialect="gemini") as server:
        assert run(place, server, "-p", "go").returncode == 0
        (log,) = place.logs()
        log.write_text(log.read_text().replace('"chat"', '"hologram"'))
        checked = run(place, server, "replay")
    assert checked.returncode == 0, checked.stderr
    told = "0 of 0 requests rebuilt byte for byte · 1 with an unknown protocol\n"
    assert f"Our own sessions: {told}" in checked.stdout
    assert "\n! " not in checked.stdout
