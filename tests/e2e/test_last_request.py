"""The last request of a session that continues the recording of another agent, read as the model
reads it: every changed file, every open failure and the newest state of each todo item are in it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server, flat
from ..support.sessions.checks import FAILING, PASSED_LATER, PATHS, TODOS, checks
from ..support.sessions.recorded_as import RECORDED_AS
from .test_compact import KEEP_LITTLE, RECORD, kinds


def told(asked: Body) -> str:
    """Return all texts of a request: messages, arguments of calls, and results."""
    return "\n".join(text for _, block in flat(asked) for text in _texts(block))


def _texts(block: Body) -> Iterator[str]:
    given = block.get("input", {})
    for value in (block.get("text"), block.get("content"), *given.values()):
        if value:
            yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def answer(asked: Body) -> Say:
    return Say(RECORD if "about to be compressed" in told(asked) else "It goes on.")


@pytest.mark.slow
@pytest.mark.parametrize(("window", "edit"), [(200_000, ""), (24_000, "mask"), (24_000, "summary")])
@pytest.mark.parametrize("format", RECORDED_AS)
def test_what_the_log_knows_is_in_the_last_request(
    tmp_path: Path, format: str, window: int, edit: str
) -> None:
    place, file = Place(tmp_path), tmp_path / "recording"
    file.write_bytes(RECORDED_AS[format](checks()))
    options = (*KEEP_LITTLE, "--context-window", str(window))
    with Server(answer, window=window, strict=True) as server:
        env = place.server(server.url)
        runs = [("--from-recording", str(file), "-p", "Go on.")]
        if edit == "summary":
            runs += [("compact", "--apply"), ("--continue", "-p", "And now?")]
        for arguments in runs:
            done = place.run(*options, *arguments, env=env)
            assert done.returncode == 0, done.stderr
        assert server.rejected == []
        context = told(server.requests[-1])
    assert {"mask", "summary"} & {*kinds(place)} == ({"mask", edit} if edit else set())
    assert [path for path in PATHS if path not in context] == []
    assert f"{PASSED_LATER}` failed" not in re.sub(r"Failed earlier: .*", "", context)
    flowing = " ".join(context.replace("  | ", " ").split())
    for command, lines in FAILING.items():
        assert (f"{command}` failed (exit 1, #" if edit == "summary" else command) in context
        assert " ".join(lines.split()) in flowing
    for todo in TODOS:
        listed, given = (rf"\b{todo['status']}\W+{todo['content']}",
                         rf"{todo['content']}\W+status\W+{todo['status']}\b")  # fmt: skip
        assert re.search(f"{listed}|{given}", context), todo
