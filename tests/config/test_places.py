"""The folders of settings and sessions. The temporary folder that can replace the home's is tested
with folders that another user may have created.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.config import places
from ctxagent.agent.config.load import load_settings
from ctxagent.agent.config.places import NO_HOME, config_home, home_folder, state_dir, state_notice
from ctxagent.agent.config.settings import Settings

AS_NOBODY_KNOWN = """
import os
from pathlib import Path
from ctxagent.agent.config.places import config_home
os.setuid(54_321)
print(config_home({}))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only temporary folder that is tried."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(places, "TEMPORARY_FOLDERS", ())
    return folder


def with_state(chosen: str | None, tmp_path: Path) -> Settings:
    flags = [f"state.dir={chosen}"] if chosen else []
    return load_settings(tmp_path, environ={"HOME": str(tmp_path)}, flags=flags).settings


@pytest.mark.parametrize(
    ("chosen", "environ", "expected"),
    [
        (None, {}, "h/.local/state/ctxagent"),
        (None, {"XDG_STATE_HOME": "{root}/x"}, "x/ctxagent"),
        (None, {"XDG_STATE_HOME": "relative"}, "h/.local/state/ctxagent"),
        ("{root}/s", {"XDG_STATE_HOME": "{root}/x"}, "s"),
        ("~/s/t", {}, "h/s/t"),
        ("~", {}, "h"),
    ],
)
def test_the_state_folder(
    tmp_path: Path, chosen: str | None, environ: dict[str, str], expected: str
) -> None:
    given = {name: value.format(root=tmp_path) for name, value in environ.items()}
    settings = with_state(chosen and chosen.format(root=tmp_path), tmp_path)
    found = {"HOME": str(tmp_path / "h"), **given}
    assert state_dir(settings, found) == tmp_path / expected
    assert state_notice(settings, found) == ""
    assert not any(tmp_path.iterdir())


def test_a_relative_folder_of_settings_does_not_count() -> None:
    environ = {"HOME": "/h", "XDG_CONFIG_HOME": "relative"}
    assert config_home(environ) == Path("/h/.config/ctxagent")


def link(folder: Path) -> None:
    target = folder.with_name("elsewhere")
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


def readable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def shared(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    folder.parent.chmod(0o777)  # whoever may rename it may put another in its place


def file(folder: Path) -> None:
    folder.write_text("")


def of_another(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    folder.mkdir(mode=0o700)
    os.chown(folder, 54_321, 54_321)


def below_another(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(folder.parent, 54_321, 54_321)


@pytest.mark.parametrize("plant", [link, readable, shared, file, of_another, below_another])
def test_a_planted_folder_is_not_used(
    tmp_path: Path, temporary: Path, plant: Callable[[Path], None]
) -> None:
    plant(temporary / f"ctxagent-{os.geteuid()}")
    settings = with_state(None, tmp_path)
    environ = {"HOME": str(NO_HOME), "TMPDIR": str(temporary)}
    assert state_dir(settings, environ) == NO_HOME / ".local" / "state" / "ctxagent"
    assert state_notice(settings, environ) == ""


def test_the_same_folder_is_found_again(tmp_path: Path, temporary: Path) -> None:
    settings = with_state(None, tmp_path)
    environ = {"HOME": str(NO_HOME), "TMPDIR": str(temporary)}
    first = state_dir(settings, environ)
    (first / "kept").write_text("")
    assert state_dir(settings, environ) == first == temporary / f"ctxagent-{os.geteuid()}"
    assert str(first) in state_notice(settings, environ)


@pytest.mark.slow
def test_a_user_without_an_entry_has_no_home() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become a user who has no entry")
    env = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", AS_NOBODY_KNOWN]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout == f"{NO_HOME}/.config/ctxagent\n", done.stderr


def test_a_home_is_absolute() -> None:
    assert home_folder({"HOME": "/h"}) == Path("/h")
    assert home_folder({"HOME": "relative"}) == home_folder({})
