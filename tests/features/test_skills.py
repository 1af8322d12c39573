"""Skills: listed, loaded, and inserted again after a summary. `e2e/test_skills.py` tests them with
the real command.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.events import Event, Notice
from ctxagent.agent.extensions.skills import Skill
from ctxagent.agent.features.skills import (
    SKILL_SHARE,
    USES_FILE,
    SkillsFeature,
    SkillSource,
    SkillUses,
)
from ctxagent.agent.loop.interface import IncomingMessage, Turn
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import SKILL, SKILL_LIST, Entry, ToolResult, User
from ctxagent.agent.session.search.recall import enable_recall
from ctxagent.tools.bash import BashParams, BashTool

WALRUS = Skill("walrus", "How to feed a walrus", "Feed it $ARGUMENTS.", Path("/skills/walrus/S.md"))
HERON = Skill("heron", "How to watch a heron", "Stand still.", Path("/skills/heron/S.md"))


class Files:
    """The skills in files, which a test may change."""

    def __init__(self, *skills: Skill) -> None:
        self.skills, self.warnings = {skill.name: skill for skill in skills}, list[str]()
        self.read = 0

    def find(self) -> tuple[dict[str, Skill], list[str]]:
        self.read += 1
        return dict(self.skills), self.warnings


def skills(session: LiveSession, files: Files, uses: SkillUses | None = None) -> SkillsFeature:
    """Return the feature in a session that has recorded its first entries."""
    feature = SkillsFeature(session, SkillSource(files.find, dict(files.skills), uses=uses))
    session.listeners.append(feature.recorded)
    session.tools += feature.tools()
    for entry in feature.first_entries():
        session.record(entry)
    return feature


def say(feature: SkillsFeature, text: str, *, verbatim: bool = False) -> None:
    """Send a message and start its turn."""

    async def run() -> None:
        feature.session.record(User(content=text))
        await feature.message_recorded(IncomingMessage(text, verbatim=verbatim))
        await feature.turn_started(Turn())

    asyncio.run(run())


def users(session: LiveSession, source: str = SKILL) -> list[User]:
    entries = session.log.entries()
    return [each for each in entries if isinstance(each, User) and each.source == source]


def texts(entries: Sequence[Entry]) -> list[str]:
    return [str(each.content) for each in entries if isinstance(each, User)]


def test_a_session_begins_with_the_list(session: LiveSession) -> None:
    skills(session, Files(WALRUS, HERON))
    (listed,) = users(session, SKILL_LIST)
    assert str(listed.content).splitlines()[1:] == [
        "- heron: How to watch a heron", "- walrus: How to feed a walrus",
    ]  # fmt: skip


def test_without_skills_there_is_no_tool_and_no_list(session: LiveSession) -> None:
    feature = skills(session, Files())
    assert feature.tools() == []
    assert session.log.last_seq == 0


def test_the_model_loads_one_after_the_results_of_its_reply(session: LiveSession) -> None:
    feature = skills(session, Files(WALRUS, HERON))
    output = feature.request("walrus")
    assert (output.text, output.details["skill"]["name"]) == ("The skill walrus follows.", "walrus")
    assert feature.request("/plugin:walrus").text == "The skill walrus follows."
    assert users(session) == []
    asyncio.run(feature.step_finished())
    (loaded,) = users(session)
    assert loaded.content == (
        "[The skill walrus. Relative paths in it count from /skills/walrus.]\n\nFeed it $ARGUMENTS."
    )
    known = feature.request("walrus").text
    assert known == f"The skill walrus stands in the context already, as #{loaded.seq}."
    asyncio.run(feature.step_finished())
    assert len(users(session)) == 1


def test_what_the_model_cannot_load(session: LiveSession) -> None:
    secret = replace(HERON, for_model=False)
    feature = skills(session, Files(WALRUS, secret))
    assert feature.request("").text == "- walrus: How to feed a walrus"
    with pytest.raises(ToolError, match=r"no skill 'warlus'\. Is walrus meant"):
        feature.request("warlus")
    with pytest.raises(ToolError, match="heron is for people"):
        feature.request("heron")


def test_a_message_that_begins_with_its_name_loads_a_skill(
    session: LiveSession, events: list[Event]
) -> None:
    feature = skills(session, Files(WALRUS, replace(HERON, for_user=False)))
    for text in ("feed the /walrus", "/heron", "/nothing"):
        say(feature, text)
    say(feature, "/walrus", verbatim=True)
    assert users(session) == []
    say(feature, "/walrus with herrings")
    (loaded,) = users(session)
    assert "$ARGUMENTS in it stands for what the user wrote behind /walrus.]" in str(loaded.content)
    notice = next(event for event in events if isinstance(event, Notice))
    assert notice.text.startswith("skill walrus, ")
    say(feature, "/walrus again")
    assert len(users(session)) == 1
    (again,) = users(session, "notice")
    assert f"stands above as #{loaded.seq}" in str(again.content)


def test_its_rules_allow_calls_until_the_end_of_the_turn(session: LiveSession) -> None:
    session.approval.mode = "ask"
    feature = skills(session, Files(replace(WALRUS, allowed_tools=("Bash(feed:*)",))))
    feed = (BashTool(), BashParams(command="feed walrus"))
    say(feature, "/walrus")
    assert session.approval.judge(*feed).action == "allow"
    session.turn_rules.end()
    assert session.approval.judge(*feed).action == "ask"


def test_only_changes_of_files_are_reported(session: LiveSession, events: list[Event]) -> None:
    files = Files(WALRUS, HERON)
    feature = skills(session, files)
    say(feature, "go")
    assert files.read == 0  # the files were read when the session opened
    say(feature, "go on")
    assert (files.read, len(users(session, SKILL_LIST))) == (1, 1)
    files.skills = {"walrus": replace(WALRUS, description="How to wash a walrus")}
    files.warnings = ["gnu is left out"]
    say(feature, "go on")
    say(feature, "go on")
    assert texts(users(session, SKILL_LIST))[1:] == [
        "Skills that are new or have changed:\n- walrus: How to wash a walrus\n"
        "Skills that are no longer there: heron."
    ]
    assert events == [Notice("warning", "gnu is left out")]


def test_a_long_skill_is_cut_and_kept_in_a_file(session: LiveSession, events: list[Event]) -> None:
    long = replace(WALRUS, body="Feed it herrings. " * 10_000)
    feature = skills(session, Files(long))
    say(feature, "/walrus")
    (loaded,) = users(session)
    assert "[cut here: " in str(loaded.content)
    assert loaded.offloaded is not None
    assert long.body in (session.folder / loaded.offloaded).read_text()
    warning = next(event.text for event in events if isinstance(event, Notice))
    assert f"one skill takes at most {SKILL_SHARE:.0%} of the window" in warning


def test_a_summary_that_drops_them_gives_list_and_text_again(session: LiveSession) -> None:
    enable_recall(session.context, session.folder.parents[1], session.log.path)
    feature = skills(session, Files(WALRUS))
    say(feature, "/walrus")
    (listed,), (loaded,) = users(session, SKILL_LIST), users(session)
    assert feature.reinserted([listed.seq, loaded.seq]) == []
    again_listed, again = feature.reinserted([])
    assert texts([again_listed]) == [listed.content]
    (text,) = texts([again])
    assert text.startswith(f"[The skill walrus, loaded in #{loaded.seq}, still holds.")
    assert text.endswith("Feed it $ARGUMENTS.")


def test_a_skill_that_a_kill_left_unrecorded_is_loaded_with_the_next_message(
    session: LiveSession,
) -> None:
    files = Files(WALRUS)
    output = skills(session, files).request("walrus")
    session.record(ToolResult(tool_use_id="c1", content=output.text, details=output.details))
    resumed = skills(session, files)
    assert users(session) == []
    say(resumed, "go on")
    assert len(users(session)) == 1


def test_the_skill_that_was_loaded_last_is_listed_first(
    session: LiveSession, tmp_path: Path
) -> None:
    uses = SkillUses(tmp_path / "state")
    assert uses.read() == {}
    feature = skills(session, Files(WALRUS, HERON), uses)
    say(feature, "/walrus")
    assert set(uses.read()) == {"walrus"}
    assert feature.request(None).text.splitlines()[0].startswith("- walrus")
    path = tmp_path / "state" / USES_FILE
    for broken in ("{", "[]", json.dumps({"walrus": "now"})):
        path.write_text(broken)
        assert uses.read() == {}
