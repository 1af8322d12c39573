"""The same work over each wire protocol, and over two in one session: more than fifty calls in a
small window, with images, summaries, server faults, a kill and an interrupt.
"""

import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest

from ctxagent.agent.models.providers import CHAT, MESSAGES, RESPONSES

from ..support.command import PATIENCE, Place, comes
from ..support.server.faults import NEVER, OVER_ANY_WIRE, Faults
from ..support.server.loopback import Body, Say, uneven
from ..support.server.mixture import Mixture
from ..support.server.wires import WIRES
from .test_images import png

CALLS = 50
WINDOW = 16_000
OPTIONS = (
    "--permission-mode", "bypass", "--context-window", str(WINDOW), "--max-tokens", "2000",
    "--model",
)  # fmt: skip


class Work:
    """A mixture of calls, some of which read an image. Once after a third of them it streams
    slowly, and once after two thirds a command waits forever.
    """

    def __init__(self, calls: int, seed: int) -> None:
        self.mixture = Mixture(calls, seed)
        look = Say(tools=[("Read", {"path": "shot.png"})])
        self.instead = {
            **dict.fromkeys(range(9, calls, 9), look),
            calls // 3: Say("word " * 60, deltas=60, pace=0.1),
            2 * calls // 3: Say(tools=[("Bash", {"command": "touch waiting; sleep 600"})]),
        }

    def __call__(self, body: Body) -> Say:
        before = self.mixture.done
        step = self.mixture(body)
        is_call = self.mixture.done > before
        return self.instead.pop(self.mixture.done, step) if is_call else step


@pytest.mark.variants
@pytest.mark.parametrize(
    "names",
    [*([name] * 3 for name in WIRES), [CHAT, RESPONSES, CHAT], [MESSAGES, CHAT, MESSAGES]],
    ids=lambda names: " ".join(dict.fromkeys(names)),
)
def test_the_same_work(tmp_path: Path, names: list[str]) -> None:
    """Nothing is refused, no call of a broken reply runs, and all requests can be rebuilt."""
    place = Place(tmp_path)
    (place.project / "shot.png").write_bytes(png(640, 400))
    plan = Faults(Work(CALLS, seed=3), rate=0.15, seed=3, kinds=OVER_ANY_WIRE)
    with ExitStack() as stack:
        options = {"strict": True, "window": WINDOW, "size_of": uneven(0.4)}
        servers = {
            name: stack.enter_context(WIRES[name](plan, bound=name == MESSAGES, **options))
            for name in {*names}
        }
        first, second, third = (servers[name] for name in names)

        told = [variable for each in servers.values() for variable in each.variables.items()]
        env = place.environ(dict(told))
        with (
            place.start(*OPTIONS, first.model, "-p", "Count @shot.png", env=env) as killed,
            first.halted_after("word word"),
        ):
            killed.kill()
        again = ("--continue", "-p", "Go on.", *OPTIONS)
        with place.start(*again, second.model, env=env, stderr=PIPE) as stopped:
            assert comes((place.project / "waiting").exists, PATIENCE)
            stopped.send_signal(signal.SIGINT)
            _, errors = stopped.communicate(timeout=PATIENCE)
        assert stopped.returncode == 130, errors
        done = place.run(*again, third.model, env=env)
        assert (done.returncode, done.stdout) == (0, "All done.\n"), done.stderr
        checked = place.run("replay", env=env)
        examined = place.run("doctor", env=env)
    for server in servers.values():
        assert [message for message, _ in server.rejected] == []
    entries = place.entries()
    replies = [entry for entry in entries if entry["kind"] == "assistant"]
    assert len(replies) > CALLS
    assert {entry["request"]["protocol"] for entry in replies if "request" in entry} == {*names}
    kinds = Counter(entry.get("layer", entry["kind"]) for entry in entries)
    assert kinds["summary"] >= 3
    assert sum("image" in (entry.get("details") or {}) for entry in entries) > 3
    assert plan.count.total() > 5
    assert not (place.project / NEVER).exists()
    assert examined.returncode == 0, examined.stdout
    count = f"{len(replies)} of {len(replies)}"
    assert f"Our own sessions: {count} requests rebuilt byte for byte\n" in checked.stdout, checked
