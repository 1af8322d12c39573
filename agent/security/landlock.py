"""Landlock: restrict a thread and every process that it starts.

Landlock needs no privileges (landlock(7), linux/landlock.h). A rule allows a folder with everything
in it, and no later rule can take a part away. To hide a path, or keep it read-only ("kept") in a
writable folder, its current siblings are allowed one by one; the folder then accepts no new names.
"read" within a writable folder is not enforced. Landlock does not restrict stat(2), nor changes of
mode, owner and times.
"""

import ctypes
import functools
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from . import seccomp

# "kept" paths are read-only even in a writable folder.
Access = Literal["write", "read", "kept", "hidden"]

# Devices that every program may use. All others, such as terminals, are hidden.
DEVICES: Mapping[str, Access] = {
    "/dev": "hidden",
    **{f"/dev/{name}": "write" for name in ("null", "zero", "full", "random", "urandom", "shm")},
}  # fmt: skip
_FILES_VERSION = 3  # the first ABI version that can deny truncation
_TCP_VERSION, _DEVICES_VERSION, _SCOPES_VERSION = 4, 5, 6

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_TCP = 0b11  # to bind and to connect
_SCOPES = 0b11  # abstract sockets and signals to processes outside the ruleset

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = (1 << bit for bit in range(4))
_TRUNCATE, _DEVICE_CALLS = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CALLS

_PR_SET_SECCOMP, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 23, 24, 38
_FILTER_MODE = 2


@functools.cache
def version() -> int:
    """Return the ABI version of the kernel's Landlock, 0 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    known: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    return max(0, known)


@functools.cache
def works() -> bool:
    """Return True if Landlock alone can confine commands. This needs its file rules and the system
    call filter that blocks sockets.
    """
    filter = seccomp.filter_program(seccomp.NETLINK)
    if version() < _FILES_VERSION or not filter:
        return False
    restrict = confinement({"/": "read", **DEVICES}, network=False, filter=filter, powers=())

    def attempt() -> bool:
        restrict()
        return subprocess.run(["/bin/sh", "-c", ":"], stdin=subprocess.DEVNULL).returncode == 0

    with ThreadPoolExecutor(1) as thread, suppress(OSError):
        return thread.submit(attempt).result()
    return False


def isolate_from_outside() -> None:
    """Block abstract sockets of, and signals to, processes that this thread does not start. Unlike
    file rules, this still allows the mounts that bubblewrap makes.
    """
    if version() >= _SCOPES_VERSION:
        with _ruleset(0, 0) as rules:
            _restrict(rules)


def confinement(
    places: Mapping[str, Access], *, network: bool, filter: bytes, powers: Sequence[int]
) -> Callable[[], None]:
    """Return a function that confines the calling thread.

    It limits access to `places` (absolute real paths; "/" is one of them; inner ones win), applies
    a system call filter, blocks TCP unless `network`, and for root keeps only these `powers`
    (numbers in linux/capability.h). It raises OSError if the kernel refuses.
    """

    def restrict() -> None:
        files = (2 if version() >= _DEVICES_VERSION else 1) * _DEVICE_CALLS - 1
        with _ruleset(files, 0 if network else _TCP) as rules:
            _allow(rules, files, places)
            if os.geteuid() == 0:
                _keep_powers(powers)
            _restrict(rules)
        _filter_calls(filter)

    return restrict


def read_only_restriction(places: Sequence[str]) -> Callable[[], None]:
    """Return a function that restricts the calling thread and its processes to reading these
    absolute real paths and everything below them, without any socket. It raises OSError if the
    kernel refuses.
    """

    def restrict() -> None:
        files = (2 if version() >= _DEVICES_VERSION else 1) * _DEVICE_CALLS - 1
        with _ruleset(files, _TCP) as rules:
            allowed: dict[str, Access] = {"/": "hidden", **dict.fromkeys(places, "read")}
            _allow(rules, files, {**allowed, "/dev/null": "write"})
            _restrict(rules)
        if filter := seccomp.filter_program(frozenset()):
            _filter_calls(filter)

    return restrict


def _filter_calls(filter: bytes) -> None:
    """Apply a system call filter to the calling thread, which has given up new privileges."""
    program = ctypes.create_string_buffer(filter, len(filter))
    header = struct.pack("HP", len(filter) // 8, ctypes.addressof(program))
    _prctl(_PR_SET_SECCOMP, _FILTER_MODE, header)


def _allow(rules: int, files: int, places: Mapping[str, Access]) -> None:
    """Add the rules for the places. Each is opened from the root without following links."""
    rights = {"write": files, "read": _READ, "kept": _READ, "hidden": 0}

    def descend(path: str, entry: int, outer: Access) -> None:
        access = places.get(path or "/", outer)
        below = [place for place in places if place != "/" and place.startswith(f"{path}/")]
        hidden = (
            [place for place in below if places[place] == "hidden"] if access != "hidden" else []
        )
        kept = access == "write" and any(places[place] == "kept" for place in below)
        if not stat.S_ISDIR(os.fstat(entry).st_mode):
            _allow_beneath(rules, entry, rights[access] & _OF_FILES)
        elif hidden or kept:  # allow the folder's common rights, then its entries one by one
            listed = 0 if any(map(os.path.isdir, hidden)) else _READ_FOLDER
            _allow_beneath(rules, entry, listed if hidden else _READ)
            below = [f"{path}/{name}" for name in _names(entry)]
        else:
            _allow_beneath(rules, entry, rights[access])
        for name in {place[len(path) + 1 :].partition("/")[0] for place in below}:
            with suppress(FileNotFoundError), _opened(name, entry) as inner:
                descend(f"{path}/{name}", inner, access)

    with _opened("/", None) as root:
        descend("", root, places["/"])


def _allow_beneath(rules: int, entry: int, rights: int) -> None:
    """Add a rule. Links, sockets and other non-files cannot have one and are skipped."""
    if rights and not stat.S_ISLNK(os.fstat(entry).st_mode):
        with suppress(OSError):
            rule = struct.pack("=Qi", rights, entry)
            _check(_libc().syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0))


def _names(entry: int) -> list[str]:
    try:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=entry)
    except PermissionError:
        return []
    try:
        return os.listdir(folder)  # noqa: PTH208 - a descriptor, not a path
    finally:
        os.close(folder)


@contextmanager
def _opened(name: str, folder: int | None) -> Iterator[int]:
    """Open an entry for use in a rule, without following a link."""
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield entry
    finally:
        os.close(entry)


@contextmanager
def _ruleset(files: int, tcp: int) -> Iterator[int]:
    """Open a ruleset that denies these rights, as far as the kernel supports them, and contact with
    processes outside the ruleset.
    """
    known = version()
    attributes = struct.pack("Q", files)
    if known >= _TCP_VERSION:
        attributes += struct.pack("Q", tcp)
    if known >= _SCOPES_VERSION:
        attributes += struct.pack("Q", _SCOPES)
    size = ctypes.c_size_t(len(attributes))
    rules = _check(_libc().syscall(_CREATE_RULESET, attributes, size, 0))
    try:
        yield rules
    finally:
        os.close(rules)


def _restrict(rules: int) -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc().syscall(_RESTRICT_SELF, rules, 0))


def _keep_powers(kept: Sequence[int]) -> None:
    """Drop all other capabilities from this thread's processes; the kernel gives them to root."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for power in range(last + 1):
        if power not in kept and _prctl(_PR_CAPBSET_READ, power):
            _prctl(_PR_CAPBSET_DROP, power)


def _prctl(what: int, argument: int, pointer: bytes | None = None) -> int:
    zero, number = ctypes.c_ulong(0), ctypes.c_ulong(argument)
    return _check(_libc().prctl(what, number, pointer or zero, zero, zero))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
