"""Facts in files: valid facts, and concurrent changes without data loss."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.agent.errors import CtxagentError, UsageError
from ctxagent.agent.extensions import memory
from ctxagent.agent.extensions.memory import MemoryFolder, index_lines


@pytest.fixture
def folder(tmp_path: Path) -> MemoryFolder:
    return MemoryFolder(tmp_path / "state" / "memory", trust_dir=tmp_path)


def keep(folder: MemoryFolder, name: str, text: str, about: str = "") -> None:
    folder.write(folder.add(name, about, text, {"by": "user"}))


def test_a_fact_is_a_markdown_file_with_a_head(folder: MemoryFolder) -> None:
    assert not folder.is_used
    keep(folder, "build", "Run `make up` first.\nThen `make`.", 'How: "to" build')
    assert folder.is_used
    text = (folder.folder / "build.md").read_text()
    assert text.startswith('---\nabout: "How: \\"to\\" build"\nsaved: "20')
    assert text.endswith('\nby: "user"\n---\n\nRun `make up` first.\nThen `make`.\n')
    (fact,), problems = folder.facts()
    assert (fact.name, fact.about, problems) == ("build", 'How: "to" build', [])
    assert index_lines([fact]) == ['- build: How: "to" build']
    assert (folder.folder / "build.md").stat().st_mode & 0o777 == 0o600


def test_a_file_that_the_user_writes_needs_no_head(folder: MemoryFolder) -> None:
    folder.folder.mkdir(parents=True)
    (folder.folder / "Notes_2.md").write_text("First\u202eline.\x9b\nSecond.\n")
    (fact,), _ = folder.facts()
    assert (fact.name, fact.about) == ("Notes_2", "First\\u202eline.�")


def test_the_fact_that_changed_last_is_first(folder: MemoryFolder) -> None:
    for name in ("a", "b", "c"):
        keep(folder, name, name)
    os.utime(folder.folder / "b.md", (2e9, 2e9))
    assert folder.facts()[0][0].name == "b"


def test_invalid_facts_are_skipped(folder: MemoryFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, "good", "text")
    (folder.folder / "big.md").write_text("x" * 100_001)
    (folder.folder / "binary.md").write_bytes(b"\xff")
    (folder.folder / "head.md").write_text("---\nabout: x\n")
    (folder.folder / "link.md").symlink_to("good.md")
    (folder.folder / "no name.md").write_text("x")
    (folder.folder / ".hidden.md").write_text("x")
    (folder.folder / "folder.md").mkdir()
    os.mkfifo(folder.folder / "pipe.md")
    facts, problems = folder.facts()
    assert [fact.name for fact in facts] == ["good"]
    reasons = {Path(each.partition(":")[0]).stem: each.rpartition(": ")[2] for each in problems}
    assert reasons == {
        "big": "it is larger than 100,000 bytes",
        "binary": "it is not UTF-8",
        "head": "its front matter does not end with a line of ---",
        "link": "it is a link; copy the file there",
        "folder": "it is no regular file",
        "pipe": "it is no regular file",
    }
    monkeypatch.setattr(memory, "MAX_FACTS", 0)
    assert "the oldest 1 facts are left out" in folder.facts()[1][-1]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "-x", "a" * 81, "é", "a b"])
def test_a_name_is_plain(folder: MemoryFolder, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid name of a fact"):
        keep(folder, name, "text")


def test_invalid_facts_are_refused(folder: MemoryFolder) -> None:
    keep(folder, "there", "text")
    with pytest.raises(UsageError, match="there is a fact there already"):
        keep(folder, "there", "other")
    with pytest.raises(UsageError, match="has 8,001 characters, but at most 8,000 are allowed"):
        keep(folder, "long", "x" * 8_001)
    for text in (" \n", ""):
        with pytest.raises(UsageError, match="no text"):
            keep(folder, "empty", text)
    with pytest.raises(UsageError, match="UTF-8"):
        keep(folder, "odd", "\ud800")
    with pytest.raises(UsageError, match="there is no fact 'their'") as raised:
        folder.forget("their")
    assert raised.value.hint == "Did you mean there?"


def test_an_edit_replaces_one_place(folder: MemoryFolder) -> None:
    keep(folder, "build", "make up, make")
    draft = folder.edit("build", "make up", "make down")
    assert "-make up, make\n+make down, make\n" in draft.diff
    folder.write(draft)
    assert folder.fact("build").text.endswith("\n\nmake down, make\n")
    for old, found in (("make", "2 times"), ("gone", "nowhere"), ("", "nowhere")):
        with pytest.raises(UsageError, match=f"occurs {found} in build"):
            folder.edit("build", old, "x")
    with pytest.raises(UsageError, match="no text"):
        folder.edit("build", "make down, make\n", "")


def test_an_edit_changes_the_line_about_it_too(folder: MemoryFolder) -> None:
    keep(folder, "build", "Run make.")
    folder.write(folder.edit("build", "make", 'make "all"'))
    assert folder.fact("build").about == 'Run make "all".'
    folder.write(folder.edit("build", "Run", "Start", "How to build"))
    text = folder.fact("build").text
    assert folder.fact("build").about == "How to build"
    assert text.endswith('---\n\nStart make "all".\n')
    assert text.count("about") == 1
    (folder.folder / "mine.md").write_text("My words\nand more.\n")
    folder.write(folder.edit("mine", "words", "own words"))
    assert folder.fact("mine").text == "My own words\nand more.\n"


def test_a_change_of_an_outdated_fact_is_refused(folder: MemoryFolder) -> None:
    keep(folder, "build", "one")
    edit, removal = folder.edit("build", "one", "two"), folder.forget("build")
    first, second = (folder.add("new", "", text, {}) for text in ("a", "b"))
    folder.write(edit)
    folder.write(first)
    for late in (edit, removal, second):
        with pytest.raises(UsageError, match="has changed meanwhile"):
            folder.write(late)
    assert folder.fact("build").text.endswith("two\n")
    assert folder.fact("new").text.endswith("a\n")
    removal = folder.forget("build")
    assert "-two\n" in removal.diff
    folder.write(removal)
    assert [fact.name for fact in folder.facts()[0]] == ["new"]


def test_a_folder_that_cannot_be_written(folder: MemoryFolder) -> None:
    folder.folder.parent.mkdir()
    folder.folder.write_text("")
    with pytest.raises(CtxagentError, match="cannot change the fact"):
        keep(folder, "a", "text")


def test_names_of_what_the_user_wrote(folder: MemoryFolder) -> None:
    words = "The tests need `make up` first, then a lot more"
    for name in ("the-tests-need-make-up-first", "the-tests-need-make-up-first-2"):
        assert folder.free_name(words) == name
        keep(folder, name, words)
    assert folder.free_name("—?!") == "note"


def test_a_shared_folder_is_like_other_files_of_a_project(tmp_path: Path) -> None:
    root, trust = tmp_path / "project", tmp_path / "trust"
    shared = MemoryFolder(root / ".ctxagent" / "memory", root=root, trust_dir=trust, is_shared=True)
    keep(shared, "a", "text")
    path = shared.folder / "a.md"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    path.chmod(0o646)
    why = f"everyone may write to {path}. Read it, then accept it with `ctxagent config --trust`"
    assert shared.facts() == ([], [f"{path}: this fact is left out: {why}"])
    path.chmod(0o600)
    shared.folder.rename(tmp_path / "elsewhere")
    shared.folder.symlink_to(tmp_path / "elsewhere")
    facts, problems = shared.facts()
    assert (facts, len(problems)) == ([], 1)
    assert "it is a link that leads out of the project" in problems[0]
    with pytest.raises(CtxagentError, match="leads out of the project"):
        keep(shared, "b", "text")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_rule_that_denies_reading_hides_a_fact(tmp_path: Path) -> None:
    folder = MemoryFolder(
        tmp_path, trust_dir=tmp_path, denies=lambda path: path.endswith("secret.md")
    )
    keep(folder, "secret", "text")
    keep(folder, "plain", "text")
    assert [fact.name for fact in folder.facts()[0]] == ["plain"]


WRITER = """
import json, sys
from pathlib import Path
from ctxagent.agent.errors import UsageError
from ctxagent.agent.extensions.memory import MemoryFolder
folder, me = MemoryFolder(Path(sys.argv[1]), trust_dir=Path(sys.argv[1])), sys.argv[2]
for number in range(20):
    folder.write(folder.add(f"{me}-{number}", "", f"{me} {number}", {}))
    for _ in range(10_000):
        try:
            text = folder.fact("shared").text
            folder.write(folder.edit("shared", "END", f"{me}-{number} END"))
            break
        except UsageError:
            pass
    else:
        sys.exit(1)
"""


def test_sessions_that_write_at_the_same_time_lose_nothing(folder: MemoryFolder) -> None:
    keep(folder, "shared", "BEGIN END", "all")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder.folder), me]) for me in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    facts, problems = folder.facts()
    names = {f"{me}-{number}" for me in "abc" for number in range(20)}
    assert ({fact.name for fact in facts}, problems) == ({*names, "shared"}, [])
    said = folder.fact("shared").text.split()
    assert {word for word in said if "-" in word and word[0] in "abc"} == names
    assert {path.stem for path in folder.folder.iterdir()} == {*names, "shared"}
