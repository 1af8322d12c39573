"""Keys of providers that the user gave to `/login`: in the keyring of the system, else in a file.

`secret-tool` (Linux) and `security` (macOS) reach the keyring; one that does not answer at once
counts as none. The file in the state folder is readable by its owner alone. For a key in the
keyring it has the name. A variable of the environment counts more than a kept key.
"""

import json
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from ...tools.system.files import make_private_folder, replace_file
from ...tools.system.programs import own_environment, program
from ..errors import RecordError

FILE_NAME = "keys.json"
KEYRING_TIMEOUT_S = 5.0
_SERVICE = "ctxagent"


class KeyStore:
    """The kept keys, each by the name of its variable. Blocking."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.path = folder / FILE_NAME
        self._environ = environ

    @property
    def has_asked(self) -> bool:
        """Whether the user was asked for a provider at a first start."""
        return self._read() is not None

    def note_asked(self) -> None:
        """Record that the user was asked. Raises RecordError."""
        self._write(self._read() or {})

    def has(self, name: str) -> bool:
        """Return whether a key is kept for this variable."""
        return name in (self._read() or {})

    def add_to(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables of the kept keys that are not set."""
        for name, value in (self._read() or {}).items():
            if name not in environ and (found := value or self._keyring("lookup", name)):
                environ[name] = found

    def keep(self, name: str, value: str) -> Path | None:
        """Keep a key, and return the file that has it, None for the keyring. Raises RecordError."""
        self._keyring("store", name, value)
        is_in_keyring = self._keyring("lookup", name) == value
        self._write({**(self._read() or {}), name: None if is_in_keyring else value})
        return None if is_in_keyring else self.path

    def forget(self, name: str) -> bool:
        """Remove a kept key; return whether there was one. Raises RecordError."""
        kept = self._read() or {}
        if name not in kept:
            return False
        self._keyring("clear", name)
        self._write({other: value for other, value in kept.items() if other != name})
        return True

    def _read(self) -> dict[str, str | None] | None:
        """Return the kept keys, None for each that is in the keyring; None without a file."""
        try:
            kept = json.loads(self.path.read_bytes())["keys"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return kept if isinstance(kept, dict) else None

    def _write(self, keys: Mapping[str, str | None]) -> None:
        try:
            make_private_folder(self.path.parent)
            replace_file(self.path, json.dumps({"keys": keys}, indent=1).encode())
        except OSError as error:
            raise RecordError(
                f"{self.path} cannot be written: {error.strerror}",
                hint="Set the key where you start ctxagent: export NAME=…",
            ) from error

    def _keyring(self, action: str, name: str, value: str = "") -> str:
        """Look a key up in the keyring, store or clear it; return what the program prints, "" where
        there is no keyring."""
        import subprocess

        given = value
        if sys.platform != "darwin":
            label = ("--label", f"{_SERVICE} {name}") if action == "store" else ()
            command: Sequence[str] = (
                "secret-tool", action, *label, "service", _SERVICE, "account", name,
            )  # fmt: skip
        elif action == "store":  # on stdin: other users can read the arguments of a process
            command = ("security", "-i")
            given = f"add-generic-password -U -s {_SERVICE} -a {name} -w '{value}'\n"
        else:
            verb, show = ("find", ("-w",)) if action == "lookup" else ("delete", ())
            command = ("security", f"{verb}-generic-password", "-s", _SERVICE, "-a", name, *show)
        path = program(command[0], self._environ.get("PATH"))
        if not path:
            return ""
        try:
            done = subprocess.run(
                [path, *command[1:]],
                input=given.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=own_environment(self._environ),
                timeout=KEYRING_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return "" if done.returncode else done.stdout.decode(errors="replace").strip()
