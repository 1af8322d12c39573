"""The system call filter of sandboxed commands.

The filter is a classic BPF program (seccomp(2), linux/filter.h). It checks the number and the first
arguments of each call and either allows it or returns an error. It refuses calls that can break out
of a sandbox: kernel keys, memory and control of other processes, io_uring (invisible to filters),
user namespaces, mounts, setuid files and terminal input injection. Sockets are limited to the given
families.

Call numbers are known for x86-64 and arm64; other machines get no filter.
"""

import errno
import functools
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator

from ..lazy import dataclass

# Socket families. NETLINK asks the kernel for addresses; INTERNET is for a private loopback.
# Unix sockets lead to programs outside, so only commands with the network get them.
NETLINK = frozenset({int(getattr(socket, "AF_NETLINK", 16))})
INTERNET = NETLINK | {int(socket.AF_INET), 10}  # 10 is AF_INET6 on Linux
EVERY_FAMILY = INTERNET | {int(socket.AF_UNIX)}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets into struct seccomp_data, in bytes
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
_NEW_USER_NAMESPACE = 0x1000_0000
_MAKES_A_FILE = os.O_CREAT | 0o20000000  # and the bit of O_TMPFILE without O_DIRECTORY
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FIRST_X32 = 0x4000_0000

# The same numbers on both architectures.
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452,
    "open_tree_attr": 467,
}  # fmt: skip
_X86_64 = {
    **_COMMON,
    "open": 2, "ioctl": 16, "socket": 41, "clone": 56, "creat": 85, "chmod": 90, "fchmod": 91,
    "ptrace": 101, "syslog": 103, "mknod": 133, "pivot_root": 155, "mount": 165, "umount2": 166,
    "init_module": 175, "delete_module": 176, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "openat": 257, "mknodat": 259, "fchmodat": 268,
    "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_ARM64 = {
    **_COMMON,
    "ioctl": 29, "mknodat": 33, "umount2": 39, "mount": 40, "pivot_root": 41, "fchmod": 52,
    "fchmodat": 53, "openat": 56, "unshare": 97, "kexec_load": 104, "init_module": 105,
    "delete_module": 106, "syslog": 116, "ptrace": 117, "socket": 198, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "perf_event_open": 241,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
    "kcmp": 272, "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip
_REFUSED = (
    "add_key", "keyctl", "request_key", "ptrace", "process_vm_readv", "process_vm_writev", "kcmp",
    "pidfd_getfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf",
    "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "syslog", "open_by_handle_at", "setns", "mount", "umount2",
    "pivot_root", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "mount_setattr",
)  # fmt: skip
# These pass flags or modes in memory, which a filter cannot read. On ENOSYS programs fall back to
# an older call.
_UNKNOWN = ("clone3", "openat2")


@dataclass(frozen=True, slots=True)
class _Machine:
    """An architecture with its number in linux/audit.h and its call numbers by name."""

    audit: int
    calls: dict[str, int]


_MACHINES = {"x86_64": _Machine(0xC000_003E, _X86_64), "aarch64": _Machine(0xC000_00B7, _ARM64)}


@functools.cache
def filter_program(families: frozenset[int], machine: str = "") -> bytes:
    """Return the filter as an array of struct sock_filter, 8 bytes each. It allows sockets only of
    these `families`. The default machine is this one. Return b"" for 32-bit Python or an unknown
    machine.
    """
    own = os.uname().machine if sys.maxsize > 1 << 32 else ""
    known = _MACHINES.get(machine or own)
    if known is None:
        return b""
    return b"".join(_instructions(known, families))


def readable_filter(families: frozenset[int]) -> tuple[int, ...]:
    """Return the descriptor of a pipe with the filter, which can be read once; () if there is no
    filter. The filter fits into the pipe's buffer.
    """
    program = filter_program(families)
    if not program:
        return ()
    reader, writer = os.pipe()
    os.write(writer, program)
    os.close(writer)
    return (reader,)


def _instructions(machine: _Machine, families: frozenset[int]) -> Iterator[bytes]:
    """Yield the instructions. Each call is decided within its own block, so that no jump leaves a
    block.
    """
    yield _step(_LOAD, _ARCHITECTURE)
    yield from _unless(_EQUAL, machine.audit, [_error(errno.EPERM)])
    yield _step(_LOAD, _NUMBER)
    if machine.calls is _X86_64:
        yield from _when(_AT_LEAST, _FIRST_X32, [_error(errno.EPERM)])
    blocks = {name: [_error(errno.EPERM)] for name in _REFUSED}
    blocks |= {name: [_error(errno.ENOSYS)] for name in _UNKNOWN}
    blocks |= {name: _flagged(0, _NEW_USER_NAMESPACE) for name in ("clone", "unshare")}
    blocks |= {name: _flagged(1, _SET_ID_BITS) for name in ("chmod", "fchmod", "creat", "mknod")}
    blocks |= {name: _flagged(2, _SET_ID_BITS) for name in ("fchmodat", "fchmodat2", "mknodat")}
    blocks |= {"open": _opened(flags=1), "openat": _opened(flags=2)}
    blocks |= {"ioctl": _one_of(1, _TERMINAL_INPUT, [_error(errno.EPERM)], [_allow()])}
    blocks |= {"socket": _one_of(0, families, [_allow()], [_error(errno.EAFNOSUPPORT)])}
    for name, block in blocks.items():
        if name in machine.calls:
            yield from _when(_EQUAL, machine.calls[name], block)
    yield _allow()


def _flagged(argument: int, bits: int) -> list[bytes]:
    """Return the block that refuses a call with any of these bits in an argument."""
    refused = _when(_ANY_BIT, bits, [_error(errno.EPERM)])
    return [_argument(argument), *refused, _allow()]


def _opened(flags: int) -> list[bytes]:
    """Return the block for opening a file. The mode follows the flags and counts only if a file is
    created.
    """
    made = _flagged(flags + 1, _SET_ID_BITS)
    return [_argument(flags), *_when(_ANY_BIT, _MAKES_A_FILE, made), _allow()]


def _one_of(
    argument: int, values: Iterable[int], then: list[bytes], other: list[bytes]
) -> list[bytes]:
    """Return a block that runs `then` if an argument has one of these values, else `other`."""
    tests = (step for value in sorted(values) for step in _when(_EQUAL, value, then))
    return [_argument(argument), *tests, *other]


def _when(test: int, operand: int, block: list[bytes]) -> list[bytes]:
    return [_step(test, operand, 0, len(block)), *block]


def _unless(test: int, operand: int, block: list[bytes]) -> list[bytes]:
    return [_step(test, operand, len(block), 0), *block]


def _argument(number: int) -> bytes:
    """Return the step that loads the lower 32 bits of an argument, which suffice for the arguments
    used.
    """
    return _step(_LOAD, 16 + 8 * number)


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _error(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
