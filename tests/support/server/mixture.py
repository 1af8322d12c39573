"""A model that fills a context with varied content: large and small results, parallel calls,
written files, thinking and text, in an order determined by a seed.

    player = Mixture(150, seed=1)
    with Server(player, bound=True, strict=True, window=24_000, size_of=uneven(0.4)) as server:
        run(server)
    assert server.rejected == []
"""

import random

from ctxagent.agent.compaction.summary.request import QUESTION_START

from .loopback import Body, Say

RECORD = """## Session Intent
Count everything.
## Key Decisions
1. Chose way {0}, because of it.
## Current State
Phase: counting
- Done: step {0}
## Critical Facts
- Fact {0} is true.
## Next Steps
1. Count on.
"""


class Mixture:
    """Model that makes `calls` replies with tool calls, then replies "All done."."""

    def __init__(self, calls: int, seed: int) -> None:
        self.calls, self.done, self.records = calls, 0, 0
        self._random = random.Random(seed)

    def __call__(self, body: Body) -> Say:
        # Behind other words: Chat Completions has all texts of a message in one.
        if QUESTION_START in str(body["messages"][-1]["content"][-1].get("text", "")):
            self.records += 1
            return Say(RECORD.format(self.done))
        if self.done == self.calls:
            return Say("All done.")
        self.done += 1
        chance, number = self._random.random(), self.done
        if chance < 0.5:
            command = f"seq -f 'item %g of {number}' {self._random.choice((10, 150, 600))}"
            return Say("Next.", thinking="Hm. " * 20, tools=[("Bash", {"command": command})])
        if chance < 0.7:
            text = f"line {number}\n" * self._random.choice((5, 150, 500))
            file = {"path": f"f{number}.txt", "content": text}
            return Say("I write.", thinking="So.", tools=[("Write", file)])
        if chance < 0.8:
            commands = (f"seq {self._random.choice((50, 400))}", "false", "cat f*.txt | head -50")
            return Say(thinking="All.", tools=[("Bash", {"command": each}) for each in commands])
        return Say("Talk. " * 100, tools=[("Bash", {"command": "echo ok"})])
