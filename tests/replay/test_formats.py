"""Sessions recorded by other agents: the same session is read alike from each format, peculiarities
of formats are understood, and any file content gives a recording or a clear error.
"""

import gzip
import json
import math
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.addons.replay.formats import FORMATS, load_recording
from ctxagent.agent.errors import UsageError
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.recordings.recording import (
    UNANSWERED,
    RecordedCall,
    RecordedCompaction,
    RecordedMessage,
    RecordedReply,
    Recording,
)
from ctxagent.agent.session.entries import (
    SHELL_OUTPUT_HEADING,
    Assistant,
    Revert,
    Summary,
    ToolResult,
    User,
)

from ..support.sessions import recorded
from ..support.sessions.conversation import Conversation
from ..support.sessions.recorded import (
    Json,
    claude_call,
    claude_line,
    claude_result,
    lines,
    steps,
)
from ..support.sessions.stories import STORY

Read = Callable[[bytes], Recording]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return the recording of a file with these bytes and a neutral name."""

    def read(data: bytes) -> Recording:
        path = tmp_path / "session"
        path.write_bytes(data)
        return load_recording(path)

    return read


def replies(recording: Recording) -> list[RecordedReply]:
    return [step for step in recording.steps if isinstance(step, RecordedReply)]


def said(recording: Recording) -> list[str]:
    return [step.text for step in recording.steps if isinstance(step, RecordedMessage)]


def calls(recording: Recording) -> list[RecordedCall]:
    return [call for reply in replies(recording) for call in reply.calls]


# The story


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_same_session_is_read_alike_from_every_format(
    format: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "notes.codex.jsonl"  # a name that would mislead
    path.write_bytes(gzip.compress(STORY[format]()) if packed else STORY[format]())
    recording = load_recording(path)
    assert recording.format == format
    assert recording.steps == steps(format)
    assert recording.system == recorded.SYSTEMS.get(format, "")
    model = None if format in recorded.NO_MODELS else recorded.MODEL
    assert (recording.name, recording.model) == (path.name, model)
    assert (recording.skipped, recording.orphans, recording.notes) == (0, 0, ())
    assert (recording.replies, recording.calls) == (3, 3)


# What each has of its own


def test_claude_code(read: Read) -> None:
    """Covers duplicate lines, results before their calls, repeated IDs, sidechains, messages from
    the agent, and replies that are not from a model.
    """
    ls = claude_call("t", "Bash", {"command": "ls"})
    look = claude_line("assistant", 2, [ls], id="m1", stop_reason=None, usage={"output_tokens": 3})
    recording = read(
        lines(
            [
                claude_line("user", 0, "A hint.", isMeta=True),
                claude_line("user", 1, [claude_result("t", "before")]),
                look,
                look,
                claude_line("assistant", 2.5, "A subagent.", id="m9", isSidechain=True),
                claude_line("assistant", 3, [ls], id="m2"),
                claude_line(
                    "user", 4,
                    [claude_result("t", [{"type": "text", "text": "after"}, {"type": "image"}]),
                     claude_result("nobody", "asked"), {"type": "text", "text": "Look:"},
                     {"type": "image", "source": {}}],
                ),
                claude_line("assistant", 5, "API error", model="<synthetic>"),
                claude_line("assistant", 6, [{"type": "thinking", "thinking": "Hm."}], id="m3"),
            ]
        )
    )  # fmt: skip
    assert said(recording) == ["A hint.", "Look:\n[image]"]
    assert [(call.id, call.text) for call in calls(recording)] == [
        ("t", "before"),
        ("t_2", "after\n[image]"),
    ]
    assert (recording.replies, recording.orphans, recording.skipped) == (2, 1, 0)
    assert replies(recording)[0].output is None  # the stream was not at its end


def test_the_file_of_a_claude_code_subagent_is_its_own(read: Read) -> None:
    rows = [claude_line("user", 0, "Look.", isSidechain=True),
            claude_line("assistant", 1, "Seen.", isSidechain=True)]  # fmt: skip
    recording = read(lines(rows))
    assert (said(recording), replies(recording)[0].text) == (["Look."], "Seen.")


def test_codex(read: Read) -> None:
    """Replies end at a result, a token count or a message; a repeated count is ignored."""
    recording = read(
        lines(
            [
                recorded.codex_words(0, "developer", "Rules."),
                recorded.codex_words(0, "user", "# AGENTS.md instructions for /p\n\nUse tabs."),
                recorded.codex_words(0, "user", "Read AGENTS.md."),
                recorded.codex_words(1, "assistant", "One."),
                recorded.codex_count(10, 1, 10),
                recorded.codex_count(10, 1, 10),
                recorded.codex_words(2, "assistant", "Two."),
                recorded.codex_item(3, "custom_tool_call", name="apply_patch", input="*** Begin",
                                    call_id="p"),
                recorded.codex_count(10, 1, 10),
                recorded.codex_item(4, "custom_tool_call_output", call_id="p",
                                    output={"content": "no such file", "success": False}),
                recorded.codex_item(5, "local_shell_call", action={"command": ["ls"]},
                                    call_id="l"),
            ]
        )
    )  # fmt: skip
    words = [step for step in recording.steps if isinstance(step, RecordedMessage)]
    assert [step.text for step in words if not step.by_client] == ["Read AGENTS.md."]
    assert [step.text[:8] for step in words if step.by_client] == ["Rules.", "# AGENTS"]
    assert [(r.text, r.prompt, len(r.calls)) for r in replies(recording)] == [
        ("One.", 10, 0),
        ("Two.", None, 1),
        ("", None, 1),
    ]
    patch, shell = calls(recording)
    assert (patch.input, patch.text, patch.is_error) == ({"input": "*** Begin"},
                                                         "no such file", True)  # fmt: skip
    assert (shell.name, shell.input) == ("local_shell_call", {"command": ["ls"]})


def test_pi_is_read_along_the_branch_of_its_last_line(read: Read) -> None:
    def entry(id: str, parent: str | None, row: Json) -> Json:
        return {**row, "id": id, "parentId": parent}

    def text(text: str) -> Json:
        return {"type": "text", "text": text}

    custom = {"type": "custom_message", "customType": "x", "content": "From an extension."}
    hidden = recorded.pi_line(
        6, role="bashExecution", command="id", output="me", excludeFromContext=True
    )
    shown = recorded.pi_line(7, role="bashExecution", command="ls", output="a.py")
    recording = read(
        lines(
            [
                {"type": "session", "version": 3, "id": "s"},
                entry("a", None, recorded.pi_line(0, role="user", content="Begin.")),
                entry("b", "a", recorded.pi_reply(1, 200, 5, text("This way."))),
                entry("c", "b", recorded.pi_line(2, role="user", content="No.")),
                entry("d", "a", {"type": "branch_summary", "summary": "This way was bad."}),
                entry("e", "d", custom),
                entry("f", "e", hidden),
                entry("g", "gone", shown),  # its parent's line is lost: it is the one before
                entry("h", "g", recorded.pi_reply(8, 300, 5, text("That way."))),
            ]
        )
    )
    assert said(recording) == [
        "Begin.", "This way was bad.", "From an extension.", "$ ls\na.py",
    ]  # fmt: skip
    assert [reply.text for reply in replies(recording)] == ["That way."]
    assert recording.notes == ("skipped 2 entries on other branches",)


def test_each_step_of_an_opencode_message_is_a_reply(read: Read) -> None:
    begun = {"type": "step-start"}
    first = {"type": "step-finish", "tokens": recorded.opencode_tokens(500, 9)}
    last = {"type": "step-finish", "tokens": recorded.opencode_tokens(700, 8)}
    tool = recorded.opencode_tool("t", "read", {}, status="completed", output="text")
    message = recorded.opencode_message(
        "assistant", 1, begun, tool, first, begun, {"type": "text", "text": "Done."}, last
    )
    picture = {"type": "file", "mime": "image/png", "url": "data:"}
    other = {"type": "file", "mime": "text/plain", "filename": "a.py", "url": "data:"}
    asked = recorded.opencode_message("user", 0, {"type": "text", "text": "See:"}, picture, other)
    recording = read(json.dumps({"info": {}, "messages": [asked, message, 7]}).encode())
    assert said(recording) == ["See:\n[image]"]
    assert [(r.text, r.prompt, r.output, len(r.calls)) for r in replies(recording)] == [
        ("", 500, 9, 1),
        ("Done.", 700, 8, 0),
    ]
    assert recording.skipped == 1


def test_gemini_calls_need_no_id(read: Read) -> None:
    answer = recorded.gemini_answer({"found": 2})
    call = {"name": "grep", "args": {}, "result": answer}
    message = {"type": "gemini", "content": "", "toolCalls": [call, call, {"args": {}}]}
    recording = read(json.dumps({"messages": [message]}).encode())
    assert [(call.id, call.text) for call in calls(recording)] == [
        ("call", json.dumps(answer[0])),
        ("call_2", json.dumps(answer[0])),
    ]
    assert recording.skipped == 1


def test_copilot_without_its_subagents(read: Read) -> None:
    rows = [
        recorded.copilot_event(0, "user.message", content="Go."),
        recorded.copilot_event(1, "system.notification", content="A job has ended."),
        {**recorded.copilot_reply(2, "Inside.", 5), "agentId": "x"},
        recorded.copilot_event(3, "assistant.message", content="Inside too.", parentToolCallId="t"),
        recorded.copilot_event(4, "session.compaction_complete", success=False),
        recorded.copilot_reply(5, "Outside.", 5),
    ]
    recording = read(lines(rows))
    assert said(recording) == ["Go.", "A job has ended."]
    assert [reply.text for reply in replies(recording)] == ["Outside."]
    assert not any(isinstance(step, RecordedCompaction) for step in recording.steps)


def test_swe_agent(read: Read) -> None:
    """A demonstration is part of the prompt, repeated IDs are made unique, and an action without a
    tool call is answered by the next observation.
    """
    demo = recorded.sweagent_reply("As here.", is_demo=True)
    recording = read(
        recorded.sweagent_file(
            demo,
            recorded.sweagent_reply("", ("t", "open", {"file": "a"})),
            recorded.sweagent_result("t", "text of a"),
            recorded.sweagent_reply("", ("t", "open", {"file": "b"})),
            recorded.sweagent_result("t", "text of b"),
            recorded.sweagent_reply("I list.", action="ls\n"),
            {"role": "user", "content": "a b", "message_type": "observation"},
            {"role": None, "content": "whose?"},
        )
    )
    assert said(recording) == [f"assistant: {demo['content']}"]
    assert [(call.id, call.name, call.text) for call in calls(recording)] == [
        ("t", "open", "text of a"),
        ("t_2", "open", "text of b"),
        ("action-6", "shell", "a b"),
    ]
    assert calls(recording)[2].input == {"command": "ls"}
    assert recording.skipped == 1


# Ours


def test_our_own_session_is_read_as_recorded(tmp_path: Path) -> None:
    """A real session with a result too large to send: the recording has its whole text."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "long").write_text("a line of it\n" * 4_000)
    talk = Conversation(
        project,
        [
            Step(text="I look.", tools=[("Read", {"path": "long"}), ("Read", {"path": "none"})]),
            Step(text="Done."),
        ],
    )
    assert talk.say("Begin.").status == "ok"
    result = next(entry for entry in talk.of(ToolResult) if entry.offloaded)
    folder = talk.agent.log.path.parent
    recording = load_recording(talk.agent.log.path)
    assert (recording.format, recording.name) == ("ctxagent", folder.name)
    assert recording.system == "Be good."
    assert [step.text for step in replies(recording)] == ["I look.", "Done."]
    long, none = calls(recording)
    assert long.text == (folder / result.offloaded).read_text()
    assert long.text.count("a line of it") > str(result.content).count("a line of it")
    assert none.is_error
    assert said(recording)[0] == "Begin."
    used = [entry.usage for entry in talk.of(Assistant)]
    assert [reply.output for reply in replies(recording)] == [u["output"] for u in used]

    (folder / result.offloaded).unlink()
    recording = load_recording(talk.agent.log.path)
    assert calls(recording)[0].text == result.content
    assert recording.notes == ("1 result was in a file that is missing; using previews",)


def test_a_log_can_only_refer_to_its_own_files(tmp_path: Path) -> None:
    """Entries reinserted after a summary, reverted or not, are read once."""
    (tmp_path / "secret").write_text("a secret")
    folder = tmp_path / "session"
    (folder / "offloaded").mkdir(parents=True)
    (folder / "offloaded" / "ls").write_text("all\nof it")
    names = ("../secret", str(tmp_path / "secret"), "/dev/zero", "offloaded/../../secret", "\0")
    log = folder / "log.jsonl"
    shown = [
        {"type": "text", "text": "! ls"},
        {"type": "text", "text": f"{SHELL_OUTPUT_HEADING}all"},
    ]
    log.write_bytes(
        recorded.log(
            User(content="Here.", source="environment"),
            User(content=shown, source="shell", offloaded="offloaded/ls"),
            recorded.own_reply(
                1, 200, 5, *[claude_call(f"c{at}", "Read", {}) for at in range(len(names))]
            ),
            *[
                ToolResult(tool_use_id=f"c{at}", content="preview", offloaded=name)
                for at, name in enumerate(names)
            ],
            recorded.own_reply(2, 200, 5, {"type": "text", "text": "no"}, purpose="verify"),
            Summary(document={}, text="So far.", covers=[1, 2], keep_from=3),
            User(content="Here.", source="environment"),
            Revert(target=len(names) + 5),
            User(content="There.", source="environment"),
        )
    )
    recording = load_recording(log)
    assert said(recording) == ["Here.", f"! ls\n{SHELL_OUTPUT_HEADING}all\nof it", "There."]
    assert {call.text for call in calls(recording)} == {"preview"}
    assert len(recording.notes) == 1
    assert recording.replies == 1


# Files that are no recording, or a damaged one


def unreadable() -> dict[str, tuple[bytes, str]]:
    deep = b"[" * 100_000
    return {
        "nothing": (b"", "it is empty"),
        "blank": (b"\n \n", "it is empty"),
        "prose": (b"Dear diary,\n\ntoday\n", "it is not JSON"),
        "picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "it is not text"),
        "list": (b"[1, 2]", "its JSON is of type list, not an object"),
        "long list": (b"[\n1,\n2\n]", "its JSON is of type list, not an object"),
        "number": (b"12", "its JSON is of type int, not an object"),
        "deep": (deep, "it is too deep"),
        "deep object": (b'{"a": ' + deep + b"]" * 100_000 + b"}", "it is too deep"),
        "other lines": (b'{"type": "page", "n": 1}\n{"type": "end"}\n',
                        "the keys 'type', 'n', of type 'page', 'end'"),
        "other object": (b'{\n "pages": [\n  {}\n ]\n}', "the keys 'pages'"),
        "half an object": (b'{\n "messages": [\n  {"type": "user"', "it is not JSON"),
        "half a gzip": (gzip.compress(os.urandom(9_000).hex().encode())[:5_000], "cannot be read"),
        "bad gzip": (gzip.compress(STORY["pi"]())[:-30] + bytes(30), "cannot be read"),
        "no message": (b'{"type": "user", "message": {"content": " "}}\n', "without messages"),
        "lone surrogate": (b'"\\ud800"', "its JSON is of type str, not an object"),
    }  # fmt: skip


@pytest.mark.parametrize("name", unreadable())
def test_an_unknown_file_is_described_in_the_error(name: str, read: Read) -> None:
    data, told = unreadable()[name]
    with pytest.raises(UsageError, match=told) as caught:
        read(data)
    assert "session" in caught.value.message
    assert caught.value.hint


def test_special_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, told in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "special file"),
    ):
        with pytest.raises(UsageError, match=told):
            load_recording(path)


def test_the_formats_that_are_known_are_named(read: Read) -> None:
    with pytest.raises(UsageError) as caught:
        read(b"{}")
    assert all(format in caught.value.hint for format in FORMATS)


def test_bad_lines_are_counted_and_the_rest_is_read(read: Read) -> None:
    deep = json.dumps({"type": "message", "message": {}, "x": 0}).replace(
        "0}", "[" * 200 + "]" * 200 + "}"
    )
    whole = STORY["pi"]().splitlines(keepends=True)
    odd = lines([recorded.pi_line(9, role="toolResult", content="whose?"), {"type": "message"}])
    bad = b'no JSON\n[1]\n"\xff"\n' + deep.encode() + b"\n\n" + odd
    torn = b'{"type": "message", "mess'
    recording = read(b"\xef\xbb\xbf" + whole[0] + bad + b"".join(whole[1:]) + torn)
    assert recording.steps == steps("pi")
    assert recording.skipped == 6


def test_texts_can_always_be_written(read: Read) -> None:
    """Covers lone surrogates, invalid UTF-8, and numbers that are not JSON."""
    arguments = json.dumps({"a\ud800": ["\udfff", math.nan]})
    recording = read(
        lines(
            [
                recorded.codex_item(0, "function_call", name="x", arguments=arguments, call_id="a"),
            ]
        )
        + b'{"type":"response_item","payload":{"type":"function_call_output","call_id":"a",'
        b'"output":"\\ud83d caf\xe9 \\ud83d\\ude00"}}\n'
    )
    (call,) = calls(recording)
    assert call.input == {"a\ufffd": ["\ufffd", None]}
    assert call.text == "\ufffd caf\ufffd 😀"


@pytest.mark.parametrize(
    ("told", "at"),
    [
        ("2026-01-02T03:04:05.500Z", 1_767_323_045.5),
        ("2026-01-02T05:04:05+02:00", 1_767_323_045),
        ("2026-01-02T03:04:05", 1_767_323_045),
        (1_767_323_045, 1_767_323_045),
        (1_767_323_045_500, 1_767_323_045.5),
        ("0001-01-01T00:00:00+23:00", None),
        ("Monday", None),
        (True, None),
        (-5, None),
        (10**30, None),
        (1e300, None),
    ],
)
def test_times(told: Any, at: float | None, read: Read) -> None:
    row = {**claude_line("user", 0, "Go."), "timestamp": told}
    assert read(lines([row])).steps == (RecordedMessage("Go.", at),)


@pytest.mark.slow
def test_the_memory_for_a_large_file_is_limited_to_its_text(tmp_path: Path) -> None:
    """Memory is limited to the text, because display copies in a transcript are dropped."""
    path = tmp_path / "large.jsonl"
    text = "".join(f"line {at} of the output\n" for at in range(2_000))
    count = 40
    with path.open("wb") as file:
        for at in range(count):
            call = claude_line("assistant", at, [claude_call(f"t{at}", "Bash", {})], id=f"m{at}")
            result = claude_line("user", at + 0.5, [claude_result(f"t{at}", text)])
            again = {"stdout": text, "lines": text.split("\n")}
            file.write(lines([call, {**result, "toolUseResult": again}]))
    visible = count * len(text)
    assert path.stat().st_size > 3 * visible
    tracemalloc.start()
    try:
        recording = load_recording(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert recording.calls == count
    assert peak < 1.5 * visible


# Files that something happened to

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "message", "c1", "tool_use", "text", "2026-01-01"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "id", "content", "text", "input"]), inner,
                      max_size=3),
    max_leaves=6,
)  # fmt: skip
_CHANGES = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(["drop", "double", "swap", "retype"]), _JSON),
    max_size=6,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Yield every container in a JSON value with each of its keys."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    found: list[tuple[Any, Any]] = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            found += places(node[key])
    return found


def change(root: list[Any], where: int, how: str, value: Any) -> None:
    every = places(root)
    if not every:
        return
    node, key = every[where % len(every)]
    if how == "retype":
        node[key] = value
    elif how == "drop":
        del node[key]
    elif isinstance(node, list) and how == "double":
        node.insert(key, node[key])
    elif isinstance(node, list):
        node.append(node.pop(key))


def check(data: bytes) -> None:
    """Check that the bytes give a valid recording, or an error with the path and a hint."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        path.write_bytes(data)
        try:
            recording = load_recording(path)
        except UsageError as error:
            refused = error
        else:
            return sound(recording)
    assert str(path) in refused.message
    assert refused.hint
    return None


def sound(recording: Recording) -> None:
    every = calls(recording)
    assert len({call.id for call in every}) == len(every)
    for call in every:
        assert call.answered or call.text == UNANSWERED
        assert isinstance(call.name, str)
        assert isinstance(call.input, dict)
    for step in (*recording.steps, *every):
        assert step.at is None or (math.isfinite(step.at) and step.at > 0)
    assert recording.steps
    assert all(reply.text or reply.calls for reply in replies(recording))
    json.dumps(asdict(recording), ensure_ascii=False).encode()


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=50, derandomize=True, deadline=None)
@given(changes=_CHANGES, cut=st.none() | st.integers(0, 4_000))
def test_a_garbled_file_is_a_recording_or_an_error(
    format: str, changes: list[tuple[int, str, Any]], cut: int | None
) -> None:
    data = STORY[format]()
    rows = [json.loads(data)] if format == "opencode" else [*map(json.loads, data.splitlines())]
    for where, how, value in changes:
        change(rows, where, how, value)
    garbled = b"".join(json.dumps(row).encode() + b"\n" for row in rows)[:cut]
    check(garbled)


@pytest.mark.slow
@settings(max_examples=50, derandomize=True, deadline=None)
@given(data=st.binary(max_size=200) | st.lists(_JSON).map(lambda rows: lines([*rows])))
def test_any_bytes_are_a_recording_or_an_error(data: bytes) -> None:
    check(data)
