"""Lists and results with wrong parts: known cases, and a fuzz from the published schema."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp_types.methods import parse_server_result

from ctxagent.agent.errors import ToolError
from ctxagent.agent.extensions import server_process
from ctxagent.agent.extensions.mcp.config import ServerConfig
from ctxagent.agent.extensions.mcp.messages import AS_SENT, read_messages
from ctxagent.agent.extensions.mcp.servers import McpServers, parts_of
from ctxagent.agent.extensions.mcp.shapes import NOTES, usable_result

from ...support.mcp.fuzz import LISTS, PARTS, lines, sample
from ...support.starts import start_gate

FUZZED = Path(__file__).parents[2] / "support" / "mcp" / "fuzzed.py"
NO_TOOLS = "tools/list: its answer has no tools"
TEXT = {"type": "text", "text": "good"}


def usable(method: str, sent: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a usable result and its notes. The SDK accepts the result."""
    result = usable_result(method, sent)
    parse_server_result(method, "2025-11-25", result)
    return result, result.get("_meta", {}).get(NOTES, [])


@pytest.mark.parametrize(
    ("sent", "texts", "notes"),
    [
        ({"content": [TEXT]}, ["good"], 0),
        ({"content": "good"}, ["good"], 0),
        ("good", ["good"], 0),
        (None, [], 0),
        ({"content": TEXT}, ["good"], 0),
        ({"content": ["good", {"text": "too"}]}, ["good", "too"], 0),
        ({"content": [TEXT, 5]}, ["good", "[content without a type: 5]"], 1),
        ({"toolResult": {"a": 1}}, ['{"toolResult": {"a": 1}}'], 0),
        ({"structuredContent": {"a": 1}}, ['{"a": 1}'], 0),
        ({"content": [], "structuredContent": [1]}, ["[1]"], 0),
        ({"content": [TEXT], "isError": "maybe"}, ["good"], 1),
        (
            {"content": [{"type": "image", "data": 5}]},
            ['[image: {"type": "image", "data": 5}]'],
            1,
        ),
    ],
)
def test_the_result_of_a_call(sent: Any, texts: list[str], notes: int) -> None:
    result, found = usable("tools/call", sent)
    assert [block["text"] for block in result["content"]] == texts
    assert len(found) == notes


@pytest.mark.parametrize(("flag", "is_error"), [("true", True), (1, True), (None, False)])
def test_a_failed_call(flag: Any, is_error: bool) -> None:
    assert usable("tools/call", {"content": [], "isError": flag})[0]["isError"] is is_error


def test_a_step_to_another_request_is_not_changed() -> None:
    for sent in ({"resultType": "input_required", "x": 1}, {"task": {"taskId": "1"}}):
        assert usable_result("tools/call", sent) is sent


def test_the_start_of_a_server_with_wrong_parts() -> None:
    told = {"tools": True, "prompts": {"listChanged": "x"}, "resources": None, "tasks": 5}
    result, notes = usable(
        "initialize", {"protocolVersion": "2024-12-01", "capabilities": told, "serverInfo": "me"}
    )
    assert result["protocolVersion"] == "2024-11-05"
    assert result["capabilities"] == {"tools": {}, "prompts": {}}
    assert notes == ["protocolVersion: 2024-12-01 is unknown, 2024-11-05 is used"]
    assert usable_result("initialize", ["what"]).get("protocolVersion") is None


def test_a_prompt_with_wrong_parts() -> None:
    sent = {"messages": [{"role": "system", "content": TEXT}, "good", {"content": [TEXT, TEXT]}]}
    result, notes = usable("prompts/get", sent)
    assert result["messages"] == [{"role": "user", "content": TEXT}] * 4
    assert notes == ["messages[0].role: system is unknown, user is used"]


def check(seed: int) -> None:
    """Check one damaged result: it is valid, no good part is lost, and the damage is named."""
    made = sample(seed)
    frame = json.dumps({"jsonrpc": "2.0", "id": 1, "result": made.result}).encode()
    (message,) = read_messages(frame)
    result = message["result"].get(AS_SENT, message["result"])
    result = usable_result(made.method, result)
    parse_server_result(made.method, made.version, result)
    notes = result.get("_meta", {}).get(NOTES, [])
    if made.method in LISTS:
        key, name = LISTS[made.method]
        found = [item[name] for item in result[key]]
        assert [mark for mark in found if mark in made.whole] == made.whole, seed
        lost = len(made.result[key]) - len(found)
        assert lost <= sum("is left out" in note for note in notes), seed
    else:
        parts = result[PARTS[made.method]]
        shown = json.dumps(parts)
        assert all(mark in shown for mark in made.whole), seed
        if made.method != "prompts/get":
            assert len(parts) == len(made.result[PARTS[made.method]]), seed


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("count", [400, 20_000])
def test_damage_in_a_part_costs_no_other_part(count: int) -> None:
    for seed in range(count):
        check(seed)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[McpServers]:
    config = ServerConfig("s", tmp_path, command=(sys.executable, str(FUZZED)))
    found = McpServers([config], env={}, cwd=tmp_path, starts=start_gate(tmp_path))
    found.start()
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("count", [200, 20_000])
def test_broken_answers_cost_neither_other_answers_nor_the_connection(
    servers: McpServers, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default timeout of a call is longer than this test: each answer must arrive."""
    monkeypatch.setattr(server_process, "MAX_UNREQUESTED_MESSAGES", 10 * count)

    async def texts(seed: int) -> str:
        try:
            answer = await servers.call("mcp__s__fuzz", {"seed": seed})
        except ToolError as error:
            return str(error)
        return "\n".join(part.text for part in answer.parts)

    async def all_texts() -> list[str]:
        return [await texts(seed) for seed in range(count)]

    found = asyncio.run(all_texts())
    for seed, text in enumerate(found):
        mark = lines(seed, 0)[1]
        assert mark in text, seed
        assert "has ended" not in text, seed
    assert servers.status()[0].calls == count


def test_a_list_without_the_list_is_named() -> None:
    assert usable("tools/list", None) == (
        {**usable("tools/list", {"tools": []})[0], "_meta": {NOTES: [NO_TOOLS]}},
        [NO_TOOLS],
    )


@pytest.mark.parametrize(
    ("sent", "data"),
    [
        ("YWI/Pz8+", b"ab???>"),
        ("YWI_Pz8-", b"ab???>"),
        ("data:image/png;base64,YWI=", b"ab"),
        ("YW\nI", b"ab"),
        ("@@@", None),
    ],
)
def test_base64_is_read_in_each_form(sent: str, data: bytes | None) -> None:
    block = {"type": "image", "data": sent, "mimeType": "image/png"}
    answer = parts_of(types.CallToolResult.model_validate({"content": [block]}))
    (part,) = answer.parts
    assert part.data == data
    assert (part.text == "[image/png: not valid base64, left out]") is (data is None)


def test_an_unknown_block_has_its_type_in_its_text() -> None:
    sent = usable_result("tools/call", {"content": [{"type": "hologram", "z": 1}]})
    answer = parts_of(types.CallToolResult.model_validate(sent))
    shown, note = (part.text for part in answer.parts)
    assert shown == '[hologram: {"type": "hologram", "z": 1}]'
    assert note.startswith("[About this answer: content[0]: hologram of this form is unknown")
