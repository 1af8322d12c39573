"""Make the contexts that the program would send at the end of a recorded session.

Each context comes from the real engine, which plays the recording with the policy of a preset. The
window of each is chosen so that about half of the whole context stays.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ctxagent.addons.replay.player import Player, Terms
from ctxagent.agent.compaction.policy import PRESETS, Policy
from ctxagent.agent.context.request import GO_ON_PROMPT, Request
from ctxagent.agent.errors import CtxagentError, ToolError
from ctxagent.agent.models.chat.body import body, parameters
from ctxagent.agent.recordings.recording import Recording
from ctxagent.agent.session.entries import Mask, Summary
from ctxagent.agent.session.search.recall import enable_recall
from ctxagent.tools.base import Context as ToolContext
from ctxagent.tools.recall import RecallParams, RecallTool

MODEL = "llamacpp/qwen2.5-coder"
SYSTEM = (
    "You are a coding agent. Older parts of the conversation may be shortened. Nothing is lost: "
    "Recall returns it."
)
# For contexts with less than the whole conversation, where Recall is offered.
RULE = (
    " If the answer is not in the conversation, do not guess: call Recall with words of the "
    "question as query."
)
WINDOW = 200_000  # tokens, in which nothing is cleared
SHARES = (0.6, 0.75, 0.9, 1.0, 1.3, 2.0)  # windows tried, of the whole context
PAUSE_S = 86_400.0  # before the questions, so that the cache has ended and clearing is cheap
AIM = 0.5  # size of a context, of the whole
MOST_WITHOUT_SUMMARY = 0.85  # a larger context is replaced by one with a summary
MAX_RECALLED_CHARS = 1_750  # of an answer of Recall: about 500 tokens
WHOLE = replace(
    PRESETS["default"], mode="off", move_above=None, line_numbers=True, truncate_at=None
)
POLICIES: dict[str, Policy] = {
    "whole": WHOLE,
    "default": PRESETS["default"],
    "lean": PRESETS["lean"],
    "v5": replace(PRESETS["v5"], clear_above=100),  # 1,000 tokens, in a window of 200,000
    "summary": replace(WHOLE, mode="manual", summarizer="mechanical"),
}


class _Schema(RecallTool):
    is_brief = True


RECALL = _Schema()


@dataclass(frozen=True)
class Context:
    """The messages of a request, and the session that Recall searches."""

    name: str
    messages: tuple[dict[str, Any], ...]  # of the Chat Completions API
    tools: tuple[dict[str, Any], ...]
    tokens: int  # as we estimate them
    window: int
    acts: str  # what was cleared and summarised
    log: Path

    @property
    def texts(self) -> Iterator[str]:
        """The texts of the messages, without the system prompt."""
        for message in self.messages[1:]:
            yield message.get("content") or ""
            for call in message.get("tool_calls", ()):
                yield from map(str, json.loads(call["function"]["arguments"]).values())

    def recall(self, given: Mapping[str, Any]) -> str:
        """Return the answer of the Recall tool, shortened."""
        folder = self.log.parents[2]
        tool = ToolContext(folder, session_dir=self.log.parent)
        enable_recall(tool, folder, self.log)
        try:
            params = RecallParams(**{k: v for k, v in given.items() if v not in ("", None)})
            params.limit = min(params.limit, MAX_RECALLED_CHARS)
            return asyncio.run(RECALL.run(params, tool)).text[: MAX_RECALLED_CHARS + 100]
        except (ToolError, ValidationError, TypeError) as error:
            return f"error: {error}"[:300]


@dataclass
class _LastRequest(Player):
    """Player that keeps the request after the end of the recording."""

    is_summarized: bool = False
    sent: Request | None = None
    size: int = 0
    acts: str = ""
    has_summary: bool = False

    def _open_session(self) -> None:
        super()._open_session()
        # Paths in the project are then shown as in a session of this program.
        self.host.ledger.cwd = self.recording.cwd or "/"

    async def _play_steps(self) -> None:
        await super()._play_steps()
        self.host.clock = (self.host.clock or 0.0) + PAUSE_S
        await self.engine.before_call(turn_start=True)
        if self.is_summarized:
            await self.engine.compact(newest_only=True)
        self.sent, self.size = self.request(), self.host.current_window().tokens
        done = Counter[str]()
        for entry in self.host.log.entries():
            if isinstance(entry, Mask):
                done[entry.layer] += len(entry.targets)
            elif isinstance(entry, Summary):
                done["summary"] += 1
        self.has_summary = bool(done["summary"])
        self.acts = ", ".join(f"{name} {count}" for name, count in done.items() if count)


def contexts(recording: Recording, folder: Path) -> dict[str, Context]:
    """Return all contexts of a recording by name, the whole one first. Their logs are in `folder`,
    which must be empty.
    """
    whole = _context("whole", _play(recording, "whole", WINDOW, folder / "whole"))
    found = {"whole": whole}
    for name in ("default", "lean", "v5"):
        tried = []
        for number, share in enumerate(SHARES):
            place = folder / name / str(number)
            player = _play(recording, name, int(share * whole.tokens) + 1_024, place)
            if player.sent is not None:
                tried.append(player)
        found[name] = _context(name, min(tried, key=lambda each: _distance(each, whole.tokens)))
    found["summary"] = _context(
        "summary", _play(recording, "summary", whole.tokens + 4_096, folder / "summary")
    )
    return found


def _distance(player: _LastRequest, whole: int) -> tuple[bool, float]:
    """Return how far a context is from the aim. One without a summary is better."""
    share = player.size / whole
    return player.has_summary or share > MOST_WITHOUT_SUMMARY, abs(share - AIM)


def _play(recording: Recording, name: str, window: int, folder: Path) -> _LastRequest:
    terms = Terms(name, POLICIES[name], MODEL, window, SYSTEM, (RECALL.schema(),), fills=0)
    player = _LastRequest(recording, terms, folder, is_summarized=name == "summary")
    try:
        asyncio.run(player.run())
    except CtxagentError as error:
        print(f"{recording.name}, {name} in {window:,} tokens: {error}")
    return player


def _context(name: str, player: _LastRequest) -> Context:
    assert player.sent is not None
    made = body(player.sent, parameters(player.sent))
    if made["messages"][-1] == {"role": "user", "content": GO_ON_PROMPT}:
        del made["messages"][-1]  # the question takes its place
    if player.acts:
        made["messages"][0]["content"] += RULE
    log = player.host.log.path
    kept = log.parent.parent / "sessions" / log.parent.name
    kept.parent.mkdir()
    log.parent.rename(kept)
    return Context(
        name=name,
        messages=tuple(made["messages"]),
        tools=tuple(made["tools"]),
        tokens=player.size,
        window=player.terms.window,
        acts=player.acts,
        log=kept / log.name,
    )
