"""The doctor checks the set-up (`setup`) or one session (`session`) and reports its findings.

Only `repair` changes anything, and it keeps a copy of the original.
"""

from .session import check_session, repair
from .setup import Finding, check_setup, download_vocabulary

__all__ = ["Finding", "check_session", "check_setup", "download_vocabulary", "repair"]
