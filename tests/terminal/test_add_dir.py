"""/add-dir by the real command, on two sizes of screen."""

import json
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal


@pytest.mark.variants
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
def test_a_directory_is_added_listed_and_there_when_resumed(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    place = Place(tmp_path)
    folder = place.root / "home" / "library"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    read = Say(tools=[("Read", {"path": f"{folder}/a.txt"})])
    with Server([Say("Hello."), read, Say("Seen."), read, Say("Seen again.")]) as server:

        def start(*options: str) -> Terminal:
            terminal = Terminal(
                *options, cwd=place.project, env=place.server(server.url),
                columns=size[0], rows=size[1],
            )  # fmt: skip
            terminal.see("· ask")
            return terminal

        def leave(terminal: Terminal) -> None:
            terminal.rest()
            terminal.type("/exit\r")
            assert terminal.leave() == 0

        terminal = start()
        for words, shown in (
            ("hello", "Hello."),
            ("/add-dir", "works in the project only"),
            ("/add-dir nowhere", "it does not exist"),
            ("/add-dir ~/library", "checkpoints cover the"),
            ("/add-dir ../home/library", "already"),
            ("read it", "Seen."),
            ("/status", "~/library"),
        ):
            terminal.rest()
            terminal.type(f"{words}\r")
            terminal.see(shown)
        leave(terminal)
        assert f"give absolute paths): {folder}" in json.dumps(server.requests[1]["messages"])
        terminal = start("--continue")
        terminal.type("/add-dir\r")
        terminal.see("~/library")
        terminal.type("read it again\r")
        terminal.see("Seen again.")
        leave(terminal)
    assert json.dumps(server.requests[-1]["messages"]).count("give absolute paths") == 1
