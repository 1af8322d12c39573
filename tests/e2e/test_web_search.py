"""Web searches that the server makes during a reply, with the real command."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import COMPRESSED_MARK, is_summary_question

from ..support.command import Place, comes
from ..support.server.loopback import SEARCH_BLOCKS, Body, Fail, Say, Server
from ..support.terminal.screen import Terminal
from .test_mcp import SUMMARY, configure, plain

ON = ("-c", "web.search=on", "--model", "claude-sonnet-5-5")
CLEARS = (
    *ON, "-c", "clear.when=every-call", "-c", "clear.keep=0",
    "-c", "clear.above=200",
)  # fmt: skip
TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
SECRET = "RW5jcnlwdGVk+/" * 400  # base64, as the API encrypts a page's text


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def searching(name: str, query: str) -> Body:
    id = f"srvtoolu_{name}"
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": query}}


def found(name: str, *titles: str) -> Body:
    pages = [
        {
            "type": "web_search_result",
            "title": title,
            "url": f"https://{name}.example/{number}",
            "encrypted_content": f"{SECRET}{name}{number}==",
            "page_age": "3 days ago" if number else None,
        }
        for number, title in enumerate(titles)
    ]
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{name}", "content": pages}


def failed(name: str, code: str = "too_many_requests") -> Body:
    error = {"type": "web_search_tool_result_error", "error_code": code}
    return {**found(name), "content": error}


def cited(text: str, name: str) -> Body:
    citation = {
        "type": "web_search_result_location",
        "url": f"https://{name}.example/0",
        "title": "One",
        "encrypted_index": f"Eo8B{name}==",
        "cited_text": "a part of the page",
    }
    return {"type": "text", "text": text, "citations": [citation]}


def search(name: str, query: str = "walruses", *titles: str, says: str = "I know.") -> list[Body]:
    """Return the blocks of a search, and text that cites its results."""
    pages = titles or ("All of walruses", "Walruses & <b>seals</b>")
    return [searching(name, query), found(name, *pages), cited(says, name)]


def run(place: Place, server: Server, *arguments: str, code: int = 0, words: str = "go") -> Any:
    done = place.run("-p", words, *arguments, env=place.server(server.url))
    assert done.returncode == code, done.stderr
    assert server.rejected == []
    return done


def plain_blocks(body: Body, *kinds: str) -> list[Body]:
    """Return the blocks of these kinds that a request has, without cache marks."""
    blocks = (block for message in body["messages"] for block in message["content"])
    return [
        {name: value for name, value in block.items() if name != "cache_control"}
        for block in blocks
        if block["type"] in kinds
    ]


def sent(body: Body) -> list[str]:
    """Return the searches and results in a request, as kind and ID."""
    return [
        f"{block['type']} {block.get('id') or block['tool_use_id']}"
        for block in plain_blocks(body, *SEARCH_BLOCKS)
    ]


def pair(name: str) -> list[str]:
    return [f"{kind} srvtoolu_{name}" for kind in SEARCH_BLOCKS]


def texts(body: Body) -> str:
    return "\n".join(block["text"] for block in plain_blocks(body, "text"))


def offered(body: Body) -> bool:
    return any(tool.get("type") for tool in body["tools"])


def test_blocks_are_kept_and_sent_back_to_the_byte(place: Place) -> None:
    blocks = [
        {"type": "text", "text": "Let me see."},
        *search("a"),
        searching("b", "x"),
        failed("b"),
    ]
    steps = [Say("Done.", blocks=blocks, thinking="Hm."), Say("Yes.", thinking="Hm.")]
    with Server(steps, bound=True) as server:
        done = run(place, server, *ON, "--output-format", "stream-json")
        run(place, server, *ON, "--continue", words="on")
    first, second = server.requests
    assert first["tools"][-1] == second["tools"][-1] == TOOL
    assert first["tools"] == second["tools"]
    (entry,) = [e for e in place.entries() if e["kind"] == "assistant"][:1]
    assert [json.dumps(b) for b in entry["content"][: len(blocks)] if b.get("citations")] == [
        json.dumps(blocks[3])
    ]
    kept = [b for b in entry["content"] if b["type"] in SEARCH_BLOCKS]
    lines = place.run("log", "--entries", "--json").stdout.splitlines()
    assert entry in [json.loads(line) for line in lines]
    assert json.dumps(kept) == json.dumps([b for b in blocks if b["type"] in SEARCH_BLOCKS])
    assert plain_blocks(second, *SEARCH_BLOCKS) == kept
    assert cited("I know.", "a") in plain_blocks(second, "text")
    assert len(plain_blocks(second, "thinking")) == 1
    assert entry["usage"]["web_searches"] == 1

    events = [json.loads(line) for line in done.stdout.splitlines()]
    begun = [e for e in events if e["type"] == "tool_started"]
    assert [(e["name"], e["title"]) for e in begun] == [
        ("WebSearch", "walruses"),
        ("WebSearch", "x"),
    ]
    assert events[-1]["result"] == "Done.", "what is said after the last search"
    ended = [e for e in events if e["type"] == "tool_finished"]
    assert [(e["is_error"], e["details"]["results"]) for e in ended] == [(False, 2), (True, 0)]
    assert "https://a.example/1 · 3 days ago" in ended[0]["text"]
    assert "too_many_requests" in ended[1]["text"]


def test_what_searches_cost(place: Place) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    twice = {**usage, "server_tool_use": {"web_search_requests": 2}}
    steps = [
        Say(blocks=[*search("a"), *search("b")], usage=twice),
        Say("Yes.", usage=usage),
    ]
    tokens = (1_000 * 2 + 100 * 10) / 1e6
    with Server(steps) as server:
        done = run(place, server, *ON, "--output-format", "json")
        result = json.loads(done.stdout)
        assert result["usage"]["web_searches"] == 2
        assert result["cost_usd"] == pytest.approx(tokens + 0.02)
        again = json.loads(run(place, server, *ON, "--continue", "--output-format", "json").stdout)
    assert again["cost_usd"] == pytest.approx(2 * tokens + 0.02)
    replies = [e for e in place.entries() if e["kind"] == "assistant"]
    assert sum(e["cost_usd"] for e in replies) == pytest.approx(again["cost_usd"])
    assert [e["usage"].get("web_searches", 0) for e in replies] == [2, 0]
    assert again["usage"]["web_searches"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-c", "web.search=off"),
        (*ON, "--deny", "WebSearch"),
        (*ON, "-c", "permissions.ask=WebSearch"),
    ],
)
def test_search_tool_is_absent(place: Place, arguments: tuple[str, ...]) -> None:
    with Server([Say("Yes.")]) as server:
        run(place, server, *arguments)
    assert not offered(server.requests[0])


def test_search_tool_is_present_on_the_public_api(place: Place) -> None:
    """The list of tools is recorded before the first request, which reaches no server."""
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "test-key-1"}
    for number, arguments in enumerate(((), ("-c", "web.search=off"))):
        here = Place(place.root / str(number))
        process = here.start(
            "-p", "go", *arguments, env=here.environ(nowhere),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert comes(lambda at=here: any(log.read_text().count("\n") > 1 for log in at.logs()))
        process.kill()
        process.wait()
        tools = here.entries()[0]["tools"]
        assert (TOOL in tools) is (not arguments)


def test_a_project_turns_it_off_but_not_on(place: Place) -> None:
    settings = place.project / ".agentrc"
    own = place.root / "home" / ".config" / "ctxagent" / "agentrc"
    own.parent.mkdir(parents=True)
    for of_project, of_person in (("on", "auto"), ("off", "on"), ("auto", "on")):
        settings.write_text(f'[web]\nsearch = "{of_project}"\n')
        own.write_text(f'[web]\nsearch = "{of_person}"\n')
        with Server([Say("Yes.")]) as server:
            run(place, server)
        assert not offered(server.requests[0])


def test_a_session_keeps_what_it_began_with_until_it_is_forbidden(place: Place) -> None:
    steps = [Say(blocks=search("a")), Say("Yes."), Say("Yes."), Say("Yes.")]
    with Server(steps) as server:
        run(place, server, *ON)
        run(place, server, "--continue")
        run(place, server, "--continue", "--deny", "WebSearch")
        run(place, server, "--continue")
    assert [offered(body) for body in server.requests] == [True, True, False, False]
    assert all(sent(body) == pair("a") for body in server.requests[1:])


@pytest.mark.variants
@pytest.mark.parametrize("tool", ["none", "search_pages"])
def test_a_server_that_does_not_search(place: Place, tool: str) -> None:
    """The user is told once, and the request is sent again without searches. Later requests have
    none, also in a resumed session.
    """
    if tool != "none":
        configure(place, plain=plain(place, "searches"))
    with Server([Say("skipped"), Say("Yes."), Say("Yes."), Say("Yes.")]) as server:
        server.searches = False
        done = run(place, server, *ON, "--verbose")
        again = run(place, server, *ON, "--verbose", "--continue")
    assert [offered(body) for body in server.requests] == [True, False, False]
    assert done.stderr.count("this server does not search the web") == 1
    instead = "none is configured" if tool == "none" else "Mcp can call mcp__plain__search_pages"
    assert instead in done.stderr
    assert "does not search" not in again.stderr


def test_another_server_that_takes_no_blocks_of_searches(place: Place) -> None:
    with Server([Say(blocks=search("a"), thinking="Hm.")]) as server:
        run(place, server, *ON)
    with Server([Say("1"), Say("2"), Say("Yes."), Say("Yes.")]) as other:
        other.searches = other.takes_found = False
        run(place, other, *ON, "--continue")
        run(place, other, *ON, "--continue")
    assert len(other.requests) == 4
    assert [sent(body) for body in other.requests[2:]] == [[], []]
    assert "https://a.example/0" in texts(other.requests[-1])
    assert "I know." in texts(other.requests[-1])


def test_a_server_that_refuses_the_tool_without_a_reason(place: Place) -> None:
    def step(body: Body) -> Say | Fail:
        return Fail(400, "") if body.get("tools") and offered(body) else Say("Yes.")

    with Server(step, lenient=True) as server:
        done = run(place, server, *ON)
    assert done.stdout == "Yes.\n"
    turns = [body for body in server.requests if body.get("tools")]
    assert [offered(body) for body in turns] == [True, True, False]
    assert len(server.requests) == len(turns) + 1, "a tiny request"


def test_a_paused_turn_goes_on_with_its_search(place: Place) -> None:
    paused = Say(blocks=[searching("a", "x")], stop_reason="pause_turn", thinking="")
    steps = [paused, Say(blocks=[found("a", "One"), cited("I know.", "a")]), Say("Yes.")]
    with Server(steps) as server:
        done = run(place, server, *ON)
        run(place, server, *ON, "--continue")
    assert done.stdout.strip() == "I know."
    assert server.requests[1]["messages"][-1]["role"] == "assistant"
    assert sent(server.requests[1]) == pair("a")[:1]
    assert sent(server.requests[2]) == pair("a")


def test_a_turn_that_pauses_for_ever_ends(place: Place) -> None:
    def step(body: Body) -> Say:
        number = len(body["messages"][-1]["content"])
        return Say(blocks=search(f"n{number}"), stop_reason="pause_turn")

    with Server(step) as server:
        done = place.run("-p", "go", *ON, env=place.server(server.url))
    assert done.returncode == 1
    assert "3 replies in a row paused" in done.stderr
    assert len(server.requests) == 3
    with Server([Say("Yes.")]) as server:
        run(place, server, *ON, "--continue")


def test_refused_paused_reply_leaves_out_the_search(place: Place) -> None:
    """Issue reports describe this for the API. The search is left out, and the turn continues."""
    orphan = (
        "messages.1: `web_search` tool use with id `srvtoolu_a` was found without a corresponding "
        "`web_search_tool_result` block"
    )
    paused = Say("One moment.", blocks=[searching("a", "x")], stop_reason="pause_turn")
    with Server([paused, Fail(400, orphan), Say("Yes."), Say("Yes.")]) as server:
        run(place, server, *ON)
        run(place, server, *ON, "--continue")
    assert [sent(body) for body in server.requests[2:]] == [[], []]
    assert offered(server.requests[-1])


def test_a_search_beside_a_call_waits_for_its_bare_result(place: Place) -> None:
    read = ("Bash", {"command": "echo one"})
    beside = Say(blocks=[searching("a", "x")], tools=[read])
    steps = [beside, Say(blocks=[found("a", "One"), cited("I know.", "a")]), Say("Yes.")]
    with Server(steps) as server:
        done = run(place, server, *ON)
        run(place, server, *ON, "--continue")
    assert done.stdout.strip() == "I know."
    assert sent(server.requests[1]) == pair("a")[:1]
    assert sent(server.requests[2]) == pair("a")


def test_search_without_a_result_is_not_sent(place: Place) -> None:
    """The reply was cut off at the output limit, or a message follows the result of a call next to
    the search.
    """
    cut = Say(blocks=[searching("a", "x")], stop_reason="max_tokens", thinking="")
    beside = Say(blocks=[searching("b", "x")], tools=[("Bash", {"command": "echo one"})])
    with Server([cut, beside, Fail(401, "no"), Say("Yes.")]) as server:
        run(place, server, *ON, code=5)
        run(place, server, *ON, "--continue")
    assert sent(server.requests[1]) == []
    assert "A search of the web was cut short." in texts(server.requests[1])
    assert sent(server.requests[2]) == pair("b")[:1]
    assert sent(server.requests[3]) == []


@pytest.mark.full
def test_a_stream_that_breaks_within_a_search(place: Place) -> None:
    """The attempt is void, also if nothing retries it and if the process is killed."""
    blocks = [{"type": "text", "text": "Let me see."}, *search("a")]
    for after in range(3, 14):
        here = Place(place.root / str(after))
        steps = [Say(blocks=blocks, fault="cut", after=after), Say(blocks=search("b")), Say("Yes.")]
        with Server(steps) as server:
            run(here, server, *ON)
            run(here, server, *ON, "--continue")
        assert sent(server.requests[-1]) == pair("b")


def test_invalid_search_blocks_are_not_sent_back(place: Place) -> None:
    """Invalid or repeated IDs, incomplete pairs, broken fields, and a false count."""
    named = {"id": "no id!"}, {"tool_use_id": "no id!"}
    blocks: list[Body] = [
        {**searching("a", "one"), **named[0]},
        {**found("a", "One"), **named[1]},
        *search("b"),
        {**searching("b", "again"), "id": "srvtoolu_b"},
        {**found("b", "Again"), "tool_use_id": "srvtoolu_b"},
        found("never asked", "One"),
        searching("never answered", "x"),
        {**searching("c", "x"), "input": [1]},
        {**found("c", "One"), "content": [{"type": "web_search_result", "url": 3}]},
        {**searching("d", "x"), "name": "web_fetch"},
        {**searching("e", "x"), "caller": {"type": "code_execution_20260120", "tool_id": "x"}},
        {"type": "text", "text": "So.", "citations": [{"type": "web_search_result_location"}]},
    ]
    usage = {"input_tokens": 9, "server_tool_use": {"web_search_requests": 10**12}}
    steps = [Say("Done.", blocks=blocks, usage={**usage, "output_tokens": 9}), Say("Yes.")]
    with Server(steps) as server:
        result = json.loads(run(place, server, *ON, "--output-format", "json").stdout)
        server.given.clear()  # ids are replaced
        run(place, server, *ON, "--continue")
    assert "web_searches" not in result["usage"]
    there = sent(server.requests[-1])
    assert there[2:4] == pair("b")
    assert len(there) == len(set(there)) == 6
    assert texts(server.requests[-1]).endswith("So.\nDone.\ngo")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_in_the_middle_of_a_search(place: Place, number: int) -> None:
    blocks = [{"type": "text", "text": "Let me see."}, *search("a")]
    stands = Say(blocks=blocks, fault="silence", after=11)  # the search is whole
    with Server([stands, Say("Yes.")]) as server:
        process = place.start(
            "-p", "go", *ON, "--output-format", "stream-json", env=place.server(server.url),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["type"] == "tool_started":
                break
        process.send_signal(number)
        process.stdout.read()
        process.wait()
        run(place, server, *ON, "--continue", words="again")
    assert sent(server.requests[-1]) == []


def recall(ref: int) -> Say:
    return Say(tools=[("Recall", {"ref": ref})], thinking="Again.")


def test_cleared_recalled_undone_and_resumed_after_a_kill(place: Place) -> None:
    """The server binds thinking to everything before it."""
    blocks = search("a", "walruses", "All of walruses", "Herrings\u200b", says="Walruses are big.")
    first = Say(blocks=blocks, thinking="Hm.")
    second = Say(blocks=search("b", "seals", says="Seals are not."), thinking="Hm.")
    steps = [first, second, Say("Third.", thinking="Hm."), Say("Fourth.", thinking="Hm.")]
    with Server(steps, bound=True) as server:
        for words in ("one", "two", "three", "four"):
            run(place, server, *CLEARS, *(("--continue",) if words != "one" else ()), words=words)
    assert [sent(body) for body in server.requests] == [[], pair("a"), pair("b"), []]
    last = server.requests[-1]
    (entry,) = [e for e in place.entries() if e["kind"] == "assistant"][:1]
    stub = texts(last)
    assert '[WebSearch "walruses" · done · ' in stub
    assert f"#{entry['seq']}" in stub
    assert "All of walruses · https://a.example/0" in stub
    assert "Herrings\\u200b · https://a.example/1 · 3 days ago" in stub
    assert "Walruses are big." in stub
    assert not any("citations" in block for block in plain_blocks(last, "text"))
    assert SECRET not in json.dumps(last)
    assert json.dumps(entry["content"]).count(SECRET) == 2, "the log keeps the bytes"

    with Server([recall(entry["seq"]), Say("I see.", thinking="Hm.")], bound=True) as server:
        run(place, server, *CLEARS, "--continue")
    (answer,) = [b["content"] for b in plain_blocks(server.requests[-1], "tool_result")][-1:]
    assert "query: walruses" in answer
    assert "Herrings\\u200b · https://a.example/1 · 3 days ago" in answer
    assert SECRET not in answer

    undo = ("-c", "clear.when=off")
    with Server([Say("Again.", thinking="Hm.")] * 2, bound=True) as server:
        terminal = Terminal(
            *ON, *undo, "--continue", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("❯")
        for _ in range(2):
            terminal.type("/uncompact\r")
            terminal.rest()
        terminal.type("and now?\r")
        terminal.see("Again.")
        terminal.signal(signal.SIGKILL)
        terminal.leave()
        run(place, server, *CLEARS, "--continue")
    assert server.rejected == []
    before, after = server.requests
    assert sent(before) == [*pair("a"), *pair("b")]
    assert sent(after) == pair("a"), "what was undone is not cleared again"
    for body in server.requests:
        assert cited("Walruses are big.", "a") in plain_blocks(body, "text")
    found_then = plain_blocks(server.requests[0], *SEARCH_BLOCKS)
    assert found_then[:2] == blocks[:2]


def test_context_counts_what_was_cleared(place: Place) -> None:
    steps = [Say(blocks=search("a")), Say("Yes."), Say("Yes.")]
    with Server(steps) as server:
        run(place, server, *CLEARS)
        run(place, server, *CLEARS, "--continue")
        terminal = Terminal(*CLEARS, "--continue", cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("and?\r")
        terminal.see("Yes.")
        terminal.rest()
        terminal.type("/context report\r")
        terminal.see("cleared results")
        assert "results: WebSearch" not in terminal.text()
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert sent(server.requests[-1]) == []


def test_in_the_terminal(place: Place) -> None:
    blocks = [{"type": "text", "text": "Let me see."}, *search("a", "wal\u202eruses")]
    with Server([Say(blocks=blocks)]) as server:
        terminal = Terminal(*ON, cwd=place.project, env=place.server(server.url), rows=40)
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("I know.")
        terminal.rest()
        shown = terminal.text()
        assert "WebSearch" in shown
        assert "wal\\u202eruses" in shown
        assert "2 results" in shown
        assert "All of walruses · https://a.example/0" in shown
        assert shown.index("Let me see.") < shown.index("2 results") < shown.index("I know.")
        terminal.type("/cost\r")
        terminal.see("web searches")
        terminal.type("/context report\r")
        terminal.see("WebSearch")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []


def test_exports_and_the_conversation_show_what_was_found(place: Place) -> None:
    with Server(
        [Say(blocks=[*search("a", "<i>walruses</i>"), searching("b", "x"), failed("b")])]
    ) as server:
        run(place, server, *ON)
    id = place.logs()[0].parent.name
    told = "Walruses & <b>seals</b> · https://a.example/1 · 3 days ago"
    conversation = (place.logs()[0].parent / "conversation.md").read_text()
    markdown = place.run("sessions", "export", id, "--format", "md").stdout
    for text in (conversation, markdown):
        assert told in text
        assert "<i>walruses</i>" in text
        assert "too_many_requests" in text
        assert SECRET not in text
    html = place.run("sessions", "export", id, "--format", "html").stdout
    assert "Walruses &amp; &lt;b&gt;seals&lt;/b&gt;" in html
    assert "<b>seals" not in html
    assert "<i>walruses" not in html
    assert SECRET not in html


class Summarized:
    """Search in each reply, until a summary is in the context."""

    def __init__(self) -> None:
        self.searches, self.asked = 0, list[str]()

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.asked.append(texts(body))
            return Say(SUMMARY)
        if COMPRESSED_MARK in texts(body):
            return Say("All done.", thinking="Done.")
        self.searches += 1
        name = f"n{self.searches}"
        calls = [("Bash", {"command": "echo one"})]
        return Say(blocks=search(name, f"walrus {name}"), thinking="More.", tools=calls)


def test_over_a_summary(place: Place) -> None:
    script = Summarized()
    with Server(script, bound=True, strict=True, window=40_000) as server:
        run(place, server, *ON, "--context-window", "40000", "-c", "clear.when=off")
        run(place, server, *ON, "--context-window", "40000", "--continue")
    (told,) = script.asked
    assert "walrus n1" in told
    assert "https://n1.example/0" in told
    last = sent(server.requests[-1])
    assert pair("n1") != last[:2]
    assert f"server_tool_use srvtoolu_n{script.searches}" in last, "the newest messages stay"


class Searcher:
    """Search often enough, and answer any request for a summary."""

    def __init__(self, searches: int) -> None:
        self.left, self.summaries, self.blocks = searches, 0, dict[str, list[Body]]()

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY)
        if not self.left:
            return Say("All done.", thinking="Done.")
        self.left -= 1
        name = f"n{self.left}"
        self.blocks[name] = search(name, f"walrus {name}", *(f"Page {n}" for n in range(8)))
        calls = [("Bash", {"command": f"echo {name}"})]
        return Say(blocks=self.blocks[name], thinking=f"More than {name}.", tools=calls)


def test_many_searches_through_a_small_window(place: Place) -> None:
    """Nothing is refused. Each search can be read by its ref, and the log has it to the byte."""
    script = Searcher(40)
    with Server(script, bound=True, strict=True, window=60_000) as server:
        run(place, server, *ON, "--context-window", "60000")
    assert script.summaries <= 4
    replies = [e for e in place.entries() if e["kind"] == "assistant" and e["purpose"] == "turn"]
    kept = {
        block["id"].removeprefix("srvtoolu_"): entry
        for entry in replies
        for block in entry["content"]
        if block["type"] == "server_tool_use"
    }
    assert kept.keys() == script.blocks.keys()
    for name, blocks in script.blocks.items():
        there = [b for b in kept[name]["content"] if b["type"] in SEARCH_BLOCKS]
        assert json.dumps(there) == json.dumps(blocks[:2])
    refs = [entry["seq"] for entry in kept.values()]
    calls = [("Recall", {"ref": ref}) for ref in refs]
    with Server([Say(tools=calls), Say("I see.")]) as server:
        run(place, server, *ON, "--continue")
    answers = [b["content"] for b in plain_blocks(server.requests[-1], "tool_result")][-len(refs) :]
    for name, answer in zip(kept, answers, strict=True):
        assert f"query: walrus {name}" in answer
        assert f"Page 7 · https://{name}.example/7 · 3 days ago" in answer


def test_a_subagent_searches_too(place: Place) -> None:
    task = {"description": "look", "prompt": "Search.", "type": "general"}

    def step(body: Body) -> Say:
        words = texts({"messages": body["messages"][:1]})
        if "Search." in words:
            return Say(blocks=search("sub"))
        done = plain_blocks(body, "tool_result")
        return Say("All done.") if done else Say(tools=[("Task", task)])

    with Server(step) as server:
        done = run(place, server, *ON, "--output-format", "json")
    assert all(map(offered, server.requests))
    assert json.loads(done.stdout)["usage"]["web_searches"] == 1
