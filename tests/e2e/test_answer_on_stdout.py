"""A single key answers a question at once. Text that begins with such a key is a text answer. Input
after an answer is not lost, however fast it arrives.
"""

from pathlib import Path

from ctxagent.agent.models.scripted import Step

from ..support.terminal.seat import ENTER, Desk, Seat, drive


def touch(*names: str) -> Step:
    return Step(tools=[("Bash", {"command": f"touch {name}"}) for name in names])


def test_text_that_arrives_at_once_is_a_text_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path, touch("one", "two", "three"), Step(text="Over."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.keys()
        seat.press("you must never do this, stop" + ENTER)
        await seat.until("declined: you must never do this, stop")
        await seat.keys()
        seat.press("a lot of other things first" + ENTER)
        await seat.until("declined: a lot of other things first")
        await seat.keys()
        seat.press("n" + ENTER + "then the next words" + ENTER)
        await seat.until("Over.")

    drive(desk, act)
    assert list(desk.cwd.iterdir()) == []
    assert desk.said() == ["go", "then the next words"]


def test_single_key_answers_with_or_without_enter_and_later_input_is_kept(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, touch("one", "two"), Step(text="Over."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.keys()
        seat.press("y" + ENTER + "and then")
        await seat.until(lambda: (desk.cwd / "one").exists())
        await seat.until("Tab: answer")
        await seat.until("❯ and then")
        seat.press(ENTER)
        await seat.until("Tab: answer", gone=True)
        seat.press("y" + ENTER)
        await seat.until("Over.")

    drive(desk, act)
    assert sorted(path.name for path in desk.cwd.iterdir()) == ["one", "two"]
    assert desk.said() == ["go", "and then"]
