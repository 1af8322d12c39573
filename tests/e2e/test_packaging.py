"""The built packages: the wheel has everything under `ctxagent` and works in a hostile directory.
The sdist builds the same wheel. `make dist` also installs both with their dependencies.
"""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from ctxagent.agent.cli.commit import RECORD
from ctxagent.tests.install.fresh_install import SHARED

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: the tracked and the new files of this project."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all of it"]):
        git(source, "-c", "user.name=a", "-c", "user.email=a@b", *words)
    return source


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    (source / "build" / "lib" / "ctxagent").mkdir(parents=True)
    (source / "build" / "lib" / "ctxagent" / "old.py").touch()
    build = [sys.executable, "-m", "build", source]
    subprocess.run(build, cwd=source.parent, check=True, capture_output=True)
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_the_wheel_has_every_module(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, text=True,
                             capture_output=True).stdout.split()  # fmt: skip
    tops = ("agent", "tools", "api", "addons")
    modules = {path for path in tracked if path.split("/")[0] in tops}
    own = {"__init__.py", "__main__.py", "extension.py"}
    assert packed == {f"ctxagent/{path}" for path in modules | own}


def test_the_wheel_has_one_top_level_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if not re.search(r"\.(dist-info|data)/", name)}
    assert tops == {"ctxagent"}
    assert {
        "ctxagent/agent/prompts/system.md",
        "ctxagent/py.typed",
        "ctxagent/agent/cli/demo.toml",
        *(
            str(Path("ctxagent") / path.relative_to(ROOT))
            for folder in ("addons/export", "addons/replay/report")
            for path in (ROOT / folder).iterdir()
            if path.suffix in (".css", ".js", ".j2")
        ),
    } <= {*names}
    others = ("tests", "share", "benchmarks", "setup.py", "constraints.txt")
    assert [name for name in names if name.split("/")[:2][-1] in others] == []
    pages = {name for name in names if name.startswith("ctxagent/docs/")}
    assert pages == {f"ctxagent/docs/guide/{path.name}" for path in GUIDE.glob("*.md")}
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert shared == {*SHARED}


def test_the_sdist_has_what_a_build_needs_and_what_is_read(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "LICENSE", "README.md", "CHANGELOG.md", *SHARED} <= names
    assert {"docs/guide/install.md", "docs/pictures/day.svg", ".agentrc.example"} <= names
    others = ("tests/", "benchmarks/", "build/", ".git/", ".ci/")
    assert [name for name in names if name.startswith(others) or "__pycache__" in name] == []


def test_both_record_the_commit_and_the_source_stays_as_it_is(built: Path, wheel: Path) -> None:
    source = built.parent
    commit = git(source, "rev-parse", "HEAD")
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        [record] = [name for name in archive.getnames() if name.endswith(str(RECORD))]
        assert archive.extractfile(record).read().decode() == f"{commit}\n"
    assert zipfile.ZipFile(wheel).read(f"ctxagent/{RECORD}").decode() == f"{commit}\n"
    assert git(source, "status", "--porcelain") == ""


@pytest.mark.full
def test_command_works_next_to_other_packages_named_agent_and_tools(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "venv"
    venv.create(home, symlinks=True, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    ours = next(p for p in map(Path, sys.path) if (p / "click").is_dir())
    target = next((home / "lib").glob("python*/site-packages"))
    (target / "dependencies.pth").write_text(f"{ours}\n")
    hostile = tmp_path / "project"
    for name in ("agent", "tools", "ctxagent", "click", "sitecustomize"):
        (hostile / name).mkdir(parents=True)
        (hostile / name / "__init__.py").write_text("raise SystemExit('the stranger ran')\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ".", "HOME": str(tmp_path)}
    script = '{"steps": [{"text": "hello from the script"}]}'
    (tmp_path / "script.json").write_text(script)
    said = list[str]()
    for arguments in (["--version"], ["-p", "hi", "--model", f"scripted:{tmp_path}/script.json"]):
        done = subprocess.run(
            [home / "bin" / "ctxagent", *arguments],
            cwd=hostile, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "stranger" not in done.stdout + done.stderr
        said.append(done.stdout)
    assert "hello from the script" in said[1]
    commit = git(wheel.parents[1], "rev-parse", "--short=7", "HEAD")
    assert f"(commit {commit}, Python " in said[0]
