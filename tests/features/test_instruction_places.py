"""The paths that are checked for instruction files."""

from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.features.instruction_places import (
    Candidate,
    InstructionPlaces,
    instruction_warnings,
)

from ..support.instruction_files import places


@pytest.fixture
def where(tmp_path: Path) -> InstructionPlaces:
    """Return the places of a session in a folder of a repository, with a home elsewhere."""
    for name in ("repo/.git", "repo/work/in", "repo/other", "home/.claude", "config", "added/in"):
        (tmp_path / name).mkdir(parents=True)
    found = places(tmp_path / "repo/work", tmp_path / "config", tmp_path, tmp_path / "home")
    return replace(found, added=(tmp_path / "added",))


def shown(tmp_path: Path, found: list[Candidate]) -> list[str]:
    inside = (each.path for each in found if each.path.is_relative_to(tmp_path))
    return [str(path.relative_to(tmp_path)) for path in inside]


def test_the_order_of_the_standing_files(tmp_path: Path, where: InstructionPlaces) -> None:
    assert where.root == tmp_path / "repo"
    found = shown(tmp_path, where.for_all_work())
    names = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
    own = [
        "home/.codex/AGENTS.md",
        "home/.claude/CLAUDE.md",
        "config/AGENTS.md",
        "config/CLAUDE.md",
    ]
    folders = ("", "repo/", "repo/work/", "added/")
    assert found == [*own, *(f"{folder}{name}" for folder in folders for name in names)]
    assert [each.is_scoped for each in where.for_all_work()[-4:]] == [True] * 4
    (tmp_path / "home/.claude/CLAUDE.md").touch()
    assert shown(tmp_path, where.for_all_work())[0] == "home/.claude/CLAUDE.md"


def test_a_home_above_the_project_has_its_files_once(
    tmp_path: Path, where: InstructionPlaces
) -> None:
    at_home = shown(tmp_path, replace(where, home=tmp_path).for_all_work())
    assert at_home.count(".claude/CLAUDE.md") == 1
    assert at_home.index(".claude/CLAUDE.md") < at_home.index("config/AGENTS.md")


@pytest.mark.parametrize(
    ("path", "folders"),
    [
        ("repo/work/in/deep/a.py", ["repo/work/in", "repo/work/in/deep"]),
        ("repo/other/a.py", ["repo/other"]),
        ("repo/work/a.py", []),
        ("added/in/a.py", ["added/in"]),
        ("added/a.py", []),
        ("elsewhere/a.py", []),
        ("repo/work/node_modules/x/a.py", []),
    ],
)
def test_the_folders_of_a_file(
    tmp_path: Path, where: InstructionPlaces, path: str, folders: list[str]
) -> None:
    found = where.for_files([tmp_path / path])
    assert shown(tmp_path, [each for each in found if each.path.name == "AGENTS.md"]) == [
        f"{folder}/AGENTS.md" for folder in folders
    ]
    assert all(each.is_scoped for each in found)


def test_a_link_to_the_project_is_the_project(tmp_path: Path, where: InstructionPlaces) -> None:
    (tmp_path / "link").symlink_to("repo")
    linked = replace(where, cwd=tmp_path / "link" / "work")
    assert linked.below_root(tmp_path / "repo/other/a.py") == tmp_path / "link/other/a.py"
    assert linked.for_files([tmp_path / "repo/other/a.py"])[0].folder == tmp_path / "link/other"


def test_a_repository_that_has_the_home_in_it_is_no_project(
    tmp_path: Path, where: InstructionPlaces
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to("home")
    wide = replace(where, cwd=tmp_path / "elsewhere", home=tmp_path / "link")
    assert wide.root == tmp_path / "elsewhere"
    assert wide.roots == [tmp_path / "elsewhere", tmp_path / "added"]
    assert wide.for_files([tmp_path / "repo/other/a.py"]) == []
    inside = [each for each in wide.for_all_work() if each.path.is_relative_to(wide.cwd)]
    assert {each.root for each in inside} == {wide.cwd}


def test_files_below_a_working_directory_with_the_home_in_it_stay_in_their_folder(
    tmp_path: Path, where: InstructionPlaces
) -> None:
    wide = replace(where, cwd=tmp_path)
    for each in wide.for_files([tmp_path / "elsewhere/in/a.py"]):
        assert each.root == each.folder


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("**/*.py", "a.py", True),
        ("**/*.py", "in/deep/a.py", True),
        ("*.py", "in/a.py", False),
        ("in/*.py", "in/a.py", True),
        ("in/**", "in/deep/a.py", True),
        ("in", "in/a.py", True),
        ("**/test_?.py", "in/test_1.py", True),
        ("**/*.py", "../a.py", False),
    ],
)
def test_what_a_pattern_means(tmp_path: Path, glob: str, path: str, matches: bool) -> None:
    rule = Candidate(
        tmp_path / "p/.claude/rules/r.md", tmp_path / "p", tmp_path / "p", is_rule=True
    )
    assert rule.matches([glob], [(tmp_path / "p" / path).resolve()]) is matches


def test_a_warning_for_each_file_that_others_may_write(
    tmp_path: Path, where: InstructionPlaces
) -> None:
    assert instruction_warnings(where) == []
    path = tmp_path / "repo" / "CLAUDE.local.md"
    path.write_text("x")
    path.chmod(0o666)
    (warning,) = instruction_warnings(where)
    assert warning.startswith(f"{path} is ignored: everyone may write to {path}.")
