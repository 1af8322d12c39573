"""The model always has the current text of the instruction files, after any sequence of changes."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.view import View
from ctxagent.agent.features import instructions
from ctxagent.agent.features.instruction_places import InstructionFile, InstructionReader
from ctxagent.agent.session.entries import User

from ..support.instruction_files import places

WINDOW = 200_000

PLACES = ("config/AGENTS.md", "top/AGENTS.md", "top/in/AGENTS.md", "top/in/CLAUDE.md")
TEXTS = (None, "", "  \n", "one", "two")  # None: there is no such file
steps = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(TEXTS)), max_size=4)


class Conversation:
    """A conversation that got the instruction files below `root`."""

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

    def reader(self) -> InstructionReader:
        where = places(self.root / "top" / "in", self.root / "config", self.root)
        return instructions.reader_for_all_work(where, self.view, lambda path: False)

    def found(self) -> list[InstructionFile]:
        return [file for file in self.reader().files if file.path.is_relative_to(self.root)]

    def first(self) -> list[User]:
        return self.hear(instructions.first_entries(self.found(), self.view, (), WINDOW))

    def change(
        self, redact: instructions.RedactEntry = lambda entry: entry, places: Sequence[str] = PLACES
    ) -> list[User]:
        told = instructions.new_entries(self.found(), self.view, redact, WINDOW)
        paths = [self.root / name for name in places]
        told += instructions.gone_entries(self.reader(), paths, self.view, redact)
        return self.hear([entry for entry, _ in told])

    def write(self, name: str, text: str | None) -> None:
        path = self.root / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)

    def texts_in_context(self) -> dict[str, str]:
        """Return the text of each file according to the newest entry about it."""
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
        told = Conversation(Path(folder))
        for number, changes in enumerate(rounds):
            for name, text in changes:
                told.write(name, text)
            if number == 0:
                told.first()
            else:
                told.change()
            assert told.change() == []
            files = told.found()
            known, texts = told.texts_in_context(), {file.text for file in files if file.text}
            assert set(known.values()) == texts
            for file in files:
                name = str(file.path.relative_to(told.root))
                assert known.get(name, file.text) == file.text


def test_a_text_that_a_summary_cut_is_still_known(tmp_path: Path) -> None:
    told = Conversation(tmp_path)
    told.write(PLACES[1], "one " * 100)
    (whole,) = instructions.first_entries(told.found(), told.view, (), WINDOW)
    told.hear([User(content="Instructions …", source=whole.source, details=whole.details)])
    assert told.change() == []


def test_a_path_that_is_redacted_is_known(tmp_path: Path) -> None:
    told = Conversation(tmp_path)
    told.write(PLACES[1], "one")

    def redact(entry: User) -> User:
        known = entry.details["instructions"]
        details = {"instructions": {**known, "path": f"[redacted]/{Path(known['path']).name}"}}
        return User(content="[redacted]", source=entry.source, details=details)

    assert len(told.change(redact, PLACES[1:2])) == 1
    assert told.change(redact, PLACES[1:2]) == []
    told.write(PLACES[1], None)
    assert len(told.change(redact, PLACES[1:2])) == 1


def test_files_of_another_folder_are_not_taken_for_deleted(tmp_path: Path) -> None:
    told = Conversation(tmp_path)
    told.write(PLACES[1], "one")
    told.first()
    elsewhere = InstructionReader(places(tmp_path / "other", tmp_path / "config", tmp_path))
    assert instructions.gone_entries(elsewhere, [], told.view, lambda entry: entry) == []
    told.write(PLACES[1], None)
    assert instructions.gone_entries(elsewhere, [], told.view, lambda entry: entry) == []
    (gone,) = told.change()
    assert "was deleted or is empty now" in str(gone.content)


def test_texts_that_were_replaced_count_for_the_budget(tmp_path: Path) -> None:
    told = Conversation(tmp_path)
    for number in range(10):
        told.write(PLACES[1], f"{number} " * 7_000)
        told.change()
    given = sum(item.size for item in told.view.items)
    assert given <= instructions.BUDGET_SHARE * WINDOW + 10 * instructions.MIN_PART_TOKENS
    assert "left out: over the budget" in str(told.view.items[-1].blocks)
