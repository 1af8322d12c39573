"""`/rewind` with the real command: files that the snapshot of the point left out."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

LARGE = "line of text\n" * 900_000


def rewrite(path: str, content: str) -> Iterator[Say]:
    yield Say(tools=[("Read", {"path": path})])
    yield Say(tools=[("Write", {"path": path, "content": content})])
    while True:
        yield Say("Done.")


def contents(folder: Path) -> dict[str, str]:
    names = (".gitignore", ".env", "data/x.csv", "big.txt")
    return {name: (folder / name).read_text() for name in names if (folder / name).exists()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "content"), [("big.txt", "small\n"), (".gitignore", "*.log\n")], ids=["large", "rules"]
)
def test_rewind_of_files_that_the_snapshot_left_out(
    tmp_path: Path, path: str, content: str
) -> None:
    place = Place(tmp_path)
    (place.project / "data").mkdir()
    files = {".gitignore": "data/\n.env\n", ".env": "SECRET=1\n", "data/x.csv": "precious\n"}
    for name, text in {**files, "big.txt": LARGE}.items():
        (place.project / name).write_text(text)
    who = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in ("init -q", "add .", "commit -qm First"):
        subprocess.run([*who, *words.split()], cwd=place.project, check=True)
    was, steps = contents(place.project), rewrite(path, content)

    def reply(body: Body) -> Say:
        return next(steps)

    with Server(reply) as server:
        env = place.server(server.url)
        done = place.run("-p", "do it", "--permission-mode", "bypass", env=env)
        assert done.returncode == 0, done.stderr
        changed = contents(place.project)
        assert changed == {**was, path: content}
        terminal = Terminal("--continue", cwd=place.project, env=env)
        terminal.see("❯")
        for number, wanted in ((1, was), (2, changed), (3, was)):
            terminal.type(f"/rewind {number} files\r")
            terminal.keys("[y]es, restore the files")
            terminal.type("y")
            terminal.see(f"to undo this: /rewind {number + 1} files")
            terminal.rest()
            assert contents(place.project) == wanted
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
