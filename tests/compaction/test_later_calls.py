"""The fate of each result, and the chance that it is needed again."""

from typing import Any

import pytest

from ctxagent.agent.compaction.layers.later_calls import (
    CURVES,
    REPEATED,
    Fate,
    fates_of,
    input_ages,
    seen_needs,
)
from ctxagent.agent.context.view import View

from ..support.sessions.history import History, words


def read(history: History, path: str, first: int = 1, last: int = 40) -> int:
    details = {"path": path, "lines": [first, last]}
    return history.call("Read", {"path": path, "offset": first}, words(100), details=details)


def edit(history: History, path: str) -> int:
    return history.call("Edit", {"path": path}, "done", details={"path": path})


def bash(history: History, command: str, code: int = 0, **details: Any) -> int:
    found = {"exit_code": code, **details}
    return history.call("Bash", {"command": command}, words(50), details=found, is_error=code != 0)


def fates(view: View) -> dict[int, Fate]:
    """The fates, by the seq of the result."""
    found = fates_of(view)
    return {result.item.seq: found[result.call.id] for result in view.results()}


def chance(view: View, seq: int) -> float:
    call = next(r.call for r in view.results() if r.item.seq == seq)
    return fates(view)[seq].need_chance(call)


def test_the_age_counts_replies_since_a_result_or_since_its_file_was_changed() -> None:
    history = History()
    untouched, touched = read(history, "/a.py"), read(history, "/b.py")
    bash(history, "make")
    change = edit(history, "/b.py")
    bash(history, "make test")
    found = fates(history.view())
    assert found[untouched] == Fate(age=4)
    assert found[touched] == Fate(age=1, changes=1, changed_by=change)


def test_a_command_that_changes_a_file_counts_as_a_change_of_it() -> None:
    history = History()
    shown = read(history, "/a.py")
    row = {"path": "/a.py", "action": "modified"}
    by = bash(history, "sed -i s/a/b/ a.py", changes=[row])
    assert fates(history.view())[shown] == Fate(age=0, changes=1, changed_by=by)


def test_what_is_repeated_or_part_of_a_later_page_is_superseded() -> None:
    history = History()
    page, command = read(history, "/a.py", 1, 40), bash(history, "git status")
    failing = bash(history, "make", code=2)
    more, again = read(history, "/a.py", 1, 90), bash(history, "git status")
    fixed = bash(history, "make")
    found = fates(history.view())
    assert found[page].repeated_by == more
    assert found[command].repeated_by == again
    assert found[failing].repeated_by == fixed
    assert found[failing].fixed
    assert {found[seq].superseded_by for seq in (more, again, fixed)} == {None}
    assert chance(history.view(), page) == REPEATED


def test_files_are_needed_again_more_often_than_other_results() -> None:
    history = History()
    seqs = {
        "read": read(history, "/a.py"),
        "shown": bash(history, "cd /x && sed -n '1,40p' b.py"),
        "search": history.call("Grep", {"pattern": "x"}, words(50)),
        "command": bash(history, "pytest -q"),
    }
    view = history.view()
    for age, (kind, seq) in enumerate(reversed(seqs.items())):
        assert chance(view, seq) == CURVES[kind].at(age)  # type: ignore[index]
    others = [CURVES[kind].at(0) for kind in ("shown", "search", "command")]
    assert CURVES["read"].at(0) > 5 * max(others)


def test_a_change_makes_it_less_likely_that_the_page_is_needed() -> None:
    history = History()
    page = read(history, "/a.py")
    before = chance(history.view(), page)
    edit(history, "/a.py")
    once = chance(history.view(), page)
    edit(history, "/a.py")
    assert before > once > chance(history.view(), page) > REPEATED


def test_a_chance_falls_with_age_and_ends_at_its_rest() -> None:
    for curve in CURVES.values():
        assert curve.at(0) == pytest.approx(curve.first)
        assert curve.at(0) > curve.at(5) > curve.at(50) > curve.rest
        half = curve.rest + (curve.first - curve.rest) / 2
        assert abs(curve.at(int(curve.half_life)) - half) < 1e-9


def test_the_ages_of_inputs() -> None:
    history = History()
    edit(history, "/a.py")
    bash(history, "make")
    history.call("Write", {"path": "/b.py", "content": "x"}, "done", details={"path": "/b.py"})
    assert sorted(input_ages(history.view()).values()) == [0, 1, 2]


def _run(history: History, number: int) -> tuple[int, str]:
    seq = bash(history, f"make part-{number}")
    return seq, next(r.call.id for r in history.view().results() if r.item.seq == seq)


@pytest.mark.parametrize("asked_again", [False, True])
def test_chances_adapt_to_the_session(*, asked_again: bool) -> None:
    """Of 30 cleared outputs, none or every third is requested again."""
    history = History()
    old = [_run(history, number) for number in range(30)]
    history.mask("microcompact", [{"seq": s, "tool_use_id": id, "stub": "gone"} for s, id in old])
    for number in range(0, 30, 3) if asked_again else ():
        bash(history, f"make part-{number}")
    newest, _ = _run(history, 99)
    view = history.view()
    found = fates_of(view)
    seen = seen_needs(view.results(), found)
    assert sum(seen.gone.values()) == 30
    assert sum(seen.again.values()) == (10 if asked_again else 0)
    result = next(r for r in view.results() if r.item.seq == newest)
    fate = found[result.call.id]
    usual, here = fate.need_chance(result.call), seen.chance(fate, result.call)
    assert (here > usual) if asked_again else (here < 0.5 * usual)


def test_results_repeated_before_clearing_do_not_count() -> None:
    history = History()
    first, id = _run(history, 1)
    bash(history, "make part-1")
    history.mask("microcompact", [{"seq": first, "tool_use_id": id, "stub": "gone"}])
    view = history.view()
    assert sum(seen_needs(view.results(), fates_of(view)).gone.values()) == 0
