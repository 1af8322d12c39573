"""The interface of the agent for the compaction engine."""

import asyncio
import hashlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import REPEATED
from ctxagent.agent.events import TextDelta
from ctxagent.agent.loop.compaction_host import CompactionHost
from ctxagent.agent.loop.repeated_text import CHECKED_CHARS, MIN_RECORD_CHARS
from ctxagent.agent.models.base import Reply, text_of
from ctxagent.agent.models.catalog import cache_terms, cost
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Checkpoint, Session, Usage, User

from ..support.sessions.conversation import Conversation

MODEL = "claude-haiku-5-5"  # above 100,000 tokens five times as much
CALL = {"type": "tool_use", "id": "c", "name": "Read", "input": {"path": "a.txt"}}


@pytest.fixture
def talk(project: Path) -> Conversation:
    found = Conversation(project, model=ScriptedModel([Step(text="So far.")], id=MODEL))
    found.agent.open()
    found.agent.record(User(content="read it"))
    return found


def host(talk: Conversation) -> CompactionHost:
    return CompactionHost(talk.agent)


def ask(talk: Conversation) -> Reply:
    request = build_request(talk.agent.view, model=MODEL, max_tokens=1_000)
    return asyncio.run(host(talk).ask_model(request, "summary"))


def test_the_engine_sees_the_parts_of_the_agent(talk: Conversation) -> None:
    agent, found = talk.agent, host(talk)
    agent.model.effort = "high"
    assert (found.view, found.ledger, found.folder) == (agent.view, agent.ledger, agent.folder)
    assert (found.effort, found.model_id, found.emit) == ("high", MODEL, agent.emit)
    assert found.current_window() == agent.model.current_window()
    assert found.takes_images()
    agent.model.images_setting = "off"
    assert not found.takes_images()
    assert not found.has_compaction()


def test_the_prices_are_those_of_the_model(talk: Conversation) -> None:
    found = host(talk)
    assert found.cache_terms() == cache_terms(MODEL)
    assert (found.price_factor(1_000), found.price_factor(150_000)) == (1, 5)
    assert found.call_cost_usd(1_000, 10) == cost(MODEL, Usage(cache_read=1_000, output=10))
    talk.model.id = "unknown"
    assert found.call_cost_usd(1_000, 10) is None


def test_an_answer_is_recorded_with_its_purpose_and_shown_to_nobody(talk: Conversation) -> None:
    answer = ask(talk)
    assert text_of(answer.content) == "So far."
    (entry,) = talk.of(Assistant)
    assert (entry.purpose, entry.content) == ("summary", answer.content)
    assert talk.seen(TextDelta) == []


@pytest.mark.parametrize(
    "line", ["The file was read and the tests were run. ", "- `src/types.ts`\n", "1234567890 "]
)
def test_a_summary_that_repeats_itself_is_stopped(project: Path, line: str) -> None:
    """Also in lists and numbers, which replies may repeat for longer."""
    script = ScriptedModel([Step(text=1_000 * line)], id=MODEL)
    talk = Conversation(project, model=script)
    talk.agent.open()
    talk.agent.record(User(content="read it"))
    reply = ask(talk)
    assert reply.stop_reason == REPEATED
    assert len(text_of(reply.content)) <= 2 * len(line)
    (entry,) = talk.of(Assistant)
    assert entry.usage["output"] < MIN_RECORD_CHARS + 2 * CHECKED_CHARS


def test_the_cache_is_cold_after_its_life(talk: Conversation) -> None:
    found, life = host(talk), cache_terms(MODEL).life
    assert found.cache_is_cold()
    talk.agent.model.last_calls[MODEL] = time.time() - life / 2
    assert not found.cache_is_cold()
    talk.agent.model.last_calls[MODEL] = time.time() - 2 * life
    assert found.cache_is_cold()


def test_a_user_was_away_if_the_cache_of_this_model_has_expired(talk: Conversation) -> None:
    found, life, calls = host(talk), cache_terms(MODEL).life, talk.agent.model.last_calls
    talk.agent.has_user = True
    assert not found.user_was_away(), "nothing was asked yet"
    calls[MODEL] = time.time() - life / 2
    assert not found.user_was_away()
    calls[MODEL] = time.time() - 2 * life
    assert found.user_was_away()
    talk.agent.has_user = False
    assert not found.user_was_away()
    talk.agent.has_user, talk.model.id = True, "other"
    assert not found.user_was_away()


def test_the_replies_of_an_earlier_process_keep_the_cache_warm(talk: Conversation) -> None:
    talk.agent.record(Session(id="s", cwd="/", version="0", model=MODEL))
    talk.agent.record(Assistant(content=[], usage={}, stop_reason="end_turn", model=MODEL))
    assert not host(talk).cache_is_cold()
    talk.model.id = "other"  # which has a cache of its own
    assert host(talk).cache_is_cold()


def test_a_checkpoint_has_the_trigger_and_the_mode(talk: Conversation) -> None:
    taken = asyncio.run(host(talk).take_checkpoint("half full"))
    assert taken is not None
    assert taken == talk.of(Checkpoint)[0]
    assert taken.trigger == "half full"
    assert '"mode": "bypass"' in (talk.agent.folder / taken.path).read_text()


def test_files_and_entries_are_read_as_they_are(talk: Conversation, project: Path) -> None:
    (project / "a.txt").write_text("alpha")
    found = host(talk)
    assert found.file_sha256(str(project / "a.txt")) == hashlib.sha256(b"alpha").hexdigest()
    assert found.file_sha256(str(project / "b.txt")) is None
    recalled = found.recall([2, 999])
    assert [*recalled] == [2]
    assert "read it" in recalled[2].whole()


def test_the_notes_of_the_project_are_preserved(talk: Conversation, project: Path) -> None:
    rules = talk.agent.policy.rules
    (project / rules.notes).parent.mkdir(parents=True, exist_ok=True)
    (project / rules.notes).write_text("## Decision Log\n\n- Walruses are counted twice.\n")
    sections = host(talk).preserved_sections()
    assert "Walruses are counted twice" in str(sections)


def test_secrets_are_removed_from_words(talk: Conversation) -> None:
    assert host(talk).redact("go on") == "go on"
    talk.agent.log.redact = lambda entry: (  # type: ignore[method-assign]
        replace(entry, content="[key]") if isinstance(entry, User) else entry
    )
    assert host(talk).redact("key-1234") == "[key]"


def test_features_hear_of_summaries_and_may_veto_them(talk: Conversation) -> None:
    event = {"trigger": "manual"}
    assert asyncio.run(host(talk).before_summary(event)) is None
    asyncio.run(host(talk).after_summary(event))
    assert talk.hooks.seen[-2:] == [("before_compact", event), ("after_compact", event)]
    talk.hooks.veto = "not on a Sunday"
    assert asyncio.run(host(talk).before_summary(event)) == "not on a Sunday"
    (again,) = host(talk).reinserted(())
    assert isinstance(again, User)
    assert again.content == "Still here."
