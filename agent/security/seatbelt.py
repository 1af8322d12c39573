"""The macOS sandbox: sandbox-exec(1) with a profile of allowed accesses.

A profile is a list of rules in the language of Apple's Seatbelt; the last matching rule wins (see
sandbox(7) and the profiles in /System/Library/Sandbox). There are no mounts: at each path commands
see the same content as other programs, or nothing. Rules match real paths, so links cannot bypass
them.
"""

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from .sandbox_paths import Region

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

# System services for user and host names, preferences, certificates, the time zone, the log and
# temporary folders. Services that start programs, or give access to keys or the clipboard, are out.
_SERVICES = (
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.notification_center",
    "com.apple.system.logger",
    "com.apple.system.DirectoryService.libinfo_v1",
    "com.apple.SystemConfiguration.configd",
    "com.apple.bsd.dirhelper",
    "com.apple.cfprefsd.agent",
    "com.apple.cfprefsd.daemon",
    "com.apple.dnssd.service",
    "com.apple.trustd",
    "com.apple.trustd.agent",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/fd")
_NAME_SERVICE = "/private/var/run/mDNSResponder"  # the socket for host name lookups
_BASE = """(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow ipc-posix-shm)
(allow pseudo-tty)
(allow file-ioctl (subpath "/dev"))
(allow file-read* (subpath "/"))
"""


@functools.cache
def works() -> bool:
    """Return True if this system has sandbox-exec."""
    return sys.platform == "darwin" and os.access(SANDBOX_EXEC, os.X_OK)


def confined(
    command: Sequence[str],
    regions: Mapping[str, Region],
    never_made: Sequence[str],
    *,
    network: bool,
) -> list[str]:
    """Return the command line that runs `command` within these regions, keyed by absolute real
    path. Inner regions win, and all other paths are readable. Nothing can be created at
    `never_made`.
    """
    return [SANDBOX_EXEC, "-p", profile(regions, never_made, network=network), *command]


def profile(regions: Mapping[str, Region], never_made: Sequence[str], *, network: bool) -> str:
    """Return the profile for these regions."""
    services = " ".join(f"(global-name {_quoted(name)})" for name in _SERVICES)
    rules = [f"(allow mach-lookup {services})"]
    rules += [f"(allow file-write* (subpath {_quoted(path)}))" for path in _DEVICES]
    for path in sorted(regions, key=lambda path: path.count("/")):
        rules += _of_region(_quoted(path), regions[path])
    rules += (
        f"(allow file-read-metadata (literal {_quoted(p)}))" for p in _hidden_parents(regions)
    )
    rules += (f"(deny file-write* (subpath {_quoted(path)}))" for path in never_made)
    if network:
        rules += [
            "(allow network-outbound (remote ip))",
            "(allow network-inbound (local ip))",
            "(allow network-bind (local ip))",
            f"(allow network-outbound (literal {_quoted(_NAME_SERVICE)}))",
        ]
    return _BASE + "\n".join(rules) + "\n"


def _of_region(path: str, region: Region) -> Iterator[str]:
    if region.access == "write":
        yield f"(allow file-read* file-write* (subpath {path}))"
        yield f"(allow network-bind network-inbound network-outbound (subpath {path}))"
        return
    yield f"(deny file-write* (subpath {path}))"
    yield f"(deny network-bind network-inbound network-outbound (subpath {path}))"
    allowed = "allow" if region.access == "read" else "deny"
    yield f"({allowed} file-read* (subpath {path}))"


def _hidden_parents(regions: Mapping[str, Region]) -> Iterator[str]:
    """Yield the hidden folders above readable paths, whose metadata programs need to reach these
    paths.
    """
    hidden = [path for path, region in regions.items() if region.access in ("hidden", "empty")]
    found = set[str]()
    for path, region in regions.items():
        if region.access in ("read", "write"):
            above = os.path.dirname(path)  # noqa: PTH120
            while above not in found and any(f"{above}/".startswith(f"{h}/") for h in hidden):
                found.add(above)
                above = os.path.dirname(above)  # noqa: PTH120
    yield from sorted(found)


def _quoted(path: str) -> str:
    """Quote a path as a string of the profile."""
    shown = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{shown}"'
