"""The proxy as a service of systemd, for one user."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...api.base import UsageError, dataclass
from ...api.files import replace_file
from ...api.programs import is_secret, program, tls
from .forward import HOST, UPSTREAMS

UNIT_NAME = "ctxagent-proxy.service"
START_S = 30.0  # until the proxy accepts connections
SYSTEMCTL_S = 60.0
_POLL_S = 0.05
_MARK = "# Made by `ctxagent proxy install`. `ctxagent proxy uninstall` removes it."
_FOLDER = "# Folder made for it: "
_UNIT = """\
{mark}

[Unit]
Description=ctxagent proxy, which keeps the context of other agents small

[Service]
Type=exec
ExecStart={command}
{environment}Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""
# Variables of the shell that the service needs, too: places of files, and the way to a server.
_KEPT_NAMES = (
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", *tls.VARIABLES,
    *(f(name) for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
      for f in (str.upper, str.lower)),
)  # fmt: skip
_SETTINGS = "CTXAGENT_"


def unit_text(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the unit that runs a command with the settings and addresses in `environ`."""
    names = [
        name for name in environ
        if name in _KEPT_NAMES or (name.startswith(_SETTINGS) and not is_secret(name))
    ]  # fmt: skip
    lines = (f"Environment={_quoted(f'{name}={environ[name]}')}\n" for name in sorted(names))
    # In a command, unlike in an assignment, `$` begins a variable.
    words = (_quoted(word).replace("$", "$$") for word in command)
    return _UNIT.format(mark=_MARK, command=" ".join(words), environment="".join(lines))


def shell_lines(address: str) -> Iterator[str]:
    """Yield the shell commands that lead clients to the proxy."""
    for upstream in UPSTREAMS.values():
        yield f"export {upstream.variable}={address}{upstream.path}"


@dataclass(frozen=True, slots=True)
class UserService:
    """The service of one user."""

    home: Path
    systemctl: str  # path of the program

    @property
    def unit(self) -> Path:
        return self.home / ".config/systemd/user" / UNIT_NAME

    def install(self, text: str, port: int) -> None:
        """Write the unit, start the service and wait until it accepts connections. If it does not,
        remove it again. Raises UsageError.
        """
        is_new = not self._is_ours()
        if is_new and _is_listening(port):
            raise UsageError(f"port {port} is in use", hint="Use another --port.")
        made = [*_missing_folders(self.unit.parent)] if is_new else self._made_folders()
        text += "".join(f"{_FOLDER}{folder}\n" for folder in made)
        try:
            self.unit.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.unit, text.encode())
        except OSError as error:
            raise UsageError(
                f"cannot write {self.unit}: {error.strerror}",
                hint="Check the permissions of the folder.",
            ) from error
        try:
            self._run("daemon-reload")
            self._run("enable", "--now", UNIT_NAME)
            if not is_new:
                self._run("restart", UNIT_NAME)
            self._wait(port)
        except UsageError:
            with suppress(UsageError):
                self._run("disable", "--now", UNIT_NAME)
            self._remove_files()
            raise

    def uninstall(self) -> bool:
        """Stop the service and remove what `install` made. Return False if it is not installed.
        Raises UsageError.
        """
        if not self._is_ours():
            return False
        self._run("disable", "--now", UNIT_NAME)
        self._remove_files()
        self._run("daemon-reload")
        return True

    def _remove_files(self) -> None:
        made = self._made_folders()
        self.unit.unlink()
        for folder in made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def _is_ours(self) -> bool:
        """Return True if our unit exists. Raises UsageError for a unit of someone else."""
        if not os.path.lexists(self.unit):
            return False
        if self.unit.is_symlink() or not self.unit.read_text(errors="replace").startswith(_MARK):
            hint = "Rename it or remove it, then try again."
            raise UsageError(f"{self.unit} is not from ctxagent, so it stays", hint=hint)
        return True

    def _made_folders(self) -> list[Path]:
        """Return the folders that `install` made, innermost first."""
        lines = self.unit.read_text().splitlines()
        return [Path(line.removeprefix(_FOLDER)) for line in lines if line.startswith(_FOLDER)]

    def _wait(self, port: int) -> None:
        end = time.monotonic() + START_S
        while not _is_listening(port):
            if time.monotonic() > end or not self._is_starting():
                name = UNIT_NAME.removesuffix(".service")
                hint = f"See `journalctl --user -u {name}`."
                raise UsageError("the service did not start and was removed again", hint=hint)
            time.sleep(_POLL_S)

    def _is_starting(self) -> bool:
        return _called(self.systemctl, "is-active", UNIT_NAME).stdout.strip() in (
            "active", "activating", "reloading",
        )  # fmt: skip

    def _run(self, *words: str) -> None:
        """Run systemctl. Raises UsageError with what it prints if it fails."""
        done = _called(self.systemctl, *words)
        if done.returncode:
            said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise UsageError(
                f"systemctl --user {' '.join(words)}: {said}",
                hint="`ctxagent proxy` runs it without systemd.",
            )


def user_service(home: Path, environ: Mapping[str, str]) -> UserService:
    """Return the service of a user. Raises UsageError if systemd does not run for this user."""
    hint = "Run `ctxagent proxy` yourself. `ctxagent proxy install --print` prints the unit."
    systemctl = program("systemctl", environ.get("PATH"))
    if not systemctl:
        raise UsageError("this system has no systemd: systemctl is not installed", hint=hint)
    done = _called(systemctl, "show", "--property=Version")
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise UsageError(f"systemd does not run for this user: {said}", hint=hint)
    return UserService(home, systemctl)


def _called(systemctl: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Call systemctl for the user. Raises UsageError if it does not answer."""
    try:
        return subprocess.run(
            [systemctl, "--user", *words], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=SYSTEMCTL_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"systemctl --user {' '.join(words)}: {error}",
            hint="`ctxagent proxy` runs it without systemd.",
        ) from error


def _quoted(word: str) -> str:
    """Return a word as systemd reads it back."""
    for one, other in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("%", "%%")):
        word = word.replace(one, other)
    return f'"{word}"'


def _missing_folders(folder: Path) -> Iterator[Path]:
    """Yield a folder and its parents that do not exist, innermost first."""
    while not folder.exists():
        yield folder
        folder = folder.parent


def _is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0
