"""State over several runs of the command: a finished todo list causes one summary, and a run with
the state RUNNING continues without the user's confirmation.
"""

import json
from pathlib import Path
from typing import Any

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server, Step
from .test_compact import KEEP_LITTLE, RECORD
from .test_engine_http import asks_for_a_record

DONE = [{"content": "Read big.txt", "status": "completed"}]
READ = [("Read", {"path": "big.txt"})]
SPRINT = "Shall I continue with sprint-3?"


def words(place: Place, source: str) -> list[Any]:
    return [e["content"] for e in place.entries() if e["kind"] == "user" and e["source"] == source]


def test_a_finished_list_and_a_run_over_several_processes(tmp_path: Path) -> None:
    place, steps = Place(tmp_path), list[Step]()
    (place.project / "big.txt").write_text(("word " * 9 + "\n") * 900)
    state = place.project / ".run" / "plan.json"
    state.parent.mkdir()

    def reader(body: Body) -> Step:
        return Say(RECORD) if asks_for_a_record(body) else steps.pop(0)

    with Server(reader) as server:

        def run(said: str, *answers: Step) -> str:
            steps[:] = answers
            resumed = ["--continue"] if place.logs() else []
            options = ["--preset", "anchored", *KEEP_LITTLE, *resumed]
            done = place.run(*options, "-p", said, env=place.server(server.url))
            assert (done.returncode, steps) == (0, []), done.stderr
            return done.stdout.strip()

        run("read it", Say(tools=READ), Say(tools=[("Todo", {"todos": DONE})]), Say("Read."))
        for said in ("what next?", "go on", "and now?"):
            run(said, Say("Waiting for the plan."))
        triggers = [e["trigger"] for e in place.entries() if e["kind"] == "summary"]
        assert triggers == ["task boundary: the todo list is done"]  # once, not in each process

        plan = {"state": "RUNNING", "sprints": {"current": "sprint-3", "completed": 2, "total": 4}}
        state.write_text(json.dumps(plan))
        # Two units are left: two questions are answered; a third, or one without work, is not.
        said = run(
            "run the plan", Say(SPRINT), Say(tools=READ), Say("Ready to go on to sprint-4?"),
            Say(tools=READ), Say("Shall I proceed?"),
        )  # fmt: skip
        assert said == "Shall I proceed?"
        notices = words(place, "notice")
        assert len(notices) == 2
        assert all(".run/plan.json says: state RUNNING, current: sprint-3" in n for n in notices)
        assert run("go on", Say(SPRINT), Say(SPRINT)) == SPRINT
        state.write_text(json.dumps({**plan, "state": "HALTED"}))
        assert run("go on", Say(SPRINT)) == SPRINT
    assert len(words(place, "notice")) == 3
    assert server.rejected == []
