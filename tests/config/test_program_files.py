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
    "seen.part": "",
    "made.ts": "",
    "count.py": 'open("count.state", "w").write("1")\n',
    "count.state": "",
    ".git": "gitdir: ../main/.git/worktrees/x\n",
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
        ("cat > seen.part; cat seen.part", []),
        ("./gen > made.ts && check made.ts", []),
        ("python3 count.py", ["count.py"]),
        ("cat > seen.part; sh seen.part", ["seen.part"]),
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


PYTHON = "python3 s/f.py"
CASES = [
    ("./c", "h.sh", {"c": "#!/bin/bash -e\n./h.sh"}),
    ("./c", "h.py", {"c": "#!/usr/bin/env -S uv run --script\nimport h"}),
    (PYTHON, "s/h.sh", {"s/f.py": "import subprocess\nsubprocess.run(['bash', 's/h.sh'])"}),
    (PYTHON, "s/h.py", {"s/f.py": "run_path(Path(__file__).parent / 'h.py')"}),
    (PYTHON, "lib/h.py", {"s/f.py": "import sys\nsys.path.insert(0, 'lib')\nimport h"}),
    (PYTHON, "s/h.py", {"s/f.py": "importlib.import_module('h')"}),
    (PYTHON, "s/h.py", {"s/f.py": "import os; import h"}),
    (PYTHON, "s/h.py", {"s/f.py": "import os, \\\n  h"}),
    (PYTHON, "s/p/h.py", {"s/f.py": "from p import \\\n  h"}),
    (PYTHON, "s/p/h.py", {"s/f.py": "from p import *", "s/p/__init__.py": "__all__ = ['h']"}),
    (PYTHON, "s/h.abi3.so", {"s/f.py": "import h"}),
    (f"PYTHONPATH=lib {PYTHON}", "lib/sitecustomize.py", {"s/f.py": ""}),
    ("PYTHONPATH=lib python3 -m h", "lib/h.py", {}),
    ("python3 -c 'from t.f import main'", "t/f.py", {}),
    (["python3", "-c", "import json"], "json.py", {}),
    ("python3 - <<'X'\nimport h\nX", "h.py", {}),
    ("python3 app", "app/__main__.py", {}),
    ("python3 -sm t", "t.py", {}),
    ("bash s/f.sh", "s/h.sh", {"s/f.sh": 'D=$(cd "$(dirname "$0")" && pwd)\n. "$D/h.sh"'}),
    ("bash s/f.sh", "s/h.sh", {"s/f.sh": 'R=$(git rev-parse --show-toplevel)\n"$R/s/h.sh"'}),
    ("bash s/f.sh", "s/h", {"s/f.sh": "X=s/h\nbash $X"}),
    ("bash ${S:-s}/h.sh", "s/h.sh", {}),
    ("bash s/{f,h}.sh", "s/h.sh", {}),
    ("bash my\\ s/h.sh", "my s/h.sh", {}),
    ("for f in s/*.sh; do bash $f; done", "s/h.sh", {}),
    ("cd a && cd b && ./h.sh", "a/b/h.sh", {}),
    ("BASH_ENV=h.sh bash -c true", "h.sh", {}),
    ("PATH=$PWD/bin:$PATH h", "bin/h", {}),
    ("git -c alias.x='!./h.sh' x", "h.sh", {}),
    ("ruby f.rb", "h.rb", {"f.rb": "require_relative 'h'"}),
    ("perl f.pl", "h.pl", {"f.pl": "require './h.pl';"}),
    ("node f.js", "h.js", {"f.js": "require(path.join(__dirname, 'h.js'))"}),
    ("node f.js", "h.js", {"f.js": "require(`./h`)"}),
    ("node f.js", "h.sh", {"f.js": "execSync('./h.sh')"}),
    ("tsx f.ts", "h.ts", {"f.ts": "import x from './h.js'"}),
    (
        "node f.mjs",
        "h.mjs",
        {"f.mjs": "import '#h'", "package.json": '{"imports": {"#h": "./h.mjs"}}'},
    ),
    ("npm run x", "node_modules/.bin/h", {"package.json": '{"scripts": {"x": "h ."}}'}),
    ("npx h .", "h.config.js", {}),
    ("make x", "h.sh", {"Makefile": "S = h.sh\nx:\n\tsh $(S)\n"}),
    ("make x", "h.py", {"Makefile": "P = python3\nx: ; $(P) h.py\n"}),
    ("make x", "h.py", {"Makefile": "x: y\ny:\n\tpython3 \\\n\t  h.py\n"}),
    ("make x", "h.sh", {"Makefile": "V := $(shell ./h.sh)\nx:\n\ttrue\n"}),
    ("make x", "mk/h.mk", {"Makefile": "-include $(wildcard mk/*.mk)\n"}),
    ("make x", "Makefile.sh", {"Makefile": "x:\n\ttrue\n"}),
    ("make x", "a/h.sh", {"Makefile": "x:\n\t$(MAKE) -C a y", "a/Makefile": "y:\n\t./h.sh"}),
    ("task x", "h.sh", {"Taskfile.yml": "tasks: {x: {cmds: [./h.sh]}}"}),
    ("mypy .", "h.py", {"mypy.ini": "[mypy]\nplugins=./h.py"}),
    ("tclsh h.tcl", "h.tcl", {}),
]


@pytest.mark.parametrize(("command", "victim", "files"), CASES)
def test_a_file_that_a_command_loads_in_another_way(
    tmp_path: Path, command: str | list[str], victim: str, files: dict[str, str]
) -> None:
    for name, text in {**files, victim: files.get(victim, "")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    assert victim in found(tmp_path, command, PWD=str(tmp_path), PATH="/usr/bin")
    (tmp_path / victim).unlink()
    assert victim not in found(tmp_path, command, PWD=str(tmp_path), PATH="/usr/bin")


def test_files_that_a_command_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("x:\n\tsh a.sh\ny:\n\tsh b.sh\n")
    (tmp_path / "package.json").write_text('{"dependencies": {"a": "1"}}')
    (tmp_path / "fmt.py").write_text("# like test.py\nopen('README.md')\n")
    for name in ("a.sh", "b.sh", "test.py", "README.md", "__main__.py", ".prettierignore"):
        (tmp_path / name).touch()
    assert found(tmp_path, "make x") == ["Makefile", "a.sh"]
    assert found(tmp_path, "npx -y prettier --write .") == []
    assert found(tmp_path, "python3 fmt.py") == ["fmt.py"]


def test_arguments_of_a_script_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    assert found(tmp_path, f"python3 -I {__file__} notes") == []


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
