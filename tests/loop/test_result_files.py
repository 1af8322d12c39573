"""Session files for results: large texts, images, outputs that are already in a file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.events import Notice
from ctxagent.agent.loop.tool_calls import ResultFiles
from ctxagent.tools.base import Context, FiledOutput, Output
from ctxagent.tools.bash import BashTool
from ctxagent.tools.system.capture import OutputFile

from ..support.disk import small_disk
from ..support.sessions.history import words

POLICY = replace(DEFAULT, move_above=500)
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "session").mkdir()
    return tmp_path / "session"


class Told:
    """The result files of a session, and the warnings about them."""

    def __init__(self, folder: Path | None, policy: Policy = POLICY) -> None:
        self.events: list[Any] = []
        context = Context(cwd=Path("/"), session_dir=folder, env={})
        tool = BashTool()
        self.files = ResultFiles({"Bash": tool}, context, policy, lambda: 7, self.events.append)

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def filed(folder: Path, text: bytes, *, is_needed: bool, limit: int = 1 << 20) -> FiledOutput:
    (folder / "offloaded").mkdir()
    file = OutputFile(folder / "offloaded" / "running.partial.md", limit)
    file.feed(text)
    file.close()
    return FiledOutput(file, text.count(b"\n"), len(text), is_needed)


def test_a_small_text_stays(folder: Path) -> None:
    details: dict[str, Any] = {}
    assert Told(folder).files.store("Bash", Output("small"), details) == ("small", None)
    assert details == {}
    assert not (folder / "offloaded").exists()


def test_a_large_text_goes_to_a_file(folder: Path) -> None:
    details: dict[str, Any] = {}
    whole = words(2_000)
    text, path = Told(folder).files.store("Bash", Output(whole), details)
    assert path is not None
    assert path.startswith("offloaded/")
    assert path.endswith("_Bash_7.md")
    assert (folder / path).read_text() == whole
    assert f"**File:** {folder / path}" in text
    assert details["gate"] == "HOOK-CTX-001"
    assert details["tokens_saved"] > 1_000


def test_without_a_session_folder_the_text_stays() -> None:
    told = Told(None)
    whole = words(2_000)
    assert told.files.store("Bash", Output(whole), {}) == (whole, None)
    assert told.files.store("Bash", Output("part", whole="all"), {}) == ("part", None)
    assert told.files.save_original(Output("", original=PNG)) == {}
    assert told.files.opener("Bash", "t") is None


def test_the_whole_text_of_a_partial_output_is_saved(folder: Path) -> None:
    text, path = Told(folder).files.store("Bash", Output("part", whole="all of it"), {})
    assert path is not None
    assert (folder / path).read_text() == "all of it"
    assert text == f"part\n[All of it: Read or Grep {folder / path}, or Recall #7]"


def test_an_output_that_has_its_file_already(folder: Path) -> None:
    output = Output("short", filed=filed(folder, b"short\n", is_needed=False))
    assert Told(folder).files.store("Bash", output, {}) == ("short", None)
    assert list((folder / "offloaded").iterdir()) == []


def test_a_file_that_is_needed_gets_its_lasting_name(folder: Path) -> None:
    output = Output("the end", filed=filed(folder, b"much\nthe end\n", is_needed=True))
    text, path = Told(folder).files.store("Bash", output, {})
    assert path is not None
    assert path.endswith("_Bash_7.md")
    assert (folder / path).read_bytes().startswith(b"much")
    assert text == f"the end\n[All of it: Read or Grep {folder / path}, or Recall #7]"
    assert [file.name for file in (folder / "offloaded").iterdir()] == [Path(path).name]


def test_a_large_output_that_has_its_file_is_referred_to(folder: Path) -> None:
    details: dict[str, Any] = {}
    whole = words(2_000)
    output = Output(whole, filed=filed(folder, whole.encode(), is_needed=False))
    text, path = Told(folder).files.store("Bash", output, details)
    assert path is not None
    assert f"**File:** {folder / path}" in text
    assert details["gate"] == "HOOK-CTX-001"
    assert details["tokens_saved"] > 1_000
    assert (folder / path).exists()


def test_a_cut_output_is_reported(folder: Path) -> None:
    told = Told(folder, replace(DEFAULT, move_above=None))
    output = Output("x", filed=filed(folder, b"x" * 900_000, is_needed=True, limit=300_000))
    details = {"printed_bytes": 900_000, "kept_bytes": 300_000, "cut_by": "the limit"}
    text, _ = told.files.store("Bash", output, details)
    assert "[What is kept of it: Read or Grep " in text
    (warning,) = told.warnings
    assert warning == (
        "the output of Bash is cut: it printed 900,000 bytes, 300,000 of them are kept: the limit"
    )


def test_a_file_that_cannot_be_renamed_stays_where_it_is(folder: Path) -> None:
    output = Output("x", filed=filed(folder, b"x\n", is_needed=True))
    (folder / "offloaded" / "running.partial.md").unlink()
    told = Told(folder)
    _, path = told.files.store("Bash", output, {})
    assert path == "offloaded/running.partial.md"
    assert "cannot be renamed" in told.warnings[0]


def test_a_text_that_cannot_be_kept_stays_in_the_context(tmp_path: Path) -> None:
    whole = words(20_000)
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        told, details = Told(disk.path), dict[str, Any]()
        assert told.files.store("Bash", Output(whole), details) == (whole, None)
        assert details["gate"] == "HOOK-CTX-001"
        assert details["not_offloaded"] == "No space left on device"
        assert "stays in the context: it cannot be saved in" in told.warnings[0]
        text, path = told.files.store("Bash", Output("part", whole=whole), {})
        assert (text, path) == ("part\n[The rest cannot be kept: No space left on device]", None)
        assert told.files.save_original(Output("", original=PNG * 1_000)) == {}
        assert "only the log has the original image" in told.warnings[-1]


def test_an_image_is_kept_as_it_was(folder: Path) -> None:
    kept = Told(folder).files.save_original(Output("", original=PNG))["image"]
    assert (folder / kept["path"]).read_bytes() == PNG
    assert kept["bytes"] == len(PNG)
    assert len(kept["sha256"]) == 64
    assert Told(folder).files.save_original(Output("")) == {}


def test_the_file_of_a_running_call(folder: Path) -> None:
    opener = Told(folder).files.opener("Bash", "t")
    assert opener is not None
    file = opener()
    assert file.path.parent == folder / "offloaded"
    assert "_Bash_" in file.path.name
    file.close()
