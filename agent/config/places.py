"""The folders of the user's settings and sessions, also without a (writable) home directory."""

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from .keys import ENV_PREFIX
from .settings import Settings

USER_FILE_VARIABLE = ENV_PREFIX + "CONFIG"
NO_HOME = Path("/dev/null")  # nobody, not even root, can create files below it
TEMPORARY_FOLDERS = ("/tmp", "/var/tmp")


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's home directory. Return NO_HOME if there is none or the user may not enter
    it, for example because HOME names another user's home.
    """
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute():
        try:
            home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
        except KeyError:  # e.g. a container with an arbitrary user ID
            return NO_HOME
    return NO_HOME if _is_inaccessible(home) else home


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings and instructions, which may be missing."""
    return _xdg_folder(environ, "XDG_CONFIG_HOME", ".config") / "ctxagent"


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's settings file, which may be missing."""
    named = environ.get(USER_FILE_VARIABLE)
    if named:
        return Path(os.path.abspath(named))  # noqa: PTH100 - resolve() would follow symlinks
    return config_home(environ) / "agentrc"


def state_dir(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Return the state folder, which may be missing. If none is set and the default is not
    writable, return a private folder for temporary files, if there is a safe one.
    """
    chosen = settings.state.dir
    if chosen is None:
        usual = _usual_state(environ)
        return usual if can_be_written(usual) else _temporary_state(environ) or usual
    return home_folder(environ).joinpath(*chosen.parts[1:]) if chosen.parts[0] == "~" else chosen


def state_notice(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return a notice for the user if sessions are kept in a temporary folder, else ""."""
    usual, used = _usual_state(environ), state_dir(settings, environ)
    if settings.state.dir is not None or used == usual:
        return ""
    homeless = usual.is_relative_to(NO_HOME)
    why = "there is no accessible home directory" if homeless else f"{usual} cannot be written"
    before = f" To read what is there, set CTXAGENT_STATE_DIR={usual}." if usual.is_dir() else ""
    return (
        f"{why}, so sessions and trust are kept in {used} until it is "
        f"cleared. Set state.dir (CTXAGENT_STATE_DIR) to a permanent folder.{before}"
    )


def can_be_written(folder: Path) -> bool:
    """Return True if a folder is writable or can be created."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _is_inaccessible(folder: Path) -> bool:
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 - a Path drops the dot, which tests for entry
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _xdg_folder(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return an XDG base directory. Relative paths in the variable are ignored."""
    named = Path(environ.get(variable, ""))
    return named if named.is_absolute() else home_folder(environ) / below_home


def _usual_state(environ: Mapping[str, str]) -> Path:
    return _xdg_folder(environ, "XDG_STATE_HOME", ".local/state") / "ctxagent"


def _temporary_state(environ: Mapping[str, str]) -> Path | None:
    """Return a temporary folder that belongs to this user alone, or None."""
    for base in (environ.get("TMPDIR", ""), *TEMPORARY_FOLDERS):
        folder = Path(base) / f"ctxagent-{os.geteuid()}"
        if folder.is_absolute() and _made_private(folder):
            return folder
    return None


def _made_private(folder: Path) -> bool:
    """Create or find a folder. Return True if no other user can read, write or replace it. Another
    user may have created it before.
    """
    try:
        above = folder.parent.stat()
        if not os.path.lexists(folder):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:
        return False
    shared = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
    others = above.st_uid not in (0, os.geteuid()) or shared
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    return private and found.st_uid == os.geteuid() and not others
