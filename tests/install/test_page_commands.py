"""The commands of README.md and the guide work for a reader who has installed ctxagent as README.md
says. Commands of which the page says what they need are left out.

The model is scripted. pip uses its usual index.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.pages.checks import call_of, forms, simple_commands
from ..support.pages.commands import PAGES, PageCommand, commands_of, files_of
from ..support.pages.reader import Reader, answer, copy_checkout
from ..support.server.loopback import Server

pytestmark = [pytest.mark.full, pytest.mark.timeout(3_000)]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of this project, and next to it the environment into which it is installed. All
    workers share them.
    """
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reader"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            copy_checkout(place / "ctxagent")
            install(place / "environment", place / "ctxagent")
            (place / "ready").touch()
    return place / "ctxagent"


def install(environment: Path, checkout: Path) -> None:
    subprocess.run(["python3", "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "pip", "install", "--quiet", "."]
    subprocess.run(pip, cwd=checkout, check=True)


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path, checkout: Path) -> Iterator[Reader]:
    """A reader of the page; a page that changes the environment gets one of its own."""
    environment = checkout.parent / "environment"
    if any(is_pip(command) for command in commands_of(request.getfixturevalue("page"))):
        environment = tmp_path / "environment"
        install(environment, checkout)
    with Server(answer) as server:
        reader = Reader(tmp_path, checkout, environment, server.url)
        reader.move_in()
        yield reader
        assert server.rejected == []


def is_pip(command: PageCommand) -> bool:
    return command.text.startswith("pip ") and not command.needs


def is_complete(form: str) -> bool:
    """Return False for a text that only names a command, such as `ctxagent fleet run`."""
    calls = [call_of(words) for words in simple_commands(form)]
    return all(call.complete for call in calls if call)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_page_works(page: Path, reader: Reader) -> None:
    reader.save(dict(files_of(page)))
    failed, seen = [], set[str]()
    for command in commands_of(page):
        if command.needs or (command.text in seen and not command.in_block):
            continue
        seen.add(command.text)
        for form in filter(is_complete, forms(command.text)):
            done = reader.follow(form)
            if done.code:
                failed.append(f"{command.place}: exit code {done.code}\n{done.said[-2_000:]}")
    assert failed == []
