"""The gate for programs that tests start as settings name them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ctxagent.agent.config.start_gate import ClearedStart, Enclose, ProgramStart, StartGate
from ctxagent.agent.config.trust import PinnedFiles


def start_gate(state: Path, *roots: Path) -> StartGate:
    """Return a gate that pins the files in `roots`."""
    return StartGate(PinnedFiles(state), [str(root) for root in roots])


def cleared(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], enclose: Enclose | None = None
) -> ClearedStart:
    """Return a program that may start, without a check of its files."""
    start = ProgramStart("the program", tuple(command), cwd, env)
    if enclose:
        return start_gate(cwd).confined(start, enclose)
    return ClearedStart(start.command, start.cwd, start.env)
