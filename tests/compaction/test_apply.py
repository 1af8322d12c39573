"""Layers in a conversation: when each layer masks results, and what is recorded and shown."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.layers.apply import LayerRunner
from ctxagent.agent.compaction.layers.layer import RefusedPart
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.events import Compacted
from ctxagent.agent.loop.compaction_host import CompactionHost
from ctxagent.agent.session.entries import Assistant, Content, Mask, ToolResult, User

from ..support.sessions.conversation import Conversation
from .test_images import image

POLICY = replace(DEFAULT.moving_above(1_000), clear_when="off")


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    (tmp_path / "project").mkdir()
    found = Conversation(tmp_path / "project")
    found.agent.open()
    found.agent.record(User(content="go"))
    return found


def layers(talk: Conversation, policy: Policy = POLICY) -> LayerRunner:
    return LayerRunner(CompactionHost(talk.agent), policy)


def read(talk: Conversation, *contents: Content, offloaded: str | None = None) -> None:
    """One reply that reads files with these contents."""
    first = talk.agent.log.last_seq
    ids = [f"c{first + n}" for n in range(len(contents))]
    calls = [
        {"type": "tool_use", "id": id, "name": "Read", "input": {"path": f"{id}.txt"}} for id in ids
    ]
    talk.agent.record(Assistant(content=calls, usage={}, stop_reason="tool_use", model="m"))
    for id, content in zip(ids, contents, strict=True):
        talk.agent.record(ToolResult(tool_use_id=id, content=content, offloaded=offloaded))


def never() -> bool:
    """Nothing fits."""
    return False


def answer(talk: Conversation) -> None:
    said = [{"type": "text", "text": "I see."}]
    talk.agent.record(Assistant(content=said, usage={}, stop_reason="end_turn", model="m"))


def masked(talk: Conversation) -> list[bool]:
    return [result.masked for result in talk.agent.view.results()]


def words(count: int) -> str:
    """A text of about this many tokens."""
    return "word " * count


def test_the_largest_results_of_one_message_go_to_files(talk: Conversation) -> None:
    read(talk, words(900), words(950), words(800), words(700), words(990))
    assert sum(result.size for result in talk.agent.view.results()) > 3_000
    layers(talk).act_first()
    assert masked(talk) == [False, True, False, False, True]
    (mask,) = talk.of(Mask)
    assert mask.trigger == "HOOK-CTX-001: several results in one message"
    assert mask.tokens_after < mask.tokens_before
    files = sorted((talk.agent.folder / "offloaded").iterdir())
    assert [estimate(file.read_text()) for file in files] == [950, 990]
    (event,) = talk.seen(Compacted)
    assert (event.layer, event.refs) == ("demote", 2)
    assert (event.tokens_before, event.tokens_after) == (mask.tokens_before, mask.tokens_after)


def test_results_that_the_model_has_answered_stay(talk: Conversation) -> None:
    read(talk, *[words(990)] * 5)
    answer(talk)
    layers(talk).act_first()
    assert talk.of(Mask) == []
    layers(talk, replace(POLICY, move_above=None)).act_first()
    assert talk.of(Mask) == []


def test_a_result_in_a_file_loses_its_preview(talk: Conversation) -> None:
    reference = "**File:** x\n" + "> preview of it\n" * 900
    read(talk, reference, words(900), offloaded="offloaded/x.md")
    layers(talk).act_first()
    assert masked(talk)[0]
    assert talk.of(Mask)[0].targets[0]["stub"].startswith("**File:** x")
    assert "preview" not in talk.of(Mask)[0].targets[0]["stub"]
    assert not (talk.agent.folder / "offloaded").exists()


def test_a_result_that_cannot_be_kept_stays(talk: Conversation) -> None:
    (talk.agent.folder / "offloaded").write_text("a file stands where the folder should be")
    read(talk, *[words(990)] * 5)
    layers(talk).act_first()
    assert talk.of(Mask) == []


def test_images_are_taken_out_where_the_model_takes_none(talk: Conversation) -> None:
    read(talk, [image()], "text")
    runner = layers(talk)
    runner.act_first()
    assert talk.of(Mask) == []
    talk.agent.model.images_setting = "off"
    runner.act_first()
    assert masked(talk) == [True, False]
    assert not runner.leave_out(RefusedPart("images", "refused"))


def test_old_results_go_when_nothing_else_fits(talk: Conversation) -> None:
    read(talk, words(900))
    answer(talk)
    read(talk, words(800))
    layers(talk).shrink(never, answered_only=True)
    assert masked(talk) == [True, False]
    layers(talk).shrink(never, answered_only=False)
    assert masked(talk) == [True, True]
    assert [mask.trigger for mask in talk.of(Mask)] == ["nothing else fits"] * 2


@pytest.mark.parametrize("silently", [True, False])
def test_a_policy_may_clear_silently(talk: Conversation, silently: bool) -> None:
    read(talk, words(900))
    answer(talk)
    layers(talk, replace(POLICY, clear_silently=silently)).shrink(never, answered_only=True)
    assert masked(talk) == [True]
    assert len(talk.seen(Compacted)) == (not silently)


def test_clearing_is_enough_where_it_leaves_room_for_long(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    talk = Conversation(tmp_path / "project", window=20_000)
    talk.agent.open()
    for _ in range(12):
        read(talk, words(900))
        answer(talk)
    policy = replace(DEFAULT, clear_when="pays", clear_keep=1)
    runner = layers(talk, policy)
    freed = runner.tokens_freed_if_enough()
    assert freed is not None
    assert freed > 5_000
    assert layers(talk, replace(policy, clear_when="off")).tokens_freed_if_enough() is None
    assert not runner.is_enough()  # nothing was found to be due so far
    shutil.rmtree(talk.agent.folder / "offloaded", ignore_errors=True)
