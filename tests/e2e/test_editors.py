"""`ctxagent acp` with the client of the protocol's Python package: sessions, prompts, questions."""

import asyncio
import base64
import io
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from PIL import Image

from ..support.command import PATIENCE, Place, gone, running
from ..support.editor import Editor, edit
from ..support.server.loopback import Fail, Say, Server
from ..support.server.wires import Wire, over_each_wire
from ..support.terminal.screen import Terminal


def say(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def picture() -> ImageContentBlock:
    data = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(data, "PNG")
    return ImageContentBlock(
        type="image", data=base64.b64encode(data.getvalue()).decode(), mime_type="image/png"
    )


@pytest.mark.variants
@over_each_wire
def test_a_conversation_with_an_image_a_permission_a_diff(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    (place.project / "notes.md").write_text("one\ntwo\nthree\n")
    steps = [
        Say("I look.", thinking="Hm.", tools=[("Read", {"path": "notes.md"})]),
        Say(tools=[("Edit", {"path": "notes.md", "old_string": "two", "new_string": "2"})]),
        Say(tools=[("Bash", {"command": "touch made; echo done"})]),
        Say("All is well."),
    ]

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        assert new.modes is not None
        assert new.modes.current_mode_id == "ask"
        answer = await editor.agent.prompt(new.session_id, [say("look at this: "), picture()])
        assert answer.stop_reason == "end_turn"

    with wire(steps) as server:
        editor = edit(place, place.environ(server.variables), act, "-c", "sandbox.mode=off")
    assert server.rejected == []
    assert "image/png" in str(server.requests[0]["messages"])
    assert editor.text.startswith("I look.")
    assert editor.text.endswith("All is well.")
    assert "Hm." in editor.thoughts
    assert (place.project / "notes.md").read_text() == "one\n2\nthree\n"
    assert (place.project / "made").exists()
    read, change, run = (update.tool_call_id for update in editor.of("tool_call")[:3])
    assert editor.call(read)["kind"] == "read"
    assert editor.call(read)["locations"] == [{"path": str(place.project / "notes.md")}]
    assert editor.call(change)["status"] == "completed"
    (diff,) = editor.call(change)["content"]
    assert diff["type"] == "diff"
    assert diff["path"] == str(place.project / "notes.md")
    assert (diff["old_text"], diff["new_text"]) == ("one\ntwo\nthree\n", "one\n2\nthree\n")
    assert editor.call(run)["kind"] == "execute"
    assert "done" in str(editor.call(run)["content"])
    asked = [call.tool_call_id for call, _ in editor.asked]
    assert asked == [change, run]
    assert editor.of("usage_update")[-1].used > 0
    assert editor.of("session_info_update")[-1].title.startswith("look at this")


def test_the_image_of_a_prompt_is_kept_and_a_resource_and_a_link_are_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "with space.txt").write_text("first\nsecond\nthird\n")

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        uri = (place.project / "with space.txt").as_uri()
        blocks = [
            say("what of "),
            ResourceContentBlock(type="resource_link", uri=f"{uri}#L2:2", name="with space.txt"),
            say(" and of "),
            EmbeddedResourceContentBlock(
                type="resource",
                resource=TextResourceContents(uri="file:///elsewhere/b.py", text="unsaved = 17\n"),
            ),
        ]
        await editor.agent.prompt(new.session_id, blocks)
        for bad in ([], [say("  ")], [ImageContentBlock(type="image", data="?", mime_type="a/b")]):
            with pytest.raises(RequestError):
                await editor.agent.prompt(new.session_id, bad)

    with Server([Say("Read.")]) as server:
        edit(place, place.server(server.url), act)
    said = str(server.requests[0]["messages"])
    assert "unsaved = 17" in said
    assert "/elsewhere/b.py" in said
    assert "second" in said
    assert "third" not in said
    assert len(server.requests) == 1
    assert server.rejected == []


@over_each_wire
def test_a_turn_is_cancelled_in_mid_stream_and_goes_on(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    steps = [Say("A long answer that stops", fault="silence"), Say("Again.")]

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        asking = asyncio.ensure_future(editor.agent.prompt(new.session_id, [say("tell me")]))
        await editor.until(lambda: "A" in editor.text)
        await editor.agent.cancel(new.session_id)
        assert (await asking).stop_reason == "cancelled"
        answer = await editor.agent.prompt(new.session_id, [say("once more")])
        assert answer.stop_reason == "end_turn"

    with wire(steps) as server:
        editor = edit(place, place.environ(server.variables), act)
    assert editor.text.endswith("Again.")
    assert server.rejected == []


def test_an_open_question_ends_with_a_cancel(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        editor.thinks = True
        new = await editor.agent.new_session(str(place.project))
        asking = asyncio.ensure_future(editor.agent.prompt(new.session_id, [say("go")]))
        await editor.until(lambda: bool(editor.asked))
        await editor.agent.cancel(new.session_id)
        assert (await asking).stop_reason == "cancelled"

    with Server([Say(tools=[("Bash", {"command": "touch made"})])]) as server:
        editor = edit(place, place.server(server.url), act, "-c", "sandbox.mode=off")
    (call,) = editor.of("tool_call")
    assert editor.call(call.tool_call_id)["status"] == "failed"
    assert not (place.project / "made").exists()


def test_a_session_is_loaded_after_a_kill(tmp_path: Path) -> None:
    place = Place(tmp_path)
    session = ""

    async def first(editor: Editor) -> None:
        nonlocal session
        session = (await editor.agent.new_session(str(place.project))).session_id
        await editor.agent.prompt(session, [say("one"), picture()])
        asking = asyncio.ensure_future(editor.agent.prompt(session, [say("two")]))
        await editor.until(lambda: "Second" in editor.text)
        editor.kill()
        with pytest.raises(ConnectionError):
            await asking

    async def second(editor: Editor) -> None:
        listed = await editor.agent.list_sessions(str(place.project))
        assert [(each.session_id, each.title) for each in listed.sessions] == [(session, "one")]
        assert (await editor.agent.list_sessions()).sessions[0].cwd == str(place.project)
        await editor.agent.load_session(str(place.project), session)
        shown = [type(update).__name__ for update in editor.updates]
        assert "UserMessageChunk" in shown
        assert "First." in editor.text
        assert "image" in [each.content.type for each in editor.of("user_message_chunk")]
        (call,) = editor.of("tool_call")
        assert editor.call(call.tool_call_id)["status"] == "completed"
        assert editor.of("plan")[-1].entries[0].content == "look"
        await editor.agent.prompt(session, [say("three")])

    todos = [{"content": "look", "status": "in_progress"}]
    steps = [
        Say(tools=[("Todo", {"todos": todos})]),
        Say("First."),
        Say("Second and", fault="silence"),
        Say("Third."),
    ]
    with Server(steps) as server:
        env = place.server(server.url)
        edit(place, env, first)
        editor = edit(place, env, second)
    assert editor.text.endswith("Third.")
    assert server.rejected == []
    said = str(server.requests[-1]["messages"])
    assert "one" in said
    assert "two" in said


def test_a_session_is_resumed_and_forked(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        agent, cwd = editor.agent, str(place.project)
        session = (await agent.new_session(cwd)).session_id
        await agent.prompt(session, [say("one")])
        copy = (await agent.fork_session(session, cwd)).session_id
        assert copy != session
        await agent.prompt(copy, [say("in the copy")])
        await agent.close_session(session)
        with pytest.raises(RequestError, match="no session"):
            await agent.prompt(session, [say("gone")])
        said = len(editor.text)
        await agent.resume_session(session, cwd)
        assert editor.text[said:] == ""  # nothing is said again
        await agent.prompt(session, [say("in the first")])

    with Server([Say("First."), Say("Copied."), Say("Resumed.")]) as server:
        edit(place, place.server(server.url), act)
    copied, resumed = (str(request["messages"]) for request in server.requests[1:])
    assert "one" in copied
    assert "one" in resumed
    assert "in the copy" not in resumed
    assert server.rejected == []


def test_modes_options_and_plans(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        modes = [mode.id for mode in new.modes.available_modes] if new.modes else []
        assert "plan" in modes
        assert "bypass" not in modes
        await editor.agent.set_session_mode(new.session_id, "plan")
        with pytest.raises(RequestError, match="no mode"):
            await editor.agent.set_session_mode(new.session_id, "bypass")
        options = await editor.agent.set_config_option("effort", new.session_id, "high")
        assert options is not None
        assert [option.current_value for option in options.config_options][1] == "high"
        await editor.agent.set_config_option("model", new.session_id, "claude-opus-4-8")
        with pytest.raises(RequestError, match="no value"):
            await editor.agent.set_config_option("model", new.session_id, "?")
        await editor.agent.prompt(new.session_id, [say("plan it")])

    plan = {"plan": "# All of it\n\nBecause.", "steps": ["make a", "make b"]}
    with Server([Say(tools=[("Plan", plan)]), Say("Agreed.")]) as server:
        editor = edit(
            place,
            place.server(server.url),
            act,
            choose=lambda call, options: next(o.option_id for o in options if o.option_id == "ask"),
        )
    assert server.requests[0]["model"] == "claude-opus-4-8"
    assert "high" in str(server.requests[0]["output_config"])
    assert "Because." in str(editor.asked[0][0].content)
    assert [entry.content for entry in editor.of("plan")[-1].entries] == ["make a", "make b"]
    assert editor.of("current_mode_update")[-1].current_mode_id == "ask"


def test_slash_commands_and_compaction(tmp_path: Path) -> None:
    place = Place(tmp_path)
    long = " ".join(f"word{number}" for number in range(3_000))

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        await editor.until(lambda: bool(editor.of("available_commands_update")))
        names = [
            each.name for each in editor.of("available_commands_update")[-1].available_commands
        ]
        assert "compact" in names
        assert "exit" not in names
        for words in ("one", "two", "three", "four"):
            await editor.agent.prompt(new.session_id, [say(words)])
        await editor.agent.prompt(new.session_id, [say("/context")])
        assert "tokens" in editor.text
        await editor.agent.prompt(new.session_id, [say("/compact mechanical please")])
        for words, told in (
            ("/nothing", "no command /nothing"),
            ("/clear", "/clear is for the terminal"),
            ("/restore", "/rewind is for the terminal"),  # its name elsewhere
        ):
            with pytest.raises(RequestError, match=told):
                await editor.agent.prompt(new.session_id, [say(words)])

    with Server([Say(long)] * 4) as server:
        editor = edit(place, place.server(server.url), act, "-c", "compact.summarizer=mechanical")
    compacted = [each.title for each in editor.of("tool_call") if each.kind == "think"]
    assert "context compacted" in compacted[-1]
    before, after = (update.used for update in editor.of("usage_update")[-2:])
    assert after < before


def test_messages_during_a_turn_steer_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    steps = [
        Say(tools=[("Bash", {"command": "touch begun; until [ -e go ]; do sleep 0.01; done"})])
    ]

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        first = asyncio.ensure_future(editor.agent.prompt(new.session_id, [say("begin")]))
        await editor.until(lambda: bool(editor.of("tool_call")))
        second = asyncio.ensure_future(editor.agent.prompt(new.session_id, [say("and also this")]))
        await editor.agent.list_sessions(str(place.project))  # the prompt before it has arrived
        (place.project / "go").touch()
        assert [each.stop_reason for each in await asyncio.gather(first, second)] == [
            "end_turn"
        ] * 2

    with Server([*steps, Say("Both.")]) as server:
        edit(place, place.server(server.url), act, "--permission-mode", "bypass")
    assert len(server.requests) == 2
    assert "and also this" in str(server.requests[1]["messages"])


def test_a_question_of_the_agent_is_a_form_or_choices(tmp_path: Path) -> None:
    place = Place(tmp_path)
    colours = [{"label": "red", "description": "warm"}, {"label": "blue", "description": ""}]
    asks = [
        {"question": "Which colour?", "choices": colours},
        {"question": "Which sizes?", "choices": colours, "multiple": True},
    ]
    free = [{"question": "Your name?", "choices": []}]

    async def one(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        editor.filled_in = {"choice-0": "red", "words-1": "none of them"}
        await editor.agent.prompt(new.session_id, [say("go")])

    steps = [Say(tools=[("AskUser", {"questions": asks})]), Say("Thanks.")]
    with Server(steps) as server:
        editor = edit(place, place.server(server.url), one, forms=True)
    assert "Which sizes? → none of them" in str(server.requests[1]["messages"])
    assert "Which colour? → red" in str(server.requests[1]["messages"])
    assert len(editor.forms) == 1

    said = ["choice-1", "choice-0", "done"]

    async def other(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        await editor.agent.prompt(new.session_id, [say("go")])
        assert said == []

    steps = [
        Say(tools=[("AskUser", {"questions": asks})]),
        Say(tools=[("AskUser", {"questions": free})]),
        Say("Thanks."),
    ]
    with Server(steps) as server:
        edit(place, place.server(server.url), other, choose=lambda call, options: said.pop(0))
    assert "Which colour? → blue" in str(server.requests[1]["messages"])
    assert "Which sizes? → red" in str(server.requests[1]["messages"])
    assert "The user did not answer" in str(server.requests[2]["messages"])


def test_terminals_that_the_editor_shows(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        await editor.agent.prompt(new.session_id, [say("go")])

    with Server([Say(tools=[("Bash", {"command": "echo out; exit 3"})]), Say("Seen.")]) as server:
        editor = edit(
            place,
            place.server(server.url),
            act,
            "--permission-mode",
            "bypass",
            meta={"terminal_output": True},
        )
    (call,) = editor.of("tool_call")
    assert call.content[0].type == "terminal"
    assert call.field_meta["terminal_info"]["terminal_id"] == call.tool_call_id
    meta = [update.field_meta or {} for update in editor.of("tool_call_update")]
    output = "".join(each["terminal_output"]["data"] for each in meta if "terminal_output" in each)
    assert output == "out\r\n"
    assert meta[-1]["terminal_exit"]["exit_code"] == 3


def test_without_a_key_the_editor_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        for ask in (
            editor.agent.new_session(str(place.project)),
            editor.agent.authenticate("key"),
        ):
            with pytest.raises(RequestError, match="ANTHROPIC_API_KEY") as told:
                await ask
            assert told.value.code == -32000
        with pytest.raises(RequestError, match="is not a directory"):
            await editor.agent.new_session("/nowhere/at/all")

    editor = edit(place, place.environ(), act)
    assert editor.initialized.agent_info is not None
    assert editor.initialized.agent_info.name == "ctxagent"


def test_a_failed_turn_is_an_error_and_the_session_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        with pytest.raises(RequestError):
            await editor.agent.prompt(new.session_id, [say("one")])
        await editor.agent.prompt(new.session_id, [say("two")])

    with Server([Fail(401), Say("Now.")]) as server:
        editor = edit(place, place.server(server.url), act)
    assert editor.text.endswith("Now.")


def test_a_server_that_the_editor_names_is_used(tmp_path: Path) -> None:
    place = Place(tmp_path)
    server_of_tests = Path(__file__).parents[1] / "support" / "mcp" / "plain.py"
    named = McpServerStdio(
        name="of the editor",
        command=sys.executable,
        args=["-I", "-S", str(server_of_tests), "ok", str(tmp_path / "notes")],
        env=[],
    )

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project), mcp_servers=[named])
        await editor.agent.prompt(new.session_id, [say("go")])

    call = {"tool": "mcp__of_the_editor__echo", "arguments": {"text": "hello there"}}
    with Server([Say(tools=[("Mcp", call)]), Say("Done.")]) as server:
        editor = edit(place, place.server(server.url), act)
    assert "mcp__of_the_editor" in str(editor.asked[0][0])
    assert "hello there" in str(server.requests[1]["messages"][-1])
    assert server.rejected == []


def test_invalid_lines_and_a_signal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    job = f"sleep 300.{secrets.randbelow(10**9)}"
    steps = [Say(tools=[("Bash", {"command": job, "run_in_background": True})]), Say("It runs.")]
    with Server(steps) as server:
        process = place.start(
            "--permission-mode", "bypass", "acp", env=place.server(server.url),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(line: bytes) -> dict[str, Any]:
            process.stdin.write(line + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            while "method" in (found := json.loads(process.stdout.readline())):  # type: ignore[union-attr]
                pass
            answer: dict[str, Any] = found
            return answer

        def call(id: int, method: str, **params: Any) -> dict[str, Any]:
            said = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            return ask(json.dumps(said).encode())

        for bad, code in ((b"{", -32700), (b"[1]", -32600), (b"\xff\xfe", -32700)):
            assert ask(bad)["error"]["code"] == code
        assert call(1, "initialize", protocolVersion=1)["result"]["protocolVersion"] == 1
        assert call(2, "nothing/here")["error"]["code"] == -32601
        assert call(3, "session/new", cwd=5)["error"]["code"] == -32602
        assert call(4, "session/prompt", sessionId="x", prompt=[])["error"]["code"] == -32002
        new = call(5, "session/new", cwd=str(place.project))["result"]["sessionId"]
        said = call(6, "session/prompt", sessionId=new, prompt=[{"type": "text", "text": "go"}])
        assert said["result"] == {"stopReason": "end_turn"}
        assert running(job)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        process.stdin.close()
        process.stdout.close()
    assert gone(*running(job))


def test_at_a_terminal_it_says_what_it_is_for(tmp_path: Path) -> None:
    place = Place(tmp_path)
    terminal = Terminal("acp", cwd=place.project, env=place.environ())
    terminal.see("this command is for editors")
    assert terminal.leave() == 2
