"""The environment of the model's commands: the user's own without secrets.

Variables are judged by name. Names of keys, tokens and passwords are removed. Paths and sockets
stay (`SSH_AUTH_SOCK`, `GOOGLE_APPLICATION_CREDENTIALS`), and so do URLs, even with a password
(`DATABASE_URL`), as a project's tests need them. URLs of package indexes stay only without a
password. Further settings tell programs that there is no terminal.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ...agent.lazy import regex

# Words of a name (split at `_` etc.), then parts of a name without separators.
_WORDS = frozenset({"AUTH", "CRED", "CREDS", "JWT", "PASS", "PAT", "TOKEN", "WEBHOOK"})
_PARTS = (
    "ACCESSTOKEN",
    "APIKEY",
    "AUTHTOKEN",
    "CREDENTIAL",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PRIVATEKEY",
    "SECRET",
)
_NAMES = frozenset({"AWS_ACCESS_KEY_ID", "SSHPASS"})
_LAST_WORDS = frozenset({"KEY", "KEYS", "TOKENS"})
_LIMITS = frozenset({"COUNT", "LIMIT", "MAX", "MIN", "NUM"})  # in names of numbers (`MAX_TOKENS`)
# URLs of package indexes, which are removed if they contain a password.
_INDEX = regex(r"(?:PIP|UV|POETRY|PDM|NPM|YARN|CARGO|TWINE|CONDA)_\w*(?:INDEX|URL|REGISTRY)\w*")
_WITH_PASSWORD = regex(r"//[^/@\s]+@")
_PLACES = frozenset({"DIR", "FILE", "PATH", "SOCK"})  # last words of names of paths
# Headers for a telemetry collector, often with a key.
_HEADERS = regex(r"OTEL_EXPORTER_OTLP_(?:\w+_)?HEADERS")
_HARMLESS = frozenset({"GOOGLE_APPLICATION_CREDENTIALS"})
_declared: frozenset[str] = frozenset()  # names that are always secrets

NON_INTERACTIVE = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",  # a killed script's output is not lost in a buffer
}
# A project may ship a folder that looks like a bare repository, with a configuration that names
# programs.
_GIT_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "diff.submodule": "short",  # "diff" would run programs that a submodule configures
}


def child_environment(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Return `environ` without secrets, with settings that keep programs from waiting for user
    input and git from running programs that a folder configures.

    `keep` lists names or patterns such as `AWS_*` that are never removed.
    """
    kept = tuple(keep)
    passed = {
        name: value
        for name, value in environ.items()
        if not (is_secret(name) or _is_private_index(name, value))
        or any(fnmatchcase(name, pattern) for pattern in kept)
    }
    return {**passed, **NON_INTERACTIVE, **git_variables(_GIT_SETTINGS, passed)}


def git_variables(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that override git's config files, after those already in `environ`."""
    given = environ.get("GIT_CONFIG_COUNT", "")
    count = int(given) if given.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(count + len(settings))}
    for place, (name, value) in enumerate(settings.items(), count):
        variables |= {f"GIT_CONFIG_KEY_{place}": name, f"GIT_CONFIG_VALUE_{place}": value}
    return variables


def _is_private_index(name: str, value: str) -> bool:
    return bool(_INDEX.fullmatch(name.upper()) and _WITH_PASSWORD.search(value))


def declare_secrets(names: Iterable[str]) -> None:
    """Set the variables that are secrets although their names do not look like it."""
    global _declared
    _declared = frozenset(names)


def is_secret(name: str) -> bool:
    """Return True for a declared secret, and for a name that looks like that of a key, token or
    password.
    """
    if name in _declared:
        return True
    name = name.upper()
    words = [word for word in re.split(r"[^A-Z0-9]+", name) if word]
    if name in _HARMLESS or (words and words[-1] in _PLACES) or not _LIMITS.isdisjoint(words):
        return False
    squashed = "".join(words)
    return (
        name.startswith("ANTHROPIC_")
        or name in _NAMES
        or bool(_HEADERS.fullmatch(name))
        or not _WORDS.isdisjoint(words)
        or not _LAST_WORDS.isdisjoint(words[-1:])
        or (len(words) > 1 and words[-1] == "PWD")
        or any(part in squashed for part in _PARTS)
    )


def secrets_in(name: str, value: str) -> list[str]:
    """Return the secrets in a variable: its value, or the values of its headers; [] for none."""
    if not is_secret(name):
        return []
    headers = value.split(",") if _HEADERS.fullmatch(name.upper()) else []
    return [value.strip(), *(header.partition("=")[2].strip() for header in headers)]
