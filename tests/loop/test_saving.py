"""Files are saved before calls change them, once between two rewind points."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from ctxagent.agent.loop.file_changes import FileSaver
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.session.entries import Note
from ctxagent.agent.session.since_point import COMMAND, EDIT
from ctxagent.agent.worktree import SavedFile, SavedFiles


class Saver:
    """A file saver at point 1 of a session."""

    def __init__(self, session: LiveSession, folder: Path) -> None:
        self.session, self.point = session, 1
        self.saver = FileSaver(SavedFiles(folder), session.record, lambda: self.point)

    def save(
        self, paths: Iterable[str], by: str = EDIT, left_out: Iterable[SavedFile] = ()
    ) -> Sequence[SavedFile]:
        return asyncio.run(self.saver.save(paths, by, left_out))

    def recorded(self) -> list[tuple[str, list[str]]]:
        """The reasons and names of saved files, by note."""
        return [
            (note.data["by"], [Path(row["path"]).name for row in note.data["files"]])
            for note in self.session.log.entries()
            if isinstance(note, Note) and note.topic == "saved"
        ]


def test_a_file_is_saved_once_between_two_points(session: LiveSession, tmp_path: Path) -> None:
    saver, file = Saver(session, tmp_path / "saved"), tmp_path / "a.txt"
    file.write_text("one")
    (saved,) = saver.save([str(file), str(file), ""])
    assert (tmp_path / "saved" / saved.blob).read_text() == "one"
    file.write_text("two")
    assert saver.save([str(file)]) == []
    saver.point = 2
    (again,) = saver.save([str(file)])
    assert (tmp_path / "saved" / again.blob).read_text() == "two"
    assert saver.save([str(file)]) == []
    assert saver.recorded() == [("edit", ["a.txt"])] * 2


def test_an_edit_and_a_command_save_for_themselves(session: LiveSession, tmp_path: Path) -> None:
    saver, file = Saver(session, tmp_path / "saved"), tmp_path / "a.txt"
    file.write_text("one")
    saver.save([str(file)], COMMAND)
    saver.save([str(file)], EDIT)
    assert saver.recorded() == [("command", ["a.txt"]), ("edit", ["a.txt"])]


def test_files_that_are_left_out_are_recorded_with_the_reason(
    session: LiveSession, tmp_path: Path
) -> None:
    saver = Saver(session, tmp_path / "saved")
    left_out = SavedFile(str(tmp_path / "huge"), why="it is too large")
    assert saver.save([], COMMAND, [left_out]) == [left_out]
    assert saver.recorded() == [("command", ["huge"])]
    assert saver.save([]) == []
    assert len(saver.recorded()) == 1
