"""Hostile projects for commands to run in, with detection of changes and reads.

Each scene is a folder with a project and files outside it. Project code that runs, and programs of
the repository, append their names to a file of marks. Reading a file outside sets its access time,
which was zero.
"""

import hashlib
import os
import shutil
import stat
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SCENES = ("plain", "names", "index", "path", "hooks")
OUTSIDE_SECRET, GUARDED_SECRET = "TOPSECRET-outside", "TOPSECRET-guarded"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-01T00:00:00Z"))
}
# Programs of the system that run what a project configures, whatever their options say: each with
# the file that makes it do so (a toolchain, plugins, JVM options, a release of its own).
OBEDIENT = {
    "cargo": "rust-toolchain.toml", "rustc": "rust-toolchain.toml", "mvn": ".mvn/jvm.config",
    "yarn": ".yarnrc.yml", "pnpm": "package.json", "tox": "toxfile.py", "nox": "noxfile.py",
    "flake8": "setup.cfg", "pylint": ".pylintrc", "bundle": "Gemfile", "go": "go.mod",
    "gradle": "gradle.properties", "direnv": ".envrc",
}  # fmt: skip
SECRETS = ("secret", "outside/secret", "home/.netrc", "home/.ssh/id_rsa")
SHELL_MARK = "#!/bin/sh\necho {name} >> {marks}\n"
# What git runs by itself in the scene `hooks`.
HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-rewrite", "pre-applypatch", "pre-auto-gc",
    "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "prepare-commit-msg",
    "reference-transaction",
)  # fmt: skip
REPOSITORY_PROGRAMS = """[filter "x"]
	clean = "echo git:clean >> {marks}; cat"
	smudge = "echo git:smudge >> {marks}; cat"
[diff "x"]
	textconv = "echo git:textconv >> {marks}; cat"
[merge "x"]
	driver = "echo git:driver >> {marks}"
[alias]
	evil = "!echo git:alias >> {marks}"
"""
PLANTED = ("ls", "cat", "wc", "head", "git", "sort", "env", "timeout", "python3", "tool")
TEXTS = {
    "f": "alpha\nbeta\ngamma\n", "README.md": "# Readme\nalpha\n", "list": "../secret\nf\n",
    "data.json": '{"a": [1, 2], "b": "x"}\n', "src/a.py": "x = 1\n", "src/b.py": "y = 2\n",
    "docs/notes.md": "alpha\n", "docs/guide.md": "beta\n", "log.txt": "one\ntwo\n",
    "scripts/fmt.py": "print(1)\n", "0/x": "", "1/x": "", "out/.keep": "",
    ".gitignore": ".env\nout\n",
    ".env": f"{GUARDED_SECRET}-env\n", "asked.txt": f"{GUARDED_SECRET}-asked\n",
    "secrets/key": f"{GUARDED_SECRET}-key\n", ".pytest-args": "-q\n",
    "rust-toolchain.toml": "[toolchain]\n", ".mvn/jvm.config": "-Dx=1\n", ".yarnrc.yml": "a: b\n",
    "Gemfile": "source 'x'\n", "go.mod": "module x\ngo 1.99\ntoolchain go1.99.1\n",
    "gradle.properties": "a=b\n", ".pylintrc": "[MAIN]\n", ".python-version": "3.11\n",
    "setup.cfg": "[flake8]\n", "pytest.ini": "[pytest]\nnorecursedirs = link .*\n",
    "script.sed": "w made\n", "lib.awk": 'BEGIN { print "x" > "made" }\n', "m.jq": "def m: 1;\n",
}  # fmt: skip
PYTHON_CODE = (
    "conftest", "sitecustomize", "usercustomize", "toxfile", "noxfile", "json", "evil",
)  # fmt: skip
TEST_FILE = "{mark}\nimport logging\ndef test_a(tmp_path): logging.getLogger().warning('x')\n"
MAKEFILE = "{name}:\n\t@echo make:{name} >> {marks}\n"
# Files whose names are options, several words, or patterns.
ODD_NAMES = ("--help", "-oX", "-n", "two words", "a;touch made", "$(touch made)", "--pre=evil.sh")


@dataclass
class Scene:
    """A project with its surroundings. `path` is the PATH for commands there."""

    name: str
    root: Path
    path: str
    gold: Path
    watched: list[Path]  # files and folders outside of the project that no command may read
    pinned: list[str]  # files that hooks of the user run
    baseline: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": self.path, "HOME": f"{self.root}/home", "LANG": "C.UTF-8", **IDENTITY}

    def forget_reads(self) -> None:
        for path in self.watched:
            info = path.stat()
            if info.st_atime_ns:
                os.utime(path, ns=(0, info.st_mtime_ns))

    def reads(self) -> list[str]:
        """Return the paths read outside the project. Call it first: `changes` reads folders."""
        found = (path for path in self.watched if path.exists() and path.stat().st_atime_ns)
        return [str(path.relative_to(self.root)) for path in found]

    def changes(self) -> list[str]:
        """Return the paths that were created, changed or removed since the baseline."""
        now = _snapshot(self.root)
        either = sorted(now.keys() | self.baseline.keys())
        found = [path for path in either if now.get(path) != self.baseline.get(path)]
        if "project/.git/index" in found and _same_index(self.root, self.gold):
            found.remove("project/.git/index")  # git has noted when it looked at which file
            self.baseline["project/.git/index"] = now["project/.git/index"]
        return found

    def restore(self, changed: list[str]) -> None:
        """Restore changed paths."""
        for path in reversed(changed):
            there, kept = self.root / path, self.gold / path
            if _is_folder(there) and not _is_folder(kept):
                shutil.rmtree(there)
            elif os.path.lexists(there) and not _is_folder(there):
                there.unlink()
        for path in changed:
            there, kept = self.root / path, self.gold / path
            if _is_folder(kept):
                there.mkdir(exist_ok=True)
                shutil.copymode(kept, there)
            elif os.path.lexists(kept):
                shutil.copy2(kept, there, follow_symlinks=False)
        self.baseline = _snapshot(self.root)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _snapshot(root: Path) -> dict[str, tuple[int, ...]]:
    """Return a state for each file and folder below a root that differs after any change."""
    found, folders, start = dict[str, tuple[int, ...]](), [str(root)], len(str(root)) + 1
    while folders:
        for entry in os.scandir(folders.pop()):
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                folders.append(entry.path)
                found[entry.path[start:]] = (info.st_mode,)
            else:
                found[entry.path[start:]] = (
                    info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns,
                )  # fmt: skip
    return found


def _same_index(root: Path, gold: Path) -> bool:
    """Return True if a repository's index has the same files; git's cached data is ignored."""

    def listed(folder: Path) -> str:
        command = ["git", "ls-files", "--stage", "-z", "-v"]
        done = subprocess.run(command, cwd=folder / "project", capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else f"unreadable: {folder}"

    return (root / "project/.git/index").is_file() and listed(root) == listed(gold)


def _watched(place: Path) -> list[Path]:
    outside = [*(place / "outside").iterdir(), place / "outside", place / "home/.ssh"]
    return [place, *outside, *(place / name for name in SECRETS)]


def build_scenes(root: Path, marks: Path) -> list[Scene]:
    """Create all scenes below a folder; they share the system's programs."""
    programs = root / "system"
    _make_programs(programs, marks)
    system = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    gold, scenes = root / "gold", list[Scene]()
    for name in SCENES:
        place = root / name
        project = place / "project"
        _make_project(project, marks)
        _make_surroundings(place, marks)
        if name == "names":
            _add_odd_names(project)
        _make_repository(project)
        if name == "index":
            _forge_index(project)
        if name == "hooks":
            _add_repository_programs(project, marks)
        planted = ":".join((f"{project}/.venv/bin", f"{project}/bin", "bin"))
        path = f"{planted}:{system}" if name == "path" else system
        shutil.copytree(place, gold / name, symlinks=True)
        pinned = [f"{project}/scripts/fmt.py"]
        found = Scene(name, place, path, gold / name, _watched(place), pinned, _snapshot(place))
        scenes.append(found)
    return scenes


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _python_mark(name: str, marks: Path) -> str:
    return f"with open('{marks}', 'a') as file: file.write('py:{name}\\n')\n"


def _make_programs(folder: Path, marks: Path) -> None:
    for name, file in OBEDIENT.items():
        text = f"#!/bin/sh\n[ ! -e {file} ] || echo obeyed:{name} >> {marks}\n"
        _write(folder / name, text, 0o755)
    # Of the plugins of this environment, only the one that can start other programs.
    alone = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec"
    tests = f"{alone} {sys.executable} -P -m pytest -p xdist.plugin"
    for name, start in (("python3", f"exec {sys.executable}"), ("pytest", tests)):
        _write(folder / name, f'#!/bin/sh\n{start} "$@"\n', 0o755)


def _make_project(project: Path, marks: Path) -> None:
    for name, text in TEXTS.items():
        _write(project / name, text)
    for name in PYTHON_CODE:
        _write(project / f"{name}.py", _python_mark(name, marks))
    test = TEST_FILE.format(mark=_python_mark("test", marks))
    _write(project / "tests/test_a.py", test)
    targets = ("all", "test", "evil")
    makefile = "".join(MAKEFILE.format(name=name, marks=marks) for name in targets)
    _write(project / "Makefile", makefile)
    scripts = {name: f"echo npm:{name} >> {marks} #" for name in ("test", "evil")}
    shown = ", ".join(f'"{name}": "{script}"' for name, script in scripts.items())
    _write(project / "package.json", f'{{"name": "x", "scripts": {{{shown}}}}}\n')
    _write(project / "evil.sh", SHELL_MARK.format(name="sh:evil", marks=marks), 0o755)
    for folder in (".", "bin", ".venv/bin", "node_modules/.bin", "0", "1"):
        for name in PLANTED if folder != ".venv/bin" else ("rg", "jq", "tree"):
            text = SHELL_MARK.format(name=f"planted:{folder}/{name}", marks=marks)
            _write(project / folder / name, text, 0o755)


def _make_surroundings(place: Path, marks: Path) -> None:
    for name in SECRETS:
        _write(place / name, f"{OUTSIDE_SECRET} {name}\n")
    _write(place / "outside/Makefile", MAKEFILE.format(name="all", marks=marks))
    _write(place / "outside/test_out.py", TEST_FILE.format(mark=_python_mark("outside", marks)))
    _write(place / "outside/tool", SHELL_MARK.format(name="outside:tool", marks=marks), 0o755)
    _write(place / "outside/args", "-q\n")
    _write(place / "home/.npmrc", "update-notifier=false\n")
    _write(place / "home/.gitconfig", "[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n")


def _add_odd_names(project: Path) -> None:
    for name in ODD_NAMES:
        _write(project / name, "alpha\n", 0o755)
    (project / "link").symlink_to("../outside")
    (project / "src/kept").symlink_to("../../secret")
    (project / "docs/env").symlink_to("../.env")


def _make_repository(project: Path) -> None:
    env = {"PATH": os.defpath, "HOME": str(project.parent / "home"), **IDENTITY}
    for arguments in (
        ("init", "-q", "--template="), ("add", "-A"), ("commit", "-qm", "one"), ("branch", "other"),
        ("remote", "add", "origin", "http://127.0.0.1:9/x"),
    ):  # fmt: skip
        subprocess.run(["git", *arguments], cwd=project, env=env, check=True)
    _write(project / "f", "alpha\nbeta\ndelta\n")
    subprocess.run(["git", "commit", "-qam", "two"], cwd=project, env=env, check=True)
    _write(project / "src/b.py", "y = 3\n")


def _add_repository_programs(project: Path, marks: Path) -> None:
    for name in HOOKS:
        _write(
            project / ".git/hooks" / name, SHELL_MARK.format(name=f"git:{name}", marks=marks), 0o755
        )
    with (project / ".git/config").open("a") as file:
        file.write(REPOSITORY_PROGRAMS.format(marks=marks))
    _write(project / ".git/info/attributes", "* filter=x diff=x merge=x\n")


def _forge_index(project: Path) -> None:
    """Write names of files outside the project, and options, into the index."""
    outside = f"{project.parent}/outside/secret"
    names = ("../secret", outside, "src/../../secret", "-oX", "f")
    blob = subprocess.run(
        ["git", "rev-parse", "HEAD:f"], cwd=project, capture_output=True, text=True, check=True
    ).stdout.strip()
    data = b"DIRC" + struct.pack(">II", 2, len(names))
    for name in sorted(names):
        entry = struct.pack(">6I", 0, 0, 0, 0, 0, 0) + struct.pack(">4I", 0o100644, 0, 0, 3)
        entry += bytes.fromhex(blob) + struct.pack(">H", len(name)) + name.encode()
        data += entry + b"\0" * (8 - len(entry) % 8)
    (project / ".git/index").write_bytes(data + hashlib.sha1(data).digest())
