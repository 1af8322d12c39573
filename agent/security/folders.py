"""The folders of homes and projects: which ones commands may write to, and which ones the agent
must not run its own programs from.
"""

import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...tools.search.installed import keep_ripgrep
from ...tools.system.programs import distrust, within
from ..config.settings import SandboxSettings
from . import sandbox_paths
from .sandbox_paths import contains_home, existing


def writable_folders(cwd: str, environ: Mapping[str, str], write: Sequence[Path] = ()) -> list[str]:
    """Return the folders that commands may write to, now or once they exist."""
    homes = home_folders(environ)
    temporary = ["/tmp", "/var/tmp", *filter(None, [environ.get("TMPDIR")])]
    named = [path for path in temporary if path == "/tmp" or not contains_home(path, homes)]
    named += [str(expand_home(path, homes)) for path in write]
    repository = sandbox_paths.find_repository(os.path.realpath(cwd))
    return [*named, *project_folders(cwd, environ), *repository.folders]


def project_folders(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """Return the project's folders that do not belong to a home or the system."""
    return writable_of_project(os.path.realpath(cwd), home_folders(environ))


def home_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the home in `environ`, the user's home and, for root, the homes of all users."""
    others = [str(path) for path in Path("/home").glob("*")] if os.geteuid() == 0 else []
    return list(dict.fromkeys([*own_homes(environ), *existing(others)]))


def own_homes(environ: Mapping[str, str]) -> list[str]:
    """Return the home in `environ` and the user's home."""
    user = ""
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    named = [environ.get("HOME", ""), os.path.expanduser(f"~{user}")]  # noqa: PTH111
    found = existing(name for name in named if name.startswith("/"))
    return [home for home in dict.fromkeys(found) if home != "/"]


def writable_of_project(cwd: str, homes: Sequence[str]) -> list[str]:
    """Return the folders of the project that commands may write to. If the project is a home, these
    are its folders without hidden ones and `bin`, since a login runs files there. If it contains
    homes, return [].
    """
    if cwd in homes:
        try:
            entries = [entry for entry in os.scandir(cwd) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return [e.path for e in entries if not e.name.startswith(".") and e.name != "bin"]
    if cwd == "/" or any(within(home, [cwd]) for home in homes):
        return []
    return [cwd]


def expand_home(path: Path, homes: Sequence[str]) -> Path:
    """Expand `~` in a path from the settings to the first of the homes."""
    home = Path(homes[0]) if homes else Path("/")
    return home.joinpath(*path.parts[1:]) if path.parts[:1] == ("~",) else path


def distrust_writable_folders(
    chosen: SandboxSettings, cwd: Path, environ: Mapping[str, str], state: Path
) -> None:
    """Exclude folders that commands may write to from the search for the agent's own programs.
    Without a sandbox commands may write anywhere; then only the project's folders are excluded. If
    they contain the installed ripgrep, a copy of it is kept, in the state folder if necessary.
    """
    distrust(_shipped_folders(os.path.realpath(cwd), environ))
    if chosen.mode == "off":
        distrust(project_folders(str(cwd), environ))
    else:
        distrust(writable_folders(str(cwd), environ, chosen.write))
    keep_ripgrep(state)


def _shipped_folders(cwd: str, environ: Mapping[str, str]) -> list[str]:
    """Return the folders of the project and its repository, unless they contain a home. Files that
    a project ships are as untrusted as files that a command writes. A home that is itself the
    project is included, since commands can write to new folders in it.
    """
    homes, root = home_folders(environ), sandbox_paths.repository_root(cwd)
    found = [cwd] if cwd in homes or not contains_home(cwd, homes) else []
    return [*found, root] if root and not contains_home(root, homes) else found
