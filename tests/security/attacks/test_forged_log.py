"""A log written by somebody else: the files that it names are in its own folder or do not exist."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.loop.resume import CACHE_NAME, LOG_STATE_NAME
from ctxagent.agent.session.entries import decode
from ctxagent.agent.session.listing import CATALOGUE_NAME
from ctxagent.agent.session.log import LOG_NAME
from ctxagent.agent.session.store import entry_text
from ctxagent.agent.session.titles import TITLE_NAME
from ctxagent.tools.system.files import copy_private, copy_tree_private

from ...support.command import Place
from ...support.server.loopback import Say, Server

SECRET = "a secret of somebody else"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A project with one session, and files outside of it."""
    made = Place(tmp_path)
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("secret", "deep/other", "log.jsonl"):
        (outside / name).write_text(f"{SECRET}\n")
    with Server([Say("Hello.")]) as server:
        done = made.run("-p", "hi", env=made.server(server.url))
    assert done.returncode == 0, done.stderr
    yield made
    assert {path.read_text() for path in outside.rglob("*") if path.is_file()} == {f"{SECRET}\n"}


def forge(place: Place, **fields: Any) -> Path:
    """Add an entry to the log."""
    (log,) = place.logs()
    last = json.loads(log.read_text().splitlines()[-1])
    with log.open("a") as file:
        file.write(json.dumps({**last, **fields, "seq": last["seq"] + 1}) + "\n")
    return log


def agent(id: str) -> dict[str, Any]:
    return {"kind": "agent", "id": id, "type": "t", "prompt": "p", "log": f"{id}/log.jsonl",
            "status": "done"}  # fmt: skip


def names(place: Place) -> list[str]:
    """Names of the files outside, as a forged log may write them."""
    outside = place.root / "outside"
    (log,) = place.logs()
    above = "../" * (len(log.parent.parts) - 1)
    return [str(outside / "secret"), f"{above}{outside}/secret", f"offloaded/../{outside}/secret"]


@pytest.mark.parametrize("form", ["{outside}", "../../../../../../../../../..{outside}", ".", ".."])
def test_a_fork_copies_no_tree_onto_itself(place: Place, form: str) -> None:
    """The log has an ID that is a path. The files outside are checked at the end of the test."""
    log = forge(place, **agent(form.format(outside=place.root / "outside")))
    done = place.run("sessions", "fork", log.parent.name)
    assert done.returncode == 0, done.stderr
    new = [path for path in place.logs() if path != log]
    assert len(new) == 1
    kept = {p.name for p in new[0].parent.rglob("*") if p.is_file()}
    assert "other" not in kept
    shown = place.run("log", "--help").returncode + place.run("sessions", "list").returncode
    assert shown == 0


def test_without_the_guard_it_does(place: Place, tmp_path: Path) -> None:
    """An unguarded fork joined each subagent's ID to both folders, and copied."""
    victim = tmp_path / "victim"
    shutil.copytree(place.root / "outside", victim)
    source, target = tmp_path / "one" / str(victim), tmp_path / "two" / str(victim)
    assert source == target == victim
    for path in [p for p in source.rglob("*") if p.is_file()]:
        with path.open("rb") as old, (target / path.relative_to(source)).open("wb") as new:
            shutil.copyfileobj(old, new)
    assert {path.stat().st_size for path in victim.rglob("*") if path.is_file()} == {0}


def test_copying_a_tree_onto_itself_changes_nothing(place: Place, tmp_path: Path) -> None:
    tree = place.root / "outside"
    (tmp_path / "link").symlink_to(tree)
    for target in (tree, tree / "deep", tree / "new" / "er", tmp_path / "link" / "new"):
        with pytest.raises(OSError, match="into itself"):
            copy_tree_private(tree, target)
    (tmp_path / "file").symlink_to(tree / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        copy_private(tree / "secret", tmp_path / "file")
    os.link(tree / "secret", tmp_path / "name")
    with pytest.raises(OSError, match="very file"):
        copy_private(tree / "secret", tmp_path / "name")


def test_neither_recall_nor_export_nor_doctor_reads_outside(place: Place) -> None:
    for name in names(place):
        forge(place, kind="user", source="shell", content="x", offloaded=name)
        forge(place, kind="checkpoint", number=1, path=name)
    (log,) = place.logs()
    (log.parent / "offloaded").mkdir(exist_ok=True)
    (log.parent / "offloaded" / "linked.md").symlink_to(place.root / "outside" / "secret")
    forge(place, kind="user", source="shell", content="x", offloaded="offloaded/linked.md")
    last = len(log.read_text().splitlines())
    calls = [("Recall", {"ref": f"#{number}"}) for number in range(1, last + 1)]
    search = ("Recall", {"query": "secret of somebody"})
    with Server([Say(tools=[*calls, search]), Say("Done.")]) as server:
        env = place.server(server.url)
        assert place.run("-p", "look", "--continue", env=env).returncode == 0
        for command in ("doctor", "log"):
            assert SECRET not in place.run(command, env=env).stdout
        done = place.run("sessions", "export", log.parent.name, env=env)
    assert SECRET not in json.dumps(server.requests)
    assert SECRET not in done.stdout


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "socket"])
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(
    place: Place, kind: str
) -> None:
    (log,) = place.logs()
    folder = log.parent / "offloaded"
    folder.mkdir(exist_ok=True)
    if kind == "fifo":
        os.mkfifo(folder / "it")
    elif kind == "zero":
        (folder / "it").symlink_to("/dev/zero")
    elif kind == "folder":
        (folder / "it").mkdir()
    else:
        os.mknod(folder / "it", 0o140600)
    forge(place, kind="user", source="shell", content="x", offloaded="offloaded/it")
    assert place.run("sessions", "export", log.parent.name).returncode == 0
    assert place.run("sessions", "fork", log.parent.name).returncode == 0
    line = {"seq": 9, "at": "", "kind": "user", "content": "shown", "offloaded": "offloaded/it"}
    assert entry_text(decode(line), log.parent) == "shown"


def test_a_log_that_is_a_fifo_is_not_waited_for(place: Place) -> None:
    (log,) = place.logs()
    other = log.parent.parent / "20260101-000000-abcdef"
    other.mkdir()
    os.mkfifo(other / LOG_NAME)
    assert place.run("sessions", "list").returncode == 0
    done = place.run("sessions", "export", other.name)
    assert done.returncode == 1
    assert "no regular file" in done.stderr


def test_a_fork_follows_no_link(place: Place) -> None:
    log = forge(place, **agent("a"))
    outside, folder = place.root / "outside", log.parent
    (folder / "agents").mkdir()
    links = {"agents/a": outside, "offloaded": outside, "conversation.md": outside / "secret"}
    for name, target in {**links, "summary.md": "/dev/zero"}.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    assert SECRET in (folder / "agents/a/secret").read_text()  # what following them gives
    assert place.run("sessions", "fork", folder.name).returncode == 0
    [copy] = [path.parent for path in place.logs() if path != log]
    assert all(SECRET not in path.read_text() for path in copy.rglob("*") if path.is_file())
    assert not any(path.is_symlink() for path in copy.rglob("*"))


@pytest.mark.parametrize("name", ["conversation.md", LOG_NAME])
def test_a_session_is_not_written_through_a_link(place: Place, name: str) -> None:
    """The files outside are checked at the end of the test."""
    (log,) = place.logs()
    (log.parent / name).unlink()
    (log.parent / name).symlink_to(place.root / "outside" / "secret")
    with Server([Say("Hello again.")]) as server:
        place.run("-p", "on", "--continue", env=place.server(server.url))


def test_a_fifo_next_to_a_log_does_not_block(place: Place) -> None:
    (log,) = place.logs()
    for name in (CACHE_NAME, LOG_STATE_NAME, TITLE_NAME):
        (log.parent / name).unlink(missing_ok=True)
        os.mkfifo(log.parent / name)
    catalogue = log.parents[2] / CATALOGUE_NAME
    catalogue.unlink(missing_ok=True)
    os.mkfifo(catalogue)
    assert place.run("sessions", "list").returncode == 0
    with Server([Say("Hello again.")]) as server:
        done = place.run("-p", "on", "--continue", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
