"""Commands that are handed the names of files by another command."""

from pathlib import Path

import pytest

from ctxagent.agent.permissions.shell import listings
from ctxagent.agent.permissions.shell.parser import parse

LISTS = [
    "find . -name a", "find . -type f | sort", "find . | head -5", "find . | sort -u | head -n 5",
    "find . | grep -v x", "find . | grep -vi x", "find . | uniq -c", "find . | tail -3",
    "find . | grep --invert-match x", "git ls-files", "git ls-files src", "git ls-files -z -o",
    "git diff --name-only", "git diff --name-only HEAD", "rg --files", "rg -l x", "rg -l -i x",
    "rg --files-with-matches x src", "grep -rl x .", "grep -l x a", "grep -lr --include=*.py x .",
    "grep --files-with-matches -r x .", "grep -rlE --exclude-dir=a x .", "find . | rg x",
    "find . | sort --unique", "find . | grep --ignore-case x", "find . | head -5 | tail -1",
    "find . | fgrep -x x",
]  # fmt: skip
DOES_MORE = [
    "ls", "cat x", "echo a", "find . -printf x", "find . -ls", "find -L . -name a",
    "find . -follow", "find -H x", "find . -delete", "git diff", "git diff HEAD", "git",
    "git log --name-only", "git ls-files --format=x", "git ls-files -s", "git ls-files --stage",
    "git ls-files -t", "git ls-files --debug", "git ls-files -v", "git ls-files -f",
    "git ls-files --eol", "git ls-files --abbrev", "git diff --name-only --relative",
    "git diff --name-only --format=x", "rg x", "rg -l -r y x", "rg -lL x", "rg -l -o x",
    "rg -l --replace y x", "rg -l --follow x", "rg --files --only-matching", "grep x a",
    "grep -r x .", "grep -l -R x .", "grep -l --context=1 x a", "grep -lo x a", "find . | cat",
    "find . | sed s/a/b/", "find . | sort -o x", "find . | sort x", "find . | head -c 5",
    "find . | tail -c 5", "find . | grep x y", "find . | grep", "find . | grep -c x",
    "find . | sort -k2", "find . | uniq x", "find . | grep -o x", "find . | tr a b",
    "find . | rg -c x", "find . | head --bytes=1", "cat x | sort",
]  # fmt: skip


@pytest.mark.parametrize("text", LISTS)
def test_commands_that_list_files(text: str) -> None:
    assert listings.lists_project_files(parse(text).parts)


@pytest.mark.parametrize("text", DOES_MORE)
def test_commands_that_print_anything_else(text: str) -> None:
    assert not listings.lists_project_files(parse(text).parts)


def test_no_command_lists_nothing() -> None:
    assert not listings.lists_project_files(())


@pytest.mark.parametrize(
    ("text", "feeding"),
    [
        ("find . | xargs wc", ["find"]), ("cd a && find . | sort | xargs wc", ["find", "sort"]),
        ("xargs wc", []), ("xargs wc < a", None), ("xargs wc <<< a", None),
        ("ls; cd a; find . | xargs wc", ["ls", "cd", "find"]),
        ("find . | xargs wc | head", ["find"]),
    ],
)  # fmt: skip
def test_what_xargs_is_fed(text: str, feeding: list[str] | None) -> None:
    script = parse(text)
    part = next(each for each in script.parts if each.name == "xargs")
    found = listings.feeding_parts(part, script)
    assert (found and [each.name for each in found]) == feeding


@pytest.mark.parametrize("name", ["a", "a.py", "src/b", "a-b", "é", "a~b", "日本", "a/b-c"])
def test_plain_names(name: str) -> None:
    assert listings.is_plain_name(name)


@pytest.mark.parametrize(
    "name",
    ["-a", "~a", "a b", "a\tb", "a'b", 'a"b', "a\\b", "src/-b", "a\nb", "a\x7f", "s/~"],
)
def test_names_that_may_be_taken_for_more(name: str) -> None:
    assert not listings.is_plain_name(name)


def test_a_folder_of_plain_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "a b").touch()
    (tmp_path / "inner").symlink_to("src")
    (tmp_path / "self").symlink_to(".")
    (tmp_path / "missing").symlink_to("nowhere")
    assert listings.has_plain_names(str(tmp_path))
    assert not listings.has_plain_names(str(tmp_path / "nowhere"))
    monkeypatch.setattr(listings, "MAX_NAMES", 6)
    assert listings.has_plain_names(str(tmp_path))
    monkeypatch.setattr(listings, "MAX_NAMES", 5)
    assert not listings.has_plain_names(str(tmp_path))


@pytest.mark.parametrize("name", ["src/a b", "-n", "src/deep/~x"])
def test_a_folder_with_an_odd_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    assert not listings.has_plain_names(str(tmp_path))


def test_a_folder_with_a_link_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "inside").mkdir()
    (tmp_path / "in" / "link").symlink_to("../inside")
    assert not listings.has_plain_names(str(tmp_path / "in"))
    assert listings.has_plain_names(str(tmp_path))
