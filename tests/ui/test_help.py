"""/help on the plain screen: every command in its group, and search by words."""

from pathlib import Path

import pytest

from ctxagent.agent.config.keyboard import KeyboardSettings
from ctxagent.agent.errors import UsageError
from ctxagent.agent.extensions.command import GROUPS, OWN
from ctxagent.agent.extensions.command_files import built_in_commands
from ctxagent.agent.ui import commands
from ctxagent.agent.ui.commands.help import key_rows

from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk

MAX_GROUP = 15  # rows of the menu on a terminal of 24 rows, under which its preview fits


@pytest.fixture
def desk(tmp_path: Path) -> CommandDesk:
    found = CommandDesk(Conversation(tmp_path, [], mode="ask"))
    found.screen.paints = False
    return found


def test_every_command_is_in_one_of_five_groups_that_fit_on_a_screen() -> None:
    declared = [*commands.COMMANDS.values(), *built_in_commands().values()]
    sizes = {group: sum(each.group == group for each in declared) for group in GROUPS}
    assert sizes.pop(OWN) == 0
    assert len(sizes) == 5
    assert all(0 < size <= MAX_GROUP for size in sizes.values()), sizes


def test_help_lists_every_command_under_its_group(desk: CommandDesk) -> None:
    shown = desk.run("/help")
    places = [shown.index(f"{group}:") for group in GROUPS if group != OWN]
    assert places == sorted(places)
    for command in commands.COMMANDS.values():
        group = GROUPS.index(command.group)
        end = shown.index(f"{GROUPS[group + 1]}:") if GROUPS[group + 1] != OWN else None
        part = shown[shown.index(f"{command.group}:") : end]
        assert f"/{command.name}" in part
        assert command.help in " ".join(part.split())


def test_a_word_finds_commands_with_their_arguments(desk: CommandDesk) -> None:
    shown = desk.run("/help rewind")
    assert "conversation:" in shown
    assert "/rewind [N [WHAT]]" in shown
    assert "/cost" not in shown
    by_other_name = desk.run("/help /usage")
    assert "/cost" in by_other_name
    assert "/cost is also /stats, /usage" in by_other_name
    assert "/compact" in desk.run("/help context")


def test_a_word_that_finds_nothing_is_an_error(desk: CommandDesk) -> None:
    with pytest.raises(UsageError, match="no command or key matches 'okapi'"):
        desk.run("/help okapi")


def test_the_keys_have_a_topic(desk: CommandDesk) -> None:
    shown = desk.run("/help keys")
    assert "!command" in shown
    assert "Shift-Tab" not in shown, "nothing is painted here"


def test_the_help_has_the_keys_that_are_in_force() -> None:
    rows = dict(key_rows(KeyboardSettings(editor="ctrl-g", send="alt-enter", send_other="f2")))
    assert rows["Ctrl-G"] == "continue in your editor, as Ctrl-G does; with vi keys: v"
    assert {"Alt-Enter", "F2", "Ctrl-J  \\ Alt-Enter", "Ctrl-O"} <= set(rows)
    assert "Enter" not in rows


def test_a_word_finds_keys_too(desk: CommandDesk) -> None:
    shown = desk.run("/help shell command")
    assert "!command" in shown
    assert "/shell" in shown
    desk.screen.paints = True
    assert "Ctrl-X Ctrl-E" in desk.run("/help editor")
