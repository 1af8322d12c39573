"""The files that read-only commands, and commands without a question, may read in addition to the
project: system programs with their libraries and settings, and toolchains. All other paths are
absent, however they are spelled.
"""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...tools.system.programs import within
from .sandbox_paths import Region, existing, named_toolchains

_SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
    "/proc", "/sys", "/dev",
    # Libraries and public data of programs, and the list of installed packages.
    "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/lib/ghc", "/var/lib/texmf",
    "/var/lib/ca-certificates", "/var/cache/fontconfig",
)  # fmt: skip
# System files that only root may read.
_SECRETS = ("/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private", "/etc/krb5.keytab")
_SECRET_PATTERNS = ("ssh/ssh_host_*_key", "NetworkManager/system-connections", "wireguard")
_LIBRARIES = ("lib", "lib64", "libexec", "share")  # next to a folder of programs
# git must not refresh its index; long here-documents and sort need a temporary file.
VARIABLES = {"GIT_OPTIONAL_LOCKS": "0", "TMPDIR": "/dev/shm"}


def readable_regions(cwd: str) -> dict[str, Region]:
    """Return the only regions that a command with the narrow view can see in `cwd`."""
    found = dict.fromkeys(existing(_SYSTEM_FOLDERS), Region("read"))
    return {"/": Region("hidden"), **found, cwd: Region("read")}


@functools.cache
def secrets() -> tuple[str, ...]:
    """Return the system files that only root may read."""
    matching = (str(path) for pattern in _SECRET_PATTERNS for path in Path("/etc").glob(pattern))
    return tuple(existing((*_SECRETS, *matching)))


def toolchains(environ: Mapping[str, str], homes: Sequence[str]) -> Iterator[str]:
    """Yield the toolchains that the PATH and other variables name, with their libraries."""
    for path in named_toolchains("", environ):
        folder, name = os.path.split(path)
        if path == "/" or within(folder, _SYSTEM_FOLDERS) or any(within(h, [path]) for h in homes):
            continue
        yield path
        if name in ("bin", "sbin"):
            yield from existing(f"{folder}/{library}" for library in _LIBRARIES)
