"""The memory with the real command: facts are proposed, confirmed and saved, and the index returns
after summaries.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from ..support.command import Place, comes
from ..support.keeper import LIMITS, Keeper, kill_in_a_turn, of_turns, told
from ..support.server.loopback import Body, Say, Server
from ..support.sessions.killed import write_killed
from ..support.terminal.screen import Terminal
from .test_subagent_http import Cast, tasks

INDEX = "[The memory of this project: facts that earlier sessions kept."
KEEP = {"action": "write", "name": "build", "about": "How to build", "text": "make up, then make."}
ALLOW = ("--allow", "Memory")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def folder(place: Place) -> Path:
    (project,) = (place.state / "projects").glob("project-*")
    return project / "memory"


def facts(place: Place) -> dict[str, str]:
    done = place.run("memory", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {row["name"]: row["about"] for row in json.loads(done.stdout)}


def keep(place: Place, name: str, about: str, text: str = "") -> None:
    """Write a fact into the folder, as an editor would."""
    if not list((place.state / "projects").glob("project-*")):
        with Server([Say("Hello.")]) as server:
            assert place.run("-p", "hello", env=place.server(server.url)).returncode == 0
    folder(place).mkdir(exist_ok=True)
    (folder(place) / f"{name}.md").write_text(f"---\nabout: {about}\n---\n\n{text or about}\n")


def use(**arguments: str) -> Say:
    return Say(tools=[("Memory", arguments)])


def ran(
    place: Place, steps: list[Say], *arguments: str, code: int = 0
) -> tuple[Server, "subprocess.CompletedProcess[str]"]:
    with Server(steps) as server:
        done = place.run("-p", "go", *arguments, env=place.server(server.url))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    return server, done


def tool_names(body: Body) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


def test_without_a_fact_a_request_costs_nothing_more(place: Place) -> None:
    server, _ = ran(place, [Say("One.")])
    off, _ = ran(place, [Say("One.")], "-c", "features.off=['memory']")
    assert "Memory" not in tool_names(server.requests[0])
    assert json.dumps(server.requests[0]["tools"]) == json.dumps(off.requests[0]["tools"])
    assert "memory" not in told(server.requests[0])
    assert not folder(place).exists()


def test_fact_saved_in_one_session_is_known_in_the_next(place: Place) -> None:
    always = ("-c", "memory.offer=always")
    read = use(action="read", name="build")
    server, _ = ran(place, [use(**KEEP), read, Say("Done.")], *ALLOW, *always)
    assert "Kept: build." in told(server.requests[1])
    assert "make up, then make." in told(server.requests[2])
    assert facts(place) == {"build": "How to build"}
    server, _ = ran(place, [read, use(), Say("Done.")])
    first = told(server.requests[0])
    assert first.count(INDEX) == first.count("- build: How to build") == 1
    assert "make up" not in first
    assert "make up, then make." in told(server.requests[1])
    assert server.requests[2]["messages"][-1]["content"][-1]["content"] == "- build: How to build"
    off, _ = ran(place, [Say("Done.")], "-c", "features.off=['memory']")
    assert "Memory" not in tool_names(off.requests[0])
    assert INDEX not in told(off.requests[0])


def test_no_fact_is_saved_without_approval(place: Place) -> None:
    keep(place, "old", "An old fact")
    steps = [use(**KEEP), use(action="forget", name="old"), Say("No.")]
    server, done = ran(place, steps, code=3)
    assert told(server.requests[-1]).count("nobody can be asked in this run") == 2
    assert "allow it with --allow 'Memory'" in done.stderr
    ran(place, steps, *ALLOW, "--permission-mode", "plan")
    ran(place, steps, "--permission-mode", "accept-edits", code=3)
    assert facts(place) == {"old": "An old fact"}
    ran(place, steps, "--allow", "Memory(write)", code=3)
    assert set(facts(place)) == {"old", "build"}


def test_secrets_are_redacted_in_facts(place: Place) -> None:
    keep(place, "old", "An old fact")
    text = "The key is 0123456789abcdef-secret, use it."
    env = {"DEPLOY_TOKEN": "0123456789abcdef-secret"}
    with Server([use(**{**KEEP, "text": text}), Say("Done.")]) as server:
        done = place.run("-p", "go", *ALLOW, env=place.environ({**server.variables, **env}))
    assert done.returncode == 0, done.stderr
    kept = (folder(place) / "build.md").read_text()
    assert "The key is" in kept
    assert "0123456789abcdef" not in kept


def test_a_subagent_reads_and_does_not_write(place: Place) -> None:
    keep(place, "old", "An old fact", "The whole text")

    def child(word: str, number: int) -> Say:
        steps = [use(action="read", name="old"), use(**KEEP), Say("Counted.")]
        return steps[number - 1]

    with Server(Cast([tasks("red", type="general"), Say("Done.")], child)) as server:
        done = place.run("-p", "go", *ALLOW, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    last = max((b for b in server.requests if "ask: red" in told(b)), key=lambda b: len(told(b)))
    assert "The whole text" in told(last)
    assert "A subagent changes no memory." in told(last)
    assert told(last).count(INDEX) == 1
    assert facts(place) == {"old": "An old fact"}


def test_changed_facts_are_reported_once(place: Place) -> None:
    keep(place, "a", "Fact a")
    keep(place, "b", "Fact b")
    ran(place, [Say("One.")])
    keep(place, "c", "Fact c")
    keep(place, "a", "Fact a, again")
    (folder(place) / "b.md").unlink()
    for _ in range(2):
        server, _ = ran(place, [Say("Two.")], "--continue")
        text = told(server.requests[0])
        assert text.count("[The memory of this project has changed.]") == 1
        assert "\n- c: Fact c\n- a: Fact a, again\nForgotten: b." in text or (
            "\n- a: Fact a, again\n- c: Fact c\nForgotten: b." in text
        )


def counts(server: Server, text: str, start: int = 0) -> set[int]:
    return {told(body).count(text) for body in of_turns(server.requests[start:])}


@pytest.mark.full
def test_three_summaries_two_kills_a_resume_and_a_copy(place: Place) -> None:
    keep(place, "old", "An old fact")
    keeper = Keeper()
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)

        def go_on(summaries: int, *arguments: str) -> None:
            keeper.until = keeper.summaries + summaries
            done = place.run("-p", "go on", *LIMITS, *arguments, env=env)
            assert done.returncode == 0, done.stderr

        keeper.queue = [use(**KEEP)]
        go_on(3)
        session = max(place.logs(), key=lambda log: log.stat().st_mtime).parent.name
        assert facts(place).keys() == {"old", "build"}
        kill_in_a_turn(place, env, keeper)
        keep(place, "new", "A new fact")
        go_on(1, "--resume", session)
        kill_in_a_turn(place, env, keeper)
        go_on(1, "--resume", session)
        go_on(1, "--resume", session, "--fork")
    assert server.rejected == []
    assert counts(server, "- old: An old fact") == {1}
    last = told(server.requests[-1])
    for line in ("- build: How to build", "- new: A new fact", INDEX):
        assert last.count(line) == 1


@pytest.mark.full
def test_killed_between_a_summary_and_the_index(place: Place) -> None:
    """A kill at that moment leaves a log that ends with the summary."""
    keep(place, "old", "An old fact")
    (first,) = place.logs()
    keeper = Keeper()
    keeper.until = 1
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        assert place.run("-p", "go", *LIMITS, env=env).returncode == 0
        (log,) = {*place.logs()} - {first}
        lines = log.read_bytes().splitlines(keepends=True)
        (summary,) = [n for n, line in enumerate(lines) if json.loads(line)["kind"] == "summary"]
        for behind in range(1, 4):
            write_killed(log, lines[: summary + behind])
            for cache in log.parent.glob("resume.*"):
                cache.unlink()
            start = len(server.requests)
            done = place.run("-p", "go on", *LIMITS, "--resume", log.parent.name, env=env)
            assert done.returncode == 0, done.stderr
            assert counts(server, "- old: An old fact", start) == {1}
    assert server.rejected == []


def test_killed_while_it_writes_facts(place: Place) -> None:
    """Saved facts are complete, and unfinished files are ignored."""
    keep(place, "old", "An old fact")
    numbers = iter(range(1_000))

    def endless(body: Body) -> Say:
        number = next(numbers)
        return use(action="write", name=f"fact-{number}", text=f"{number} words. " * 400)

    with Server(endless) as server:
        run = place.start("-p", "go", *ALLOW, env=place.server(server.url), start_new_session=True)
        assert comes(lambda: len(list(folder(place).glob("fact-*.md"))) > 5, 120)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done = place.run("memory", "list")
    assert "left out" not in done.stderr
    kept = sorted(folder(place).glob("fact-*.md"))
    assert all(path.read_text().count(" words.") >= 400 for path in kept)


def start(place: Place, server: Server, size: tuple[int, int] = (80, 24)) -> Terminal:
    terminal = Terminal(
        cwd=place.project, env=place.server(server.url), columns=size[0], rows=size[1]
    )
    terminal.see("❯")
    return terminal


@pytest.mark.variants
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_a_proposal_is_shown_as_a_diff(place: Place, size: tuple[int, int]) -> None:
    keep(place, "old", "An old fact")
    with Server([use(**KEEP), use(action="forget", name="old"), Say("Done.")]) as server:
        terminal = start(place, server, size)
        terminal.type("keep it\r")
        terminal.see(lambda text: "make up, then make." in text and "[y]es" in text)
        terminal.type("y\r")
        terminal.see(lambda text: "An old fact" in text and "[y]es" in text)
        terminal.type("n \r")
        terminal.see("Done.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert facts(place) == {"old": "An old fact", "build": "How to build"}


def test_user_saves_lists_and_forgets_facts(place: Place) -> None:
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        terminal = start(place, server)
        terminal.type("#Run make up first --remember\r")
        terminal.see("remembered as run-make-up-first")
        terminal.type("hello\r")
        terminal.see("One.")
        assert facts(place) == {"run-make-up-first": "Run make up first"}
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
        terminal = start(place, server)
        terminal.type("hello\r")
        terminal.see("Two.")
        terminal.rest()
        terminal.type("/memory\r")
        terminal.see("run-make-up-first")
        terminal.type("\x1b")
        terminal.rest()
        terminal.type("/memory forget run-make-up-first\r")
        terminal.see("forgotten: run-make-up-first")
        terminal.type("again\r")
        terminal.see("Three.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    first, second, third = map(told, server.requests)
    assert "Run make up first" in first
    assert INDEX not in first
    assert "- run-make-up-first: Run make up first" in second
    assert "Forgotten: run-make-up-first." in third
    assert facts(place) == {}


def test_the_command_lists_shows_and_forgets(place: Place) -> None:
    assert place.run("memory").stderr.startswith("there are no facts · ")
    keep(place, "a", "Fact a", "All of a")
    keep(place, "b", "Fact b")
    keep(place, "c", "Fact c")
    done = place.run("memory")
    assert set(done.stdout.splitlines()) == {"a: Fact a", "b: Fact b", "c: Fact c"}
    assert place.run("memory", "show", "a").stdout == "---\nabout: Fact a\n---\n\nAll of a\n"
    assert place.run("memory", "show", "d").returncode == 2
    assert place.run("memory", "forget").returncode == 2
    assert place.run("memory", "forget", "a", "d").returncode == 2
    assert place.run("memory", "forget", "a").stdout == "forgotten: a\n"
    done = place.run("memory", "forget", "--all")
    assert (done.returncode, "there is no terminal to ask" in done.stderr) == (2, True)
    assert place.run("memory", "forget", "--all", "--yes").returncode == 0
    assert facts(place) == {}


def test_shared_memory_in_a_project_needs_trust(place: Place) -> None:
    (place.project / ".agentrc").write_text('[memory]\npath = ".ctxagent/memory"\n')
    shared = place.project / ".ctxagent" / "memory"
    shared.mkdir(parents=True)
    (shared / "team.md").write_text("What the team agreed on.\n")
    server, done = ran(place, [Say("One.")])
    assert "memory.path" in done.stderr
    assert INDEX not in told(server.requests[0])
    assert place.run("config", "--trust", stdin="y\n").returncode == 0
    edit = {"path": str(shared / "team.md"), "old_string": "agreed", "new_string": "disagreed"}
    steps = [use(**KEEP), Say(tools=[("Edit", edit)]), Say("Done.")]
    server, _ = ran(place, steps, *ALLOW, "--permission-mode", "accept-edits", code=3)
    assert "- team: What the team agreed on." in told(server.requests[0])
    assert (shared / "build.md").exists()
    assert (shared / "team.md").read_text() == "What the team agreed on.\n"
