"""Plans with the real command: proposed, accepted, and kept verbatim in every case."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import COMPRESSED_MARK, is_summary_question

from ..support.command import Place, comes
from ..support.server.loopback import Body, Say, Server
from ..support.sessions.killed import write_killed
from ..support.sessions.recording import USELESS
from ..support.terminal.screen import Terminal
from .test_stream_input import talk

PLAN = """# Give the walrus a pool

The pool lies in `pool.py`. Do not touch `heron.py`.

- It is 37 metres long
- It is checked by swimming in it"""
STEPS = ["Dig the hole", "Pour the concrete", "Fill in 4,711 litres"]
WHOLE = f"{PLAN}\n\n## Steps\n\n1. {STEPS[0]}\n2. {STEPS[1]}\n3. {STEPS[2]}"
LIMITS = ("--context-window", "24000", "--permission-mode", "bypass")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def propose(plan: str = PLAN, steps: list[str] | None = None) -> Say:
    return Say(tools=[("Plan", {"plan": plan, "steps": STEPS if steps is None else steps})])


def write(path: str = "pool.py") -> Say:
    return Say(tools=[("Write", {"path": path, "content": "pool = 37\n"})])


def texts(body: Body) -> list[str]:
    """Return all texts of a request, including those in results."""
    found = list[str]()
    for message in body["messages"]:
        for block in message["content"]:
            content = block.get("content", block.get("text", ""))
            parts = content if isinstance(content, list) else [{"text": content}]
            found += [str(part.get("text", "")) for part in parts]
    return found


def told(body: Body) -> str:
    return "\n".join(texts(body))


def todos(entries: list[dict[str, Any]]) -> list[str]:
    """Return the todo list that the newest plan gave."""
    (*_, found) = (e["details"]["todos"] for e in entries if e.get("source") == "plan")
    return [f"{row['status']} {row['content']}" for row in found]


def plan_file(place: Place) -> str:
    return (place.logs()[0].parent / "plan.md").read_text()


def test_a_run_that_only_plans_prints_the_plan(place: Place) -> None:
    with Server([write(), propose()]) as server:
        env = place.server(server.url)
        done = place.run("-p", "Build a pool", "--permission-mode", "plan", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == WHOLE
    assert plan_file(place) == f"{WHOLE}\n"
    first, second = server.requests
    assert "The permission mode is now plan: change nothing" in told(first)
    assert "propose it with Plan" in told(second)
    assert not (place.project / "pool.py").exists()
    with Server([Say("On it.")]) as server:
        env = place.server(server.url)
        done = place.run("-p", "Do it", "--continue", "--permission-mode", "bypass", env=env)
    assert done.stdout == "On it.\n"
    said = told(server.requests[-1])
    assert said.count(WHOLE) == 1
    assert "The user has not agreed to it but by what they say later" in said
    assert "The permission mode is now bypass" in said
    assert server.rejected == []


def test_a_plan_in_the_json_result(place: Place) -> None:
    with Server([propose()]) as server:
        done = place.run(
            "-p", "Plan", "--permission-mode", "plan", "--output-format", "json",
            env=place.server(server.url),
        )  # fmt: skip
    result = json.loads(done.stdout)
    assert (result["status"], result["exit_code"], result["result"]) == ("ok", 0, WHOLE)


def test_plan_without_a_user_in_other_modes(place: Place) -> None:
    with Server([propose(), write(), Say("Built.")]) as server:
        env = place.server(server.url)
        done = place.run("-p", "Build a pool", "--permission-mode", "bypass", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Built.\n"
    assert "Nobody can agree to it in this run: carry it out" in told(server.requests[-1])
    assert (place.project / "pool.py").exists()


@pytest.mark.parametrize(
    ("plan", "steps", "why"),
    [
        ("word " * 4_000, STEPS, "in this window|plan may take 1,920 of this window"),
        (PLAN, [], "steps: List should have at least 1 item"),
        ("", STEPS, "plan: String should have at least 1 character"),
        ("x" * 30_000, STEPS, "at most 20000 characters"),
    ],
)
def test_invalid_plan(place: Place, plan: str, steps: list[str], why: str) -> None:
    with Server([propose(plan, steps), propose()]) as server:
        done = place.run(
            "-p", "Plan", "--permission-mode", "plan", "--context-window", "24000",
            env=place.server(server.url),
        )  # fmt: skip
    assert done.stdout.strip() == WHOLE
    assert any(part in told(server.requests[-1]) for part in why.split("|"))


def started(place: Place, server: Server, *arguments: str, **env: str) -> Terminal:
    mode = arguments or ("--permission-mode", "plan")
    terminal = Terminal(*mode, cwd=place.project, env={**place.server(server.url), **env})
    terminal.see("❯")
    return terminal


def test_accepted_plan_is_carried_out(place: Place) -> None:
    steps = [write(), propose(), write(), Say("The hole is dug; the rest is open.")]
    with Server(steps) as server:
        terminal = started(place, server)
        terminal.type("Build a pool\r")
        text = terminal.see("[y]es, and stop asking about edits")
        assert "Give the walrus a pool" in text
        assert "Fill in 4,711 litres" in text
        assert not (place.project / "pool.py").exists()
        terminal.keys("[e]dit")
        terminal.type("y")
        terminal.see("the rest is open")
        terminal.see("allowed, in mode accept-edits")
        terminal.rest()
        terminal.type("/plan\r")
        terminal.see("0 of 3 on the todo list done")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert (place.project / "pool.py").exists()
    said = told(server.requests[2])
    assert "The user agrees to the plan as you proposed it." in said
    assert said.count(WHOLE) == 1
    assert "The permission mode is now accept-edits" in said
    assert todos(place.entries()) == [f"pending {step}" for step in STEPS]
    assert plan_file(place) == f"{WHOLE}\n"


def test_plan_is_declined_edited_and_accepted(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/37 metres/50 metres/; /Pour/d' \"$1\"\n")
    editor.chmod(0o755)
    with Server([propose(), propose(), write(), Say("Refused.")]) as server:
        terminal = started(place, server, EDITOR=str(editor))
        terminal.type("Build a pool\r")
        terminal.keys("[e]dit")
        terminal.type("no, make it longer\r")
        terminal.see("declined: make it longer")
        terminal.see(lambda text: text.count("[e]dit") == 1 and text.count("Dig the hole") == 2)
        terminal.keys("[e]dit")
        terminal.type("e")
        terminal.see("It is 50 metres long")
        terminal.keys("[e]dit")
        terminal.type("a")
        terminal.see("wants to write")
        terminal.type("n\r")
        terminal.see("Refused.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    second, third = told(server.requests[1]), told(server.requests[2])
    assert "does not agree to the plan yet. They say: make it longer" in second
    assert "[Of the proposed plan 'Give the walrus a pool':] make it longer" in second
    assert "The user has edited the plan" in third
    changed = WHOLE.replace("37 metres", "50 metres").replace("2. Pour the concrete\n", "")
    assert third.count(changed) == 1
    assert "The permission mode is now ask" in third
    assert todos(place.entries()) == [f"pending {STEPS[0]}", f"pending {STEPS[2]}"]
    assert not (place.project / "pool.py").exists()


def test_an_edit_that_leaves_no_plan_is_asked_about_again(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text("#!/bin/sh\necho 'Just do it' > \"$1\"\n")
    editor.chmod(0o755)
    with Server([propose(), Say("Well.")]) as server:
        terminal = started(place, server, EDITOR=str(editor))
        terminal.type("Build a pool\r")
        terminal.keys("[e]dit")
        terminal.type("e")
        terminal.see("the plan has no steps")
        terminal.rest()
        terminal.keys("[e]dit")
        terminal.type("y")
        terminal.rest()
        terminal.see("the plan has no steps")
        terminal.keys("[e]dit")
        terminal.type("forget it\r")
        terminal.see("Well.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "They say: forget it" in told(server.requests[-1])
    assert not [e for e in place.entries() if e.get("source") == "plan"]


def test_an_agreed_plan_is_edited_and_dropped(place: Place) -> None:
    editor = place.root / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/Dig the hole/Dig two holes/' \"$1\"\n")
    editor.chmod(0o755)
    with Server([propose(), Say("Agreed. Now?"), Say("Seen."), Say("Gone.")]) as server:
        terminal = started(place, server, EDITOR=str(editor))
        terminal.type("/plan\r")
        terminal.see("there is no plan")
        terminal.type("Build a pool\r")
        terminal.keys("[e]dit")
        terminal.type("y")
        terminal.see("Agreed.")
        terminal.rest()
        terminal.type("/plan edit\r")
        terminal.see("the plan is saved; the agent gets it with your next message")
        terminal.type("and?\r")
        terminal.see("Seen.")
        terminal.rest()
        terminal.type("/plan drop\r")
        terminal.see("the plan is dropped")
        terminal.type("now?\r")
        terminal.see("Gone.")
        terminal.rest()
        terminal.type("/plan\r")
        terminal.see(lambda text: text.count("there is no plan") == 2)
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "1. Dig two holes" in told(server.requests[2])
    assert "The user dropped the plan" in told(server.requests[3])
    assert plan_file(place).count("Dig two holes") == 1


class Keeper:
    """Write useless summaries, and work until `until` of them have been in the context. A
    background summary may be cancelled.
    """

    def __init__(self) -> None:
        self.queue, self.until, self.summaries, self.calls = list[Say](), 0, 0, 0
        self.stood = set[str]()

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(USELESS)
        if (first := texts(body)[0]).startswith(COMPRESSED_MARK):
            self.stood.add(first)
        if self.queue:
            return self.queue.pop(0)
        if len(self.stood) >= self.until:
            return Say("Enough for now; the rest is open.")
        self.calls += 1
        return Say(tools=[("Bash", {"command": f"seq -f 'words of it %g' {self.calls} 900"})])


def of_turns(requests: list[Body]) -> list[Body]:
    return [
        body
        for body in requests
        if not is_summary_question(str(body["messages"][-1]["content"][-1].get("text", "")))
    ]


@contextmanager
def site(page: str) -> Iterator[str]:
    """Serve a web page, and yield its address."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(page.encode())))
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/walrus"
        server.shutdown()


@pytest.mark.full
def test_plan_answers_and_pages_after_three_useless_summaries_and_a_kill(place: Place) -> None:
    """The plan is complete, the answers are in the user's words, and the page can be found."""
    keeper = Keeper()
    asked = {"question": "How deep?", "choices": []}
    answers = place.root / "answers.json"
    answers.write_text('{"How deep?": "Never deeper than 2.345 m"}')
    page = "".join(f"<p>Clause {n}: the edge is {n * 31} mm wide.</p>" for n in range(4_000))
    with (
        site(f"<html><body>{page}</body></html>") as url,
        Server(keeper, bound=True, strict=True, window=24_000) as server,
    ):
        env = place.server(server.url)
        fetch = Say(tools=[("WebFetch", {"url": url})])
        keeper.queue = [Say(tools=[("AskUser", {"questions": [asked]})]), fetch, propose()]
        keeper.until = 2
        more = ("--answers", str(answers), "--allow", "WebFetch(127.0.0.1)")
        done = place.run("-p", "Build a pool", *LIMITS, *more, env=env)
        assert done.returncode == 0, done.stderr
        before, keeper.until = keeper.summaries, 99
        with place.start(
            "-p", "go on", "--continue", *LIMITS, env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            assert comes(lambda: keeper.summaries > before, 120)
            process.kill()
        keeper.until = len(keeper.stood) + 1
        done = place.run("-p", "to the end", "--continue", *LIMITS, env=env)
        assert done.returncode == 0, done.stderr
        turns = of_turns(server.requests)
        keeper.queue = [Say(tools=[("Recall", {"query": "Clause 3999"})])]
        done = place.run("-p", "and the edge?", "--continue", *LIMITS, env=env)
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert keeper.summaries >= 4
    assert [told(body).count(WHOLE) for body in turns[3:]] == [1] * (len(turns) - 3)
    listed = "\n".join(f"- [pending] {step}" for step in STEPS)
    assert listed in told(turns[-1])
    assert "Never deeper than 2.345 m" in told(turns[-1])
    assert "the edge is 123969 mm wide" in told(server.requests[-1])
    (kept,) = (place.logs()[0].parent / "offloaded").glob("*WebFetch*")
    assert all(f"Clause {n}: the edge is {n * 31} mm wide." in kept.read_text() for n in (0, 3_999))


@pytest.mark.full
def test_killed_before_the_plan_is_recorded_or_said_again(place: Place) -> None:
    """A kill at these moments leaves a log that ends with the result, or with a summary."""
    keeper = Keeper()
    keeper.queue, keeper.until = [propose()], 1
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        assert place.run("-p", "Build a pool", *LIMITS, env=env).returncode == 0
        (log,) = place.logs()
        lines = log.read_bytes().splitlines(keepends=True)
        kinds = [json.loads(line)["kind"] for line in lines]
        result, summary = kinds.index("tool_result"), kinds.index("summary")
        for end in (summary + 2, summary + 1, result + 1):
            write_killed(log, lines[:end])
            for cache in log.parent.glob("resume.*"):
                cache.unlink()
            start = len(server.requests)
            done = place.run("-p", "go on", *LIMITS, "--continue", env=env)
            assert done.returncode == 0, done.stderr
            found = [told(body).count(WHOLE) for body in of_turns(server.requests[start:])]
            assert set(found) == {1}, (end, found)
    assert server.rejected == []


@pytest.mark.full
def test_a_plan_that_is_carried_out_is_only_named_after_a_summary(place: Place) -> None:
    done_todos = {"todos": [{"content": step, "status": "completed"} for step in STEPS]}
    keeper = Keeper()
    with Server(keeper, strict=True, window=24_000) as server:
        keeper.queue = [propose(), Say(tools=[("Todo", done_todos)])]
        keeper.until = 2
        terminal = started(place, server, *LIMITS)
        terminal.type("Build a pool\r")
        terminal.keys("[b]ypass")
        terminal.type("b")
        terminal.see("Enough for now")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    said = told(server.requests[-1])
    assert "Give the walrus a pool, is carried out: every step" in said
    assert WHOLE not in said
    assert server.rejected == []


def test_work_is_compared_with_the_plan(place: Place) -> None:
    steps = [propose(), write(), Say("All done. Everything is complete."), Say("I go on.")]
    with Server(steps) as server:
        terminal = started(place, server)
        terminal.type("Build a pool\r")
        terminal.keys("[e]dit")
        terminal.type("y")
        terminal.see("Goal Drift Warning")
        terminal.see("I go on.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    said = told(server.requests[-1])
    assert "[Goal check]" in said
    assert "still open: " in said
    assert "- Pour the concrete" in said


def test_a_subagent_has_no_plan_to_propose(place: Place) -> None:
    task = {"type": "general", "description": "Dig", "prompt": "Dig the hole."}
    with Server([Say(tools=[("Task", task)]), Say("Dug."), Say("Done.")]) as server:
        done = place.run("-p", "go", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    names = [{tool["name"] for tool in body["tools"]} for body in server.requests]
    assert ["Plan" in found for found in names] == [True, False, True]


def test_a_program_agrees_to_a_plan(place: Place) -> None:
    """It sees the plan, may change it, and chooses the mode for the work."""
    changed = WHOLE.replace("37 metres", "50 metres")
    with Server([propose(), write(), Say("Built. Fill it?")]) as server, talk(
        place, server.url, "--permission-mode", "plan"
    ) as driver:  # fmt: skip
        driver.say("Build a pool")
        asked = driver.next("question")
        assert (asked["plan"], asked["modes"][:2]) == (WHOLE, ["accept-edits", "ask"])
        driver.send({"type": "answer", "id": asked["id"], "allow": True, "mode": "bypass"})
        assert "One of accept-edits, ask" in driver.next("error")["hint"]
        driver.send({"type": "answer", "id": asked["id"], "allow": True, "plan": "No steps"})
        assert driver.next("error")["message"] == "the plan has no steps"
        answer = {"allow": True, "plan": changed, "mode": "accept-edits"}
        driver.send({"type": "answer", "id": asked["id"], **answer})
        assert driver.next("result")["result"] == "Built. Fill it?"
        assert driver.end() == 0
    assert server.rejected == []
    assert changed in told(server.requests[1])
    assert (place.project / "pool.py").exists()


def test_a_plan_beside_a_schema(place: Place) -> None:
    """The result fits the schema, also in a run that only plans."""
    (place.root / "schema.json").write_text('{"type": "object"}')
    with Server([propose(), Say('{"ok": true}')]) as server:
        done = place.run(
            "-p", "Plan", "--permission-mode", "plan", "--json-schema",
            str(place.root / "schema.json"), env=place.server(server.url),
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, '{"ok": true}\n')
    assert plan_file(place) == f"{WHOLE}\n"
