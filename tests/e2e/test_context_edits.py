"""Edits of the context from outside: `ctxagent context`, control lines of stream-json, and the
library.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent import Agent
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import fold
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.editor import Editor
from ..support.editor import edit as edited_by
from ..support.server.loopback import Say, Server
from .test_stream_input import talk

RECORD = (
    "## Session Intent\nKnow big.txt.\n\n## Key Decisions\n1. Estimate.\n\n"
    "## Current State\nPhase: reading\n\n## Next Steps\n1. Wait.\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return three_turns(tmp_path)


def three_turns(folder: Path) -> Place:
    """Return a project with a session of three turns, with parallel calls and thinking."""
    place = Place(folder)
    (place.project / "big.txt").write_text("word " * 3_000)
    (place.project / "small.txt").write_text("letter " * 300)
    reads: list[Any] = [("Read", {"path": name}) for name in ("big.txt", "small.txt")]
    steps = [
        Say("I read both.", thinking="Two files.", tools=reads),
        Say("Words.", thinking="So many."),
        Say(" ".join(f"word {number}" for number in range(4_000)), thinking="Count."),
        Say("You are welcome."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        tasks = ("what is in both? " * 40, "how many words? " * 40, "thank you")
        for task, more in zip(tasks, ([], ["--continue"], ["--continue"]), strict=True):
            done = place.run(*more, "-p", task, env=env)
            assert done.returncode == 0, done.stderr
    return place


def items(place: Place) -> list[dict[str, Any]]:
    done = place.run("context", "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


def test_the_items_of_a_session_are_listed(place: Place) -> None:
    (log,) = place.logs()
    before = log.read_bytes()
    found = items(place)
    kinds = [item["kind"] for item in found]
    assert kinds.count("message") == 3
    assert kinds.count("result") == 2
    big = next(item for item in found if item["what"] == "Read big.txt")
    assert big["tokens"] > 300
    assert big["call_usd"] > 0
    assert (big["age"], big["state"]) == (3, "whole")
    shown = place.run("context", log.parent.name)
    assert shown.returncode == 0, shown.stderr
    assert f"#{big['ref']}" in shown.stdout
    assert f"{big['tokens']:,}" in shown.stdout
    assert place.run("context", "no-such-session").returncode == 2
    assert log.read_bytes() == before


def next_messages(place: Place) -> Any:
    """Return the messages of the next request, with what is in the log now."""
    entries = read_log(place.logs()[0]).entries
    return build_request(fold(entries), model="m", max_tokens=1_000).messages


def edit(place: Place, *arguments: str, **more: Any) -> dict[str, Any]:
    """Edit the context, and check the plan that was shown before."""
    log = place.logs()[0]
    before = log.read_bytes()
    plan = place.run("context", *arguments, "--dry-run", "--json", **more)
    assert plan.returncode == 0, plan.stderr
    assert log.read_bytes() == before
    planned = json.loads(plan.stdout)
    assert not planned.pop("applied")
    done = place.run("context", *arguments, "--json", **more)
    assert done.returncode == 0, done.stderr
    applied = json.loads(done.stdout)
    assert applied.pop("applied")
    if "compact" not in arguments:
        assert applied == planned
    return dict(applied)


def undo(place: Place) -> None:
    done = place.run("compact", "--undo")
    assert done.returncode == 0, done.stderr


def ref(place: Place, kind: str, what: str = "") -> str:
    return str(next(i["ref"] for i in items(place) if i["kind"] == kind and what in i["what"]))


def test_items_are_dropped_and_restored_from_the_command_line(place: Place) -> None:
    whole = next_messages(place)
    for each in (
        ref(place, "message", "how many"),
        ref(place, "result", "big.txt"),
        ref(place, "reply", "Read"),
    ):
        applied = edit(place, "drop", each)
        assert applied["tokens_after"] < applied["tokens_before"]
        assert applied["after_usd"] < applied["before_usd"]
        dropped = next_messages(place)
        assert f"full text: #{each}" in str(dropped)
        undo(place)
        assert next_messages(place) == whole
        edit(place, "drop", f"#{each}")
        edit(place, "restore", each)
        assert without_thinking(next_messages(place)) == without_thinking(whole)
        undo(place)
        assert next_messages(place) == dropped
        undo(place)
        assert next_messages(place) == whole
    planned = place.run("context", "--json", "drop", each, "--dry-run")  # also before the command
    assert json.loads(planned.stdout)["tokens_after"] == applied["tokens_after"]


def without_thinking(messages: Any) -> Any:
    return [
        [block for block in message["content"] if block["type"] != "thinking"]
        for message in messages
    ]


def test_a_part_is_summarised_from_the_command_line(place: Place) -> None:
    whole = next_messages(place)
    first, last = ref(place, "message", "how many"), ref(place, "message", "thank")
    with Server([Say(RECORD), Say(RECORD)]) as server:
        env = place.server(server.url)
        edit(place, "compact", "--from", first, "--before", last, env=env)
        assert server.rejected == []
        asked = str(server.requests[0]["messages"])
        assert "how many words?" in asked
        assert "what is in both?" not in asked
        part = str(next_messages(place))
        assert "Know big.txt." in part
        assert "what is in both?" in part
        undo(place)
        assert next_messages(place) == whole
        done = place.run("context", "compact", "--before", last, "--instructions", "count", env=env)
        assert done.returncode == 0, done.stderr
        assert "count" in str(server.requests[1]["messages"][-1])
    assert "tokens" in done.stdout
    assert "thank you" in str(next_messages(place))
    undo(place)
    assert next_messages(place) == whole


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("drop", "9999"), "#9999 is not in the context"),
        (("drop", "x"), "not a ref"),
        (("drop",), "`ctxagent context` lists them."),
        (("--serve", "drop", "2"), "--serve has no effect with drop"),
        (("--port", "8123", "restore", "2"), "--port has no effect with restore"),
        (("--port", "8123"), "--port has no effect without --serve"),
        (("--serve", "--json"), "--serve and --json are two outputs"),
        (("undo",), "`ctxagent compact --undo` undoes the newest edit."),
        (("restore", "2"), "nothing to restore"),
        (("compact", "--from", "2"), "Give --to or --before"),
        (("compact", "--to", "2", "--before", "3"), "Give --to or --before"),
    ],
)
def test_an_edit_that_is_impossible_says_why(
    place: Place, arguments: tuple[str, ...], told: str
) -> None:
    done = place.run("context", *arguments)
    assert done.returncode in (1, 2)
    assert told in done.stderr


def test_a_program_edits_the_context_of_a_live_session(place: Place) -> None:
    whole = next_messages(place)
    message, result = ref(place, "message", "how many"), ref(place, "result", "big.txt")
    last = ref(place, "message", "thank")
    with Server([Say(RECORD), Say("Going on."), Say(RECORD)]) as server:
        with talk(place, server.url, "--continue") as program:

            def ask(action: str, **more: Any) -> dict[str, Any]:
                program.send({"type": "context", "action": action, "id": action, **more})
                found = program.next("context")
                assert found["id"] == action
                return dict(found)

            listed = ask("items")
            assert int(message) in [item["ref"] for item in listed["items"]]
            for each in (int(message), int(result)):
                plan = ask("drop", refs=[each], dry_run=True)
                assert next_messages(place) == whole
                done = ask("drop", refs=[each])
                assert done["context"]["tokens"] == plan["tokens_after"] < plan["tokens_before"]
                assert ask("restore", refs=[each])["tokens_after"] > plan["tokens_after"]
                assert len(ask("undo")["undone"]) == 1
                back = ask("undo", dry_run=True)
                assert not back["applied"]
                assert next_messages(place) != whole
                assert ask("undo")["context"]["tokens"] == back["tokens_after"]
                assert next_messages(place) == whole
            part = {"from": int(message), "before": int(last)}
            assert ask("compact", **part, dry_run=True)["summary_usd"] > 0
            assert ask("compact", **part)["context"]["tokens"] < listed["context"]["tokens"]
            ask("undo")
            assert next_messages(place) == whole
            ask("drop", refs=[int(message)])
            program.say("go on")
            assert program.next("result")["status"] == "ok"
            assert f"full text: #{message}" in str(server.requests[1]["messages"])
            program.send({"type": "context", "action": "drop", "refs": [9999]})
            assert "not in the context" in program.next("error")["message"]
            program.send({"type": "context", "action": "fold"})
            assert "items, drop" in program.next("error")["message"]
            assert ask("compact", instructions="mind the number")["applied"]
            assert program.end() == 0
        assert "mind the number" in str(server.requests[2]["messages"])
        assert server.rejected == []


def test_an_edit_during_a_turn_holds_from_the_next_call_on(place: Place) -> None:
    message = ref(place, "message", "how many")
    wait = "until [ -e go ]; do sleep 0.02; done"
    with Server(
        [Say(tools=[("Bash", {"command": wait})], thinking="Wait."), Say("Done.")]
    ) as server:
        mode = ("--permission-mode", "bypass")
        with talk(place, server.url, "--continue", *mode) as program:
            program.say("wait for it")
            program.next("tool_started")
            program.send({"type": "context", "action": "drop", "refs": [int(message)]})
            assert program.next("context")["applied"]
            (place.project / "go").touch()
            assert program.next("result")["status"] == "ok"
            assert program.end() == 0
        first, second = (str(request["messages"]) for request in server.requests)
        assert f"full text: #{message}" not in first
        assert f"full text: #{message}" in second
        assert server.rejected == []


def test_only_requests_about_the_context_are_no_error(place: Place) -> None:
    with Server([]) as server, talk(place, server.url, "--continue") as program:
        program.send({"type": "context", "action": "items"})
        assert program.end() == 0
    assert [line["type"] for line in program.lines][-1] == "context"


def test_a_python_program_edits_the_context(place: Place) -> None:
    whole = next_messages(place)
    message, last = int(ref(place, "message", "how many")), int(ref(place, "message", "thank"))

    async def act(url: str) -> None:
        async with Agent(place.project, resume=True, environ=place.server(url)) as agent:
            refs = [item.ref for item in agent.context.items() if item.kind == "message"]
            assert message in refs
            plan = agent.context.plan_drop([message])
            assert await agent.context.drop([message]) == plan
            assert agent.context.plan_restore([message]).refs == (message,)
            await agent.context.undo()
            assert next_messages(place) == whole
            await agent.context.compact(message, before=last, instructions="count")
            assert "Know big.txt." in str(next_messages(place))
            await agent.context.undo()
            assert next_messages(place) == whole
            assert (await agent.run("go on")).status == "ok"

    with Server([Say(RECORD), Say("Going on.")]) as server:
        asyncio.run(act(server.url))
        assert server.rejected == []


def test_an_editor_edits_the_context(place: Place) -> None:
    whole, message = next_messages(place), int(ref(place, "message", "how many"))
    session = place.logs()[0].parent.name

    async def act(editor: Editor) -> None:
        await editor.agent.load_session(str(place.project), session, mcp_servers=[])

        async def ask(action: str, **more: Any) -> dict[str, Any]:
            given = {"sessionId": session, "action": action, **more}
            return dict(await editor.agent.ext_method("ctxagent/context", given))

        assert message in [item["ref"] for item in (await ask("items"))["items"]]
        assert (await ask("drop", refs=[message]))["applied"]
        assert f"full text: #{message}" in str(next_messages(place))
        await ask("undo")
        assert next_messages(place) == whole

    with Server([]) as server:
        edited_by(place, place.server(server.url), act)
