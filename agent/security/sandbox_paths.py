"""Paths that sandboxed commands must not see.

Secrets are found at the places where programs store them, sockets in the kernel's list. All paths
exist and have links resolved: nothing is created for the sandbox.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ...tools.system.programs import within


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Below a home.
_SECRETS = words("""
.ssh .aws .azure .gnupg .kube .netrc .git-credentials .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf
.vault-token .boto .s3cfg .fly .password-store .1password .Xauthority .ICEauthority
.docker/config.json .docker/run .docker/desktop .colima .lima .orbstack .rd .minikube
.cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings-security.xml
.terraform.d/credentials.tfrc.json .terraformrc .emacs.d/server .config/gcloud .config/gh
.config/hub .config/glab-cli .config/git/credentials .config/op .config/1Password
.config/Bitwarden .config/keepassxc .config/sops .config/age .config/rclone .config/doctl
.config/flyctl .config/heroku .config/github-copilot .config/containers/auth.json
.config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
.config/vivaldi .config/opera .config/Signal .config/Slack .config/discord .mozilla .thunderbird
.cache/mozilla .cache/google-chrome .cache/chromium .cache/BraveSoftware snap/firefox
snap/chromium .var/app/org.mozilla.firefox .var/app/com.google.Chrome .local/share/keyrings
.local/share/kwalletd .local/share/containers/podman .pki .bitcoin .electrum .ethereum
.claude.json .claude/.credentials.json .codex/auth.json .gemini .bash_history .zsh_history
.zsh_sessions .local/share/fish/fish_history .python_history .node_repl_history .psql_history
.mysql_history .sqlite_history .rediscli_history .lesshst .viminfo .local/share/recently-used.xbel
.cache/huggingface/token .cache/huggingface/stored_tokens .huggingface .authinfo .authinfo.gpg
.gradle/gradle.properties .m2/settings.xml .config/pypoetry .config/pip .pip .config/uv
.sbt/credentials .nuget/NuGet .config/NuGet .bundle/config .composer/auth.json
.config/composer/auth.json .condarc .cargo/config .cargo/config.toml .config/hcloud
.config/configstore .config/stripe .config/ngrok .databrickscfg .kaggle .subversion/auth
.mylogin.cnf .local/share/uv/credentials .ansible
""")

# All of /run is hidden except for these.
_NEEDED_PATHS = (
    "/etc/resolv.conf", "/etc/localtime", "/run/current-system", "/run/booted-system",
    "/run/opengl-driver", "/run/opengl-driver-32",
)  # fmt: skip
RUN_FOLDERS = ("/run", "/var/run")
_SYSTEM_SECRETS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")

# Variables that name a way out of the sandbox: a socket, a display, a multiplexer.
ESCAPE_VARIABLES = words(
    """SSH_AUTH_SOCK SSH_AGENT_PID SSH_ASKPASS GIT_ASKPASS GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS
    DBUS_SYSTEM_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY XDG_RUNTIME_DIR TMUX TMUX_PANE STY
    NVIM NVIM_LISTEN_ADDRESS KITTY_LISTEN_ON WEZTERM_UNIX_SOCKET ALACRITTY_SOCKET I3SOCK SWAYSOCK
    VSCODE_IPC_HOOK_CLI VSCODE_GIT_IPC_HANDLE VSCODE_GIT_ASKPASS_NODE VSCODE_GIT_ASKPASS_MAIN
    LISTEN_FDS NOTIFY_SOCKET"""
)


def secret_paths(homes: Iterable[str]) -> Iterator[str]:
    """Yield the files and folders with secrets in these homes and in the system."""
    yield from existing(_SYSTEM_SECRETS)
    for home in homes:
        yield from existing(f"{home}/{name}" for name in likely_names(home, _SECRETS))


def needed_run_paths() -> Iterator[str]:
    """Yield the paths in /run that every program needs."""
    yield from (path for path in existing(_NEEDED_PATHS) if path.startswith("/run/"))


def sockets() -> Iterator[tuple[str, str]]:
    """Yield the path and the inode number of every Unix socket with a path in this network
    namespace.
    """
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=7)
        if len(fields) < 8 or not fields[7].startswith(b"/"):
            continue
        path = os.fsdecode(fields[7])
        if _is_socket(path):
            folder, _, name = path.rpartition("/")
            yield f"{(_real_path(folder) or folder).rstrip('/')}/{name}", fields[6].decode()


def sockets_held_by(pids: Iterable[int]) -> set[str]:
    """Return the inode numbers of the sockets that these processes have open."""
    numbers = set()
    for pid in pids:
        try:
            files = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for file in files:
            try:
                target = os.readlink(file)  # noqa: PTH115 - the target is not a path
            except OSError:
                continue
            if target.startswith("socket:["):
                numbers.add(target[len("socket:[") : -1])
    return numbers


def existing(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths that exist, with links resolved."""
    yield from filter(None, map(_real_path, paths))


def likely_names(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the relative paths that may exist in a folder. One directory listing excludes most of
    them, so each need not be looked up.
    """
    there: Collection[str] | None = None
    # An unlistable folder may still have these paths. Some systems ignore case.
    with suppress(OSError), os.scandir(folder) as entries:
        there = {entry.name.casefold() for entry in entries}
    for name, first in _first_parts(tuple(names)):
        if there is None or first in there:
            yield name


@cache
def _first_parts(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return each relative path with its first part in lower case, for case-insensitive systems."""
    return [(name, name.partition("/")[0].casefold()) for name in names]


def _real_path(path: str) -> str:
    """Return an absolute path with links resolved, "" if it does not exist. This takes a few system
    calls in all, not one per component.
    """
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, AttributeError):  # some systems lack O_PATH
        place = -1
    with suppress(OSError):
        try:
            found = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115
            if os.path.samestat(os.fstat(place), os.lstat(found)):
                return found
        finally:
            os.close(place)
    return os.path.realpath(path) if os.path.exists(path) else ""  # noqa: PTH110


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def contains_home(path: str, homes: Iterable[str]) -> bool:
    """Return True if a folder is or contains one of these homes."""
    real = os.path.realpath(path)
    return any(within(home, [real]) for home in homes)
