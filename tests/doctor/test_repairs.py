"""The number of repaired calls by model."""

from pathlib import Path

import pytest

from ctxagent.addons.doctor.session import check_session
from ctxagent.addons.doctor.setup import MAX_LOGS, repair_findings
from ctxagent.agent.models.scripted import Step

from ..support.sessions.conversation import Conversation


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_repairs_are_counted_by_model_and_name(project: Path) -> None:
    (project / "a.txt").write_text("x\n")
    found = {"pattern": "X", "-i": True, "output_mode": "files_with_matches"}
    steps = [
        Step(text="<function=Read>\n<parameter=path>\na.txt\n</parameter>\n</function>"),
        Step(tools=[("grep", found), ("Read", {"file_path": "a.txt"})]),
        Step(tools=[("Read", {"file_path": "missing"})]),
        Step(text="done"),
    ]
    talk = Conversation(project, steps)
    assert talk.say("go").status == "ok"
    (finding,) = repair_findings([talk.agent.log.path])
    assert finding.ok
    assert finding.what == "repaired calls"
    model, _, rows = finding.found.partition(": ")
    assert model == "scripted"
    assert sorted(rows.split("), ")) == sorted(
        [
            "argument name: file_path (2 calls, 1 failed",
            "call as text: function (1 call, 0 failed",
            "tool name: grep (1 call, 0 failed",
            "argument name: -i (1 call, 0 failed",
            "argument value: files_with_matches (1 call, 0 failed)",
        ]
    )
    assert finding in check_session(talk.agent.log.path)


def test_a_log_without_repairs_has_no_finding(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "ls"})]), Step(text="done")])
    talk.say("go")
    assert repair_findings([talk.agent.log.path]) == []


def test_the_number_of_logs_that_are_read_is_limited(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("bash", {"command": "ls"})]), Step(text="done")])
    talk.say("go")
    (empty := project / "empty.jsonl").touch()
    log = talk.agent.log.path
    assert repair_findings([*[empty] * (MAX_LOGS - 1), log])
    assert not repair_findings([*[empty] * MAX_LOGS, log])
