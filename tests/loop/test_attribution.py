"""Which session made a change, by the text of the command and the records of other sessions."""

import time
from pathlib import Path

from ctxagent.agent.loop.file_changes import sort_changes
from ctxagent.agent.worktree import Touches, TreeChange
from ctxagent.agent.worktree.touch_record import OtherCall

NAMES = ("mine", "theirs", "both", "neither", "folder/in")


def sorted_names(folder: Path, *calls: OtherCall) -> dict[str, list[str]]:
    """The sorted changes of all files after a command that writes to mine, both and folder."""
    (folder / "folder").mkdir(exist_ok=True)
    for name in NAMES:
        (folder / name).write_text("x")
    changes = [TreeChange(str(folder / name), "modified", blob="1" * 40) for name in NAMES]
    writes = frozenset(str(folder / name) for name in ("mine", "both", "folder"))
    found = sort_changes(changes, writes, Touches(calls))
    kinds = {"own": found.own, "uncertain": found.uncertain, "shared": found.shared}
    return {
        kind: [str(Path(change.path).relative_to(folder)) for change in rows]
        for kind, rows in kinds.items()
    }


def test_only_named_changes_are_certain(tmp_path: Path) -> None:
    assert sorted_names(tmp_path) == {
        "own": ["mine", "both", "folder/in"], "uncertain": ["theirs", "neither"], "shared": [],
    }  # fmt: skip


def test_at_the_same_time_as_another_command(tmp_path: Path) -> None:
    writes = frozenset(str(tmp_path / name) for name in ("theirs", "both"))
    call = OtherCall("b", time.time_ns(), writes=writes)
    assert sorted_names(tmp_path, call) == {
        "own": ["mine"], "uncertain": [], "shared": ["both", "neither", "folder/in"],
    }  # fmt: skip


def test_changes_recorded_by_another_session_are_left_out(tmp_path: Path) -> None:
    changed = {str(tmp_path / "mine"): "1" * 40, str(tmp_path / "neither"): "2" * 40}
    call = OtherCall("b", 0, 1, changed=changed)
    assert sorted_names(tmp_path, call) == {
        "own": ["both", "folder/in"], "uncertain": ["theirs", "neither"], "shared": [],
    }  # fmt: skip
