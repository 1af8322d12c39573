"""Playing recordings: model calls, costs, and missed results."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.addons.replay.parallel import compare
from ctxagent.addons.replay.player import NeedDetector, Player, Terms, play
from ctxagent.addons.replay.results import ReplayRun, Share, Sums
from ctxagent.agent.compaction.engine import WHILE_AWAY
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.context.request import Request
from ctxagent.agent.models.catalog import cost
from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedCompaction,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)
from ctxagent.agent.recordings.tool_names import translate
from ctxagent.agent.session.entries import Usage

from ..support.sessions.history import words
from ..support.sessions.recording import Strict

MODEL = "claude-sonnet-5"
CORES = os.cpu_count() or 1
WORKERS = min(CORES, 8) if CORES > 1 else 0  # for 8 plays
ALONE = replace(DEFAULT, clear_when="off", move_above=None, line_numbers=True, truncate_at=None)


def terms(policy: Policy = DEFAULT, *, window: int = 60_000, label: str = "x") -> Terms:
    return Terms(label, policy, MODEL, window, "Be exact.", ())


def recording(*steps: RecordedStep, name: str = "made") -> Recording:
    return Recording(name, "none", steps)


def bash(number: int, size: int, at: float | None = None, **given: str) -> RecordedReply:
    command = given.get("command", f"make part-{number}")
    text = f"part {number}\n{words(size)}"
    return RecordedReply(
        f"Part {number}.", (RecordedCall(f"c{number}", "bash", {"command": command}, text),), at
    )


def working(calls: int, size: int, every: float | None = None) -> Recording:
    times = [None if every is None else every * n for n in range(calls)]
    return recording(RecordedMessage("go"), *(bash(n, size, at) for n, at in enumerate(times)))


def strictly(played: Recording, terms: Terms, folder: Path) -> Player:
    player = Strict(played, terms, folder)
    player_run[id(player)] = asyncio.run(player.run())
    return player


player_run: dict[int, ReplayRun] = {}


# The run


def test_every_reply_is_one_call_and_its_parts_add_up() -> None:
    run = play(working(12, 900), terms(ALONE))
    assert [call.number for call in run.priced] == list(range(1, 13))
    sums = run.sums
    assert sums.sent == sums.read + sums.written + sums.plain
    assert sums.peak == max(call.prompt for call in run.priced)
    for call in run.priced:
        usage = Usage(call.plain, call.read, call.written, call.output)
        assert call.dollars == cost(MODEL, usage)
    assert sums.dollars == pytest.approx(sum(call.dollars for call in run.priced))
    assert run.stopped == ""
    assert run.acts == ()


@pytest.mark.slow
def test_the_default_costs_less_than_summaries_alone_and_loses_nothing() -> None:
    """The window fits a quarter of the session."""
    played = working(80, 2_500)
    alone, default = (play(played, terms(policy)).sums for policy in (ALONE, DEFAULT))
    assert alone.summaries >= 2
    assert default.summaries < alone.summaries
    assert default.dollars < 0.75 * alone.dollars
    assert alone.recovered == default.recovered == Share(80, 80)


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_request_of_every_preset_is_acceptable(name: str, tmp_path: Path) -> None:
    player = strictly(working(40, 2_000), terms(PRESETS[name], window=40_000), tmp_path)
    assert player_run[id(player)].recovered == Share(40, 40)
    assert player_run[id(player)].stopped == ""


@pytest.mark.slow
def test_a_summary_is_priced_as_if_a_model_had_written_it() -> None:
    run = play(working(40, 2_500), terms(ALONE))
    summaries = [call for call in run.priced if call.purpose == "summary"]
    assert len(summaries) >= run.sums.summaries >= 1
    assert all(call.prompt > 30_000 and call.output > 0 for call in summaries)


@pytest.mark.slow
def test_a_summary_keeps_the_instructions_of_the_agent(tmp_path: Path) -> None:
    told = RecordedMessage("Run the linter before you answer.", by_client=True)
    played = recording(told, RecordedMessage("go"), *(bash(n, 2_500) for n in range(40)))
    player = strictly(played, terms(ALONE), tmp_path)
    assert player_run[id(player)].sums.summaries >= 1
    assert player.context().count(told.text) == 1


def test_what_a_cache_has_forgotten_is_written_again() -> None:
    near, far = (play(working(10, 900, every), terms(ALONE)).sums for every in (10.0, 400.0))
    assert far.read < 0.01 * far.sent
    assert near.read > 0.7 * near.sent


def test_after_a_pause_old_results_are_cleared_immediately() -> None:
    """The cache has expired, so clearing costs nothing extra."""
    played = recording(
        RecordedMessage("go", 0.0),
        *(bash(n, 1_500, 10.0 * n) for n in range(6)),
        RecordedReply("Done.", (), 70.0),
        RecordedMessage("And now?", 1_000.0),
        RecordedReply("Nothing.", (), 1_010.0),
    )
    run = play(played, terms(replace(DEFAULT, clear_keep=2, while_away=False)))
    assert [act.trigger for act in run.acts][-1] == "the cache has ended"
    assert run.acts[-1].number == run.priced[-1].number
    assert run.priced[-1].cold


def back_after(seconds: float, **message: bool) -> Recording:
    """Texts of about 36,000 tokens, and a message after a pause."""
    replies = (RecordedReply(words(6_000), (), 10.0 * n) for n in range(1, 7))
    return recording(
        *(step for reply in replies for step in (RecordedMessage("go", reply.at), reply)),
        RecordedMessage("And now?", 70.0 + seconds, **message),
        RecordedReply("Nothing.", (), 80.0 + seconds),
    )


def test_a_summary_when_the_user_returns_after_the_cache_has_expired() -> None:
    late, off = back_after(1_000.0), terms(replace(DEFAULT, while_away=False), window=200_000)
    run, without = play(late, terms(window=200_000)), play(late, off)
    pause, kept = run.pauses[-1], without.pauses[-1]
    assert [act.trigger for act in run.acts] == [WHILE_AWAY]
    assert (pause.number, pause.was_away, pause.summarized) == (7, True, True)
    assert pause.seconds == pytest.approx(1_000.0, abs=30.0)
    assert (kept.was_away, kept.summarized) == (True, False)
    assert pause.after < kept.after == kept.before == pause.before
    sums = run.sums
    assert (sums.pauses, sums.pauses_away, sums.pauses_used) == (6, 1, 1)
    assert sums.pauses_usd == run.priced[-1].dollars < without.sums.pauses_usd
    assert run.priced[:-1] == without.priced[:-1]
    assert [call.purpose for call in run.priced] == ["turn"] * 7


@pytest.mark.parametrize(
    "played",
    [back_after(100.0), back_after(1_000.0, by_client=True), back_after(1_000.0, mid_turn=True)],
)
def test_whoever_returns_in_time_has_the_same_requests(played: Recording, tmp_path: Path) -> None:
    """So has a client that writes by itself."""

    class Recorder(Player):
        def request(self) -> Request:
            made = super().request()
            sent.setdefault(self.terms.label, []).append(repr(made))
            return made

    sent: dict[str, list[str]] = {}
    for label, policy in (("on", DEFAULT), ("off", replace(DEFAULT, while_away=False))):
        player = Recorder(played, terms(policy, window=200_000, label=label), tmp_path / label)
        assert asyncio.run(player.run()).sums.pauses_used == 0
    assert len(sent["on"]) == 7
    assert sent["on"] == sent["off"]


def test_a_session_that_cannot_fit_gives_the_reason() -> None:
    small = replace(terms(window=4_000), system=words(5_000))
    run = play(recording(RecordedMessage("go"), RecordedReply("No.")), small)
    assert "cannot be made to fit" in run.stopped
    assert run.priced == ()


def test_recorded_compactions_are_not_counted_as_acts() -> None:
    run = play(
        recording(
            RecordedMessage("a"),
            RecordedReply("b"),
            RecordedCompaction(),
            RecordedMessage("c"),
            RecordedReply("d"),
        ),
        terms(),
    )
    assert len(run.priced) == 2
    assert run.acts == ()


@pytest.mark.slow
def test_the_contents_of_the_window_are_sampled() -> None:
    run = play(working(100, 300), replace(terms(), fills=10))
    assert 9 <= len(run.fills) <= 11
    for fill in run.fills:
        assert dict(fill.parts)["system"] > 0
        assert sum(tokens for _, tokens in fill.parts) > 0
    assert play(working(5, 300), replace(terms(), fills=0)).fills == ()


def test_paths_and_errors_that_the_last_context_has() -> None:
    edit = RecordedCall("e", "edit", {"path": "a/b.py", "oldText": "x", "newText": "y"}, "Done.")
    failed = RecordedCall(
        "f", "bash", {"command": "make"}, "line\nerror: no rule for z", is_error=True
    )
    run = play(
        recording(RecordedMessage("go"), RecordedReply("", (edit, failed)), RecordedReply("Done.")),
        terms(),
    )
    assert run.paths == run.errors == Share(1, 1)


def test_a_replay_is_deterministic() -> None:
    """This includes references to files, although the folder's name differs between runs."""
    policy = replace(DEFAULT, move_above=500)
    first, second = (play(working(6, 900), terms(policy)) for _ in range(2))
    assert first == second
    assert {act.layer for act in first.acts} == {"demote"}


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 1])
def test_parallel_plays_keep_the_order_of_recordings(threads: int) -> None:
    """Plays run in workers, or sequentially in a process with threads, which must not fork."""
    code = (
        "import multiprocessing, threading\n"
        f"from {__name__} import compare_side_by_side\n"
        "wait = threading.Event()\n"
        f"for _ in range({threads}): threading.Thread(target=wait.wait).start()\n"
        "compare_side_by_side()\n"
        "wait.set()\n"
        "print(next(multiprocessing.process._process_counter) - 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (0 if threads else WORKERS)


def compare_side_by_side() -> None:
    played = [replace(working(n + 2, 200), name=f"r{n}") for n in range(4)]
    columns = [terms(ALONE, label="alone"), terms(label="default")]
    told: list[tuple[int, int, float]] = []
    found = compare(played, columns, lambda *so_far: told.append(so_far))
    assert found.labels == ("alone", "default")
    assert [[run.name for run in row] for row in found.runs] == [[f"r{n}"] * 2 for n in range(4)]
    assert [len(row[0].priced) for row in found.runs] == [2, 3, 4, 5]
    assert [so_far[:2] for so_far in told] == [(n, 8) for n in range(1, 9)]
    shares = [share for _, _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    alone = [play(each, columns[0]) for each in played]
    assert [row[0] for row in found.runs] == alone
    assert found.total("alone") == sum((run.sums for run in alone), Sums())


# What was needed after it was gone


def visible(text: str) -> Callable[[], str]:
    return lambda: text


def gone(*refs: int) -> Callable[[int], bool]:
    return lambda ref: ref in refs


READ = translate(RecordedCall("1", "Read", {"file_path": "a.py"}, "text"))
EDIT = translate(
    RecordedCall(
        "2", "Edit", {"file_path": "a.py", "old_string": "  the_line = of_interest()"}, "Done."
    )
)


def seen(text: str) -> NeedDetector:
    needs = NeedDetector()
    needs.add(7, READ, text)
    return needs


def test_a_recalled_result_was_needed_if_it_had_left_the_context() -> None:
    """The need counts once, until the recalled text has left the context too."""
    recall = translate(RecordedCall("3", "Recall", {"ref": "#29"}, "all"))
    needs = NeedDetector()
    needs.add(7, READ, "all of a.py", recorded="#29")
    assert needs.find(recall, "all", gone(), visible(""), "#29") is None
    assert needs.find(recall, "all", gone(7), visible(""), "#28") is None
    missed = needs.find(recall, "all", gone(7), visible(""), "#29")
    assert missed is not None
    assert (missed.ref, missed.how, missed.text) == (7, "asked again", "all of a.py")
    needs.add(9, recall, "all", recorded="#29")
    assert needs.find(recall, "all", gone(7), visible(""), "#29") is None
    assert needs.find(recall, "all", gone(7, 9), visible(""), "#29") is not None


def test_a_repeated_call_with_the_same_result_is_a_need() -> None:
    needs = seen("all of a.py")
    missed = needs.find(READ, "all of a.py", gone(7), visible(""))
    assert missed is not None
    assert (missed.ref, missed.how, missed.text) == (7, "asked again", "all of a.py")


@pytest.mark.parametrize(
    ("text", "refs"), [("a.py has changed", (7,)), ("all of a.py", ())], ids=["other", "still here"]
)
def test_changed_or_present_results_are_not_missed(text: str, refs: tuple[int, ...]) -> None:
    assert seen("all of a.py").find(READ, text, gone(*refs), visible("")) is None


def test_text_only_in_a_removed_result_is_needed_once() -> None:
    needs = seen("    3→  the_line = of_interest()\n    4→  more")
    missed = needs.find(EDIT, "Done.", gone(7), visible("nothing of it"))
    assert missed is not None
    assert missed.how == "used"
    assert needs.find(EDIT, "Done.", gone(7), visible("nothing of it")) is None


def test_text_that_is_also_elsewhere_is_not_missed() -> None:
    needs = seen("    3→  the_line = of_interest()")
    assert needs.find(EDIT, "Done.", gone(7), visible("3→the_line = of_interest()")) is None
    assert needs.find(EDIT, "Done.", gone(), visible("")) is None


@pytest.mark.slow
def test_a_need_is_priced_and_counts_in_the_sums() -> None:
    line = "the_line_of_interest = 4711"
    read = RecordedCall("r", "Read", {"file_path": "a.py"}, f"{line}\n{words(1_500)}")
    edit = {"file_path": "a.py", "old_string": line, "new_string": "y"}
    played = recording(
        RecordedMessage("go"),
        RecordedReply("", (read,)),
        *(bash(n, 1_500) for n in range(12)),
        RecordedReply("", (RecordedCall("e", "Edit", edit, "Done."),)),
        RecordedReply("", (replace(read, id="r2", text=read.text.replace(line, "y")),)),
    )
    run = play(played, terms(PRESETS["v5"]))
    assert [(need.how, need.what) for need in run.needs] == [("used", "Edit a.py")]
    (need,) = run.needs
    assert need.dollars > 0
    assert run.sums.dollars == pytest.approx(sum(c.dollars for c in run.priced) + need.dollars)
    assert play(played, terms(ALONE)).needs == ()


# Tools by our names


@pytest.mark.parametrize(
    ("name", "given", "ours", "argument"),
    [
        ("shell", {"command": ["bash", "-lc", "ls -l"]}, "Bash", ("command", "ls -l")),
        ("exec_command", {"cmd": "ls"}, "Bash", ("command", "ls")),
        ("exec", {"input": "await run()"}, "Bash", ("command", "await run()")),
        ("run_shell_command", {"command": "ls"}, "Bash", ("command", "ls")),
        ("view", {"path": "a.py"}, "Read", ("path", "a.py")),
        ("read_file", {"absolute_path": "/a.py"}, "Read", ("path", "/a.py")),
        ("str_replace_editor", {"command": "view", "path": "a"}, "Read", ("path", "a")),
        ("str_replace_editor", {"command": "create", "path": "a"}, "Write", ("path", "a")),
        ("str_replace_editor", {"command": "insert", "path": "a"}, "Edit", ("path", "a")),
        ("edit", {"path": "a", "oldText": "x"}, "Edit", ("old_string", "x")),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]},
         "Edit", ("old_string", "x")),
        ("search_file_content", {"pattern": "x"}, "Grep", ("pattern", "x")),
        ("glob", {"pattern": "*.py"}, "Glob", ("pattern", "*.py")),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n"}, "Edit",
         ("input", "*** Begin Patch\n*** Update File: a.py\n")),
        ("write_stdin", {"session_id": 1, "chars": ""}, "Job", ("session_id", 1)),
        ("TaskOutput", {"task_id": "b1"}, "Job", ("task_id", "b1")),
        ("TodoWrite", {"todos": []}, "Todo", ("todos", [])),
        ("mcp__files__read", {"path": "a"}, "mcp__files__read", ("path", "a")),
        ("odd name<", {}, "odd_name_", None),
    ],
)  # fmt: skip
def test_tools_of_other_agents_are_translated(
    name: str, given: dict[str, object], ours: str, argument: tuple[str, object] | None
) -> None:
    found = translate(RecordedCall("1", name, given, "Done."))
    assert found.name == ours
    if argument:
        assert found.input[argument[0]] == argument[1]


@pytest.mark.parametrize(
    ("text", "is_error", "code"),
    [
        ("fine", False, 0),
        ("no", True, 1),
        ("Process exited with code 2\nno", False, 2),
        ("Exit code: 128\nfatal", True, 128),
        (f"{words(3_000)}\nCommand exited with code 3", True, 3),
    ],
)
def test_the_exit_code_of_a_command(text: str, is_error: bool, code: int) -> None:
    found = translate(RecordedCall("1", "bash", {"command": "make"}, text, is_error))
    assert found.details["exit_code"] == code
    assert found.is_error == (code != 0)


def test_the_files_changed_by_a_patch() -> None:
    patch = "*** Begin Patch\n*** Add File: a.py\n+x\n*** Delete File: b.py\n*** End Patch"
    for name, given in (("apply_patch", {"patch": patch}), ("shell", {"command": patch})):
        found = translate(RecordedCall("1", name, given, "Done."))
        assert found.changes == ("a.py", "b.py")
        assert translate(RecordedCall("1", name, given, "failed", is_error=True)).changes == ()


# When a summary is due


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("outline", [False, True])
def test_clearing_replaces_a_summary_while_it_frees_enough(outline: bool) -> None:
    """Stubs accumulate until clearing frees too little and a summary is needed. With outlines, this
    does not happen.
    """
    policy = replace(DEFAULT, move_above=None, outline=outline)
    run = play(working(160, 3_000), terms(policy, window=32_000))
    instead = [act for act in run.acts if act.trigger == "instead of a summary"]
    assert instead
    for number in {act.number for act in instead}:
        first, *_, last = [each for each in instead if each.number == number] * 2
        assert first.before > 0.9 * 32_000
        assert last.after <= 16_000
    assert (run.sums.summaries > 0) is not outline
    asked = sum(call.purpose == "summary" for call in run.priced)
    assert asked <= 2 * (run.sums.summaries + 1), "none is prepared where clearing will do"


@pytest.mark.slow
def test_presets_with_levels_clear_at_their_levels() -> None:
    for name in ("ctx-001", "anchored"):
        run = play(working(60, 3_000), terms(PRESETS[name], window=60_000))
        assert {act.trigger for act in run.acts if act.layer == "microcompact"} == {"level"}


@pytest.mark.slow
def test_dropped_thinking_is_priced_separately() -> None:
    """The first 15 of 20 replies have recorded output: 500 tokens more than their content."""
    said = 40
    steps = [replace(bash(n, 3_000), output=said + 500 if n < 15 else None) for n in range(20)]
    played = recording(RecordedMessage("go"), *steps)
    large = terms(ALONE, window=1_000_000)  # without a summary
    calm, edited = play(played, large).thinking, play(played, terms(PRESETS["v5"])).thinking
    assert calm.told == edited.told == Share(15, 20)
    assert calm.tokens == edited.tokens > 15 * 450
    assert (calm.dropped, calm.saved_usd, calm.again_usd) == (0, 0, 0)
    assert 0 < edited.dropped <= edited.tokens
    assert edited.again_usd == cost(MODEL, Usage(output=edited.dropped))
    one_reading = cost(MODEL, Usage(cache_read=edited.dropped))
    assert one_reading is not None
    assert edited.saved_usd >= one_reading
    with_thinking, without = (
        play(played, terms(PRESETS["v5"])),
        play(working(20, 3_000), terms(PRESETS["v5"])),
    )
    assert with_thinking.sums.dollars == without.sums.dollars  # it is among nothing that is paid
