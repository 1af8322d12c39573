"""The system call filter, evaluated as the kernel does, for each architecture."""

import errno
import os
import struct

import pytest

from ctxagent.agent.security import seccomp
from ctxagent.agent.security.seccomp import EVERY_FAMILY, INTERNET, NETLINK, filter_program

ALLOWED = 0
AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
I386 = 0x4000_0003
NEW_USER = 0x1000_0000
UNIX, INET, NETLINK_FAMILY, VSOCK = 1, 2, 16, 40


def verdict(program: bytes, number: int, *arguments: int, arch: int) -> int:
    """Return the error of a call, 0 if it is allowed."""
    steps = list(struct.iter_unpack("=HBBI", program))
    data = struct.pack("=iIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x06:
            assert operand == 0x7FFF_0000 or operand & 0xFFFF_0000 == 0x0005_0000
            return ALLOWED if operand == 0x7FFF_0000 else operand & 0xFFFF
        else:
            true = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[code]
            at += if_true if true else if_false


def judge(machine: str, name: str, *arguments: int, families: frozenset[int] = EVERY_FAMILY) -> int:
    number = seccomp._MACHINES[machine].calls[name]
    return verdict(filter_program(families, machine), number, *arguments, arch=AUDIT[machine])


@pytest.mark.parametrize("machine", AUDIT)
def test_what_is_refused_and_what_goes_on(machine: str) -> None:
    for name in ("keyctl", "ptrace", "io_uring_setup", "bpf", "setns", "mount", "kexec_load"):
        assert judge(machine, name) == errno.EPERM, name
    assert judge(machine, "clone3") == judge(machine, "openat2") == errno.ENOSYS
    for name in ("clone", "unshare"):
        assert judge(machine, name, NEW_USER | 17) == errno.EPERM
        assert judge(machine, name, 0x0200_0000 | 17) == ALLOWED
    assert judge(machine, "fchmod", 3, 0o4755) == errno.EPERM
    assert judge(machine, "fchmodat", 3, 0, 0o2755) == errno.EPERM
    assert judge(machine, "fchmodat2", 3, 0, 0o4000) == errno.EPERM
    assert judge(machine, "mknodat", 3, 0, 0o104755) == errno.EPERM
    assert judge(machine, "fchmod", 3, 0o1777) == ALLOWED
    assert judge(machine, "openat", 3, 0, os.O_CREAT, 0o4755) == errno.EPERM
    assert judge(machine, "openat", 3, 0, 0o20000000, 0o4755) == errno.EPERM
    assert judge(machine, "openat", 3, 0, os.O_RDONLY, 0o4755) == ALLOWED  # the mode is not read
    assert judge(machine, "openat", 3, 0, os.O_CREAT, 0o644) == ALLOWED
    assert judge(machine, "ioctl", 0, 0x5412) == errno.EPERM
    assert judge(machine, "ioctl", 0, 0x1_0000_5412) == errno.EPERM  # the kernel reads 32 bits
    assert judge(machine, "ioctl", 0, 0x5401) == ALLOWED


@pytest.mark.parametrize("machine", AUDIT)
def test_the_families_of_sockets(machine: str) -> None:
    for families, made in (
        (EVERY_FAMILY, {UNIX, INET, NETLINK_FAMILY}),
        (INTERNET, {INET, NETLINK_FAMILY}),
        (NETLINK, {NETLINK_FAMILY}),
    ):
        for family in (UNIX, INET, NETLINK_FAMILY, VSOCK, 17, 38):
            told = judge(machine, "socket", family, families=families)
            assert told == (ALLOWED if family in made else errno.EAFNOSUPPORT), family


def test_calls_of_another_architecture() -> None:
    for machine, arch in AUDIT.items():
        program = filter_program(EVERY_FAMILY, machine)
        for other in {I386, *AUDIT.values()} - {arch}:
            assert verdict(program, 20, arch=other) == errno.EPERM
        assert verdict(program, 172, arch=arch) == ALLOWED
    x32 = filter_program(EVERY_FAMILY, "x86_64")
    assert verdict(x32, 0x4000_0000 | 101, arch=AUDIT["x86_64"]) == errno.EPERM
    assert filter_program(EVERY_FAMILY, "pdp11") == b""
