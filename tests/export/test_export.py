"""Exports of a session: the page shows everything once and loads nothing, and session content has
no effect in it.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from ctxagent.addons.export.markdown import prose
from ctxagent.agent.errors import UsageError
from ctxagent.agent.loop import user_commands
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.pages.export import EXPORT_FORMATS, export
from ctxagent.agent.pages.templates import MAX_TEXT_CHARS, clean, render
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    End,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Unknown,
    Unpin,
    User,
    encode,
)
from ctxagent.agent.session.log import LOG_NAME, Log

from ..support.command import Place
from ..support.sessions.conversation import Conversation
from ..support.sessions.history import MODEL, called
from ..support.terminal.browser import Browser, needs_browser
from ..support.terminal.command_line import CommandDesk

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
DIFF = (
    "--- a/cart.py\n+++ b/cart.py\n@@ -1,2 +1,2 @@\n def total():\n-    return 1\n+    return 2\n"
)
VOID = ("meta", "img", "input")


class Page(HTMLParser):
    """A parsed page: its elements with their attributes, and the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}  # by id
        self.scripts: list[str] = []
        self.open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "elements are left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] in ("script", "style"):
            self.scripts.append(data)
            return
        for _, id in self.open:
            if id:
                self.texts[id] = self.texts.get(id, "") + data

    @property
    def ids(self) -> list[str]:
        return [given["id"] or "" for _, given in self.elements if "id" in given]

    def addresses(self) -> list[str]:
        return [given["href"] or "" for _, given in self.elements if "href" in given]

    def of(self, kind: str) -> list[dict[str, str | None]]:
        """The elements of a class."""
        return [g for _, g in self.elements if kind in (g.get("class") or "").split()]


def recorded(folder: Path, *entries: Entry) -> Path:
    """The log of a session with these entries."""
    path = folder / "projects" / "p" / "sessions" / "20261122-101010-abcdef" / LOG_NAME
    log = Log(path)
    for entry in entries:
        log.append(entry)
    log.close()
    return path


def opened(**fields: Any) -> Session:
    return Session(id="s", cwd="/home/me/shop", version="0.1.0", model=MODEL, **fields)


def reply(*blocks: dict[str, Any], tokens: int = 0, **fields: Any) -> Assistant:
    usage = {"input": 100, "cache_read": max(0, tokens - 100), "output": 40} if tokens else {}
    given: dict[str, Any] = {"stop_reason": "end_turn", "model": MODEL, "cost_usd": 0.01, **fields}
    return Assistant(content=list(blocks), usage=usage, **given)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def picture(data: str, kind: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": kind, "data": data}
    return {"type": "image", "source": source}


def everything(folder: Path) -> Path:
    """A session with an entry of every kind, in most of their forms."""
    log = recorded(
        folder,
        opened(system="You are an agent.\nBe exact.", tools=[{"name": "Bash"}, {"name": "Edit"}]),
        User(content="The total is wrong for orders with a discount. Find out why, and fix it."),
        User(content="Working directory: /home/me/shop\nDate: today", source="environment"),
        reply(
            {"type": "thinking", "thinking": "Where is the total?\nIn cart.py.", "signature": "x"},
            text("I look at **the code** first; see #42.\n\n| a | b |\n|--:|---|\n| 1 | 2 |"),
            called("c1", "Grep", {"pattern": "total", "path": "src"}),
            called("c2", "Bash", {"command": "pytest -q\necho done", "timeout": 60}),
            tokens=12_000,
        ),
        ToolResult(
            tool_use_id="c2", content="\n".join(f"line {n}" for n in range(300)), is_error=True,
            details={"exit_code": 1, "seconds": 12.3},
        ),
        ToolResult(tool_use_id="c1", content="src/cart.py:12: def total():"),
        reply(called("c3", "Edit", {"path": "cart.py", "old": "1", "new": "2"}), tokens=22_000),
        ToolResult(
            tool_use_id="c3", content="changed cart.py",
            details={"diff": DIFF, "added": 1, "removed": 1},
        ),
        Checkpoint(number=1, path="checkpoints/1.json", trigger="70% of the window"),
        Mask(
            layer="microcompact",
            targets=[
                {"seq": 5, "tool_use_id": "c2", "stub": "[Bash · exit 1 · full text: #5]"},
                {"seq": 7, "tool_use_id": "c3", "input": {"path": "cart.py"}},
            ],
            tokens_before=22_000, tokens_after=14_000, trigger="level",
        ),
        reply(called("c4", "Read", {"path": "all.log"}), tokens=14_500),
        ToolResult(
            tool_use_id="c4", content="## Offloaded Content Reference\n**File:** x\n> first",
            details={"tokens_saved": 20_000}, offloaded="offloaded/all.md",
        ),
        reply(called("c5", "Task", {"description": "look", "prompt": "Look."}), tokens=15_000),
        SubagentRun(id="ag1", type="explore", prompt="Look around.", log=f"agents/ag1/{LOG_NAME}"),
        SubagentRun(
            id="ag1", type="explore", prompt="Look around.", log=f"agents/ag1/{LOG_NAME}",
            status="done", answer="There are *two* files.", usage={"input": 900, "output": 90},
            cost_usd=0.02, calls=2, description="look around",
        ),
        ToolResult(tool_use_id="c5", content="There are two files."),
        reply(text("A summary."), purpose="summary", tokens=16_000),
        Summary(
            document={"intent": "fix the total"},
            text="[Conversation compressed]\n\n## Session Intent\nfix the total\n\n- #5 tests",
            covers=[2, 12], keep_from=13, tokens_before=16_000, tokens_after=4_000,
            trigger="93%", probes={"passed": True},
        ),
        Revert(target=10, reason="by hand"),
        Note(topic="drift", text="asked again for what #2 says", data={"severity": "LOW"}),
        Pin(ref=2, text="The total is wrong"),
        Unpin(ref=2),
        User(
            content=[
                text("What does this picture show?"),
                picture(PIXEL),
                picture("A" * 400_000),
                picture(PIXEL, "image/svg+xml"),
            ]
        ),
        reply(text("A dot."), tokens=5_000, stop_reason="max_tokens"),
        End(status="ok"),
        Unknown(name="comet", extra={"tail": "long"}),
        ToolResult(tool_use_id="nobody", content="an orphan"),
    )  # fmt: skip
    (log.parent / "offloaded").mkdir()
    (log.parent / "offloaded" / "all.md").write_text("first\n" + "middle\n" * 500 + "the very end")
    agent = Log(log.parent / "agents" / "ag1" / LOG_NAME)
    agent.append(opened())
    agent.append(User(content="Look around."))
    agent.append(reply(called("c1", "Glob", {"pattern": "*"}), tokens=500))
    agent.append(ToolResult(tool_use_id="c1", content="a.py\nb.py"))
    agent.append(reply(text("There are *two* files."), tokens=600))
    agent.close()
    return log


def shown(log: Path, window: int | None = 20_000) -> Page:
    return Page(export(log, "html", window=window))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return everything(tmp_path)


@pytest.mark.slow
def test_every_entry_is_in_the_page_once(log: Path) -> None:
    page = shown(log)
    counted = Counter(id for id in page.ids if re.fullmatch(r"e\d+(-\d+)?", id))
    lines = log.read_text().count("\n")
    assert counted == {f"e{seq}": 1 for seq in range(1, lines + 1)}
    assert [id for id in page.ids if id.startswith("a1-")] == [f"a1-e{n}" for n in range(1, 6)]


@pytest.mark.slow
def test_what_was_said_can_be_read(log: Path) -> None:
    page = shown(log)
    assert page.texts["e2"].endswith(
        "The total is wrong for orders with a discount. Find out why, and fix it."
    )
    assert "line 299" in page.texts["e5"]
    assert "exit 1 · 12.3 s" in page.texts["e4"]
    assert "the very end" in page.texts["e12"]
    assert "22,000 → 14,000 tokens" in page.texts["e10"]
    assert "undone by #19" in page.texts["e10"]
    assert "stubbed by" not in page.source
    assert "16,000 → 4,000 tokens" in page.texts["e18"]
    assert "There are two files." in page.texts["e14"]
    assert "a.py\nb.py" in page.texts["a1-e4"]
    assert "stopped: max_tokens" in page.texts["e24"]
    assert "comet" in page.texts["e26"]
    assert "an orphan" in page.texts["e27"]
    assert "<strong>the code</strong>" in page.source
    assert '<td class="to-right">1</td>' in page.source
    assert '<span class="minus">-    return 1\n</span>' in page.source


@pytest.mark.slow
def test_the_facts_of_the_session_open_the_page(log: Path) -> None:
    source = shown(log).source
    opening = re.sub(r"<[^>]+>", " ", source[source.index("<h1>") : source.index("<main>")])
    for fact in ("20261122-101010-abcdef", "/home/me/shop", MODEL, "8 to the model", "$0.0800",
                 "2 cleared", "1 summary"):  # fmt: skip
        assert fact in opening


def test_every_ref_and_address_leads_somewhere(log: Path) -> None:
    page = shown(log)
    inside = [address for address in page.addresses() if address.startswith("#")]
    assert inside
    assert {address[1:] for address in inside} <= {*page.ids}
    assert 'full text: <a href="#e5" class="ref">#5</a>' in page.source  # the stub
    assert '<a href="#e5">#5</a> tests' in page.source  # the summary
    assert "#42" in page.texts["e4"]
    assert "#e42" not in page.source  # there is none


def test_the_chart_has_a_point_for_each_call_and_a_mark_for_each_act(log: Path) -> None:
    page = shown(log)
    assert [point["href"] for point in page.of("point")] == [
        "#e4", "#e7", "#e11", "#e13", "#e17", "#e24",
    ]  # fmt: skip
    assert [mark["href"] for mark in page.of("act") if "href" in mark] == ["#e10", "#e18", "#e19"]
    heights = [float(bar["height"] or 0) for bar in page.of("bar")]
    assert heights[1] == max(heights)
    assert "critical" in (page.of("bar")[1]["class"] or "").split()
    assert "aside" in (page.of("bar")[4]["class"] or "").split()
    (drawing,) = (given for tag, given in page.elements if tag == "svg")
    assert drawing["role"] == "img"
    assert "6 calls, 22,000 tokens at most, 5,000 at the last" in (drawing["aria-label"] or "")


@pytest.mark.parametrize("window", [None, 20_000, 1_000_000])
@pytest.mark.parametrize("tokens", [0, 1, 700, 19_000, 50_000])
def test_a_chart_of_one_call(tmp_path: Path, window: int | None, tokens: int) -> None:
    page = shown(recorded(tmp_path, opened(), reply(text("hi"), tokens=tokens)), window)
    (bar,) = page.of("bar")
    assert 1 <= float(bar["height"] or 0) <= 200
    assert all(0 < float(grid["y1"] or 0) < 300 for grid in page.of("grid"))


def test_a_session_without_a_word(tmp_path: Path) -> None:
    empty = recorded(tmp_path)
    empty.parent.mkdir(parents=True)
    empty.touch()
    page = shown(empty)
    assert "No call of the model yet." in page.source
    assert "Nothing is recorded yet." in page.source


POISON = (
    "<script>alert(1)</script>", "</script><script>alert(2)</script>", "</style><b>", "<!--", "]]>",
    "<img src=x onerror=alert(3)>", "[go](javascript:alert(4))", "![p](http://evil.example/p.png)",
    "<svg/onload=alert(5)>", "\"onmouseover='alert(6)' x=\"", "<a href='javascript:alert(7)'>x</a>",
    "[go](<java\tscript:alert(8)>)", "[x](data:text/html,<script>)", "&lt;script&gt;",
    "</details></main>",
    "```\n</code></pre><script>\n```", "[a](http://x\" onclick=\"alert(9))", "<http://e.example/\"><b>",
)  # fmt: skip


TAGS = {
    *("html", "head", "meta", "title", "style", "script", "body", "nav", "input", "output"),
    *("button", "header", "h1", "h2", "dl", "dt", "dd", "div", "details", "summary", "ul", "ol"),
    *("li", "figure", "figcaption", "svg", "line", "text", "rect", "circle", "a", "span", "main"),
    *("article", "section", "b", "code", "pre", "p", "time"),
}


def poisoned(folder: Path, words: str) -> Path:
    """A session with this text in every place that can contain text."""
    log = recorded(
        folder,
        Session(id=words, cwd=words, version=words, model=words, system=words,
                tools=[{"name": words}], parent={"id": words, "seq": words}),
        User(content=words),
        User(content=words, source=words),
        User(content=[{"type": "image", "source": {"media_type": words, "data": words}}]),
        reply(
            text(words), {"type": "thinking", "thinking": words}, {"type": words, "x": words},
            called("c1", words, {"command": words, words: [words]}),
            {"type": "tool_use", "id": "c2", "name": "Bash", "input": words},
            called("c3", "Bash", {}),
            stop_reason=words, model=words, broken={"c3": words},
        ),
        ToolResult(tool_use_id="c1", content=words,
                   details={"diff": f"+{words}\n-{words}", "exit_code": words}),
        ToolResult(tool_use_id="c2", content=words, offloaded=words),
        reply(text(words), purpose=words),
        Mask(layer=words, targets=[{"seq": 6, "stub": words}], tokens_before=1, tokens_after=0,
             trigger=words),
        Summary(document={}, text=words, covers=[1, 2], keep_from=3, trigger=words,
                probes={words: words}),
        Revert(target=8, reason=words),
        Checkpoint(number=1, path=words, trigger=words),
        Pin(ref=None, text=words),
        Note(topic=words, text=words, data={words: words}),
        SubagentRun(id="a", type=words, prompt=words, log=words, answer=words, status=words,
              description=words),
        End(status=words, reason=words),
        Unknown(name=words, extra={words: words}),
    )  # fmt: skip
    with log.open("a") as file:
        file.write(words.replace("\n", " ") + "\n")  # a line that is no entry
    return log


@pytest.mark.parametrize("words", POISON)
def test_nothing_of_a_session_acts_in_its_page(tmp_path: Path, words: str) -> None:
    page = shown(poisoned(tmp_path, words))
    plain = Page(export(recorded(tmp_path / "o", opened()), "html"))
    count = Counter(tag for tag, _ in page.elements)
    assert (count["script"], count["style"], count["img"]) == (1, 1, 0)
    assert page.scripts == plain.scripts
    assert count.keys() <= TAGS
    for _, given in page.elements:
        assert not [name for name in given if name.startswith("on") or name in ("style", "srcdoc")]
    for address in page.addresses():
        assert re.match(r"#|https?://", address), address


@pytest.mark.parametrize("words", POISON)
def test_markdown_makes_no_markup_and_only_links_that_are_safe(words: str) -> None:
    page = Page(prose(words))
    assert {tag for tag, _ in page.elements} <= {"p", "a", "span", "pre", "code"}
    for address in page.addresses():
        assert address.startswith("http"), address
    for _, given in page.elements:
        assert given.keys() <= {"href", "rel", "target", "class", "title"}
        assert "href" not in given or given["rel"] == "noopener noreferrer"


def test_no_resource_is_loaded_and_only_our_own_script_may_run(log: Path) -> None:
    page = shown(log)
    for tag, given in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "source")
        assert (given.get("src") or "data:").startswith("data:")
    assert not re.search(r"@import|url\(", page.scripts[0])
    (policy,) = (g["content"] or "" for _, g in page.elements if "http-equiv" in g)
    assert policy.startswith("default-src 'none'; ")
    for part in page.scripts:
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_control_characters_are_not_written(tmp_path: Path) -> None:
    words = "a\x00b\x1b[31mred\x1b[0m \x1b]0;title\x07c\ud800d\u202ee\x9bf\rg"
    source = export(recorded(tmp_path, User(content=words), reply(text(words))), "html")
    source.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", source)
    assert clean(words) == "a\ufffdbred c\ufffdd\\u202ee\ufffdf\ng"


def test_small_images_are_embedded_in_the_page(log: Path) -> None:
    page = shown(log)
    assert [given["alt"] for tag, given in page.elements if tag == "img"] == [
        f"image/png, {len(base64.b64decode(PIXEL))} bytes"
    ]
    assert "[image/png, 300,000 bytes]" in page.texts["e23"]
    assert "[image/svg+xml, " in page.texts["e23"]


def test_an_offloaded_text_is_whole_to_a_bound(tmp_path: Path) -> None:
    result = ToolResult(tool_use_id="c", content="a reference", offloaded="offloaded/big.md")
    log = recorded(tmp_path, reply(called("c", "Bash", {"command": "x"})), result)
    assert "its file: offloaded/big.md" in shown(log).texts["e2"]  # it is gone
    (log.parent / "offloaded").mkdir()
    (log.parent / "offloaded" / "big.md").write_text("BEGIN" + "x" * 2 * MAX_TEXT_CHARS + "END")
    told = shown(log).texts["e2"]
    assert "BEGIN" in told
    assert told.endswith("END")
    assert f"{MAX_TEXT_CHARS + 8:,} characters are left out; offloaded/big.md has all of it" in told
    assert len(told) < MAX_TEXT_CHARS + 2_000


@pytest.mark.parametrize("path", ["../secret", "offloaded/../../secret", "/etc/hostname", "secret"])
def test_a_garbled_log_shows_no_file_that_is_not_the_sessions(tmp_path: Path, path: str) -> None:
    log = recorded(tmp_path, ToolResult(tool_use_id="c", content="x", offloaded=path))
    for folder in (log.parent, log.parent.parent):
        (folder / "secret").write_text("SESAME")
    assert "SESAME" not in shown(log).source


PASTE = "Why?\n" + "\n".join(f"{n:03} a line\x1b[31m of a log" for n in range(300))


@pytest.mark.parametrize(
    ("words", "first", "size"),
    [
        (PASTE, 8, "293 lines more · 7,504 characters in all"),
        ("word " * 1_000, 1, "1 line more · 5,000 characters in all"),
        ("x" * 4_000, 1, "1 line more · 4,000 characters in all"),
        ("One\ntwo" * 10, 11, ""),
    ],
    ids=["lines", "words", "one word", "short"],
)
def test_long_words_are_folded_behind_their_beginning(
    tmp_path: Path, words: str, first: int, size: str
) -> None:
    source = export(recorded(tmp_path, opened(), User(content=words)), "html")
    told = Page(source).texts["e2"].partition("You#2")[2]
    assert "".join(clean(words).split()) in "".join(told.replace(size, "").split())
    [given] = Page(source).of("words")
    folded = re.search(
        r'<details class="words"><summary>(.*?)<span class="size">(.*?)</span>', source, re.S
    )
    assert bool(folded) == bool(size)
    assert "open" not in given
    if folded:
        assert folded[1].count("\n") + 1 == first
        assert clean(words).startswith(folded[1])
        assert len(folded[1]) <= 600
        assert folded[2] == size


@pytest.mark.slow
@needs_browser
def test_what_is_folded_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = ToolResult(tool_use_id="c1", content="line of a result\n" * 50)
    entries = opened(), User(content=PASTE), reply(called("c1", "Bash", {"command": "ls"})), result
    file.write_text(export(recorded(tmp_path, *entries), "html"))
    closed = "document.querySelectorAll('details:not([open])').length"
    with Browser(tmp_path / "browser") as browser:
        view = browser.open(file, width=390, height=800)
        before = view.evaluate(closed)
        assert before >= 2
        assert view.evaluate("document.querySelector('details.words').offsetHeight") < 800
        view.evaluate(f"addEventListener('beforeprint', () => globalThis.printed = {closed})")
        view.ask("Page.printToPDF")
        assert view.evaluate("printed") == 0
        assert view.evaluate(closed) == before
        assert view.troubles == []


def test_agents_that_name_each_other_come_to_an_end(tmp_path: Path) -> None:
    agent = SubagentRun(id="a", type="t", prompt="p", log="")
    log = recorded(tmp_path, agent, replace(agent, id="gone"))
    (log.parent / "agents").mkdir()
    (log.parent / "agents" / "a").symlink_to(log.parent)
    page = shown(log)
    assert "Its log is missing" in page.texts["e2"]
    assert max(id.count("a1-") for id in page.ids) == 3
    assert len(page.ids) == len({*page.ids})


def test_duplicate_seqs_get_different_anchors(log: Path) -> None:
    log.write_text(log.read_text() * 2)
    page = shown(log)
    assert len(page.ids) == len({*page.ids})
    assert {address[1:] for address in page.addresses() if address[0] == "#"} <= {*page.ids}


@pytest.mark.slow
def test_the_page_of_a_long_session_grows_as_the_session_does(tmp_path: Path) -> None:
    def of(turns: int) -> Page:
        entries: list[Entry] = [opened()]
        for n in range(turns):
            use = called(f"c{n}", "Bash", {"command": f"x {n}"})
            stubs = [{"seq": 4 + 5 * n, "stub": "full text: #4"}]
            entries += [
                User(content=f"do {n}"),
                reply(text(f"done **{n}**"), use, tokens=n + 1),
                ToolResult(tool_use_id=f"c{n}", content="word " * 40, details={"exit_code": 0}),
                Mask(layer="microcompact", targets=stubs, tokens_before=2, tokens_after=1,
                     trigger="t"),
                End(status="ok"),
            ]  # fmt: skip
        return shown(recorded(tmp_path / str(turns), *entries))

    small, large = of(100), of(1_000)
    assert sum(id.startswith("e") for id in large.ids) == 5_001
    assert 'cleared by <a href="#e5" class="ref">#5</a>' in small.source
    assert len(large.elements) < 10.5 * len(small.elements)
    assert len(large.source) < 11 * len(small.source)


def test_values_are_escaped_and_cleaned_unless_they_are_markup() -> None:
    def base(title: object) -> str:
        found = re.search("<title>(.*)</title>", render(
            "agent/pages/base.html.j2", styles=[], scripts=[], title=title,
        ))  # fmt: skip
        assert found
        return found[1]

    assert base("</title>'\"\x1b[31mred\x00") == "&lt;/title&gt;&#39;&#34;red\ufffd"
    assert base(["<b>\x07"]) == "[&#39;&lt;b&gt;\\x07&#39;]"
    assert base(Markup("<b>")) == "<b>"
    assert base(str(Markup("<b>"))) == "&lt;b&gt;"  # a plain text again
    assert base(Markup("<b>") + "<i>") == "<b>&lt;i&gt;"


def test_a_time_or_number_of_a_garbled_log_is_no_markup(tmp_path: Path) -> None:
    log = recorded(tmp_path, User(content="hi"), Pin(ref=1, text='it\'s #1, "it" is'))
    odd = re.sub(r'"at": "(.{10})T', r'"at": "\1\\"', log.read_text())
    assert odd != log.read_text()
    log.write_text(odd)
    page = shown(log)
    assert all(
        given.keys() == {"datetime", "title"} for tag, given in page.elements if tag == "time"
    )
    assert 'it&#39;s <a href="#e1" class="ref">#1</a>, &#34;it&#34; is' in page.source


@pytest.mark.parametrize(
    "words",
    [
        "> " * 150 + "deep",
        "\n".join("  " * n + f"- item {n}" for n in range(150)),
        "[a]: http://b.c 'deep'",
    ],
)
def test_no_words_are_lost_in_markdown(words: str) -> None:
    told = re.sub(r"<[^>]+>", "", prose(words))
    assert all(word in told for word in re.findall(r"\w{2,}", words))


@pytest.mark.slow
def test_a_deeply_nested_value_is_shown(tmp_path: Path) -> None:
    line = encode(reply(called("c", "Bash", {"x": "@"})))
    deep = json.dumps({**line, "seq": 1}).replace('"@"', "[" * 800 + "]" * 800)
    log = recorded(tmp_path, opened())
    log.write_text(deep + "\n")
    assert "[[[[" in re.sub(r"\s", "", shown(log).texts["e1"])


def test_a_command_of_the_persons_own_is_told_like_one_of_the_agents(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    talk = Conversation(cwd, [Step(text="I see.")])
    asyncio.run(user_commands.run_shell_command(talk.agent, "seq 1 40000; exit 4"))
    asyncio.run(user_commands.run_shell_command(talk.agent, "echo '<b>' small"))
    asyncio.run(user_commands.pin_note(talk.agent, "tabs"))
    talk.say("look")
    page = shown(talk.agent.log.path)
    large = next(text for text in page.texts.values() if "seq 1 40000" in text)
    assert large.startswith("You ran")
    assert all(told in large for told in ("\n20000\n", "exit 4", "moved to a file", "All of it"))
    small = next(text for text in page.texts.values() if "small" in text)
    assert "<b> small" in small
    assert "What it said" not in small
    assert "shell for the model" not in page.source
    assert "Your note for the model" in page.source
    assert [given["class"] for given in page.of("call")][-2:] == ["call failed", "call"]
    told = export(talk.agent.log.path, "md")
    assert "## The user ran · #2\n\n```\n[The user ran" in told
    assert "### Result · #3\n\n```\n<b> small\n```" in told
    assert "Shell" not in told


def test_markdown_and_json(log: Path) -> None:
    fenced = ToolResult(tool_use_id="a", content="```\nfence\n```", is_error=True)
    path = recorded(log.parents[3] / "other", opened(), User(content="one"), fenced)
    told = export(path, "md")
    assert "## User · #2\n\none" in told
    assert "### Result · #3 · error\n\n````\n```\nfence\n```\n````" in told
    assert [e["kind"] for e in json.loads(export(path, "json"))] == [
        "session",
        "user",
        "tool_result",
    ]
    assert len(json.loads(export(log, "json"))) == log.read_text().count("\n")


@pytest.mark.slow
def test_the_command_writes_each_format(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "script.json").write_text('{"steps": [{"text": "it is *done*"}]}')
    done = place.run("-p", "do it", "--model", f"scripted:{tmp_path}/script.json")
    assert done.returncode == 0, done.stderr
    id = place.logs()[0].parent.name
    told = {f: place.run("sessions", "export", id, "--format", f).stdout for f in EXPORT_FORMATS}
    assert told["md"].startswith(f"# Session {id}")
    assert json.loads(told["json"])[0]["kind"] == "session"
    page = Page(told["html"])
    assert "<em>done</em>" in page.source
    assert len(page.of("point")) == 1
    assert "of the window" not in page.source  # nobody knows it
    wide = place.run(
        "-c", "model.context_window=50000", "sessions", "export", id, "--format", "html"
    )
    assert "the window has 50,000" in wide.stdout


def test_a_session_is_written_to_a_file_of_its_owner(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    talk = Conversation(cwd, [Step(text="it is *done*")], window=30_000)
    talk.say("do it")
    desk = CommandDesk(talk)
    told = {}
    for name in ("a.HTML", "b.md", "c.json"):
        desk.run(f"/export {name}")
        told[Path(name).suffix] = (cwd / name).read_text()
    page = Page(told[".HTML"])
    assert "<em>done</em>" in page.source
    assert "the window has 30,000" in page.source
    assert told[".md"].startswith(f"# Session {desk.session}")
    assert json.loads(told[".json"])[0]["kind"] == "session"
    assert desk.waited == ["writing a.HTML", "writing b.md", "writing c.json"]
    assert {path.stat().st_mode & 0o777 for path in cwd.iterdir()} == {0o600}
    with pytest.raises(UsageError, match="exists"):
        desk.run("/export a.HTML")


def test_the_page_has_its_own_style_and_script_in_the_package() -> None:
    folder = resources.files("ctxagent.addons.export")
    for name, ends in (("page.css", "</style"), ("page.js", "</script")):
        assert ends not in folder.joinpath(name).read_text("utf-8").lower()
