"""`ctxagent guide`, and the hints that name pages of the guide."""

import re
from pathlib import Path

import pytest

from ..support.command import Place

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in (ROOT / "docs" / "guide").glob("*.md")}
SOURCES = [path for top in ("agent", "tools", "api", "addons")
           for path in (ROOT / top).rglob("*.*")
           if path.suffix in (".py", ".toml", ".txt")]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_pages_are_listed_with_their_titles_and_printed(place: Place) -> None:
    listed = place.run("guide").stdout.splitlines()
    assert {line.split()[0] for line in listed} == {*PAGES}
    assert f"{'repl':<16} The terminal" in listed
    assert place.run("guide", "skills").stdout == PAGES["skills"].read_text()


def test_an_unknown_page_names_those_like_it(place: Place) -> None:
    done = place.run("guide", "skils")
    assert done.returncode == 2
    assert "there is no page 'skils'. Did you mean `ctxagent guide skills`?" in done.stderr
    done = place.run("guide", "aardvark")  # no page is near, and no section has the word
    assert (done.returncode, done.stdout) == (1, "")
    assert "no section of the guide has these words" in done.stderr
    done = place.run("guide", "skils", "--search", "folder")
    assert (done.returncode, done.stdout) == (2, "")


def test_lines_of_the_guide_are_found_by_a_text(place: Place) -> None:
    done = place.run("guide", "--search", "MANY AGENTS IN ONE")
    assert done.returncode == 0
    line = PAGES["library"].read_text().splitlines().index("## Many agents in one process") + 1
    assert f"library:{line}: ## Many agents in one process" in done.stdout.splitlines()
    found = place.run("guide", "library", "--search", "one in agents many").stdout.splitlines()
    assert found[0] == f"library:{line}: ## Many agents in one process"
    assert all(each.startswith("library:") for each in found)
    found = place.run("guide", "--search", "compaction UNDO").stdout.splitlines()
    assert found[0].endswith(": ## Undo a compaction")  # a heading, so its page comes first
    assert all("undo" in line.lower() and "compaction" in line.lower() for line in found)
    assert len(found) > 5
    done = place.run("guide", "--search", "aardvark")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no line of the guide has 'aardvark'\n"


def test_hints_name_pages_by_the_command_that_prints_them() -> None:
    named = [
        (path, page)
        for path in SOURCES
        for page in re.findall(r"`ctxagent guide ([a-z-]+)`", path.read_text())
    ]
    assert len(named) > 10
    assert [(path, page) for path, page in named if page not in PAGES] == []
    in_strings = re.compile(r"""["'].*docs/guide/[\w-]+\.md""")
    assert [path for path in SOURCES if in_strings.search(path.read_text())] == []


def test_the_text_of_an_answer_has_no_frame_of_a_table(place: Place) -> None:
    shown = place.run("guide", "how do I undo a compaction").stdout
    assert "`ctxagent compact --undo [ID]`" in shown
    assert " | " not in shown
    assert "---" not in shown
