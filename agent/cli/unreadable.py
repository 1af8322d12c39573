"""The memory and the environment of this process, closed to others of the same user: commands run
as that user, and what the key is must not be read out of /proc. The root may still do so."""

import sys

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Ask the kernel for it, where there is one that can. Core dumps and debuggers go with it."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
