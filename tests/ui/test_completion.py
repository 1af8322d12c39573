"""Completion while the user types."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Pin
from ctxagent.agent.ui.commands import COMMANDS
from ctxagent.agent.ui.input.completion import Paths, folder_entries, match_cost

from ..support.terminal.seat import CTRL_C, ENTER, Desk, Seat, drive

FILES = [
    "README.md",
    "agent/loop.py",
    "agent/ui/input.py",
    "agent/ui/terminal.py",
    "docs/Price list.md",
    "docs/price.md",
    "p/r/i/c/e",
    "src/pricing.py",
    "tests/test_pricing.py",
]


# Which paths match, and in which order.


@pytest.mark.parametrize(
    ("typed", "best"),
    [
        ("pric", ["docs/price.md", "src/pricing.py", "docs/Price list.md"]),
        ("test_pric", ["tests/test_pricing.py"]),
        ("UITERM", ["agent/ui/terminal.py"]),
        ("ui/", ["agent/ui/", "agent/ui/input.py", "agent/ui/terminal.py"]),
        ("SRC/", ["src/", "src/pricing.py"]),
        ("price l", ["docs/Price list.md"]),
        ("trm", ["agent/ui/terminal.py"]),
        ("(", []),
        ("[a-z]*", []),
    ],
)
def test_paths_are_ranked(typed: str, best: list[str]) -> None:
    assert Paths(FILES).rank(typed, 9)[: len(best) or 9] == best


def test_binary_files_and_ignored_paths_come_last() -> None:
    files = ["a/__pycache__/need.pyc", "need.so.1", "z/deep/other_needs.py", "need.o"]
    paths = Paths(files, ["needles/", ".env.need"])
    assert paths.rank("need", 9)[0] == "z/deep/other_needs.py"
    assert set(paths.rank("need", 9)[1:]) == {*files[:2], "need.o", "needles/", ".env.need"}
    assert paths.rank("", 9)[:2] == ["z/", "z/deep/"]


def test_an_empty_search_returns_the_top_level() -> None:
    assert Paths(FILES).rank("", 6) == ["README.md", "agent/", "docs/", "p/", "src/", "tests/"]


def test_unprintable_paths_are_left_out() -> None:
    assert Paths(["a\x1b[2Jb", "a\udce9b", "a\nb", "ab"]).rank("a", 9) == ["ab"]


NAMES = st.text("uv/.İß ", min_size=1, max_size=12).filter(
    lambda name: all(part.strip() for part in name.split("/"))
)


@pytest.mark.slow
@given(
    st.lists(NAMES, max_size=30, unique=True),
    st.text("uvUi/.ß", min_size=1, max_size=4).filter(lambda typed: typed[0] != "/"),
)
def test_every_path_with_the_letters_is_found(files: list[str], typed: str) -> None:
    found = Paths(files).rank(typed, 1_000)
    begun = [name for name in files if match_cost(name, typed) in (0, 1)]
    letters = [name for name in files if match_cost(name, typed) is not None]
    assert set(begun) <= set(found)
    assert set(found) <= {*letters, *(f for f in found if f.endswith("/"))}
    assert [match_cost(path, typed) for path in found] == sorted(
        match_cost(path, typed) or 0 for path in found
    )


@pytest.mark.slow
def test_a_search_that_nobody_wants_any_more_ends() -> None:
    paths = Paths(f"folder/{number}/name" for number in range(50_000))
    looks = iter([False, False, True])
    assert len(paths.rank("zzz", 9, lambda: next(looks, True))) == 0
    assert len(list(looks)) == 0


def test_paths_out_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "bed.txt").touch()
    assert folder_entries("../be", tmp_path / "project", 9) == ["../bed.txt", "../beside/"]
    assert folder_entries(f"{tmp_path}/pro", Path("/"), 9) == [f"{tmp_path}/project/"]
    assert folder_entries("../nowhere/x", tmp_path / "project", 9) == []


# In front of the REPL.


def typed(seat: Seat) -> str:
    return seat.repl.screen.draft.text  # type: ignore[attr-defined,no-any-return]


def menu(seat: Seat) -> str:
    """The lines below the status line; empty while they are being painted."""
    lines = seat.glass.lines()
    status = [n for n, line in enumerate(lines) if "% full" in line]
    return "\n".join(lines[status[-1] + 1 :]) if status else ""


def offers(seat: Seat, text: str) -> bool:
    """Return True if Tab would offer this for the typed text."""
    state = seat.repl.screen.draft.complete_state  # type: ignore[attr-defined]
    if state is None or state.original_document.text != typed(seat):
        return False
    return text in menu(seat) and any(text in c.display_text for c in state.completions)


@pytest.mark.slow
def test_paths_are_offered_as_git_has_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for name in (
        "src/deep/needle.py",
        "src/deep/with blank.txt",
        "built/needle.o",
        "x/y/z/needles",
    ):
        (desk.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.cwd / name).touch()
    (desk.cwd / ".gitignore").write_text("built\n")
    subprocess.run(["git", "init", "-q"], cwd=desk.cwd, check=True)

    async def act(seat: Seat) -> None:
        await seat.until("% full")
        seat.press("see @need")
        await seat.until(lambda: offers(seat, "src/deep/needle.py"))
        assert "built" not in menu(seat)
        seat.press(ENTER)
        await seat.until(lambda: typed(seat) == "see @src/deep/needle.py")
        seat.press(" and @dee")
        await seat.until(lambda: offers(seat, "src/deep/"))
        seat.press("\t")
        await seat.until(lambda: typed(seat).endswith("and @src/deep/"))
        seat.press("wi")
        await seat.until(lambda: offers(seat, "with blank") and "needle" not in menu(seat))
        seat.press("\t")
        await seat.until(lambda: typed(seat).endswith('and @"src/deep/with blank.txt"'))
        seat.press(' or @"src/deep/with b')
        await seat.until(lambda: "with blank" in menu(seat))
        seat.press(CTRL_C + "mail@need")
        await seat.until(lambda: typed(seat) == "mail@need")
        await seat.until(lambda: menu(seat).strip() == "")
        seat.press(CTRL_C)

    drive(desk, act)


@pytest.mark.slow
def test_enter_completes_a_mention_and_then_sends(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Seen."), Step(text="Again."))
    for name in ("calc.py", "tests/test_calc.py", "build/calc.log"):
        (desk.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.cwd / name).write_text("x = 1\n")
    (desk.cwd / ".gitignore").write_text("build\n")

    async def act(seat: Seat) -> None:
        await seat.until("% full")
        seat.press("look at @cal")
        await seat.until(lambda: offers(seat, "calc.py"))
        seat.press(ENTER)
        await seat.until(lambda: typed(seat) == "look at @calc.py")
        await seat.until(lambda: offers(seat, "tests/test_calc.py"))
        seat.press(ENTER)  # the name is complete, whatever the menu shows
        await seat.until("Seen.")
        await seat.idle()
        seat.press("look at @build/")
        await seat.until(lambda: offers(seat, "build/calc.log"))
        seat.press("\t" + ENTER)
        await seat.until("Again.")

    drive(desk, act)
    assert desk.said() == ["look at @calc.py", "look at @build/calc.log"]


@pytest.mark.slow
def test_files_of_the_session_come_first(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Read", {"path": "z/far/note_b.txt"})]), Step(text="Read."))
    for name in ("note_a.txt", "z/far/note_b.txt"):
        (desk.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.cwd / name).write_text("words\n")

    async def act(seat: Seat) -> None:
        seat.say("read it")
        await seat.until("Read.")
        await seat.idle()
        seat.press("@note")
        await seat.until(lambda: "note_a.txt" in menu(seat))
        first, *_ = (line for line in menu(seat).split("\n") if line.strip())
        assert first.split() == ["z/far/note_b.txt", "read"]
        seat.press(CTRL_C)

    drive(desk, act)


@pytest.mark.slow
def test_commands_and_what_they_take(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."))

    async def act(seat: Seat) -> None:
        seat.say("the first words")
        await seat.until("One.")
        await seat.idle()

        async def offered(words: str, *wanted: str) -> None:
            seat.press(words)
            await seat.until(lambda: all(text in menu(seat) for text in wanted))
            seat.press(CTRL_C)
            await seat.until(lambda: typed(seat) == "")

        await offered("/cmp", "/compact")
        await offered("/effort hi", "high", "xhigh")
        await offered("/permissions ", "accept-edits", "bypass")
        await offered("/phase pl", "planning")
        await offered("/log ", "compaction", "you: the first words")
        await offered("/pin ", "you: the first words", "agent: One.")
        await offered("/rewind ", "the first words")
        await offered("see #", "you: the first words")
        seat.say("/clear")
        await seat.until(lambda: len(desk.loops) == 2)
        await seat.idle()
        await offered("/resume ", desk.loops[0].log.path.parent.name, "the first words")
        await offered("/resume first", "the first words")
        seat.press("/effort hi")
        await seat.until(lambda: offers(seat, "xhigh"))
        seat.press("\t")
        await seat.until(lambda: typed(seat) == "/effort high")
        seat.press(ENTER)
        await seat.until("effort: high")

    drive(desk, act)


@pytest.mark.slow
def test_unpin_offers_the_pins(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def act(seat: Seat) -> None:
        seat.say("#tabs, not blanks")
        await seat.until("removes it")
        await seat.idle()
        ref = next(str(e.ref) for e in desk.loops[0].log.entries() if isinstance(e, Pin))
        seat.press("/unpin ")
        await seat.until(lambda: f"{ref}" in menu(seat) and "tabs, not blanks" in menu(seat))
        seat.press("\t" + ENTER)
        await seat.until(f"#{ref} is no longer pinned")

    drive(desk, act)


@pytest.mark.slow
def test_completions_have_no_bidi_controls(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Well."))

    async def act(seat: Seat) -> None:
        seat.say("turn \u202e this")
        await seat.until("Well.")
        await seat.idle()
        before = len(seat.glass.raw)
        seat.press("see #")
        await seat.until(lambda: "turn \\u202e this" in menu(seat))
        assert "\u202e" not in seat.glass.raw[before:]
        seat.press(CTRL_C)

    drive(desk, act)


@pytest.mark.slow
def test_a_note_is_not_taken_for_a_ref(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."))

    async def act(seat: Seat) -> None:
        seat.say("words")
        await seat.until("One.")
        await seat.idle()
        seat.press("#")
        await seat.until(lambda: "you: words" in menu(seat))
        seat.press("always")
        await seat.until(lambda: menu(seat).strip() == "")
        seat.press(CTRL_C)

    drive(desk, act)


def test_every_command_that_takes_a_choice_offers_it(tmp_path: Path) -> None:
    for command in COMMANDS.values():
        if any(word in command.argument for word in ("ID", "REF", "MODE", "LEVEL", "[N", "NAME")):
            assert command.complete, command.name


@pytest.mark.slow
def test_typing_goes_on_while_the_files_are_listed(tmp_path: Path) -> None:
    """Without a listing there is no menu, and keys still work."""
    desk = Desk(tmp_path, Step(text="Read."))
    (desk.cwd / "needle").touch()

    async def act(seat: Seat) -> None:
        seat.press("@nee and more" + ENTER)
        await seat.until("Read.")
        await asyncio.sleep(0)

    drive(desk, act)
    assert desk.said() == ["@nee and more"]
