import os
import re

import pytest

from ctxagent.agent.config.keyboard import DEFAULT_KEYS, KeyboardSettings
from ctxagent.agent.events import Answer, Question, StatusPart, ToolFinished
from ctxagent.agent.ui import status
from ctxagent.agent.ui.conversation import questions
from ctxagent.agent.ui.render import render, tool_calls
from ctxagent.agent.ui.render.markdown import inline
from ctxagent.tools.system.git_links import current_branch
from ctxagent.tools.system.unicode import clean


def plain(*renderables: object, width: int = 60) -> str:
    return render.render_text(renderables, width=width, depth="plain")  # type: ignore[arg-type]


def test_nothing_of_a_model_or_a_tool_acts_on_the_terminal() -> None:
    evil = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\u202ee\udc80\rf\x00"
    for shown in (
        render.user_message(evil),
        render.thought(evil, 1),
        render.notice("error", evil),
        render.failure(evil, evil),
        tool_calls.running(evil, evil, 2, [evil], DEFAULT_KEYS),
        *tool_calls.result(ToolFinished("1", evil, evil, True, evil, 0.1)).parts,
        *tool_calls.result(ToolFinished("1", "E", "t", False, "", 0.1, {"diff": "+" + evil})).parts,
        *tool_calls.result(
            ToolFinished("1", "T", "t", False, "", 0.1, {"todos": [{"content": evil}]})
        ).parts,
        tool_calls.question(Question(evil, evil, {"x": evil}, evil, evil)),
        tool_calls.answer(Answer(False, reason=evil)),
        tool_calls.answer(Answer(True, rule=evil, where=evil)),
        render.table([[evil, evil]], head=["x"]),
        inline(clean(evil)),
    ):
        text = render.render_text([shown], width=200, depth="color")
        assert (
            not re.sub(r"\x1b\[[0-9;]*m", "", text)
            .translate(dict.fromkeys(map(ord, "\n")))
            .count("\x1b")
        )
        for bad in "\x07\x9b\u202e\udc80\r\x00":
            assert bad not in text


def test_a_failed_call_says_so_without_its_colour() -> None:
    def head(text: str, **details: object) -> str:
        event = ToolFinished("1", "Edit", "a.py", True, text, 0.1, details)
        return plain(*tool_calls.result(event).parts).split("\n")[0]

    assert head("no match").endswith("a.py  failed")
    assert head("no", denied=True).endswith("a.py  not run")
    assert head("stopped", interrupted=True).endswith("a.py  interrupted")
    assert head("stopped", interrupted=True, not_run=True).endswith("a.py  not run")
    assert head("bad", exit_code=2).endswith("a.py  exit 2")


def test_no_escape_sequence_in_plain_text_and_no_colour_in_mono() -> None:
    shown = [
        render.failure("bad", "do it"),
        *tool_calls.result(ToolFinished("1", "B", "t", True, "x", 2)).parts,
    ]
    assert "\x1b" not in render.render_text(shown, width=60, depth="plain")
    mono = render.render_text(shown, width=60, depth="mono")
    assert "\x1b[1m" in mono
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", mono)


def test_a_result_is_folded() -> None:
    text = "\n".join(f"line {n}" for n in range(1, 21))
    event = ToolFinished("1", "Bash", "make all", True, text, 2.34, {"exit_code": 2})
    assert plain(*tool_calls.result(event).parts).split("\n") == [
        "● Bash  make all  exit 2 · 2.3 s",
        "  line 1",
        "  line 2",
        "  line 3",
        "  line 4",
        "  … +14 lines",
        "  line 19",
        "  line 20",
        "",
    ]


def test_a_headline_keeps_its_facts_when_it_is_cut() -> None:
    event = ToolFinished("1", "Read", "a/very/long/" * 20, False, "x\ny", 0.0)
    head = plain(*tool_calls.result(event).parts, width=40)
    assert head.endswith("…  2 lines\n")
    assert len(head) == 41


def test_an_interrupted_command_is_called_so() -> None:
    details = {"exit_code": -15, "interrupted": True}
    shown = plain(
        *tool_calls.result(ToolFinished("1", "Bash", "make", True, "so far", 3.0, details)).parts
    )
    assert shown.startswith("● Bash  make  interrupted · 3.0 s\n")


def test_a_running_tool_can_be_stopped() -> None:
    at_work = tool_calls.running("Bash", "make", 3.0, [], DEFAULT_KEYS)
    assert plain(at_work) == "● Bash  make  3.0 s · Esc to stop\n"
    assert "Esc" not in plain(tool_calls.running("Bash", "make", 0.5, [], DEFAULT_KEYS))
    keys = KeyboardSettings(interrupt="ctrl-g", background="ctrl-x b")
    at_work = tool_calls.running("Bash", "make", 30.0, [], keys)
    assert "Ctrl-G to stop · Ctrl-X B: to the background" in plain(at_work, width=80)


def test_every_argument_is_shown_in_a_question() -> None:
    command = "echo " + "x" * 500 + "\nrm -rf y"
    shown = plain(
        tool_calls.question(Question("Bash", "t", {"command": command, "timeout": 600}, "", "")),
        width=40,
    )
    assert "".join(command.split()) in "".join(shown.split())
    assert "for at most 600 s" in shown


def test_a_receipt() -> None:
    usage = {"input": 500, "cache_read": 12_000, "cache_creation": 0, "output": 940}
    shown = plain(render.receipt(usage, 0.0123, 2, 71), width=80)
    assert shown == "  12.5k in (12.0k cached) · 940 out · 2 tool calls · 1 min 11 s · $0.0123\n"
    assert "$" not in plain(render.receipt(usage, None, 0, 1))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("y", Answer(True)),
        ("Yes", Answer(True)),
        ("a", None),
        ("e", None),
        ("n", Answer(False)),
        ("n, use make", Answer(False, reason="use make")),
        ("no too slow", Answer(False, reason="too slow")),
        ("use make", Answer(False, reason="use make")),
        ("yes but not now", Answer(False, reason="yes but not now")),
        ("", None),
        ("  ", None),
    ],
)
def test_answers(text: str, answer: Answer | None) -> None:
    assert questions.parse_answer(text) == answer


def test_a_question_without_a_rule_cannot_be_remembered() -> None:
    asked = Question("Bash", "t", {}, "", "")
    assert [row.key for row in questions.permission_rows(asked)] == ["y", "n"]


def test_the_choices_of_a_long_question_say_what_it_is_about() -> None:
    diff = "--- /dev/null\n+++ b/big.py\n@@ -0,0 +1,300 @@\n" + "+++ x\n" * 300
    long = Question("Write", "big.py", {"path": "big.py"}, "Write", "", diff)
    assert questions.reminder_of(long) == "Write big.py (+300 −0)"
    command = "echo one \u202e && " * 50
    asked = Question("Bash", command, {"command": command}, "Bash", "")
    about = questions.reminder_of(asked)
    assert about.startswith("Bash echo one \\u202e && echo one")
    assert len(about) <= len("Bash ") + questions.MAX_REMINDER_CHARS + 1
    short = Question("Bash", "ls", {"command": "ls"}, "Bash", "")
    assert questions.reminder_of(short) == ""
    assert questions.reminder_of(short, always=True) == "Bash ls"


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
def test_the_status_line_fits(width: int) -> None:
    now = status.StatusLine(
        "claude-sonnet-5-5", "accept-edits", "topic/one", 0.51, "51% full", cost_usd=1.5
    )
    text = "".join(part for _, part in status.fit_line(now, width))
    assert text.startswith("sonnet-5-5")
    assert len(text) <= width
    if width >= 80:
        assert text == "sonnet-5-5 · accept-edits · topic/one · ▰▰▰▰▱▱▱▱ · 51% full · $1.50"


def test_parts_of_features_have_a_rank_and_are_cleaned() -> None:
    parts = [
        StatusPart("least", style="class:level.red"),
        StatusPart("words \x1b" + "w" * 60, rank=20, short="words"),
    ]
    now = status.StatusLine("m", "bypass", cost_usd=1.5, jobs=1, more=parts)
    shown = status.fit_line(now, 200)
    text = "".join(part for _, part in shown)
    assert text.startswith("m · bypass: asks nothing · $1.50 · least · words �www")
    assert text.endswith("w… · 1 job")
    assert ("class:level.red", "least") in shown
    for width, expected in (
        (45, "m · bypass · $1.50 · least · words · 1 job"),
        (40, "m · bypass · $1.50 · words · 1 job"),
        (20, "m · bypass · words"),
        (16, "bypass · words"),
        (9, "bypass"),
    ):
        assert "".join(part for _, part in status.fit_line(now, width)) == expected


def test_the_branch_is_read_without_git(tmp_path) -> None:  # type: ignore[no-untyped-def]
    main, tree = tmp_path / "main", tmp_path / "tree"
    (main / ".git" / "worktrees" / "tree").mkdir(parents=True)
    (main / "deep").mkdir()
    (main / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (main / ".git" / "worktrees" / "tree" / "HEAD").write_text("0123456789abcdef\n")
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {main}/.git/worktrees/tree\n")
    assert current_branch(main / "deep") == "main"
    assert current_branch(tree) == "01234567"
    assert current_branch(tmp_path) == ""


def test_no_head_is_waited_for_or_read_without_end(tmp_path) -> None:  # type: ignore[no-untyped-def]
    git = tmp_path / ".git"
    git.mkdir()
    os.mkfifo(git / "HEAD")
    assert current_branch(tmp_path) == ""
    (git / "HEAD").unlink()
    with (git / "HEAD").open("wb") as head:
        head.write(b"ref: refs/heads/" + b"x" * 20_000)
        head.truncate(1 << 40)  # more than there is memory for
    assert set(current_branch(tmp_path)) == {"x"}
    (git / "HEAD").unlink()
    git.rmdir()
    git.write_bytes(b"gitdir: \0")
    assert current_branch(tmp_path) == ""


RULES = (
    ("sandbox", "bubblewrap: commands write to this project and to temporary files", ""),
    ("allow", "Bash(git log:*)", "for you, in every project: ~/.config/ctxagent/settings.toml"),
    ("deny", "Read(some/long/directory/with/many/parts/secret.txt)", ".ctxagent/settings.toml"),
)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_table_cuts_no_cell_at_any_width(width: int) -> None:
    rows = plain(render.table(RULES), width=width).split("\n")
    assert all(len(row) <= width for row in rows)
    places = [n for n, row in enumerate(rows) if row[2:9].strip() in ("sandbox", "allow", "deny")]
    assert len(places) == 3
    for first, end in zip(places, [*places[1:], len(rows)], strict=True):
        assert len(rows[first:end]) <= 5  # no column of single letters
    shown = "".join(plain(render.table(RULES[1:2]), width=width).split())
    assert all(part in shown for part in ("Bash(gitlog:*)", "foryou")) or width < 80


def test_a_narrow_table_shows_the_cells_of_a_row_below_its_first() -> None:
    rows = [("/permissions [MODE | forget RULE]", "show the rules, or set the mode"), ("/x", "y")]
    shown = plain(render.table(rows), width=40).split("\n")
    assert [row.strip() for row in shown if row] == [cell for row in rows for cell in row]
    named = plain(render.table([("a", "1", "2%")], head=("", "tokens", "share")), width=40)
    assert named.split() == ["a", "tokens", "1", "·", "share", "2%"]


def test_the_last_column_may_be_cut() -> None:
    large = render.table([("#1", "1,234", "w" * 90)], head=("largest", "tokens", ""), wrap=False)
    head, row = plain(large, width=60).strip("\n").split("\n")
    assert head.split() == ["largest", "tokens"]
    assert row.split()[:2] == ["#1", "1,234"]
    assert row.endswith("w…")
