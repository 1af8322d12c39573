"""`ctxagent acp` with a third-party client: the npm package acpx, which uses the protocol's
TypeScript library. Skipped without npm or without a registry.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..support.command import COMMAND, PATIENCE, Place
from ..support.machine import needs
from ..support.of_others import ACPX, installed
from ..support.server.loopback import Say, Server

pytestmark = [needs("npm"), pytest.mark.full]

STEPS = [
    Say("I look.", thinking="Hm.", tools=[("Bash", {"command": "echo made > made"})]),
    Say(tools=[("Write", {"path": "new.txt", "content": "new\n"})]),
    Say("All is well."),
]


def run(
    config: pytest.Config, place: Place, url: str, *options: str, code: int = 0
) -> list[dict[str, Any]]:
    """Run one prompt that ends with this exit code. Return all protocol messages in order."""
    done = subprocess.run(
        [
            str(installed(config) / ACPX),
            "--agent", f"{COMMAND} -c sandbox.mode=off acp",
            "--cwd", str(place.project), "--format", "json", *options, "exec", "do it",
        ],
        env={**os.environ, **place.server(url)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
def test_a_prompt_with_permissions(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    place = Place(tmp_path)
    with Server(STEPS) as server:
        messages = run(pytestconfig, place, server.url, "--approve-all")
    assert server.rejected == []
    assert (place.project / "made").read_text() == "made\n"
    assert (place.project / "new.txt").read_text() == "new\n"
    updates = [m["params"]["update"] for m in messages if m.get("method") == "session/update"]
    chunks = [u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(chunks) == "I look.All is well."
    (diff,) = [
        part
        for update in updates
        if update.get("status") == "completed"
        for part in update.get("content", [])
        if part["type"] == "diff"
    ]
    assert diff == {"type": "diff", "path": str(place.project / "new.txt"), "newText": "new\n"}
    assert messages[-1]["result"] == {"stopReason": "end_turn"}


def test_denied_call_does_not_run(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    place = Place(tmp_path)
    with Server(STEPS) as server:
        run(pytestconfig, place, server.url, "--deny-all", code=5)
    assert server.rejected == []
    assert not (place.project / "made").exists()
    assert "declined" in str(server.requests[-1]["messages"])
