"""Sessions on Bedrock and Vertex: the real command against strict servers for both."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.clouds import ACCESS_KEY, SECRET_KEY, BedrockServer, VertexServer
from ..support.server.loopback import Say, Server

BEDROCK, VERTEX = "bedrock/anthropic.claude-sonnet-5", "vertex/claude-sonnet-5"
STEPS = [
    Say("I look.", thinking="Hm.", tools=[("Bash", {"command": "echo hi"})]),
    Say("Hi."),
    Say("Bye."),
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def env(place: Place, **more: str) -> dict[str, str]:
    return place.environ({"AWS_EC2_METADATA_DISABLED": "true", **more})


def session(place: Place, model: str, server: Server, environ: Mapping[str, str]) -> None:
    """Run a turn with a call and a resumed turn. Check what `replay` says about all requests."""
    how = ("--model", model, "--permission-mode", "bypass")
    with server:
        first = place.run("-p", "go", *how, env=environ)
        second = place.run("-p", "and now?", "--continue", *how, env=environ)
    assert (first.stdout, second.stdout) == ("Hi.\n", "Bye.\n"), (first.stderr, second.stderr)
    assert server.rejected == []
    replies = [entry for entry in place.entries() if entry["kind"] == "assistant"]
    assert {entry["model"] for entry in replies} == {model}
    (log,) = place.logs()
    replayed = place.run("replay", log.parent.name, env=environ).stdout.splitlines()
    assert replayed[-1] == "Our own sessions: 3 of 3 requests rebuilt byte for byte"


@pytest.mark.full
def test_a_session_on_bedrock(place: Place) -> None:
    server = BedrockServer(STEPS, bound=True)
    environ = env(
        place,
        AWS_REGION="us-east-1",
        AWS_ACCESS_KEY_ID=ACCESS_KEY,
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        ANTHROPIC_BEDROCK_MANTLE_BASE_URL=server.url,
    )
    session(place, BEDROCK, server, environ)


@pytest.mark.full
def test_a_session_on_vertex(place: Place) -> None:
    server = VertexServer(STEPS, bound=True)
    environ = env(
        place,
        CLOUD_ML_REGION="global",
        ANTHROPIC_VERTEX_PROJECT_ID="project-1",
        GOOGLE_OAUTH_ACCESS_TOKEN=VertexServer.token,
        ANTHROPIC_VERTEX_BASE_URL=server.url,
    )
    session(place, VERTEX, server, environ)


def test_missing_settings_are_reported_before_the_start(place: Place) -> None:
    done = place.run("--model", BEDROCK, "-p", "go", env=env(place))
    assert done.returncode == 5, done.stderr
    for step in ("AWS_REGION is not set", "export AWS_REGION=us-east-1", "`aws configure`"):
        assert step in done.stderr
    assert place.logs() == []
