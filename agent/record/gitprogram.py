"""Which git GitPython runs: the one that the agent trusts, never the first by name."""

import os
import sys
from collections.abc import Mapping

from ...tools.programs import program

_NAMED = "GIT_PYTHON_GIT_EXECUTABLE"


def git_program(env: Mapping[str, str]) -> str:
    """The path of git, "" where there is none. GitPython, which starts a git as soon as it is
    imported, is imported with this one. Raises ImportError where that does not run."""
    path = program("git", env.get("PATH"))
    if path and "git" not in sys.modules:
        before = os.environ.get(_NAMED)
        os.environ[_NAMED] = path
        try:
            import git  # noqa: F401
        finally:
            if before is None:
                os.environ.pop(_NAMED, None)
            else:
                os.environ[_NAMED] = before
    return path
