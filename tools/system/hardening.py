"""Hide the memory and the environment of this process from other processes of the same user.

Commands run as that user, and must not read the API key from /proc. Root still can.
"""

import sys

_PR_SET_DUMPABLE = 4


def close_memory() -> None:
    """Make this process non-dumpable on Linux. This also disables core dumps and debuggers."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
