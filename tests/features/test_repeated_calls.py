"""Which calls count as repeated."""

from collections.abc import Sequence
from typing import Any

import pytest

from ctxagent.agent.features.loops import (
    MAX_TIMES,
    PATIENCE_FACTOR,
    TIMES_UNTIL_NOTICE,
    RepeatedCalls,
    Repetition,
    newest_part,
    resets,
)
from ctxagent.agent.session.entries import Assistant, End, Entry, Note, ToolResult, User

FAILS = ("Bash", {"command": "ls x"}, "no such file")


def reply(*calls: tuple[str, Any], number: int = 1, text: str = "", **more: Any) -> Assistant:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for place, (name, given) in enumerate(calls):
        id = f"{number}.{place}"
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": given})
    reason = more.pop("stop_reason", "tool_use" if calls else "end_turn")
    return Assistant(content=blocks, usage={}, stop_reason=reason, model="m", **more)


def result(id: str, text: str, **more: Any) -> ToolResult:
    return ToolResult(tool_use_id=id, content=text, **more)


def steps(calls: Sequence[tuple[str, Any, str]], **more: Any) -> list[Entry]:
    """Return the entries of replies with one call each."""
    found = list[Entry]()
    for number, (name, given, text) in enumerate(calls):
        found += [reply((name, given), number=number), result(f"{number}.0", text, **more)]
    return found


def folded(entries: Sequence[Entry]) -> RepeatedCalls:
    calls = RepeatedCalls()
    for entry in entries:
        calls.add(entry)
    return calls


def found(entries: Sequence[Entry]) -> Repetition | None:
    return folded(entries).found()


def notice(repetition: Repetition | None) -> User:
    assert repetition is not None
    return User(content="", source="notice", details=repetition.details())


def test_a_repeated_call_gets_a_notice_and_then_ends_the_turn() -> None:
    calls, states = RepeatedCalls(), []
    for entry in steps([FAILS] * MAX_TIMES):
        calls.add(entry)
        if isinstance(entry, ToolResult):
            repetition = calls.found()
            states.append(
                repetition and (repetition.times, repetition.has_notice, repetition.must_end)
            )
            if repetition and not repetition.has_notice:
                calls.add(notice(repetition))
    assert states == [
        None, None, (3, False, False), (4, True, False), (5, True, False), (6, True, True),
    ]  # fmt: skip


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_cycle_is_found_with_its_calls(period: int) -> None:
    cycle = [("Bash", {"command": f"cat {n}"}, "") for n in range(period)]
    assert found(steps(cycle * 3)[:-2]) is None
    repetition = found(steps(cycle * 3))
    assert repetition is not None
    assert (len(repetition.calls), repetition.times) == (period, 3)
    told = [*steps(cycle * 3), notice(repetition)]
    again = found([*told, *steps(cycle * 3)])
    assert again is not None
    assert again.must_end


def test_a_cycle_of_five_is_not_detected() -> None:
    assert found(steps([("Bash", {"command": f"{n}"}, "") for n in range(5)] * 9)) is None


@pytest.mark.parametrize(
    "other",
    [
        ("Bash", {"command": "ls y"}, "no such file"),
        ("Read", {"command": "ls x"}, "no such file"),
        ("Bash", {"command": "ls x"}, "x"),
    ],
    ids=["arguments", "tool", "result"],
)
def test_another_call_or_result_ends_the_repetition(other: tuple[str, Any, str]) -> None:
    assert found(steps([FAILS, FAILS, other, FAILS, FAILS])) is None
    told = steps([FAILS] * 3)
    told = [*told, notice(found(told)), *steps([other, FAILS, FAILS, FAILS])]
    repetition = found(told)
    assert repetition is not None
    assert not repetition.has_notice


def test_an_error_is_another_result() -> None:
    failed = steps([FAILS], is_error=True)
    assert found([*failed, *steps([FAILS, FAILS])]) is None
    assert found([*failed, *failed, *failed]) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1 failed in 0.31s", "1 failed in 2.04s"),
        ("took 31 ms at 12:01:59.5", "took 8 ms at 12:02:03.1"),
        ("<object at 0x7f00a1>", "<object at 0x7f00b2>"),
    ],
)
def test_times_and_addresses_make_no_other_result(first: str, second: str) -> None:
    calls = [("Bash", {"command": "pytest"}, text) for text in (first, second, first)]
    assert found(steps(calls)) is not None


@pytest.mark.parametrize(
    ("first", "second"), [("34 %", "35 %"), ("2 failed", "1 failed"), ("line 3s1", "line 4s1")]
)
def test_another_number_is_another_result(first: str, second: str) -> None:
    calls = [("Bash", {"command": "pytest"}, text) for text in (first, second, first)]
    assert found(steps(calls)) is None


def test_the_name_of_the_file_of_a_result_makes_no_other_result() -> None:
    entries = list[Entry]()
    for seq in (1, 2, 3):
        name = f"offloaded/Bash-{seq}.txt"
        text = f"much\n[All of it: Read or Grep /s/{name}, or Recall #{seq}]"
        entries.append(reply(("Bash", {}), number=seq))
        entries.append(result(f"{seq}.0", text, seq=seq, offloaded=name))
    assert found(entries) is not None


def waits(seconds: int, times: int, **more: Any) -> list[Entry]:
    entries = list[Entry]()
    for n in range(times):
        entries.append(reply(("Bash", {}), number=n, at=f"2026-01-01T10:{n:02}:00.000Z"))
        entries.append(result(f"{n}.0", "", at=f"2026-01-01T10:{n:02}:{seconds:02}.000Z", **more))
    return entries


def test_a_call_that_waits_may_be_repeated_more_often() -> None:
    assert found(waits(1, TIMES_UNTIL_NOTICE)) is not None
    for calls in (lambda n: waits(9, n), lambda n: waits(1, n, details={"running": True})):
        assert found(calls(PATIENCE_FACTOR * TIMES_UNTIL_NOTICE - 1)) is None
        repetition = found(calls(PATIENCE_FACTOR * TIMES_UNTIL_NOTICE))
        assert repetition is not None
        told = [*calls(PATIENCE_FACTOR * TIMES_UNTIL_NOTICE), notice(repetition)]
        assert not found([*told, *waits(9, MAX_TIMES)]).must_end  # type: ignore[union-attr]
        assert found([*told, *calls(PATIENCE_FACTOR * (MAX_TIMES - TIMES_UNTIL_NOTICE))]).must_end  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["Mcp", "Knock"])
def test_a_tool_of_others_may_be_repeated_more_often(name: str) -> None:
    """For example, a key press in a browser has effects that its result does not show."""
    press = (name, {"key": "Down"}, "pressed")
    assert found(steps([press] * (PATIENCE_FACTOR * TIMES_UNTIL_NOTICE - 1))) is None
    assert found(steps([press] * (PATIENCE_FACTOR * TIMES_UNTIL_NOTICE))) is not None


def test_a_tool_that_does_not_exist_is_no_tool_of_others() -> None:
    entries = steps([("Foo", {}, "There is no tool Foo.")] * TIMES_UNTIL_NOTICE, is_error=True)
    assert found(entries) is not None


@pytest.mark.parametrize("told", [{}, {"period": 9, "times": 3}, {"period": "x", "times": 3}])
def test_a_damaged_notice_is_none(told: dict[str, Any]) -> None:
    notice = User(content="", source="notice", details={"repeats": told})
    repetition = found([*steps([FAILS] * 2), notice, *steps([FAILS] * 2)])
    assert repetition is not None
    assert not repetition.has_notice


def test_calls_of_one_reply_count_in_its_order() -> None:
    calls = [("Read", {"path": "a"}), ("Read", {"path": "b"})]
    entries = list[Entry]()
    for number in (1, 2, 3):
        order = (0, 1) if number % 2 else (1, 0)
        entries.append(reply(*calls, number=number))
        entries += [result(f"{number}.{place}", "") for place in order]
    repetition = found(entries)
    assert repetition is not None
    assert [call.arguments for call in repetition.calls] == ['{"path": "a"}', '{"path": "b"}']


def test_many_equal_calls_in_one_reply_are_told_first() -> None:
    entries: list[Entry] = [reply(*[("Bash", {})] * 17)]
    entries += [result(f"1.{place}", "") for place in range(17)]
    repetition = found(entries)
    assert repetition is not None
    assert (repetition.times, repetition.has_notice, repetition.must_end) == (6, False, False)
    again = found([*entries, notice(repetition), *steps([("Bash", {}, "")])])
    assert again is not None
    assert (again.times, again.must_end) == (6, True)
    other = found([*entries, notice(repetition), *steps([("Bash", {"command": "ls"}, "")])])
    assert other is None


def test_calls_in_one_reply_do_not_run_beyond_the_limit() -> None:
    def beyond(entries: list[Entry], *calls: tuple[str, Any]) -> list[int]:
        calls_seen = folded([*entries, reply(*calls, number=9)])
        return [n for n in range(len(calls)) if calls_seen.is_over_limit(f"9.{n}")]

    same, other = ("Bash", {"command": "make"}), ("Read", {"path": "a"})
    assert beyond([], *[same] * 8) == [6, 7]
    assert beyond([], *[same] * 6, other, *[same] * 6) == []
    assert beyond(steps([(*same, "failed")] * 4), *[same] * 4) == [2, 3]
    assert beyond(steps([(*same, str(n)) for n in range(9)]), *[same] * 6) == [5]
    assert beyond([], *[("mcp__memory__read", {})] * 31) == [30]


ANSWER = reply(text="Done.")


@pytest.mark.parametrize(
    ("between", "counts"),
    [
        (ANSWER, False),
        (End(status="limit"), False),
        (Note(topic="loop", text="go on"), False),
        (End(status="interrupted"), True),
        (End(status="error"), True),
        (User(content="try again"), True),
        (User(content="Told.", source="notice"), True),
        (Note(topic="drift", text=""), True),
        (reply(text=" \n"), True),
        (reply(text="half", stop_reason="max_tokens"), True),
        (reply(text="half", stop_reason="repetition"), True),
        (reply(text="A summary.", purpose="summary"), True),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else "",
)
def test_what_lies_between_the_calls(between: Entry, counts: bool) -> None:
    """A kill or a new user message does not hide a loop; an answer ends it."""
    entries = [*steps([FAILS, FAILS]), between, *steps([FAILS])]
    assert (found(entries) is not None) == counts
    assert resets(between) != counts


def test_a_call_without_a_result_does_not_count() -> None:
    lost = reply(("Bash", {"command": "ls x"}), number=99)
    assert found([*steps([FAILS, FAILS]), lost]) is None
    assert found([*steps([FAILS, FAILS]), lost, *steps([FAILS])]) is not None
    assert found([*steps([FAILS, FAILS]), result("of another", "")]) is None


def test_the_newest_part_of_a_log() -> None:
    old, new = steps([FAILS] * 4), steps([FAILS] * 2)
    assert newest_part(reversed([*old, ANSWER, *new]), 99) == new
    assert newest_part(reversed([*old, *new]), 2) == new[-2:]
    assert newest_part([], 9) == []


def test_searches_of_the_server_are_calls() -> None:
    def searched(number: int, query: str) -> list[Entry]:
        call = reply(("Bash", {"command": "echo one"}), number=number)
        block = {"type": "server_tool_use", "id": f"s{number}", "name": "web_search"}
        call.content.insert(0, {**block, "input": {"query": query}})
        return [call, result(f"{number}.0", "one")]

    assert found([e for n in range(9) for e in searched(n, f"walrus {n}")]) is None
    repetition = found([e for n in range(3) for e in searched(n, "walrus")])
    assert repetition is not None
    assert [call.tool for call in repetition.calls] == ["WebSearch", "Bash"]
