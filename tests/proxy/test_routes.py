"""The proxy's own routes: access checks, status data, and undo while a reply is being received."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ctxagent.addons.proxy.app import Proxy
from ctxagent.addons.proxy.conversations import Conversations
from ctxagent.addons.proxy.exchange import Exchanges
from ctxagent.addons.proxy.forward import Upstream
from ctxagent.addons.proxy.mcp_server import SessionServer
from ctxagent.addons.proxy.serve import MAX_UNDO_BYTES, ProxyPages
from ctxagent.addons.proxy.session_tools import ServedSessions
from ctxagent.addons.proxy.status import StatusReader
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.session.entries import Assistant, Mask, Revert
from ctxagent.agent.session.log import Entries, Log
from ctxagent.agent.session.store import Project

from ..support.server.loopback import Say, Server
from ..support.sessions.proxied import Proxied
from ..support.sessions.recording import USELESS

OLD = "20260101-080000-00000a"
UNDO = {"x-ctxagent": "undo"}
EAGER = replace(DEFAULT, clear_when="every-call", clear_keep=1, clear_above=500)
TOOLS = [{"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}]
LONG = [f"{number}: " + "some words of a file " * 400 for number in range(12)]
Json = dict[str, Any]


@dataclass
class Own:
    """A proxy in this process with a client."""

    project: Project
    upstream: str = "http://127.0.0.1:9"
    policy: Policy = DEFAULT
    reports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        conversations = Conversations(self.project, self.policy)
        both = {"messages": self.upstream, "openai": self.upstream}
        self.proxy = Proxy(Exchanges(conversations, Upstream()), both, self.reports.append)
        server = SessionServer(ServedSessions(self.project))
        app = self.proxy.app(ProxyPages(self.proxy, StatusReader(), server).routes())
        transport = httpx2.ASGITransport(app=app)
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765")

    async def undo(self, seq: int, id: str = OLD, **headers: str) -> httpx2.Response:
        data = {"session": id, "seq": seq}
        return await self.client.post("/.ctxagent/undo", json=data, headers={**UNDO, **headers})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    cwd = tmp_path / "project"
    cwd.mkdir()
    return Project(tmp_path / "state", cwd)


def edited() -> Proxied:
    """A session whose edits are a mask (#4) and a summary (#6) with its mask (#7)."""
    made = Proxied(OLD).words("go").reply(written=9_000).mask(9_000, 8_000)
    made.reply(written=8_000, saved=1_000).summary(8_000, 4_000)
    return made.mask(4_000, 3_000, trigger="with the summary").words("more")


def run(own: Own, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def all() -> None:
        await what()
        await own.client.aclose()
        await own.proxy.exchanges.conversations.close()

    asyncio.run(all())


def reverted(log: Path) -> list[int]:
    return [entry.target for entry in Entries(log) if isinstance(entry, Revert)]


# Access checks


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "proxy.example"},
        {"host": "a{b.proxy.example"},
        {"host": "127.0.0.1@proxy.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
def test_other_sites_and_names_are_refused(project: Project, headers: dict[str, str]) -> None:
    log, own = edited().write(project), Own(project)

    async def go() -> None:
        for path in ("/", "/.ctxagent/status.json", "/.ctxagent/none"):
            answer = await own.client.get(path, headers=headers)
            assert answer.status_code == 403
            assert OLD not in answer.text
        assert (await own.undo(4, **headers)).status_code == 403

    run(own, go)
    assert reverted(log) == []


def test_a_form_of_another_page_changes_nothing(project: Project) -> None:
    log, own = edited().write(project), Own(project)
    data = {"session": OLD, "seq": "4"}

    async def go() -> None:
        for given in ({"data": data}, {"json": {**data, "seq": 4}}, {"files": {"f": b"x"}}):
            answer = await own.client.post("/.ctxagent/undo", **given)
            assert answer.status_code == 403
        assert (await own.client.get("/.ctxagent/undo", params=data, headers=UNDO)).is_error

    run(own, go)
    assert reverted(log) == []


def test_nothing_of_ours_goes_to_the_upstream(project: Project) -> None:
    own = Own(project)  # a forwarded request would get 502

    async def go() -> None:
        for method, path in (("GET", "x"), ("POST", "status.json"), ("DELETE", "undo")):
            answer = await own.client.request(method, f"/.ctxagent/{path}")
            assert answer.status_code in (404, 405)
        assert (await own.client.post("/")).status_code == 502

    run(own, go)


# Answers


def test_the_page_keeps_to_itself(project: Project) -> None:
    edited().write(project)
    own = Own(project)
    own.proxy.fail("it <b>failed</b>")

    async def go() -> None:
        answer = await own.client.get("/")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "it &lt;b&gt;failed" in answer.text
        head = await own.client.head("/")
        assert (head.status_code, head.content) == (200, b"")
        assert str(project.cwd) in answer.text

    run(own, go)


def test_figures_come_again_only_when_they_have_changed(project: Project) -> None:
    made = edited()
    made.write(project)
    own = Own(project)
    own.proxy.fail("it failed")

    async def go() -> None:
        answer = await own.client.get("/.ctxagent/status.json")
        told = answer.json()
        assert [each["text"] for each in told["faults"]] == ["it failed"]
        assert [each["id"] for each in told["sessions"]] == [OLD]
        tag = {"if-none-match": answer.headers["etag"]}
        for ask in (own.client.get, own.client.head):
            again = await ask("/.ctxagent/status.json", headers=tag)
            assert (again.status_code, again.content) == (304, b"")
        head = await own.client.head("/.ctxagent/status.json")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["etag"] == answer.headers["etag"]
        made.reply(written=5).write(project)
        changed = await own.client.get("/.ctxagent/status.json", headers=tag)
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag["if-none-match"]

    run(own, go)


# Undo of a session that is not open


def test_an_edit_is_undone_once(project: Project) -> None:
    log, own = edited().write(project), Own(project)

    async def go() -> None:
        assert (await own.undo(4)).json() == {"session": OLD, "seq": 4}
        assert (await own.undo(4)).status_code == 404

    run(own, go)
    assert reverted(log) == [4]


def test_with_a_summary_goes_the_mask_that_came_with_it(project: Project) -> None:
    log, own = edited().write(project), Own(project)

    async def go() -> None:
        assert (await own.undo(6)).status_code == 200

    run(own, go)
    assert sorted(reverted(log)) == [6, 7]


def test_only_edits_can_be_undone(project: Project, tmp_path: Path) -> None:
    log, own = edited().write(project), Own(project)
    other = Project(project.state, tmp_path)
    Proxied("20260101-090000-00000b").words("x").reply(written=5).mask(5, 4).write(other)
    Proxied("20260101-100000-00000c", client={}).words("x").mask(5, 4).write(project)

    async def go() -> None:
        for seq in (1, 2, 3, 99, -1):
            assert (await own.undo(seq)).status_code == 404, seq
        for id in ("", ".", "../x", "20260101", "20260101-090000-00000b", "20260101-100000-00000c"):
            assert (await own.undo(4, id)).status_code == 404, id
        bad = [b"", b"[]", b"{", b'{"session": 1, "seq": 4}', b"[" * MAX_UNDO_BYTES]
        bad += [json.dumps({"session": OLD, "seq": seq}).encode() for seq in ("4", True, 4.0, None)]
        bad.append(json.dumps({"session": OLD, "seq": 4, "x": "x" * MAX_UNDO_BYTES}).encode())
        for data in bad:
            answer = await own.client.post("/.ctxagent/undo", content=data, headers=UNDO)
            assert answer.status_code == 400, data[:80]

    run(own, go)
    assert reverted(log) == []


def test_a_session_that_another_process_has_is_left_as_it_is(project: Project) -> None:
    log, own = edited().write(project), Own(project)
    held = Log.open(log)

    async def go() -> None:
        answer = await own.undo(4)
        assert answer.status_code == 409
        assert OLD in answer.json()["error"]["message"]

    try:
        run(own, go)
    finally:
        held.close()
    assert reverted(log) == []


# Undo in an open session


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


def history(results: int) -> list[Json]:
    """The messages that a client sends after this many calls."""
    messages: list[Json] = [{"role": "user", "content": text("Read them all")}]
    for number in range(results):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file": "a"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": LONG[number]}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


async def ask(own: Own, messages: list[Json]) -> httpx2.Response:
    return await own.client.post(
        "/v1/messages",
        json={
            "model": "claude-opus-4-8", "max_tokens": 1_000, "stream": True,
            "system": text("Be brief."), "tools": TOOLS, "messages": messages,
        },
        headers={"x-api-key": "k", "anthropic-version": "2023-06-01"},
        timeout=60,
    )  # fmt: skip


def results_of(request: Json) -> list[str]:
    """The texts of the results in a request."""
    blocks = (b for m in request["messages"] for b in m["content"] if isinstance(b, dict))
    return [
        b["content"] if isinstance(b["content"], str) else b["content"][0]["text"]
        for b in blocks
        if b["type"] == "tool_result"
    ]


def masks(log: Path) -> list[Mask]:
    return [entry for entry in Entries(log) if isinstance(entry, Mask)]


@pytest.mark.slow
def test_the_next_request_contains_the_undone_content(project: Project) -> None:
    said = [Say("One.")] * 3
    with Server(said) as server:
        own = Own(project, server.url, EAGER)

        async def go() -> None:
            await ask(own, history(6))
            (log,) = project.logs()
            cleared = masks(log)
            assert results_of(server.requests[0]) != LONG[:6]
            for mask in cleared:
                assert (await own.undo(mask.seq, log.parent.name)).status_code == 200
            said_back = [{"role": "assistant", "content": text("One.")}]
            messages = [*history(6), *said_back, {"role": "user", "content": text("Go on")}]
            await ask(own, messages)
            assert results_of(server.requests[1]) == LONG[:6]
            assert masks(log) == cleared
            newest = [entry for entry in Entries(log) if isinstance(entry, Assistant)][-1]
            assert newest.request["saved"] == 0

        run(own, go)
        assert server.rejected == []
    assert own.reports == []


@pytest.mark.slow
def test_the_next_request_contains_the_messages_of_an_undone_summary(project: Project) -> None:
    with Server([Say("One."), Say(USELESS), Say("Two."), Say("Three.")]) as server:
        own = Own(project, server.url, replace(DEFAULT, clear_when="off"))

        async def go() -> None:
            messages = history(6)
            await ask(own, messages)
            (session,) = own.proxy.exchanges.conversations.open
            summary = await session.engine.compact()
            for number, reply in enumerate(("One.", "Two.")):
                messages.append({"role": "assistant", "content": text(reply)})
                messages.append({"role": "user", "content": text(f"Go on {number}")})
                await ask(own, messages)
                if not number:
                    assert len(results_of(server.requests[-1])) < 6
                    assert (await own.undo(summary.seq, session.id)).status_code == 200

        run(own, go)
        assert server.rejected == []
        last = server.requests[-1]["messages"]
    assert results_of({"messages": last}) == LONG[:6]
    assert "compressed" not in str(last)
    assert last[0]["content"] == text("Read them all")
    assert own.reports == []


@pytest.mark.slow
def test_a_reply_that_comes_meanwhile_is_still_the_newest(project: Project) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def step(body: Json) -> Say:
        asked.set()
        go_on.wait(60)
        return Say("One.")

    with Server(step) as server:
        own = Own(project, server.url, EAGER)

        async def go() -> None:
            streaming = asyncio.create_task(ask(own, history(6)))
            assert await asyncio.to_thread(asked.wait, 60)
            (log,) = project.logs()
            (mask,) = masks(log)
            assert (await own.undo(mask.seq, log.parent.name)).status_code == 200
            go_on.set()
            assert (await streaming).status_code == 200
            reply = [*Entries(log)][-2]
            assert isinstance(reply, Assistant)
            assert (reply.purpose, reply.request["saved"] > 0) == ("turn", True)
            (session,) = own.proxy.exchanges.conversations.open
            assert session.pending is not None

        run(own, go)
    assert own.reports == []
