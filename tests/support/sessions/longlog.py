"""A long log: a real history repeated, each time as if the session had continued.

base = history(folder)         # entries of a session with masks and summaries, in about 3 s
lengthen(base, log, 50 << 20)  # 50 MB of them
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Mask,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
)
from ctxagent.agent.session.log import Entries, encode_line
from ctxagent.tools.system.files import make_private_folder

from .recording import made, play


def history(folder: Path, window: int = 32_000) -> list[Entry]:
    """Return the log entries of a session of 120 calls with at least two summaries. No result is in
    a separate file.
    """
    policy = replace(DEFAULT, move_above=None)
    return [*Entries(play(made(), folder, window=window, policy=policy, summary_every=40).log)]


def lengthen(base: Sequence[Entry], log: Path, size: int) -> int:
    """Write a log of at least `size` bytes, in whole rounds of `base`; return the number of
    entries.
    """
    make_private_folder(log.parent)
    written = count = 0
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while written < size:
            for entry in again(base, count):
                line = encode_line(entry)
                written += len(line)
                file.write(line)
            count += len(base)
    return count


def again(base: Sequence[Entry], after: int) -> Iterator[Entry]:
    """Yield the entries with numbers and IDs as if `after` other entries came before."""
    most = max((e.number for e in base if isinstance(e, Checkpoint)), default=0)
    turns = after // len(base) * most
    for entry in base:
        if isinstance(entry, Session) and after:
            entry = replace(entry, system=None, tools=None)
        elif isinstance(entry, Assistant):
            entry = replace(entry, content=[_later(block, after) for block in entry.content])
        elif isinstance(entry, ToolResult):
            entry = replace(entry, tool_use_id=f"{entry.tool_use_id}+{after}")
        elif isinstance(entry, Mask):
            entry = replace(entry, targets=[_moved(target, after) for target in entry.targets])
        elif isinstance(entry, Summary):
            entry = replace(
                entry,
                covers=[seq + after for seq in entry.covers],
                keep=[seq + after for seq in entry.keep],
                keep_from=entry.keep_from + after,
            )
        elif isinstance(entry, Revert):
            entry = replace(entry, target=entry.target + after)
        elif isinstance(entry, Checkpoint):
            entry = replace(entry, number=entry.number + turns)
        elif isinstance(entry, SubagentRun):
            entry = replace(entry, id=f"{entry.id}+{after}")
        yield replace(entry, seq=entry.seq + after)


def _later(block: dict[str, Any], after: int) -> dict[str, Any]:
    return {**block, "id": f"{block['id']}+{after}"} if "id" in block else block


def _moved(target: dict[str, Any], after: int) -> dict[str, Any]:
    return {
        **target,
        "seq": target["seq"] + after,
        "tool_use_id": f"{target['tool_use_id']}+{after}",
    }
