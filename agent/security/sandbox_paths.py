"""The paths that sandboxed commands can access: no secrets, readable toolchains, private caches.

Bubblewrap, Landlock and the file tools share this one description. Secrets are found at the places
where programs store them, sockets in the kernel's list. All paths exist and have links resolved:
nothing is created for the sandbox.

In a home, commands see readable toolchain folders, and private caches in place of the user's. The
rest is hidden. If commands could write to the user's caches, they could escape: shells, package
managers and git hooks run files there. Downloaded packages are readable, so that builds work
without the network.

The parts of a project's git repository for the sandbox: folders that a commit writes to, and
files that make git run programs and must stay read-only.

A `.git` file, which a project may ship, can name a repository elsewhere. That repository counts
only if it names the project as its work tree.
"""

import os
import pwd
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Literal

from ...tools.search.installed import keep_ripgrep
from ...tools.system.git_links import linked_folders
from ...tools.system.programs import distrust, within
from ..config.settings import SandboxSettings
from ..lazy import dataclass
from ..permissions.shell.git import checked_out_submodules

# Optional files that point git to other configuration, hooks or objects.
_MAY_APPEAR = ("config.worktree", "hooks", "commondir", "objects/info/alternates")


@dataclass(frozen=True, slots=True)
class GitFolders:
    """The parts of a repository that the sandbox treats differently."""

    # Folders that a commit writes to, and the folders between them, so that no command can rename
    # one: a mount point cannot be renamed.
    folders: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()  # within `folders`
    must_not_exist: tuple[str, ...] = ()  # git would read configuration there


def find_repository(cwd: str) -> GitFolders:
    """Return the parts of the repository that contains `cwd`; no parts if there is none."""
    for folder in (Path(cwd), *Path(cwd).parents):
        entry = folder / ".git"
        if entry.is_dir():
            inner = (os.path.realpath(each / ".git") for each in checked_out_submodules(folder))
            return git_folders([os.path.realpath(entry), *filter(os.path.isdir, inner)])
        if entry.is_file():
            found = linked_folders(entry)
            place = git_folders(found)
            return GitFolders(place.folders, (str(entry), *place.read_only), place.must_not_exist)
    return GitFolders()


def repository_root(cwd: str) -> str:
    """Return the top folder of the folder's repository, "" if there is none."""
    above = (folder for folder in (Path(cwd), *Path(cwd).parents) if (folder / ".git").exists())
    return next(map(str, above), "")


def git_folders(folders: list[str]) -> GitFolders:
    """Return the parts of the repositories at these folders, including nested repositories."""
    read_only, must_not_exist = [], []
    between: list[str] = []
    for top in folders:
        for folder in (top, *_nested_folders(top)):
            between += _folders_between(top, folder)
            for name in (*_MAY_APPEAR, "config", "gitdir"):
                path = f"{folder}/{name}"
                if os.path.lexists(path):
                    read_only.append(path)
                elif name in _MAY_APPEAR:
                    must_not_exist.append(path)
    return GitFolders(
        tuple(dict.fromkeys([*folders, *between])), tuple(read_only), tuple(must_not_exist)
    )


def _nested_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, and the git folders of all additional work trees."""
    for folder in (top, *_submodule_folders(top)):
        if folder != top:
            yield folder
        with suppress(OSError), os.scandir(f"{folder}/worktrees") as entries:
            yield from (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _folders_between(top: str, folder: str) -> Iterator[str]:
    """Yield the folder and its parents below `top`."""
    while folder != top:
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _submodule_folders(top: str) -> Iterator[str]:
    """Yield the repositories of submodules, whose names may contain slashes."""
    pending = [f"{top}/modules"]
    while pending:
        try:
            found = [
                entry.path
                for entry in os.scandir(pending.pop())
                if entry.is_dir(follow_symlinks=False)
            ]
        except OSError:
            continue
        for path in found:
            if os.path.isfile(f"{path}/HEAD"):  # noqa: PTH113
                yield path
                pending.append(f"{path}/modules")
            else:
                pending.append(path)


# "hidden" shows an empty read-only folder or file. "empty" starts as an empty writable folder that
# is deleted when the command ends.
RegionAccess = Literal["write", "read", "hidden", "empty"]

# Folders of which commands have private versions.
_PRIVATE_FOLDERS = ("/proc", "/dev")


@dataclass(frozen=True, slots=True)
class Region:
    """The access that commands have to a path and everything below it."""

    access: RegionAccess
    source: str = ""  # the real location, if it is not the path itself


@dataclass(frozen=True, slots=True)
class Boundary:
    """Regions by their absolute path. Inner regions override outer ones; paths outside all regions
    are read-only.
    """

    regions: Mapping[str, Region] = field(default_factory=dict)

    def at(self, path: str) -> tuple[str, Region]:
        """Return the innermost region that contains a path, and the region's top path."""
        while path not in self.regions and path != "/":
            path = os.path.dirname(path)  # noqa: PTH120
        return path, self.regions.get(path, Region("read"))

    def moved(self, path: str) -> str:
        """Map a path that commands see to its real location. `path` is absolute with links
        resolved.
        """
        top, region = self.at(path)
        return region.source + path[len(top) :] if region.source else path

    def can_read(self, path: str) -> bool:
        """Return True if commands may read a path and see the same content there as other programs.
        `path` is absolute with links resolved.
        """
        region = self.at(path)[1]
        same = region.access == "read" or (region.access == "write" and not region.source)
        return same and not within(path, _PRIVATE_FOLDERS)

    def can_write(self, path: str) -> bool:
        """Return True if commands may write to a path. `path` is absolute with links resolved."""
        region = self.at(path)[1]
        return region.access == "write" and not region.source

    def mounted(self) -> dict[str, Region]:
        """Return the regions that need a mount since they differ from the region around them."""
        return {path: region for path, region in self.regions.items() if self._differs(path)}

    def _differs(self, path: str) -> bool:
        region, outer = self.regions[path], self.at(os.path.dirname(path))[1]  # noqa: PTH120
        if region.access == "hidden":  # no need to hide parts of a private folder
            return outer.access != "hidden" and not outer.source
        # Always mount a writable path: a mount point cannot be renamed.
        return region != outer or region.access == "write" or bool(region.source)


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


# Below a home: programs, their libraries, and settings without keys.
_TOOLCHAINS = words("""
bin .local/bin .local/lib .local/share/pipx .local/pipx .local/share/uv .local/share/mise
.local/share/fnm .local/share/virtualenvs .local/share/pnpm .local/share/rtx .local/share/hatch
.local/share/pdm .local/share/jupyter/kernels .pyenv .rye .pixi .conda/envs miniconda3 anaconda3
miniforge3 mambaforge micromamba .virtualenvs .nvm .fnm .volta .n .nodenv .npm-global
.npm-packages .deno/bin .bun/bin .bun/install/global .yarn/bin .config/yarn/global .rbenv .rvm
.gem/ruby .rubies .cargo/bin .cargo/env .rustup .goenv .go go/bin .sdkman .jenv .jabba .dotnet
.ghcup .stack .cabal/bin .opam .julia .juliaup .asdf .mix .kerl .linuxbrew .nix-profile
.local/state/nix/profiles .swiftpm .swiftly .android/sdk Android/Sdk .foundry/bin .composer/vendor
.config/composer/vendor .pub-cache/bin flutter .krew/bin .luarocks perl5 .R R .tool-versions
.python-version .node-version .nvmrc .gitconfig .config/git/config .config/git/ignore
.config/git/attributes .gitignore .gitignore_global .gitattributes .editorconfig .hgrc
""")
# Downloaded packages.
_PACKAGES = words("""
.cargo/registry .cargo/git go/pkg .m2/repository .nuget/packages .cabal/packages .conda/pkgs
.pub-cache/hosted .hex .opam/download-cache .terraform.d/plugin-cache
""")
_ALWAYS_CACHES = (".cache", ".npm")
_CACHES = words("""
.yarn .gradle .ivy2 .sbt .pnpm-store .local/share/pnpm/store .bun/install/cache .composer/cache
.bundle/cache
""")
# Parts of `~/.cache` that are slow to download and only read: browsers, models, tools.
_SHARED_CACHES = words("""
ms-playwright puppeteer Cypress selenium electron node-gyp prisma huggingface/hub
huggingface/datasets torch whisper bazelisk pre-commit
""")
_SHARED = ".cache.shared"  # their mount point; the private cache has links to it
# Variables that name folders of toolchains and of packages.
_TOOLCHAIN_VARIABLES = words("""
VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR NVM_BIN FNM_DIR FNM_MULTISHELL_PATH VOLTA_HOME
RUSTUP_HOME GOROOT GOMODCACHE JAVA_HOME SDKMAN_DIR ASDF_DATA_DIR ASDF_DIR MISE_DATA_DIR RBENV_ROOT
DENO_INSTALL DOTNET_ROOT GEM_HOME ANDROID_HOME ANDROID_SDK_ROOT FLUTTER_ROOT NIX_PROFILES
""")
# Shared system folders, and homes that are not a user's.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/srv", "/var", "/home")


def hides(home: str) -> bool:
    """Return True if a home belongs to a user and so is hidden; False for a system folder."""
    return not any(f"{folder}/".startswith(f"{home}/") for folder in _SYSTEM) and not any(
        home.startswith(f"{folder}/") for folder in ("/usr", "/bin", "/sbin", "/lib", "/etc")
    )


def readable_paths(home: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the paths in a home that commands may read, each with its link target."""
    named = (f"{home}/{name}" for name in likely_names(home, (*_TOOLCHAINS, *_PACKAGES)))
    for path in (*named, *named_toolchains(home, environ)):
        yield from ((path, real) for real in existing([path]))
    for name in likely_names(f"{home}/.cache", _SHARED_CACHES):
        shared = existing([f"{home}/.cache/{name}"])
        yield from ((f"{home}/{_SHARED}/{name}", real) for real in shared)


def own_caches(home: str) -> Iterator[tuple[str, str]]:
    """Yield the paths in a home where commands get private caches, with a name for each cache."""
    likely = likely_names(home, _CACHES)
    there = [name for name in likely if os.path.exists(f"{home}/{name}")]  # noqa: PTH110
    for name in likely_names(home, _PACKAGES):
        above = name.partition("/")[0]
        if os.path.exists(f"{home}/{above}") and not os.path.exists(f"{home}/{name}"):  # noqa: PTH110
            there.append(name)
    yield from ((f"{home}/{name}", name.replace("/", "-")) for name in (*_ALWAYS_CACHES, *there))


def link_shared_caches(home: str, caches: Path) -> None:
    """Create links from the commands' private cache to the shared caches of a home."""
    for name in dict.fromkeys(name.partition("/")[0] for name in _SHARED_CACHES):
        if os.path.exists(f"{home}/.cache/{name}"):  # noqa: PTH110
            with suppress(OSError):  # a command may have created another file there
                (caches / name).symlink_to(f"{home}/{_SHARED}/{name}")


def named_toolchains(folder: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the toolchains in a folder that the PATH and other variables name, and this program's
    own Python folders.
    """
    named = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
    named += [environ.get(name, "") for name in _TOOLCHAIN_VARIABLES]
    named += environ.get("PATH", "").split(":")
    if cargo := environ.get("CARGO_HOME"):
        named += [f"{cargo}/{name}" for name in ("bin", "registry", "git")]
    for path in existing(path for path in dict.fromkeys(named) if path.startswith("/")):
        if path.startswith(f"{folder}/"):
            yield path


def plain_files(home: str) -> Iterator[str]:
    """Yield the non-hidden files at the top of a home that is the project."""
    with suppress(OSError), os.scandir(home) as entries:
        yield from (e.path for e in entries if e.is_file() and not e.name.startswith("."))


def writable_folders(cwd: str, environ: Mapping[str, str], write: Sequence[Path] = ()) -> list[str]:
    """Return the folders that commands may write to, now or once they exist."""
    homes = home_folders(environ)
    temporary = ["/tmp", "/var/tmp", *filter(None, [environ.get("TMPDIR")])]
    named = [path for path in temporary if path == "/tmp" or not contains_home(path, homes)]
    named += [str(expand_home(path, homes)) for path in write]
    repository = find_repository(os.path.realpath(cwd))
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
    homes, root = home_folders(environ), repository_root(cwd)
    found = [cwd] if cwd in homes or not contains_home(cwd, homes) else []
    return [*found, root] if root and not contains_home(root, homes) else found
