"""The files of a project that a command line runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.config.program_files import program_files

FILES = {
    "scripts/fmt.py": "import helper, json\nfrom . import x\n",
    "scripts/helper.py": "",
    "scripts/other.py": "",
    "pkg/__init__.py": "",
    "pkg/__main__.py": "from .core import (\n    a,\n)\n",
    "pkg/core.py": "",
    "Makefile": "include more.mk\nlint:\n\t@python3 scripts/fmt.py && ./sub/run.sh\n",
    "more.mk": "",
    "sub/run.sh": '#!/bin/sh\n. "$(dirname "$0")/lib.sh"\necho done > notes.txt\n',
    "sub/lib.sh": "",
    "package.json": '{"scripts": {"lint": "node tools/a --fix"}}',
    "tools/a.js": 'const b = require("./b")\n',
    "tools/b.ts": "",
    "notes.txt": "",
    "bin/fmt": "#!/usr/bin/env python3\nimport part\n",
    "bin/part.py": "",
    "with blank/x.sh": "",
}
FMT = ["scripts/fmt.py", "scripts/helper.py"]
RUN = ["sub/lib.sh", "sub/run.sh"]
PKG = ["pkg/__init__.py", "pkg/__main__.py", "pkg/core.py"]
NPM = ["package.json", "tools/a.js", "tools/b.ts"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project").resolve()
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "bin" / "fmt").chmod(0o755)
    return root


def found(project: Path, command: str | list[str], **env: str) -> list[str]:
    paths = program_files(command, str(project), env, [str(project)])
    return sorted(str(Path(path).relative_to(project)) for path in paths)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3 scripts/fmt.py", FMT),
        ("FOO=1 exec python3 -u scripts/fmt.py notes.txt", FMT),
        (["python3", "scripts/fmt.py"], FMT),
        (["sh", "-c", "cd sub; ./run.sh"], RUN),
        ("sh -c 'bash sub/run.sh'", RUN),
        ("cd sub && ./run.sh", RUN),
        ("$CLAUDE_PROJECT_DIR/sub/run.sh", RUN),
        ('"${CLAUDE_PROJECT_DIR}"/sub/run.sh', RUN),
        ('sh "with blank/x.sh"', ["with blank/x.sh"]),
        ("python3 -m pkg", PKG),
        ("python3.11 -mpkg --all", PKG),
        ("make lint", ["Makefile", "more.mk", *FMT, *RUN]),
        ("npm run lint", NPM),
        (["node", "tools/a"], ["tools/a.js", "tools/b.ts"]),
        ("tool --config=package.json", NPM),
        ("tool --config package.json", NPM),
        ("fmt", ["bin/fmt", "bin/part.py"]),
        ("env fmt", ["bin/fmt", "bin/part.py"]),
        ("cat >> notes.txt", []),
        ("cat notes.txt > scripts/fmt.py", []),
        ("git status", []),
    ],
)
def test_files_of_a_command(project: Path, command: str | list[str], expected: list[str]) -> None:
    env = {"CLAUDE_PROJECT_DIR": str(project), "PATH": "/usr/bin:bin"}
    assert found(project, command, **env) == sorted(expected)


def test_a_file_that_python_loads_instead_of_its_own_module(tmp_path: Path) -> None:
    (tmp_path / "fmt.py").write_text("print()\n")
    assert found(tmp_path, "python3 fmt.py") == ["fmt.py"]
    (tmp_path / "json.py").touch()
    assert found(tmp_path, "python3 fmt.py") == ["fmt.py", "json.py"]


def test_the_target_of_a_link_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "real.sh").touch()
    (tmp_path / "run.sh").symlink_to("real.sh")
    (tmp_path / "ls").symlink_to("/bin/ls")
    assert found(tmp_path, "./run.sh; ./ls") == ["ls", "real.sh", "run.sh"]


def test_files_elsewhere_and_in_the_agents_folders_are_left_out(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.sh").touch()
    command = f"sh {own}/a.sh; sh /bin/sh"
    paths = program_files(command, str(tmp_path), {}, [str(tmp_path)])
    assert paths == [str(own / "a.sh")]
    assert program_files(command, str(tmp_path), {}, [str(tmp_path)], [str(own)]) == []


@given(st.text(max_size=200))
def test_any_text_can_be_searched(text: str) -> None:
    folder = str(Path.cwd())
    assert isinstance(program_files(text, folder, {}, [folder]), list)
    assert isinstance(program_files([text, text], folder, {}, [folder]), list)
