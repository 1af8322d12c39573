"""The strict validator: accepts what the API accepts, and names each rule that is broken."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from ..support.server.loopback import Say, Server
from ..support.server.validator import LARGEST_BODY, Invalid, validate

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
MARK = {"type": "ephemeral"}
GOOD: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 1000,
    "stream": True,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "system": [{"type": "text", "text": "Be good.", "cache_control": MARK}],
    "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "Yes."},
                {"type": "tool_use", "id": "a", "name": "Bash", "input": {}},
                {"type": "tool_use", "id": "b", "name": "Bash", "input": {"n": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "out", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [
                        {"type": "text", "text": "a picture"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                        },
                    ],
                },
                {"type": "text", "text": "And then?", "cache_control": MARK},
            ],
        },
    ],
}
Spoil = Callable[[dict[str, Any]], object]


def test_accepts_a_good_request() -> None:
    validate(GOOD)


def _answer(request: dict[str, Any]) -> list[Any]:
    return request["messages"][2]["content"]


def _reply(request: dict[str, Any]) -> list[Any]:
    return request["messages"][1]["content"]


def _picture(request: dict[str, Any]) -> dict[str, Any]:
    return _answer(request)[1]["content"][1]["source"]


def _more_marks(request: dict[str, Any]) -> None:
    for block in (*_answer(request)[:2], *request["tools"], _answer(request)[1]["content"][0]):
        block["cache_control"] = MARK


SPOILED: dict[str, Spoil] = {
    "max_tokens: Field required": lambda r: r.pop("max_tokens"),
    "max_tokens: Input should be greater": lambda r: r.update(max_tokens=-1),
    "stream cannot be true when max_tokens is 0": lambda r: r.update(max_tokens=0),
    "max_tokens: Input should be a valid int": lambda r: r.update(max_tokens=True),
    "model: at least 1": lambda r: r.update(model=" "),
    "temperature: Extra inputs": lambda r: r.update(temperature=1),
    "top_k: Extra inputs": lambda r: r.update(top_k=1),
    'only "adaptive"': lambda r: r.update(thinking={"type": "enabled"}),
    "thinking.budget_tokens: Extra": lambda r: r["thinking"].update(budget_tokens=1),
    "output_config.effort": lambda r: r["output_config"].update(effort="extreme"),
    "system.0.text: text content blocks": lambda r: r["system"][0].update(text=" \n"),
    "Tool names must be unique": lambda r: r["tools"].append(r["tools"][0]),
    "tools.0.name: String should match": lambda r: r["tools"][0].update(name="a b"),
    "tools.0.description": lambda r: r["tools"][0].pop("description"),
    "tools.0.input_schema.type": lambda r: r["tools"][0].update(input_schema={}),
    "at least one message": lambda r: r.update(messages=[]),
    "roles must alternate from 'user' on, found 'assistant'": lambda r: r["messages"].pop(0),
    "roles must alternate from 'user' on, found 'user'": lambda r: r["messages"].insert(
        0, r["messages"][0]
    ),
    "messages.0.id: Extra inputs": lambda r: r["messages"][0].update(id="x"),
    "non-empty content": lambda r: r["messages"][0].update(content=[]),
    "should be a list of blocks": lambda r: r["messages"][0].update(content="Go."),
    "messages.0.content.0.text: text content blocks": lambda r: r["messages"][0].update(
        content=[{"type": "text", "text": ""}]
    ),
    "Input tag 'thinking'": lambda r: _answer(r).append(_reply(r)[0]),
    "Input tag 'hologram'": lambda r: _answer(r).append({"type": "hologram"}),
    "citations: should be a list": lambda r: _reply(r)[2].update(citations=None),
    "signature: text content": lambda r: _reply(r)[0].update(signature=""),
    "cannot be `thinking`": lambda r: _reply(r).append(_reply(r)[0]),
    "content.0.cache_control: Extra": lambda r: _reply(r)[0].update(cache_control=MARK),
    "content.3.id: String should match": lambda r: _reply(r)[3].update(id="a.b"),
    "content.3.input: Input should be an object": lambda r: _reply(r)[3].update(input="{}"),
    "ids must be unique": lambda r: _reply(r)[4].update(id="a"),
    "without `tool_result` blocks immediately after: b": lambda r: _answer(r).pop(0),
    "without `tool_result` blocks: ['a', 'b']": lambda r: r["messages"].pop(),
    "unexpected `tool_use_id`": lambda r: _answer(r)[0].update(tool_use_id="c"),
    "exactly one `tool_result`": lambda r: _answer(r).insert(0, _answer(r)[0]),
    "must come first": lambda r: _answer(r).insert(0, _answer(r).pop()),
    "is_error": lambda r: _answer(r)[0].update(is_error=1),
    "content.0.content: text content blocks": lambda r: _answer(r)[0].update(content=""),
    "content.1.content: at least one block": lambda r: _answer(r)[1].update(content=[]),
    "media_type: should be one of": lambda r: _picture(r).update(media_type="image/bmp"),
    "the bytes are not image/gif": lambda r: _picture(r).update(media_type="image/gif"),
    "invalid base64": lambda r: _picture(r).update(data="!"),
    "Found 6": _more_marks,
    "ephemeral breakpoint": lambda r: _answer(r)[2].update(
        cache_control={"type": "ephemeral", "ttl": "1d"}
    ),
    "lone surrogate": lambda r: _reply(r)[4]["input"].update({"\ud800": 1}),
}


@pytest.mark.parametrize("message", SPOILED)
def test_names_the_broken_rule(message: str) -> None:
    request = deepcopy(GOOD)
    SPOILED[message](request)
    with pytest.raises(Invalid) as raised:
        validate(request, allow_paused=True)
    assert message in str(raised.value)
    assert raised.value.status == 400


SEARCHED: dict[str, Any] = {
    **{name: GOOD[name] for name in ("model", "max_tokens", "stream")},
    "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}],
    "messages": [
        GOOD["messages"][0],
        {
            "role": "assistant",
            "content": [
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "walrus"},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [
                        {
                            "type": "web_search_result",
                            "url": "https://a.example/",
                            "title": "A",
                            "encrypted_content": "x",
                            "page_age": None,
                        }
                    ],
                },
                {
                    "type": "text",
                    "text": "So it is.",
                    "citations": [
                        {
                            "type": "web_search_result_location",
                            "url": "https://a.example/",
                            "title": "A",
                            "encrypted_index": "i",
                            "cited_text": "so",
                        }
                    ],
                },
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ],
}
SPOILED_SEARCHES: dict[str, Spoil] = {
    "without a corresponding `web_search_tool_result` block": lambda r: _reply(r).__delitem__(
        slice(1, None)
    ),
    "Each must have a corresponding `server_tool_use`": lambda r: _reply(r).pop(0),
    "id: String should match": lambda r: _reply(r)[0].update(id="toolu_1"),
    "`server_tool_use` ids must be unique": lambda r: _reply(r).extend(_reply(r)[:2]),
    "encrypted_content: Field required": lambda r: _reply(r)[1]["content"][0].pop(
        "encrypted_content"
    ),
    "a citation of a page never found": lambda r: _reply(r)[1].update(content=[]),
    "does not match any expected tag": lambda r: r["tools"][0].update(type="web_search_1"),
    "tools.0.max_uses": lambda r: r["tools"][0].update(max_uses=0),
}


def test_accepts_searches_and_those_that_wait_for_results_of_calls() -> None:
    validate(SEARCHED)
    beside = deepcopy(SEARCHED)
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "out"}
    search, found, said = _reply(beside)
    bare = {"role": "user", "content": [result]}
    more = {"role": "assistant", "content": [found, said]}
    beside["messages"][1:2] = [{"role": "assistant", "content": [search, call]}, bare, more]
    validate(beside)
    validate({**beside, "messages": beside["messages"][:3]})
    result_and_words = {"role": "user", "content": [result, *beside["messages"][0]["content"]]}
    with pytest.raises(Invalid, match="without a corresponding"):
        validate({**beside, "messages": [*beside["messages"][:2], result_and_words]})


@pytest.mark.parametrize("message", SPOILED_SEARCHES)
def test_names_the_broken_rule_of_searches(message: str) -> None:
    request = deepcopy(SEARCHED)
    SPOILED_SEARCHES[message](request)
    with pytest.raises(Invalid) as caught:
        validate(request)
    assert message in str(caught.value)


@pytest.mark.parametrize("body", [b"{nope", b"\xff", b"[1]"])
def test_the_server_refuses_what_is_no_request(body: bytes) -> None:
    with Server([]) as server:
        assert "JSON" in post(server, body) or "not an object" in post(server, body)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": None},
        {"type": "thinking", "signature": "s"},
        {"text": "x"},
    ],
)
def test_the_server_refuses_a_script_that_cannot_be_streamed(block: dict[str, Any]) -> None:
    with Server([Say(blocks=[block])]) as server:
        assert "the script has a" in post(server, json.dumps(GOOD).encode())
        assert len(server.rejected) == 1


def post(server: Server, body: bytes) -> str:
    """The message of the 400 that a body is answered with."""
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{server.url}/v1/messages", body, headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code == 400
        return str(json.load(answer)["error"]["message"])


def test_a_paused_reply_may_be_last_only_when_it_was_paused() -> None:
    request = {**GOOD, "messages": deepcopy(GOOD["messages"][:2])}
    del _reply(request)[3:]
    validate(request, allow_paused=True)
    with pytest.raises(Invalid, match="no prefill"):
        validate(request)


@pytest.mark.slow
def test_a_body_beyond_32_mb_is_413() -> None:
    text = "x" * LARGEST_BODY
    request = {**GOOD, "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    with pytest.raises(Invalid, match="maximum size") as raised:
        validate(request)
    assert raised.value.status == 413


@pytest.mark.slow
def test_an_image_beyond_5_mb_is_refused() -> None:
    request = deepcopy(GOOD)
    large = base64.b64decode(PNG) + b"\0" * (5 * 1024 * 1024)
    _picture(request)["data"] = base64.b64encode(large).decode()
    with pytest.raises(Invalid, match="exceeds 5 MB"):
        validate(request)


def test_the_server_refuses_searches_that_were_altered() -> None:
    server = Server([Say("Yes."), Say("Yes.")])
    server.keep_searches({"content": deepcopy(_reply(SEARCHED))})
    headers: dict[str, str] = {}
    altered = deepcopy(SEARCHED)
    server.answer(deepcopy(SEARCHED), headers, b"")
    assert server.rejected == []
    _reply(altered)[1]["content"][0]["encrypted_content"] = "y"
    server.answer(altered, headers, b"")
    assert "was altered" in server.rejected[0][0]
