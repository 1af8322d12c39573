"""The demo: a sample project with a bug, a scripted model that finds it, and everything else real.

The files, the person's words and the steps of the model stand in `demo.toml`. The project is laid
into a temporary folder; the tools really run in it, and the session is really recorded there.
"""

import asyncio
import os
import tempfile
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from .. import __version__
from .events import Ask, Emit
from .loop import Loop
from .model.scripted import ScriptedModel, Step
from .settings import PermissionSettings, Settings, UiSettings

BANNER = """\
This is a demo. The model is scripted: its replies were written beforehand, nobody thinks here.
The project, the tools, the test runs and the recorded session are real; no key, no network.
"""
ALLOWED = ("Bash(python3 -m unittest:*)",)


def play(*, fast: bool) -> int:
    """Play the demo in the REPL; the exit code is that of its first failed turn, or 0.

    `fast` leaves out the pauses that are there for the eye.
    """
    from .ui.repl import Repl

    script = tomllib.loads(resources.files(__package__).joinpath("demo.toml").read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="ctxagent-demo-") as folder:
        project = Path(folder).resolve() / "cart"
        _lay_out(project, script["files"])
        model = ScriptedModel(_steps(script), pace=0.0 if fast else 0.03)

        async def open_session(emit: Emit, ask: Ask, **choice: Any) -> Loop:
            return await asyncio.to_thread(_opened, project, model, emit, ask)

        print(BANNER)
        repl = Repl(
            open_session,
            cwd=project,
            history=None,
            ui=UiSettings(),
            version=__version__,
            warm=lambda: None,
        )
        return asyncio.run(repl.run(script["words"], pace=0.0 if fast else 0.03))


def _opened(project: Path, model: ScriptedModel, emit: Emit, ask: Ask) -> Loop:
    from .compose import open_loop
    from .launch import Choice, Launch

    launch = Launch(
        settings=Settings(permissions=PermissionSettings(mode="accept-edits", allow=ALLOWED)),
        state=project.parent / "state",
        config_home=project.parent / "config",
        cwd=project,
        environ=os.environ,
        model=model,
    )
    return open_loop(launch, Choice(), emit=emit, ask=ask)


def _lay_out(project: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), "utf-8")


def _steps(script: dict[str, Any]) -> list[Step]:
    return [
        Step(text=step["text"].strip(), tools=[(t["name"], t["input"]) for t in step["tools"]])
        if "tools" in step
        else Step(text=step["text"].strip())
        for step in script["steps"]
    ]
