"""The demo: a sample project with a bug, a scripted model that finds it, and everything else real.

The files, the person's words and the steps of the model stand in `demo.toml`. The project is laid
into a temporary folder; the tools really run in it, and the session is really recorded there.
"""

import asyncio
import os
import tempfile
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from .. import __version__
from .compaction.summarize import is_question
from .context.wire import Request
from .events import Ask, Emit
from .loop import Loop
from .model.scripted import ScriptedModel, Step
from .settings import Settings, UiSettings
from .settings.effects import PermissionSettings

BANNER = """\
This is a demo. The model is scripted: its replies were written beforehand, nobody thinks here.
The project, the tools, the test runs and the recorded session are real; no key, no network.
"""
ALLOWED = ("Bash(python3 -m unittest:*)",)
WINDOW = 20_000  # tokens: small, so that the layers of compaction have something to do
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def play(*, fast: bool) -> int:
    """Play the demo in the REPL; the exit code is that of its first failed turn, or 0.

    `fast` leaves out the pauses that are there for the eye.
    """
    with tempfile.TemporaryDirectory(prefix="ctxagent-demo-") as folder:
        return play_in(Path(folder).resolve(), fast=fast)


def play_in(folder: Path, *, fast: bool) -> int:
    """Play it in a folder that stays: the project is `cart`, the session is below `state`."""
    from .ui.backing import Backing
    from .ui.repl import Repl

    script = tomllib.loads(resources.files(__package__).joinpath("demo.toml").read_text("utf-8"))
    project, pace = folder / "cart", 0.0 if fast else 0.03
    _lay_out(project, script["files"])
    model = ScriptedModel(_player(script), pace=pace, window=WINDOW)

    async def open_session(emit: Emit, ask: Ask, **choice: Any) -> Loop:
        return await asyncio.to_thread(_opened, project, model, emit, ask)

    print(BANNER)
    repl = Repl(Backing(open_session, project, __version__), UiSettings())
    return asyncio.run(repl.run(script["words"], pace=pace))


def _opened(project: Path, model: ScriptedModel, emit: Emit, ask: Ask) -> Loop:
    from .compose import open_loop
    from .confinement import choose_programs
    from .launch import Choice, Launch

    launch = Launch(
        settings=Settings(permissions=PermissionSettings(mode="accept-edits", allow=ALLOWED)),
        state=project.parent / "state",
        config_home=project.parent / "config",
        cwd=project,
        environ=os.environ,
        model=model,
    )
    for folder in (Path.cwd(), project):
        choose_programs(launch.settings.sandbox, folder, launch.environ)
    return open_loop(launch, Choice(), emit=emit, ask=ask)


def _lay_out(project: Path, files: dict[str, str]) -> None:
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


def _player(script: dict[str, Any]) -> Callable[[Request], Step]:
    """The script's steps in their order, and its summary whenever one is asked for."""
    steps = iter(_steps(script))

    def play(request: Request) -> Step:
        last = request.messages[-1]["content"][-1]
        if is_question(str(last.get("text", ""))):
            return Step(text=script["summary"].strip())
        return next(steps)

    return play


def _steps(script: dict[str, Any]) -> list[Step]:
    return [
        Step(text=step["text"].strip(), tools=[(t["name"], t["input"]) for t in step["tools"]])
        if "tools" in step
        else Step(text=step["text"].strip())
        for step in script["steps"]
    ]
