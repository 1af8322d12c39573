import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.events import (
    Answer,
    CallFinished,
    CallStarted,
    Compacted,
    Event,
    Notice,
    Question,
    Retrying,
    SessionOpened,
    TextDelta,
    ThinkingDelta,
    ToolDraft,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    UserSaid,
)
from ctxagent.agent.ui import calls, questions, render, status
from ctxagent.agent.ui.markdown import Blocks, prose
from ctxagent.agent.ui.transcript import Transcript
from ctxagent.agent.ui.visible import clean

MARKDOWN = """\
# Title

A paragraph
of two lines

- one

  still one
- two

  ```sh
  # not a heading

  ls
  ```

1. first
2. second

~~~~text
```

~~~~
| a | b |
|---|---|
| 1 | 2 |

    code

    more

> quoted
## Next
the end"""

BLOCKS = [
    "# Title",
    "A paragraph\nof two lines",
    "- one\n\n  still one\n- two\n\n  ```sh\n  # not a heading\n\n  ls\n  ```"
    "\n\n1. first\n2. second",
    "~~~~text\n```\n\n~~~~",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "    code",
    "    more",
    "> quoted",
    "## Next",
    "the end",
]


def plain(*renderables: object, width: int = 60) -> str:
    return render.ink(renderables, width=width, depth="plain")  # type: ignore[arg-type]


def cut(text: str, size: int) -> list[str]:
    blocks = Blocks()
    out = []
    for start in range(0, len(text), size):
        out += blocks.feed(text[start : start + size])
    return out + blocks.finish()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_blocks_are_the_same_however_the_text_arrives(size: int) -> None:
    assert cut(MARKDOWN, size) == BLOCKS


@given(st.text(alphabet="ab`~-*#>|1. \n", max_size=200), st.integers(1, 50))
def test_no_text_is_lost_in_blocks(text: str, size: int) -> None:
    def words(of: str) -> list[str]:
        return of.split()

    assert words("\n".join(cut(text, size))) == words(text)


def test_a_block_is_finished_as_soon_as_it_can_be() -> None:
    blocks = Blocks()
    assert blocks.feed("# Title\npara") == ["# Title"]
    assert blocks.tail(5) == "para"
    assert blocks.feed("graph\n\n```py\nx") == ["paragraph"]
    assert blocks.feed(" = 1\n```\n") == ["```py\nx = 1\n```"]
    assert blocks.tail(5) == ""


def test_the_tail_of_a_long_fence_still_is_code() -> None:
    blocks = Blocks()
    blocks.feed("```py\n" + "".join(f"line_{n}()\n" for n in range(50)))
    assert blocks.tail(3).split("\n") == ["```py", "line_47()", "line_48()", "line_49()"]


def test_markdown_has_no_blank_lines_around_it_and_no_padding() -> None:
    for block in (
        "# Title",
        "- a\n- b",
        "```py\nx = 1\n\ny = 2\n```",
        "| a |\n|---|\n| 1 |",
        "> q",
    ):
        shown = plain(prose(block, theme="ansi_dark"))
        assert shown == shown.strip("\n") + "\n"
        assert all(line == line.rstrip() for line in shown.split("\n"))
    assert plain(prose("```py\nx = 1\n\ny = 2\n```", theme="ansi_dark")) == "  x = 1\n\n  y = 2\n"


def test_nothing_of_a_model_or_a_tool_acts_on_the_terminal() -> None:
    evil = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\u202ee\udc80\rf\x00"
    for shown in (
        render.words(evil),
        render.thought(evil, 1),
        render.notice("error", evil),
        render.failure(evil, evil),
        calls.running(evil, evil, 2, [evil]),
        *calls.result(ToolFinished("1", evil, evil, True, evil, 0.1)),
        *calls.result(ToolFinished("1", "E", "t", False, "", 0.1, {"diff": "+" + evil})),
        *calls.result(ToolFinished("1", "T", "t", False, "", 0.1, {"todos": [{"content": evil}]})),
        calls.question(Question(evil, evil, {"x": evil}, evil, evil)),
        calls.answer(Answer(False, reason=evil), evil),
        render.table([[evil, evil]], head=["x"]),
        prose(clean(evil), theme="ansi_dark"),
    ):
        text = render.ink([shown], width=200, depth="color")
        assert (
            not re.sub(r"\x1b\[[0-9;]*m", "", text)
            .translate(dict.fromkeys(map(ord, "\n")))
            .count("\x1b")
        )
        for bad in "\x07\x9b\u202e\udc80\r\x00":
            assert bad not in text


def test_no_escape_sequence_in_plain_text_and_no_colour_in_mono() -> None:
    shown = [
        render.failure("bad", "do it"),
        *calls.result(ToolFinished("1", "B", "t", True, "x", 2)),
    ]
    assert "\x1b" not in render.ink(shown, width=60, depth="plain")
    mono = render.ink(shown, width=60, depth="mono")
    assert "\x1b[1m" in mono
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", mono)


def test_a_result_is_folded() -> None:
    text = "\n".join(f"line {n}" for n in range(1, 21))
    event = ToolFinished("1", "Bash", "make all", True, text, 2.34, {"exit_code": 2})
    assert plain(*calls.result(event)).split("\n") == [
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
    head = plain(*calls.result(event), width=40)
    assert head.endswith("…  2 lines\n")
    assert len(head) == 41


def test_a_diff_is_folded_when_done_and_whole_when_asked() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1,100 @@\n-old\n" + "".join(f"+new {n}\n" for n in range(100))
    details = {"diff": diff, "added": 100, "removed": 1}
    done = plain(*calls.result(ToolFinished("1", "Edit", "a.py", False, "ok", 0.0, details)))
    assert done.startswith("● Edit  a.py  +100 −1\n  @@ -1 +1,100 @@\n  -old\n  +new 0\n")
    assert done.endswith("  … +62 lines\n")
    asked = plain(calls.question(Question("Edit", "a.py", {}, "Edit(a.py)", "why", diff)))
    assert "  +new 99\n" in asked


def test_a_diff_shows_every_changed_line() -> None:
    """Also those whose content makes them look like the head of a diff."""
    head = "--- a/q.sql\n+++ b/q.sql\n"
    body = "@@ -1,2 +1,1 @@\n--- drop nothing\n-- keep\n+++ counter;\n select 1;\n"
    shown = plain(calls.question(Question("Edit", "q.sql", {}, "", "why", head + body)))
    for line in body.splitlines():
        assert f"  {line}\n" in shown
    assert "q.sql\n  @@" in shown
    headless = plain(calls.diff("--- a\n+++ b\n"))
    assert headless == "  --- a\n  +++ b\n"


def test_an_interrupted_command_is_called_so() -> None:
    details = {"exit_code": -15, "interrupted": True}
    shown = plain(*calls.result(ToolFinished("1", "Bash", "make", True, "so far", 3.0, details)))
    assert shown.startswith("● Bash  make  interrupted · 3.0 s\n")


def test_a_running_tool_can_be_stopped() -> None:
    assert plain(calls.running("Bash", "make", 3.0, [])) == "● Bash  make  3.0 s · esc to stop\n"
    assert "esc" not in plain(calls.running("Bash", "make", 0.5, []))


def test_where_a_session_was_left_is_told_in_a_few_lines() -> None:
    words = "\n".join(f"line {n}" for n in range(50))
    shown = plain(render.recap(words, "An answer. " * 400), width=60)
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) <= 12
    assert lines[0] == "❯ line 0"
    assert any(line.startswith("  An answer.") for line in lines)
    assert lines[-1].startswith("  … +")
    assert "\x1b]" not in render.ink(
        [render.recap("a\x1b]0;x", "b\x1b]0;x")], width=60, depth="mono"
    )
    assert plain(render.recap("hi", "")) == "❯ hi\n"


def test_every_argument_is_shown_in_a_question() -> None:
    command = "echo " + "x" * 500 + "\nrm -rf y"
    shown = plain(
        calls.question(Question("Bash", "t", {"command": command, "timeout": 600}, "", "")),
        width=40,
    )
    assert "".join(command.split()) in "".join(shown.split())
    assert "timeout: 600" in shown


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
        ("a", Answer(True, remember=True)),
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
    assert questions.answer_of(text, Question("Bash", "t", {}, "Bash(x:*)", "")) == answer


def test_a_question_without_a_rule_cannot_be_remembered() -> None:
    asked = Question("Bash", "t", {}, "", "")
    assert questions.answer_of("a", asked) is None
    assert "always" not in questions.choices(asked)
    assert questions.keys(asked) == "y"


class Watch:
    """A transcript, what it printed, and a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.printed: list[object] = []
        self.transcript = Transcript(self.printed.append, theme="auto", clock=lambda: self.now)

    def show(self, *events: Event) -> None:
        for event in events:
            self.transcript.show(event)

    @property
    def text(self) -> str:
        return plain(*self.printed)

    @property
    def live(self) -> str:
        return plain(*self.transcript.live(), width=80)


def test_a_turn_from_start_to_end() -> None:
    watch = Watch()
    watch.show(UserSaid("fix it"), CallStarted(1, 100))
    watch.now += 3
    assert watch.live == "◌ waiting for the model · 3 s · esc to stop\n"
    watch.show(ThinkingDelta("I shall\nlook"))
    assert "I shall\nlook\n" in watch.live
    watch.now += 2
    watch.show(TextDelta("First **block**.\n\nSecond"))
    assert watch.live == "Second\n"
    watch.show(ToolDraft("Bash", 1_200))
    assert watch.live == "◌ writing a call of Bash, 1,200 characters\n"
    watch.show(CallFinished({"input": 10, "output": 5}, 0.5, "tool_use"))
    watch.show(ToolStarted("1", "Bash", "make", {}))
    watch.show(*(ToolOutput("1", f"out {n}\n") for n in range(9)), ToolOutput("1", "half"))
    assert watch.live.split("\n")[1:-1] == ["  out 5", "  out 6", "  out 7", "  out 8", "  half"]
    watch.show(ToolFinished("1", "Bash", "make", False, "fine", 0.2))
    watch.show(
        CallStarted(2, 200), TextDelta("Done."), CallFinished({"output": 1}, 0.25, "end_turn")
    )
    watch.show(TurnFinished("ok", "Done."))
    assert watch.live == ""
    assert watch.text == (
        "❯ fix it\n\n∴ thought for 2.0 s: I shall look\n\nFirst block.\n\nSecond\n\n"
        "● Bash  make\n  fine\n\nDone.\n  10 in · 6 out · 1 tool call · 5.0 s · $0.75\n"
    )


def test_tools_side_by_side_do_not_mix() -> None:
    watch = Watch()
    watch.show(ToolStarted("1", "Grep", "x", {}), ToolStarted("2", "Read", "y", {}))
    watch.show(ToolFinished("2", "Read", "y", False, "a\nb", 0.1))
    assert watch.live == "● Grep  x\n"
    watch.show(ToolFinished("1", "Grep", "x", False, "y:1", 0.1))
    assert watch.text == "● Read  y  2 lines\n\n● Grep  x\n  y:1\n"


def test_a_retry_takes_back_what_was_not_finished() -> None:
    watch = Watch()
    watch.show(CallStarted(1, 1), TextDelta("lost"), Retrying(2, 8, 10.0, "overloaded"))
    watch.now += 4
    assert watch.live == "◌ overloaded · attempt 2 of 8 failed · again in 6 s · esc to stop\n"
    assert watch.text == ""
    watch.show(TextDelta("Kept.\n\nlost"), Retrying(3, 8, 10.0, "overloaded"), TextDelta("New."))
    watch.show(CallFinished({}, None, "end_turn"))
    assert watch.text == "Kept.\n\n· the reply was cut off; it starts again\n\nNew.\n"


def test_compactions_are_told_as_they_matter() -> None:
    watch = Watch()
    watch.show(Compacted("microcompact", "level", 90_000, 60_000, 0.1, 0.0, 7, "7 results"))
    watch.show(Compacted("summary", "manual", 90_000, 20_000, 9.0, 0.5, 70, "#2 to #72"))
    quiet, loud, *ways = plain(*watch.printed, width=200).strip("\n").split("\n")
    assert quiet == "  microcompact (level): 90,000 → 60,000 tokens · 7 results"
    assert loud.startswith("↧ context compacted (manual): 90,000 → 20,000 tokens")
    assert "$0.5000 · 9.0 s" in loud
    for way in ("/log", "/compact --show", "/uncompact"):
        assert way in "".join(ways)


def test_what_a_turn_ends_with() -> None:
    watch = Watch()
    watch.show(Notice("warning", "careful"), TurnFinished("interrupted", ""))
    error = {"type": "ModelError", "message": "it is down\nTry later."}
    watch.show(TurnFinished("error", "", error))
    assert "! careful\n" in watch.text
    assert "· interrupted; what was done is kept\n" in watch.text
    assert watch.text.endswith("✗ it is down\n  Try later.\n")


def test_a_scripted_model_says_so() -> None:
    watch = Watch()
    watch.show(SessionOpened("id-1", "log", "scripted", 12))
    assert "session id-1 goes on, with 12 entries so far" in watch.text
    assert "a scripted model plays the answers" in watch.text
    assert status.model_name("scripted") == "scripted model"
    assert status.model_name("claude-sonnet-5-5") == "sonnet-5-5"


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
def test_the_status_line_fits(width: int) -> None:
    now = status.Status("claude-sonnet-5-5", "accept-edits", "topic/one", 0.51, "ORANGE", 1.5)
    text = "".join(part for _, part in status.line(now, width))
    assert text.startswith("sonnet-5-5")
    assert len(text) <= width
    if width >= 80:
        assert text == "sonnet-5-5 · accept-edits · topic/one · ▰▰▰▰▱▱▱▱ · 51% ORANGE · $1.50"


def test_the_branch_is_read_without_git(tmp_path) -> None:  # type: ignore[no-untyped-def]
    main, tree = tmp_path / "main", tmp_path / "tree"
    (main / ".git" / "worktrees" / "tree").mkdir(parents=True)
    (main / "deep").mkdir()
    (main / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (main / ".git" / "worktrees" / "tree" / "HEAD").write_text("0123456789abcdef\n")
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {main}/.git/worktrees/tree\n")
    assert status.branch(main / "deep") == "main"
    assert status.branch(tree) == "01234567"
    assert status.branch(tmp_path) == ""
