"""Permission for a call: rules, features and the user decide, in this order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Answer, Question
from ctxagent.agent.loop.feature import Feature, ToolCall, Veto
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Note, ToolResult

from ..support.sessions.conversation import Conversation, answering


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    return folder


def called(
    project: Path, tool: str, given: dict[str, Any], *answers: Answer, **options: Any
) -> tuple[Conversation, list[Question]]:
    """One call of the model, with these answers of the user."""
    ask, questions = answering(*answers)
    talk = Conversation(
        project,
        [Step(tools=[(tool, given)]), Step(text="done")],
        mode=options.pop("mode", "ask"),
        ask=ask if answers else None,
        **options,
    )
    talk.say("go")
    return talk, questions


def notes(talk: Conversation) -> list[Note]:
    return [note for note in talk.of(Note) if note.topic == "permission"]


def result(talk: Conversation) -> ToolResult:
    (found,) = talk.of(ToolResult)
    assert isinstance(found, ToolResult)
    return found


def bash(command: str) -> dict[str, Any]:
    return {"command": command}


def test_what_rules_allow_is_not_asked_about(project: Path) -> None:
    talk, questions = called(
        project, "Bash", bash("touch b"), Answer(False), allow=["Bash(touch:*)"]
    )
    assert questions == notes(talk) == []
    assert not result(talk).is_error
    assert (project / "b").exists()


def test_what_rules_deny_is_not_asked_about(project: Path) -> None:
    talk, questions = called(project, "Bash", bash("touch b"), Answer(True), deny=["Bash(touch:*)"])
    assert questions == []
    assert result(talk).content.startswith("Not allowed: `touch b` is denied by the rule")
    assert result(talk).details["denied"]
    (note,) = notes(talk)
    assert note.text == "not authorised: Bash touch b"
    assert note.data == {
        "answer": "", "rule": "Bash(touch:*)", "asked": True,
        "reason": "`touch b` is denied by the rule Bash(touch:*)",
    }  # fmt: skip
    assert not (project / "b").exists()


def test_a_question_tells_what_it_is_about(project: Path) -> None:
    talk, (question,) = called(project, "Bash", bash("touch b"), Answer(True))
    assert (question.tool, question.title, question.input) == ("Bash", "touch b", bash("touch b"))
    assert (question.rule, question.reason) == ("Bash(touch:*)", "`touch b` may change something")
    assert question.offers == ("Bash(touch:*)", "Bash(touch b)", "Bash")
    assert question.diff is None
    assert not question.may_be_sandboxed
    assert question.call
    assert question.check("Bash(touch:*)") == ""
    assert "no command will be asked about" in question.check("Bash")
    assert question.settled() is None
    assert not result(talk).is_error
    assert (project / "b").exists()
    (note,) = notes(talk)
    assert note.text == "allowed: Bash touch b"
    assert note.data == {"answer": "yes", "rule": "", "where": "", "reason": ""}


def test_a_question_about_an_edit_shows_the_change(project: Path) -> None:
    given = {"path": "b.txt", "content": "new\n"}
    _, (question,) = called(project, "Write", given, Answer(True))
    assert "+new" in (question.diff or "")
    assert (project / "b.txt").read_text() == "new\n"


def test_an_answer_for_the_session_is_kept(project: Path) -> None:
    ask, questions = answering(Answer(True, rule="Bash(touch:*)", where="session"))
    steps = [Step(tools=[("Bash", bash(f"touch {name}"))]) for name in "bc"]
    talk = Conversation(project, [*steps, Step(text="done")], mode="ask", ask=ask)
    talk.say("go")
    assert len(questions) == 1
    assert talk.agent.approval.rules()["session"] == ["Bash(touch:*)"]
    (note,) = notes(talk)
    assert note.data["answer"] == "always"
    assert (note.data["rule"], note.data["where"]) == ("Bash(touch:*)", "session")
    assert (project / "c").exists()


def test_a_call_that_the_user_declines(project: Path) -> None:
    talk, _ = called(project, "Bash", bash("touch b"), Answer(False, reason="Use a.txt."))
    assert result(talk).content == "The user declined this call. They say: Use a.txt."
    assert result(talk).details["declined"]
    assert result(talk).details["reason"] == "Use a.txt."
    (note,) = notes(talk)
    assert (note.data["answer"], note.data["reason"], note.data["asked"]) == (
        "no",
        "Use a.txt.",
        True,
    )
    bare, _ = called(project, "Bash", bash("touch b"), Answer(False), session="t")
    assert result(bare).content == "The user declined this call."
    assert "reason" not in result(bare).details
    assert not (project / "b").exists()


def test_a_call_that_nobody_can_be_asked_about(project: Path) -> None:
    talk, _ = called(project, "Bash", bash("touch b"))
    assert "and nobody can be asked in this run. Do without it" in result(talk).content
    (denial,) = talk.agent.handle.denials
    assert (denial.tool, denial.title, denial.rule, denial.asked) == (
        "Bash",
        "touch b",
        "Bash(touch:*)",
        False,
    )
    assert notes(talk)[0].data["asked"] is False


def test_the_mode_may_change_while_a_question_waits(project: Path) -> None:
    for mode, allow, text in (
        ("plan", False, "Not allowed: plan mode is on"),
        ("bypass", True, ""),
    ):
        talk: Conversation

        async def ask(question: Question, mode: Any = mode, allow: bool = allow) -> Answer:
            talk.agent.approval.mode = mode  # noqa: B023
            settled = question.settled()
            assert settled is not None
            assert settled.allow is allow
            return settled

        steps = [Step(tools=[("Bash", bash(f"touch {mode}"))]), Step(text="done")]
        talk = Conversation(project, steps, mode="ask", ask=ask, session=mode)
        talk.say("go")
        assert result(talk).content.startswith(text)
        assert (project / mode).exists() is allow
        if allow:
            assert notes(talk)[0].data["answer"] == "not needed"


def test_a_file_that_leads_elsewhere_since_it_was_asked_about(project: Path) -> None:
    async def ask(question: Question) -> Answer:
        (project / "b.txt").symlink_to("a.txt")
        return Answer(True)

    given = {"path": "b.txt", "content": "new\n"}
    steps = [Step(tools=[("Write", given)]), Step(text="done")]
    talk = Conversation(project, steps, mode="ask", ask=ask)
    talk.say("go")
    assert result(talk).content.startswith("Not done: since it was asked about, ")
    assert result(talk).content.endswith(" Call it again.")
    assert (project / "a.txt").read_text() == "alpha\n"


def test_an_edit_that_must_fail_is_not_asked_about(project: Path) -> None:
    given = {"path": "a.txt", "old_string": "missing", "new_string": "x"}
    _, questions = called(project, "Edit", given, Answer(True))
    assert questions == []


class Changing(Feature):
    """A feature that changes or prevents calls."""

    change: Mapping[str, Any] | None = None
    veto = ""

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any] | None:
        if self.veto:
            raise Veto(self.veto)
        return self.change


def changed(
    project: Path,
    change: Mapping[str, Any] | None,
    *answers: Answer,
    veto: str = "",
    **options: Any,
) -> tuple[Conversation, list[Question]]:
    ask, questions = answering(*answers)
    steps = [Step(tools=[("Bash", bash("touch b"))]), Step(text="done")]
    talk = Conversation(project, steps, mode="ask", ask=ask, **options)
    feature = Changing(talk.agent.handle)
    feature.change, feature.veto = change, veto
    talk.agent.features.add(feature)
    talk.say("go")
    return talk, questions


def test_a_feature_may_change_a_call_which_is_judged_again(project: Path) -> None:
    talk, (question,) = changed(project, bash("touch c"), Answer(True))
    assert (question.title, question.rule) == ("touch c", "Bash(touch:*)")
    assert (project / "c").exists()
    assert not (project / "b").exists()
    denied, questions = changed(
        project, bash("rm a.txt"), Answer(True), deny=["Bash(rm:*)"], session="t"
    )
    assert questions == []
    assert "is denied by the rule Bash(rm:*)" in result(denied).content
    assert (project / "a.txt").exists()
    wrong, _ = changed(project, {"nothing": 1}, Answer(True), session="u")
    assert result(wrong).content.startswith("Bash was not run, its arguments are wrong:")
    assert talk is not wrong


def test_a_feature_may_prevent_a_call(project: Path) -> None:
    talk, questions = changed(project, None, Answer(True), veto="not on Fridays")
    assert questions == []
    assert result(talk).content == "Not allowed: not on Fridays"
    (note,) = notes(talk)
    assert (note.data["answer"], note.data["reason"]) == ("hook", "not on Fridays")
    assert not (project / "b").exists()
