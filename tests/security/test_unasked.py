"""Commands that run without asking because they are sandboxed: what they can do, and what needs
approval.
"""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Answer, Question
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.security.bubblewrap import Bubblewrap
from ctxagent.agent.session.entries import ToolResult

from ..support.command import Place
from ..support.machine import needs_bwrap
from ..support.server.loopback import Say, Server
from ..support.sessions.conversation import Conversation, answering
from .test_sandbox import SECRET, Field, place  # noqa: F401

CONNECT = (
    "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2); "
    "print('reached')\""
)


def talking(
    place: Field,  # noqa: F811
    calls: Sequence[dict[str, Any]],
    mode: Any = "sandboxed",
    answers: Sequence[Answer] = (),
    **fields: Any,
) -> tuple[list[Question], list[ToolResult]]:
    """Run commands, one reply each. Return the questions and the results."""
    steps = [Step(tools=[("Bash", call)]) for call in calls]
    ask, questions = answering(*answers)
    talk = Conversation(place.cwd, [*steps, Step(text="done")], mode=mode, ask=ask, **fields)
    talk.agent.context = replace(
        talk.agent.context, env=place.environ, sandbox=place.context().sandbox
    )
    talk.agent.approval.sandbox = talk.agent.context.sandbox
    assert talk.say("go").status in ("ok", "denied"), talk.events[-3:]
    return questions, talk.of(ToolResult)


@needs_bwrap
def test_the_project_is_its_own(place: Field) -> None:  # noqa: F811
    """A command changes the project without asking, but no other files and none that run later."""
    calls = [
        {"command": "sh -c 'echo new > made.txt' && cat made.txt"},
        {"command": "python3 -c \"open('../outside.txt', 'w')\""},
        {"command": "python3 -c \"open('.envrc', 'w').write('x')\""},
    ]
    questions, results = talking(place, calls)
    assert questions == []
    assert results[0].content == "new"
    assert "Read-only file system" in results[1].content
    assert "call it again with unsandboxed" in results[1].content
    assert results[1].details["blocked"] == "files"
    assert "set aside as" in results[2].content
    assert not (place.cwd / ".envrc").exists()


@needs_bwrap
def test_nothing_outside_is_read_however_it_is_named(place: Field) -> None:  # noqa: F811
    """Without a question, a command reads only the project, the system and what the user added."""
    outside, added = place.root / "outside", place.root / "added"
    for folder in (outside, added):
        folder.mkdir(exist_ok=True)
        (folder / "data").write_text(SECRET)
    place.read = (added,)
    (place.cwd / "link").symlink_to(outside / "data")
    calls = [
        {"command": f"p={outside}; cat $p/data"},
        {"command": "cat $PWD/link"},
        {"command": f"python3 -c 'print(open(\"{outside}/data\").read())'"},
        {"command": f"python3 -c 'import os; print(os.listdir(\"{place.root}\"))'"},
        {"command": f"python3 -c 'print(open(\"{added}/data\").read())'"},
        {"command": "python3 -c 'import ssl, sqlite3; print(1)' && touch made"},
        {"command": f"cat {outside}/data && touch x"},
    ]
    questions, results = talking(place, calls, answers=[Answer(True)])
    assert [SECRET in result.content for result in results] == [
        False, False, False, False, True, False, True,
    ]  # fmt: skip
    assert "'outside'" not in results[3].content
    assert results[5].content == "1"
    assert ["path outside" in question.reason for question in questions] == [True]
    for result in results[:3]:
        assert "call it again with unsandboxed" in result.content


@needs_bwrap
def test_the_network_is_there_once_it_is_allowed(place: Field) -> None:  # noqa: F811
    """Without approval there is no network, and the model reads how to request it; after approval
    there is.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = CONNECT.format(port=server.getsockname()[1])
        calls = [{"command": command}, {"command": command, "network": True}]
        questions, results = talking(place, calls, answers=[Answer(True)])
    assert [question.reason for question in questions] == ["it would reach the network"]
    assert results[0].details["blocked"] == "network"
    assert "call it again with network: the user is asked" in results[0].content
    assert results[1].content == "reached"


@needs_bwrap
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("git push origin main", "the sandbox does not allow the network: `git push`"),
        ("cd src && curl -s http://127.0.0.1:1", "the network: `curl`"),
        ("python3 -m pip install x", "the network: `pip install`"),
        ("touch ../beside.txt", "a path outside of the project: "),
        ("wc -l < {home}/notes/plain > n", "a path outside of the project: "),
        ("cp {home}/notes/plain .", "a path outside of the project: "),
        ("echo x > .envrc", "a protected file: .envrc"),
        ("rm -rf .git", "a protected file: .git"),
        ("rm -rf {cwd}", "moving the project's folder"),
        ("sudo make install", "the rights of another user: `sudo`"),
        ("docker ps", "a service of the system: `docker`"),
    ],
)
def test_commands_that_visibly_leave_need_approval(
    place: Field,  # noqa: F811
    command: str,
    reason: str,
) -> None:
    text = command.format(home=place.root / "home", cwd=place.cwd)
    questions, _ = talking(place, [{"command": text}], answers=[Answer(False)])
    (question,) = questions
    assert reason in question.reason
    assert not question.may_be_sandboxed


@needs_bwrap
def test_rules_hold_inside(place: Field) -> None:  # noqa: F811
    """Files that rules guard from reading are hidden, those guarded from edits are read-only. Rules
    for commands still apply.
    """
    for name in ("secrets/key", "deep/er/.env", "migrations/1.sql"):
        (place.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (place.cwd / name).write_text(f"{SECRET}\n")
    opened = 'python3 -c "import sys; print(open(sys.argv[1], sys.argv[2]).read())" '
    calls = [
        {"command": f"f=secrets; {opened} $f/key r"},
        {"command": f"{opened} deep/er/.en'v' r 2>&1"},
        {"command": f"{opened} migrations/1.sql a 2>&1"},
    ]
    deny = ["Read(secrets/**)", "Read(.env)", "Edit(migrations/**)"]
    questions, results = talking(place, calls, deny=deny)
    assert questions == []
    assert SECRET not in "".join(str(result.content) for result in results)
    assert "Read-only file system" in results[2].content
    calls = [{"command": "make x"}, {"command": "$(echo ma)ke x"}]
    questions, results = talking(
        place, calls, answers=[Answer(False)], deny=["Bash(make:*)"], session="other"
    )
    assert "denied by the rule Bash(make:*)" in results[0].content
    assert [question.title for question in questions] == ["$(echo ma)ke x"]


@needs_bwrap
def test_one_answer_allows_sandboxed_commands(place: Field) -> None:  # noqa: F811
    """In mode `ask`, the question offers the sandbox. If accepted, this and later commands run
    sandboxed; edits still need approval.
    """
    calls = [{"command": "python3 -c 'print(1)'"}, {"command": "python3 -c 'print(2)'"}]
    questions, results = talking(place, calls, "ask", [Answer(True, sandboxed=True)])
    (question,) = questions
    assert question.may_be_sandboxed
    assert [result.content for result in results] == ["1", "2"]
    assert all(result.details["sandboxed"] for result in results)


@needs_bwrap
@pytest.mark.parametrize(("mode", "said"), [("plan", "plan mode is on"), ("bypass", "")])
def test_other_modes_are_as_they_were(place: Field, mode: str, said: str) -> None:  # noqa: F811
    questions, results = talking(place, [{"command": "python3 -c 'print(1)'"}], mode)
    assert questions == []
    assert said in results[0].content


def test_without_a_sandbox_everything_is_asked_about(place: Field) -> None:  # noqa: F811
    ask, questions = answering(Answer(False))
    steps = [Step(tools=[("Bash", {"command": "python3 x.py"})]), Step(text="done")]
    talk = Conversation(place.cwd, steps, mode="sandboxed", ask=ask)
    box = place.context().sandbox
    box._bubblewrap = Bubblewrap(absent="bwrap is not installed.")
    talk.agent.approval.sandbox = box
    talk.say("go")
    assert questions[0].reason.endswith("; not sandboxed: bwrap is not installed")


@pytest.mark.slow
@needs_bwrap
def test_jobs_are_confined_too(place: Field) -> None:  # noqa: F811
    outside = place.root / "outside" / "made"
    call = {"command": f"python3 -c \"open('{outside}', 'w')\"", "run_in_background": True}
    questions, results = talking(place, [call, {"command": "sleep 0.1"}])
    assert questions == []
    assert "started" in results[0].content
    assert not os.path.lexists(outside)


@pytest.mark.slow
@needs_bwrap
def test_headless(tmp_path: Path) -> None:
    """Sandboxed commands run without a user. A command that needs more is named with the rule for
    it.
    """
    home = Place(tmp_path)
    steps = [
        Say(tools=[("Bash", {"command": "python3 -c \"open('made', 'w')\" && git push"})]),
        Say(tools=[("Bash", {"command": "python3 -c \"open('made', 'w')\""})]),
        Say("Made."),
    ]
    with Server(steps) as server:
        done = home.run(
            "-p", "go", "--permission-mode", "sandboxed", "--output-format", "json",
            env=home.server(server.url),
        )  # fmt: skip
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"]) == (3, "denied")
    assert "the sandbox does not allow the network: `git push`" in done.stderr + done.stdout
    assert (home.project / "made").exists()


def test_a_missing_sandbox_is_reported(tmp_path: Path) -> None:
    home = Place(tmp_path)
    steps = [Say(tools=[("Bash", {"command": "python3 x.py"})]), Say("Well.")]
    with Server(steps) as server:
        env = {**home.server(server.url), "CTXAGENT_SANDBOX_MODE": "off"}
        done = home.run("-p", "go", "--permission-mode", "sandboxed", env=env)
    assert done.returncode == 3
    why = "may change something; not sandboxed: the sandbox is off; allow it with --allow"
    (line,) = [line for line in done.stderr.splitlines() if "sandbox" in line]
    assert why in line
    assert "not sandboxed: the sandbox is off, and nobody can be asked" in json.dumps(
        server.requests[-1]
    )


@needs_bwrap
def test_the_doctor_recommends_it(tmp_path: Path) -> None:
    home = Place(tmp_path)
    advice = 'permissions.sandboxed = "allow" runs commands without a question'
    assert advice in home.run("doctor").stdout
    env = home.environ({"CTXAGENT_PERMISSIONS_SANDBOXED": "allow"})
    assert advice not in home.run("doctor", env=env).stdout
