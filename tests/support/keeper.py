"""A model that works until it was summarized a number of times, for tests of the context after
summaries.
"""

import os
import signal
import subprocess

from ctxagent.agent.compaction.summary.request import is_summary_question

from .command import Place, comes
from .server.loopback import Body, Say

LIMITS = (
    "--context-window",
    "24000",
    "--model",
    "claude-sonnet-5-5",
    "--permission-mode",
    "bypass",
)
SUMMARY = """## Session Intent
Look after the animals.
## Key Decisions
1. One after another.
## Current State
Phase: part {number}
- Done: the first ones
## Next Steps
1. Go on.
"""


def texts(body: Body) -> list[str]:
    """Return all texts of a request, including those in results."""
    found = list[str]()
    for message in body["messages"]:
        for block in message["content"]:
            content = block.get("content", block.get("text", ""))
            parts = content if isinstance(content, list) else [{"text": content}]
            found += [str(part.get("text", "")) for part in parts]
    return found


def told(body: Body) -> str:
    return "\n".join(texts(body))


class Keeper:
    """Model with bound thinking that calls Bash until it was summarized `until` times and the
    newest summary is in the context.
    """

    def __init__(self) -> None:
        self.queue: list[Say] = []
        self.until = 0
        self.summaries = 0
        self.calls = 0

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY.format(number=self.summaries))
        if self.queue:
            return self.queue.pop(0)
        stands = f"part {self.summaries}" in told(body)  # a prepared summary may be dropped
        if not self.until or (self.summaries >= self.until and stands):
            return Say("All done.", thinking="Done.")
        self.calls += 1
        command = f"printf 'answer {self.calls}: '; seq -f 'words of it %g' 700"
        return Say(tools=[("Bash", {"command": command})], thinking=f"Thought {self.calls}.")


def of_turns(requests: list[Body]) -> list[Body]:
    return [
        body
        for body in requests
        if not is_summary_question(str(body["messages"][-1]["content"][-1].get("text", "")))
    ]


def kill_in_a_turn(place: Place, env: dict[str, str], keeper: Keeper) -> None:
    """Continue the session and kill the run during its work, after the next summary."""
    before, keeper.until = keeper.summaries, keeper.summaries + 5
    run = place.start(
        "-p", "go on", *LIMITS, "--continue", env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        assert comes(lambda: keeper.summaries > before, 120)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    keeper.until = 0
