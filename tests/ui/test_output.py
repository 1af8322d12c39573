"""The output of a turn while it runs and after it, with a fake clock; and unfolding of folded
output.
"""

import asyncio
import re
import subprocess
from pathlib import Path
from threading import Event as Signal

import pytest

from ctxagent.agent.compaction.layers import move
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.events import (
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
    Waiting,
)
from ctxagent.agent.ui import status, transcript
from ctxagent.agent.ui.render import diffs, render, tool_calls
from ctxagent.tools.system.kept_text import KeptText
from ctxagent.tools.text import compare

from ..support.terminal.watch import Watch, seen


def test_a_turn_from_start_to_end() -> None:
    watch = Watch(share=lambda: 0.43)
    watch.show(UserSaid("fix it"), CallStarted(1, 100))
    watch.now += 3
    assert watch.live == "\n◌ waiting for the model · 3 s · Esc to stop\n"
    watch.show(ThinkingDelta("I shall\nlook"))
    assert watch.live == "\nI shall\nlook\n\n◌ thinking · Esc to stop\n"
    watch.now += 2
    watch.show(TextDelta("First **block**.\n\nSecond"))
    assert watch.live == "\nSecond\n\n◌ answering · Esc to stop\n"
    watch.show(ToolDraft("Bash", 1_200))
    assert watch.live == "\n◌ writing a call to Bash, 1,200 characters · Esc to stop\n"
    watch.show(CallFinished({"input": 10, "output": 5}, 0.5, "tool_use"))
    assert watch.live == "\n◌ working · Esc to stop\n"
    watch.show(ToolStarted("1", "Bash", "make", {}))
    watch.show(*(ToolOutput("1", f"out {n}\n") for n in range(9)), ToolOutput("1", "half"))
    assert watch.live.split("\n")[2:-1] == ["  out 5", "  out 6", "  out 7", "  out 8", "  half"]
    watch.show(ToolFinished("1", "Bash", "make", False, "fine", 0.2))
    watch.show(
        CallStarted(2, 200), TextDelta("Done."), CallFinished({"output": 1}, 0.25, "end_turn")
    )
    watch.show(TurnFinished("ok", "Done."))
    assert watch.live == ""
    assert watch.text == (
        "❯ fix it\n\n∴ thought for 2.0 s: I shall look (Ctrl-O)\n\nFirst block.\n\nSecond\n\n"
        "● Bash  make\n  fine\n\nDone.\n"
        "  10 in · 6 out · 1 tool call · 5.0 s · $0.75 · context 43%\n"
    )


def test_words_in_the_middle_of_a_turn_belong_to_its_receipt() -> None:
    watch = Watch()
    watch.show(UserSaid("begin"), CallFinished({"input": 10, "output": 5}, 0.5, "tool_use"))
    watch.now += 5
    watch.show(UserSaid("use tabs", mid_turn=True))
    assert watch.live == "\n◌ working · 5 s · Esc to stop\n"
    watch.show(CallFinished({"output": 1}, 0.25, "end_turn"), TurnFinished("ok", "Done."))
    assert watch.text == "❯ begin\n❯ use tabs\n  10 in · 6 out · 5.0 s · $0.75\n"


@pytest.mark.parametrize("width", [30, 50, 120])
def test_a_receipt_is_whole_in_any_width(width: int) -> None:
    usage = {"input": 500, "cache_read": 12_000, "cache_creation": 0, "output": 940}
    shown = seen(render.receipt(usage, None, 2, 71, share=0.43), width=width)
    assert " ".join(shown.split()) == (
        "12.5k in (12.0k cached) · 940 out · 2 tool calls · 1 min 11 s · price not known · "
        "context 43%"
    )
    assert all(line.startswith("  ") and len(line) <= width for line in shown.splitlines())


def test_the_wait_line_is_shown_throughout_a_turn() -> None:
    """The wait line never disappears between two waits, because the live region would jump."""
    watch = Watch()
    turn: list[Event] = [
        UserSaid("go"), CallStarted(1, 1), ThinkingDelta("hm"), TextDelta("Some text.\n\n"),
        ToolDraft("Bash", 5), CallFinished({}, 0.0, "stop"), ToolStarted("1", "Bash", "ls", {}),
        ToolFinished("1", "Bash", "ls", False, "a", 0.1), Waiting("a hook"), CallStarted(2, 1),
        Retrying(1, 8, 3.0, "overloaded"), TextDelta("Done.\n\n"), CallFinished({}, 0.0, "stop"),
    ]  # fmt: skip
    for event in turn:
        watch.show(event)
        assert watch.live.count("\n") >= 2, event
    watch.show(TurnFinished("ok", ""))
    assert watch.live == ""


def test_code_that_is_being_written_goes_on_where_the_printed_part_ends() -> None:
    watch = Watch()
    watch.show(UserSaid("go"), CallStarted(1, 1), TextDelta("```py\n"))
    for number in range(10):
        watch.show(TextDelta(f"line_{number} = 1\n"))
    assert watch.text.endswith("  line_7 = 1\n")
    assert watch.live.startswith("  line_8 = 1\n  line_9 = 1\n\n◌ ")
    watch.show(TextDelta("```\n\nNext"))
    assert watch.live.startswith("\nNext\n")


def test_tools_side_by_side_do_not_mix() -> None:
    watch = Watch()
    watch.show(ToolStarted("1", "Grep", "x", {}), ToolStarted("2", "Read", "y", {}))
    watch.show(ToolFinished("2", "Read", "y", False, "a\nb", 0.1))
    assert watch.live == "\n● Grep  x\n"
    watch.show(ToolFinished("1", "Grep", "x", False, "y:1", 0.1))
    assert watch.text == "● Read  y  2 lines\n\n● Grep  x\n  y:1\n"


def test_a_retry_drops_the_unfinished_text() -> None:
    watch = Watch()
    watch.show(CallStarted(1, 1), TextDelta("lost"), Retrying(2, 8, 10.0, "overloaded"))
    watch.now += 4
    assert watch.live == "\n◌ again in 6 s · Esc to stop · attempt 2 of 8 failed: overloaded\n"
    assert watch.text == ""
    watch.show(TextDelta("Kept.\n\nlost"), Retrying(3, 8, 10.0, "overloaded"), TextDelta("New."))
    watch.show(CallFinished({}, None, "end_turn"))
    assert watch.text == "Kept.\n\n· the reply was cut off and starts again\n\nNew.\n"


def test_each_wait_says_what_it_is_for_and_how_long() -> None:
    watch = Watch()
    watch.show(UserSaid("go"), Waiting("reading the instructions of the project"))
    watch.now += 2
    assert "◌ reading the instructions of the project · 2 s · Esc to stop" in watch.live
    watch.show(Waiting(""))
    assert "◌ working" in watch.live
    watch.show(CallStarted(1, 1), TextDelta("Some words"))
    watch.now += 1.5
    assert "◌ answering · 2 s" in watch.live
    watch.now += 3.5
    assert "◌ the model is silent · 5 s · Esc to stop" in watch.live
    watch.show(TextDelta(" and more"))
    assert "◌ answering · 5 s" in watch.live
    watch.show(ToolDraft("Write", 10))
    watch.now += 1
    watch.show(ToolDraft("Write", 2_000))
    assert "◌ writing a call to Write, 2,000 characters · 1 s · Esc to stop" in watch.live
    watch.now += 4
    assert "◌ the model is silent · 4 s" in watch.live


def test_compactions_are_told_as_they_matter() -> None:
    watch = Watch()
    watch.show(Compacted("microcompact", "level", 90_000, 60_000, 0.1, 0.0, 7, "7 results"))
    watch.show(Compacted("summary", "manual", 90_000, 20_000, 9.0, 0.5, 70, "#2 to #72"))
    quiet, loud, *ways = seen(*watch.printed, width=200).strip("\n").split("\n")
    assert quiet == "  7 results (level): 90,000 → 60,000 tokens"
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
    assert "session id-1 resumed (12 entries)" in watch.text
    assert "a scripted model plays the answers" in watch.text
    assert status.model_name("scripted") == "scripted model"
    assert status.model_name("claude-sonnet-5-5") == "sonnet-5-5"


# What was folded


def finished(title: str, text: str, ref: int = 0, **details: object) -> ToolFinished:
    return ToolFinished("1", "Bash", title, False, text, 0.1, details, ref)


def offloaded(title: str, text: str) -> ToolFinished:
    plan = move.plan(text, path="/state/a.md", policy=DEFAULT)
    assert plan is not None
    return finished(title, plan.reference, ref=42, tokens_saved=plan.saved)


def numbered(count: int, what: str = "line") -> str:
    return "\n".join(f"{what} {n}" for n in range(count))


def test_what_was_folded_is_unfolded_the_newest_first() -> None:
    watch = Watch()
    watch.show(ThinkingDelta("first thought\nand second"), CallFinished({}, 0.0, "tool_use"))
    watch.show(finished("one", numbered(20)))
    watch.show(finished("short", "all of it"), finished("two", numbered(30, "row")))
    assert watch.text.count("(Ctrl-O)") == 3
    assert watch.unfold() == "\n▾ Bash  two\n" + "".join(f"  row {n}\n" for n in range(30))
    assert watch.unfold().startswith("\n▾ Bash  one\n  line 0\n")
    assert watch.unfold() == "\n▾ thought for 0.0 s\n  first thought\n  and second\n"
    assert watch.unfold() == "\n· nothing else to show in full\n"
    assert watch.unfold().startswith("\n▾ Bash  two\n")
    watch.show(finished("three", numbered(20)))
    assert watch.unfold().startswith("\n▾ Bash  three\n")


def test_fast_presses_unfold_in_order_also_if_the_first_text_takes_long_to_read() -> None:
    watch, is_read = Watch(), Signal()
    watch.show(finished("short", numbered(20)))
    watch.show(finished("large", numbered(5_000), ref=43))

    def read(ref: int) -> KeptText:
        is_read.wait(timeout=60)
        return KeptText(numbered(5_000))

    async def press_twice() -> None:
        pressed = [asyncio.create_task(watch.transcript.unfold(read)) for _ in range(2)]
        done, _ = await asyncio.wait(pressed[1:], timeout=0.1)
        assert not done
        is_read.set()
        await asyncio.gather(*pressed)

    asyncio.run(press_twice())
    assert re.findall("▾ Bash  ([a-z]+)", watch.text) == ["large", "short"]


def test_a_large_text_is_found_in_the_log() -> None:
    watch = Watch()
    watch.show(finished("large", numbered(5_000), ref=43))
    watch.log = {43: numbered(5_000, "whole")}
    lines = watch.unfold().splitlines()
    assert lines[2] == "  whole 0"
    assert "  … 4,800 lines left out: /log #43 shows them" in lines
    assert lines[-1] == "  whole 4999"
    assert len(lines) == 2 + 201
    kept = watch.transcript._folds._kept
    assert sum(len(fold.text) for fold in kept) < transcript.MAX_HELD_CHARS


def test_a_call_that_never_ran_is_not_counted_and_a_refusal_is_told_once() -> None:
    watch = Watch()
    text = "The user declined this call. They say: not that"
    no = ToolFinished("1", "Write", "a.txt", True, text, 0, {"denied": True, "declined": True})
    watch.show(UserSaid("go"), CallFinished({"input": 10}, 0.5, "tool_use"), no)
    watch.show(TurnFinished("ok", ""))
    assert "● Write  a.txt  not run\n" in watch.text
    assert "not that" not in watch.text
    assert "tool call" not in watch.text


def test_an_offloaded_result_is_unfolded_from_its_file() -> None:
    watch = Watch()
    watch.show(offloaded("offloaded", numbered(9_000)))
    watch.log = {42: numbered(3, "of the file")}
    assert watch.unfold() == (
        "\n▾ Bash  offloaded\n  of the file 0\n  of the file 1\n  of the file 2\n"
    )


def test_an_offloaded_result_is_shown_by_how_it_begins_and_ends() -> None:
    """The reference is only for the model."""
    watch = Watch()
    watch.show(offloaded("seq", numbered(9_000)))
    assert watch.text == (
        "● Bash  seq\n  line 0\n  line 1\n  line 2\n  line 3\n  … +8,994 lines (Ctrl-O)\n"
        "  line 8998\n  line 8999\n"
    )


@pytest.mark.slow
def test_only_so_much_is_kept_for_unfolding() -> None:
    watch = Watch()
    watch.show(*(finished(f"call {n}", numbered(20)) for n in range(200)))
    titles = [watch.unfold().splitlines()[1] for _ in range(transcript.MAX_FOLDS)]
    assert titles[-1] == "▾ Bash  call 150"
    assert "nothing else to show in full" in watch.unfold()


def test_another_session_has_nothing_to_unfold() -> None:
    watch = Watch()
    watch.show(finished("one", numbered(20)), SessionOpened("id-2", "log", "model"))
    assert watch.unfold() == "\n· nothing to show in full\n"


def test_a_folded_diff_is_unfolded_as_a_diff() -> None:
    watch = Watch()
    before, after = numbered(100) + "\n", numbered(100, "other") + "\n"
    watch.show(
        ToolFinished("1", "Edit", "a.txt", False, "ok", 0.1,
                     {"diff": compare(before, after, "a.txt").text})
    )  # fmt: skip
    assert "  … +160 lines (Ctrl-O)\n" in watch.text
    shown = watch.unfold()
    assert shown.startswith("\n▾ Edit  a.txt\n    1 - line 0\n")
    assert shown.endswith("  100 + other 99\n")


def test_unfold_on_the_plain_screen() -> None:
    watch = Watch(paints=False)
    watch.show(finished("one", numbered(20)))
    assert "… +14 lines (/unfold)" in watch.text


# Changes of files


def change(before: str | None, after: str, name: str = "a.py", *, width: int = 60) -> str:
    return seen(diffs.diff(compare(before, after, name).text, path=name), width=width)


def test_a_change_has_numbers_and_marks() -> None:
    before = numbered(30).replace("line 7", "def old(): pass")
    after = before.replace("def old(): pass", "def new(): pass\nmore = 1").replace(
        "line 25", "l 25"
    )
    assert change(before, after) == (
        "   5   line 4\n   6   line 5\n   7   line 6\n"
        "   8 - def old(): pass\n   8 + def new(): pass\n   9 + more = 1\n"
        "  10   line 8\n  11   line 9\n  12   line 10\n     ⋯\n"
        "  24   line 22\n  25   line 23\n  26   line 24\n"
        "  26 - line 25\n  27 + l 25\n"
        "  28   line 26\n  29   line 27\n  30   line 28\n"
    )


def test_a_long_line_goes_on_under_its_mark() -> None:
    long = "x = " + "abc " * 30
    shown = change("", f"{long}\n", width=40)
    first, *others = shown.splitlines()
    assert first.startswith("  1 + x = abc")
    assert all(len(line) <= 40 and line.startswith("      ") for line in others)
    # Lines end between words; the mark of blanks at the end stays.
    assert " ".join([first[6:].strip(), *map(str.strip, others)]) == long.rstrip(" ") + "·"


def test_what_changed_within_a_line_is_underlined() -> None:
    text = compare("total = price * count\n", "total = price * amount\n", "a.py").text
    shown = render.render_text([diffs.diff(text)], width=60, depth="mono")
    underlined = re.findall(r"\x1b\[[0-9;]*4[0-9;]*m([^\x1b]*)", shown)
    assert underlined == ["count", "amount"]


def test_code_in_a_diff_has_the_colours_of_its_language() -> None:
    text = compare("", 'def f():\n    return "x"\n', "a.py").text
    shown = render.render_text([diffs.diff(text)], width=60, depth="color")
    assert re.search(r"\x1b\[[0-9;]+mdef\x1b", shown)
    assert re.search(r'\x1b\[[0-9;]+m"x"\x1b', shown)


def test_blanks_at_the_end_of_a_changed_line_are_seen() -> None:
    assert change("a\n", "a  \n") == "  1 - a\n  1 + a··\n"


def test_a_new_file_is_folded_sooner() -> None:
    text = compare(None, numbered(50), "a.txt").text
    shown = seen(diffs.diff(text, path="a.txt", fold=True, unfold_hint=" (Ctrl-O)"))
    assert shown.count("\n") == diffs.FOLDED_NEW_FILE_LINES + 1
    hidden = 50 + 1 - diffs.FOLDED_NEW_FILE_LINES  # one says: no end of line
    assert shown.endswith(f"… +{hidden} lines (Ctrl-O)\n")


def test_a_diff_is_folded_when_done_and_whole_when_asked() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1,100 @@\n-old\n" + "".join(f"+new {n}\n" for n in range(100))
    details = {"diff": diff, "added": 100, "removed": 1}
    done = seen(
        *tool_calls.result(ToolFinished("1", "Edit", "a.py", False, "ok", 0.0, details)).parts
    )
    assert done.startswith("● Edit  a.py  +100 −1\n   1 - old\n   1 + new 0\n")
    assert done.endswith("  … +61 lines\n")
    asked = seen(tool_calls.question(Question("Edit", "a.py", {}, "Edit(a.py)", "why", diff)))
    assert "  100 + new 99\n" in asked


def test_a_diff_shows_every_changed_line() -> None:
    """Also lines whose content looks like a diff header."""
    head = "--- a/q.sql\n+++ b/q.sql\n"
    body = "@@ -1,2 +1,1 @@\n--- drop nothing\n-- keep\n+++ counter;\n select 1;\n"
    assert seen(diffs.diff(head + body, path="q.sql")) == (
        "  1 - -- drop nothing\n  2 - - keep\n  1 + ++ counter;\n  2   select 1;\n"
    )


def test_a_diff_of_several_files_names_each() -> None:
    text = compare("a\n", "b\n", "x.py").text + compare(None, "c\n", "y/z.py").text
    assert seen(diffs.diff(text)) == ("  x.py\n  1 - a\n  1 + b\n  y/z.py\n  1 + c\n")


def test_a_diff_of_git_names_each_file_once(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    for name, text in (("a.txt", "one\n"), ("gone.txt", "bye\n"), ("old.txt", "same\n" * 9)):
        (tmp_path / name).write_text(text)
    git("add", ".")
    git("commit", "-qm", "x")
    (tmp_path / "a.txt").write_text("two\n")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "old.txt").rename(tmp_path / "new.txt")
    (tmp_path / "bin").write_bytes(b"\0\1")
    git("add", ".")
    shown = seen(diffs.diff(git("diff", "--cached", "-M", "HEAD")))
    assert "  a.txt\n  1 - one\n  1 + two\n  bin\n" in shown
    assert "Binary files" in shown
    assert "  gone.txt\n    deleted file mode 100644\n  1 - bye\n  new.txt\n" in shown
    assert "rename from old.txt" in shown
    assert shown.count("a.txt") == shown.count("gone.txt") == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [24, 40, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    before, after = "字" * 90 + "\n", "字" * 80 + " " + "w" * 300 + "\n"
    for line in change(before, after, width=width).splitlines():
        assert render.Text(line).cell_len <= width


def test_where_a_session_was_left_is_told_in_a_few_lines() -> None:
    watch = Watch()
    words = "\n".join(f"line {n}" for n in range(50))
    watch.transcript.recap(words, "An answer. " * 400)
    lines = watch.text.rstrip("\n").split("\n")
    assert len(lines) <= 17
    assert lines[0] == "❯ line 0"
    assert any(line.startswith("An answer.") for line in lines)
    assert re.fullmatch(r"… \+\d+ lines \(Ctrl-O\)", lines[-1])


def test_the_recap_has_no_escape_sequences_and_needs_no_answer() -> None:
    watch = Watch()
    watch.transcript.recap("hi", "")
    assert watch.text == "❯ hi\n"
    watch.transcript.recap("a\x1b]0;x", "b\x1b]0;x")
    assert "\x1b" not in watch.text


def test_the_last_answer_looks_as_it_did_when_it_came() -> None:
    answer = (
        "## Fixed\n\n`half` divides **now**.\n\n| price | now |\n|------:|----:|\n| 3.00 | 1.50 |"
        "\n\n```python\nreturn 1\n```\n"
    )
    live, recap = Watch(), Watch()
    live.show(UserSaid("fix it"), TextDelta(answer), CallFinished({}, 0.0, "end_turn"))
    recap.transcript.recap("fix it", answer)
    assert recap.text == live.text
    assert not re.search(r"[`*#|]", recap.text)


@pytest.mark.slow
def test_a_very_long_last_answer_is_read_to_a_bound_and_unfolds_whole() -> None:
    answer = "\n\n".join(f"Paragraph **{n}**." for n in range(1_500))
    watch = Watch()
    watch.transcript.recap("go on", answer)
    assert "Paragraph 1." in watch.text
    assert "**" not in watch.text
    (left,) = re.findall(r"… \+([\d,]+) lines", watch.text)
    assert int(left.replace(",", "")) == pytest.approx(2 * 1_500, abs=20)
    assert "Paragraph 30." not in watch.text
    whole = watch.unfold()
    assert "▾ the last answer" in whole
    assert "Paragraph 1499." in whole
    assert "**" not in whole
