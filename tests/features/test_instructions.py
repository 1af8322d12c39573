"""What the model is told of instruction files is what they say, after any sequence of changes."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.view import View
from ctxagent.agent.features import instructions
from ctxagent.agent.session.entries import User

PLACES = ("config/AGENTS.md", "top/AGENTS.md", "top/in/AGENTS.md", "top/in/CLAUDE.md")
TEXTS = (None, "", "  \n", "one", "two")  # None: there is no such file
steps = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(TEXTS)), max_size=4)


class Told:
    """A conversation that was told of the instruction files below `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.view, self.seq = root, View(), 0
        for name in ("config", "top/in"):
            (root / name).mkdir(parents=True)

    def hear(self, entries: Sequence[User]) -> list[User]:
        for entry in entries:
            self.seq += 1
            self.view.add(
                User(seq=self.seq, at="", content=entry.content, source=entry.source,
                     details=entry.details)
            )  # fmt: skip
        return [*entries]

    def found(self) -> list[instructions.InstructionFile]:
        folder = self.root / "top" / "in"
        found = instructions.instruction_files(folder, self.root / "config", self.root)
        return [file for file in found if file.path.is_relative_to(self.root)]

    def first(self) -> list[User]:
        entries = instructions.instruction_entries(self.found())
        return self.hear([entry for entry in entries if isinstance(entry, User)])

    def change(self) -> list[User]:
        folders = [self.root / name for name in ("config", "top", "top/in")]
        told = instructions.changed_entries(folders, self.found(), self.view, lambda entry: entry)
        return self.hear([entry for entry, _ in told])

    def write(self, name: str, text: str | None) -> None:
        path = self.root / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)

    def standing(self) -> dict[str, str]:
        """What a reader knows of each file by the newest entry that names it."""
        known = dict[str, str]()
        for item in self.view.items:
            text = item.blocks[0]["text"]
            name = next(name for name in PLACES if text.find(str(self.root / name)) in (0, 18))
            same = next((n for n in PLACES if text.count(f"the same as {self.root / n}.")), "")
            known[name] = known[same] if same else text.rpartition("\n\n")[2]
            if "no longer apply" in text and not same:
                del known[name]
        return known


@pytest.mark.slow
@given(st.lists(steps, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_the_newest_text_of_each_file_is_known_and_nothing_is_told_twice(
    rounds: list[list[tuple[str, str | None]]],
) -> None:
    with TemporaryDirectory() as folder:
        told = Told(Path(folder))
        for number, changes in enumerate(rounds):
            for name, text in changes:
                told.write(name, text)
            if number == 0:
                told.first()
            else:
                told.change()
            assert told.change() == []
            files = told.found()
            known, texts = told.standing(), {file.text for file in files if file.text}
            assert set(known.values()) == texts
            for file in files:
                name = str(file.path.relative_to(told.root))
                assert known.get(name, file.text) == file.text


def test_a_text_that_a_summary_cut_is_still_known(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.write(PLACES[1], "one " * 100)
    (whole,) = instructions.instruction_entries(told.found())
    assert isinstance(whole, User)
    told.hear([User(content="Instructions …", source=whole.source, details=whole.details)])
    assert told.change() == []


def test_a_path_that_is_redacted_is_known(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.write(PLACES[1], "one")

    def redact(entry: User) -> User:
        known = entry.details["instructions"]
        details = {"instructions": {**known, "path": f"[redacted]/{Path(known['path']).name}"}}
        return User(content="[redacted]", source=entry.source, details=details)

    folders = [tmp_path / "top"]
    (changed,) = instructions.changed_entries(folders, told.found(), told.view, redact)
    told.hear([changed[0]])
    assert instructions.changed_entries(folders, told.found(), told.view, redact) == []


def test_files_of_another_folder_are_not_taken_for_deleted(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.write(PLACES[1], "one")
    told.first()
    assert instructions.changed_entries([], [], told.view, lambda entry: entry) == []
    told.write(PLACES[1], None)
    (gone,) = told.change()
    assert "was deleted or is empty now" in str(gone.content)
