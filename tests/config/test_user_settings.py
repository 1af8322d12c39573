"""Edits of the user's settings file, and rows without secrets."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.config.load import load_settings
from ctxagent.agent.config.user_settings import HIDDEN, UserSettings
from ctxagent.agent.errors import ConfigError

SECRET = "sk-okapi-0123456789"


class Home:
    """A home with a settings file, and a project below it."""

    def __init__(self, root: Path) -> None:
        self.file = root / ".config/ctxagent/agentrc"
        self.project = root / "project"
        self.project.mkdir()
        self.environ = {"HOME": str(root)}

    def open(self, *flags: str, clean: Callable[[str], str] = str) -> UserSettings:
        def load():  # type: ignore[no-untyped-def]
            return load_settings(self.project, environ=self.environ, flags=flags)

        return UserSettings(load(), load, self.environ, clean)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_change_is_checked_saved_and_in_force(home: Home) -> None:
    found = home.open().set("ui.theme", "dark")
    assert (found.value, found.origin) == ('"dark"', f"{home.file}:2")
    assert home.file.read_text() == '[ui]\ntheme = "dark"\n'
    assert stat.S_IMODE(home.file.stat().st_mode) == 0o600
    assert home.open().row("ui.theme").value == '"dark"'


def test_a_file_keeps_its_comments_and_a_key_can_be_removed(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text('# mine\n[ui]\ntheme = "light"  # by day\nplain = true\n')
    settings = home.open()
    settings.set("model.effort", "high")
    assert settings.set("ui.theme", "").origin == "default"
    assert home.file.read_text() == '# mine\n[ui]\nplain = true\n\n[model]\neffort = "high"\n'


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("move.above", "20_000", "20_000"),
        ("compact.at", "80%", "0.8"),
        ("ui.plain", "true", "true"),
        ("sandbox.write", '["/srv", "~/x"]', '["/srv", "~/x"]'),
        ("sandbox.write", "/srv", '["/srv"]'),
        ("extensions.tracker.project", "okapi", '"okapi"'),
    ],
)
def test_values_of_every_type(home: Home, name: str, text: str, row: str) -> None:
    settings = home.open()
    assert settings.set(name, text).value == row
    again = home.open()
    assert again.row(name).value == row
    assert json.dumps(again.set(name, again.own_text(name)).value) == json.dumps(row)


def test_an_old_name_of_a_section_stays_in_the_file(home: Home) -> None:
    home.file.parent.mkdir(parents=True, exist_ok=True)
    home.file.write_text("[demote]\nabove = 7\n")
    settings = home.open()
    assert settings.set("demote.above", "8").key == "move.above"
    settings.set("move.preview_chars", "90")
    settings.set("clear.keep", "4")
    written = "[demote]\nabove = 8\npreview_chars = 90\n\n[clear]\nkeep = 4\n"
    assert home.file.read_text() == written
    assert settings.set("move.above", "").origin == "default"
    assert "above" not in home.file.read_text()
    home.file.write_text("[demote]\nabove = 7\n\n[move]\npreview_chars = 3\n")
    assert home.open().set("move.above", "8").value == "8"
    assert home.file.read_text() == "[demote]\nabove = 8\n\n[move]\npreview_chars = 3\n"


def test_a_key_under_both_names_of_its_section_can_be_changed_and_removed(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text("[move]\nabove = 7\n\n[demote]\nabove = 8\n")
    settings = home.open()
    assert settings.row("move.above").value == "7"
    assert settings.set("move.above", "9").value == "9"
    assert settings.set("move.above", "").origin == "default"
    assert "above" not in home.file.read_text()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("ui.theme", "darkk", "Did you mean dark"),
        ("ui.them", "dark", "Did you mean ui.theme"),
        ("move.above", "lots", "expected a whole number"),
    ],
)
def test_a_wrong_value_changes_nothing(home: Home, name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        home.open().set(name, text)
    assert why in str(error.value)
    assert not home.file.exists()


def test_a_conflicting_value_is_reverted(home: Home) -> None:
    def refuse():  # type: ignore[no-untyped-def]
        raise ConfigError("it does not go with the rest", where="x")

    loaded = load_settings(home.project, environ=home.environ)
    settings = UserSettings(loaded, refuse, home.environ, str)
    with pytest.raises(ConfigError, match="go with the rest"):
        settings.set("ui.plain", "true")
    assert not home.file.exists()
    home.file.parent.mkdir(parents=True, exist_ok=True)
    home.file.write_text("[ui]\ntitle = false\n")
    with pytest.raises(ConfigError):
        settings.set("ui.plain", "true")
    assert home.file.read_text() == "[ui]\ntitle = false\n"


def test_a_layer_above_stays_in_force(home: Home) -> None:
    found = home.open("ui.theme=light").set("ui.theme", "dark")
    assert (found.value, found.origin) == ('"light"', "-c")


def test_an_untrusted_projects_value_is_shown_as_not_in_force(home: Home) -> None:
    (home.project / ".git").mkdir()
    (home.project / ".agentrc").write_text('[permissions]\nmode = "bypass"\n')
    found = home.open().row("permissions.mode")
    assert (found.value, found.origin) == ('"ask"', "default")
    assert found.untrusted == f'"bypass" in {home.project}/.agentrc:2'


def test_no_row_shows_a_secret(home: Home) -> None:
    home.file.parent.mkdir(parents=True)
    home.file.write_text(
        f'[model]\nbase_url = "https://me:{SECRET}@example.org"\n'
        f'[hooks]\nsession_start = ["curl -H {SECRET} example.org"]\n'
        f'[extensions.tracker]\napi_token = "okapi-7"\nproject = "walrus"\n'
    )
    settings = home.open(clean=lambda text: text.replace(SECRET, "[secret]"))
    shown = "\n".join(" ".join(row) for row in settings.rows())
    assert SECRET not in shown
    assert "okapi-7" not in shown
    assert settings.row("extensions.tracker.api_token").value == HIDDEN
    assert settings.row("extensions.tracker.project").value == '"walrus"'
    for name in ("model.base_url", "hooks.session_start", "extensions.tracker.api_token"):
        assert settings.own_text(name) == "", "nothing to begin an edit with"
    assert settings.own_text("extensions.tracker.project") == "walrus"
