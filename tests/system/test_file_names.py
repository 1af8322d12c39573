"""Names that look the same as those on disk."""

import os
from pathlib import Path

import pytest

from ctxagent.tools.system.project_files import spelled_on_disk

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def test_a_missing_name_is_found_by_its_look(tmp_path: Path) -> None:
    folder = tmp_path / DECOMPOSED
    folder.mkdir()
    (folder / f"{COMPOSED}.txt").touch()
    asked = f"{tmp_path}/{COMPOSED}/{DECOMPOSED}.txt"
    assert spelled_on_disk(asked) == f"{folder}/{COMPOSED}.txt"
    assert spelled_on_disk(f"{tmp_path}/{COMPOSED}/é.new") == f"{folder}/é.new"


def test_an_existing_name_wins_and_two_names_that_look_the_same_are_left(tmp_path: Path) -> None:
    (tmp_path / COMPOSED).touch()
    (tmp_path / DECOMPOSED).touch()
    for name in (COMPOSED, DECOMPOSED):
        assert spelled_on_disk(f"{tmp_path}/{name}") == f"{tmp_path}/{name}"
    for name in (b"a\xff", b"a\xfe"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    assert spelled_on_disk(f"{tmp_path}/a\ufffd") == f"{tmp_path}/a\ufffd"


@pytest.mark.parametrize("path", ["/no/such/é", "/é\0", "/é/../é"])
def test_a_path_without_such_a_file_names_the_same_place(path: str) -> None:
    assert os.path.normpath(spelled_on_disk(path)) == os.path.normpath(path)
