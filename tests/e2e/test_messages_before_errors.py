"""In a small window, the old errors of a summary give up room before the user's messages do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from .test_compact import KEEP_LITTLE, RECORD
from .test_stream_input import STREAM

WINDOW = "16000"
# Together a little more than their budget of a tenth of the window.
SAID = [f"Message {n}: part {n} and what it needs, " + "and more. " * 6 for n in range(40)]
FAILED = 12  # of the first messages, each with a check that fails


def answer(asked: Body) -> Say:
    last = "\n".join(str(block.get("text", "")) for block in asked["messages"][-1]["content"])
    if "about to be compressed" in last:
        return Say(RECORD)
    found = re.search(r"^Message (\d+): ", last, re.MULTILINE)
    if found and int(found[1]) < FAILED:
        return Say(tools=[("Bash", {"command": f"sh check.sh {found[1]}"})])
    return Say("It goes on.")


def summaries(place: Place) -> list[dict[str, Any]]:
    return [entry for entry in place.entries() if entry["kind"] == "summary"]


@pytest.mark.slow
def test_no_message_becomes_a_bare_ref_while_old_errors_are_long(tmp_path: Path) -> None:
    place = Place(tmp_path)
    line = "FatalError: part $1 is missing in the sum of all parts"
    lines = "".join(f'echo "{line}, {n} of it"\n' for n in range(6))
    (place.project / "check.sh").write_text(f"{lines}exit 3\n")
    said = "".join(json.dumps({"type": "user", "text": text}) + "\n" for text in SAID)
    with Server(answer, window=int(WINDOW), strict=True) as server:
        env = place.server(server.url)
        options = (*KEEP_LITTLE, "--context-window", WINDOW, "--permission-mode", "bypass")
        done = place.run(*options, *STREAM, stdin=said, env=env)
        assert done.returncode == 0, done.stderr
        done = place.run(*options, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        done = place.run(*options, "--continue", "-p", "Go on.", env=env)
        assert done.returncode == 0, done.stderr
        context = json.dumps(server.requests[-1]["messages"])
        assert server.rejected == []
    assert [text for text in SAID if text.strip() not in context] == []
    assert "Messages without room here" not in context
    told = summaries(place)[-1]["document"]["errors"]
    assert 0 < "\n".join(told).count("FatalError") < 6 * FAILED
    named = set(re.findall(r"#\d+", "\n".join(told)))
    failures = [
        entry["seq"]
        for entry in place.entries()
        if entry["kind"] == "tool_result" and entry["details"].get("exit_code") == 3
    ]
    assert len(failures) == FAILED
    assert [ref for ref in failures if f"#{ref}" not in named] == []
