"""Keys that the user entered in `/login`: in the system's keyring, else in a file.

`secret-tool` (Linux) and `security` (macOS) access the keyring. A keyring that does not answer
within KEYRING_TIMEOUT_S counts as missing. The file in the state folder is readable only by its
owner; for a key in the keyring it stores only the name. An environment variable wins over a stored
key.
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
    """The stored keys, by the name of their variable. Blocking."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.path = folder / FILE_NAME
        self._environ = environ

    @property
    def has_asked(self) -> bool:
        """True if the first start has already asked the user for a provider."""
        return self._read() is not None

    def note_asked(self) -> None:
        """Record that the user was asked. Raises RecordError."""
        self._write(self._read() or {})

    def has(self, name: str) -> bool:
        """Return True if a key for this variable is stored."""
        return name in (self._read() or {})

    def add_to(self, environ: MutableMapping[str, str]) -> None:
        """Set the variables of stored keys that are not set yet."""
        for name, value in (self._read() or {}).items():
            if name not in environ and (found := value or self._keyring("lookup", name)):
                environ[name] = found

    def keep(self, name: str, value: str) -> Path | None:
        """Store a key. Return the path of the file, or None if the keyring has the key. Raises
        RecordError.
        """
        self._keyring("store", name, value)
        is_in_keyring = self._keyring("lookup", name) == value
        self._write({**(self._read() or {}), name: None if is_in_keyring else value})
        return None if is_in_keyring else self.path

    def forget(self, name: str) -> bool:
        """Remove a stored key and return True, or return False if there was none. Raises
        RecordError.
        """
        kept = self._read() or {}
        if name not in kept:
            return False
        self._keyring("clear", name)
        self._write({other: value for other, value in kept.items() if other != name})
        return True

    def _read(self) -> dict[str, str | None] | None:
        """Return the stored keys (None for each key in the keyring), or None without a file."""
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
        """Look up, store or clear a key in the keyring. Return the output of the program, ""
        without a keyring.
        """
        import subprocess

        given = value
        if sys.platform != "darwin":
            label = ("--label", f"{_SERVICE} {name}") if action == "store" else ()
            command: Sequence[str] = (
                "secret-tool", action, *label, "service", _SERVICE, "account", name,
            )  # fmt: skip
        elif action == "store":  # key on stdin, since other users can read process arguments
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
