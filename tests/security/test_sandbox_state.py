"""What a user is told about the sandbox at interactive starts, and the file that remembers it."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ctxagent.agent.events import Notice
from ctxagent.agent.security import bubblewrap
from ctxagent.agent.security.bubblewrap import FILE_NAME, MAX_MACHINES, SandboxState


@dataclass(frozen=True)
class Box:
    """A sandbox in one state."""

    state: SandboxState

    @property
    def absent(self) -> str:
        return "it is gone." if self.state == "none" else ""

    @property
    def partial(self) -> str:
        return "it is weak." if self.state == "partial" else ""

    def describe(self) -> str:
        return self.absent or self.partial or "it holds"


def news(folder: Path, state: SandboxState) -> Notice | None:
    return bubblewrap.sandbox_news(Box(state), folder)  # type: ignore[arg-type]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the ID of this machine."""
    file = tmp_path / "machine-id"
    file.write_text("one\n")
    monkeypatch.setattr(bubblewrap, "_MACHINE_ID", file)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder that does not exist yet."""
    return tmp_path / "above" / "state"


@pytest.mark.parametrize(
    ("state", "level", "said"),
    [
        ("complete", "info", "sandbox: it holds. "),
        ("partial", "warning", "sandbox: it is weak. "),
        ("none", "warning", "sandbox: it is gone. "),
    ],
)
def test_the_first_start_tells_each_state_once(
    folder: Path, state: SandboxState, level: str, said: str
) -> None:
    first = news(folder, state)
    assert first is not None
    assert first.level == level
    assert first.text == f"{said}/status shows this again."
    assert news(folder, state) is None
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


def test_a_worse_state_is_told_and_a_better_one_is_not(folder: Path) -> None:
    states: tuple[SandboxState, ...] = (
        "complete", "partial", "partial", "none", "partial", "none", "complete", "none", "none",
    )  # fmt: skip
    told = [bool(news(folder, state)) for state in states]
    assert told == [True, True, False, True, False, True, False, True, False]


def test_no_sandbox_by_choice_is_not_told(folder: Path) -> None:
    assert bubblewrap.sandbox_news(None, folder) is None
    assert not folder.exists()


def test_each_machine_that_shares_the_folder_is_told(folder: Path, machine: Path) -> None:
    assert news(folder, "complete")
    for id in ("two", "", "missing"):
        machine.write_text(id)
        if id == "missing":  # counts as the empty ID
            machine.unlink()
        assert bool(news(folder, "partial")) == (id != "missing")
    machine.write_text("one")
    assert news(folder, "complete") is None


def test_the_file_keeps_the_newest_machines(folder: Path, machine: Path) -> None:
    for number in range(MAX_MACHINES + 1):
        machine.write_text(f"m{number}")
        assert news(folder, "none")
    kept = json.loads((folder / FILE_NAME).read_text())
    assert [*kept] == [f"m{number}" for number in range(1, MAX_MACHINES + 1)]


@pytest.mark.parametrize(
    "damaged",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"3", b'{"one": 1}', b'{"one": ["none"]}',
        b'{"one": "unheard"}', b'{"one": null}', b"[" * 100_000, b'{"one": "none"' + b" " * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_file_is_replaced(folder: Path, machine: Path, damaged: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(damaged)
    assert news(folder, "none")
    assert json.loads((folder / FILE_NAME).read_text()) == {"one": "none"}
    assert news(folder, "none") is None


def test_what_cannot_be_remembered_is_told_each_time(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("in the way")
    assert news(folder, "partial")
    assert news(folder, "partial")
    folder.unlink()
    (folder / FILE_NAME).mkdir(parents=True)
    assert news(folder, "partial")
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


def test_starts_at_the_same_time_leave_a_whole_file(folder: Path, machine: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = [*pool.map(lambda _: news(folder, "none"), range(32))]
    assert any(told)
    assert json.loads((folder / FILE_NAME).read_text()) == {"one": "none"}
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]
