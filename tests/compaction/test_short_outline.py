"""Short outlines: old outlines become one line per run of like calls, and requests stay valid."""

from collections.abc import Sequence
from typing import Any

from ctxagent.agent.compaction.layers import outline, short_outline
from ctxagent.agent.compaction.layers.outline import SAID_PREFIX
from ctxagent.agent.compaction.layers.short_outline import (
    HEADER,
    MIN_AGE,
    OLDEST_AGE,
    OLDEST_HEADER,
)
from ctxagent.agent.context.view import View
from ctxagent.agent.session.entries import Revert

from ..support.sessions.history import History, called, words
from .test_outline import outline_all


def planned(view: View) -> list[Any]:
    return short_outline.plan(view, outline.FinishedCache(), short_outline.ShortOutlineCache())


def shorten_all(history: History) -> list[str]:
    """Replace all outlines that are old enough; return the short outlines."""
    view, known, known_short = (
        history.view(),
        outline.FinishedCache(),
        short_outline.ShortOutlineCache(),
    )
    targets = short_outline.targets(view, short_outline.plan(view, known, known_short), known_short)
    history.mask("outline", targets)
    return [target["outline"] for target in targets if target["outline"]]


def age(history: History, replies: int = MIN_AGE) -> None:
    for _ in range(replies):
        history.reply({"type": "text", "text": "Next."})
        history.say("go on")


def calls(history: History, count: int, **fields: Any) -> list[int]:
    """Make calls that are worth a line each; return the refs of their results."""
    return [
        history.call(
            "Bash",
            {"command": f"seq {n} {words(30)}", "timeout": words(60)},
            words(20),
            **fields,
        )
        for n in range(count)
    ]


def outlined(count: int = 12, **fields: Any) -> tuple[History, list[int]]:
    history = History()
    history.say("go")
    refs = calls(history, count, **fields)
    age(history, outline.MIN_AGE)
    assert outline_all(history)
    return history, refs


def test_a_run_of_like_calls_becomes_one_line() -> None:
    history, refs = outlined()
    age(history)
    before = history.view().size
    (text,) = shorten_all(history)
    header, line = text.splitlines()
    assert header == HEADER
    assert line.startswith("Bash ×12: seq 0 ")
    assert line.endswith(f" #{refs[0]} to #{refs[-1]}")
    assert history.view().size < before - 500


def test_an_outline_waits_until_it_is_old() -> None:
    history, _ = outlined()
    age(history, MIN_AGE - outline.MIN_AGE - 1)
    assert planned(history.view()) == []
    age(history, 1)
    assert len(planned(history.view())) == 1


def test_a_short_outline_is_not_made_twice() -> None:
    history, _ = outlined()
    age(history)
    assert shorten_all(history)
    age(history)
    assert planned(history.view()) == []


def test_neighbouring_outlines_share_a_short_outline() -> None:
    history = History()
    history.say("go")
    first = calls(history, 6)
    for n in range(outline.MIN_AGE):
        history.reply(called(f"n{n}", "Bash", {"command": f"make {n}"}))
        history.answer(f"n{n}", "ok")
    assert len(outline_all(history)) == 1
    age(history, outline.MIN_AGE)
    assert len(outline_all(history)) == 1
    age(history)
    assert len(planned(history.view())) == 2
    (text,) = shorten_all(history)
    assert f"Bash ×{6 + outline.MIN_AGE}: seq 0 " in text
    assert f"#{first[0]} to #" in text


def test_what_the_agent_and_the_user_said_stays() -> None:
    history = History()
    history.say("first")
    for n in range(8):
        history.reply(
            {"type": "text", "text": f"Step {n}."},
            called(f"c{n}", "Bash", {"command": f"echo {words(30)}", "timeout": words(60)}),
        )
        history.answer(f"c{n}", words(20))
    history.say("never touch b.py")
    calls(history, 8)
    age(history, outline.MIN_AGE)
    assert len(outline_all(history)) == 2
    age(history)
    old, new = shorten_all(history)
    assert [line for line in old.splitlines() if line.startswith(SAID_PREFIX)] == [
        f"{SAID_PREFIX}Step {n}." for n in range(8)
    ]
    assert SAID_PREFIX not in new
    texts = [block["text"] for block in history.request()["messages"][0]["content"]]
    assert texts.index("first") < texts.index("never touch b.py")


def test_failures_are_counted_and_their_telling_lines_stay() -> None:
    history = History()
    history.say("go")
    calls(history, 6)
    failed = {"details": {"exit_code": 2}, "is_error": True}
    for n in range(2):
        history.call(
            "Bash",
            {"command": f"pytest {words(30)}", "timeout": words(60)},
            f"{words(20)}\nE   ValueError: number {n}\n",
            **failed,
        )
    age(history, outline.MIN_AGE)
    assert outline_all(history)
    age(history)
    (text,) = shorten_all(history)
    assert "Bash ×8 (2 failed): " in text
    assert "  | E   ValueError: number 0" in text.splitlines()
    assert text.splitlines()[-1] == "  | E   ValueError: number 1"


def test_an_undone_short_outline_is_the_outline_again_and_stays_so() -> None:
    history, _ = outlined()
    age(history)
    before = history.request()
    assert shorten_all(history)
    after = history.request()
    assert after != before
    assert not any("tool_use" in str(message) for message in after["messages"])
    history.add(Revert, target=len(history.entries), reason="test")
    assert history.request() == before
    assert planned(history.view()) == []


def test_the_planned_saving_is_what_the_mask_saves() -> None:
    history, _ = outlined()
    age(history)
    view = history.view()
    (due,) = planned(view)
    assert shorten_all(history)
    after = history.view()
    assert view.scaled(view.size - after.size) == due.saved


def spoken(history: History, texts: Sequence[str], **fields: Any) -> list[int]:
    """Make a call after each text; return the refs of the results."""
    refs = []
    for n, text in enumerate(texts):
        history.reply(
            {"type": "text", "text": text},
            called(f"s{n}", "Bash", {"command": f"false {words(30)}", "timeout": words(60)}),
        )
        refs.append(history.answer(f"s{n}", words(20), **fields))
    return refs


def test_the_oldest_outlines_become_a_list_of_steps() -> None:
    history = History()
    history.say("never touch b.py")
    detail = f"It has {words(40)}."
    texts = [
        f"1. First the parser. {detail}",
        *[f"Now the tests. {detail}"] * 9,
        f"Done:\n- {detail}",
    ]
    refs = spoken(history, texts, is_error=True)
    age(history, outline.MIN_AGE)
    assert outline_all(history)
    age(history)
    assert HEADER in shorten_all(history)[0]
    age(history, OLDEST_AGE - MIN_AGE - outline.MIN_AGE - 1)
    assert planned(history.view()) == []
    age(history, 1)
    view = history.view()
    (due,) = planned(view)
    told, line = f"false {words(6).strip()} …", f"  | {words(20).strip()}"
    assert shorten_all(history) == [
        f"{OLDEST_HEADER}\n"
        f"{SAID_PREFIX}1. First the parser. · Bash (1 failed) {told} #{refs[0]}\n{line}\n"
        f"{SAID_PREFIX}Now the tests. · Bash ×9 (9 failed) {told} "
        f"#{refs[1]} to #{refs[9]}\n{line}\n"
        f"{SAID_PREFIX}Done: · Bash (1 failed) {told} #{refs[10]}\n{line}"
    ]
    after = history.view()
    assert view.scaled(view.size - after.size) == due.saved
    assert planned(after) == []
    assert "never touch b.py" in str(history.request()["messages"][0])


def test_neighbours_of_different_age_keep_their_forms() -> None:
    history = History()
    history.say("go")
    old = spoken(history, [f"Step {n}. {words(40)}" for n in range(8)])
    age(history, OLDEST_AGE - MIN_AGE)
    new = calls(history, 12)
    age(history, MIN_AGE)
    assert len(outline_all(history)) == 2
    first, second = shorten_all(history)
    assert first.startswith(f"{OLDEST_HEADER}\n{SAID_PREFIX}Step 0. · Bash #{old[0]}\n")
    assert second.startswith(f"{HEADER}\nBash ×12: ")
    assert second.endswith(f"#{new[0]} to #{new[-1]}")


def test_every_changed_file_and_every_failed_program_is_named() -> None:
    """In the short outline and in the list of steps, however long the paths and the run are."""
    paths = [f"/srv/app/{'deep/' * 12}file {n}.py" for n in range(9)] + ["C:\\work\\a.py"]
    history = History()
    history.say("go")
    history.reply({"type": "text", "text": "All files."}, *(
        called(f"e{n}", "Edit", {"path": path, "old_string": words(20), "new_string": words(20)})
        for n, path in enumerate(paths)
    ))  # fmt: skip
    for n in range(len(paths)):
        history.answer(f"e{n}", "ok")
    history.reply(called("b", "Bash", {"command": "cd /srv && timeout 9 npm run check | tail -5"}))
    history.answer("b", f"{words(60)}\nTS2345 in a.ts", details={"exit_code": 2}, is_error=True)
    calls(history, 8)
    age(history, outline.MIN_AGE)
    assert outline_all(history)
    for replies in (MIN_AGE, OLDEST_AGE):
        age(history, replies)
        (text,) = shorten_all(history)
        assert all(path in text for path in paths)
        assert "npm run check" in text
        assert "cd /srv" not in text
        assert "  | TS2345 in a.ts" in text.splitlines()
