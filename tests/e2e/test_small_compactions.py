"""A manual compaction that would save little: the user is warned before a model is paid, and
`--all` keeps only the newest exchange.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.editor import Editor
from ..support.server.loopback import Body, Say, Server, flat
from ..support.terminal.screen import Terminal
from .test_compact import RECORD, kinds
from .test_editors import edit, say

# Only the first of three turns goes: it is short.
KEEP_TWO = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=4")
SHORT, LONG = (" ".join(f"{word}{n}" for n in range(count)) for word, count in
               (("short", 700), ("long", 2_500)))  # fmt: skip
TURNS = (("first", SHORT), ("second", LONG), ("third", "The newest answer."))


def asks_for_summary(body: Body) -> bool:
    return "About to be compressed".lower() in told(body).lower()


def told(body: Body) -> str:
    return "\n".join(str(block.get("text", "")) for _, block in flat(body))


def answer(body: Body) -> Say:
    if asks_for_summary(body):
        return Say(RECORD)
    said = [block.get("text") for block in body["messages"][-1]["content"]]
    return Say(next((text for words, text in TURNS if words in said), "Going on."))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(answer) as server:
        yield server
    assert server.rejected == []


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    place = Place(tmp_path)
    for number, (words, _) in enumerate(TURNS):
        more = ["--continue"] if number else []
        done = place.run(*more, "-p", words, env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    return place


def summaries(server: Server) -> int:
    return sum(map(asks_for_summary, server.requests))


def resumed(place: Place, server: Server, *arguments: str) -> Terminal:
    terminal = Terminal(*KEEP_TWO, *arguments, "--continue", cwd=place.project,
                        env=place.server(server.url))  # fmt: skip
    terminal.see("❯")
    return terminal


def test_the_estimate_comes_before_the_question_and_no_costs_nothing(
    place: Place, server: Server
) -> None:
    before = len(server.requests)
    terminal = resumed(place, server)
    terminal.type("/compact\r")
    terminal.keys("[a]ll but the newest exchange")
    shown = " ".join(terminal.text().split())
    assert "a summary would save little: " in shown
    assert "/compact --all leaves just the newest exchange: " in shown
    terminal.type("n")
    terminal.see("not compacted; nothing has changed")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    assert len(server.requests) == before
    assert "summary" not in kinds(place)


@pytest.mark.variants
@pytest.mark.parametrize("typed", ["/compact\ra", "/compact --all\r"], ids=["asked", "given"])
def test_all_leaves_the_newest_exchange(place: Place, server: Server, typed: str) -> None:
    terminal = resumed(place, server)
    command, _, choice = typed.partition("\r")
    terminal.type(f"{command}\r")
    if choice:
        terminal.keys("[a]ll but the newest exchange")
        terminal.type(choice)
    terminal.see("/uncompact undoes it")
    terminal.rest()
    terminal.type("fourth\r")
    terminal.see("Going on.")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    assert summaries(server) == 1
    sent = told(server.requests[-1])
    assert "[Conversation compressed]" in sent
    assert sent.index("third") < sent.index("The newest answer.") < sent.index("fourth")
    assert LONG not in sent
    assert SHORT not in sent
    (summary,) = [entry for entry in place.entries() if entry["kind"] == "summary"]
    assert summary["tokens_after"] < 0.8 * summary["tokens_before"]


def test_yes_compacts_as_planned(place: Place, server: Server) -> None:
    terminal = resumed(place, server)
    terminal.type("/compact\r")
    terminal.keys("[a]ll but the newest exchange")
    terminal.type("y")
    terminal.see("/uncompact undoes it")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    assert summaries(server) == 1
    (summary,) = [entry for entry in place.entries() if entry["kind"] == "summary"]
    assert summary["tokens_after"] > 0.8 * summary["tokens_before"]


def test_other_text_is_sent_to_the_model(place: Place, server: Server) -> None:
    terminal = resumed(place, server)
    terminal.type("/compact\r")
    terminal.keys("[a]ll but the newest exchange")
    terminal.type("what is this\r")
    terminal.see("Going on.")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    assert summaries(server) == 0
    assert "what is this" in told(server.requests[-1])


def test_instructions_compact_with_a_warning(place: Place, server: Server) -> None:
    terminal = resumed(place, server)
    terminal.type("/compact keep the numbers\r")
    terminal.see("/uncompact undoes it")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    terminal.see("a summary would save little")
    assert "keep the numbers" in told(next(filter(asks_for_summary, server.requests)))


def test_without_a_model_nothing_is_asked(place: Place, server: Server) -> None:
    terminal = resumed(place, server, "-c", "compact.summarizer=mechanical")
    terminal.type("/compact\r")
    terminal.see("/uncompact undoes it")
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    terminal.see("a summary would save little")
    assert summaries(server) == 0


def test_a_script_is_warned_before_the_model_is_asked(place: Place, server: Server) -> None:
    env = place.server(server.url)
    seen = place.run(*KEEP_TWO, "compact", "--dry-run", env=env)
    assert seen.returncode == 0, seen.stderr
    assert "a summary would save little: " in seen.stdout
    assert "--all leaves just the newest exchange: " in seen.stdout
    seen = place.run(*KEEP_TWO, "compact", "--dry-run", "--all", env=env)
    assert "save little" not in seen.stdout
    assert "--all: " in seen.stdout
    assert summaries(server) == 0
    done = place.run(*KEEP_TWO, "compact", "--apply", env=env)
    assert done.returncode == 0, done.stderr
    assert "warning: a summary would save little: " in done.stderr
    assert summaries(server) == 1


def test_in_a_terminal_the_command_asks(place: Place, server: Server) -> None:
    env = place.server(server.url)
    for answered, count in (("n", 0), ("y", 1)):
        command = (*KEEP_TWO, "compact", "--apply")
        terminal = Terminal(*command, cwd=place.project, env=env)
        terminal.see("Compact anyway?")
        terminal.see("a summary would save little")
        terminal.type(f"{answered}\r")
        assert terminal.leave() == 1 - count
        assert summaries(server) == count
        assert terminal.text().count("save little") == 1
    assert kinds(place).count("summary") == 1


def test_all_by_the_command(place: Place, server: Server) -> None:
    env = place.server(server.url)
    done = place.run("compact", "--apply", "--all", env=env)
    assert done.returncode == 0, done.stderr
    assert "save little" not in done.stderr
    again = place.run("compact", "--apply", "--all", env=env)
    assert again.returncode == 1
    assert "there is nothing to summarise yet" in again.stderr
    assert summaries(server) == 1
    assert place.run("compact", "--undo", "--all").returncode == 2
    place.run("--continue", "-p", "fourth", env=env)
    sent = told(server.requests[-1])
    assert sent.index("third") < sent.index("The newest answer.") < sent.index("fourth")
    assert LONG not in sent


def test_editor_is_asked_before_a_small_compaction(place: Place, server: Server) -> None:
    (log,) = place.logs()
    answers: list[Any] = ["n", "a"]

    async def act(editor: Editor) -> None:
        editor.choose = lambda call, options: answers.pop(0)
        await editor.agent.load_session(str(place.project), log.parent.name)
        await editor.agent.prompt(log.parent.name, [say("/compact")])
        assert summaries(server) == 0
        await editor.agent.prompt(log.parent.name, [say("/compact")])

    editor = edit(place, place.server(server.url), act, *KEEP_TWO)
    asked = json.dumps(str(editor.asked[0][0].content))
    assert "a summary would save little" in asked
    assert [option.name for option in editor.asked[0][1]][1] == "all but the newest exchange"
    assert summaries(server) == 1
