"""The permission prompt: in this process, on the plain screen, and with the real command over two
sessions.
"""

import asyncio
import io
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.load import load_settings
from ctxagent.agent.config.settings import UiSettings
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.permissions.rule_set import RuleFiles
from ctxagent.agent.session.entries import Note
from ctxagent.agent.session.log import read_log
from ctxagent.agent.ui.conversation.open_session import ConversationServices
from ctxagent.agent.ui.repl.repl import Repl

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal import seat as seats
from ..support.terminal.screen import Terminal
from ..support.terminal.seat import CTRL_C, ENTER, ESC, SHIFT_TAB, Glass, Seat, drive

UP, DOWN, TAB, CLEAR = "\x1b[A", "\x1b[B", "\t", "\x15"
CHOICES = "[a] yes, and don't ask again for any `touch …` command: Bash(touch:*)"
Act = Callable[[Seat], Coroutine[Any, Any, None]]


class Desk(seats.Desk):
    """A desk with settings files."""

    def __init__(self, folder: Path, *steps: Step) -> None:
        super().__init__(folder, *steps)
        self.home = folder / "home"
        environ = {"HOME": str(self.home), "CTXAGENT_STATE_DIR": str(folder / "trust")}
        self.rules = RuleFiles(
            load_settings(self.cwd, environ=environ), cwd=self.cwd, environ=environ
        )

    def services(self) -> ConversationServices:
        return replace(super().services(), rules=self.rules)

    @property
    def mine(self) -> Path:
        return self.home / ".config" / "ctxagent" / "agentrc"

    def noted(self) -> list[Note]:
        entries = read_log(self.loops[0].log.path).entries
        return [e for e in entries if isinstance(e, Note) and e.topic == "permission"]


def bash(command: str, **more: Any) -> Step:
    return Step(tools=[("Bash", {"command": command, **more})])


def flat(glass: Glass) -> str:
    return " ".join(glass.all().split())


def asked(desk: Desk, answer: Act, glass: Glass | None = None) -> Glass:
    """Send a message that leads to a question, answer it, and wait for the end of the turn."""

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.keys()
        await answer(seat)

    return drive(desk, act, glass=glass)[1]


def test_what_is_asked_stays_in_sight_below_a_long_question(tmp_path: Path) -> None:
    content = "".join(f"line {n}\n" for n in range(300))
    step = Step(tools=[("Write", {"path": "big.py", "content": content})])
    desk = Desk(tmp_path, step, Step(text="I see."))

    async def answer(seat: Seat) -> None:
        await seat.until("Write big.py (+300 −0)")
        assert "Write big.py (+300 −0)" in seat.glass.lines()
        seat.say("n")
        await seat.until("I see.")

    asked(desk, answer, Glass(50, 20))


LINES_BEFORE = [f"line {n} of the file" for n in range(1, 9)]


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        (["a new line", *LINES_BEFORE[1:]], ["-line 1 of the file", "+a new line"]),
        (
            [f"the {line}" for line in LINES_BEFORE],
            ["-line 1 of the file", "+the line 1 of the file", "… +14 lines above"],
        ),
    ],
    ids=["one line", "many lines"],
)
def test_a_short_terminal_shows_the_changed_lines(
    tmp_path: Path, after: list[str], shown: list[str]
) -> None:
    before = "\n".join(LINES_BEFORE)
    change = {"path": "calc.py", "old_string": before, "new_string": "\n".join(after)}
    read, edit = Step(tools=[("Read", {"path": "calc.py"})]), Step(tools=[("Edit", change)])
    desk = Desk(tmp_path, read, edit, Step(text="I see."))
    (desk.cwd / "calc.py").write_text(before + "\n")

    async def answer(seat: Seat) -> None:
        await seat.until("[n]o, and")
        lines = seat.glass.lines()
        start = lines.index(next(line for line in lines if line.startswith("Edit calc.py (+")))
        assert lines[start + 1 : start + 1 + len(shown)] == shown
        assert lines[start + 1 + len(shown)].endswith("1. [y]es")
        assert any("[n]o" in line for line in lines)
        assert lines[-1].startswith("scripted model")
        seat.press(SHIFT_TAB)
        await seat.until("mode accept-edits? Enter")
        assert any("[n]o" in line for line in seat.glass.lines())
        seat.press(SHIFT_TAB + ESC)
        seat.say("n")
        await seat.until("I see.")

    asked(desk, answer, Glass(40, 12))


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (50, 20)])
def test_all_that_would_run_is_shown(tmp_path: Path, columns: int, rows: int) -> None:
    command = "touch " + " ".join(f"name-{n}" for n in range(40)) + " \u202e \u200b\x07 x\r"
    about = "Make\u2066 files"
    step = bash(command, timeout=300, run_in_background=True, description=about)
    desk = Desk(tmp_path, step, Step(text="I see."))

    async def answer(seat: Seat) -> None:
        await seat.until("[n]o, and")
        seat.say("n")
        await seat.until("I see.")

    glass = asked(desk, answer, Glass(columns, rows))
    seen = flat(glass)
    assert all(f"name-{n} " in seen for n in range(40))
    for text in (
        "\\u202e \\u200b\\x07 x\\r",
        "in the background",
        "at most 300 s",
        "Make\\u2066 files",
        "why: `touch name-0",
        "✗ declined",
    ):
        assert text in seen, text
    assert "[a]" not in glass.raw, "a rule that cannot be read is not offered"
    assert list(desk.cwd.iterdir()) == []


def test_a_slash_command_is_never_a_reason(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.say("/nosuch")
        await seat.until("there is no command /nosuch")
        await seat.keys()
        seat.say("/rename")
        await seat.until("/rename waits for the end of the turn; the question is still open")
        await seat.keys()
        seat.press("y")
        await seat.until("Ran.")
        await seat.until("the title is empty")

    glass = asked(desk, answer)
    assert "declined" not in flat(glass)
    assert [note.data["answer"] for note in desk.noted()] == ["yes"]


def test_a_change_is_shown_with_what_cannot_be_seen_in_it(tmp_path: Path) -> None:
    step = Step(tools=[("Write", {"path": "a.py", "content": "if admin:\u2067 # \u202e ok\n"})])
    desk = Desk(tmp_path, step, Step(text="Written."))

    async def answer(seat: Seat) -> None:
        await seat.until("if admin:\\u2067 # \\u202e ok")
        seat.press("y")
        await seat.until("Written.")

    asked(desk, answer)
    (note,) = desk.noted()
    assert (note.text, note.data["answer"]) == ("allowed: Write a.py", "yes")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (50, 20)])
def test_the_useful_rule_comes_first_and_the_arrows_bring_the_others(
    tmp_path: Path, columns: int, rows: int
) -> None:
    desk = Desk(tmp_path, bash("touch made there now"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        await seat.until("Always allow any `touch …` command?")
        for key, rule, words in (
            (UP, "Bash(touch:*)", "any `touch …` command"),
            (DOWN, "Bash(touch made there now)", "exactly this command"),
            (TAB, "Bash(touch made:*)", "any `touch made …` command"),
            (DOWN, "Bash", "every command"),
            (TAB, "Bash", "every command"),
            (UP, "Bash(touch made:*)", "any `touch made …` command"),
        ):
            seat.press(key)
            await seat.until(lambda rule=rule: f"? {rule}" in seat.glass.lines())  # type: ignore[misc]
            assert f"Always allow {words}" in "\n".join(seat.glass.lines())
        seat.press(ENTER)
        await seat.until("[s]ession")
        seat.press("s")
        await seat.until("Ran.")

    glass = asked(desk, answer, Glass(columns, rows))
    assert "✓ allowed, from now on Bash(touch made:*) · for this session" in flat(glass)
    assert desk.loops[0].approval.rules()["session"] == ["Bash(touch made:*)"]
    (note,) = desk.noted()
    assert note.text == "allowed: Bash touch made there now"
    assert (note.data["answer"], note.data["rule"], note.data["where"]) == (
        "always",
        "Bash(touch made:*)",
        "session",
    )
    assert not (desk.cwd / ".agentrc").exists()


def test_esc_goes_back_step_by_step_and_ctrl_c_interrupts(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(ENTER)
        await seat.until("[u]ser")
        seat.press(ESC)
        await seat.until("[u]ser", gone=True)
        await seat.until("? Bash(touch:*)")
        seat.press(ESC)
        await seat.until(CHOICES)
        seat.press("n not like this")
        await seat.until("? n not like this")
        await seat.until("no; the model gets this text · Esc: back")
        seat.press(ESC)
        await seat.until("? n not like this", gone=True)
        assert seat.repl.working, "the turn goes on"
        await seat.keys()
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(CTRL_C)
        await seat.until("interrupted; what was done is kept")

    asked(desk, answer)
    assert not (desk.cwd / "made").exists()
    assert desk.loops[0].approval.rules()["session"] == []
    assert desk.noted() == []


def test_esc_on_the_bare_question_still_interrupts(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.press(ESC)
        await seat.until("interrupted; what was done is kept")

    asked(desk, answer)
    assert not (desk.cwd / "made").exists()


def test_an_edited_rule_must_be_one_and_cover_the_call(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(CLEAR + "Bahs(touch:*)" + ENTER)
        await seat.until("✗ the rule 'Bahs(touch:*)' names no tool")
        await seat.until("? Bahs(touch:*)")  # it stays, to be mended
        seat.press(CLEAR + "Bash(mkdir:*)" + ENTER)
        await seat.until("✗ Bash(mkdir:*) does not allow this call")
        seat.press(CLEAR + "Bash(touch m*)" + ENTER)
        await seat.until("[s]ession")
        seat.press("s")
        await seat.until("Ran.")

    asked(desk, answer)
    assert desk.loops[0].approval.rules()["session"] == ["Bash(touch m*)"]


def test_a_broad_rule_needs_a_second_yes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("python3 -c pass"), Step(text="Ran."))

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(python3 -c pass)")
        seat.press(CLEAR + "Bash(python3:*)" + ENTER)
        await seat.until("Bash(python3:*) is a broad rule: the words after `python3`")
        seat.press(ENTER)  # is no yes
        await seat.until("? Bash(python3:*)")
        seat.press(ENTER)
        await seat.until("Save this rule anyway?")
        assert "[s]ession" not in seat.glass.all()
        seat.press("y")
        await seat.until("[s]ession")
        seat.press("s")
        await seat.until("Ran.")

    asked(desk, answer)
    assert desk.loops[0].approval.rules()["session"] == ["Bash(python3:*)"]


def test_a_rule_for_the_project_keeps_its_file_as_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))
    ours = desk.cwd / ".agentrc"
    ours.write_text('# of all of us\n[permissions]\ndeny = ["Read(.env)"]  # secret\n')

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(ENTER)
        await seat.until("[p]roject  for everyone who works on this project: .agentrc")
        await seat.until("~/.config/ctxagent/agentrc")
        seat.press("p")
        await seat.until("Ran.")
        seat.say("/permissions")
        await seat.until(".agentrc:4")
        seat.say("/permissions forget Bash(touch:*)")
        await seat.until("forgotten: Bash(touch:*)")

    glass = asked(desk, answer)
    text = '# of all of us\n[permissions]\ndeny = ["Read(.env)"]  # secret\nallow = []\n'
    assert ours.read_text() == text
    assert "Bash(touch:*) · saved in" in flat(glass)
    assert desk.loops[0].approval.rules()["session"] == []
    kept, forgotten = desk.noted()
    assert (kept.data["answer"], kept.data["where"]) == ("always", str(ours))
    assert (forgotten.data["answer"], forgotten.data["where"]) == ("forgotten", str(ours))
    assert desk.loops[0].ledger.denials == []


def test_a_file_that_is_not_trusted_is_refused_and_another_place_offered(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))
    ours = desk.cwd / ".agentrc"
    ours.write_text('[permissions]\nallow = ["Bash"]\n')

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(ENTER)
        await seat.until("[p]roject")
        seat.press("p")
        await seat.until("the file has untrusted settings")
        await seat.until("[p]roject", gone=True)
        assert "config --trust" in flat(seat.glass)
        seat.press("u")
        await seat.until("Ran.")

    asked(desk, answer)
    assert ours.read_text() == '[permissions]\nallow = ["Bash"]\n'
    assert desk.mine.read_text() == '[permissions]\nallow = ["Bash(touch:*)"]\n'
    assert desk.mine.stat().st_mode & 0o777 == 0o600


def test_a_path_rule_for_the_user_says_how_paths_count(tmp_path: Path) -> None:
    step = Step(tools=[("Write", {"path": "src/a.py", "content": "x\n"})])
    desk = Desk(tmp_path, step, Step(text="Written."))

    async def answer(seat: Seat) -> None:
        await seat.until("don't ask again for changing src/a.py: Edit(src/a.py)")
        seat.press("r")
        await seat.until("Always allow changing src/a.py?")
        seat.press(DOWN)
        await seat.until("Always allow changing files below src/?")
        seat.press(ENTER)
        await seat.until("in every project, paths relative to each project")
        seat.press("u")
        await seat.until("Written.")

    asked(desk, answer)
    assert desk.loops[0].approval.rules()["session"] == ["Edit(src/**)"]


def test_a_question_that_waits_is_answered_by_a_rule_that_is_kept(tmp_path: Path) -> None:
    reads = [("Read", {"path": str(tmp_path / "other" / name)}) for name in ("one", "two")]
    desk = Desk(tmp_path, Step(tools=reads), Step(text="Both read."))
    (tmp_path / "other").mkdir()
    for name in ("one", "two"):
        (tmp_path / "other" / name).write_text("words\n")

    async def answer(seat: Seat) -> None:
        seat.press("r")
        await seat.until("Always allow reading")
        seat.press(CLEAR + f"Read({tmp_path / 'other'}/**)")
        await seat.until("Always allow reading files below")
        seat.press(ENTER)
        await seat.until("it covers paths outside this project")
        seat.press("y")
        await seat.until("[s]ession")
        seat.press("s")
        await seat.until("Both read.")

    glass = asked(desk, answer)
    assert glass.all().count("Read wants to") == 1
    always, other = desk.noted()
    assert always.data["answer"] == "always"
    assert other.text == f"allowed: Read {tmp_path / 'other' / 'two'}"
    assert other.data["answer"] == "not needed"
    assert other.data["rule"] == always.data["rule"] == f"Read({tmp_path / 'other'}/**)"


def test_a_question_that_waits_is_settled_by_the_mode(tmp_path: Path) -> None:
    edits = [("Write", {"path": name, "content": "x\n"}) for name in ("a", "b")]
    desk = Desk(tmp_path, Step(tools=edits), Step(text="Both written."))

    async def answer(seat: Seat) -> None:
        seat.press(SHIFT_TAB)
        await seat.until("mode accept-edits? Enter: use it, also here · Shift-Tab: next mode")
        assert not (desk.cwd / "a").exists(), "nothing is settled before Enter"
        seat.press(ENTER)
        await seat.until("Both written.")

    glass = asked(desk, answer)
    assert glass.all().count("Write wants to") == 1


def test_vi_keys_edit_the_rule_and_leave_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made"), Step(text="Ran."))

    async def act(seat: Seat) -> None:
        def navigating() -> bool:
            state = seat.repl.screen.app.vi_state  # type: ignore[attr-defined]
            return bool(state.input_mode == "vi-navigation")

        seat.say("go")
        await seat.keys()
        seat.press("r")
        await seat.until("? Bash(touch:*)")
        seat.press(ESC)
        await seat.until(navigating)
        seat.press("x")
        await seat.until("Not a complete rule yet")
        seat.press(ESC)
        await seat.keys(CHOICES)
        seat.press("y")
        await seat.until("Ran.")

    drive(desk, act, editing_mode="vi")
    assert (desk.cwd / "made").exists()


def test_a_rule_is_chosen_on_the_plain_screen(tmp_path: Path) -> None:
    desk = Desk(tmp_path, bash("touch made there"), bash("touch other"), Step(text="Done."))
    typed = iter(["r", "back", "r", "2", "back", "Bsh", "3", "u", "n too many files"])
    reading, writing = os.pipe()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            size = super().write(text)
            if text.endswith("\n? "):
                os.write(writing, f"{next(typed)}\n".encode())
            if "Done." in text:
                os.close(writing)
            return size

    out = Out()
    os.write(writing, b"go\n")

    async def run(source: Any) -> int:
        repl = Repl(desk.services(), UiSettings(plain=True), input=source, output=out)
        return await repl.run()

    with os.fdopen(reading) as source:
        assert asyncio.run(asyncio.wait_for(run(source), seats.DEADLINE)) == 0
    seen = out.getvalue()
    for text in (
        "2. Bash(touch made there)",
        "names no tool",
        "[u]ser",
        "✗ declined: too many files",
    ):
        assert text in seen
    assert next(typed, None) is None
    assert desk.mine.read_text() == '[permissions]\nallow = ["Bash(touch made there)"]\n'
    assert (desk.cwd / "there").exists()
    assert not (desk.cwd / "other").exists()


@pytest.mark.variants
@pytest.mark.parametrize("key", ["p", "u"])
def test_the_next_session_does_not_ask_again(tmp_path: Path, key: str) -> None:
    place = Place(tmp_path)
    (place.project / ".agentrc").write_text("# ours\n[ui]\n")
    again = [Say(tools=[("Bash", {"command": "touch made"})]), Say("Made.")]
    with Server([*again, *again, *again]) as server:
        for first in (True, False):
            terminal = Terminal(cwd=place.project, env=place.server(server.url))
            terminal.see("❯")
            terminal.type("go\r")
            if first:
                terminal.keys()
                terminal.type("r")
                terminal.see("? Bash(touch:*)")
                terminal.press("enter")
                terminal.see("[p]roject")
                terminal.type(key)
            terminal.see("Made.")
            if first:  # a fresh conversation in the same run knows it too
                terminal.type("/clear\r")
                terminal.type("go\r")
                terminal.see(lambda text: text.count("Made.") == 2)
            terminal.type("/quit\r")
            assert terminal.leave() == 0
            assert ("wants to run" in terminal.text()) is first
    assert server.rejected == []
    home = tmp_path / "home" / ".config" / "ctxagent" / "agentrc"
    file = {"p": place.project / ".agentrc", "u": home}[key]
    kept = '[permissions]\nallow = ["Bash(touch:*)"]\n'
    assert file.read_text() == ("# ours\n[ui]\n\n" + kept if key == "p" else kept)


def test_one_key_takes_the_useful_rule(tmp_path: Path) -> None:
    """There is no further question: the rule applies to this session and to the next call."""
    desk = Desk(tmp_path, bash("touch one"), bash("touch two three"), Step(text="Both made."))

    async def answer(seat: Seat) -> None:
        await seat.until(CHOICES)
        seat.press("a")
        await seat.until("Both made.")

    glass = asked(desk, answer)
    assert glass.all().count("Bash wants to run") == 1
    assert desk.loops[0].approval.rules()["session"] == ["Bash(touch:*)"]
    (note,) = desk.noted()
    assert (note.data["answer"], note.data["where"]) == ("always", "session")


def test_what_was_asked_before_decides_which_rule_is_useful(tmp_path: Path) -> None:
    """The first file of a folder suggests a rule for the file, the second for the folder."""
    writes = [Step(tools=[("Write", {"path": f"src/{n}.py", "content": "x\n"})]) for n in "ab"]
    desk = Desk(tmp_path, *writes, Step(text="Both written."))

    async def answer(seat: Seat) -> None:
        await seat.until("again for changing src/a.py: Edit(src/a.py)")
        seat.press("y")
        await seat.until("again for changing files below src/: Edit(src/**)")
        await seat.keys()
        seat.press("a")
        await seat.until("Both written.")

    asked(desk, answer)
    assert desk.loops[0].approval.rules()["session"] == ["Edit(src/**)"]
