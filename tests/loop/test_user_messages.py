"""User messages: their images, their files, and changes by features."""

import asyncio
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import RecordError
from ctxagent.agent.events import Notice, UserSaid
from ctxagent.agent.features.attachments import AttachmentsFeature
from ctxagent.agent.launch import AttachedData
from ctxagent.agent.loop.interface import Feature, IncomingMessage, Veto
from ctxagent.agent.loop.turn import run_turn, split_images
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Content, User

from ..support.sessions.conversation import Conversation


def test_a_message_that_went_to_a_file_is_recalled_whole_and_its_rules_count(
    tmp_path: Path,
) -> None:
    prose = "The module reads its input and writes a table. " * 900
    long = f"Port the parser.\n\n{prose}\n\nNever edit middle/.\n\n{prose}"
    record = (
        '## Session Intent\nPort it.\n\n## User Rules\n- "never edit middle/"\n\n'
        "## Key Decisions\nNone.\n\n## Current State\nPhase: on\n\n## Next Steps\nNone.\n"
    )
    steps = [Step(text="Read it. " * 900), Step(text="Done."), Step(text=record)]
    policy = replace(DEFAULT, keep_messages=1, keep_tokens=0)
    talk = Conversation(tmp_path, steps, window=24_000, policy=policy)
    talk.say(long)
    talk.say("Go on.")
    (first, _) = (entry for entry in talk.of(User) if entry.source == "person")
    assert first.offloaded
    assert "Never edit middle/." not in str(first.content)
    recalled = talk.agent.context.recall(first.seq)
    assert recalled is not None
    assert recalled.whole() == long
    summary = asyncio.run(talk.agent.engine.compact())
    assert summary.document["rules"] == [{"ref": first.seq, "text": "Never edit middle/."}]
    assert 'Never edit middle/."' in summary.text


class Editor(Feature):
    """Changes messages or vetoes them, and stores recorded messages."""

    name = "editor"

    def __init__(self, talk: Conversation, given: "str | Veto | None" = None) -> None:
        super().__init__(talk.agent)
        self.given, self.recorded_messages = given, list[IncomingMessage]()
        talk.agent.features.add(self)

    async def message_received(self, message: IncomingMessage) -> Content | None:
        if isinstance(self.given, Veto):
            raise self.given
        return self.given

    async def message_recorded(self, message: IncomingMessage) -> None:
        self.recorded_messages.append(message)


def test_a_message_that_a_feature_changed_keeps_what_was_typed(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")])
    editor = Editor(talk, "Feed the walrus.")
    talk.say("feed it")
    (message,) = talk.of(User)
    assert (message.content, message.details) == ("Feed the walrus.", {"typed": "feed it"})
    assert talk.seen(UserSaid) == [UserSaid("Feed the walrus.", False)]
    assert [each.content for each in editor.recorded_messages] == ["Feed the walrus."]


def test_a_message_that_no_feature_changed_has_no_details(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")])
    Editor(talk)
    talk.say("feed it")
    assert talk.of(User)[0].details == {}


def test_a_message_that_a_feature_refuses_is_not_recorded(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="fine")])
    editor = Editor(talk, Veto("not on a Sunday"))
    finished = talk.say("feed it")
    assert finished.status == "error"
    assert finished.error == {"type": "Veto", "message": "not on a Sunday"}
    assert talk.of(User) == []
    editor.given = None
    assert talk.say("look at it").status == "ok"


def test_a_message_in_the_middle_of_a_turn_is_marked(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")])
    editor, later = Editor(talk), ["and the heron"]
    data = AttachedData(b"a log")
    asyncio.run(
        run_turn(
            talk.agent, "feed it", lambda: later.pop() if later else None, attached=[data],
            verbatim=True,
        )
    )  # fmt: skip
    assert [
        (each.content, each.attached, each.verbatim, each.mid_turn)
        for each in editor.recorded_messages
    ] == [("feed it", (data,), True, False), ("and the heron", (), True, True)]


def test_a_refused_message_in_the_middle_of_a_turn_ends_nothing(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")])
    editor, later = Editor(talk), ["and the heron"]

    def next_message() -> str | None:
        editor.given = Veto("not on a Sunday")
        return later.pop() if later else None

    finished = asyncio.run(run_turn(talk.agent, "feed it", next_message))
    assert finished.status == "ok"
    assert [entry.content for entry in talk.of(User) if entry.source == "person"] == ["feed it"]
    notices = [event.text for event in talk.events if isinstance(event, Notice)]
    assert notices == ["your message was not sent: not on a Sunday"]


def test_images_are_taken_out_of_a_message_as_attachments() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(b"png").decode()}
    image = {"type": "image", "source": source}
    text = {"type": "text", "text": "What is it?"}
    assert split_images("words") == ("words", [])
    assert split_images([text]) == ([text], [])
    attached = AttachedData(b"png", title="an image", name="Image")
    assert split_images([text, image]) == ("What is it?", [attached])
    assert split_images([image, image]) == ("[2 images]", [attached] * 2)


def test_unhandled_attachments_are_reported(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")] * 2)
    attachments = talk.agent.features.find(AttachmentsFeature)
    assert attachments is not None
    talk.agent.features.drop(attachments)
    asyncio.run(run_turn(talk.agent, "see it", attached=[AttachedData(b"a log")]))
    text = "the message was sent without its attachments: no active feature handles them"
    assert talk.seen(Notice) == [Notice("warning", text)]
    asyncio.run(run_turn(talk.agent, "and again"))
    assert len(talk.seen(Notice)) == 1


def test_a_large_message_that_cannot_be_kept_ends_the_turn(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")])
    talk.agent.open()
    (talk.agent.folder / "offloaded").write_text("a file stands where the folder should be")
    with pytest.raises(RecordError, match=f"cannot save the message in {talk.agent.folder}: "):
        talk.say("word " * 60_000)
    assert talk.model.requests == []  # type: ignore[attr-defined]


def test_a_message_may_be_as_long_as_the_window_allows(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="ok")] * 2)
    talk.say("word " * 820)  # 4,100 characters
    talk.say("word " * 60_000)
    assert [entry.offloaded is None for entry in talk.of(User)] == [True, False]
    assert talk.seen(UserSaid)[1].text == "word " * 60_000
