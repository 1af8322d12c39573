"""Where a person's settings and sessions lie, also where there is no home, or none to write to."""

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from .keys import ENV_PREFIX
from .settings import Settings

USER_FILE_VARIABLE = ENV_PREFIX + "CONFIG"
NO_HOME = Path("/dev/null")  # nothing is in it, and nothing can be made in it, by root neither
TEMPORARY_FOLDERS = ("/tmp", "/var/tmp")


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's home. One that they may not even enter, as another user's may be that
    HOME still names, is none, and NO_HOME stands for it."""
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute():
        try:
            home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
        except KeyError:  # as in a container with a user of any number
            return NO_HOME
    return NO_HOME if _is_closed(home) else home


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's own settings and instructions; it need not exist."""
    return _xdg_folder(environ, "XDG_CONFIG_HOME", ".config") / "ctxagent"


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the file of the user's own settings; it need not exist."""
    named = environ.get(USER_FILE_VARIABLE)
    if named:
        return Path(os.path.abspath(named))  # noqa: PTH100 - resolve() would follow symlinks
    return config_home(environ) / "agentrc"


def state_dir(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Return the folder of everything that ctxagent keeps; it need not exist yet. Where none is
    chosen and the usual one cannot be written, it is one for temporary files, if that is safe."""
    chosen = settings.state.dir
    if chosen is None:
        usual = _usual_state(environ)
        return usual if can_be_written(usual) else _temporary_state(environ) or usual
    return home_folder(environ).joinpath(*chosen.parts[1:]) if chosen.parts[0] == "~" else chosen


def state_notice(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return what the user should know of where sessions are kept, "" for nothing."""
    usual, used = _usual_state(environ), state_dir(settings, environ)
    if settings.state.dir is not None or used == usual:
        return ""
    homeless = usual.is_relative_to(NO_HOME)
    why = "there is no home to enter" if homeless else f"{usual} cannot be written"
    before = f" What is there is read with CTXAGENT_STATE_DIR={usual}." if usual.is_dir() else ""
    return (
        f"{why}, so sessions and what is trusted are kept in {used}, until that is "
        f"cleared. Set state.dir (CTXAGENT_STATE_DIR) to a folder that stays.{before}"
    )


def can_be_written(folder: Path) -> bool:
    """Return True if a folder can be written, or made where it is missing."""
    while not os.path.lexists(folder):
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _is_closed(folder: Path) -> bool:
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 - a Path drops the dot, by which it is entered
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _xdg_folder(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return a base directory as XDG defines them: a relative one does not count."""
    named = Path(environ.get(variable, ""))
    return named if named.is_absolute() else home_folder(environ) / below_home


def _usual_state(environ: Mapping[str, str]) -> Path:
    return _xdg_folder(environ, "XDG_STATE_HOME", ".local/state") / "ctxagent"


def _temporary_state(environ: Mapping[str, str]) -> Path | None:
    """Return a folder for temporary files that is this user's alone, None where there is none."""
    for base in (environ.get("TMPDIR", ""), *TEMPORARY_FOLDERS):
        folder = Path(base) / f"ctxagent-{os.geteuid()}"
        if folder.is_absolute() and _made_private(folder):
            return folder
    return None


def _made_private(folder: Path) -> bool:
    """Make a folder, or find it, and show whether nobody else can read it, write to it or put
    another in its place: anyone may have made what has its name."""
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
