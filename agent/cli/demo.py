"""The demo: a sample project with a bug, a scripted model that finds it, and everything else real.

The files, the user's messages and the model's steps are in `demo.toml`. The project is written to a
folder, the tools run in it, and the session is recorded there.
"""

import asyncio
import os
import shlex
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from ...tools.system.phrasing import count_of
from ..compaction.history import acts, savings
from ..compaction.layers.known import layer_named
from ..compaction.summary.request import is_summary_question
from ..config.compaction_settings import MoveSettings
from ..config.settings import PermissionSettings, Settings, UiSettings
from ..context.request import Request
from ..events import Ask, Emit
from ..loop.agent import AgentState
from ..models.catalog import scripted_id
from ..models.scripted import ScriptedModel, Step
from ..session.entries import Assistant, Entry, Usage
from ..session.log import LOG_NAME, read_log
from ..session.totals import Totals
from ..version import __version__

BANNER = """\
This is a demo. The model is scripted: its replies were written in advance.
The project, the tools, the test runs and the recorded session are real; no key, no network.
"""
ALLOWED = ("Bash(python3 -m unittest:*)",)
CONTEXT_WINDOW = 18_000  # tokens; small, so that compaction has something to do
PRICED_AS = Settings().model.id
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def play(folder: Path, *, fast: bool, is_kept: bool = False) -> int:
    """Play the demo in the REPL, then print what it showed and the next steps. Return the exit code
    of the first failed turn, or 0.

    The project goes to `folder`/cart, the session to `folder`/state. `fast` skips the pauses;
    `is_kept` means that the folder stays.
    """
    from ..ui.conversation.open_session import ConversationServices
    from ..ui.repl.repl import Repl

    script = tomllib.loads(resources.files(__package__).joinpath("demo.toml").read_text("utf-8"))
    project, pace = folder / "cart", 0.0 if fast else 0.03
    _write_project(project, script["files"])
    model = ScriptedModel(
        _model_steps(script), id=scripted_id(PRICED_AS), pace=pace, window=CONTEXT_WINDOW
    )

    async def open_session(emit: Emit, ask: Ask, **choice: Any) -> AgentState:
        return await asyncio.to_thread(_open, project, model, emit, ask)

    print(BANNER)
    repl = Repl(ConversationServices(open_session, project, __version__), UiSettings())
    code = asyncio.run(repl.run(script["words"], pace=pace))
    if code == 0:
        [log] = (folder / "state").rglob(LOG_NAME)
        effects = _effects_text(read_log(log).entries)
        print(f"\n{effects}\n\n{_next_steps(folder, log, is_kept=is_kept)}")
    return code


def _effects_text(entries: list[Entry]) -> str:
    """Return a text with the effect of each layer in the session, and the cost that the session
    would have had with a real model.
    """
    totals = Totals()
    for entry in entries:
        totals.add(entry)
    used = [use["name"] for entry in entries for use in _tool_uses(entry)]
    prompts = (Usage.from_json(e.usage).prompt for e in entries if isinstance(e, Assistant))
    lines = ["What you saw"]
    for name, count, saved in savings(acts(entries)):
        layer = layer_named(name)
        what = f"{layer.nouns[1]} ({count_of(count, 'time')})"
        lines.append(f"  {layer.heading():<15}{saved:>7,} tokens less: {what}")
    lines += [
        f"  {'recall':<15}{used.count('Recall'):>7,} cleared results read back from the log",
        f"  {'tools':<15}{len(used):>7,} calls, all of them real, in {totals.turns:,} turns",
        f"  {'context':<15}{max(prompts):>7,} tokens in the largest request, of {CONTEXT_WINDOW:,}",
        f"  {'money':<15}{'none':>7} spent: the model is scripted. {PRICED_AS} would",
        f"  {'':<22} have cost ${totals.own.cost_usd:.2f}, without its prompt cache",
    ]
    return "\n".join(lines)


def _tool_uses(entry: Entry) -> list[dict[str, Any]]:
    content = entry.content if isinstance(entry, Assistant) else []
    return [block for block in content if block.get("type") == "tool_use"]


def _next_steps(folder: Path, log: Path, *, is_kept: bool) -> str:
    lines = [
        "What to do next",
        "  export ANTHROPIC_API_KEY=…    set a key; `ctxagent doctor` checks the set-up",
        "  cd PROJECT && ctxagent        start there; /help says what it can do",
    ]
    if is_kept:
        lines += [
            f"  ctxagent replay --context-window {CONTEXT_WINDOW} {shlex.quote(str(log))}",
            "                                its cost under other settings. Clearing saves",
            "                                little in such a small window: replay a session",
            "                                of your own to see what it saves you",
            f"The project and the session are kept in {folder}.",
        ]
    else:
        lines += [
            "  ctxagent demo --keep DIR      play it again, and keep its files in DIR",
            "The project and the session of this demo are deleted.",
        ]
    return "\n".join(lines)


def _open(project: Path, model: ScriptedModel, emit: Emit, ask: Ask) -> AgentState:
    from ..app import open_agent
    from ..launch import LaunchOptions, Places, SessionChoice
    from ..security.sandbox_paths import distrust_writable_folders

    launch = LaunchOptions(
        settings=Settings(
            permissions=PermissionSettings(mode="accept-edits", allow=ALLOWED),
            move=MoveSettings(above=10_000, preview_chars=2_000),  # leave more results to clear
        ),
        places=Places(
            cwd=project,
            state=project.parent / "state",
            config_home=project.parent / "config",
            environ=os.environ,
        ),
        model=model,
    )
    places = launch.places
    for folder in (Path.cwd(), project):
        distrust_writable_folders(launch.settings.sandbox, folder, places.environ, places.state)
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
    """Return a function that plays the script's steps in order. It returns the script's summary
    when asked for one.
    """
    steps = iter(script["steps"])

    def play(request: Request) -> Step:
        last = request.messages[-1]["content"][-1]
        if is_summary_question(str(last.get("text", ""))):
            return Step(text=script["summary"].strip())
        step = next(steps)
        tools = [(tool["name"], tool["input"]) for tool in step.get("tools", ())]
        return Step(text=step["text"].strip(), tools=tools)

    return play
