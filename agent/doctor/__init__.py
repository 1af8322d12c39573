"""The doctor looks at the set-up (`setup`) or at one session (`session`) and says what it found.

`repair` alone changes anything, and keeps what was there.
"""

from .finding import Finding
from .session import check_session, repair
from .setup import check_setup, download_vocabulary

__all__ = ["Finding", "check_session", "check_setup", "download_vocabulary", "repair"]
