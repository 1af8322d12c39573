"""Find the key of a provider: in the environment, or in the file of stored keys.

Imports nothing slow, because a missing key is reported before the prompt is drawn.
"""

import json
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from ...tools.system.files import make_private_folder, replace_file
from ...tools.system.programs import own_environment, program
from ..errors import NoCredentials, RecordError
from .providers import FILE_NAME, LOCAL, Endpoint, Provider

ANY_TOKEN = "none"  # for a server that accepts any token


def find_key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """Return the variable with the key for a server, "" if it needs none. Raises NoCredentials for
    a missing address or key, and for a key with invalid characters.
    """
    provider = endpoint.provider
    if not endpoint.address and provider.name != LOCAL:
        variable = provider.address_variable
        what = variable or f"[{provider.name}] address"
        raise NoCredentials(
            f"No address for {provider.name}: {what} is not set.",
            hint=f"export {variable}=https://…" if variable else f"Add it to {FILE_NAME}.",
        )
    if name := next((name for name in provider.keys if environ.get(name)), ""):
        check_key(name, environ[name])
        return name
    if not endpoint.needs_key or provider.key_header in map(str.lower, provider.headers):
        return ""
    if not provider.keys:
        raise NoCredentials(
            f"No key for {provider.name}: no variable for its key is configured.",
            hint=f'Set it in providers.toml: keys = ["NAME"] in [{provider.name}], or local = true '
            "for a server that needs no key.",
        )
    states = [
        f"{name} is {'set but empty' if name in environ else 'not set'}" for name in provider.keys
    ]
    raise NoCredentials(
        f"No key for {provider.name}: {', '.join(states)}.", hint=f"export {provider.keys[0]}=…"
    )


def check_key(name: str, value: str, hint: str = "") -> None:
    """Raise NoCredentials for a blank key, or a key with invalid characters."""
    if not value.strip():
        hint = hint or f"Set it: export {name}=…"
        raise NoCredentials(f"No key for the model: {name} is set but blank.", hint=hint)
    if value != value.strip():
        what = "a line break" if set("\r\n") & {value[0], value[-1]} else "a blank"
        raise NoCredentials(
            f"{name} begins or ends with {what}, which cannot be part of a key.",
            hint=f"Set it again without it: export {name}=…",
        )
    if not (value.isascii() and value.isprintable()):
        raise NoCredentials(
            f"{name} contains a line break or a character that is invalid in a key.",
            hint=f"Set it again: export {name}=…",
        )


def secrets_of(provider: Provider, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of a provider, from the environment and from its configured headers."""
    found = [environ[name] for name in provider.keys if environ.get(name)]
    return (*found, *(value for _, value in provider.written_keys()))


def key_headers(endpoint: Endpoint, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for each request to a server, including the key. Raises NoCredentials."""
    provider, name = endpoint.provider, find_key(endpoint, environ)
    headers = dict(provider.headers)
    if name:
        bearer = "Bearer " if provider.key_header == "authorization" else ""
        headers[provider.key_header] = f"{bearer}{environ[name]}"
    return headers


KEYS_FILE_NAME = "keys.json"
KEYRING_TIMEOUT_S = 5.0
_SERVICE = "ctxagent"


class KeyStore:
    """The stored keys, by the name of their variable. Blocking."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.path = folder / KEYS_FILE_NAME
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
