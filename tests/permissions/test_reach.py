"""Visible needs of a command beyond a sandbox, and the paths it reads and writes."""

from pathlib import Path
from typing import Any, cast

import pytest

from ctxagent.agent.permissions.shell.parser import parse
from ctxagent.agent.permissions.shell.reach import (
    need_beyond_sandbox,
    paths_read,
    paths_written,
)

NETWORK = [
    "curl a", "wget a", "ssh a", "git push", "git fetch --all", "git clone a", "git -C x pull",
    "git ls-remote", "npm install", "npm i x", "npm ci", "pnpm dlx x", "yarn", "yarn add x",
    "bun x y", "pip install a", "pip3 install a", "pip3.11 download a", "python -m pip install a",
    "python3.12 -m pip wheel a", "uv sync", "uv pip install a", "poetry lock", "pdm sync",
    "pipenv install", "conda create", "cargo fetch", "go get a", "gem update", "bundle install",
    "composer require a", "dotnet restore", "terraform apply", "rsync a host:b",
    "rsync me@host.org:a b", "/usr/bin/curl a", "brew list", "apt-get update", "kubectl get pods",
    "gh pr list", "ls && curl a", "echo $(curl a)", "dig a", "nc a 1", "rustup update",
]  # fmt: skip
NO_NETWORK = [
    "git status", "git commit -m push", "npm run install", "npm test", "yarn build", "pip list",
    "python -m pip list", "python -m pytest install", "uv run x", "cargo build", "go build",
    "rsync a b", "rsync ./a:b c", "echo curl", "ls curl", "make install", "terraform fmt",
    "python pip install", "pipx list", "yarnx",
]  # fmt: skip


class Box:
    """A sandbox that allows reading and writing below one folder."""

    def __init__(self, project: Path, *, by_name: bool = False) -> None:
        self.project, self.by_name = str(project), by_name

    def can_read(self, path: str) -> bool:
        return path.startswith((self.project, "/usr", "/etc"))

    def can_write(self, path: str) -> bool:
        return path.startswith(self.project)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    for name in ("a.py", "src/b.py"):
        (root / name).write_text("x")
    (tmp_path / "outside").write_text("x")
    return root


def need(project: Path, command: str, **options: Any) -> str:
    def protected(path: str) -> str:
        return ".envrc" if path.endswith(".envrc") else ""

    box = cast(Any, Box(project, **options))
    return need_beyond_sandbox(parse(command), [str(project)], box, protected)


@pytest.mark.parametrize("command", NETWORK)
def test_commands_that_need_the_network(project: Path, command: str) -> None:
    assert need(project, command).startswith("the network: `")
    assert need(project, command, by_name=True) == ""


@pytest.mark.parametrize("command", NO_NETWORK)
def test_commands_that_do_not(project: Path, command: str) -> None:
    assert need(project, command) == ""


@pytest.mark.parametrize("name", ["sudo", "doas", "su", "pkexec", "runuser"])
def test_the_rights_of_another_user(project: Path, name: str) -> None:
    for by_name in (True, False):
        reason = f"the rights of another user: `{name}`"
        assert need(project, f"/usr/bin/{name} x", by_name=by_name) == reason


@pytest.mark.parametrize(
    "name", ["docker", "podman", "systemctl", "service", "crontab", "at", "loginctl", "launchctl"]
)
def test_services_of_the_system(project: Path, name: str) -> None:
    assert need(project, f"{name} x", by_name=True) == f"a service of the system: `{name}`"


def test_the_service_is_named(project: Path) -> None:
    assert need(project, "git -C x push origin") == "the network: `git push`"
    assert need(project, "python3 -m pip install x") == "the network: `pip install`"
    assert need(project, "yarn") == "the network: `yarn`"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("touch ../new", "new"), ("echo x > ../new", "new"), ("rm ../outside", "outside"),
        ("rm -rf ..", ""), ("mv a.py ../new", "new"), ("cp a.py ../new", "new"),
        ("cp ../outside .", "outside"), ("ln -s a.py ../new", "new"), ("tee ../new", "new"),
        ("sed -i s/a/b/ ../outside", "outside"), ("sed --in-place p ../outside", "outside"),
        ("sed -ni p ../outside", "outside"), ("dd if=a.py of=../new", "new"),
        ("mkdir ../new", "new"), ("cat < ../outside", "outside"), ("cat ../outside", "outside"),
        ("wc ../out*", "outside"), ("sed -n p ../outside", "outside"),
        ("cat -- ../outside", "outside"),
        ("chmod +x ../outside", "outside"), ("install a.py ../new", "new"),
        ("patch ../outside", "outside"),
    ],
)  # fmt: skip
def test_paths_outside_of_the_project(project: Path, command: str, path: str) -> None:
    place = project.parent / path if path else project.parent
    assert need(project, command) == f"a path outside of the project: {place}"


@pytest.mark.parametrize(
    "command",
    ["touch new", "rm a.py", "mv a.py src", "cat a.py > src/new", "sed -i s/a/b/ a.py", "ls /etc",
     "cat ../missing", "cat /etc/hostname", "dd if=a.py of=new", "cp a.py src/c.py", "echo $x",
     "touch $x", "cat /", "rm -rf src"],
)  # fmt: skip
def test_paths_that_the_sandbox_gives(project: Path, command: str) -> None:
    assert need(project, command) == ""


def test_the_project_itself(project: Path) -> None:
    reason = "removing or moving the project's folder"
    for command in ("rm -rf .", f"rm -rf {project}", "mv . /x", "rmdir src/..", "mv . src"):
        assert need(project, command) == reason
    assert need(project, "cp -r . src") == ""
    assert need(project, "touch .") == ""


def test_protected_files(project: Path) -> None:
    (project / ".envrc").write_text("x")
    for command in ("touch .envrc", "echo x > .envrc", "rm .envrc", "cp a.py .envrc"):
        assert need(project, command) == "a protected file: .envrc"
    for command in ("cat .envrc", "cp .envrc b", "cat < .envrc"):
        assert need(project, command) == ""


def read(project: Path, command: str) -> list[str]:
    found = paths_read(parse(command), [str(project)])
    return [str(Path(path).relative_to(project.parent)) for path in found]


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("cat a.py src/b.py a.py", ["project/a.py", "project/src/b.py"]), ("cat missing", []),
        ("cat ../outside /etc/passwd", ["outside"]), ("wc < a.py", ["project/a.py"]),
        ("rm a.py", []), ("cp a.py src/b.py", ["project/a.py"]), ("cat *.py", ["project/a.py"]),
        ("mv a.py b", []), ("ls src", ["project/src"]), ("echo x > a.py", []), ("ls /", []),
        ("cp a.py src/b.py src", ["project/a.py", "project/src/b.py"]), ("touch a.py", []),
        ("dd if=a.py of=b", []), ("sed p a.py", ["project/a.py"]), ("sed -i p a.py", []),
    ],
)  # fmt: skip
def test_paths_that_a_command_reads(project: Path, command: str, paths: list[str]) -> None:
    assert read(project, command) == paths


def test_paths_are_read_with_links_followed(project: Path) -> None:
    (project / "link").symlink_to("../outside")
    assert read(project, "cat link") == ["outside"]


def written(project: Path, command: str) -> set[str]:
    found = paths_written(parse(command), str(project))
    return {str(Path(path).relative_to(project)) for path in found}


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("echo x > new", {"new"}), ("rm a.py", {"a.py"}), ("mv a.py b", {"a.py", "b"}),
        ("cp a.py b", {"b"}), ("cat a.py", set()), ("touch a b", {"a", "b"}),
        ("cd src && touch c", {"src/c"}), ("cd src && echo x > c", {"src/c"}),
        ("cd src && cd .. && touch c", set()), ("cd $x && touch c", set()),
        ("cd && touch c", set()),
        ("ls; cd src; touch c", set()), ("(cd src; touch c)", set()),
        ("pushd src; touch c", set()),
        ("dd if=a.py of=b", {"b"}), ("sed -i p a.py", {"a.py"}), ("sed p a.py", set()),
        ("ln -s a.py b", {"b"}), ("touch $x", set()), ("cd src x && touch c", set()),
    ],
)  # fmt: skip
def test_paths_that_a_command_writes(project: Path, command: str, paths: set[str]) -> None:
    assert written(project, command) == paths
