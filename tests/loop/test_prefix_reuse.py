"""The warning about a server that reuses no prefix."""

from typing import Any

from ctxagent.agent.loop.prefix_reuse import PrefixReuse


def warns(*rows: tuple[int, int, float], by: str = "server") -> list[bool]:
    reuse, found = PrefixReuse(), list[bool]()
    for cached, read, seconds in rows:
        timings: dict[str, Any] = {"read": read, "read_s": seconds, "by": by}
        found.append(reuse.add({**timings, "cached": cached} if by == "server" else timings))
    return found


def test_two_prompts_in_a_row_that_were_read_again() -> None:
    assert warns((0, 2_000, 40), (0, 2_100, 42), (0, 2_200, 44)) == [False, False, True]
    assert not any(warns((0, 2_000, 40), (0, 2_100, 42), (2_000, 200, 4), (0, 2_300, 46)))
    assert not any(warns((0, 100, 2), (0, 120, 2), (0, 140, 3), (0, 160, 3)))


def test_a_clock_needs_a_time_that_does_not_drop() -> None:
    same = (0, 2_000, 40), (0, 2_050, 41), (0, 2_100, 42)
    assert warns(*same, by="clock") == [False, False, True]
    assert not any(warns((0, 2_000, 40), (0, 2_050, 2), (0, 2_100, 2), by="clock"))
    assert not any(warns((0, 2_000, 4), (0, 2_050, 4.1), (0, 2_100, 4.2), by="clock"))
