"""The GitHub Action: its script against a fake GitHub API, and the form of action.yml."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ctxagent.agent.cli.github_action import MAX_COMMENT_CHARS, comment_of, main

from ..support.command import PATIENCE, Place
from ..support.server.loopback import Body, Say, Server

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
EXAMPLES = re.findall(
    r"```yaml\n(.*?)```", (ROOT / "docs" / "guide" / "github-action.md").read_text(), re.DOTALL
)
RunStep = Callable[..., "subprocess.CompletedProcess[str]"]


class GitHub:
    """A fake GitHub REST API that stores what it is sent."""

    def __init__(self, permission: str = "write", status: int = 201) -> None:
        self.asked: list[tuple[str, str, str]] = []  # method, path, Authorization
        self.comments: list[tuple[str, str]] = []  # path, body
        github = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(200, {"permission": permission})

            def do_POST(self) -> None:
                data = json.loads(self.rfile.read(int(self.headers["content-length"])))
                github.comments.append((self.path, data["body"]))
                self.reply(status, {"id": 1})

            def reply(self, status: int, body: Body) -> None:
                github.asked.append((self.command, self.path, self.headers["authorization"]))
                data = json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def serving(self) -> Iterator["GitHub"]:
        thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join(5)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def comment(body: str, **changed: Any) -> Body:
    """Return an event in GitHub's format: a collaborator comments on a member's issue."""
    event: Body = {
        "action": "created",
        "comment": {
            "body": body,
            "author_association": "COLLABORATOR",
            "user": {"login": "ada", "type": "User"},
        },
        "issue": {
            "number": 7,
            "title": "It breaks",
            "body": "When I press $(touch pwned) `touch pwned2`.",
            "author_association": "MEMBER",
        },
    }
    for name, value in changed.items():
        part, _, key = name.partition("__")
        if key:
            event[part][key] = value
        else:
            event[part] = value
    return event


def environ(
    place: Place,
    server: Server,
    github: GitHub,
    event: Body | None = None,
    name: str = "issue_comment",
    **inputs: str,
) -> dict[str, str]:
    """Write the event and return the environment of the step: the inputs and what GitHub sets."""
    (place.root / "event.json").write_text(json.dumps(event or {}))
    more = {f"INPUT_{key.upper()}": value for key, value in inputs.items()}
    return place.server(server.url) | {
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": str(place.root / "event.json"),
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "zoo/walrus",
        "GITHUB_RUN_ID": "42",
        "GITHUB_OUTPUT": str(place.root / "output"),
        "GITHUB_STEP_SUMMARY": str(place.root / "summary"),
        "INPUT_GITHUB_TOKEN": "ghs_secret",
        "ACTIONS_RUNTIME_TOKEN": "also-secret",
        **more,
    }


@pytest.fixture
def step(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> RunStep:
    """Run the step in this process. The agent is a separate process."""

    def run(*given: Any, **named: Any) -> "subprocess.CompletedProcess[str]":
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environ(place, *given, **named))
            patch.chdir(place.project)
            with pytest.raises(SystemExit) as end:
                main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess([], int(end.value.code or 0), out, err)

    return run


def outputs(place: Place) -> Mapping[str, str]:
    lines = (place.root / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def told(body: Body) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


def test_a_comment_is_answered_below_it(place: Place, step: RunStep) -> None:
    with GitHub().serving() as github, Server([Say("It was the **walrus**.")]) as server:
        done = step(server, github, comment("/ctxagent why does it break?"))
    assert done.returncode == 0, done.stderr
    ((path, body),) = github.comments
    assert path == "/repos/zoo/walrus/issues/7/comments"
    assert body.endswith("It was the **walrus**.")
    assert "[log](https://github.example/zoo/walrus/actions/runs/42)" in body
    assert {token for _, _, token in github.asked} == {"Bearer ghs_secret"}
    assert github.asked[0][:2] == ("GET", "/repos/zoo/walrus/collaborators/ada/permission")
    assert "why does it break?" in told(server.requests[0])
    assert "comment by ada on the issue #7, which says:]\\nIt breaks" in told(server.requests[0])
    assert outputs(place) == {"status": "ok", "exit-code": "0"}
    assert "walrus" in (place.root / "summary").read_text()
    assert server.rejected == []


def test_text_of_strangers_is_left_out(place: Place, step: RunStep) -> None:
    event = comment("/ctxagent fix it", issue__author_association="NONE")
    with GitHub().serving() as github, Server([Say("Done.")]) as server:
        done = step(server, github, event)
    assert done.returncode == 0, done.stderr
    assert "fix it" in told(server.requests[0])
    assert "It breaks" not in told(server.requests[0])
    assert "touch pwned" not in told(server.requests[0])
    assert list(place.project.iterdir()) == []


@pytest.mark.parametrize(
    ("event", "permission", "why"),
    [
        (comment("/ctxagent x", comment__author_association="NONE"), "write", "is not an owner"),
        (
            comment("/ctxagent x", comment__author_association="CONTRIBUTOR"),
            "write",
            "is not an owner",
        ),
        (comment("/ctxagent x"), "read", "ada may not write"),
        (comment("/ctxagent x"), "none", "ada may not write"),
        (comment("hello /ctxagent x"), "write", "does not begin with /ctxagent"),
        (comment("/ctxagentx"), "write", "does not begin with /ctxagent"),
        (comment("/ctxagent x", action="edited"), "write", "not a new one"),
        (
            comment("/ctxagent x", comment__user={"login": "a[bot]", "type": "Bot"}),
            "write",
            "not by a user",
        ),
        (
            comment("/ctxagent x", comment__user={"login": "../../x", "type": "User"}),
            "write",
            "not by a user",
        ),
    ],
)
def test_others_start_nothing(
    place: Place, step: RunStep, event: Body, permission: str, why: str
) -> None:
    with GitHub(permission).serving() as github, Server([Say("No.")]) as server:
        done = step(server, github, event)
    assert done.returncode == 0, done.stderr
    assert why in done.stdout
    assert (server.requests, github.comments) == ([], [])
    assert outputs(place) == {"status": "skipped", "exit-code": "0"}


def test_a_schedule_writes_the_summary_of_the_job(place: Place) -> None:
    with GitHub().serving() as github, Server([Say("All is well.")]) as server:
        env = environ(place, server, github, name="schedule", task="Look after the tests.")
        done = subprocess.run(
            [sys.executable, "-I", "-m", "ctxagent.agent.cli.github_action"],
            cwd=place.project, env=env, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert github.asked == []
    assert "All is well." in (place.root / "summary").read_text()
    assert "Look after the tests." in told(server.requests[0])


def test_an_input_has_its_option_and_the_agent_no_token(place: Place, step: RunStep) -> None:
    look = "env | grep -c -e ghs_secret -e also-secret -e GITHUB_OUTPUT"
    calls = [Say(tools=[("Bash", {"command": c})]) for c in (look, "touch a", "touch b")]
    with GitHub().serving() as github, Server([*calls, Say("Done.")]) as server:
        done = step(
            server, github, name="schedule", task="go", model="claude-haiku-4-5",
            allow="Bash(touch:*)\n\n  Bash(env:*)\nBash(grep:*)\n", deny="Bash(touch b)\n",
            max_turns="4",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert server.requests[0]["model"] == "claude-haiku-4-5"
    counted = server.requests[1]["messages"][-1]["content"][0]["content"]
    assert "0" in str(counted).split()
    assert [path.name for path in place.project.iterdir()] == ["a"]


def test_a_run_that_fails_is_posted_and_fails_the_step(place: Place, step: RunStep) -> None:
    touch = Say(tools=[("Bash", {"command": "touch a"})])
    with GitHub().serving() as github, Server([touch, Say("I may not.")]) as server:
        done = step(server, github, comment("/ctxagent go"))
    assert done.returncode == 3
    ((_, body),) = github.comments
    assert "status denied" in body
    assert "touch a" in body
    assert body.endswith("I may not.")
    assert outputs(place) == {"status": "denied", "exit-code": "3"}


@pytest.mark.variants
@pytest.mark.parametrize("status", [403, 500, 302])
def test_a_comment_that_is_refused_is_told_and_not_lost(
    place: Place, step: RunStep, status: int
) -> None:
    with GitHub(status=status).serving() as github, Server([Say("Found it.")]) as server:
        done = step(server, github, comment("/ctxagent go"))
    assert done.returncode == 1
    assert str(status) in done.stderr
    assert "issues: write" in done.stderr
    assert len(github.comments) == 1
    assert "Found it." in (place.root / "summary").read_text()
    assert not any(path == "/elsewhere" for _, path, _ in github.asked)


@pytest.mark.parametrize(
    ("event", "name", "why"),
    [
        (None, "schedule", "there is no task"),
        (comment("/ctxagent"), "issue_comment", "there is no task"),
    ],
)
def test_no_task_is_an_error(step: RunStep, event: Body | None, name: str, why: str) -> None:
    with GitHub().serving() as github, Server([Say("No.")]) as server:
        done = step(server, github, event, name=name)
    assert done.returncode == 2
    assert why in done.stderr
    assert server.requests == []


def test_output_has_no_runner_commands(step: RunStep) -> None:
    with GitHub().serving() as github, Server([Say("::error::x\n::add-mask::walrus")]) as server:
        done = step(server, github, name="schedule", task="go")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::stop-commands::")
    assert lines[-1] == f"::{lines[0].removeprefix('::stop-commands::')}::"
    assert "::error::" not in done.stdout


def posted(text: str, **more: Any) -> str:
    return comment_of({"status": "ok", "result": text, **more}, "https://x")


@pytest.mark.parametrize(
    ("text", "there", "away"),
    [
        ("ping @ada and @zoo/team", "ping ＠ada and ＠zoo/team", "@"),
        ("&#64;ada &commat;ada &#x40;ada", "＠ada ＠ada ＠ada", "&"),
        ("_@ada_ \\@ada (@ada)", "_＠ada_ \\＠ada (＠ada)", "@"),
        ("write to ada@example.com", "ada@example.com", "＠"),
        ("```\n@property\n```", "@property", "＠"),
        ("```\n@property\n```\n@ada", "@property\n```\n＠ada", "\n@ada"),
        ("~~~\n@property", "@property", "＠"),
        ("inline `@ada`", "`＠ada`", "@"),
        ("a\u202eb\u200bc\x1b[1m", "a\\u202eb\\u200bc\\x1b[1m", "\x1b"),
        ("<!-- hidden -->", "&lt;!-- hidden -->", "<!--"),
    ],
)
def test_a_comment_notifies_nobody_and_hides_nothing(text: str, there: str, away: str) -> None:
    found = posted(text)
    assert there in found
    assert away not in found


def test_a_comment_is_never_too_long() -> None:
    for text in ("x" * 70_000, "```\n" + "@x\n" * 40_000, "@" * 70_000, "\u200b" * 60_000):
        found = posted(text, error={"message": "y" * 70_000})
        assert len(found) <= MAX_COMMENT_CHARS
        assert found.rpartition("\n\n")[2].startswith("**ctxagent** · cut:")
    fenced = posted("```\n" + "@x\n" * 40_000)
    assert "\n```\n\n**ctxagent** · cut" in fenced
    assert len(posted("x" * 60_000)) > 60_000


def test_the_form_of_the_action() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for each in ACTION["runs"]["steps"]:
        assert ("run" in each) != ("uses" in each), each
        if "run" in each:
            assert each["shell"] == "bash"
            assert "${{" not in each["run"], "what an expression gives would be run as shell"
    given = {
        variable: value
        for each in ACTION["runs"]["steps"]
        for variable, value in each.get("env", {}).items()
        if "inputs." in value
    }
    assert {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]} == set(given.values())
    for variable, value in given.items():
        if variable != "ANTHROPIC_API_KEY":
            name = value.removeprefix("${{ inputs.").removesuffix(" }}")
            assert variable == f"INPUT_{name.upper().replace('-', '_')}"
    assert all(each.get("description") for each in ACTION["inputs"].values())


def test_the_workflows_of_the_guide_have_the_least_permissions() -> None:
    assert len(EXAMPLES) == 2
    for text in EXAMPLES:
        flow = yaml.safe_load(text)
        assert flow["permissions"] == {}
        for job in flow["jobs"].values():
            assert set(job["permissions"]) <= {"contents", "issues", "pull-requests"}
            assert job["permissions"]["contents"] == "read"
            assert not any("run" in each for each in job["steps"])
            (used,) = [each for each in job["steps"] if "ctxagent" in each["uses"]]
            assert set(used["with"]) <= set(ACTION["inputs"])
            (checkout,) = [each for each in job["steps"] if "checkout" in each["uses"]]
            assert checkout["with"]["persist-credentials"] is False
