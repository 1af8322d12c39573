"""A fleet that appears to be running according to its ledger and one log."""

import json
from dataclasses import replace
from pathlib import Path

from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger
from ctxagent.addons.fleet.live import LiveFleet
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult
from ctxagent.agent.session.log import encode_line

AT = "2026-11-21T22:40:58.123Z"
HOSTILE = "<script>document.title='x'</script>" + "a" * 200


def calling(command: str) -> Assistant:
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": command}}
    usage = {"input": 10, "output": 2}
    return Assistant(content=[call], usage=usage, stop_reason="tool_use", model="m", cost_usd=0.5)


RESULT = ToolResult(tool_use_id="c", content="x")


class RunningFleet:
    """A fleet of ten tasks: t0 has failed, t1 runs, the others wait."""

    def __init__(self, root: Path, *, said: str = HOSTILE) -> None:
        path = root / "tasks.jsonl"
        lines = [{"id": f"t{n}", "prompt": "p", "dir": "r"} for n in range(10)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.manifest, self.folder = Manifest(path), FleetFolder.of(path)
        self.log = self.folder.state / "projects" / "p" / "sessions" / "s1" / "log.jsonl"
        self.log.parent.mkdir(parents=True)
        self.ledger = FleetLedger(self.folder)
        self.ledger.begin("t0", "d", "s0", 1)
        ended = AttemptOutcome(0.25, 3, 5, 100, exit_code=1, kind="error", message=said)
        self.ledger.end("t0", "s0", 1, ended)
        self.ledger.begin("t1", "d", "s1", 1, str(self.log))
        self.now, self.is_running = 1_000.0, True

    def say(self, *entries: Entry) -> None:
        with self.log.open("ab") as log:
            log.writelines(encode_line(replace(entry, seq=1, at=AT)) for entry in entries)

    def live(self) -> LiveFleet:
        return LiveFleet(
            self.manifest,
            self.folder,
            is_running=lambda: self.is_running,
            clock=lambda: self.now,
        )
