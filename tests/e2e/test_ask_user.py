"""Questions from the agent: a form in the terminal, answers from a file, or a denial."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

COLOUR = {
    "question": "Which colour?",
    "choices": [{"label": "red", "description": "as the\x1b[31m logo"}, {"label": "green"}],
}
ANIMALS = {
    "question": "Which animals?",
    "choices": [{"label": "walrus"}, {"label": "heron"}, {"label": "gnu"}],
    "multiple": True,
}
NAME = {"question": "What name?", "choices": []}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ask(*questions: Body) -> Say:
    return Say(tools=[("AskUser", {"questions": list(questions)})])


def result(server: Server) -> str:
    (found,) = [
        block["content"]
        for message in server.requests[-1]["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return str(found)


def told(body: Body) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


def test_without_a_user_questions_are_denied_with_a_reason(place: Place) -> None:
    with Server([ask(COLOUR, NAME), Say("I need to know.")]) as server:
        done = place.run("-p", "go", env=place.server(server.url))
    assert done.returncode == 3, done.stderr
    assert "AskUser Which colour?: nobody can be asked in this run" in done.stderr
    assert "AskUser What name?: nobody can be asked" in done.stderr
    assert "--answers FILE" in done.stderr
    assert "Not answered: nobody can be asked" in result(server)
    assert server.rejected == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"colour": "red", "ANIMALS": ["gnu", "heron"], "*": "Ada"}, ("red", "gnu, heron", "Ada")),
        (["a deep blue", ["gnu"], "Bob"], ("a deep blue", "gnu", "Bob")),
    ],
)
def test_answers_from_a_file(place: Place, answers: object, said: tuple[str, ...]) -> None:
    file = place.root / "answers.json"
    file.write_text(json.dumps(answers))
    with Server([ask(COLOUR, ANIMALS, NAME), Say("Thanks.")]) as server:
        done = place.run("-p", "go", "--answers", str(file), env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    lines = result(server).splitlines()[1:]
    asked = ("Which colour?", "Which animals?", "What name?")
    assert lines == [f"{q} → {a}" for q, a in zip(asked, said, strict=True)]
    assert f"[The user's answers to your questions:]\\nWhich colour? → {said[0]}" in told(
        server.requests[-1]
    )
    assert server.rejected == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[1]", "every answer must be a text or a list of texts"),
        (None, "No such"),
    ],
)
def test_invalid_answers_file(place: Place, text: str | None, why: str) -> None:
    file = place.root / "answers.json"
    if text is not None:
        file.write_text(text)
    with Server([Say("No.")]) as server:
        done = place.run("-p", "go", "--answers", str(file), env=place.server(server.url))
    assert done.returncode == 2
    assert why in done.stderr
    assert '["red", "yes"]' in done.stderr
    assert server.requests == []


def test_answers_stay_in_every_summary_as_user_messages(place: Place) -> None:
    file = place.root / "answers.json"
    file.write_text('["Always use tabs, never blanks."]')
    steps = [ask({"question": "How to indent?", "choices": []})]
    summaries = []

    def play(body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            summaries.append(body)
            return Say("nothing that is of use")
        if steps:
            return steps.pop()
        if len(summaries) >= 2:
            return Say("Done.")
        command = f"seq -f 'words of it %g' {len(body['messages'])} 900"
        return Say(tools=[("Bash", {"command": command})])

    with Server(play, strict=True, window=24_000) as server:
        done = place.run(
            "-p", "go", "--answers", str(file), "--context-window", "24000",
            "--permission-mode", "bypass", env=place.server(server.url),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(summaries) >= 2
    assert "Always use tabs, never blanks." in told(server.requests[-1])
    assert server.rejected == []


def test_a_form_with_keys(place: Place) -> None:
    with Server([ask(COLOUR, ANIMALS, NAME), Say("Thanks.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Which colour? (1 of 3)")
        text = terminal.see("2. green")
        assert "1. red — as the" in text
        terminal.keys("1. red")
        terminal.type("1")
        terminal.see("Which animals? (2 of 3)")
        terminal.press("esc")
        terminal.see(lambda text: text.rstrip().count("Which colour? (1 of 3)") > 0)
        terminal.rest()
        terminal.type("2")
        terminal.see("Which animals? (2 of 3)")
        terminal.rest()
        terminal.type("1 3\r")
        terminal.see("What name? (3 of 3)")
        terminal.rest()
        terminal.type("Ada of 3\r")
        terminal.see("Thanks.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert result(server).splitlines()[1:] == [
        "Which colour? → green", "Which animals? → walrus, gnu", "What name? → Ada of 3",
    ]  # fmt: skip
    assert b"\x1b[31m logo" not in terminal.raw
    assert server.rejected == []


def test_form_closed_without_answers(place: Place) -> None:
    with Server([ask(COLOUR), Say("As you like.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Which colour?")
        terminal.rest()
        terminal.press("esc")
        terminal.see("As you like.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert "The user did not answer" in result(server)


def test_plain_mode_asks_and_answers_in_lines(place: Place) -> None:
    """With --plain, the questions and the answers are lines."""
    with Server([ask(COLOUR, NAME), Say("Thanks.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env={**env, "TERM": "dumb"})
        terminal.see(">")
        terminal.type("go\r")
        terminal.see("Which colour? (1 of 2)")
        terminal.type("2\r")
        terminal.see("What name? (2 of 2)")
        terminal.type("Ada\r")
        terminal.see("Thanks.")
        terminal.press("ctrl-d")
        terminal.leave()
    assert result(server).splitlines()[1:] == ["Which colour? → green", "What name? → Ada"]
