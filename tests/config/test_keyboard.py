"""Keys in the settings: their spelling, and refused keys."""

from dataclasses import fields

import pytest

from ctxagent.agent.config.keyboard import DEFAULT_KEYS, key_name

from .conftest import Place


@pytest.mark.parametrize(
    ("action", "text", "key"),
    [
        ("unfold", "ctrl-g", "ctrl-g"),
        ("unfold", "Ctrl+G", "ctrl-g"),
        ("unfold", "ctrl-space", "ctrl-space"),
        ("unfold", "ALT-7", "alt-7"),
        ("unfold", "option-u", "alt-u"),
        ("unfold", "F12", "f12"),
        ("unfold", "ctrl-x  o", "ctrl-x o"),
        ("send", "return", "enter"),
        ("send_other", "ctrl-j", None),  # the key of keys.newline
        ("newline", "alt-enter", None),
        ("interrupt", "Escape", "esc"),
        ("interrupt", "ctrl-g", "ctrl-g"),
    ],
)
def test_a_key_may_be_written_in_several_ways(
    place: Place, action: str, text: str, key: str | None
) -> None:
    if key is None:
        assert "but keys." in place.fails(f"keys.{action}={text}").message
    else:
        assert getattr(place.load(f"keys.{action}={text}").settings.keys, action) == key


@pytest.mark.parametrize(
    "text",
    ["ctrl-c", "ctrl-d", "ctrl-z", "ctrl-h", "ctrl-i", "ctrl-m", "tab", "up", "o", "f13", "ctrl-oo",
     "super-o", "alt-enter", "enter", "esc", "ctrl-j", "ctrl-x ctrl-c", "alt-x o", "ctrl-x o o",
     "-", ""],
)  # fmt: skip
def test_other_keys_are_refused(place: Place, text: str) -> None:
    place.user(f'[keys]\nunfold = "{text}"\n')
    error = place.fails()
    assert error.where == f"{place.user_file}:2"
    assert f"keys.unfold is {text!r}; expected a key such as" in error.message
    assert "nor Ctrl-H, Ctrl-I or Ctrl-M (Backspace, Tab and Enter)" in error.message


def test_an_unknown_action_is_named_with_the_nearest_one(place: Place) -> None:
    place.user('[keys]\nunfld = "ctrl-g"\n')
    error = place.fails()
    assert error.where == f"{place.user_file}:2"
    assert error.hint == "Did you mean keys.unfold?"


def test_two_actions_cannot_have_one_key(place: Place) -> None:
    place.user('[keys]\nbackground = "ctrl-o"\n')
    error = place.fails()
    where = f"{place.user_file}:2"
    assert (
        error.message
        == f'{where}: keys.background is "ctrl-o", but keys.unfold is "ctrl-o" (default)'
    )
    place.user('[keys]\nbackground = "ctrl-o"\nunfold = "ctrl-b"\n')
    keys = place.load().settings.keys
    assert (keys.background, keys.unfold) == ("ctrl-o", "ctrl-b")
    place.user('[keys]\nunfold = "f5"\n\nredraw = "f5"\n')
    error = place.fails()
    assert error.message.endswith(f':4: keys.redraw is "f5", but keys.unfold is "f5" ({where})')


def test_no_key_may_begin_another(place: Place) -> None:
    error = place.fails("keys.unfold=ctrl-x")
    assert error.where == "-c"
    assert 'keys.unfold is "ctrl-x", but keys.editor is "ctrl-x ctrl-e" (default)' in error.message
    place.load("keys.unfold=ctrl-x", "keys.editor=ctrl-g")


def test_a_project_changes_keys_only_when_it_is_trusted(place: Place) -> None:
    place.theirs('[keys]\ncycle_mode = "ctrl-a"\n')
    loaded = place.load()
    assert loaded.settings.keys == DEFAULT_KEYS
    assert "keys.cycle_mode" in loaded.notices[0]


def test_keys_have_names_for_people() -> None:
    assert [key_name(getattr(DEFAULT_KEYS, each.name)) for each in fields(DEFAULT_KEYS)] == [
        "Enter", "Alt-Enter", "Ctrl-J", "Esc", "Ctrl-B", "Ctrl-O", "Shift-Tab", "Ctrl-X Ctrl-E",
        "Ctrl-R", "Ctrl-V", "Ctrl-L",
    ]  # fmt: skip
