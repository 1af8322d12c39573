"""Instruction files that change between turns and sessions: the model is told once, after the text
that it already has.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server, flat
from ..support.terminal.screen import Terminal
from .test_compact import KEEP_LITTLE, RECORD


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def told(body: Body) -> str:
    return "\n".join(str(block.get("text", "")) for _, block in flat(body))


def plain(body: Body) -> list[Any]:
    """Return all blocks of the messages, without cache marks."""
    return [
        (message["role"], {k: v for k, v in block.items() if k != "cache_control"})
        for message in body["messages"]
        for block in message["content"]
    ]


def asked(place: Place, server: Server, *arguments: str, words: str = "go on") -> str:
    """Run one turn and check its prefix. Return what the model was told."""
    before = plain(server.requests[-1]) if server.requests else []
    done = place.run(*arguments, "-p", words, "--verbose", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert plain(server.requests[-1])[: len(before)] == before
    return done.stderr


def test_new_changed_and_deleted_files_are_told_once_on_resume(place: Place) -> None:
    agents, claude, above = (
        place.project / "AGENTS.md", place.project / "CLAUDE.md", place.root / "AGENTS.md",
    )  # fmt: skip
    agents.write_text("Use tabs.\n")
    above.write_text("Ask first.\n")
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, words="hello")
        agents.write_text("Use spaces.\n")
        claude.write_text("Write tests.\n")
        above.unlink()
        seen = asked(place, server, "--continue")
        text = told(server.requests[-1])
        for _ in range(2):
            again = asked(place, server, "--continue")
            assert "AGENTS.md" not in again
            assert told(server.requests[-1]).count("Use spaces.") == 1
    assert server.rejected == []
    assert f"Instructions from {agents}, which has changed." in text
    assert text.index("Use tabs.") < text.index("go on") < text.index("Use spaces.")
    assert f"Instructions from {claude}, which is new:\n\nWrite tests." in text
    assert f"{above} was deleted or is empty now" in text
    assert f"{agents} has changed: the model gets its text now" in seen
    assert f"{claude} is new" in seen
    assert f"{above} was deleted" in seen
    last = told(server.requests[-1])
    assert [last.count(words) for words in ("Use tabs.", "Write tests.", "was deleted")] == [1] * 3


def test_file_that_is_restored_and_deleted_again(place: Place) -> None:
    path = place.project / "AGENTS.md"
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, words="hello")
        for count in (1, 2):
            path.write_text("Use tabs.\n")
            asked(place, server, "--continue")
            assert told(server.requests[-1]).count("Use tabs.") == count
            path.unlink()
            asked(place, server, "--continue")
            assert told(server.requests[-1]).count("was deleted or is empty") == count


def test_after_a_summary_only_the_newest_text_remains(place: Place) -> None:
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    (place.project / "big.txt").write_text("word " * 3_000)
    steps = [Say(tools=[("Read", {"path": "big.txt"})]), Say("Yes."), Say("Yes.")]
    steps += [Say(RECORD), Say("Yes."), Say("Yes.")]
    with Server(steps) as server:
        env = place.server(server.url)
        place.run("-p", "read it", env=env)
        path.write_text("Use spaces.\n")
        place.run("--continue", "-p", "go on", env=env)
        path.write_text("Use both.\n")
        done = place.run(*KEEP_LITTLE, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        for _ in range(2):
            place.run("--continue", "-p", "go on", env=env)
    assert server.rejected == []
    text = told(server.requests[-1])
    counts = [text.count(words) for words in ("Use tabs.", "Use spaces.", "Use both.")]
    assert counts == [0, 0, 1]


def test_text_that_remains_after_a_summary_is_not_repeated(place: Place) -> None:
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    steps = [Say(" ".join(f"word{n}" for n in range(2_000))), Say("Yes."), Say(RECORD), Say("Yes.")]
    with Server(steps) as server:
        env = place.server(server.url)
        place.run("-p", "read it", env=env)
        path.write_text("Use spaces.\n")
        place.run("--continue", "-p", "go on", env=env)
        keep = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=2")
        done = place.run(*keep, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        place.run("--continue", "-p", "and on", env=env)
    text = told(server.requests[-1])
    assert "[Conversation compressed]" in text
    assert [text.count(words) for words in ("Use tabs.", "Use spaces.")] == [0, 1]


def test_user_sees_a_line_about_changed_files(place: Place) -> None:
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        for answer, text in (("One.", "Use spaces.\n"), ("Two.", ""), ("Three.", "")):
            terminal.type("go\r")
            terminal.see(answer)
            terminal.rest()
            path.write_text(text)
        shown = " ".join(terminal.text().split())
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert shown.count("has changed: the model gets its text now") == 1
    assert shown.count("was deleted or is empty: the model is told") == 1
    assert "Use spaces." in told(server.requests[1])
    assert told(server.requests[2]).count("Use spaces.") == 1


def test_files_with_the_same_text(place: Place) -> None:
    agents, claude = place.project / "AGENTS.md", place.project / "CLAUDE.md"
    agents.write_text("Use tabs.\n")
    claude.symlink_to("AGENTS.md")
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, words="hello")
        agents.write_text("Use spaces.\n")
        asked(place, server, "--continue")
        assert told(server.requests[-1]).count("Use spaces.") == 1
        claude.unlink()
        claude.write_text("Write tests.\n")
        asked(place, server, "--continue")
        claude.write_text("Use spaces.\n")
        asked(place, server, "--continue")
    last = told(server.requests[-1])
    assert last.count("Use spaces.") == 1
    assert f"{claude} has changed: it now says the same as {agents}." in last


def test_a_secret_in_a_file_is_redacted_and_the_text_not_repeated(place: Place) -> None:
    key = "ghp_" + "".join(chr(ord("a") + n * 7 % 26) for n in range(36))
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    redacting = ("-c", "state.redact=true")
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, *redacting, words="hello")
        path.write_text(f"Use spaces.\nTOKEN={key}\n")
        asked(place, server, *redacting, "--continue")
        asked(place, server, *redacting, "--continue")
    text = json.dumps(server.requests[-1])
    assert text.count("Use spaces.") == 1
    assert key not in text
    assert key not in place.logs()[0].read_text()


def test_changed_instruction_file_is_not_listed_as_changed_on_disk(place: Place) -> None:
    path, other = place.project / "AGENTS.md", place.project / "other.md"
    path.write_text("Use tabs.\n")
    other.write_text("One.\n")
    reads = Say(tools=[("Read", {"path": name}) for name in ("AGENTS.md", "other.md")])
    with Server([reads, Say("Yes."), Say("Yes.")]) as server:
        asked(place, server, words="read both")
        path.write_text("Use spaces.\n")
        other.write_text("Two.\n")
        asked(place, server, "--continue")
    (line,) = [w for w in told(server.requests[-1]).splitlines() if w.startswith("Changed on disk")]
    assert "other.md" in line
    assert "AGENTS.md" not in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_not_taken_for_deleted(place: Place) -> None:
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, words="hello")
        path.chmod(0)
        asked(place, server, "--continue")
        path.chmod(0o600)
    assert "was deleted" not in told(server.requests[-1])


def test_a_session_of_an_earlier_version(place: Place) -> None:
    """Its entries have no details, so the texts themselves are compared."""
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")
    with Server(lambda body: Say("Yes.")) as server:
        asked(place, server, words="hello")
        (log,) = place.logs()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if line.get("source") == "instructions":
                assert line.pop("details")
        log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        asked(place, server, "--continue")
        assert told(server.requests[-1]).count("Use tabs.") == 1
        path.write_text("Use spaces.\n")
        asked(place, server, "--continue")
    assert told(server.requests[-1]).count("Use spaces.") == 1


def test_resumed_subagent_learns_about_changed_files(place: Place) -> None:
    path = place.project / "AGENTS.md"
    path.write_text("Use tabs.\n")

    def step(body: Body) -> Say:
        if "You are a subagent" in json.dumps(body["system"]):
            return Say("Found.")
        if body["messages"][-1]["content"][-1].get("type") == "tool_result":
            return Say("Done.")
        task = {"description": "find it", "prompt": "find it", "type": "explore"}
        if "once more" in told(body):
            (agent,) = {entry["id"] for entry in place.entries() if entry["kind"] == "agent"}
            task = {"description": "find it", "prompt": "go on", "resume": agent}
        return Say(tools=[("Task", task)])

    with Server(step) as server:
        env = place.server(server.url)
        done = place.run("-p", "hello", env=env)
        assert done.returncode == 0, done.stderr
        path.write_text("Use spaces.\n")
        done = place.run("--continue", "-p", "once more", env=env)
        assert done.returncode == 0, done.stderr
    children = [b for b in server.requests if "You are a subagent" in json.dumps(b["system"])]
    assert len(children) == 2
    assert "Use spaces." not in told(children[0])
    assert told(children[1]).count("Use spaces.") == 1
