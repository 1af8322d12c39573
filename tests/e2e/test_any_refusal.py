"""A strict server that refuses any of these, with random words or none and a random status: prompts
above a hidden window, thinking, images, one beta feature. Each session ends with its task done.
"""

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import check_log
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.events import TurnFinished
from ctxagent.agent.loop.ladder import CHECK_PROMPT
from ctxagent.agent.session.entries import Assistant

from ..support.server.chat import ChatServer, Dialect
from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.server.wires import WIRES, model_of
from ..support.sessions.conversation import Conversation
from .test_images import png
from .test_mcp import SUMMARY

CAUSES = ("window", "thinking", "images", "beta")
BETAS = {"messages": "cache_control", "chat": "stream_options", "responses": "prompt_cache_key"}
THINKING = {"messages": '"thinking"', "chat": '"reasoning_content"', "responses": '"reasoning"'}
IMAGES = {"messages": '"image"', "chat": '"image_url"', "responses": '"input_image"'}
STATUSES = (400, 404, 409, 413, 418, 422, 500, 501)
STEPS = 20
ACCEPTED_STEPS = 15  # afterwards, the server has the hidden window
WINDOW_CHARS = 36_000
MAX_EXTRA = 4  # other forms of a request for one recovery


def refusal(chance: random.Random) -> Fail:
    """Return an error whose body is the protocol's with random words, only words, or empty."""
    words = "".join(chance.choices(string.ascii_lowercase + " ", k=chance.randint(1, 60)))
    body = chance.choice((None, words, "Bad Request", ""))
    return Fail(chance.choice(STATUSES), words, body=body)


class Refuser:
    """Refuse requests for these causes. The model reads two images and runs commands."""

    def __init__(self, protocol: str, causes: tuple[str, ...], seed: str) -> None:
        self.protocol, self.causes = protocol, causes
        self.server: Server | None = None
        self.refused, self.done = list[str](), 0
        self.extra = list[str]()  # requests since the last accepted one: bodies and checks
        self.recoveries = list[list[str]]()
        self.learned: int | None = None  # the window, if one is remembered
        chance = random.Random(seed)
        self.refusals = {cause: refusal(chance) for cause in causes}

    def cause(self, text: str) -> str:
        has = {
            "window": self.done > ACCEPTED_STEPS and len(text) > WINDOW_CHARS,
            "thinking": THINKING[self.protocol] in text,
            "images": IMAGES[self.protocol] in text,
            "beta": BETAS[self.protocol] in text,
        }
        return next((name for name in self.causes if has[name]), "")

    def __call__(self, body: Body) -> Step:
        assert self.server is not None
        sent = json.dumps(self.server.bodies[-1])
        if cause := self.cause(sent):
            self.refused.append(cause)
            self.extra.append(sent)
            return self.refusals[cause]
        if not body.get("tools"):
            is_check = CHECK_PROMPT in sent
            self.extra += ["check"] if is_check else []
            return Say("OK." if is_check else SUMMARY)
        last = body["messages"][-1]["content"]
        if is_summary_question(last if isinstance(last, str) else str(last[-1].get("text", ""))):
            return Say(SUMMARY)
        self.done += 1
        self.recoveries.append(self.extra)
        self.extra = []
        if self.done > STEPS:
            return Say("All done.")
        if self.done in (2, 5):
            tools: Any = [("Read", {"path": f"shot{self.done}.png"})]
        else:
            tools = [("Bash", {"command": f"seq {self.done}0000 {self.done}2400"})]
        return Say("Next.", thinking=f"Step {self.done}.", tools=tools)


def played(tmp_path: Path, protocol: str, causes: tuple[str, ...], seed: str) -> Refuser:
    script, project = Refuser(protocol, causes, seed), tmp_path / "project"
    project.mkdir()
    for number in (2, 5):
        (project / f"shot{number}.png").write_bytes(png(40, 30 + number))
    with WIRES[protocol](script, lenient=True) as server:
        script.server = server
        if isinstance(server, ChatServer):
            server.dialect = Dialect()
        talk = Conversation(project, model=model_of(server, tmp_path / "state"), policy=DEFAULT)
        assert talk.say("count everything") == TurnFinished("ok", "All done.")
        log = talk.agent.log.path
        turns = [e for e in talk.of(Assistant) if e.purpose == "turn"]
        script.learned = talk.agent.model.client.gaps.window
    assert len(turns) == script.done == STEPS + 1
    assert server.rejected == []
    check = check_log(log)
    assert check.holds, check.first
    return script


SUBSETS = [
    tuple(name for bit, name in enumerate(CAUSES) if number >> bit & 1)
    for number in range(1 << len(CAUSES))
]


@pytest.mark.variants
@pytest.mark.parametrize("causes", SUBSETS[::-1], ids="+".join)
@pytest.mark.parametrize("protocol", [*WIRES])
def test_the_task_is_done(tmp_path: Path, protocol: str, causes: tuple[str, ...]) -> None:
    script = played(tmp_path, protocol, causes, seed=f"{protocol} {causes}")
    assert {*script.refused} <= {*causes}
    assert (script.learned is not None) == ("window" in causes), "what helped is remembered"
    assert not script.recoveries[-1], "what was learned lasts"
    for extra in script.recoveries:
        forms = {*extra}  # a form is sent up to three times if the status may be temporary
        assert len(forms) <= MAX_EXTRA, script.refused
        assert len(extra) <= MAX_EXTRA + 2, script.refused
