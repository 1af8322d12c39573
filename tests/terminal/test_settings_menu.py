"""/settings, /theme, /vim, /history and /memory by the real command, on two sizes of screen."""

from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

SIZES = [(80, 24), (40, 12)]
DOWN, ESC, TAB = "\x1b[B", "\x1b", "\t"
SECRET = "okapi-token-4711"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def start(place: Place, url: str = "http://127.0.0.1:9", size: tuple[int, int] = (80, 24),
          **env: str) -> Terminal:  # fmt: skip
    terminal = Terminal(
        cwd=place.project, env=place.server(url) | env, columns=size[0], rows=size[1]
    )
    terminal.see("· ask")
    return terminal


def leave(terminal: Terminal) -> None:
    terminal.rest()
    terminal.type("/exit\r")
    assert terminal.leave() == 0


def own_file(place: Place) -> Path:
    return place.root / "home/.config/ctxagent/agentrc"


@pytest.mark.parametrize("size", SIZES)
def test_a_setting_is_found_changed_and_saved(place: Place, size: tuple[int, int]) -> None:
    terminal = start(place, size=size)
    terminal.type("/settings\r")
    terminal.see("Settings · all")
    terminal.type("notify_after")
    terminal.see("❯ ui.notify_after")
    terminal.type("\r")
    terminal.see("whole number")
    terminal.type("soon\r")
    terminal.see("expected a whole")
    terminal.type("\x15" + "25\r")
    terminal.see("ui.notify_after = 25")
    terminal.see("Settings · all")
    terminal.type(ESC)
    terminal.see(lambda text: "Settings ·" not in text)
    assert own_file(place).read_text() == "[ui]\nnotify_after = 25\n"
    assert "takes effect at the next start" in " ".join(terminal.text().split())
    leave(terminal)


def test_words_are_chosen_and_what_is_not_trusted_is_not_in_force(place: Place) -> None:
    (place.project / ".agentrc").write_text('[permissions]\nmode = "bypass"\n')
    own_file(place).parent.mkdir(parents=True, exist_ok=True)
    own_file(place).write_text(f'[extensions.tracker]\napi_token = "{SECRET}"\n')
    terminal = start(place)
    terminal.type("/settings permissions\r")
    terminal.see("not in force: ")
    terminal.type("/settings ui.enter_while_working\r")
    terminal.see("❯ after-call")
    terminal.type(f"{DOWN}\r")
    terminal.see('ui.enter_while_working = "after-turn"')
    terminal.type("/settings tracker\r")
    terminal.see("(hidden)")
    leave(terminal)
    assert SECRET not in terminal.raw.decode()


def test_a_value_that_another_file_overrides_is_not_said_to_be_in_force(place: Place) -> None:
    (place.project / ".agentrc").write_text('[ui]\ntheme = "light"\n')
    terminal = start(place)
    terminal.type("/settings ui.theme dark\r")
    terminal.see("also sets ui.theme, and overrides your file")
    terminal.see('ui.theme is still "light"')
    assert "in effect now" not in terminal.text()
    assert own_file(place).read_text() == '[ui]\ntheme = "dark"\n'
    leave(terminal)


@pytest.mark.parametrize("size", SIZES)
def test_a_theme_is_seen_before_it_is_chosen(place: Place, size: tuple[int, int]) -> None:
    terminal = start(place, size=size)
    terminal.type("/theme\r")
    terminal.see("❯ auto")
    terminal.type(DOWN)
    terminal.see("❯ dark")
    terminal.type(ESC)
    terminal.see(lambda text: "❯ dark" not in text)
    assert not own_file(place).exists()
    terminal.type("/theme\r")
    terminal.see("❯ auto")
    terminal.type("high")
    terminal.see("❯ high-contrast")
    terminal.type("\r")
    terminal.see('ui.theme = "high-contrast"')
    assert own_file(place).read_text() == '[ui]\ntheme = "high-contrast"\n'
    leave(terminal)


def test_vim_mode_is_toggled_and_menus_and_questions_work_in_it(place: Place) -> None:
    script = [Say(tools=[("Bash", {"command": "touch made"})]), Say("Done."),
              Say(tools=[("Bash", {"command": "touch again"})]), Say("Not done.")]  # fmt: skip
    with Server(script) as server:
        terminal = start(place, server.url)
        terminal.type("/vim\r")
        terminal.see("INSERT ·")
        terminal.type("/help\r")
        terminal.see("Commands · conversation")
        terminal.type(ESC)
        terminal.see(lambda text: "Commands ·" not in text)
        terminal.see("INSERT ·")
        terminal.type("make it\r")
        terminal.see("o, and tell it")
        terminal.type("1\r")
        terminal.see("Done.")
        terminal.type(f"again{ESC}")
        terminal.see("NORMAL ·")
        terminal.type("\r")
        terminal.see("o, and tell it")
        terminal.type(f"not {DOWN}that\r")
        terminal.see("Not done.")
        terminal.type("/vim\r")
        terminal.see(lambda text: "INSERT ·" not in text)
        leave(terminal)
    assert (place.project / "made").exists()
    assert not (place.project / "again").exists()
    assert own_file(place).read_text() == '[ui]\nediting_mode = "emacs"\n'


@pytest.mark.parametrize("size", SIZES)
def test_an_earlier_message_comes_back_into_the_input(place: Place, size: tuple[int, int]) -> None:
    with Server([Say("One."), Say("Two.")]) as server:
        terminal = start(place, server.url, size)
        for words, answer in (("count the okapis", "One."), ("count the herons", "Two.")):
            terminal.type(f"{words}\r")
            terminal.see(answer)
            terminal.rest()
        terminal.type("/todo\r")
        terminal.see("the todo list is empty")
        terminal.type("/history\r")
        shown = terminal.see(lambda text: "❯ count the herons" in text.partition("search:")[2])
        assert "/todo" not in shown.partition("search:")[2]
        terminal.type("okapis")
        terminal.see(lambda text: "❯ count the okapis" in text.partition("search: okapis")[2])
        terminal.type("\r")
        terminal.see(lambda text: "❯ count the okapis" in text.rpartition("❯ /history")[2])
        terminal.see(lambda text: "search:" not in text)
        terminal.type("\x15")
        terminal.see(lambda text: "okapis" not in text.rpartition("❯ /history")[2])
        leave(terminal)


@pytest.mark.parametrize("size", SIZES)
def test_an_instruction_file_is_made_and_edited(place: Place, size: tuple[int, int]) -> None:
    editor = place.root / "editor"
    editor.write_text("#!/bin/sh\necho 'Use two blanks.' >> \"$1\"\n")
    editor.chmod(0o755)
    with Server([Say("One.")]) as server:
        terminal = start(place, server.url, size, EDITOR=str(editor), VISUAL="")
        terminal.type("/memory\r")
        terminal.see("create AGENTS.md here")
        terminal.type("\r")
        terminal.see("is saved")
        assert (place.project / "AGENTS.md").read_text() == "Use two blanks.\n"
        terminal.type("hello\r")
        terminal.see("One.")
        terminal.rest()
        terminal.type("/memory\r")
        terminal.see("❯ ")
        terminal.see(
            lambda text: "AGENTS.md" in text and "create" not in text.partition("search:")[2]
        )
        terminal.type(ESC)
        leave(terminal)
    assert "Use two blanks." in str(server.requests[0])


@pytest.mark.parametrize("size", SIZES)
def test_help_searches_all_groups_and_puts_the_command_into_the_input(
    place: Place, size: tuple[int, int]
) -> None:
    terminal = start(place, size=size)
    terminal.type("/help\r")
    terminal.see("Commands · conversation")
    terminal.type(TAB)
    terminal.see("Commands · context")
    terminal.type("effort")
    terminal.see("❯ /effort")
    terminal.type("\r")
    terminal.see(lambda text: "Commands ·" not in text)
    terminal.see("❯ /effort")
    terminal.type("\x15/help\r")
    terminal.see("Commands · conversation")
    terminal.type("todo")
    terminal.see("❯ /todo")
    terminal.type("\r")
    terminal.see("the todo list is empty")
    leave(terminal)
