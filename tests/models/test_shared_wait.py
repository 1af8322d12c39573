"""A shared wait: if a server asks one agent to wait, all agents wait."""

import os
import time
from pathlib import Path

import pytest

from ctxagent.agent.events import Retrying
from ctxagent.agent.models.shared_wait import MAX_SHARED_WAIT_S, OTHERS_WAIT, SharedWait

from ..support.server.loopback import Fail, Say, Server
from .test_model import connect, play


@pytest.mark.slow
def test_a_wait_of_one_agent_applies_to_another(tmp_path: Path) -> None:
    file = tmp_path / "wait"
    with Server([Fail(429, headers={"retry-after": "0.2"}), Say("One."), Say("Two.")]) as server:
        play(connect(server.url, shared_wait=SharedWait(file)))
        SharedWait(file).extend(0.3)
        seen = play(connect(server.url, shared_wait=SharedWait(file)))
    (told,) = (each for each in seen if isinstance(each, Retrying))
    assert told.reason == OTHERS_WAIT
    assert seen[-1].content[0]["text"] == "Two."
    assert len(server.requests) == 3


def test_the_longest_wait_counts_and_one_of_a_wrong_clock_does_not(tmp_path: Path) -> None:
    wait = SharedWait(tmp_path / "wait")
    assert wait.seconds_left() == 0
    wait.extend(40)
    wait.extend(1)
    assert wait.seconds_left() > 30
    later = time.time() + 10 * MAX_SHARED_WAIT_S
    os.utime(tmp_path / "wait", (later, later))
    assert wait.seconds_left() == 0
    wait.extend(40)
    assert wait.seconds_left() > 30


def test_a_file_that_cannot_be_made_keeps_nobody_from_asking(tmp_path: Path) -> None:
    missing = SharedWait(tmp_path / "no folder" / "wait")
    missing.extend(30)
    assert missing.seconds_left() == 0
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    SharedWait(tmp_path / "link").extend(30)
    assert not (tmp_path / "precious").exists()
