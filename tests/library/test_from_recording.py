"""Sessions from recordings: they have no secrets of this machine, and a failed write leaves no
files.
"""

from pathlib import Path

import pytest

from ctxagent.addons.replay.resume import Recordings, import_recording
from ctxagent.agent.errors import RecordError
from ctxagent.agent.launch import LaunchOptions
from ctxagent.agent.library import launch_parts
from ctxagent.agent.session.store import Project

from ..replay.test_places import fill
from ..support.command import Place
from ..support.sessions.recorded import claude_call, claude_line, claude_result, lines

SECRET = "s3cret-of-this-machine-0123456789"


@pytest.fixture
def launch(tmp_path: Path) -> LaunchOptions:
    place = Place(tmp_path)
    env = place.environ({"ANTHROPIC_API_KEY": SECRET})
    loaded = launch_parts.load(place.project, env, [])
    return launch_parts.launch_options(loaded, place.project, env)


def test_known_secrets_are_taken_out(launch: LaunchOptions, tmp_path: Path) -> None:
    """The files of long results have no secrets either."""
    path = tmp_path / "recording"
    rows = [
        claude_line("user", 0, f"The key is {SECRET}."),
        claude_line("assistant", 1, [claude_call("c", "Bash", {"command": f"echo {SECRET}"})]),
        claude_line("user", 2, [claude_result("c", f"{SECRET}\n" * 9_000)]),
        {"type": "user", "message": 1},
    ]
    path.write_bytes(lines(rows) + b"torn\n")
    made = import_recording(launch, path)
    log = Project(launch.places.state, launch.places.cwd).find_log(made.id)
    assert "The key is" in log.read_text()
    kept = [each for each in log.parent.rglob("*") if each.is_file()]
    assert len(kept) == 2
    assert not [each for each in kept if SECRET in each.read_text()]
    assert made.line.endswith("1 reply · 1 call · 2 unreadable lines or items, first line 5")


def test_a_failed_write_leaves_no_files(launch: LaunchOptions, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_bytes(lines([claude_line("user", 0, "Hello.")]))
    folder = Project(launch.places.state, launch.places.cwd).folder
    folder.mkdir(parents=True)
    (folder / "sessions").write_text("no folder")
    with pytest.raises(RecordError, match="cannot be written"):
        import_recording(launch, path)
    assert [each.name for each in folder.iterdir()] == ["sessions"]


def test_what_is_on_this_machine(launch: LaunchOptions) -> None:
    recordings = Recordings(launch)
    fill(launch.places.home, str(launch.places.cwd))
    found = recordings.find(everywhere=False)
    assert len(found) == len(recordings.find(everywhere=True)) == 13
    qwen = next(each.path for each in found if each.agent == "qwen-code")
    assert recordings.first_messages(qwen) == ["Find the fault.", "Go on, please."]
    assert recordings.first_messages("/no/such/file") == []
