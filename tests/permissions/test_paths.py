"""Path forms, protected names, and the files that a pattern matches."""

import os
import tomllib
from pathlib import Path

import pytest

from ctxagent.agent.permissions import paths
from ctxagent.agent.permissions.paths import (
    all_path_forms,
    expand_glob,
    is_within,
    path_forms,
    protected_name,
    protected_names,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src").mkdir(parents=True)
    for name in ("a.py", "b.py", "src/c.py", ".hidden", "[x]", "d1"):
        (folder / name).touch()
    (folder / "link").symlink_to("/etc")
    return folder


def test_a_path_as_written_and_with_links_followed(root: Path) -> None:
    base = str(root)
    assert path_forms("a.py", base) == [f"{base}/a.py"]
    assert path_forms("src/../a.py", base) == [f"{base}/a.py"]
    assert path_forms("link/passwd", base) == [f"{base}/link/passwd", "/etc/passwd"]
    assert path_forms("/etc/passwd", base) == ["/etc/passwd"]
    assert path_forms("a\0b", base) == []
    assert path_forms("~", base)[0] == os.path.expanduser("~")  # noqa: PTH111
    assert all_path_forms([root / "link"]) == [f"{base}/link", "/etc"]


@pytest.mark.parametrize("process", ["self", "thread-self", "self/task/12"])
def test_a_commands_own_folder_and_root(root: Path, process: str) -> None:
    base = str(root)
    assert path_forms(f"/proc/{process}/cwd/a.py", base) == [f"{base}/a.py"]
    assert path_forms(f"/proc/{process}/cwd", base) == [base]
    assert path_forms(f"/proc/{process}/root/etc/passwd", base) == ["/etc/passwd"]
    assert path_forms(f"/proc/{process}/root", base) == ["/"]
    assert path_forms(f"/proc/{process}/root/proc/self/cwd/a.py", base) == [f"{base}/a.py"]
    assert path_forms("/proc/self/cwdx", base)[0] == "/proc/self/cwdx"


def test_is_within_a_folder() -> None:
    assert is_within("/a", ["/a"])
    assert is_within("/a/b", ["/x", "/a/"])
    assert is_within("/a", ["/"])
    assert not is_within("/ab", ["/a"])
    assert not is_within("/", ["/a"])
    assert not is_within("/a", [])


@pytest.mark.parametrize("name", sorted(protected_names()))
def test_protected_names(name: str) -> None:
    assert protected_name(f"/p/x/{name}/y", ["/p"]) == name
    assert protected_name(f"/p/{name.upper()}", ["/p"]) == name
    assert protected_name(f"/p/{name}/y", [f"/p/{name}"]) == ""
    assert protected_name(f"/p/{name}", ["/p"], rule_path=f"x/{name.upper()}") == ""
    assert protected_name(f"/p/x{name}", ["/p"]) == ""


@pytest.mark.parametrize(
    "name",
    [".git", ".agentrc", ".ssh", ".bashrc", ".profile", ".zshrc", ".vscode", ".idea", ".mcp.json",
     ".envrc", ".gitmodules", ".husky", ".claude", ".ctxagent", ".devcontainer", ".cursor",
     "opencode.json", ".windsurf", ".kiro", ".clinerules", ".aider.conf.yml", "agents.md",
     ".github/copilot-instructions.md", ".mise.toml", ".pre-commit-config.yaml", "claude.md",
     ".cargo/config.toml", ".npmrc", ".yarnrc.yml", ".gdbinit", ".exrc"],
)  # fmt: skip
def test_names_that_are_protected(name: str) -> None:
    assert name in protected_names()


def test_the_parts_of_a_name_stand_together() -> None:
    assert protected_name("/p/.cargo/bin/config.toml", ["/p"]) == ""
    assert protected_name("/p/a/.Cargo/Config.toml", ["/p"]) == ".cargo/config.toml"
    assert protected_name("/p/.github/workflows/a.yml", ["/p"]) == ""


def test_each_name_is_in_lower_case_and_has_a_source() -> None:
    text = (Path(paths.__file__).parent / "protected_names.toml").read_text()
    rows = [row for names in tomllib.loads(text).values() for row in names.items()]
    assert len(rows) == len(protected_names())
    for name, source in rows:
        assert name == name.lower()
        assert name.count("/") <= 1
        assert ": " in source


def test_the_agents_own_folders() -> None:
    assert protected_name("/p/state/log", ["/p"], own=["/p/state"]) == "/p/state"
    assert protected_name("/p/STATE", ["/p"], own=["/p/state"]) == "/p/state"
    assert protected_name("/p/state/log", ["/p"], rule_path="/p/state/**", own=["/p/state"]) == ""
    assert protected_name("/p/other", ["/p"], own=["/p/state"]) == ""


def test_hidden_files_of_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h/me")
    assert protected_name("/h/me/.config/x", ["/h"]) == ".config"
    assert protected_name("/h/me/bin/tool", ["/h"]) == "bin"
    assert protected_name("/h/me/.config/x", ["/h"], rule_path="~/.config/**") == ""
    assert protected_name("/h/me/notes/.x", ["/h"]) == ""
    assert protected_name("/h/me/work/.config/x", ["/h/me/work"]) == ""
    assert protected_name("/h/me/.config/x", ["/h/me"]) == ".config"
    assert protected_name("/h/other/bin/x", ["/h"]) == ""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "b.py"]), ("src/*", ["src/c.py"]), ("*/*.py", ["src/c.py"]),
        ("?.py", ["a.py", "b.py"]), ("[a].py", ["a.py"]), ("[!a].py", ["a.py", "b.py"]),
        ("[a-b].py", ["a.py", "b.py"]), ("d[0-9]", ["d1"]), ("d[2-9]", []), ("x*", []), ("[x", []),
        (".h*", [".hidden"]), ("*/*/*", None), ("[[:alpha:]].py", None), ("[=a=].py", None),
        ("a\0*", []),
        ("src/?.p?", ["src/c.py"]),
    ],
)  # fmt: skip
def test_files_that_a_pattern_stands_for(root: Path, pattern: str, found: list[str] | None) -> None:
    result = expand_glob(pattern, str(root))
    assert (None if result is None else sorted(result)) == found


def test_a_file_that_may_be_taken_for_an_option(root: Path) -> None:
    (root / "-n").touch()
    assert expand_glob("*", str(root)) is None
    assert expand_glob("./*", str(root)) is not None


@pytest.mark.slow
def test_too_many_files_to_look_at(root: Path) -> None:
    for number in range(1_000):
        (root / "src" / f"f{number}").touch()
    assert len(expand_glob("src/f*", str(root)) or []) == 1_000
    assert expand_glob("src/*", str(root)) is None
