"""The scope of the task, and whether calls have anything in common with it."""

from typing import Any

from ctxagent.agent.compaction.document import FileRow, ReadRow, SummaryDocument
from ctxagent.agent.compaction.drift.scope import TaskScope, agreed_plan, all_terms
from ctxagent.agent.session.entries import Block
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History

ASKED = "Fix the login timeout in src/auth/session.py and cover refresh tokens with tests."
DOCUMENT = SummaryDocument(
    intent=ASKED, modified=(FileRow("src/auth/session.py", "modified", "timeout from settings"),),
    read=(ReadRow("src/auth/tokens.py"),), decisions=("Hash tokens with SHA-256",),
    next_steps=("Handle expired tokens",),
)  # fmt: skip


def ledger() -> Ledger:
    history = History()
    history.say(ASKED)
    for path in ("src/auth/session.py", "src/auth/tokens.py"):
        history.call("Read", {"path": path}, "x", details={"path": path})
    found = Ledger()
    for entry in history.entries:
        found.add(entry)
    return found


def scope(*words: str) -> TaskScope:
    return TaskScope(DOCUMENT, ledger(), words or (ASKED,))


def call(name: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": "t", "name": name, "input": arguments}


def bash(command: str) -> Block:
    return call("Bash", command=command)


def write(path: str, content: str = "x") -> Block:
    return call("Write", path=path, content=content)


def unrelated(known: TaskScope, *calls: Block, text: str = "") -> list[str]:
    """The result after these calls, with one reply each."""
    found: list[str] = []
    for each in calls:
        found = known.unrelated_calls(text, [each])
    return found


KITCHEN = [bash(f"cat kitchen/recipe{number}/flour.txt") for number in range(9)]


def test_eight_unrelated_calls_in_a_row() -> None:
    assert unrelated(scope(), *KITCHEN[:7]) == []
    lines = unrelated(scope(), *KITCHEN[:8])
    assert len(lines) == 8
    assert lines[0] == "Bash cat kitchen/recipe0/flour.txt"


def test_a_change_of_a_file_counts_twice() -> None:
    calls = [write(f"kitchen/oven{number}.py") for number in range(4)]
    assert unrelated(scope(), *calls[:3]) == []
    assert len(unrelated(scope(), *calls)) == 4


def test_a_related_call_begins_the_count_again() -> None:
    for related in (
        bash("cat src/auth/other.py"),
        bash("grep -rn refresh lib"),
        call("Read", path="lib/timeout.py"),
        call("Todo", todos=[{"content": "bake"}]),
    ):
        known = scope()
        assert unrelated(known, *KITCHEN[:7], related, *KITCHEN[:7]) == []
        assert unrelated(known, KITCHEN[7]) != []


def test_what_a_related_call_brings_up_is_related_from_then_on() -> None:
    known = scope()
    unrelated(known, bash("cp src/auth/session.py kitchen/recipe/flour.txt"))
    assert unrelated(known, *KITCHEN) == []


def test_neutral_calls_do_not_count() -> None:
    neutral = [
        call("Recall", query="kitchen flour"),
        call("Job", id="kitchen"),
        call("AskUser", questions="kitchen"),
    ]
    assert unrelated(scope(), *neutral * 4) == []
    assert unrelated(scope(), *[bash("ls")] * 9) == []


def test_a_text_that_shares_words_with_the_goal_explains_calls() -> None:
    assert unrelated(scope(), *KITCHEN, text="The login timeout needs this.") == []
    assert unrelated(scope(), *KITCHEN, text="I bake bread.") != []


def test_a_message_of_the_user_begins_the_count_again() -> None:
    known = scope()
    unrelated(known, *KITCHEN[:7])
    known.add_message("go on")
    assert unrelated(known, *KITCHEN[:7]) == []
    assert unrelated(known, KITCHEN[7]) != []
    known = scope()
    known.add_message("Now look after the garden fence and paint everything there.")
    assert unrelated(known, *KITCHEN[:8], *KITCHEN[:7]) == []
    assert unrelated(known, KITCHEN[8]) != []
    known = scope()
    known.add_message("Bake bread with flour in the kitchen.")
    assert unrelated(known, *KITCHEN) == []


def test_one_explained_new_file_can_be_drift() -> None:
    text = "Here comes a wonderful website about cooking dinner."
    page = write("website/index.html", "recipes with garlic butter")
    assert unrelated(scope(), page, text=text) == ["Write website/index.html"]
    assert unrelated(scope(), page) == []
    assert unrelated(scope(), write("website/index.html", "login form"), text=text) == []
    assert unrelated(scope(), call("Read", path="website/index.html"), text=text) == []


def test_a_vague_request_never_drifts() -> None:
    vague = TaskScope(SummaryDocument(intent="do it"), ledger(), ("do it",))
    assert unrelated(vague, *KITCHEN) == []
    foreign = TaskScope(
        SummaryDocument(), ledger(), ("Исправь ошибку входа в систему и добавь проверки",)
    )
    assert unrelated(foreign, *KITCHEN) == []


def test_the_terms_of_several_texts() -> None:
    assert all_terms(["login", "timeout", "a"]) == {"login", "timeo"}
    assert all_terms([]) == set()
    assert agreed_plan(Ledger()) == []


def test_a_command_that_starts_other_work_counts_more() -> None:
    create = bash("npm create astro my-blog; echo x > blogtheme.css")
    written = bash("echo x > blogtheme.css")
    reading = bash("docker ps my-blog")
    assert unrelated(scope(), create) != []
    assert unrelated(scope(), written) == []
    assert unrelated(scope(), written, written) != []
    assert unrelated(scope(), *[reading] * 7) == []
