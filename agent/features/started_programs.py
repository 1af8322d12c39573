"""The programs of a session that start because settings or files name them, and the questions about
their changed files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial

from ...tools.system.environment import child_environment
from ...tools.system.take_turn import in_thread
from ..config.start_gate import AskAboutChanges, ProgramStart, describe
from ..config.trust import FileChange
from ..events import Question
from ..extensions.mcp.config import load_servers
from ..launch import LaunchOptions
from ..loop.agent import AgentState
from ..loop.denials import Denial
from ..loop.live_session import LiveSession
from ..security.planted import PlantedWatch
from ..security.program_starts import gate_of

ACCEPT = "accept its files with `ctxagent config --trust`"
STARTS = "Start"  # the tool of a question about a program


def programs_of(launch: LaunchOptions) -> Iterator[ProgramStart]:
    """Yield the programs that a session with these launch options may start."""
    if launch.extras.safe:
        return
    settings, gate, cwd = launch.settings, gate_of(launch), launch.places.cwd
    env = child_environment(launch.places.environ, settings.bash.keep_env)
    for each in fields(settings.hooks):
        for command in getattr(settings.hooks, each.name):
            yield gate.of_settings(f"the hook {each.name}", command, cwd, env)
    commands = {
        "statusline.command": settings.statusline.command,
        "ui.notify_command": settings.ui.notify_command,
    }
    for key, command in commands.items():
        if command:
            yield gate.of_settings(key, command, cwd, env)
    hooks = [
        *(launch.extras.hook_files.hooks if launch.extras.hook_files else ()),
        *(launch.extras.installed.hooks if launch.extras.installed else ()),
    ]
    for hook in hooks:
        if hook.kind == "command":
            yield hook.program(cwd, hook.environment(env, cwd))
    servers, _ = load_servers(
        cwd,
        config_home=launch.places.config_home,
        home=launch.places.home,
        trust_dir=launch.places.trust_dir,
        environ=launch.places.environ,
        plugins=launch.extras.plugins,
    )
    yield from (server.program(env, cwd) for server in servers if server.command)


class _Watch:
    """Warns once about each file that a program in the sandbox left for other programs to run: it
    may run code that the model wrote, such as a test.
    """

    def __init__(self, planted: PlantedWatch, session: LiveSession) -> None:
        self._planted, self._session = planted, session

    async def begin(self) -> None:
        jobs = self._session.context.jobs
        await in_thread(partial(self._planted.begin, unasked=False), jobs)

    async def end(self) -> None:
        if found := await in_thread(self._planted.end):
            self._session.warn_once(found.notice)


def connect_gate(agent: AgentState) -> None:
    """Protect the files of the programs of a session, and ask its user when they change."""
    gate, folders = gate_of(agent.options), agent.approval.folders
    folders.pinned, gate.added = gate.protected, folders.added
    planted = agent.runner.planted
    gate.watch = _Watch(planted, agent) if planted else None

    async def ask(start: ProgramStart, changes: Sequence[FileChange]) -> bool:
        assert agent.ask is not None
        diff = "".join(each.diff() for each in changes)
        reason = describe(start, changes)
        answer = await agent.ask(Question(STARTS, start.shown, {}, "", reason, diff))
        return answer is not None and answer.allow

    def refused(start: ProgramStart, reason: str) -> None:
        if agent.ask is None:
            denial = Denial(STARTS, start.shown, "", reason, asked=False, remedy=ACCEPT)
            agent.denials.add(denial)

    asks: AskAboutChanges | None = ask if agent.ask is not None else None
    gate.connect(asks, refused)
    gate.declare(programs_of(agent.options))
