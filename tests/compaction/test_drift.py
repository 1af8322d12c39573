"""Drift: each indicator caught in several forms, and sessions that do not drift left alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ctxagent.agent.compaction.document import FileRow, ReadRow, SummaryDocument
from ctxagent.agent.compaction.drift.detector import (
    MAX_REALIGNMENT_TOKENS,
    SEVERITIES,
    Drift,
    DriftDetector,
    Indicator,
    realignment,
    warning,
)
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.entries import Block, Note, Pin
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History, called

WORDS = "Fix the login timeout in src/auth/session.py and add tests. Never touch migrations/."
DOCUMENT = SummaryDocument(
    intent="Fix the login timeout in src/auth/session.py and add tests for it.",
    modified=(FileRow("src/auth/session.py", "modified", "the timeout is read from the settings"),),
    read=(ReadRow("src/auth/tokens.py", "how a token expires"),),
    decisions=(
        "Use SHA-256 for token hashing (not bcrypt) because tokens are compared",
        "Chose httpx over requests: it is asynchronous",
        "Use threads, not processes",
        "No Redis.",
    ),
    phase="implementation",
    in_progress=("Refresh tokens before they expire",),
    facts=("Not authorised: git push", "Do not modify `pyproject.toml`."),
    errors=("`pytest -q` failed (exit 1, #9):\nE   KeyError: 'TIMEOUT'",),
    next_steps=("Handle the expired token in src/auth/tokens.py", "Cover the timeout with tests"),
)


def session(*words: str) -> History:
    """A session that has read and changed a file, and has a todo list."""
    history = History()
    for text in words or (WORDS,):
        history.say(text)
    history.call(
        "Read", {"path": "src/auth/tokens.py"}, "x", details={"path": "src/auth/tokens.py"}
    )
    edit(history, "src/auth/session.py")
    run(history, "pytest -q tests/auth")
    return history


def edit(history: History, path: str) -> None:
    given = {"path": path, "old_string": "a", "new_string": "b"}
    history.call("Edit", given, "ok", details={"path": path, "added": 1, "removed": 1})


def run(history: History, command: str) -> None:
    history.call("Bash", {"command": command}, "ok", details={"command": command, "exit_code": 0})


def plan(history: History, **items: str) -> None:
    todos = [{"content": text.replace("_", " "), "status": s} for text, s in items.items()]
    history.call("Todo", {"todos": todos}, "ok", details={"todos": todos})


def folded(history: History) -> Ledger:
    ledger = Ledger()
    for entry in history.entries:
        ledger.add(entry)
    return ledger


def watch(document: SummaryDocument = DOCUMENT, history: History | None = None) -> DriftDetector:
    return DriftDetector(document, folded(history or session()))


def say(text: str) -> list[Block]:
    return [{"type": "text", "text": text}]


def call(tool: str, **given: Any) -> list[Block]:
    return [called("t", tool, given)]


def bash(command: str) -> list[Block]:
    return call("Bash", command=command)


def write(path: str, content: str = "x = 1\n") -> list[Block]:
    return call("Write", path=path, content=content)


def told(watch: DriftDetector, *replies: list[Block]) -> list[Drift]:
    """What the watch says of some replies; one without calls ends its turn."""
    found = []
    for blocks in replies:
        final = not any(block["type"] == "tool_use" for block in blocks)
        found += watch.check_reply(blocks, final=final)
        if final:
            watch.turn_ended()
    return found


def indicators(drifts: Sequence[Drift]) -> list[Indicator]:
    return [drift.indicator for drift in drifts]


# Each way to drift

ASKS_AGAIN = (
    "Could you clarify the requirements before I continue?",
    "Which file should I write the sums to?",
    "Could you clarify which file I should use?",
)


@pytest.mark.parametrize("text", ASKS_AGAIN)
@pytest.mark.parametrize(
    "words", ["Add up the numbers of each column and write the sums to a file.", WORDS]
)
def test_asking_again_for_the_task_whatever_is_known_of_files(words: str, text: str) -> None:
    """Also where the session has touched no file yet."""
    history = History()
    history.say(words)
    drifts = told(watch(SummaryDocument(intent=words), history), say(text))
    assert [(drift.indicator, drift.severity) for drift in drifts] == [("clarification", "HIGH")]
    assert indicators(told(watch(), say(text))) == ["clarification"]


@pytest.mark.parametrize(
    "text",
    [
        "What would you like me to do?",
        "Hello! How can I help you today?",
        "I don't have enough context about the earlier work. Could you clarify what the task is?",
        "Could you please provide the error message you are seeing?",
        "I'm ready to continue. Which file would you like me to change?",
        "It seems our conversation was compressed. Could you remind me what we were working on?",
        "Please share the code you want me to look at.",
        "I'm not sure what you want here. Can you tell me which files are involved?",
    ],
)
def test_asking_for_what_is_known(text: str) -> None:
    assert indicators(told(watch(), say(text))) == ["clarification"]


@pytest.mark.parametrize(
    "text",
    [
        "Done.",
        "All tasks are complete.",
        "Everything has been implemented.",
        "I have completed the implementation.",
        "The login timeout has been fully implemented.",
        "There is nothing left to do.",
        "The work is finished. Let me know if you want anything changed.",
    ],
)
def test_declaring_complete_what_is_open(text: str) -> None:
    drifts = told(watch(), say(text))
    assert indicators(drifts) == ["complete"]
    assert "still open: Refresh tokens before they expire" in drifts[0].detection


def test_declaring_complete_with_open_todos() -> None:
    history = session()
    plan(history, Fix_the_login_timeout="completed", Write_the_changelog="pending")
    drifts = told(
        watch(replace(DOCUMENT, in_progress=(), next_steps=()), history), say("All done!")
    )
    assert indicators(drifts) == ["complete"]
    assert "Write the changelog" in drifts[0].detection
    assert "Write" in drifts[0].terms
    assert "changelog" in drifts[0].terms


def test_declaring_complete_after_work_on_something_else() -> None:
    history = session()
    plan(history, Fix_the_login_timeout="completed", Write_the_changelog="pending")
    drifts = told(watch(DOCUMENT, history), bash("pytest -q tests/auth"), say("All done!"))
    assert indicators(drifts) == ["complete"]


def test_declaring_complete_without_the_file_that_was_asked_for() -> None:
    document = SummaryDocument(
        intent="Analyse the timeouts and write a report to docs/timeouts.md."
    )
    history = session(document.intent)
    drifts = told(watch(document, history), bash("grep -rn timeout src"), say("All done."))
    assert indicators(drifts) == ["complete"]
    assert "docs/timeouts.md was never written" in drifts[0].detection


@pytest.mark.parametrize(
    "replies",
    [
        [write(f"blog/{name}.css") for name in ("theme", "header", "footer", "gallery")],
        [
            bash(command)
            for command in (
                "npx create-gatsby blog", "ls blog", "cat blog/gatsby.js", "npm i photoswipe",
                "convert cat.png cat.webp", "cat blog/theme.css", "ls blog/gallery", "npm run blog",
            )
        ],
        [write("blog/theme.css"), bash("ls blog"), bash("cat blog/theme.css"),
         write("blog/gallery.css"), write("blog/footer.css")],
    ],
)  # fmt: skip
def test_working_on_something_unrelated(replies: list[list[Block]]) -> None:
    drifts = told(watch(), *replies)
    assert indicators(drifts) == ["unrelated"]
    assert "blog" in drifts[0].current


@pytest.mark.parametrize(
    ("blocks", "decision"),
    [
        (bash("pip install bcrypt==4.1"), "SHA-256"),
        (bash("cd app && uv add requests"), "httpx"),
        (bash("python3 -m pip install redis"), "No Redis"),
        (write("src/auth/hash.py", "import os\nimport bcrypt\n"), "SHA-256"),
        (write("src/auth/http.py", "from requests.sessions import Session\n"), "httpx"),
        (call("Edit", path="a.js", old_string="x", new_string="r = require('redis')"), "Redis"),
        (say("I'll use bcrypt for the hashes."), "SHA-256"),
        (say("Fine. Let me switch to processes and measure again."), "threads"),
    ],
)  # fmt: skip
def test_going_against_a_decision(blocks: list[Block], decision: str) -> None:
    drifts = watch().check_reply(blocks, final=False)
    assert indicators(drifts) == ["contradiction"]
    assert decision in drifts[0].detection


@pytest.mark.parametrize(
    ("said", "blocks"),
    [
        ("Do not touch migrations/.", write("migrations/0007_tokens.py")),
        ("Please don't edit src/legacy.py or setup.cfg.", write("/setup.cfg")),
        ("Never modify anything under vendor/**, it is generated.", write("vendor/lib/a.py")),
        ("Don't change *.lock files.", bash("sed -i s/a/b/ poetry.lock")),
        ("Leave config.yml alone.", bash("echo x > config.yml")),
        ("Leave `docs/api/` untouched.", bash("cd x && rm -rf docs/api")),
        ("Hands off `docs/api/`.", bash("cd x && rm -rf docs/api")),
        ("schema.sql must not be changed.", bash("git checkout main -- schema.sql")),
        ("The fixtures/ folder is read-only.", bash("mv new.json fixtures/new.json")),
        ("Don't modify the generated folder.", write("src/generated/api.py")),
        ("Never run `npm install`.", bash("cd web && npm install left-pad")),
        ("Do not use sudo.", bash("sudo apt-get update")),
        ("Don't commit.", bash('git add -A && git commit -m "wip"')),
        ("Do not commit or push until I say so.", bash("git -C . push origin HEAD")),
        ("Never push to main.", bash("git push origin main")),
        ("Never force-push.", bash("git push origin x --force")),
        ("Please never deploy.", bash("make deploy")),
        ("Only change src/auth/session.py, please.", write("src/auth/tokens.py")),
        ("Only edit files in src/auth/.", write("src/billing/tax.py")),
    ],
)
def test_breaking_a_constraint(said: str, blocks: list[Block]) -> None:
    """Said by the person and lost in the summary, or kept there as a fact, or pinned."""
    bare = replace(DOCUMENT, facts=())
    lost = watch(bare, session(f"Fix the login timeout. {said}"))
    drifts = lost.check_reply(blocks, final=False)
    assert indicators(drifts) == ["constraint"]
    assert "not in the summary" in drifts[0].detection
    assert said.split(".")[0][:20] in drifts[0].detection

    kept = watch(replace(DOCUMENT, facts=(said,)), session("Fix the login timeout."))
    assert "a critical fact" in kept.check_reply(blocks, final=False)[0].detection

    history = session("Fix the login timeout.")
    history.add(Pin, text=said)
    assert indicators(watch(bare, history).check_reply(blocks, final=False)) == ["constraint"]


@pytest.mark.parametrize(
    ("refused", "blocks"),
    [
        ("Bash git push origin x; rm -rf build", bash("git push origin x; rm -rf build")),
        ("Bash python3 - <<'E' …", bash("python3 - <<'E'\nprint(1)\nE")),
        ("Write /etc/hosts", write("/etc/hosts")),
    ],
)
def test_trying_again_what_was_not_authorised(refused: str, blocks: list[Block]) -> None:
    history = session()
    history.add(Note, topic="permission", text=f"not authorised: {refused}")
    assert indicators(watch(DOCUMENT, history).check_reply(blocks, final=False)) == ["constraint"]
    for why in ("", " · the person said: use make, then ask again"):
        fact = replace(DOCUMENT, facts=(f"Not authorised: {refused}{why}",))
        assert indicators(watch(fact).check_reply(blocks, final=False)) == ["constraint"]


def test_a_call_refused_since_counts_when_it_is_tried_again() -> None:
    history = session()
    ledger = folded(history)
    armed = DriftDetector(DOCUMENT, ledger)
    assert armed.check_reply(bash("make release"), final=False) == []
    ledger.add(Note(seq=99, topic="permission", text="not authorised: Bash make release"))
    assert armed.check_reply(bash("ls src/auth"), final=False) == []
    assert indicators(armed.check_reply(bash("make release"), final=False)) == ["constraint"]


def test_a_constraint_said_after_the_summary_counts_too() -> None:
    armed = watch()
    armed.hear("Stop. Don't touch README.md.")
    assert indicators(armed.check_reply(write("README.md"), final=False)) == ["constraint"]


# What is no drift

REPORT = """The timeout was read once, when the module was loaded.

- `src/auth/session.py` now reads it for each login
- `tests/auth/test_session.py` covers an expired token

All 48 tests pass. Let me know if you want me to change anything else!"""
WORK = [
    [*say("Now the expired token."), *bash("grep -n expire src/auth/tokens.py")],
    call("Edit", path="src/auth/tokens.py", old_string="a", new_string="b"),
    bash("pytest -q tests/auth"),
]
INNOCENT: dict[str, list[list[Block]]] = {
    "a report": [*WORK, say(REPORT)],
    "done after the work": [*WORK, say("Done.")],
    "all complete after the work": [*WORK, say("All tasks are complete.")],
    "a courtesy after work": [*WORK, say("Fixed and tested. What would you like me to do next?")],
    "a courtesy after a command": [
        bash("pytest -q tests/auth"), say("It passes. What would you like me to do next?")
    ],
    "a question after some calls": [
        *[bash(f"grep -n {word} src/auth/session.py") for word in ("a", "b", "c", "d")],
        say("Could you tell me which files production uses?"),
    ],
    "a question after a change": [
        WORK[1], say("Could you tell me which files production uses?")
    ],
    "almost done": [say("Everything is almost done.")],
    "done, and more is named": [say("All done. The expired token is still open, though.")],
    "a question of substance": [say("Should a refresh token live for a day or for a week?")],
    "a question with reasons": [
        say(
            "Both ways work: reading the timeout for each login costs a lookup, reading it once "
            "needs a restart. The settings page promises that changes act at once, which speaks "
            "for the first. Could you clarify which you prefer?"
        )
    ],
    "what is left is named": [say("The timeout part is done. The expired token is still open.")],
    "not all of it": [say("The first step is complete. Next I will handle the expired token.")],
    "a part is done": [[*say("The test is done."), *bash("pytest -q tests/auth")]],
    "seen that it is there": [
        call("Read", path="src/auth/tokens.py"),
        call("Grep", pattern="refresh|expired|timeout", path="tests/auth"),
        say("Everything is already implemented: tokens.py refreshes, the tests cover it."),
    ],
    "reading around": [
        call("Read", path=f"src/auth/{n}.py") for n in ("crypto", "oauth", "saml", "ldap", "otp",
                                                        "mail", "sms", "keys", "roles")
    ],
    "nothing that tells": [bash(c) for c in ("ls", "git status", "git diff", "pwd") * 4],
    "new files, explained": [
        [*say("The login needs a fixture for its timeout."), *write(f"support/{n}.py")]
        for n in ("clock", "mailbox", "browser", "vault", "proxy")
    ],
    "one thing leads to another": [
        bash("grep -rn login_required src"), bash("cat decorators/required.py"),
        *[write(f"decorators/{n}.py") for n in ("caching", "throttle", "audit", "retry", "once")],
    ],
    "a plan of its own": [
        call("Todo", todos=[{"content": "Throttle the gateway", "status": "pending"}]),
        *[write(f"gateway/{n}.py") for n in ("throttle", "bucket", "quota", "window", "burst")],
    ],
    "a decision quoted": [say("We decided against bcrypt, so I'll use SHA-256 as agreed.")],
    "what was ruled out stays out": [say("I'll make sure that we never use bcrypt here.")],
    "what was ruled out goes": [bash("pip uninstall -y bcrypt"), bash("grep -rn bcrypt src")],
    "only a comment": [write("src/auth/hash.py", "# not bcrypt\nimport hashlib")],
    "an import that was there": [
        call("Edit", path="a.py", old_string="import requests\nx", new_string="import requests\ny")
    ],
    "another name": [bash("pip install requests-mock"), write("a.py", "import processes_info")],
    "a forbidden word in a message": [bash("git log --grep 'git push'"), bash("echo 'git push'")],
    "a forbidden file is read": [bash("cat migrations/0001.py"), bash("sed -n 1,9p pyproject.toml"),
                                 call("Read", path="migrations/0001.py")],
    "a file with a like name": [write("docs/migrations.md"), write("src/auth/pyproject_toml.py")],
    "its own worktree": [bash("git add -A"), bash("git stash list"), bash("git fetch origin")],
    "a here-document": [bash("cat > notes/login.txt <<'E'\ngit push\n> migrations/a\nE")],
    "an arrow": [bash("echo 'login -> migrations/a'"), bash("grep -rn 'x => migrations/a' src")],
}  # fmt: skip


@pytest.mark.parametrize("name", INNOCENT)
def test_what_is_no_drift(name: str) -> None:
    assert told(watch(), *INNOCENT[name]) == []


def test_files_beside_the_known_ones_are_related() -> None:
    history = session()
    edit(history, "lib/session.py")
    others = [
        write(f"lib/{name}.py") for name in ("parser", "colour", "matrix", "fourier", "audio")
    ]
    assert told(watch(DOCUMENT, history), *others) == []


def test_a_todo_without_telling_words_may_have_been_done() -> None:
    history = session()
    plan(history, Run_the_tests="pending")
    assert told(watch(DOCUMENT, history), bash("pytest -q tests/auth"), say("All done.")) == []


def test_a_question_that_was_asked_for_is_no_drift() -> None:
    history = session("Fix the login timeout. Ask me before you choose a library.")
    assert told(watch(DOCUMENT, history), say("What would you like me to do about httpx?")) == []


def test_a_question_of_a_later_turn_is_no_drift() -> None:
    armed = watch()
    assert told(armed, *WORK, say(REPORT)) == []
    armed.hear("thanks")
    assert told(armed, say("You're welcome! What would you like me to do next?")) == []


def test_questions_about_what_the_person_says_now_are_no_drift() -> None:
    armed = watch()
    armed.hear("There is another error in production.")
    assert told(armed, say("Could you please provide the error message?")) == []


def test_an_answer_has_no_deliverable() -> None:
    steps = ("Explain the cause", "Tokens of other services")
    document = SummaryDocument(intent="Why does the login time out?", next_steps=steps)
    history = session("Why does the login time out?")
    assert told(watch(document, history), say("The token expires first."), say("Done.")) == []


def test_an_answer_to_new_words_is_held_against_those() -> None:
    armed = watch()
    armed.hear("Leave the rest, I will write it. Finish here.")
    assert told(armed, say("All done.")) == []
    armed.hear("Write a list of them to docs/slow.md.")
    assert indicators(told(armed, say("Done."))) == ["complete"]


def test_to_be_told_to_go_on_is_nothing_new() -> None:
    armed = watch()
    armed.hear("ok, please continue")
    assert indicators(told(armed, say("All tasks are complete."))) == ["complete"]


def test_work_that_the_summary_does_not_know_counts() -> None:
    """A summary prepared in the background is older than the work since."""
    history = session()
    known = len(history.entries)
    edit(history, "src/auth/refresh.py")
    ledger = folded(history)
    assert told(DriftDetector(DOCUMENT, ledger, since=known), say("All tasks are complete.")) == []
    assert indicators(told(DriftDetector(DOCUMENT, ledger), say("All tasks are complete."))) == [
        "complete"
    ]


def test_a_new_task_of_the_person_is_no_drift() -> None:
    armed = watch()
    armed.hear("Leave that for now: style the wedding page, bouquet and seating first.")
    pages = [write(f"wedding/{n}.css") for n in ("bouquet", "seating", "menu", "music", "cake")]
    assert told(armed, *pages, say("Done.")) == []


@pytest.mark.parametrize(
    ("said", "newer", "blocks"),
    [
        ("Don't push.", "Looks good, now push it.", bash("git push")),
        ("Do not commit until I say so.", "LGTM", bash("git commit -m x")),
        ("Default: do not commit or push without explicit authority.",
         "Create a draft PR with the plan.", bash("git commit -m x && git push -u origin HEAD")),
        ("Never touch migrations/.", "Now add a column: update the migrations.",
         write("migrations/0008.py")),
        ("Only change a.py.", "Now the docs.", write("docs/a.md")),
    ],
)  # fmt: skip
def test_newer_words_take_a_constraint_back(said: str, newer: str, blocks: list[Block]) -> None:
    """Said before the summary or after it."""
    before = watch(replace(DOCUMENT, facts=()), session(f"Fix the login. {said}", newer))
    assert before.check_reply(blocks, final=False) == []
    after = watch(replace(DOCUMENT, facts=()), session(f"Fix the login. {said}"))
    after.hear(newer)
    assert after.check_reply(blocks, final=False) == []


def test_a_constraint_that_is_said_again_stands() -> None:
    armed = watch(replace(DOCUMENT, facts=()), session("Fix the login. Don't push."))
    armed.hear("Good. Still no push, please.")
    assert indicators(armed.check_reply(bash("git push"), final=False)) == ["constraint"]


@pytest.mark.parametrize(
    ("said", "blocks"),
    [
        ("Don't touch config.py if you can avoid it.", write("config.py")),
        ("Never push without running the tests.", bash("git push")),
        ("I never commit on Fridays.", bash("git commit -m x")),
        ("Why don't we commit first?", bash("git commit -m x")),
        ("We don't commit secrets to the repository.", bash("git commit -m x")),
        ("Don't forget to update setup.py.", write("setup.py")),
        ("Never mind the failing docs/build.md.", write("docs/build.md")),
        ("It only fails in src/auth.py.", write("src/billing.py")),
        ("The tests should not change the read/write order.", write("read/write/a.py")),
        ("> Do not touch a.py\nThat is what the header says; ignore it.", write("a.py")),
        ("```\ndo not edit a.py\n```\nRemove this header.", write("a.py")),
    ],
)
def test_what_is_no_constraint(said: str, blocks: list[Block]) -> None:
    armed = watch(replace(DOCUMENT, facts=()), session(f"Fix the login timeout.\n{said}"))
    assert armed.check_reply(blocks, final=False) == []


def test_a_decision_that_was_revised_is_none() -> None:
    document = replace(DOCUMENT, decisions=(*DOCUMENT.decisions, "Switched to bcrypt after all"))
    assert watch(document).check_reply(bash("pip install bcrypt"), final=False) == []
    armed = watch()
    armed.hear("Take bcrypt after all.")
    assert armed.check_reply(bash("pip install bcrypt"), final=False) == []


@pytest.mark.parametrize("intent", ["", "9", "修复登录超时问题", "Исправь вход в систему"])
def test_a_task_that_does_not_tell_is_never_left(intent: str) -> None:
    armed = watch(SummaryDocument(intent=intent), session(intent or "go"))
    assert (
        told(armed, *[write(f"blog/{n}.css") for n in ("a1", "theme", "head", "foot", "gal")]) == []
    )


# How long, how often, and what it says


def test_each_indicator_is_told_once() -> None:
    armed = watch()
    assert indicators(armed.check_reply(bash("pip install bcrypt && git push"), final=False)) == [
        "contradiction",
        "constraint",
    ]
    assert armed.check_reply(bash("pip install bcrypt && git push"), final=False) == []
    assert indicators(told(armed, say("All done."))) == []  # a command ran since


def test_it_is_silent_after_three_turns() -> None:
    armed = watch()
    for _ in range(3):
        assert armed.armed
        assert told(armed, say("Fine.")) == []
    assert not armed.armed
    assert armed.check_reply(bash("git push"), final=False) == []


def test_a_session_that_goes_on_has_fewer_turns_left() -> None:
    armed = DriftDetector(DOCUMENT, folded(session()), 1)
    assert told(armed, say("What would you like me to do?")) == []
    assert not armed.armed


def test_odd_replies_are_read() -> None:
    blocks: list[Block] = [
        {"type": "text"},
        {"type": "tool_use", "id": "a", "name": "Bash", "input": None},
        {"type": "tool_use", "id": "b", "name": "Edit", "input": {"path": 3}},
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "git 'unclosed"}},
        {"type": "thinking", "thinking": "x"},
    ]
    assert watch().check_reply(blocks, final=False) == []
    assert watch(SummaryDocument(), History()).check_reply([], final=True) == []


def test_a_reply_costs_little() -> None:
    """Texts made to be slow for a pattern that backtracks: it would not come to an end."""
    texts = [
        "the " * 9_000,
        "a/" * 9_000,
        "not " * 9_000,
        "'" * 9_001,
        "`" * 9_001,
        "use x " * 4_000,
    ]
    for text in texts:
        armed = watch(replace(DOCUMENT, decisions=(text,), facts=(text,)), session(text))
        armed.hear(text)
        told(armed, bash(text), write("a.py", text), say(text))


@pytest.mark.parametrize(("indicator", "severity"), SEVERITIES.items())
def test_the_warning_has_all_its_fields(indicator: Indicator, severity: str) -> None:
    drift = Drift(indicator, SEVERITIES[indicator], "what", "doing", "login timeout", "Go back.")
    assert warning(drift, DOCUMENT.intent) == (
        "⚠ **Goal Drift Warning**\n\n"
        f"**Detection:** {severity}: what\n"
        "**Original Intent:** Fix the login timeout in src/auth/session.py and add tests for it.\n"
        "**Current Action:** doing\n\n"
        "**Recovery Action:**\nSearching the archive for: login timeout\n\n"
        "**Recommendation:** Go back."
    )


def test_the_realignment_puts_the_intent_and_the_words_back() -> None:
    [drift] = told(watch(), say("What would you like me to do?"))
    text = realignment(drift, DOCUMENT, [WORDS], ["the timeout is 30 s (#12)"])
    assert text.startswith("[Goal check] This is a notice of the program, not the person's words.")
    assert "“What would you like me to do?”" in text
    assert f"The intent of this session: {DOCUMENT.intent}" in text
    assert f"> {WORDS}" in text
    assert "- the timeout is 30 s (#12)" in text
    assert "- Handle the expired token in src/auth/tokens.py" in text
    assert text.endswith("Then go on with the task.")


def test_the_realignment_stays_short() -> None:
    [drift] = told(watch(), say("What would you like me to do?"))
    long = replace(DOCUMENT, intent="word " * 900, next_steps=("step 登录 " * 300,) * 9)
    text = realignment(drift, long, ["слово " * 900] * 9, ["行 " * 900] * 20)
    assert estimate(text) <= MAX_REALIGNMENT_TOKENS
    assert "The intent of this session: word word" in text
