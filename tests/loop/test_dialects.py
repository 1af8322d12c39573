"""Calls that a model writes as text: which run, which are asked about, and how the turn ends."""

import asyncio
import json
from pathlib import Path

import pytest

from ctxagent.agent.features.result_schema import as_schema
from ctxagent.agent.loop.dialects import LESSON, TEXT_CALL_PREFIX
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, ToolResult, User

from ..support.sessions.conversation import Conversation

CALL = '{"name": "Bash", "arguments": {"command": "touch made"}}'
TAGS = f"<tool_call>\n{CALL}\n</tool_call>"
FENCE = f"```json\n{CALL}\n```"
FUNCTION = "<function=Bash>\n<parameter=command>\ntouch made\n</parameter>\n</function>"
INVOKE = '<invoke name="Bash">\n<parameter name="command">touch made</parameter>\n</invoke>'


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (TAGS, "tool_call"),
        (f"I make it.\n\n{TAGS}", "tool_call"),
        (f"<tool_call>\n{CALL}", "tool_call"),
        (f"<tool_call>\n{FUNCTION}\n</tool_call>", "function"),
        (FUNCTION, "function"),
        (f"First:\n```sh\nls\n```\n{INVOKE}", "invoke"),
        (f"<function_calls>\n{INVOKE}\n</function_calls>", "invoke"),
        (CALL, "json"),
        (f"[{CALL}]", "json"),
        (FENCE, "json"),
        (CALL.replace("arguments", "parameters").replace("Bash", "bash"), "json"),
        (f"```\n{TAGS}\n```", "tool_call"),
        (f"<tools>\n{CALL}\n</tools>", "tool_call"),
        (CALL.replace("{", "{{").replace("}", "}}"), "json"),
        (FENCE.replace("{", "{{").replace("}", "}}"), "json"),
    ],
)
def test_a_certain_call_in_text_runs_once_and_the_model_is_told(
    project: Path, text: str, form: str
) -> None:
    talk = Conversation(project, [Step(text=text), Step(text=TAGS), Step(text="done")])
    assert talk.say("make the file").status == "ok"
    assert (project / "made").exists()
    first = talk.of(Assistant)[0]
    assert first.dialect["form"] == form
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert (call["name"], call["input"]) == ("Bash", {"command": "touch made"})
    assert call["id"].startswith(TEXT_CALL_PREFIX)
    assert first.dialect["text"] in text
    assert [entry.content for entry in talk.of(User)].count(LESSON) == 1


def test_a_call_in_text_needs_the_same_permission(project: Path) -> None:
    talk = Conversation(project, [Step(text=TAGS), Step(text="done")], mode="ask")
    assert talk.say("make the file").status == "denied"
    assert not (project / "made").exists()


@pytest.mark.parametrize(
    "text",
    [
        f"This is how:\n{FENCE}\nIt makes a file.",
        f"~~~md\n{TAGS}\n~~~\nIt makes a file.",
        f"Write `{CALL}` there.",
        f"A tool call such as <tool_call>{CALL}</tool_call> makes a file.",
        '```json\n{"name": "app", "arguments": ["--fast"]}\n```',
        '{"name": "app", "version": 1}',
        f'{{"steps": [\n{CALL}\n]}}',
        "<tool_call> is the tag of a call.",
        "[TOOL_CALLS] is the token of a call, [TOOL_CALLS](#calls) a link.\n[TOOL_CALLS](#calls)",
        '{"tool_calls": []}',
        '{"tool": "hammer", "price": 3}',
        f"```\nopen\n{TAGS}",
        f"{CALL[:-1]}\nis the beginning of a call.",
        '{"name": "Shell", "arguments": "ls"',
        '{"name": "Bash", "version": 5}',
    ],
)
def test_text_that_is_plainly_no_call_is_an_answer(project: Path, text: str) -> None:
    talk = Conversation(project, [Step(text=text)])
    finished = talk.say("explain it")
    assert (finished.status, finished.text) == ("ok", text)


DOUBTFUL = {
    "unknown tool": (TAGS.replace("Bash", "Shell"), "there is no tool 'Shell'. The tools: Bash"),
    "bad arguments": (TAGS.replace("command", "cmdline"), "command: Field required"),
    "unreadable": ('<tool_call>\n{"name": "Bash", "arg', "could not be read"),
    "cut tokens": ('[TOOL_CALLS]Bash[ARGS]{"command": "tou', "could not be read"),
    "tokens of another form": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>Bash\n```json\n{}\n```",
        "could not be read",
    ),
    "channel": (
        "<|channel|>commentary to=functions.Bash <|constrain|>json<|message|>{}<|call|>",
        "could not be read",
    ),
    "cut tags": ("<function=Bash>\n<parameter=command>\ntouch", "could not be read"),
    "text follows": (f"{TAGS}\nThe file is made.", "more text follows it"),
    "fence after text": (f"I make it.\n{FENCE}", "it may be an example"),
    "broken JSON": (CALL[:-2] + "]", "could not be read"),
    "broken JSON in a fence": (FENCE.replace('"touch', "touch"), "could not be read"),
    "broken JSON after a tag": (f"<response>\n{CALL[:-1]}\n</response>", "could not be read"),
    "cut JSON": ('{"name": "Bash", "arg', "could not be read"),
    "arguments of a wrong type": ('{"name": "Bash", "arguments": "ls"}', "could not be read"),
    "unknown tool in a fence": (FENCE.replace("Bash", "Shell"), "there is no tool 'Shell'"),
}


@pytest.mark.parametrize(("text", "why"), DOUBTFUL.values(), ids=DOUBTFUL)
@pytest.mark.parametrize("last", ["same", "words"])
def test_a_doubtful_call_is_asked_for_once_and_never_a_success(
    project: Path, text: str, why: str, last: str
) -> None:
    after = text if last == "same" else "I have made the file."
    talk = Conversation(project, [Step(text=text), Step(text=after)])
    finished = talk.say("make the file")
    assert finished.status == "error"
    assert finished.error is not None
    assert finished.error["type"] == "CallNotRun"
    assert why in finished.error["message"]
    asked = [entry.content for entry in talk.of(User) if entry.source == "notice"]
    assert len(asked) == 1
    assert why in asked[0]
    assert not talk.of(ToolResult)
    assert not (project / "made").exists()


@pytest.mark.parametrize(
    "answer", [Step(text=TAGS), Step(tools=[("bash", json.loads(CALL)["arguments"])])]
)
def test_a_call_after_the_request_makes_the_turn_a_success(project: Path, answer: Step) -> None:
    talk = Conversation(project, [Step(text=f"I make it.\n{FENCE}"), answer, Step(text="done")])
    assert talk.say("make the file").status == "ok"
    assert (project / "made").exists()


@pytest.mark.parametrize("text", [FENCE, CALL, CALL.replace("{", "{{"), CALL[:-1]])
def test_nothing_but_a_call_is_no_answer_of_a_model_that_makes_real_calls(
    project: Path, text: str
) -> None:
    steps = [Step(tools=[("Bash", {"command": "ls"})]), Step(text=text), Step(text=text)]
    talk = Conversation(project, steps)
    finished = talk.say("make the file")
    assert (finished.status, dict(finished.error or {}).get("type")) == ("error", "CallNotRun")
    assert not (project / "made").exists()


def test_a_model_that_makes_real_calls_may_explain_the_json_of_one(project: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "ls"})]), Step(text=f"{FENCE}\nIt makes a file.")]
    assert Conversation(project, steps).say("what does a call look like?").status == "ok"
    assert not (project / "made").exists()


@pytest.mark.parametrize("text", [TAGS, CALL[:-1]])
def test_a_quoted_call_does_not_run(project: Path, text: str) -> None:
    (project / "prompt.md").write_text(f"Example:\n{text}\n")
    steps = [Step(tools=[("Read", {"path": "prompt.md"})]), Step(text=text), Step(text=text)]
    talk = Conversation(project, steps)
    assert talk.say("print the call in prompt.md").status == "ok"
    assert not (project / "made").exists()


def test_an_answer_in_json_may_have_the_keys_of_a_call(project: Path) -> None:
    text = '{"name": "app", "arguments": {}}'
    talk = Conversation(project, [Step(text=text)])
    schema = as_schema({"type": "object"})
    finished = asyncio.run(run_turn(talk.agent, "name the app", schema=schema))
    assert (finished.status, finished.text) == ("ok", text)


def test_a_tool_name_in_another_case_becomes_the_known_one(project: Path) -> None:
    steps = [Step(tools=[("bash", {"command": "ls"}), ("Nope", {})]), Step(text="done")]
    talk = Conversation(project, steps)
    assert talk.say("list the files").status == "ok"
    reply = talk.of(Assistant)[0]
    assert [block["name"] for block in reply.content] == ["Bash", "Nope"]
    assert [*reply.dialect["names"].values()] == ["bash"]
    assert [result.is_error for result in talk.of(ToolResult)] == [False, True]
