"""The entry that records how a process opens a session."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ctxagent.agent.context.view import View, fold
from ctxagent.agent.launch import Prompts
from ctxagent.agent.loop.live_session import LiveSession, SessionOpening
from ctxagent.agent.models.base import Model
from ctxagent.agent.models.scripted import ScriptedModel
from ctxagent.agent.session.entries import Session
from ctxagent.agent.version import __version__
from ctxagent.tools.base import Context, Tool
from ctxagent.tools.read import ReadTool

from ..support.sessions.setup import options_in

MODEL, OTHER = ScriptedModel([], id="m"), ScriptedModel([], id="other")


OPENING = SessionOpening("Be good.")


def opened(
    folder: Path, view: View, model: Model, tools: Sequence[Tool[Any]] = (), own: str = ""
) -> LiveSession:
    """Return a session with the parts that an opening names."""
    options = replace(options_in(folder, folder), prompts=Prompts(own=own))
    parts = SimpleNamespace(
        folder=folder / "s-1", options=options, view=view, tools=tools,
        model=SimpleNamespace(client=model), context=Context(folder),
        tool_schemas=lambda: [tool.schema() for tool in tools],
    )  # fmt: skip
    return cast(LiveSession, parts)


def test_a_new_session_has_prompt_and_tools(tmp_path: Path) -> None:
    found = OPENING.session_entry(opened(tmp_path, View(), MODEL, [ReadTool()], "Be good."))
    assert found == Session(
        id="s-1", cwd=str(tmp_path), branch="", version=__version__, model="m",
        thinking="bound", system="Be good.",
        own_prompt="Be good.", tools=[ReadTool().schema()],
    )  # fmt: skip


def test_only_what_has_changed_is_recorded_again(tmp_path: Path) -> None:
    view = fold([OPENING.session_entry(opened(tmp_path, View(), MODEL, [ReadTool()]))])
    again = OPENING.session_entry(opened(tmp_path, view, OTHER, [ReadTool()]))
    assert (again.model, again.system, again.own_prompt, again.tools) == ("other", None, None, None)
    assert OPENING.session_entry(opened(tmp_path, view, MODEL)).tools == []


def test_a_fork_names_its_origin(tmp_path: Path) -> None:
    session = opened(tmp_path, View(), MODEL)
    found = SessionOpening("Be good.", {"id": "s-0", "seq": 4}).session_entry(session)
    assert found.parent == {"id": "s-0", "seq": 4}
    assert OPENING.session_entry(session).parent is None


def test_a_change_of_the_model_names_the_branch(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "walrus"], cwd=tmp_path, check=True)
    found = OPENING.model_entry(opened(tmp_path, View(), OTHER))
    assert (found.model, found.branch, found.system, found.tools) == ("other", "walrus", None, None)
