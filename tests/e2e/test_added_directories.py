"""`--add-dir`, `permissions.directories`: more directories in which the agent may work."""

import json
from pathlib import Path
from typing import Any

import pytest
from acp.schema import TextContentBlock

from ..support.command import Place
from ..support.editor import Editor, edit
from ..support.machine import needs_bwrap
from ..support.server.loopback import Say, Server


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    library(place).mkdir()
    (library(place) / "a.txt").write_text("alpha\n")
    return place


def library(place: Place) -> Path:
    return place.root / "library"


def run(place: Place, server: Server, *options: str) -> Any:
    return place.run("-p", "go", *options, env=place.server(server.url))


def results(server: Server) -> list[str]:
    """The results of the calls in the newest request, as text."""
    blocks = server.requests[-1]["messages"][-1]["content"]
    return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]


def work(folder: Path) -> Say:
    return Say(
        tools=[
            ("Read", {"path": f"{folder}/a.txt"}),
            ("Grep", {"pattern": "alp", "path": str(folder)}),
            ("Write", {"path": f"{folder}/b.txt", "content": "made"}),
            ("Bash", {"command": f"cat {folder}/a.txt"}),
            ("Write", {"path": f"{folder}/.git/config", "content": "made"}),
        ]
    )


def test_session_works_in_added_directory_and_after_resume(place: Place) -> None:
    folder = library(place)
    accept = ("--permission-mode", "accept-edits")
    with Server([work(folder), Say("Done."), work(folder), Say("Done.")]) as server:
        done = run(place, server, "--add-dir", "../library", *accept)
        assert done.returncode == 3, done.stderr  # .git is guarded
        told = json.dumps(server.requests[0]["messages"])
        assert told.count(f"give absolute paths): {folder}") == 1
        for _ in range(2):
            read, found, _, shown, guarded = results(server)
            assert "alpha" in read
            assert "a.txt" in found
            assert (folder / "b.txt").read_text() == "made"
            assert "alpha" in shown
            assert ".git is protected" in guarded
            (folder / "b.txt").unlink()
            if len(server.requests) == 2:
                done = run(place, server, "--continue", *accept)
                assert done.returncode == 3, done.stderr
    told = json.dumps(server.requests[-1]["messages"])
    assert told.count(f"give absolute paths): {folder}") == 1
    (row,) = [e for e in place.entries() if e.get("details", {}).get("directories")]
    assert row["details"]["directories"] == {str(folder): str(folder)}


def test_without_the_option_the_same_calls_are_refused(place: Place) -> None:
    with Server([work(library(place)), Say("Done.")]) as server:
        run(place, server, "--permission-mode", "accept-edits")
    assert all("outside the project" in text for text in results(server)[:3])
    assert not (library(place) / "b.txt").exists()


def test_mode_and_rules_apply_in_added_directory(place: Place) -> None:
    folder = library(place)
    (folder / ".env").write_text("KEY=1\n")
    calls = Say(
        tools=[
            ("Write", {"path": f"{folder}/b.txt", "content": "made"}),
            ("Read", {"path": f"{folder}/.env"}),
        ]
    )
    with Server([calls, Say("Done.")]) as server:
        run(place, server, "--add-dir", str(folder), "--deny", "Read(.env)")
    wrote, read = results(server)
    assert "mode `ask` requires approval for edits" in wrote
    assert "denied by the rule Read(.env)" in read


@needs_bwrap
def test_sandboxed_commands_write_there_except_protected_names(place: Place) -> None:
    folder = library(place)
    (folder / ".agentrc").write_text("")
    hidden = f"cd {folder} && f=.agent && echo x >> ${{f}}rc || echo kept"
    commands = [f"echo made > {folder}/c.txt", hidden]
    calls = Say(tools=[("Bash", {"command": command}) for command in commands])
    with Server([calls, Say("Done.")]) as server:
        done = run(place, server, "--add-dir", str(folder), "--permission-mode", "sandboxed")
    assert done.returncode == 0, done.stderr
    assert (folder / "c.txt").read_text() == "made\n"
    assert (folder / ".agentrc").read_text() == ""


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("nowhere", "it does not exist"),
        ("library/a.txt", "it is not a directory"),
        ("/", "it is the root"),
        ("home", "it is your home folder"),
        (".", "it is your home folder"),
        ("state/projects", "is protected"),
        ("library/.git", ".git is protected"),
    ],
)
def test_directories_that_cannot_be_added(place: Place, named: str, why: str) -> None:
    for each in ("library/.git", "state/projects"):
        (place.root / each).mkdir(parents=True)
    with Server([Say("Done.")]) as server:
        done = run(place, server, "--add-dir", str(place.root / named))
    assert done.returncode == 2
    assert why in done.stderr
    assert server.requests == []


def test_the_state_folder_is_not_opened_by_a_folder_above_it(place: Place) -> None:
    (place.root / "outer").mkdir()
    env = {"CTXAGENT_STATE_DIR": str(place.root / "outer" / "state")}
    with Server([Say("Done.")]) as server:
        done = place.run(
            "-p", "go", "--add-dir", str(place.root / "outer"),
            env={**place.server(server.url), **env},
        )  # fmt: skip
    assert done.returncode == 2
    assert "where the agent keeps its own files" in done.stderr


def test_untrusted_project_file_adds_no_directory(place: Place) -> None:
    folder = library(place)
    rows = f'[permissions]\ndirectories = ["{folder}"]\n'
    (place.project / ".agentrc").write_text(rows)
    read = Say(tools=[("Read", {"path": f"{folder}/a.txt"})])
    with Server([read, Say("Done."), read, Say("Done.")]) as server:
        done = run(place, server)
        assert "permissions.directories in it was ignored" in done.stderr
        assert "outside the project" in results(server)[0]
        place.run("config", "--trust", stdin="y\n", env=place.server(server.url))
        run(place, server)
        assert "alpha" in results(server)[0]


def test_resume_leaves_out_a_directory_that_leads_elsewhere(place: Place) -> None:
    link = place.root / "link"
    link.symlink_to(library(place))
    with Server([Say("One."), Say("Two.")]) as server:
        run(place, server, "--add-dir", str(link))
        link.unlink()
        link.symlink_to("/usr")
        done = run(place, server, "--continue")
    assert f"continues without {link}" in done.stderr


def test_subagent_works_in_added_directory(place: Place) -> None:
    folder = library(place)
    task = ("Task", {"description": "look", "prompt": "look", "type": "explore"})
    read = Say(tools=[("Read", {"path": f"{folder}/a.txt"})])
    with Server([Say(tools=[task]), read, Say("Seen."), Say("Done.")]) as server:
        done = run(place, server, "--add-dir", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"give absolute paths): {folder}" in json.dumps(server.requests[1]["messages"])
    assert "alpha" in json.dumps(server.requests[2]["messages"][-1])


def test_in_an_editor_it_is_added_by_the_option_and_by_the_command(place: Place) -> None:
    other = place.root / "other"
    other.mkdir()
    (other / "a.txt").write_text("alpha\n")
    calls = [("Read", {"path": f"{each}/a.txt"}) for each in (library(place), other)]

    async def act(editor: Editor) -> None:
        new = await editor.agent.new_session(str(place.project))
        for words in ("/add-dir ../other", "read both"):
            said = TextContentBlock(type="text", text=words)
            await editor.agent.prompt(new.session_id, [said])
        await editor.until(lambda: "checkpoints cover the project only" in editor.text)

    with Server([Say(tools=calls), Say("Done.")]) as server:
        edit(place, place.server(server.url), act, "--add-dir", str(library(place)))
    assert all("alpha" in text for text in results(server))
