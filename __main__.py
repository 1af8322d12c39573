"""`python -m ctxagent` is what the `ctxagent` command starts."""

import os
import sys
from contextlib import suppress


def leave_out_project() -> None:
    """Import nothing from the working directory, nor from an entry of PYTHONPATH that is relative,
    empty or inside it."""
    with suppress(FileNotFoundError):  # a working directory that is gone has nothing to import
        here = os.getcwd()  # noqa: PTH109 - this comes before all imports
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        inside = os.path.join(here, "")  # noqa: PTH118
        out = {here, *(os.path.abspath(entry) for entry in given if not os.path.isabs(entry))}  # noqa: PTH100, PTH117
        out |= {entry for entry in map(os.path.normpath, given) if entry.startswith(inside)}
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) not in out]  # noqa: PTH100


if __name__ == "__main__":
    if not (sys.flags.ignore_environment and sys.flags.safe_path):
        leave_out_project()
    if sys.argv[1:] == ["--version"]:
        from .agent.cli.program_version import version_line

        print(version_line())
    else:
        from .agent.cli.main import main

        with suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123
            name.write("ctxagent")  # for ps, pgrep and tmux
        main(prog_name="ctxagent")
