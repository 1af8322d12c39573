"""Close the memory and the environment of this process to others of the same user.

Commands run as that user, and must not read the key out of /proc. The root may still do so.
"""

import sys

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Ask the kernel to close it, where it can; core dumps and debuggers are lost with it."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
