"""Outlined calls in a real session: requests are valid over each protocol, the next run continues
with them, and they can be undone.
"""

from pathlib import Path

import pytest

from ctxagent.agent.compaction.layers.outline import HEADER
from ctxagent.agent.session.entries import Mask
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.loopback import Say
from ..support.server.wires import Wire, over_each_wire

CALLS = 120
WHY = "as it was said before, "


@pytest.mark.variants
@pytest.mark.slow
@over_each_wire
def test_a_long_turn_is_outlined_and_goes_on(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    script = [
        Say(f"Step {n}.", tools=[("Bash", {"command": f"seq {n} {n + 150}  # {WHY * 8}"})])
        for n in range(CALLS)
    ]
    with wire([*script, Say("Done."), Say("Still here.")]) as server:
        env = place.environ(server.variables)
        run = ("--permission-mode", "bypass")
        done = place.run(*run, "-p", "Count. Never touch b.py.", env=env)
        assert done.returncode == 0, done.stderr
        done = place.run(*run, "--continue", "-p", "And now?", env=env)
        assert done.returncode == 0, done.stderr
        last = str(server.requests[-1])
    (log,) = place.logs()
    masks = [e for e in read_log(log).entries if isinstance(e, Mask) and e.layer == "outline"]
    assert masks
    assert HEADER in last
    assert "Count. Never touch b.py." in last
    assert all(f"Step {n}." in last for n in range(CALLS)), "what the agent said stays"
    told = place.run("log", log.parent.name, "--stats").stdout
    assert "outlined" in told
    assert place.run("doctor", log.parent.name).returncode == 0

    taken = place.run("compact", "--undo")
    assert taken.returncode == 0, taken.stderr
    assert "outlined" in taken.stdout
