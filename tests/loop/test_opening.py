"""The entry that records how a process opens a session."""

import subprocess
from pathlib import Path

from ctxagent.agent.context.view import View, fold
from ctxagent.agent.loop.open_log import SessionOpening
from ctxagent.agent.models.scripted import ScriptedModel
from ctxagent.agent.session.entries import Session
from ctxagent.agent.version import __version__
from ctxagent.tools.read import ReadTool

MODEL, OTHER = ScriptedModel([], id="m"), ScriptedModel([], id="other")


def opening(folder: Path, **more: object) -> SessionOpening:
    log = folder / "sessions" / "s-1" / "log.jsonl"
    return SessionOpening(log, folder, "Be good.", **more)  # type: ignore[arg-type]


def test_a_new_session_has_prompt_and_tools(tmp_path: Path) -> None:
    found = opening(tmp_path, own_prompt="Be good.").session_entry(View(), MODEL, [ReadTool()])
    assert found == Session(
        id="s-1", cwd=str(tmp_path), branch="", version=__version__, model="m",
        thinking="bound", system="Be good.",
        own_prompt="Be good.", tools=[ReadTool().schema()],
    )  # fmt: skip


def test_only_what_has_changed_is_recorded_again(tmp_path: Path) -> None:
    opened = opening(tmp_path)
    view = fold([opened.session_entry(View(), MODEL, [ReadTool()])])
    again = opened.session_entry(view, OTHER, [ReadTool()])
    assert (again.model, again.system, again.own_prompt, again.tools) == ("other", None, None, None)
    assert opened.session_entry(view, MODEL, []).tools == []


def test_a_fork_names_its_origin(tmp_path: Path) -> None:
    found = opening(tmp_path, parent={"id": "s-0", "seq": 4}).session_entry(View(), MODEL, [])
    assert found.parent == {"id": "s-0", "seq": 4}
    assert opening(tmp_path).session_entry(View(), MODEL, []).parent is None


def test_a_change_of_the_model_names_the_branch(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "walrus"], cwd=tmp_path, check=True)
    found = opening(tmp_path).model_entry(OTHER)
    assert (found.model, found.branch, found.system, found.tools) == ("other", "walrus", None, None)
