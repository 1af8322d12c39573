"""Make Python programs believe that this machine is a Mac. On PYTHONPATH, this module changes the
platform's name and removes functions that only Linux has. psutil still reads Linux processes,
because its Linux part is imported first.
"""

import fcntl
import os
import resource
import sys
import sysconfig
import types

import psutil  # noqa: F401

_LINUX_ALONE = (
    "O_PATH", "O_TMPFILE", "copy_file_range", "eventfd", "getxattr", "listxattr", "memfd_create",
    "pidfd_open", "removexattr", "sched_getaffinity", "setxattr", "splice",
)  # fmt: skip

for _name in _LINUX_ALONE:
    if hasattr(os, _name):
        delattr(os, _name)

if hasattr(os, "process_cpu_count"):
    os.process_cpu_count = os.cpu_count  # it asks for the affinity on Linux

sysconfig.get_config_vars()  # read from a file that has the platform's name
_setrlimit = resource.setrlimit


def _refusing(which: int, limits: tuple[int, int]) -> None:
    if which == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    _setrlimit(which, limits)


resource.setrlimit = _refusing
fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
_proxies = types.ModuleType("_scproxy")
_proxies._get_proxies = _proxies._get_proxy_settings = dict  # type: ignore[attr-defined]
sys.modules["_scproxy"] = _proxies
sys.platform = "darwin"
