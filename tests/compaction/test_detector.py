"""Drift: each indicator is detected in several forms and languages, and sessions without drift are
not reported.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ctxagent.agent.compaction.document import FileRow, ReadRow, SummaryDocument
from ctxagent.agent.compaction.drift.detector import SEVERITIES, Drift, DriftDetector, Indicator
from ctxagent.agent.compaction.drift.monitor import MAX_REALIGNMENT_TOKENS, realignment, warning
from ctxagent.agent.compaction.drift.scope import CallMemory
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.entries import Block, Note
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History, called

WORDS = "Fix the login timeout in src/auth/session.py and add tests. Never touch migrations/."
DOCUMENT = SummaryDocument(
    intent="Fix the login timeout in src/auth/session.py and add tests for it.",
    modified=(FileRow("src/auth/session.py", "modified", "the timeout is read from the settings"),),
    read=(ReadRow("src/auth/tokens.py", "how a token expires"),),
    decisions=("Use SHA-256 for token hashing (not bcrypt) because tokens are compared",),
    phase="implementation",
    in_progress=("Refresh tokens before they expire",),
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


def watch(
    document: SummaryDocument = DOCUMENT,
    history: History | None = None,
    rule: str = "Never touch migrations/.",
) -> DriftDetector:
    return DriftDetector(document, folded(history or session()), rules=[(2, rule)])


def say(text: str) -> list[Block]:
    return [{"type": "text", "text": text}]


def call(tool: str, **given: Any) -> list[Block]:
    return [called("t", tool, given)]


def bash(command: str) -> list[Block]:
    return call("Bash", command=command)


def write(path: str, content: str = "x = 1\n") -> list[Block]:
    return call("Write", path=path, content=content)


def told(watch: DriftDetector, *replies: list[Block]) -> list[Drift]:
    """The drift in these replies. A reply without calls ends its turn."""
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


@pytest.mark.parametrize(
    "text",
    [
        "What would you like me to do?",
        "Hello! How can I help you today?",
        "I don't have enough context about the earlier work. Could you clarify what the task is?",
        "I'm ready to continue. Which file would you like me to change?",
        "Which file should I write the sums to?",
        "Was soll ich als Nächstes tun? Kannst du die Aufgabe noch einmal nennen?",
        "¿Qué archivo tengo que cambiar?",
        "Je n'ai plus le contexte. Pouvez-vous me rappeler la tâche ?",
        "Что мне делать дальше?",
        "Τι πρέπει να κάνω τώρα;",
        "ما هي المهمة التالية؟",
        "请问接下来我应该做什么？",
        "Which one do you mean?\n\n- the first\n- the second",
    ],
)
def test_a_question_although_the_record_has_the_next_steps(text: str) -> None:
    drifts = told(watch(), say(text))
    assert [(drift.indicator, drift.severity) for drift in drifts] == [("clarification", "HIGH")]
    assert text.split("\n")[0] in drifts[0].detection


@pytest.mark.parametrize(
    "text", ["Done.", "Alles ist fertig.", "全部完成了。", "The work is finished."]
)
def test_ending_the_turn_with_open_steps_that_name_a_file(text: str) -> None:
    """No file was changed since the user's message."""
    history = History()
    history.say(WORDS)
    drifts = told(watch(DOCUMENT, history), say(text))
    assert [(drift.indicator, drift.severity) for drift in drifts] == [("complete", "CRITICAL")]
    assert "still open: Handle the expired token in src/auth/tokens.py" in drifts[0].detection


@pytest.mark.parametrize("work", [[], [bash("pytest -q tests/auth")]])
def test_ending_the_turn_with_a_todo_that_nothing_was_done_about(work: list[list[Block]]) -> None:
    history = session()
    plan(history, Fix_the_login_timeout="completed", Write_the_changelog="pending")
    drifts = told(watch(DOCUMENT, history), *work, say("All done!"))
    assert indicators(drifts) == ["complete"]
    assert "Write the changelog" in drifts[0].detection
    assert "changelog" in drifts[0].terms


@pytest.mark.parametrize(
    "replies",
    [
        [write(f"blog/{name}.css") for name in ("theme", "header", "footer", "gallery")],
        [
            bash(command)
            for command in (
                "npx create-gatsby blog", "ls blog/css", "cat blog/gatsby.js", "npm i photoswipe",
                "convert cat.png cat.webp", "cat blog/theme.css", "ls blog/gallery", "rm blog/a.js",
            )
        ],
        [write("blog/theme.css"), bash("ls blog/css"), bash("cat blog/theme.css"),
         write("blog/gallery.css"), write("blog/footer.css")],
        [[*say("Now I set up a Hugo blog theme with fancy fonts."), *write("blog/hugo.toml")]],
    ],
)  # fmt: skip
def test_working_on_something_unrelated(replies: list[list[Block]]) -> None:
    drifts = told(watch(), *replies)
    assert indicators(drifts) == ["unrelated"]
    assert "blog" in drifts[0].detection


def test_unrelated_work_for_a_request_in_another_script() -> None:
    history = session("修复登录超时问题，并添加测试。")
    document = SummaryDocument(intent="修复登录超时问题", next_steps=("从配置读取会话的有效期",))
    blog = [*say("现在我来搭建一个博客主题，使用漂亮的字体。"), *write("blog/hugo.toml")]
    assert indicators(told(watch(document, history), blog)) == ["unrelated"]
    fix = [*say("登录的超时时间从配置读取。"), *write("conf/limits.toml")]
    assert told(watch(document, history), fix) == []


OLD, NEW = "    redis = connect(cache_url)\n", "    cache = memory_cache()\n"


def changes(old: str, new: str, path: str = "src/auth/session.py") -> list[Block]:
    return call("Edit", path=path, old_string=old, new_string=new)


def armed_after(*edits: list[Block], history: History | None = None) -> DriftDetector:
    """A watch that starts after these edits."""
    ledger, memory = folded(history or session()), CallMemory()
    for blocks in edits:
        memory.add(blocks, ledger.typed_messages[-1][0])
    return DriftDetector(DOCUMENT, ledger, earlier=memory)


@pytest.mark.parametrize("before", [(OLD, NEW), (OLD, ""), (f"x\n{OLD}y\n", f"x\n{NEW}y\n")])
def test_reverting_an_edit_from_before_the_summary(before: tuple[str, str]) -> None:
    """A line that was replaced or removed, such as a dependency, is written again."""
    old, new = before
    drifts = armed_after(changes(old, new)).check_reply(changes(new, old), final=False)
    assert [(drift.indicator, drift.severity) for drift in drifts] == [("contradiction", "MEDIUM")]
    assert "takes back an edit of src/auth/session.py" in drifts[0].detection


def test_making_a_file_again_that_was_deleted() -> None:
    history = session()
    removed = {"changes": [{"path": "src/auth/legacy.py", "action": "deleted"}]}
    command = {"command": "rm src/auth/legacy.py"}
    history.call("Bash", command, "ok", details={**command, "exit_code": 0, **removed})
    drifts = watch(DOCUMENT, history).check_reply(write("src/auth/legacy.py"), final=False)
    assert indicators(drifts) == ["contradiction"]
    armed = watch(DOCUMENT, history)
    armed.add_message("Bitte leg legacy.py wieder an.")
    assert armed.check_reply(write("src/auth/legacy.py"), final=False) == []


@pytest.mark.parametrize(
    ("rule", "blocks"),
    [
        ("Do not touch migrations/.", write("migrations/0007_tokens.py")),
        ("Non toccare mai vecchio/.", write("vecchio/x.py")),
        ("Non modificare `config/prod.yml`!", write("config/prod.yml")),
        ("Bitte setup.cfg nicht ändern.", bash("sed -i s/a/b/ setup.cfg")),
        ("Не трогай файлы в vendor/**.", write("vendor/lib/a.py")),
        ("不要修改migrations/目录", write("migrations/0001.py")),
        ("Ne changez pas les fichiers *.lock.", bash("echo x > poetry.lock")),
        ("Deja `docs/api/` como está.", bash("cd x && rm -rf docs/api")),
        ("schema.sql must not be changed.", bash("git checkout main -- schema.sql")),
        ("The fixtures/ folder is read-only.", bash("mv new.json fixtures/new.json")),
    ],
)
def test_a_change_of_what_a_rule_names(rule: str, blocks: list[Block]) -> None:
    """In any language. The model decides whether the rule forbids the change."""
    [drift] = watch(rule=rule).check_reply(blocks, final=False)
    assert (drift.indicator, drift.severity) == ("constraint", "LOW")
    assert f"check rule #2, “{rule}”" in drift.detection


def test_what_a_rule_names_may_be_changed_where_it_was_before_or_was_asked_for() -> None:
    rule = "Non toccare vecchio/."
    changed = session()
    edit(changed, "vecchio/a.py")
    assert watch(DOCUMENT, changed, rule).check_reply(write("vecchio/b.py"), final=False) == []
    armed = watch(rule=rule)
    armed.add_message("Jetzt doch b.py bitte.")
    assert armed.check_reply(write("vecchio/b.py"), final=False) == []
    step = replace(DOCUMENT, next_steps=("Move it to vecchio/b.py",))
    assert watch(step, rule=rule).check_reply(write("vecchio/b.py"), final=False) == []


def denied(text: str, *, reason: str = "") -> History:
    history = session()
    data = {"answer": "no", "reason": reason}
    history.add(Note, topic="permission", text=f"not authorised: {text}", data=data)
    return history


@pytest.mark.parametrize(
    ("refused", "blocks"),
    [
        ("Bash git push origin x; rm -rf build", bash("git push origin x; rm -rf build")),
        ("Bash git push", bash("git add -A && git push")),
        ("Bash git push origin main", bash("git push --force origin main")),
        ("Bash make release", bash("cd app; FORCE=1 make release")),
    ],
)
def test_trying_again_what_was_not_authorised(refused: str, blocks: list[Block]) -> None:
    drifts = watch(DOCUMENT, denied(refused)).check_reply(blocks, final=False)
    assert [(drift.indicator, drift.severity) for drift in drifts] == [("constraint", "HIGH")]
    assert (
        watch(DOCUMENT, denied(refused, reason="use make")).check_reply(blocks, final=False) == []
    )
    allowed = denied(refused)
    allowed.say("va bene")
    assert watch(DOCUMENT, allowed).check_reply(blocks, final=False) == []


@pytest.mark.parametrize(
    ("refused", "again", "other"),
    [
        ("Bash python3 - <<'E' …", bash("python3 - <<'E'\nprint(1)\nE"),
         bash("python3 - <<'E'\nprint(2)\nE")),
        ("Edit src/auth/session.py", changes(OLD, NEW), changes(OLD, "x")),
        ("Write /etc/hosts", write("/etc/hosts"), write("/etc/hosts", "y")),
    ],
)  # fmt: skip
def test_only_the_same_text_is_what_was_denied(
    refused: str, again: list[Block], other: list[Block]
) -> None:
    for blocks, found in ((again, ["constraint"]), (other, [])):
        armed = armed_after(again, history=denied(refused))
        assert indicators(armed.check_reply(blocks, final=False)) == found


def test_a_call_refused_since_counts_when_it_is_tried_again() -> None:
    ledger = folded(session())
    armed = DriftDetector(DOCUMENT, ledger)
    assert armed.check_reply(bash("make release"), final=False) == []
    ledger.add(Note(seq=99, topic="permission", text="not authorised: Bash make release"))
    assert armed.check_reply(bash("ls src/auth"), final=False) == []
    assert indicators(armed.check_reply(bash("make release"), final=False)) == ["constraint"]


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
    "a courtesy after work": [*WORK, say("Fixed and tested. What would you like me to do next?")],
    "a question after some calls": [
        *[bash(f"grep -n {word} src/auth/session.py") for word in ("a", "b", "c", "d")],
        say("Could you tell me which files production uses?"),
    ],
    "a question after a change": [
        WORK[1], say("Could you tell me which files production uses?")
    ],
    "a question with a name": [say("Should `refresh_token` live for a day or for a week?")],
    "a question with reasons": [
        say(
            "Both ways work: reading the timeout for each login costs a lookup, reading it once "
            "needs a restart. The settings page promises that changes act at once, which speaks "
            "for the first. Could you clarify which you prefer?"
        )
    ],
    "a question of the form": [
        call("AskUser", questions=[{"question": "Which database?", "choices": []}])
    ],
    "an answer to the form": [
        call("AskUser", questions=[{"question": "Which database?", "choices": []}]),
        say("What would you like to clarify about the database?"),
    ],
    "what is left is named": [say("The timeout is done. Der abgelaufene Token ist offen.")],
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
        bash("grep -rn login_required src"), bash("cat decorators/login_required.py"),
        *[write(f"decorators/{n}.py") for n in ("caching", "throttle", "audit", "retry", "once")],
    ],
    "a plan of its own": [
        call("Todo", todos=[{"content": "Throttle the gateway", "status": "pending"}]),
        *[write(f"gateway/{n}.py") for n in ("throttle", "bucket", "quota", "window", "burst")],
    ],
    "a rule's folder is read": [bash("cat migrations/0001.py"), bash("sed -n 1,9p migrations/a.py"),
                                call("Read", path="migrations/0001.py")],
    "a file with a like name": [write("docs/migrations.md"), write("src/auth/migrations.py")],
    "a here-document": [bash("cat > notes/login.txt <<'E'\ngit push\n> migrations/a\nE")],
    "an arrow": [bash("echo 'login -> migrations/a'"), bash("grep -rn 'x => migrations/a' src")],
}  # fmt: skip


@pytest.mark.parametrize("name", INNOCENT)
def test_no_drift(name: str) -> None:
    assert told(watch(), *INNOCENT[name]) == []


def test_files_beside_the_known_ones_are_related() -> None:
    history = session()
    edit(history, "lib/session.py")
    others = [
        write(f"lib/{name}.py") for name in ("parser", "colour", "matrix", "fourier", "audio")
    ]
    assert told(watch(DOCUMENT, history), *others) == []


def test_a_todo_with_vague_words_may_be_done() -> None:
    history = session()
    plan(history, Run_it_all="pending")
    assert told(watch(DOCUMENT, history), bash("pytest -q tests/auth"), say("All done.")) == []


@pytest.mark.parametrize("asks", ["What does a token hold?", "令牌里有什么？"])
def test_a_question_of_the_user_is_answered_by_words(asks: str) -> None:
    history = History()
    history.say(asks)
    assert told(watch(DOCUMENT, history), say("An expiry and a hash.")) == []


def test_a_question_is_no_drift_after_a_failure_or_without_open_steps() -> None:
    ask = say("What should I do now?")
    history = session()
    ledger = folded(history)
    armed = DriftDetector(DOCUMENT, ledger)
    known = len(history.entries)
    history.call("Bash", {"command": "make"}, "error: no rule", is_error=True,
                 details={"command": "make", "exit_code": 2})  # fmt: skip
    for entry in history.entries[known:]:
        ledger.add(entry)
    assert told(armed, ask) == []
    assert told(watch(DOCUMENT, denied("Bash make deploy")), ask) == []
    assert told(watch(replace(DOCUMENT, blocked=("The password is missing",))), ask) == []
    only_said = replace(DOCUMENT, in_progress=(), next_steps=(f"Go on with: {WORDS}",))
    assert told(watch(only_said), ask) == []


def test_a_question_of_a_later_turn_is_no_drift() -> None:
    armed = watch()
    assert told(armed, *WORK, say(REPORT)) == []
    armed.add_message("thanks")
    assert told(armed, say("You're welcome! What would you like me to do next?")) == []


def test_after_a_new_request_old_steps_do_not_count() -> None:
    for said in ("Could you please provide the error message?", "All done."):
        armed = watch()
        armed.add_message("There is another error in production.")
        assert told(armed, say(said)) == []


@pytest.mark.parametrize("words", ["ok, please continue", "weiter", "继续"])
def test_a_message_to_continue_is_not_a_new_request(words: str) -> None:
    armed = watch(DOCUMENT, session())
    armed.add_message(words)
    assert indicators(told(armed, say("What should I do?"))) == ["clarification"]


def test_work_that_the_summary_does_not_know_counts() -> None:
    """A summary prepared in the background is older than the work since."""
    history = History()
    history.say(WORDS)
    known = len(history.entries)
    assert indicators(told(watch(DOCUMENT, history), say("Done."))) == ["complete"]
    edit(history, "src/auth/refresh.py")
    assert told(DriftDetector(DOCUMENT, folded(history), since=known), say("Done.")) == []


def test_a_new_task_of_the_person_is_no_drift() -> None:
    armed = watch()
    armed.add_message("Leave that for now: style the wedding page, bouquet and seating first.")
    pages = [write(f"wedding/{n}.css") for n in ("bouquet", "seating", "menu", "music", "cake")]
    assert told(armed, *pages, say("Done.")) == []


@pytest.mark.parametrize("reason", ["a failure", "a message", "another edit"])
def test_an_edit_may_be_reverted_for_a_reason(reason: str) -> None:
    history = session()
    ref = len(history.entries)
    if reason == "a failure":
        history.call("Bash", {"command": "pytest"}, "1 failed", is_error=True,
                     details={"command": "pytest", "exit_code": 1})  # fmt: skip
    elif reason == "a message":
        history.say("Das war falsch.")
    memory = CallMemory()
    memory.add(changes(OLD, NEW), ref)
    more = "    more_of_it()\n" if reason == "another edit" else ""
    back = changes(NEW + more, OLD)
    armed = DriftDetector(DOCUMENT, folded(history), earlier=memory)
    assert armed.check_reply(back, final=False) == []


@pytest.mark.parametrize("intent", ["", "9", "修复登录超时问题", "Исправь вход в систему"])
def test_a_vague_task_never_drifts(intent: str) -> None:
    armed = watch(SummaryDocument(intent=intent), session(intent or "go"))
    assert (
        told(armed, *[write(f"blog/{n}.css") for n in ("a1", "theme", "head", "foot", "gal")]) == []
    )


# How long, how often, and what it says


def test_each_indicator_is_reported_once() -> None:
    armed = watch()
    assert indicators(armed.check_reply(write("migrations/a.py"), final=False)) == ["constraint"]
    assert armed.check_reply(write("migrations/b.py"), final=False) == []


def test_no_drift_is_reported_after_three_turns() -> None:
    armed = watch()
    for _ in range(3):
        assert armed.armed
        assert told(armed, say("Fine.")) == []
    assert not armed.armed
    assert armed.check_reply(write("migrations/a.py"), final=False) == []


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
    """Texts that would make a backtracking pattern take forever."""
    for text in ("the " * 9_000, "a/" * 9_000, "a." * 9_000, "'" * 9_001, "`" * 9_001, "?" * 9_000):
        armed = watch(replace(DOCUMENT, decisions=(text,)), session(text), text)
        armed.add_message(text)
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


def test_the_realignment_quotes_the_intent_and_the_user() -> None:
    [drift] = told(watch(), say("What would you like me to do?"))
    text = realignment(drift, DOCUMENT, [WORDS], ["the timeout is 30 s (#12)"])
    assert text.startswith("[Goal check] This is a notice of the program, not the user's words.")
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
