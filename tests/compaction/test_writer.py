"""Summaries by the API or the model: which one is asked, and which answers are unusable."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.document import SummaryFact
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.compaction.summary.request import summary_question
from ctxagent.agent.compaction.summary.writer import SummaryDraft, SummaryWriter, document_of
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.window import Window
from ctxagent.agent.errors import ModelError, ModelUnavailable, PromptTooLong, RequestRejected
from ctxagent.agent.events import Compacted, Delta, Notice, Waiting
from ctxagent.agent.models.base import Abilities, Reply
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.prompts import prompt_text
from ctxagent.agent.session.entries import Assistant, Block, Summary, Usage, User

from ..support.sessions.conversation import Conversation

RECORD = (
    '## Session Intent\nPort the parser.\n\n## User Rules\n- "never edit middle/"\n\n'
    "## Key Decisions\n1. Use SQLite.\n\n## Current State\nPhase: tests\n\n## Critical Facts\n"
    "- The port is 8080.\n\n## Next Steps\n1. Ship it.\n"
)
PARROTED = summary_question(Window(0, 200_000))  # as a weak model answers
BLOCK: Block = {"type": "compaction", "content": RECORD, "signature": "s"}
FEW = replace(DEFAULT, keep_messages=1, keep_tokens=0, clear_when="off")
BY_API = replace(FEW, summarizer="api")
MODEL_ID = "claude-sonnet-5-5"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


class Api(ScriptedModel):
    """A model whose API writes summaries: each answer is a summary or an error."""

    def __init__(self, steps: Sequence[Step], *answers: Block | ModelError) -> None:
        super().__init__(steps, id=MODEL_ID)
        self.answers = list(answers)
        self.asked: list[Request] = []  # for a summary of the API's own

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, makes_blocks=True, takes_blocks=True)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if request.compaction is None:
            async for delta in super().stream(request):
                yield delta
            return
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        yield Reply([answer], "compaction", Usage(input=1_000, output=100), MODEL_ID)


def talked(
    project: Path,
    *answers: Block | ModelError,
    policy: Policy = BY_API,
    steps: Sequence[Step] = (),
) -> Conversation:
    """A conversation of two turns, the first one long. The API answers summary requests with these
    answers, and the model with these steps.
    """
    said = [Step(text="I see. " * 400), Step(text="Done.")]
    model = Api([*said, *steps], *answers)
    talk = Conversation(project, model=model, policy=policy)
    talk.say("Port the parser and never edit middle/.")
    talk.say("Go on.")
    return talk


def compacted(talk: Conversation, **options: Any) -> tuple[Summary, str]:
    """The summary that is made now, and the notices about its author."""
    summary = asyncio.run(talk.agent.engine.compact(**options))
    return summary, talk.seen(Compacted)[-1].detail.partition(" · ")[0]


def told(talk: Conversation) -> list[str]:
    return [event.text for event in talk.seen(Notice)]


def test_the_api_writes_a_signed_summary(project: Path) -> None:
    talk = talked(project, BLOCK)
    talk.agent.model.effort = "high"
    summary, author = compacted(talk)
    assert author == "summary written by the API, signed"
    assert summary.block == BLOCK
    assert told(talk) == []
    document = document_of(summary)
    assert document is not None
    assert document.decisions == ("Use SQLite.",)
    # Beside the block stands only what it does not say.
    assert "Use SQLite" not in summary.text
    (entry,) = (entry for entry in talk.of(Assistant) if entry.purpose == "summary")
    assert talk.seen(Compacted)[-1].cost_usd == entry.cost_usd > 0
    request = talk.model.asked[0]  # type: ignore[attr-defined]
    assert (request.model, request.effort) == (MODEL_ID, "high")
    assert "Critical Facts" in request.compaction
    assert talk.agent.view.items[0].blocks[0] == BLOCK


def test_a_summary_of_the_api_knows_the_one_before(project: Path) -> None:
    talk = talked(project, BLOCK, BLOCK, steps=[Step(text="Read. " * 400), Step(text="Yes.")])
    first, _ = compacted(talk)
    assert first.document["rules"] == [
        {"ref": 2, "text": "Port the parser and never edit middle/."}
    ]
    talk.say("And now?")
    talk.say("And then?")
    second, _ = compacted(talk)
    assert second.document["rules"] == first.document["rules"]
    assert len(talk.model.asked) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "notices"),
    [
        (
            {"type": "text", "text": "no block"},
            [
                "the API's own summary was not usable (there is none, the server stopped with "
                "compaction); the model is asked"
            ],
        ),
        (
            {**BLOCK, "content": "## Session Intent\nPort it.\n"},
            ["the API's own summary was not usable (it lacks "],
        ),
        (ModelUnavailable("overloaded"), []),  # the request to the model shows whether it lasts
    ],
)
def test_where_the_api_fails_the_model_is_asked(
    project: Path, answer: Block | ModelError, notices: list[str]
) -> None:
    talk = talked(project, answer, steps=[Step(text=RECORD)])
    summary, author = compacted(talk)
    assert (author, summary.block) == ("summary written by the model", None)
    assert len(told(talk)) == len(notices)
    assert all(text.startswith(begin) for text, begin in zip(told(talk), notices, strict=True))
    costs = [entry.cost_usd for entry in talk.of(Assistant) if entry.purpose == "summary"]
    assert talk.seen(Compacted)[-1].cost_usd == pytest.approx(sum(costs))


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (FEW, {}), (replace(BY_API, model="other"), {}), (BY_API, {"max_words": 200}),
    ],
)  # fmt: skip
def test_where_the_api_is_not_asked(project: Path, policy: Policy, options: dict[str, Any]) -> None:
    talk = talked(project, policy=policy, steps=[Step(text=RECORD)])
    assert compacted(talk, **options)[1] == "summary written by the model"
    assert talk.model.asked == []  # type: ignore[attr-defined]


def written(talk: Conversation, policy: Policy = FEW, **options: Any) -> SummaryDraft:
    """The draft of a summary up to the newest message."""
    engine: Any = talk.agent.engine
    writer = SummaryWriter(engine.host, policy)
    return asyncio.run(writer.write(engine._find_cut(), emit=talk.events.append, **options))


def test_an_unusable_answer_is_asked_for_again(project: Path) -> None:
    bad = [Step(text="No."), Step(text=RECORD)]
    talk = talked(project, policy=FEW, steps=bad)
    draft = written(talk)
    assert (draft.author, draft.document.intent) == ("model", "Port the parser.")
    costs = [entry.cost_usd for entry in talk.of(Assistant) if entry.purpose == "summary"]
    assert len(costs) == 2
    assert draft.cost_usd == pytest.approx(sum(costs))
    assert told(talk) == []
    assert [event.what for event in talk.seen(Waiting)][-2:] == ["writing a summary", ""]
    first, again = (str(each.messages[-1]["content"]) for each in talk.model.requests[-2:])  # type: ignore[attr-defined]
    assert "could not be used" not in first
    assert "could not be used: it lacks" in again


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([Step(text="No.")] * 2, "it lacks "),
        ([Step(text=RECORD, stop_reason="max_tokens")] * 2, "it was cut off at its limit"),
        ([Step(text=PARROTED)] * 2, "it repeats the question"),
        (
            [Step(text=RECORD.replace("Port the parser.", "unchanged"))] * 2,
            "it lacks Session Intent",
        ),
        ([Step(text="x", error=ModelUnavailable("overloaded"))], "overloaded"),
        ([Step(error=RequestRejected("no", status=400))] * 2, "no"),
    ],
)
def test_without_a_usable_answer_it_is_made_from_the_ledger(
    project: Path, steps: list[Step], problem: str
) -> None:
    talk = talked(project, policy=FEW, steps=steps)
    draft = written(talk)
    assert draft.author == "ledger"
    (text,) = told(talk)
    assert text.startswith(f"the model's summary was not usable ({problem}")
    assert text.endswith("); made from the ledger")
    calls = [entry for entry in talk.of(Assistant) if entry.purpose == "summary"]
    assert draft.cost_usd == pytest.approx(sum(entry.cost_usd for entry in calls))


def test_a_prompt_that_is_too_long_is_summarised_in_chunks(project: Path) -> None:
    steps = [Step(error=PromptTooLong("too long")), *[Step(text=RECORD)] * 9]
    talk = talked(project, policy=FEW, steps=steps)
    draft = written(talk)
    assert draft.author == "model"
    waits = [event.what for event in talk.seen(Waiting)]
    assert "writing a summary, part 1 of 1" in waits
    assert told(talk) == []


def test_another_model_is_asked_for_the_text_alone(project: Path) -> None:
    talk = talked(project, policy=FEW, steps=[Step(text=RECORD)])
    draft = written(talk, replace(FEW, model="claude-haiku-5-5"))
    assert draft.author == "model"
    request = talk.model.requests[-1]  # type: ignore[attr-defined]
    assert request.model == "claude-haiku-5-5"
    assert len(request.messages) == 1


def test_a_policy_without_a_model_asks_none(project: Path) -> None:
    talk = talked(project, policy=FEW)
    draft = written(talk, replace(FEW, summarizer="mechanical"))
    assert (draft.author, draft.cost_usd) == ("ledger", 0)
    assert "Port the parser" in draft.raw_text


@pytest.mark.parametrize("document", [{"intent": 5}, {"decisions": 5}, {"rules": [{}]}])
def test_a_document_that_cannot_be_read_is_none(document: dict[str, Any]) -> None:
    assert document_of(None) is None
    damaged = Summary(document=document, text="So far.", covers=[1, 1], keep_from=2)
    assert document_of(damaged) is None


@pytest.mark.parametrize(
    "copy",
    [
        "- Requirements, exact names, values, commands and error messages",
        "1. what must be repeated: The program keeps the list itself",
        '- <fact> — #<ref> "<words>". A fact without a source counts only as your note',
    ],
)
def test_lines_that_copy_the_question_are_left_out(project: Path, copy: str) -> None:
    host: Any = talked(project, policy=FEW).agent.engine.host
    writer = SummaryWriter(host, FEW)
    marked = RECORD.replace("- The port is 8080.", f"- The port is 8080.\n{copy}")
    facts = writer._read([marked], None)[0].facts
    stays = "must be repeated" in copy  # its first words are the model's own
    assert [each.text for each in facts[:1]] == ["The port is 8080."]
    assert len(facts) == 1 + stays


def test_the_question_has_no_values_that_a_model_could_take_for_facts() -> None:
    assert not re.search(r"\d", prompt_text("summary"))


def test_claims_apply_across_chunks_in_the_order_of_the_log(project: Path) -> None:
    talk = talked(project, policy=FEW)
    rule, lift = "never edit middle/", "middle is free now"
    for words in (f"Port it; {rule}.", f"{lift}, go on"):
        talk.agent.record(User(content=words))
    host: Any = talk.agent.engine.host
    writer = SummaryWriter(host, FEW)
    claim = f'- Rule "{rule}": the user said "{lift}"\n- Fact "port is 8080": it is 9090'
    lifted = f"{RECORD}\n## No Longer True\n{claim}\n".replace(f'- "{rule}"', "None.")
    lifted = lifted.replace("The port is 8080.", "The port is 9090.")

    new, gone = writer._read([RECORD, lifted], None)
    assert (new.rules, new.facts) == ((), (SummaryFact("The port is 9090."),))
    assert [each.section for each in gone] == ["rules", "facts"]
    again, _ = writer._read([RECORD, lifted, RECORD], None)
    assert again.facts == (SummaryFact("The port is 8080."),)
    both = lifted.replace("None.", f'- "{rule}"', 1)  # named and lifted in one answer
    assert writer._read([both], None)[0].rules == ()
    previous = replace(new, facts=(SummaryFact("The port is 8080."),))
    assert [each.text for each in writer._read([lifted], previous)[1]] == ["The port is 8080."]
