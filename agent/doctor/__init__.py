"""Doctor: looks at the set-up, or at one session, and says what it found. `repair` alone changes
anything, and keeps what was there.

    finding     what is said
    setup       what the program needs and can use
    lines       the lines of a log as they lie on disk, and what is left of broken ones
    rows        the lines of the log that a repair would write, and what it would do for them
    references  what entries say of each other and of files
    place       what lies around a log: lock, modes, caches, room on the disk
    session     all of it, for one session; and the repair
"""

from .finding import Finding
from .session import check_session, repair
from .setup import check_setup, fetch

__all__ = ["Finding", "check_session", "check_setup", "fetch", "repair"]
