"""The user's messages stay, whatever the summaries say and whatever is done to the session.

Any list of messages (languages, lengths, pastes, images) and any sequence of summaries, undo,
rewind, fork, kill and resume: in the next request each message that fits the budget is verbatim;
each other one is named by its ref, with the rules that a summary named in it.
"""

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxagent.addons.replay.player import scratch_folder
from ctxagent.agent.compaction.history import last_acts
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import Request, build_request
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.errors import CompactionFailed
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.checkpoints import rewind_points
from ctxagent.agent.session.entries import Content, Summary, User
from ctxagent.agent.session.store import Project, content_text
from ctxagent.tools.todo import TodoTool

from ..support.sessions.conversation import Conversation
from ..support.sessions.truths import FRAME_TOKENS

WINDOW = 20_000
BUDGET = 2_000  # a tenth of the window
# The scripted model sends each word as an event, so these are written as one.
LEAST_REPLY = "TheWorkGoesOn,StepByStep,AndNothingOfItIsWorthAWord. " * 120
ANSWERS: dict[str, Callable[[str], str]] = {
    "useless": lambda said: "",
    "wrong": lambda said: "The user said nothing. All is done.",
    "empty": lambda said: " ",
    "rule": lambda said: f'## User Rules\n- "{_line(said)}"\n- "Nobody has ever said this."\n',
    "lift": lambda said: f'## No Longer True\n- Rule 1 "{_line(said)}": it was lifted\n',
    "contrary": lambda said: (
        f"## Critical Facts\n- Never: {_line(said)}\n- Always: {_line(said)}\n"
    ),
}
FRAME = (
    "## Session Intent\nSomething.\n## Key Decisions\nNone.\n## Current State\nPhase: on\n"
    "## Next Steps\nNone.\n"
)


def _line(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "")[:200]


def png() -> str:
    """A picture of one white pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\xff\xff")
    data = chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


SENTENCES = st.sampled_from(
    (
        "Do not add dependencies to server/setup.py.",
        "Do not add dependencies to client/setup.py.",
        "Keep functions under 40 lines.", "60 lines are fine.",
        "Ask me before you run a migration.",
        "Fass legacy/ nicht an.", "Du darfst legacy/ wieder ändern.", "不要修改 area1/。",
        "لا تلمس المجلد.", "कृपया परीक्षण चलाएँ।", "Go on.", "", "</message>", "## Next Steps",
    )
)  # fmt: skip
PASTES = st.sampled_from(
    ("```\nERROR: config must not be empty\n```", "> quoted\n> twice", "x\n" * 900)
)
TEXTS = st.one_of(
    st.lists(st.one_of(SENTENCES, PASTES), min_size=1, max_size=4).map("\n".join),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=3_000),
).filter(lambda text: bool(text.strip()))
ACTS = st.one_of(
    st.tuples(st.just("say"), TEXTS),
    st.tuples(st.just("say"), TEXTS),
    st.tuples(st.just("image"), TEXTS),
    st.tuples(st.just("compact"), st.sampled_from((*ANSWERS, "refused", "down"))),
    st.tuples(st.sampled_from(("uncompact", "rewind", "fork", "kill", "interrupt")), TEXTS),
)


class Session:
    """A session that is opened again and again; `said` is the newest message."""

    def __init__(self, cwd: Path) -> None:
        self.cwd, self.copies, self.kind, self.said = cwd, 0, "useless", ""
        self.open()

    def open(self) -> None:
        policy = replace(DEFAULT, keep_messages=1, keep_tokens=0, clear_when="off")
        self.talk = Conversation(
            self.cwd, self.reply, tools=[TodoTool()], window=WINDOW, policy=policy,
            session=f"s{self.copies}",
        )  # fmt: skip

    def reply(self, request: Request) -> Step:
        texts = [str(b.get("text", "")) for m in request.messages for b in m["content"]]
        if not texts[-1].startswith("The context of this session is about to be compressed"):
            return Step(text=LEAST_REPLY)
        if self.kind in ("refused", "down"):
            return Step(text="No.", stop_reason="refusal")
        text = ANSWERS[self.kind](self.said)
        return Step(text=text if self.kind == "empty" else FRAME + text)

    def do(self, act: str, text: str) -> None:
        agent = self.talk.agent
        if act == "say":
            self.say(text)
        elif act == "image":
            source = {"type": "base64", "media_type": "image/png", "data": png()}
            self.say([{"type": "text", "text": text}, {"type": "image", "source": source}])
        elif act == "interrupt":
            self.talk.interrupted_at(text, lambda event: True)
        elif act == "compact":
            self.kind = text
            with suppress(CompactionFailed):
                asyncio.run(agent.engine.compact())
        elif act == "uncompact":
            if last_acts(agent.log.entries()):
                agent.engine.uncompact(agent.log.entries())
        elif act == "kill":
            agent.log.close()
            with agent.log.path.open("ab") as file:
                file.write(b'{"v": 1, "se')
            self.open()
        else:
            points = [point.seq for point in rewind_points(agent.log.entries()) if point.seq]
            if act == "fork" or points:
                self.copy(None if act == "fork" else points[len(text) % len(points)])

    def say(self, words: Content) -> None:
        self.said = content_text(words)
        asyncio.run(run_turn(self.talk.agent, words))

    def copy(self, upto: int | None) -> None:
        log = self.talk.agent.log
        log.close()
        if log.path.exists() and log.last_seq:
            copy = Project(self.cwd.parent / "copies", self.cwd).fork(log.path, upto)
            self.copies += 1
            copy.parent.rename(log.path.parent.with_name(f"s{self.copies}"))
        self.open()


def check(session: Session) -> None:
    """Hold the next request against the messages in the log."""
    made = build_request(session.talk.agent.view, model="m", max_tokens=1_000)
    request = "\n".join(str(b.get("text", "")) for m in made.messages for b in m["content"])
    messages: list[tuple[int, str]] = []
    rules: dict[int, list[str]] = {}
    for entry in session.talk.entries():
        if isinstance(entry, User) and entry.source == "person":
            messages.append((entry.seq, content_text(entry.content)))
    standing = session.talk.agent.view.summary
    for rule in standing.document["rules"] if isinstance(standing, Summary) else ():
        rules.setdefault(rule["ref"], []).append(rule["text"])
    size = sum(estimate(text) + FRAME_TOKENS for _, text in messages)
    for seq, text in messages:
        if text in request:
            continue
        assert size > BUDGET, f"#{seq} is not verbatim: {text[:200]!r}"
        assert re.search(rf"#{seq}\b", request), f"#{seq} is not named"
        for rule in rules.get(seq, ()):
            assert rule in request, f"#{seq}: the rule is gone: {rule!r}"


@pytest.mark.full
@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTS, min_size=3, max_size=14))
def test_every_message_of_the_user_stays(acts: list[tuple[str, Any]]) -> None:
    with scratch_folder() as folder:
        (folder / "p").mkdir()
        session = Session(folder / "p")
        for act, text in (("say", "Begin."), *acts):
            session.do(act, text)
        session.say("What did I say?")
        check(session)
        session.talk.agent.log.close()
