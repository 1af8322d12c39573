"""The output of `ctxagent --version`. This module imports little, not even the command line."""

import sys
from pathlib import Path

from ..version import __version__
from .commit import find_commit

SHORT_HASH_CHARS = 7


def version_line() -> str:
    """Return the version of the program, for bug reports."""
    commit = find_commit(Path(__file__).parents[2])
    made_of = f"commit {commit[:SHORT_HASH_CHARS]}, " if commit else ""
    return f"ctxagent {__version__} ({made_of}Python {sys.version.split()[0]})"
