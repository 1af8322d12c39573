"""Bedrock and Vertex with the SDK's clients: real HTTP on loopback, real signatures."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ctxagent.agent.errors import KeyRefused, ModelUnavailable, NoCredentials, RequestRejected
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.catalog import DEFAULT_LIMITS
from ctxagent.agent.models.messages.body import VERSION, WIRE, takes_thinking
from ctxagent.agent.models.messages.model import MessagesModel

from ..support.server.clouds import (
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    BedrockServer,
    VertexServer,
)
from ..support.server.loopback import Fail, Say, Server
from .test_model import QUICK, ask, play
from .test_transport import server as answering

BEDROCK, VERTEX = "bedrock/anthropic.claude-sonnet-5", "vertex/claude-sonnet-4-5@20250929"
STATIC = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": SESSION_TOKEN,
}
TOKEN = {"GOOGLE_OAUTH_ACCESS_TOKEN": VertexServer.token}
CALL = Say("I look.", thinking="Hm.", tools=[("Bash", {"command": "ls ä"})])
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "toolu_0001_0", "content": "a"}],
}


def connect(id: str, url: str, credentials: dict[str, str]) -> MessagesModel:
    places = {
        "AWS_REGION": "us-east-1",
        "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": url,
        "CLOUD_ML_REGION": "global",
        "GOOGLE_CLOUD_PROJECT": "project-1",
        "ANTHROPIC_VERTEX_BASE_URL": url,
    }
    return MessagesModel(id, environ={**places, **credentials}, retry=QUICK)


def turn(id: str, server: Server, credentials: dict[str, str]) -> None:
    """Send a request, and another one with the result of its call. Check that the bytes can be
    rebuilt.
    """
    with server:
        first = ask(id)
        reply = play(connect(id, server.url, credentials), first)[-1]
        assert isinstance(reply, Reply)
        said = [
            {name: value for name, value in block.items() if value is not None}
            for block in reply.content
        ]
        second = ask(id, more=[{"role": "assistant", "content": said}, RESULT])
        last = play(connect(id, server.url, credentials), second)[-1]
    assert server.rejected == []
    assert [block["text"] for block in last.content] == ["Done."]
    for request, each, digest in zip((first, second), (reply, last), server.digests, strict=True):
        sent = json.loads(json.dumps(each.sent))
        assert hashlib.sha256(WIRE.rebuild(request, sent)).hexdigest() == digest


def fails(error: type[Exception], id: str, url: str, credentials: dict[str, str]) -> Any:
    with pytest.raises(error) as caught:
        play(connect(id, url, credentials), ask(id))
    return caught.value


@pytest.mark.slow
def test_a_turn_on_bedrock_with_signed_requests() -> None:
    server = BedrockServer([CALL, Say("Done.")])
    turn(BEDROCK, server, STATIC)
    assert {each["x-amz-security-token"] for each in server.headers} == {SESSION_TOKEN}
    assert server.requests[0]["model"] == "anthropic.claude-sonnet-5"
    assert server.requests[0]["thinking"] == {"type": "adaptive"}


@pytest.mark.slow
def test_a_turn_on_bedrock_with_a_key() -> None:
    turn(
        BEDROCK,
        BedrockServer([CALL, Say("Done.")]),
        {"AWS_BEARER_TOKEN_BEDROCK": BedrockServer.bearer, **STATIC},
    )


@pytest.mark.slow
def test_credentials_of_a_profile_sign_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = f"[work]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    (tmp_path / "credentials").write_text(keys)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    turn(BEDROCK, BedrockServer([CALL, Say("Done.")]), {"AWS_PROFILE": "work"})


@pytest.mark.slow
def test_a_turn_on_vertex_with_a_token() -> None:
    server = VertexServer([CALL, Say("Done.")])
    turn(VERTEX, server, TOKEN)
    end = "/claude-sonnet-4-5@20250929:streamRawPredict"
    assert all(path.endswith(end) for path in server.paths)
    assert [each["anthropic_version"] for each in server.bodies] == [VERSION] * 2


@pytest.mark.slow
def test_a_service_account_of_google_gets_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    granted = {"access_token": VertexServer.token, "expires_in": 3600, "token_type": "Bearer"}
    path = tmp_path / "account.json"
    with answering(200, granted) as (url, asked):
        account = {
            "type": "service_account",
            "client_email": "a@project-1.example",
            "private_key": pem.decode(),
            "token_uri": f"{url}/token",
        }
        path.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        turn(
            VERTEX,
            VertexServer([CALL, Say("Done.")]),
            {"GOOGLE_APPLICATION_CREDENTIALS": str(path)},
        )
    assert len(asked) == 2  # one per client


@pytest.mark.slow
def test_credentials_that_the_cloud_refuses_are_told() -> None:
    with BedrockServer([]) as server:
        wrong = {"AWS_BEARER_TOKEN_BEDROCK": "other-key"}
        error = fails(KeyRefused, BEDROCK, server.url, wrong)
    assert (error.status, "The security token is invalid" in error.message) == (403, True)
    with VertexServer([]) as server:
        error = fails(KeyRefused, VERTEX, server.url, {"GOOGLE_OAUTH_ACCESS_TOKEN": "other"})
    assert (error.status, "no token" in error.message) == (401, True)
    assert "the credentials for vertex" in error.hint


@pytest.mark.slow
def test_other_errors_are_those_of_any_server() -> None:
    with BedrockServer([Fail(529)] * 3) as server:
        fails(ModelUnavailable, BEDROCK, server.url, STATIC)
    assert len(server.requests) == 3
    with VertexServer([Fail(404, "no such model")]) as server:
        assert "no such model" in fails(RequestRejected, VERTEX, server.url, TOKEN).message


@pytest.mark.slow
def test_credentials_that_are_not_there_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    url = "http://127.0.0.1:9"
    error = fails(NoCredentials, BEDROCK, url, {"AWS_PROFILE": "nobody"})
    assert "profile (nobody) could not be found" in error.message
    chain = {"AWS_WEB_IDENTITY_TOKEN_FILE": "f"}
    assert "Could not resolve AWS" in fails(NoCredentials, BEDROCK, url, chain).message
    file = {"GOOGLE_APPLICATION_CREDENTIALS": "f"}
    assert "was not found" in fails(NoCredentials, VERTEX, url, file).message


@pytest.mark.slow
@pytest.mark.parametrize("id", [BEDROCK, VERTEX])
def test_a_gateway_on_this_machine_is_asked_without_credentials(id: str) -> None:
    with answering(404, {"message": "walrus"}) as (url, asked):
        assert "walrus" in fails(RequestRejected, id, url, {}).message
    assert asked[0].get("authorization") in (None, "Bearer none")


@pytest.mark.slow
def test_limits_that_no_table_has_are_the_defaults() -> None:
    async def limits(id: str, url: str) -> Any:
        model = connect(id, url, {**STATIC, **TOKEN})
        try:
            return await model.limits()
        finally:
            await model.close()

    with BedrockServer([]) as server:
        assert asyncio.run(limits("bedrock/walrus", server.url)) == DEFAULT_LIMITS
    assert server.paths == ["/v1/models/walrus", "/v1/models"]
    assert asyncio.run(limits("vertex/walrus", "http://127.0.0.1:9")) == DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("id", "takes"),
    [
        (BEDROCK, True),
        ("bedrock/us.anthropic.claude-opus-4-8-v1:0", True),
        ("vertex/claude-opus-4-8@default", True),
        (VERTEX, False),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", False),
        ("vertex/claude-walrus-1@x", False),
    ],
)
def test_a_model_thinks_as_it_does_at_anthropic(id: str, takes: bool) -> None:
    assert takes_thinking(id) is takes


def test_what_the_public_api_alone_has_is_not_asked_of_a_cloud() -> None:
    for id in (BEDROCK, VERTEX):
        abilities = connect(id, "", TOKEN).abilities
        assert not abilities.makes_blocks
        assert not abilities.takes_blocks
        assert abilities.searches_web is None


def test_the_version_in_a_body_is_that_of_the_sdk() -> None:
    from anthropic._constants import ANTHROPIC_API_VERSION

    assert VERSION == ANTHROPIC_API_VERSION
