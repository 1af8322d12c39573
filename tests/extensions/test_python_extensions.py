"""Finding and loading Python extensions, and the warnings about unusable ones."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.config.trust import trust
from ctxagent.agent.extensions.python_extensions import (
    NOT_TRUSTED,
    ExtensionSource,
    LoadedExtensions,
    project_files,
)
from ctxagent.agent.loop.interface import Feature

GOOD = "from ctxagent.api.extension import Feature\nclass C(Feature):\n    {}\n"


def accept(kind: type[Feature]) -> None:
    if hasattr(kind, "refused"):
        raise ValueError("refused")


@pytest.fixture
def source(tmp_path: Path) -> ExtensionSource:
    for name in ("own/extensions", "home/project/.git", "home/project/.ctxagent/extensions"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return ExtensionSource(tmp_path / "own", home / "project", home, tmp_path / "state")


@pytest.fixture
def own(tmp_path: Path, source: ExtensionSource) -> Path:
    return tmp_path / "own/extensions"


@pytest.fixture
def theirs(tmp_path: Path, source: ExtensionSource) -> Path:
    return tmp_path / "home/project/.ctxagent/extensions"


@pytest.fixture(autouse=True)
def same_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(source: ExtensionSource) -> LoadedExtensions[Feature]:
    return source.load(Feature, accept)


def problem(source: ExtensionSource) -> str:
    (found,) = load(source).extensions
    assert found.classes == ()
    return found.problem


def test_without_files_there_is_nothing(source: ExtensionSource) -> None:
    assert not source.exists
    assert load(source).extensions == []


def test_the_classes_of_a_file_are_named_after_it(source: ExtensionSource, own: Path) -> None:
    more = "class D(C):\n    name = 'other'\n\nclass Apart: pass\nalias = C\n"
    (own / "with-dash.py").write_text(GOOD.format("x = 1") + more)
    assert source.exists
    loaded = load(source)
    assert [(kind.__name__, kind.name) for kind in loaded.classes] == [
        ("C", "with-dash"),
        ("D", "other"),
        ("C", "with-dash"),
    ]
    assert loaded.warnings == []


def test_one_name_in_two_folders_gives_two_modules(
    source: ExtensionSource, own: Path, theirs: Path, tmp_path: Path
) -> None:
    for folder, value in ((own, 1), (theirs, 2)):
        (folder / "same.py").write_text(GOOD.format(f"x = {value}"))
    trust(theirs / "same.py", tmp_path / "state")
    classes = load(source).classes
    assert [kind.x for kind in classes] == [1, 2]  # type: ignore[attr-defined]
    assert [vars(sys.modules[kind.__module__])["C"] for kind in classes] == classes


def test_it_is_loaded_once_until_it_is_loaded_again(source: ExtensionSource, own: Path) -> None:
    path = own / "a.py"
    path.write_text(GOOD.format("x = 1"))
    assert load(source) is load(source)
    path.write_text(GOOD.format("x = 2"))
    assert [kind.x for kind in load(source).classes] == [1]  # type: ignore[attr-defined]
    again = source.reload(Feature, accept)
    assert [kind.x for kind in again.classes] == [2]  # type: ignore[attr-defined]


def test_a_file_of_the_project_is_run_after_it_was_accepted(
    source: ExtensionSource, theirs: Path, tmp_path: Path
) -> None:
    path, ran = theirs / "a.py", tmp_path / "ran"
    path.write_text(f"open({str(ran)!r}, 'w')\n{GOOD.format('x = 1')}")
    assert problem(source) == NOT_TRUSTED
    assert NOT_TRUSTED in load(source).warnings[0]
    assert not ran.exists()
    trust(path, tmp_path / "state")
    assert len(source.reload(Feature, accept).classes) == 1
    path.write_text(path.read_text() + "\n")
    assert source.reload(Feature, accept).classes == []


def test_the_checked_content_is_what_runs(
    source: ExtensionSource, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = theirs / "a.py"
    path.write_text(GOOD.format("x = 1"))
    trust(path, tmp_path / "state")

    def exchanged(*given: object) -> bool:
        path.write_text(GOOD.format("x = 'exchanged'"))
        return True

    monkeypatch.setattr("ctxagent.agent.extensions.python_extensions.is_trusted", exchanged)
    assert [kind.x for kind in load(source).classes] == [1]  # type: ignore[attr-defined]


def test_links_of_the_project(source: ExtensionSource, own: Path, theirs: Path) -> None:
    (own / "mine.py").write_text("x = 1")
    (theirs / "out.py").symlink_to(own / "mine.py")
    (theirs / "loop.py").symlink_to(theirs / "loop.py")
    (theirs / "inside.py").symlink_to(theirs / "real.txt")
    (theirs / "real.txt").write_text("x = 1")
    found = project_files(theirs.parents[1], theirs.parents[2])
    assert [path.name for path in found] == ["inside.py", "loop.py"]
    assert {each.name: each.problem for each in load(source).extensions}["loop"].startswith("Too")


def test_a_link_of_the_user_may_lead_anywhere(
    source: ExtensionSource, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.py").write_text(GOOD.format("x = 1"))
    (own / "a.py").symlink_to(tmp_path / "elsewhere.py")
    assert [kind.name for kind in load(source).classes] == ["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"def x(:", "SyntaxError: invalid syntax (a.py, line 1)"),
        (b"\n1/0", "ZeroDivisionError: division by zero (a.py, line 2)"),
        (b"raise SystemExit", "SystemExit (a.py, line 1)"),
        (b"class B(BaseException): pass\nraise B('b')", "B: b (a.py, line 2)"),
        (b"x = '\xff'", "SyntaxError: "),
        (b"x = '\0'", "source code string cannot contain null bytes"),
        (b"(" * 5_000, "too many nested parentheses"),
        (b"#" * 100_001, "it is larger than 100,000 bytes"),
        (b"x = 1", "it has no class that subclasses Feature"),
        (GOOD.format("refused = 1").encode(), "ValueError: refused"),
    ],
)
def test_an_unusable_file_is_reported(
    source: ExtensionSource, own: Path, text: bytes, expected: str
) -> None:
    (own / "a.py").write_bytes(text)
    assert expected in problem(source)
    assert load(source).warnings[0].startswith(f"the extension {own / 'a.py'} is left out: ")


def test_a_path_that_is_not_a_file_is_reported(source: ExtensionSource, own: Path) -> None:
    os.mkfifo(own / "pipe.py")
    (own / "folder.py").mkdir()
    (own / "gone.py").symlink_to("nowhere")
    found = {each.name: each.problem for each in load(source).extensions}
    assert found["pipe"] == found["folder"] == "it is not a regular file"
    assert found["gone"] == "No such file or directory"


def test_a_print_goes_to_stderr(
    source: ExtensionSource, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "a.py").write_text("print('loud')\n" + GOOD.format("x = 1"))
    load(source)
    assert capsys.readouterr() == ("", "loud\n")


def install(folder: Path, name: str, value: str, points: bytes = b"") -> None:
    """Install a package whose module has a class `C`."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(GOOD.format("x = 1"))
    about = folder / f"{name}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    text = f"[ctxagent.extensions]\npoint = {value}\n".encode()
    (about / "entry_points.txt").write_bytes(points or text)


@pytest.mark.parametrize("value", ["{}", "{}:C"])
def test_an_installed_package(
    source: ExtensionSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    name = f"installed_{len(value)}"
    install(tmp_path / "site", name, value.format(name))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert source.exists
    (found,) = load(source).extensions
    assert (found.name, found.source) == ("point", f"{name} 1.2")
    assert [kind.name for kind in found.classes] == ["point"]


def test_packages_that_are_damaged_or_lack_their_module(
    source: ExtensionSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "damaged", "damaged", b"\xff[")
    install(tmp_path / "site", "lacking", "nowhere_to_be_found")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert problem(source).startswith("ModuleNotFoundError: No module named 'nowhere")


def test_a_package_in_the_project_does_not_count(
    source: ExtensionSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "home/project"
    install(project, "planted", "planted")
    install(project / "lib", "planted2", "planted2")
    monkeypatch.setattr(sys, "path", [*sys.path, str(project), str(project / "lib")])
    assert not source.exists
    assert load(source).extensions == []
    monkeypatch.setattr(sys, "prefix", str(project / "lib"))  # the agent's own environment
    assert [each.name for each in load(ExtensionSource(
        tmp_path / "own", project, tmp_path / "home", tmp_path / "state"
    )).extensions] == ["point"]  # fmt: skip
