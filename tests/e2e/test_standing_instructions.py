"""Standing instructions for summaries: every request for a summary has them, and they are checked.

The settings of the user and of the project give some, and the section "Compact Instructions" of an
instruction file gives more.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.session.entries import Summary
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.loopback import Say, Server

RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Count.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Go on.\n"
)
OF_USER, OF_PROJECT, OF_FILE = "Keep `API_PORT`.", "Keep the branch.", "Keep each `NOTE:` line."
OFTEN = (
    "-c", "compact.at=16000", "-c", "compact.prepare_at=off", "-c", "clear.when=off",
    "-c", "truncate.at=off", "-c", "move.above=off", "-c", "compact.keep_tokens=0",
    "-c", "compact.keep_messages=1", "--permission-mode", "bypass",
)  # fmt: skip
PRINT = "seq -f 'the words of {step} %g' 600; echo 'API_PORT=8080'"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    own = place.root / "home" / ".config" / "ctxagent"
    own.mkdir(parents=True)
    (own / "agentrc").write_text(f"[compact]\ninstructions = ['{OF_USER}']\n")
    (place.project / ".agentrc").write_text(f"[compact]\ninstructions = ['{OF_PROJECT}']\n")
    (place.project / "CLAUDE.md").write_text(f"# Us\n\n## Compact instructions\n\n{OF_FILE}\n")
    return place


class Model:
    """Calls Task once, with `child`, then Bash `count` times, as a subagent too."""

    def __init__(self, count: int = 5, *, child: bool = False) -> None:
        self.count, self.child = count, child
        self.questions: list[str] = []
        self.made = {True: 0, False: 0}

    def __call__(self, body: dict[str, Any]) -> Say:
        last = str(body["messages"][-1]["content"][-1].get("text", ""))
        if is_summary_question(last):
            self.questions.append(last)
            return Say(RECORD)
        is_child = "You are a subagent" in str(body["system"])
        self.made[is_child] += 1
        if self.child and not is_child:
            task = {"description": "count", "prompt": "count", "type": "general"}
            return Say("Done.") if self.made[False] > 1 else Say(tools=[("Task", task)])
        if self.made[is_child] > self.count:
            return Say("Done.")
        step = self.made[is_child]
        command = PRINT.format(step=step)
        return Say(f"NOTE: step {step}.", tools=[("Bash", {"command": command})])


def summaries(place: Place, pattern: str) -> list[Summary]:
    logs = place.state.glob(f"projects/*/sessions/*/{pattern}")
    return [e for log in logs for e in read_log(log).entries if isinstance(e, Summary)]


@pytest.mark.parametrize("child", [False, True])
def test_every_request_for_a_summary_has_them_also_of_a_subagent(place: Place, child: bool) -> None:
    model = Model(child=child)
    with Server(model) as server:
        done = place.run("-p", "count", *OFTEN, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert server.rejected == []
    made = summaries(place, "agents/*/log.jsonl" if child else "log.jsonl")
    assert made
    assert made[0].trigger != "manual"
    assert len(model.questions) == len(made)
    for question in model.questions:
        assert f"{OF_USER}\n{OF_PROJECT}\n{OF_FILE}" in question
    # The record of the model has nothing of what the instructions quote.
    for kept in ("API_PORT=8080", "NOTE: step 1."):
        assert kept in made[0].text
    assert made[0].probes["tally"]["decision"]["asked"] >= 2


def test_a_manual_summary_has_them_and_its_own(place: Place) -> None:
    model = Model(1)
    with Server(model) as server:
        env = place.server(server.url)
        place.run("-p", "count", *OFTEN, env=env)
        args = ("compact", "--apply", "--instructions", "Keep the date.")
        done = place.run(
            "-c", "compact.keep_messages=1", "-c", "compact.keep_tokens=0", *args, env=env
        )
    assert done.returncode == 0, done.stderr
    (question,) = model.questions
    assert f"{OF_USER}\n{OF_PROJECT}\n{OF_FILE}" in question
    assert question.endswith("for this record only: Keep the date.")


def test_without_a_model_a_warning_says_once_that_no_model_reads_them(place: Place) -> None:
    model, mechanical = Model(11), ("-c", "compact.summarizer=mechanical")
    with Server(model) as server:
        done = place.run("-p", "count", *OFTEN, *mechanical, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert model.questions == []
    assert len(made := summaries(place, "log.jsonl")) > 1
    assert done.stderr.count("no model reads the instructions for summaries") == 1
    assert "API_PORT=8080" in made[-1].text


def test_the_settings_of_both_places_are_shown(place: Place) -> None:
    shown = place.run("config", "--explain").stdout
    (line,) = [line for line in shown.splitlines() if "compact.instructions" in line]
    assert json.dumps([OF_USER, OF_PROJECT]) in line
