"""The Dockerfile: what can be told of it without building it; `make container-check` builds it."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxagent import __version__
from ctxagent.tests.install.container import (
    IMAGE,
    CheckFailed,
    Stage,
    build,
    check,
    copy,
    take,
)
from ctxagent.tests.install.dockerfile import (
    Context,
    Copy,
    DockerfileError,
    EntryPoint,
    Env,
    From,
    Run,
    User,
    WorkDir,
    read_steps,
)

from ..support.machine import program, skip_without

ROOT = Path(__file__).parents[2]
STEPS = read_steps((ROOT / "Dockerfile").read_text())
TOPS = ("agent", "tools", "api", "addons")
LAST = STEPS[max(number for number, step in enumerate(STEPS) if isinstance(step, From)) :]


def test_it_ends_as_an_ordinary_user_with_the_program() -> None:
    assert [step for step in LAST if isinstance(step, EntryPoint)] == [EntryPoint(("ctxagent",))]
    users = [step.name for step in LAST if isinstance(step, User)]
    assert users
    assert users[-1] not in ("root", "0")


def test_every_image_has_a_stand_in_and_every_stage_that_is_copied_from_is_there() -> None:
    stages = set[str]()
    for step in STEPS:
        if isinstance(step, From):
            assert IMAGE.fullmatch(step.image), step
            stages.add(step.name)
        elif isinstance(step, Copy) and step.stage is not None:
            assert step.stage in stages, step


def test_it_has_the_programs_that_the_agent_uses() -> None:
    commands = " ".join(step.command for step in LAST if isinstance(step, Run))
    for package in ("bubblewrap", "ca-certificates", "git", "python3"):
        assert package in commands.split()


def test_what_the_wheel_is_made_of_is_in_the_context_and_nothing_else() -> None:
    given = {name for name in Context(ROOT).files() if not name.startswith(".git/")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tool = project["tool"]["setuptools"]
    shared = [*tool["script-files"], *(path for [path] in tool["data-files"].values())]
    beside = {"__init__.py", "__main__.py", "py.typed", "setup.py", "pyproject.toml",
              "constraints.txt", "README.md", "LICENSE", *shared}  # fmt: skip
    assert beside <= given
    others = [name for name in given - beside if name.split("/")[0] not in TOPS]
    assert others == []
    assert not [name for name in given if "__pycache__" in name]
    files = {path for top in TOPS for path in (ROOT / top).rglob("*.*")}
    assert {str(f.relative_to(ROOT)) for f in files if f.parent.name != "__pycache__"} <= given


def test_of_the_repository_only_what_tells_the_commit_is_given(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    for name in ("HEAD", "config", "packed-refs", "objects/ab/cd", "refs/heads/main", "hooks/post"):
        (tmp_path / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".git" / name).touch()
    (tmp_path / ".env").write_text("KEY=1\n")
    assert Context(tmp_path).files() == [".git/HEAD", ".git/packed-refs", ".git/refs/heads/main"]


def test_dockerignore_is_read_as_docker_does(tmp_path: Path) -> None:
    for name in ("a/x.py", "a/b/__pycache__/y", "c/z", "top.md", "keep.md", "d/e/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".dockerignore").write_text("# a line\n*.md\n!keep.md\n**/__pycache__\nd\n!d/e\n")
    given = Context(tmp_path).files()
    assert given == [".dockerignore", "a/x.py", "c/z", "d/e/f", "keep.md"]


def test_steps_are_read() -> None:
    text = """\
# a comment
FROM debian:trixie-slim AS one
RUN a \\
    # a comment within
    && b
ENV A=1 \\
    B="two words"
COPY --from=one /x /y

USER me
WORKDIR /w
ENTRYPOINT ["p", "q"]
"""
    assert read_steps(text) == [
        From("debian:trixie-slim", "one"),
        Run("a && b"),
        Env((("A", "1"), ("B", "two words"))),
        Copy(("/x",), "/y", "one"),
        User("me"),
        WorkDir("/w"),
        EntryPoint(("p", "q")),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "VOLUME /state", "HEALTHCHECK NONE", "RUN", "RUN --mount=type=cache x", 'RUN ["a"]',
        "RUN <<EOF", "COPY --chown=me a b", "COPY a", "COPY *.py /x", "ENV A 1", "ENTRYPOINT a b",
        "ENTRYPOINT 1", "FROM a b", "what is this",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named_with_its_line(line: str) -> None:
    with pytest.raises(DockerfileError, match=f"^Dockerfile:3: .*{re.escape(line)}"):
        read_steps(f"FROM debian:trixie-slim\n\n{line}\n")


def test_no_stage_no_steps() -> None:
    with pytest.raises(DockerfileError, match="begin with FROM"):
        read_steps("RUN true\n")


def test_steps_that_need_no_process(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".dockerignore").write_text("secret\n")
    (tmp_path / "project" / "a").write_text("of the project")
    (tmp_path / "project" / "secret").touch()
    one, two = (Stage(tmp_path / name) for name in ("one", "two"))
    for stage in (one, two):
        stage.root.mkdir()
    take(WorkDir("/source"), one)
    context = Context(tmp_path / "project")
    copy(Copy((".",), ".", None), one, context, {})
    copy(Copy(("/source",), "/put/here", "one"), two, context, {"one": one})
    assert sorted(path.name for path in (two.root / "put/here").iterdir()) == [".dockerignore", "a"]
    take(Env((("A", "x"), ("PATH", "/opt:$PATH:${A}"))), two)
    assert two.environ == {"A": "x", "PATH": "/opt:/usr/sbin:/usr/bin:/sbin:/bin:"}
    (two.root / "way").symlink_to(tmp_path)
    with pytest.raises(CheckFailed, match="leads out"):
        copy(Copy((".",), "/way/out", None), two, context, {})
    with pytest.raises(CheckFailed, match="no stand-in"):
        build([From("alpine:3", "")], context, tmp_path)


def tiny_root(root: Path) -> None:
    """Make a root with a shell, a few programs of this machine, and a user."""
    names = ("sh", "env", "setpriv", "setsid", "umount", "id", "sleep")
    skip_without("ldd", *names)
    for name in names:
        found = program(name) or name
        linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(found, root / "usr/bin")
        for library in re.findall(r"(/\S+) \(0x", linked):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
    for name in ("proc", "dev", "sys", "etc", "run"):
        (root / name).mkdir()
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nsomebody:x:1234:1234::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nsomebody:x:1234:\n")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")
def test_commands_run_in_the_root_as_its_user(tmp_path: Path) -> None:
    skip_without("unshare")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    tiny_root(tmp_path / "root")
    stage = Stage(tmp_path / "root")
    steps = [
        Env((("A", "x y"),)),
        WorkDir("/place"),
        Run('id -u > who; echo "$A" > a; pwd > where'),
    ]
    for step in steps:
        take(step, stage)
    place = stage.root / "place"
    assert [(place / name).read_text() for name in ("who", "a", "where")] == [
        "0\n", "x y\n", "/place\n",
    ]  # fmt: skip
    for step in (User("somebody"), Run("[ $(id -u) = 1234 ] && [ $$ -lt 20 ] && ! [ -e /home ]")):
        take(step, stage)
    for command in ("exit 3", "echo > /not-mine", "no-such-program"):
        with pytest.raises(CheckFailed, match=command):
            take(Run(command), stage)


@pytest.mark.parametrize(
    ("said", "user_id", "wrong"),
    [
        ({}, "0\n", "the user of the container is 0"),
        ({"--version": "ctxagent 0\n"}, "1000\n", "--version says"),
        (
            {"doctor": '{"findings": [{"ok": false, "what": "git", "found": ""}]}'},
            "1",
            "wrong: git",
        ),
        ({"demo": "and then it stopped"}, "1000", "the demo did not come"),
    ],
)
def test_a_container_that_is_not_well_is_found(
    said: dict[str, str], user_id: str, wrong: str
) -> None:
    whole = {
        "--version": f"ctxagent {__version__} (commit 0123456, Python 3.13.5)\n",
        "doctor": '{"findings": [{"ok": false, "what": "credentials", "found": "none"}]}',
        "demo": "The project and the session of this demo are deleted.\n",
    }

    def start(words: Sequence[str], answers: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(words, 0, answers[words[0]], "")

    check(lambda words: start(words, whole), "1000\n")
    with pytest.raises(CheckFailed, match=wrong):
        check(lambda words: start(words, whole | said), user_id)
