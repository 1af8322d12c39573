"""The engine in a real loop: when each layer runs, what it leaves, and that nothing gets stuck."""

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.document import SummaryDocument, render
from ctxagent.agent.compaction.history import last_acts
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.compaction.summary import request as summary_request
from ctxagent.agent.compaction.summary.writer import SummaryDraft
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request, build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import CompactionFailed, ModelUnavailable, PromptTooLong
from ctxagent.agent.events import CallStarted, Compacted, Notice, TurnFinished
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.catalog import DEFAULT_LIMITS, Limits
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Mask, Pin, Summary, ToolResult, Unpin
from ctxagent.agent.session.log import Log

from ..support.server.validator import validate
from ..support.sessions.conversation import Conversation

RECORD = """## Session Intent
Count all the lines.
## Key Decisions
1. Read one file after another, because they are many.
## Current State
Phase: counting
- Done: the first files
- In progress: the rest
## Critical Facts
- The total so far is 4711.
## Next Steps
1. Read the next file.
"""


def drafted(document: SummaryDocument) -> SummaryDraft:
    """A summary that the user wrote."""
    return SummaryDraft(document, 0.0, "user", render(document))


def asks_for_a_record(request: Request) -> bool:
    last = request.messages[-1]["content"][-1]
    return "about to be compressed" in str(last.get("text", ""))


class Player:
    """Calls Bash `calls` times with outputs of about `size` tokens, then answers. Requests for a
    summary are answered by `record`."""

    def __init__(
        self, calls: int, size: int, record: Callable[[Request], Step] | None = None
    ) -> None:
        self.calls, self.size = calls, size
        self.record = record or (lambda request: Step(text=RECORD))
        self.done = 0
        self.records = 0

    def __call__(self, request: Request) -> Step:
        if asks_for_a_record(request):
            self.records += 1
            return self.record(request)
        if self.done >= self.calls:
            self.done = 0
            return Step(text="All counted.")
        self.done += 1
        command = f"seq -f 'item %g of {self.done}' {self.size // 5}"
        return Step(text=f"Number {self.done}.", tools=[("Bash", {"command": command})])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def play(
    project: Path, player: Player, policy: Policy, *, window: int = 60_000, say: str = "count"
) -> Conversation:
    talk = Conversation(project, player, policy=policy, window=window)
    finished = talk.say(say)
    assert finished == TurnFinished("ok", "All counted."), finished
    return talk


def prompts(talk: Conversation) -> list[int]:
    return [event.tokens for event in talk.seen(CallStarted)]


SUMMARISES_AT = {"default": 0.93, "v5": 0.93, "ctx-001": 0.75, "anchored": 0.85, "ledger": 0.95}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMMARISES_AT)
def test_each_preset_acts_at_its_numbers(project: Path, name: str) -> None:
    policy, window = PRESETS[name], 60_000
    talk = play(project, Player(40, 2_500), policy, window=window)
    at, clears = SUMMARISES_AT[name], {"ctx-001": 0.5, "anchored": 0.85}.get(name, 0.0)
    acts = [entry for entry in talk.entries() if isinstance(entry, Mask | Summary)]
    for before, act in zip([None, *acts], acts, strict=False):
        if isinstance(act, Summary):
            assert act.tokens_before >= at * window
        elif act.trigger == "level" and not (name == "anchored" and isinstance(before, Summary)):
            assert act.tokens_before >= clears * window
    assert max(prompts(talk)) < window * max(at, 0.5)
    first = next(act for act in acts if isinstance(act, Mask) and act.layer == "microcompact")
    told = {act.layer for act in talk.seen(Compacted)}
    assert ("microcompact" in told) == (name != "v5")  # S4: silent cleanup
    if name == "v5":
        assert first.trigger == "every call"
        before = [r for r in talk.of(ToolResult) if r.seq < talk.of(Mask)[0].seq]
        assert len(before) == 4  # the newest three stay, so the fourth result clears the first
        assert [t["seq"] for t in talk.of(Mask)[0].targets] == [before[0].seq]
    if name in ("ctx-001", "anchored"):
        assert first.trigger == "level"
    if name == "anchored":  # S2: compression is forced, what is left is masked beside it
        assert isinstance(acts[acts.index(first) - 1], Summary)


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("window", [16_000, 30_000, 120_000, 400_000])
@pytest.mark.parametrize("name", ["v5", "ledger"])
def test_in_every_window_a_summary_comes_before_clearing_unanswered_results(
    project: Path, name: str, window: int
) -> None:
    policy = replace(PRESETS[name], move_above=None, clear_when="off", truncate_at=None)
    talk = play(project, Player(30, window // 20), policy, window=window)
    acts = [entry for entry in talk.entries() if isinstance(entry, Mask | Summary)]
    assert any(isinstance(act, Summary) for act in acts)
    for act in acts:
        if isinstance(act, Mask):
            answered = max(e.seq for e in talk.of(Assistant) if e.seq < act.seq)
            assert all(target["seq"] < answered for target in act.targets), act


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("name", SUMMARISES_AT)
def test_without_microcompact_each_preset_summarises_at_its_number(
    project: Path, name: str
) -> None:
    policy = replace(PRESETS[name], clear_when="off", truncate_at=None, prepare_at=None)
    talk = play(project, Player(40, 2_500), policy)
    share = SUMMARISES_AT[name]
    summaries = [act for act in talk.seen(Compacted) if act.layer == "summary"]
    assert summaries
    for act in summaries:
        assert share * 60_000 <= act.tokens_before < (share + 0.05) * 60_000
        assert act.tokens_after < 0.5 * 60_000
    assert max(prompts(talk)) < share * 60_000
    if name == "v5":
        summary = talk.of(Summary)[0]
        kept = [e for e in talk.entries() if summary.keep_from <= e.seq < summary.seq]
        view = fold([e for e in talk.entries() if e.seq < summary.seq])
        tail = build_messages([i for i in view.items if i.seq >= summary.keep_from])
        assert kept
        assert 5 <= len(tail) - 1 <= 6  # without the opening that stands for the rest


@pytest.mark.slow
def test_the_stress_setting_triggers_everything_at_a_quarter(project: Path) -> None:
    policy = replace(
        DEFAULT, clear_when="from", clear_from=0.25, truncate_at=0.25, prepare_at=None,
        summarize_at=0.25, keep_share=0.02,
    )  # fmt: skip
    talk = play(project, Player(80, 2_500), policy, window=40_000)
    assert len(talk.of(Summary)) >= 3
    assert {"microcompact", "summary"} <= {act.layer for act in talk.seen(Compacted)}
    assert max(prompts(talk)) < 0.5 * 40_000


@pytest.mark.slow
def test_off_and_remind(project: Path) -> None:
    off = replace(DEFAULT, mode="off")
    talk = Conversation(project, Player(40, 2_500), policy=off, window=40_000)
    finished = talk.say("count")
    assert finished.status == "limit"
    assert finished.error is not None
    assert "The largest parts: #" in finished.error["message"]
    assert talk.of(Mask) == []
    assert "/compact" in str(finished.error["message"])
    assert talk.say("more").status == "limit"  # and still no loop, no request
    calls = len(prompts(talk))
    asyncio.run(talk.agent.engine.compact())
    talk.say("more")
    assert len(prompts(talk)) > calls, "/compact mends it"
    (project.parent / "second").mkdir()
    remind = replace(DEFAULT, mode="remind", clear_when="off", truncate_at=None)
    player = Player(18, 2_500)
    second = Conversation(project.parent / "second", player, policy=remind, window=50_000)
    second.say("count")
    told = [n.text for n in second.seen(Notice) if "/compact" in n.text]
    assert len(told) == 1
    assert second.of(Summary) == []


@pytest.fixture(scope="module")
def summarized(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Request]:
    """The requests of a turn with a summary."""
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    project = tmp_path_factory.mktemp("project")
    talk = play(project, Player(110, 1_000), policy, window=100_000)
    requests: list[Request] = talk.model.requests  # type: ignore[attr-defined]
    return requests


@pytest.mark.slow
def test_the_summary_stands_in_a_user_message_and_the_system_prompt_stays(
    summarized: Sequence[Request],
) -> None:
    requests = summarized
    after = next(
        r for r in requests if "[Conversation compressed]" in json.dumps(r.messages[0]["content"])
    )
    assert after.messages[0]["role"] == "user"
    assert after.messages[0]["content"][0]["text"].startswith("[Conversation compressed]\n")
    assert {json.dumps(r.system) for r in requests} == {json.dumps(requests[0].system)}
    sent = json.dumps(after.messages)
    assert "count" in sent  # the words that were not answered yet
    assert "Still here." in sent  # what must stand after a summary
    assert "The total so far is 4711." in sent


@pytest.mark.slow
def test_the_summary_call_reuses_the_prefix(summarized: Sequence[Request]) -> None:
    requests = summarized
    place = next(n for n, r in enumerate(requests) if asks_for_a_record(r))
    before, asked = bare(requests[place - 1]), bare(requests[place])
    assert asked.startswith(before[: before.rindex("]")])
    assert requests[place].tools == requests[place - 1].tools


def bare(request: Request) -> str:
    text = json.dumps(request.messages)
    return text.replace(', "cache_control": {"type": "ephemeral"}', "")


@pytest.mark.slow
def test_the_transcript_is_on_disk_before_the_summary(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    talk = Conversation(project, Player(30, 2_500), policy=policy, window=60_000)
    folder = talk.agent.log.path.parent
    seen: list[bool] = []
    record = talk.agent.engine.host.record

    def spying(entry: Any) -> Any:
        if isinstance(entry, Summary):
            text = (folder / "conversation.md").read_text()
            seen.append("item 1 of 1" in text and f"#{entry.covers[0]}" in text)
        return record(entry)

    talk.agent.engine.host.record = spying  # type: ignore[method-assign]
    talk.say("count")
    assert seen
    assert all(seen)
    assert (folder / "summary.md").read_text().startswith("[Conversation compressed]")
    assert (folder / "conversation.md").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_prepared_summary_is_applied_without_a_wait(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", truncate_at=None)
    player = Player(30, 2_500)
    talk = Conversation(project, policy=policy)

    def step(request: Request) -> Step:
        """While a summary is written each call takes long, on a busy machine too."""
        ahead = talk.agent.engine.is_preparing and not asks_for_a_record(request)
        return replace(player(request), delay=0.3 if ahead else 0.0)

    talk.use(ScriptedModel(step, check=validate, window=60_000))
    assert talk.say("count").text == "All counted."
    entries = talk.entries()
    assert talk.of(Summary)
    for summary in talk.of(Summary):
        written = [
            e for e in entries
            if isinstance(e, Assistant) and e.purpose == "summary" and e.seq < summary.seq
        ]  # fmt: skip
        assert written
        between = [e.kind for e in entries if written[-1].seq < e.seq < summary.seq]
        assert "tool_result" in between  # the agent went on working after it was written
    assert talk.agent.totals.all.calls == len(prompts(talk)) + player.records
    assert player.records >= len(talk.of(Summary))


@pytest.mark.full
@pytest.mark.slow
def test_pins_and_the_intent_outlive_twenty_summaries(project: Path) -> None:
    """Summaries also merge: each stays below its cap and covers more than the previous one."""
    policy = replace(DEFAULT, clear_when="off", prepare_at=None, summarizer="model")
    count = [0]

    def record(request: Request) -> Step:
        count[0] += 1
        text = RECORD.replace("Count all the lines.", "unchanged" if count[0] > 1 else "Count!")
        return Step(text=text.replace("4711", str(count[0])))

    talk = Conversation(project, Player(190, 2_500, record), policy=policy, window=30_000)
    pins = ["Never touch `data/`:\n  it is shared.", "The total is due on Friday."]
    kept, gone = (
        [talk.agent.record(Pin(text=text)) for text in pins],
        talk.agent.record(Pin(text="…")),
    )
    talk.agent.record(Unpin(ref=gone.seq))
    assert talk.say("count").status == "ok"
    summaries = talk.of(Summary)
    assert len(summaries) >= 20
    section = "\n".join(f"#{pin.seq}: {text}" for pin, text in zip(kept, pins, strict=True))
    assert all(s.text.endswith(f"\n\n## Pinned\n{section}") for s in summaries)
    assert all("## Session Intent\nCount!" in s.text for s in summaries)
    assert all(len(s.text) < 20_000 for s in summaries)
    spans = [s.covers for s in summaries]
    assert all(later[1] > earlier[1] for earlier, later in itertools.pairwise(spans))
    masks = len(talk.of(Mask))
    assert masks < 2 * len(summaries)  # the log grows by a few lines for each
    sent = talk.model.requests[-1].messages[0]["content"][0]["text"]  # type: ignore[attr-defined]
    assert sent == summaries[-1].text


def test_a_long_pin_is_bounded_and_says_where_the_rest_is() -> None:
    text = "".join(f"line {n} of the pinned log\n" for n in range(5_000))
    section = summary_request.pinned_section({42: text})
    shown = section.removeprefix("\n\n## Pinned\n#42: ").removesuffix(" … Recall #42 for the rest")
    assert text.startswith(shown)
    assert 990 <= tokens.estimate(shown) <= 1_000
    assert summary_request.pinned_section({}) == ""
    assert "Pinned" not in summary_request.summary_text(SummaryDocument(), Path("/s"), {})


@pytest.mark.slow
def test_pins_count_for_what_a_summary_would_leave(project: Path) -> None:
    talk = play(project, Player(12, 2_500), DEFAULT, window=200_000)
    before = talk.agent.engine.preview().tokens_after_estimate
    talk.agent.record(Pin(text="word " * 500))
    assert talk.agent.engine.preview().tokens_after_estimate >= before + 500


@pytest.mark.slow
def test_the_gate_after_a_summary_is_recorded(project: Path) -> None:
    talk = play(project, Player(12, 2_500), replace(DEFAULT, clear_when="off"), window=200_000)
    passed = asyncio.run(talk.agent.engine.compact())
    assert passed.probes == {
        "gate": "HOOK-CTX-004", "intent": True, "smaller": True, "within_half": True,
        "tally": {"recall": {"asked": 1, "before": 0, "after": 1}},
        "sections": {"critical": 0, "kept": 0}, "recovery": {"asked": 5, "ok": 5},
        "trajectory": {"asked": 5, "ok": 5},
    }  # fmt: skip
    talk.agent.engine.uncompact(talk.entries())
    aimless = asyncio.run(talk.agent.engine.compact(draft=drafted(SummaryDocument(phase="lost"))))
    assert aimless.probes["intent"] is False


FAILURES = {
    "fails": Step(error=ModelUnavailable("overloaded")),
    "empty": Step(text=" "),
    "refuses": Step(text="I won't.", stop_reason="refusal"),
    "is cut off": Step(text=RECORD, stop_reason="max_tokens"),
    "lacks sections": Step(text="All is well."),
    "calls tools": Step(tools=[("Bash", {"command": "touch no"})]),
    "is too long": Step(text=RECORD + "word " * 30_000),
    "does not fit": Step(error=PromptTooLong("prompt is too long")),
}


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
def test_a_summariser_that_fails_leaves_a_mechanical_summary(project: Path, failure: str) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    player = Player(40, 2_500, lambda request: FAILURES[failure])
    talk = play(project, player, policy)
    assert talk.of(Summary)
    assert "count" in talk.of(Summary)[0].text
    assert max(prompts(talk)) < 60_000
    assert player.records <= 2 * 8 * len(talk.of(Summary))  # bounded: no storm of attempts
    assert any("from the ledger" in n.text for n in talk.seen(Notice))
    assert not (project / "no").exists()


@pytest.mark.slow
def test_a_history_of_five_windows_becomes_usable(project: Path) -> None:
    whole = replace(DEFAULT, clear_when="off", move_above=None)
    first = play(project, Player(40, 4_000), whole, window=900_000)
    first.agent.log.close()
    talk = Conversation(project, Player(2, 500), policy=DEFAULT, window=30_000)
    assert talk.agent.view.size > 4 * 30_000
    assert talk.say("go on").text == "All counted."
    assert max(prompts(talk)) < 30_000


def test_words_larger_than_the_window_go_to_a_file(project: Path) -> None:
    talk = Conversation(project, [Step(text="I see.")], window=30_000)
    words = "".join(f"line {n} of the paste\n" for n in range(30_000))
    assert talk.say(words).text == "I see."
    assert max(prompts(talk)) < 30_000
    file = next((talk.agent.log.path.parent / "offloaded").iterdir())
    assert file.read_text() == words


@pytest.mark.slow
def test_a_prompt_the_server_finds_too_long_is_made_smaller_once(project: Path) -> None:
    sizes: list[int] = []

    def step(request: Request) -> Step:
        size = sum(len(json.dumps(m)) for m in request.messages)
        if asks_for_a_record(request):
            return Step(text=RECORD)
        sizes.append(size)
        if size > 60_000:
            return Step(error=PromptTooLong("too long", tokens=30_000, maximum=21_000))
        return player(request)

    player = Player(30, 2_500)
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    talk = Conversation(project, step, policy=policy, window=200_000)
    assert talk.say("count").text == "All counted."
    assert sum(size > 60_000 for size in sizes) == 1
    assert talk.agent.model.current_window().size == 21_000


def test_a_server_that_always_finds_it_too_long_is_a_clear_end(project: Path) -> None:
    talk = Conversation(project, lambda request: Step(error=PromptTooLong("prompt is too long")))
    finished = talk.say("hello")
    assert finished.status in ("limit", "error")
    assert len(talk.model.requests) <= 4  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_second_summary_within_three_calls_is_not_tried(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None, move_above=None)
    player = Player(12, 11_000)
    talk = Conversation(project, player, policy=policy, window=40_000)
    talk.say("count")
    entries = talk.entries()
    places = [n for n, e in enumerate(entries) if isinstance(e, Summary)]
    assert len(places) >= 2
    for before, after in itertools.pairwise(places):
        calls = [
            e for e in entries[before:after] if isinstance(e, Assistant) and e.purpose == "turn"
        ]
        assert len(calls) >= 3


@pytest.mark.slow
def test_manual_instructions_do_not_leak(project: Path) -> None:
    talk = play(project, Player(12, 2_500), replace(DEFAULT, clear_when="off"), window=200_000)
    summary = asyncio.run(talk.agent.engine.compact("keep the database schema"))
    assert summary.trigger == "manual"
    asked = [r for r in talk.model.requests if asks_for_a_record(r)]  # type: ignore[attr-defined]
    assert "keep the database schema" in json.dumps(asked[-1].messages)
    talk.say("go on")
    sent = json.dumps(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert "keep the database schema" not in sent


@pytest.mark.slow
def test_a_preview_asks_nobody_and_changes_nothing(project: Path) -> None:
    talk = play(project, Player(12, 2_500), DEFAULT, window=200_000)
    before = (talk.kinds(), len(talk.model.requests))  # type: ignore[attr-defined]
    preview = talk.agent.engine.preview()
    assert (talk.kinds(), len(talk.model.requests)) == before  # type: ignore[attr-defined]
    assert preview.tokens_after_estimate < preview.tokens_before
    assert preview.dropped
    assert preview.kept
    seqs = {row[0] for row in preview.kept} | {row[0] for row in preview.dropped}
    assert seqs | {row[0] for row in preview.masked} == {i.seq for i in talk.agent.view.items}


def test_there_may_be_nothing_to_summarise(project: Path) -> None:
    talk = Conversation(project, [Step(text="Hello.")])
    talk.say("hello")
    with pytest.raises(CompactionFailed, match="nothing to summarise"):
        asyncio.run(talk.agent.engine.compact())


@pytest.mark.slow
def test_uncompact_restores_the_request_to_the_byte(project: Path) -> None:
    talk = play(project, Player(12, 2_500), replace(DEFAULT, clear_when="off"), window=200_000)
    before = json.dumps(build_messages(talk.agent.view.items))
    asyncio.run(talk.agent.engine.compact())
    assert json.dumps(build_messages(talk.agent.view.items)) != before
    while True:
        try:
            talk.agent.engine.uncompact(talk.entries())
        except CompactionFailed:
            break
    live = json.dumps(build_messages(talk.agent.view.items))
    assert live == before
    assert json.dumps(build_messages(fold(talk.entries()).items)) == live


@pytest.mark.slow
def test_a_hook_may_veto(project: Path) -> None:
    talk = play(project, Player(12, 2_500), replace(DEFAULT, clear_when="off"), window=200_000)
    talk.hooks.veto = "not on a Friday"
    before = talk.kinds()
    with pytest.raises(CompactionFailed, match="not on a Friday"):
        asyncio.run(talk.agent.engine.compact())
    assert talk.kinds() == before
    talk.hooks.veto = None
    asyncio.run(talk.agent.engine.compact())
    name, event = talk.hooks.seen[-1]
    assert name == "after_compact"
    assert event["trigger"] == "manual"
    assert event["covers"]
    assert Path(event["summary"]).exists()


@pytest.mark.slow
def test_cancelling_a_summary_changes_nothing(project: Path) -> None:
    talk = play(project, Player(12, 2_500), replace(DEFAULT, clear_when="off"), window=200_000)
    before = talk.kinds()

    async def run() -> None:
        asked = asyncio.Event()

        def step(request: Request) -> Step:
            asked.set()
            return Step(text=RECORD, delay=60)

        model = ScriptedModel(step, check=validate)
        talk.use(model)
        task = asyncio.ensure_future(talk.agent.engine.compact())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert talk.kinds() == before


@pytest.mark.slow
def test_several_results_together_go_to_files(project: Path) -> None:
    command = "seq -f 'a line with the number %g' 400"
    talk = Conversation(
        project,
        [Step(tools=[("Bash", {"command": command})] * 14), Step(text="ok")],
        window=200_000,
    )
    assert talk.say("go").status == "ok"
    (mask,) = talk.of(Mask)
    assert mask.layer == "demote"
    assert mask.tokens_after < mask.tokens_before
    for target in mask.targets:
        path = next(line for line in target["stub"].splitlines() if "**File:**" in line)
        assert "number 400" in Path(path.split("**File:** ")[1]).read_text()
    assert max(prompts(talk)) < 45_000


@pytest.mark.slow
def test_recall_returns_the_text_behind_a_stub(project: Path) -> None:
    talk = play(project, Player(12, 2_500), PRESETS["v5"], window=200_000)
    target = talk.of(Mask)[0].targets[0]
    assert f"#{target['seq']}" in target["stub"]
    result = next(e for e in talk.of(ToolResult) if e.seq == target["seq"])
    player = [Step(tools=[("Recall", {"ref": target["seq"]})]), Step(text="Found.")]
    talk.use(ScriptedModel(player, check=validate))
    talk.say("what was that?")
    assert talk.of(ToolResult)[-1].content == result.content


@pytest.mark.slow
def test_an_undone_act_is_not_repeated(project: Path) -> None:
    talk = play(project, Player(24, 2_500), DEFAULT, window=200_000)
    cleared = {t["seq"] for m in talk.of(Mask) for t in m.targets}
    assert cleared
    while any(isinstance(act, Mask) for act in last_acts(talk.entries())):
        talk.agent.engine.uncompact(talk.entries())
    talk.say("again")
    again = {t["seq"] for m in talk.of(Mask)[-1:] for t in m.targets}
    assert not cleared & again


@pytest.mark.slow
def test_a_summary_undone_can_be_made_again_when_nothing_else_fits(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    talk = play(project, Player(25, 2_500), policy, window=60_000)
    talk.agent.engine.uncompact(talk.entries())
    assert talk.say("more").text == "All counted."
    assert max(prompts(talk)) < 60_000


@pytest.mark.slow
def test_a_long_turn_keeps_no_old_summaries_and_renewals(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    talk = play(project, Player(80, 2_500), policy, window=30_000)
    assert len(talk.of(Summary)) >= 6
    sources = [item.source for item in talk.agent.view.items if item.source]
    assert sources == ["summary", "person", "environment"]
    sizes = [summary.tokens_after for summary in talk.of(Summary)]
    assert max(sizes) <= 15_000


class Shy(ScriptedModel):
    """Reveals the size of its window only when asked."""

    def assumed_limits(self) -> Limits:
        return DEFAULT_LIMITS

    async def limits(self) -> Limits:
        await asyncio.sleep(0)
        return super().assumed_limits()


def test_the_first_words_may_be_larger_than_the_window(project: Path) -> None:
    model = Shy([Step(text="I see."), Step(text="Yes.")], check=validate, window=32_000)
    talk = Conversation(project, model=model)
    assert talk.say("some words to paste " * 10_000).text == "I see."
    assert talk.say("and?").text == "Yes."


def test_unanswered_messages_do_not_pile_up(project: Path) -> None:
    down = Step(error=ModelUnavailable("down"))
    paste = "a line of the paste\n" * 1_400
    up = [False]

    def step(request: Request) -> Step:
        if not up[0]:
            return down
        return Step(text=RECORD if asks_for_a_record(request) else "Here.")

    talk = Conversation(project, step, window=32_000)
    for n in range(7):
        talk.say(f"{n} {paste}")
    up[0] = True
    assert talk.say("the last words").text == "Here."
    sent = json.dumps(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert "the last words" in sent
    assert "6 a line of the paste" in (talk.agent.log.path.read_text())


@pytest.mark.slow
def test_an_interrupted_compaction_blocks_nothing(project: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", prepare_at=None)
    slow, asked = [True], asyncio.Event()

    def record(request: Request) -> Step:
        asked.set()
        return Step(text=RECORD, delay=60 if slow[0] else 0)

    player = Player(60, 2_500, record)
    talk = Conversation(project, player, policy=policy, window=40_000)

    async def run() -> TurnFinished:
        turn = asyncio.ensure_future(run_turn(talk.agent, "count"))
        await asked.wait()
        turn.cancel()
        return await turn

    assert asyncio.run(run()).status == "interrupted"
    slow[0] = False
    assert talk.say("go on").text == "All counted."


@pytest.mark.slow
def test_the_largest_accepted_prompt_is_the_window_after_a_refusal_without_numbers(
    project: Path,
) -> None:
    refused = [0]

    def step(request: Request) -> Step:
        if asks_for_a_record(request):
            return Step(text=RECORD)
        if player.done == 8 and not refused[0]:
            refused[0] = 1
            return Step(error=PromptTooLong("request too large", status=413))
        return player(request)

    player = Player(30, 2_500)
    talk = Conversation(project, step, window=60_000)
    assert talk.say("count").text == "All counted."
    learned = talk.agent.model.learned_window
    assert learned.size == learned.accepted < 60_000
    assert talk.say("again").text == "All counted."


def prepared(project: Path, record: Callable[[Request], Step]) -> tuple[Conversation, Player]:
    """A conversation in which a summary is being prepared at the end of its turn."""
    policy = replace(DEFAULT, clear_when="off", truncate_at=None, prepare_at=0.3)
    player = Player(10, 2_500, record)
    return Conversation(project, player, policy=policy, window=60_000), player


@pytest.mark.slow
def test_a_fault_while_preparing_does_not_keep_the_log_open(project: Path) -> None:
    def record(request: Request) -> Step:
        raise ZeroDivisionError

    talk, player = prepared(project, record)

    async def run() -> None:
        await run_turn(talk.agent, "count")
        await talk.agent.close()

    asyncio.run(run())
    assert player.records
    reopened = Log.open(talk.agent.log.path)
    reopened.close()


@pytest.mark.slow
def test_a_manual_summary_while_one_is_prepared(project: Path) -> None:
    talk, _ = prepared(project, lambda request: Step(text=RECORD, delay=0.2))

    async def run() -> set[asyncio.Task[Any]]:
        await run_turn(talk.agent, "count")
        await talk.agent.engine.compact("keep the numbers")
        await run_turn(talk.agent, "more")
        talk.hooks.veto = "no"
        with pytest.raises(CompactionFailed):
            await talk.agent.engine.compact()
        await talk.agent.close()
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(run()) == set()
    assert len(talk.of(Summary)) == 1


@pytest.mark.slow
def test_one_summary_stands_in_the_view(project: Path) -> None:
    """Also if the cut is among the messages that the previous summary kept."""

    def step(request: Request) -> Step:
        return Step(text=RECORD if asks_for_a_record(request) else "Noted. " + "blah " * 120)

    talk = Conversation(project, step, policy=replace(DEFAULT, keep_tokens=3_000))
    for number in range(20):
        talk.say(f"Words number {number}: " + f"text{number} " * 10)
    for _ in range(3):
        said = [item.seq for item in talk.agent.view.items if item.source != "summary"]
        asyncio.run(talk.agent.engine.compact())
        items, summary = talk.agent.view.items, talk.of(Summary)[-1]
        assert [item.seq for item in items if item.source == "summary"] == [summary.seq]
        assert summary.tokens_after == talk.agent.model.current_window().tokens
        first, last = summary.covers
        assert said[0] == first <= last < summary.keep_from
        talk.say("More: " + "more " * 300)
    acts = [event for event in talk.seen(Compacted) if event.layer == "summary"]
    spans = [summary.covers for summary in talk.of(Summary)]
    assert [act.refs for act in acts] == [last - first + 1 for first, last in spans]
    assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))
    hooked = [event for name, event in talk.hooks.seen if name == "after_compact"]
    assert [event["covers"] for event in hooked] == spans
    assert fold(talk.entries()) == talk.agent.view


NOTES = DEFAULT.rules.notes


def noted(project: Path, policy: Policy = DEFAULT) -> Conversation:
    """A conversation of two turns in a project whose notes have a Decision Log."""
    (project / NOTES).parent.mkdir(parents=True, exist_ok=True)
    (project / NOTES).write_text("## Decision Log\n\n- Read one file after another.\n")
    few = replace(policy, keep_messages=1, keep_tokens=0, clear_when="off")
    steps = [Step(text="I see. " * 400), Step(text="Done."), Step(text=RECORD)]
    talk = Conversation(project, steps, policy=few)
    talk.say("Count all the lines.")
    talk.say("Go on.")
    return talk


def warnings(talk: Conversation) -> list[str]:
    return [event.text for event in talk.seen(Notice) if event.level == "warning"]


def test_preserved_sections_missing_after_a_summary_are_reported(project: Path) -> None:
    talk = noted(project)  # whose features put no section back
    asyncio.run(talk.agent.engine.compact())
    text = "1 of 1 preserved section missing from the context; `ctxagent preserve` shows which"
    assert warnings(talk)[-1] == text


@pytest.mark.parametrize(
    ("expected", "written_at", "is_named"),
    [(True, 10**9, True), (False, 10**9, False), (True, 4 * 10**9, False)],
)
def test_an_outdated_decision_log_is_reported(
    project: Path, expected: bool, written_at: int, is_named: bool
) -> None:
    rules = replace(DEFAULT.rules, expected=expected)
    talk = noted(project, replace(DEFAULT, rules=rules))
    os.utime(project / NOTES, (written_at, written_at))
    changes = [{"path": str(project / name), "action": "created"} for name in ("a", "b")]
    talk.agent.record(ToolResult(tool_use_id="c", content="", details={"changes": changes}))
    asyncio.run(talk.agent.engine.compact())
    text = (
        "the Decision Log was not updated, though files were changed: 2. Record your "
        "decisions there"
    )
    assert (text in warnings(talk)) == is_named
