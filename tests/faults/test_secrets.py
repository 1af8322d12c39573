"""Secrets: that the key never reaches a disk or a result, what shapes are known and taken out on
request, and that what was taken out is not written into files in the place of the secret."""

import asyncio
import base64
import json
import os
import random
import string
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.app import open_agent
from ctxagent.agent.config.settings import (
    DemoteSettings,
    PermissionSettings,
    SandboxSettings,
    Settings,
    StateSettings,
)
from ctxagent.agent.errors import ToolError, conceal
from ctxagent.agent.events import Event, ToolOutput
from ctxagent.agent.export import export
from ctxagent.agent.launch import LaunchOptions, SessionChoice
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.security.redaction import Redaction, redaction_for
from ctxagent.agent.security.secret_shapes import without_shapes
from ctxagent.agent.session.entries import Assistant, Note, ToolResult, User, altered_thinking
from ctxagent.tools.base import Context, Output
from ctxagent.tools.edit import EditTool
from ctxagent.tools.redaction_marks import mark
from ctxagent.tools.write import WriteTool

from ..support.command import Place
from ..support.server.loopback import Fail, Say, Server
from ..support.server.validator import validate

KEY = "sk-ant-api03-the-key-of-the-agent-itself-0123456789"
OTHER = "Zq7-another-token-of-the-person-42"
ENVIRON = {"ANTHROPIC_API_KEY": KEY, "DEPLOY_TOKEN": OTHER}


def lot(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """The same random characters every time; a letter and a digit are among them."""
    drawn = random.Random(length)
    return "".join(drawn.choice(letters) for _ in range(length - 2)) + "a7"


PEM = "\n".join(
    ["-----BEGIN OPENSSH PRIVATE KEY-----", *[lot(64)] * 9, "-----END OPENSSH PRIVATE KEY-----"]
)
SECRETS = {  # what is said, and the part of it that must go
    "AKIA" + lot(16, string.ascii_uppercase + "234567").upper(): "",
    f"ghp_{lot(36)}": "",
    f"github_pat_{lot(22)}_{lot(59)}": "",
    f"glpat-{lot(20)}": "",
    f"xoxb-123456789012-{lot(24)}": "",
    f"https://hooks.slack.com/services/T{lot(8)}/B{lot(8)}/{lot(24)}": lot(24),
    f"AIza{lot(35)}": "",
    f"GOCSPX-{lot(28)}": "",
    f"sk_live_{lot(24)}": "",
    f"sk-ant-api03-{lot(90)}": "",
    f"sk-proj-{lot(60)}": "",
    f"sk-{lot(48)}": "",
    f"eyJ{lot(33)}.eyJ{lot(60)}.{lot(43)}": "",
    f"npm_{lot(36)}": "",
    f"pypi-AgEIcHlwaS5vcmc{lot(100)}": "",
    f"hf_{lot(34, string.ascii_letters)[:-2]}ab": "",
    f"https://a.blob.core.windows.net/c?sv=2024&sig={lot(43)}%3D&se=1": lot(43),
    f"AccountName=a;AccountKey={lot(86)}==;": lot(86),
    "postgres://app:s3cr3t-pw@db.internal/x": "s3cr3t-pw",
    f"Authorization: Bearer {lot(40)}": lot(40),
    "authorization: Basic " + base64.b64encode(b"user:a passphrase").decode(): "dXNlcjph",
    PEM: "",
    PEM.replace("\n", "\\n"): "",
    "\n".join(f"{n:6}\t{line}" for n, line in enumerate(PEM.split("\n"), 7)): lot(64),
    PEM[: len(PEM) // 2]: lot(64),
    PEM[len(PEM) // 2 :]: lot(64),
    PEM.replace("\n", "\\n")[: len(PEM) // 2]: lot(64),
    "DB_PASSWORD=hunter22": "hunter22",
    "export SECRET_KEY='a-long-secret!'": "a-long-secret!",
    f"  12:API_TOKEN={lot(20)}": lot(20),
    f'{{"api_key": "{lot(30)}"}}': lot(30),
    f"aws_secret_access_key = {lot(40)}": lot(40),
    f"curl --token={lot(30)} x": lot(30),
    f'client_secret: "{lot(24)}"': lot(24),
}
HARMLESS = (
    "password = get_password()",
    "token: str | None = None",
    "API_KEY=$OTHER",
    "PASSWORD=${DB_PASSWORD}",
    "PASSWORD=changeme",
    "SECRET_KEY=<your key>",
    "ANTHROPIC_API_KEY=sk-ant-...",
    "max_tokens = 32000, TOKEN_LIMIT=100000",
    "contextTokens = lastAssistantMessage",
    "ENV_SESSION_TOKEN = 'KIMI_WEB_SESSION_TOKEN'",
    "cache_key=user_settings_for_tenant_abc",
    "SECRET_KEY=/run/secrets/key1234",
    "class='sk-fading-circle-animation'",
    "postgres://user:password@host/db, http://localhost:8080/a@b, git@github.com:x/y",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "sha256:" + "a1" * 32,
    "npm_config_registry=http://x npm_package_name",
    "pypi-publish-workflow-with-trusted-publishing-for-everyone",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "Bearer authentication-is-required-here",
    "monkey=banana tokenizer.json passing: 12 keyboard",
    'if "-----BEGIN PRIVATE KEY-----" in text and text.endswith("-----END PRIVATE KEY-----"):',
    'KEY = "-----BEGIN PRIVATE KEY-----"\nfollowing = 1\n',
)


def taken(text: str) -> str:
    return without_shapes(text, mark)


@pytest.mark.parametrize("said", SECRETS, ids=[each[:24] for each in SECRETS])
def test_shapes_are_taken_out(said: str) -> None:
    secret = SECRETS[said] or said
    for text in (said, f"before\n{said}\nafter", f"# it is {said}\r\n"):
        left = taken(text)
        assert secret not in left
        assert "[redacted: " in left
        assert taken(left) == left
    assert taken(f"before {said}\nafter").startswith("before ")


def test_what_is_harmless_stays() -> None:
    for text in HARMLESS:
        assert taken(text) == text


def test_kinds_are_named() -> None:
    assert taken(f"ghp_{lot(36)}") == "[redacted: GitHub token]"
    assert taken(PEM) == "[redacted: private key]"
    assert taken("redis://:pa55word@h:1") == "redis://:[redacted: password of an address]@h:1"


HOSTILE = (
    "a", "token", "token=", "TOKEN='", "A_TOKEN_", "://", "://a:", "://a:bbbbb",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ", "-----END ",
    "eyJ", "eyJaaaaaaaaaa.", "sk-", "sk-ant-", "Bearer ", "Bearer%20", "&sig=", "a.b-c_token.",
    "İtoken=é", "token:\t", "token=\n", "ghp_xoxb-AKIAsk-SG.hf_npm_pypi-", "AKIA", "password=!",
    "authorization: basic ", "hooks.slack.com/services/", "secret = \"", "PASSWORD=\\",
)  # fmt: skip


def test_hostile_texts_take_time_in_proportion() -> None:
    """Measured against the harmless: what backtracks would be thousands of times slower."""
    size = 60_000
    taken("warm")
    for piece in HOSTILE:
        text = piece * (size // len(piece))
        began = time.process_time()
        taken(text)
        assert time.process_time() - began < 2, piece  # about 0.03, and minutes if it were squared


# Chunks


class Heard:
    def __init__(self) -> None:
        self.data = b""
        self.closed = 0

    def feed(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed += 1


WHOLE = [said for said in SECRETS if not said.endswith("-----") or "BEGIN" in said]
PARTS = st.lists(
    st.one_of(
        st.sampled_from([*WHOLE, *HARMLESS, KEY, OTHER, KEY[:20], "\n", "\r\n", "é", "-----"]),
        st.text(max_size=20),
    ),
    max_size=12,
)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(PARTS, st.lists(st.integers(1, 90), min_size=1, max_size=20), st.booleans())
def test_it_makes_no_difference_where_output_is_cut(
    parts: list[str], sizes: list[int], shapes: bool
) -> None:
    text = "\n".join(parts).encode("utf-8", "replace").decode()
    redaction = redaction_for(ENVIRON, shapes=shapes)
    heard = Heard()
    sieve = redaction.filtered_sink(heard)
    data, place, turn = text.encode(), 0, 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        sieve.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    sieve.close()
    assert heard.closed == 1
    assert heard.data.decode() == redaction.clean_text(text)
    assert KEY.encode() not in heard.data


def test_output_that_is_no_text_comes_through_byte_for_byte() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON, shapes=True).filtered_sink(heard)
    data = bytes(range(256)) * 1_000
    for place in range(0, len(data), 777):
        sieve.feed(data[place : place + 777])
    sieve.close()
    assert heard.data == data


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON, shapes=True).filtered_sink(heard)
    for _ in range(60):
        sieve.feed(b"x" * 4_000 + b" ")
    assert 100_000 < len(heard.data) < 240_000
    sieve.feed(b"ghp_" + lot(36).encode())
    sieve.close()
    assert heard.data.endswith(b"[redacted: GitHub token]")


def test_only_what_may_be_a_secret_waits() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON).filtered_sink(heard)
    sieve.feed(b"Password for sk-ant: ")
    assert heard.data == b"Password for sk-ant: "
    sieve.feed(KEY[:12].encode())
    assert heard.data == b"Password for sk-ant: "
    sieve.feed(b"!")
    assert heard.data.endswith(KEY[:12].encode() + b"!")
    assert redaction_for({}).filtered_sink(heard) is heard


# What is known


def test_known_are_keys_of_the_environment_that_no_text_holds_by_chance() -> None:
    known = redaction_for(
        {
            "ANTHROPIC_API_KEY": f" {KEY}\n",
            "ANTHROPIC_AUTH_TOKEN": "short-1x",
            "DEPLOY_TOKEN": OTHER,
            "PGPASSWORD": "postgres",
            "GPG_KEY_TOKEN": "not-needed-at-all-here",
            "SECRET_PLACE_TOKEN": "/run/user/1000/secret",
            "SOME_KEY": "https://host1.example/path",
            "PATH": "/usr/bin:/home/a1b2c3d4e5f6g7h8",
        },
        "https://me:p%40ss-w0rd-1@host/",
    ).known
    assert set(known) == {KEY, "short-1x", OTHER, "p%40ss-w0rd-1", "p@ss-w0rd-1"}
    assert list(known) == sorted(known, key=len, reverse=True)
    for harmless in ("ollama", "lm-studio", "sk-no-key-required", "EMPTY"):
        assert redaction_for({"ANTHROPIC_API_KEY": harmless}).known == {}


def test_entries_lose_what_is_known_wherever_it_stands() -> None:
    """Thinking with another text has no signature: it is marked, so that it is not sent again."""
    thought = {"type": "thinking", "thinking": f"the key is {KEY}", "signature": "s"}
    said = {"type": "text", "text": f"It is {KEY}."}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": f"echo {KEY}"}}
    entry = Assistant(content=[thought, said, call], usage={}, stop_reason=None, model="m")
    redaction = redaction_for(ENVIRON)
    left = redaction.clean_entry(entry).content
    assert left[0] == altered_thinking("the key is [redacted: ANTHROPIC_API_KEY]")
    packed = {**thought, "thinking": "a word", "signature": json.dumps({"arguments": KEY})}
    hidden = replace(entry, content=[packed])
    assert redaction.clean_entry(hidden).content == [altered_thinking("a word")]
    harmless = replace(entry, content=[{**thought, "thinking": "a word"}])
    assert redaction.clean_entry(harmless) is harmless
    assert left[1]["text"] == "It is [redacted: ANTHROPIC_API_KEY]."
    assert left[2]["input"]["command"] == "echo [redacted: ANTHROPIC_API_KEY]"
    plain = User(content="hello")
    assert redaction.clean_entry(plain) is plain


def test_images_stay_as_they_are() -> None:
    data = "AKIA" + "A" * 16
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    output = Output("", {}, blocks=[image, {"type": "text", "text": data}])
    left = Redaction(shapes=True).clean_output(output).blocks
    assert left == [image, {"type": "text", "text": mark("AWS key")}]


def test_shapes_are_taken_from_what_is_found_and_not_from_what_is_said() -> None:
    token = f"ghp_{lot(36)}"
    redaction = Redaction(shapes=True)
    for found in (
        ToolResult(tool_use_id="t", content=token, details={"diff": f"+{token}"}),
        User(content=[{"type": "text", "text": token}], source="instructions"),
        Note(topic="warning", text=token),
    ):
        assert token not in str(redaction.clean_entry(found))
    assert token in str(redaction.clean_entry(User(content=token)))


def test_a_key_is_taken_out_of_what_a_server_says() -> None:
    assert conceal(f"Incorrect API key provided: {KEY}.", f"{KEY}\n", None) == (
        "Incorrect API key provided: …."
    )
    assert conceal("a test", "test") == "a test"


@pytest.mark.parametrize("piece", ["a:", "a:=", "\0", "/", "::"])
def test_a_long_text_without_credentials_is_soon_looked_through(piece: str) -> None:
    assert conceal(piece * 3_000) == piece * 3_000
    assert conceal(f"{piece * 100} me:word@host") == f"{piece * 100} …@host"


# A conversation


def work(root: Path, *steps: Step, redact: bool = False, **environ: str) -> tuple[Any, list[Event]]:
    """A session of its own in a project, left after one turn; its loop and its events."""
    project = root / "project"
    project.mkdir(exist_ok=True)
    events: list[Event] = []
    chosen = replace(
        Settings(),
        permissions=PermissionSettings(mode="bypass"),
        sandbox=SandboxSettings(mode="off"),
        demote=DemoteSettings(above=500),
        state=StateSettings(redact=redact),
    )
    launch = LaunchOptions(
        settings=chosen,
        state=root / "state",
        config_home=root / "config",
        cwd=project,
        environ={"PATH": os.environ["PATH"], "HOME": str(root), **ENVIRON, **environ},
        model=ScriptedModel(list(steps), check=validate),
    )
    loop = open_agent(launch, SessionChoice(), emit=events.append, ask=None)

    async def run() -> None:
        await run_turn(loop, f"my key is {KEY}, and theirs ghp_{lot(36)}")
        await loop.close()

    asyncio.run(run())
    return loop, events


def everything(folder: Path) -> bytes:
    return b"\n".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_the_key_never_reaches_the_disk_the_model_or_an_event(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.keys").write_text(f"A={KEY}\nB={OTHER}\n")
    show = "cat .keys; seq 3000"
    calls = [
        ("Read", {"path": ".keys"}),
        ("Grep", {"pattern": "sk-ant", "path": ".keys"}),
        ("Bash", {"command": show}),
        ("Bash", {"command": show, "run_in_background": True}),
        ("Job", {"action": "wait"}),
        ("Bash", {"command": "python3 - <<'E'\nopen('new','w').write(open('.keys').read())\nE"}),
        ("Edit", {"path": ".keys", "old_string": "B=", "new_string": "C="}),
    ]
    loop, events = work(tmp_path, Step(tools=calls), Step(text="Done."))
    told = json.dumps(loop.model.client.requests[-1].messages) + repr(events)
    for secret, name in ((KEY, "ANTHROPIC_API_KEY"), (OTHER, "DEPLOY_TOKEN")):
        assert secret not in told
        assert mark(name) in told
        for path in (tmp_path / "state").rglob("*"):
            if path.is_file() and "worktree.git" not in path.parts:
                assert secret.encode() not in path.read_bytes(), path
    assert any(isinstance(event, ToolOutput) for event in events)
    assert f"ghp_{lot(36)}" in told  # shapes are taken out on request alone, words never
    # The person's files are theirs: what was edited around the secret still holds it.
    assert (tmp_path / "project/.keys").read_text() == f"A={KEY}\nC={OTHER}\n"


def test_shapes_are_taken_out_on_request_before_anything_is_kept(tmp_path: Path) -> None:
    token, password = f"glpat-{lot(20)}", "pa55-word-of-theirs"
    project = tmp_path / "project"
    project.mkdir()
    (project / ".env").write_text(f"CI_TOKEN={token}\nDB_PASSWORD={password}\n{PEM}\nPORT=80\n")
    (project / "AGENTS.md").write_text(f"Use {token} to deploy.\n")
    calls = [
        ("Read", {"path": ".env"}),
        ("Bash", {"command": "cat .env; seq 3000"}),
        ("Bash", {"command": "cat .env; seq 3000", "run_in_background": True}),
        ("Job", {"action": "wait"}),
    ]
    edits = [
        ("Edit", {"path": ".env", "old_string": f"CI_TOKEN={mark('GitLab token')}",
                  "new_string": "CI_TOKEN=x"}),
        ("Edit", {"path": ".env", "old_string": "PORT=80", "new_string": "PORT=81"}),
        ("Write", {"path": ".env", "content": f"CI_TOKEN={mark('GitLab token')}\nPORT=82\n"}),
    ]  # fmt: skip
    loop, events = work(tmp_path, Step(tools=calls), Step(tools=edits), Step(text="."), redact=True)
    told = json.dumps(loop.model.client.requests[-1].messages) + repr(events)
    kept = everything(tmp_path / "state/projects") + told.encode()
    session = everything(loop.folder)
    for secret in (token, password, lot(64)):
        assert secret not in told
        assert secret.encode() not in session
    assert b"[redacted: private key]" in kept
    results = [e for e in loop.log.entries() if isinstance(e, ToolResult)][-3:]
    assert [result.is_error for result in results] == [True, False, True]
    assert "stands for a secret" in str(results[0].content)
    assert "would take the secret's place" in str(results[2].content)
    left = (project / ".env").read_text()
    assert left == f"CI_TOKEN={token}\nDB_PASSWORD={password}\n{PEM}\nPORT=81\n"
    spooled = (loop.folder / "jobs/job-1.log").read_text()
    assert spooled.endswith("3000\n")
    assert "PORT=80" in spooled


def test_an_export_of_an_older_session_says_less(tmp_path: Path) -> None:
    token = f"glpat-{lot(20)}"
    step = Step(tools=[("Bash", {"command": f"echo {token[:9]}''{token[9:]}; seq 3000"})])
    loop, _ = work(tmp_path, step, Step(text="."))
    assert token.encode() in everything(loop.folder)
    redaction = Redaction({OTHER: "DEPLOY_TOKEN"}, shapes=True)
    for format in ("md", "html", "json"):
        told = export(loop.log.path, format, redact=redaction.clean_entry)  # type: ignore[arg-type]
        assert token not in told, format
        assert "redacted: GitLab token" in told, format


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a [redacted: JWT]", "b", "ends before it or begins after it"),
        ("PORT", "[redacted: JWT]", "nothing was written"),
    ],
)
def test_an_edit_with_a_mark_says_what_to_do(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "f").write_text("a eyJ\nPORT\n")
    edit = EditTool()
    params = edit.Params.model_validate({"path": "f", "old_string": old, "new_string": new})
    with pytest.raises(ToolError, match=said):
        asyncio.run(edit.run(params, Context(cwd=tmp_path)))
    assert (tmp_path / "f").read_text() == "a eyJ\nPORT\n"


def test_a_file_that_speaks_of_marks_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x [redacted: JWT] y\n")
    context = Context(cwd=tmp_path)
    edit, write = EditTool(), WriteTool()
    changed = {"path": "f", "old_string": "[redacted: JWT] y", "new_string": "[redacted: JWT] z"}
    asyncio.run(edit.run(edit.Params.model_validate(changed), context))
    whole = {"path": "f", "content": "[redacted: JWT]\n"}
    asyncio.run(write.run(write.Params.model_validate(whole), context))
    asyncio.run(write.run(write.Params.model_validate({**whole, "path": "new"}), context))
    assert (tmp_path / "f").read_text() == (tmp_path / "new").read_text() == "[redacted: JWT]\n"


# The command


def test_nothing_that_the_command_says_or_leaves_has_the_key(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "cat.txt").write_text(f"{KEY}\n")
    echoed = Fail(401, message=f"invalid x-api-key: {KEY}")
    steps = [
        Say(tools=[("Bash", {"command": "cat cat.txt; env"})]),
        Say("Done."),
        echoed,
    ]
    with Server(steps) as server:
        env = {**place.server(server.url), **ENVIRON}
        flags = ("--permission-mode", "bypass", "--verbose", "-c", "hooks.session_end=cat > ended")
        first = place.run("-p", "go", "--output-format", "stream-json", *flags, env=env)
        second = place.run("-p", "on", "--continue", "--output-format", "json", *flags, env=env)
    assert (first.returncode, second.returncode) == (0, 5)
    assert json.loads(first.stdout.splitlines()[-1])["type"] == "result"
    assert "…" in json.loads(second.stdout)["error"]["message"]
    assert json.loads((place.project / "ended").read_text())["status"] == "error"
    said = first.stdout + first.stderr + second.stdout + second.stderr
    explain = place.run(
        "-c", f"hooks.before_tool=curl -H 'x: {KEY}'", "config", "--explain", env=env
    )
    wrong = place.run("-p", "x", "-c", f"model.effort={KEY}", env=env)
    assert explain.returncode == 0
    assert mark("ANTHROPIC_API_KEY") in explain.stdout
    assert wrong.returncode == 2
    for done in (explain, wrong):
        said += done.stdout + done.stderr
    assert mark("ANTHROPIC_API_KEY") in said
    for secret in (KEY, OTHER):
        assert secret not in said
        for path in place.state.rglob("*"):
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), path
