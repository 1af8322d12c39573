"""The demo: a sample project with a bug, a scripted model that finds it, and everything else real.

The files, the person's words and the model's steps stand in `demo.toml`. The project is written
into a folder; the tools really run in it, and the session is really recorded there.
"""

import asyncio
import os
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from ... import __version__
from ..compaction.summary.request import is_summary_question
from ..config.settings import PermissionSettings, Settings, UiSettings
from ..context.request import Request
from ..events import Ask, Emit
from ..loop.agent import Agent
from ..models.scripted import ScriptedModel, Step

BANNER = """\
This is a demo. The model is scripted: its replies were written beforehand, nobody thinks here.
The project, the tools, the test runs and the recorded session are real; no key, no network.
"""
ALLOWED = ("Bash(python3 -m unittest:*)",)
CONTEXT_WINDOW = 20_000  # tokens; small, so that compaction has something to do
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def play(folder: Path, *, fast: bool) -> int:
    """Play the demo in the REPL and return the exit code of its first failed turn, or 0.

    The project is laid out in `folder`/cart, the session is recorded below `folder`/state. `fast`
    leaves out the pauses for the eye.
    """
    from ..ui.conversation.services import ReplServices
    from ..ui.repl.repl import Repl

    script = tomllib.loads(resources.files(__package__).joinpath("demo.toml").read_text("utf-8"))
    project, pace = folder / "cart", 0.0 if fast else 0.03
    _write_project(project, script["files"])
    model = ScriptedModel(_model_steps(script), pace=pace, window=CONTEXT_WINDOW)

    async def open_session(emit: Emit, ask: Ask, **choice: Any) -> Agent:
        return await asyncio.to_thread(_open, project, model, emit, ask)

    print(BANNER)
    repl = Repl(ReplServices(open_session, project, __version__), UiSettings())
    return asyncio.run(repl.run(script["words"], pace=pace))


def _open(project: Path, model: ScriptedModel, emit: Emit, ask: Ask) -> Agent:
    from ..app import open_agent
    from ..launch import LaunchOptions, SessionChoice
    from ..security.sandbox import distrust_writable_folders

    launch = LaunchOptions(
        settings=Settings(permissions=PermissionSettings(mode="accept-edits", allow=ALLOWED)),
        state=project.parent / "state",
        config_home=project.parent / "config",
        cwd=project,
        environ=os.environ,
        model=model,
    )
    for folder in (Path.cwd(), project):
        distrust_writable_folders(launch.settings.sandbox, folder, launch.environ)
    return open_agent(launch, SessionChoice(), emit=emit, ask=ask)


def _write_project(project: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), "utf-8")
    (project / "logs").mkdir()
    for place, day in enumerate(DAYS):
        orders = range(3_641 + 300 * place, 3_900 + 300 * place)
        lines = [
            f"{day} {n:04} INFO checkout of order {order} took 12 ms"
            for n, order in enumerate(orders, 1)
        ]
        if day == "thursday":
            lines[170] = "thursday 0171 ERROR checkout of order 4711: discount 1.5 is not a share"
        (project / "logs" / f"{day}.log").write_text("\n".join(lines) + "\n", "utf-8")


def _model_steps(script: dict[str, Any]) -> Callable[[Request], Step]:
    """Return a model that plays the script's steps in order, and its summary whenever asked."""
    steps = iter(script["steps"])

    def play(request: Request) -> Step:
        last = request.messages[-1]["content"][-1]
        if is_summary_question(str(last.get("text", ""))):
            return Step(text=script["summary"].strip())
        step = next(steps)
        tools = [(tool["name"], tool["input"]) for tool in step.get("tools", ())]
        return Step(text=step["text"].strip(), tools=tools)

    return play
