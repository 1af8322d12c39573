"""Any sequence of compactions and undos on a realistic log: the API must accept the next request,
including bound thinking, and an undone compaction leaves no trace.
"""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary import request as summary_request
from ctxagent.agent.context import tokens
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.context.window import Window, measure
from ctxagent.agent.session.entries import Mask, Revert, Summary, User

from ..support.server.loopback import check_bound, flat, sign
from ..support.sessions.history import History, called, words

WINDOW = 100_000
LAYERS = ("demote", "microcompact", "truncate")


class Session(History):
    """A log like that of a session with a thinking model: each thinking block is signed over its
    request, and each usage is correct.
    """

    def reply_to_request(self, *blocks: dict[str, Any]) -> None:
        if self.view().items[-1].role == "assistant":
            self.say("Go on.")
        request = self.request()
        sent = list(flat(request))
        signature = sign(sent, "Hm.", request["model"])
        thought = {"type": "thinking", "thinking": "Hm.", "signature": signature}
        usage = {"input": size(sent), "output": tokens.estimate_content([thought, *blocks])}
        self.reply(thought, *blocks, usage=usage)

    def work(self, calls: int, lost: int) -> None:
        """Append a reply with calls. The results of the last `lost` calls are not recorded."""
        uses = [
            called(f"c{len(self.entries)}_{n}", "Bash", {"command": words(20)})
            for n in range(calls)
        ]
        self.reply_to_request({"type": "text", "text": "Next."}, *uses)
        for use in uses[: calls - lost]:
            self.answer(use["id"], words(300))

    def finish(self) -> None:
        self.reply_to_request({"type": "text", "text": "Done."})
        self.entries[-1] = replace(self.entries[-1], stop_reason="end_turn")

    def hide(self, layer: str, picks: list[int]) -> None:
        """Mask some of the results and inputs that may be masked."""
        view = self.view()
        if layer == "truncate":
            targets = [
                {"seq": c.seq, "tool_use_id": c.id, "input": {"command": "[compacted]"}}
                for c in view.calls.values()
            ]
        else:
            targets = [
                {"seq": r.item.seq, "tool_use_id": r.call.id, "stub": f"[#{r.item.seq}]"}
                for r in view.results()
            ]
        if targets:
            self.mask(layer, [targets[pick % len(targets)] for pick in picks])

    def summarize(self, least: int, *, renewed: bool) -> None:
        """Append a summary with the engine's cut."""
        cut = summary_request.find_cut(self.view(), DEFAULT, Window(0, WINDOW), keep_messages=least)
        if cut is not None:
            self.summary(cut.covers, cut.keep_from, list(cut.keep), renewed=renewed)

    def summary(self, covers: list[int], start: int, keep: list[int], *, renewed: bool) -> None:
        text = f"{summary_request.COMPRESSED_MARK}\nSo far."
        self.add(Summary, document={}, text=text, covers=covers, keep_from=start, keep=keep)
        if renewed:
            self.add(User, content="Still here.", source="environment")

    def undo(self, pick: int) -> None:
        """Revert a compaction or a revert."""
        seqs = [e.seq for e in self.entries if isinstance(e, Mask | Summary | Revert)]
        if seqs:
            self.add(Revert, target=seqs[pick % len(seqs)])


def size(sent: list[tuple[str, dict[str, Any]]]) -> int:
    return sum(tokens.estimate_block(block) for _, block in sent)


def said(history: History) -> str:
    return json.dumps(history.request())


numbers = st.integers(0, 50)
progress = st.one_of(
    st.tuples(st.just("say")),
    st.tuples(st.just("work"), st.integers(1, 3), st.integers(0, 1)),
    st.tuples(st.just("finish")),
)
honest = st.one_of(
    st.tuples(st.just("hide"), st.sampled_from(LAYERS), st.lists(numbers, min_size=1, max_size=4)),
    st.tuples(st.just("summarize"), st.integers(1, 5), st.booleans()),
)
acts = st.one_of(
    honest, st.tuples(st.just("summary"), numbers, st.lists(numbers, max_size=3), st.booleans())
)
reverts = st.tuples(st.just("undo"), numbers)


def play(session: Session, step: tuple[Any, ...]) -> None:
    match step:
        case ("say",):
            session.say(words(30))
        case ("work", calls, lost):
            session.work(calls, lost)
        case ("finish",):
            session.finish()
        case ("hide", layer, picks):
            session.hide(layer, picks)
        case ("summarize", least, renewed):
            session.summarize(least, renewed=renewed)
        case ("summary", start, keep, renewed):
            session.summary([2, max(2, start)], start, keep, renewed=renewed)
        case ("undo", pick):
            session.undo(pick)


def begun() -> Session:
    session = Session()
    session.say("Count all the lines.")
    session.work(2, 0)
    return session


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(progress, acts, reverts), max_size=16))
def test_each_request_is_one_the_api_must_accept(steps: list[tuple[Any, ...]]) -> None:
    session = begun()
    for step in steps:
        play(session, step)
        check_bound(session.request())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(progress, acts, reverts), max_size=10), acts)
def test_an_act_undone_leaves_no_trace(steps: list[tuple[Any, ...]], act: tuple[Any, ...]) -> None:
    session = begun()
    for step in steps:
        play(session, step)
    before, count = said(session), len(session.entries)
    play(session, act)
    if len(session.entries) > count:
        done = said(session)
        session.add(Revert, target=count + 1)
        undoing = session.entries[-1].seq
        assert said(session) == before
        session.add(Revert, target=undoing)
        assert said(session) == done
        session.add(Revert, target=count + 1)
    assert said(session) == before


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(progress, acts), max_size=16))
def test_without_reverts_adding_equals_folding(steps: list[tuple[Any, ...]]) -> None:
    session, live = begun(), View()
    for entry in session.entries:
        live.add(entry)
    for step in steps:
        count = len(session.entries)
        play(session, step)
        for entry in session.entries[count:]:
            live.add(entry)
        assert live == fold(session.entries)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(progress, honest, reverts), max_size=12))
def test_the_size_is_known_whatever_was_undone(steps: list[tuple[Any, ...]]) -> None:
    session = begun()
    for step in steps:
        play(session, step)
        true = size(list(flat(session.request())))
        assert abs(measure(session.view(), WINDOW).tokens - true) <= 100 + true * 0.05
