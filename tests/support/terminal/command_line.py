"""The real context of slash commands, with a screen that gives scripted answers."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ctxagent.agent.config.keyboard import DEFAULT_KEYS
from ctxagent.agent.config.load import LoadedSettings, load_settings
from ctxagent.agent.config.user_settings import UserSettings
from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.events import Answer, Ask, Emit, Question
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.ui.commands import CommandContext, all_commands, parse
from ctxagent.agent.ui.conversation.open_session import (
    Conversation,
    ConversationServices,
    RunningTask,
)
from ctxagent.agent.ui.conversation.questions import Questions
from ctxagent.agent.ui.render import render
from ctxagent.agent.ui.screen import Menu, Option
from ctxagent.agent.ui.transcript import Transcript

from ..sessions.conversation import Conversation as ScriptedConversation


class ScriptedScreen:
    """Screen that keeps what is printed, and answers questions from `answers`."""

    echoes = True
    paints = True
    speaks = False
    palette = ""
    keys = DEFAULT_KEYS

    def __init__(self, width: int) -> None:
        self.width = width
        self.printed = ""
        self.asked: list[str] = []
        self.answers: list[str] = []
        self.picked = ""  # key of the option to choose from menus
        self.edited = ""  # result of the editor for any text
        self.given_back = ""  # message restored to the input
        self.left = False
        self.window = ""  # title of the terminal's window
        self.copied = ""  # content of the clipboard

    def print_line(self, line: str) -> None:
        self.printed += f"{line}\n"

    async def run(self, ready: Callable[[], None]) -> None:
        raise AssertionError("nobody types here")

    def put(self, renderable: Any) -> None:
        self.printed += render.render_text([renderable], width=self.width, depth="plain")

    def request_repaint(self) -> None:
        pass

    async def answer(
        self, choices: Callable[[str], str], keys: str, texts: Sequence[str] = ()
    ) -> str:
        prompt = choices("")
        assert all(f"[{key}]" in prompt for key in keys)
        self.asked.append(prompt)
        return self.answers.pop(0)

    async def pick(self, menu: Menu) -> Option | None:
        options = [*chain.from_iterable(menu.load(0))]
        self.printed += "".join(
            " ".join((option.key, *option.facts, option.title)) + "\n" for option in options
        )
        return next((option for option in options if option.key == self.picked), None)

    async def browse(self, source: Any) -> bool:
        return False  # the report is printed instead

    async def edit(self, text: str, name: str) -> str:
        if not self.edited:
            raise CtxagentError("there is no editor")
        return self.edited

    async def type(self, words: str, pace: float) -> None:
        raise AssertionError("nothing is played here")

    def restore(self, words: str) -> None:
        self.given_back = words

    def hint(self, text: str) -> None:
        pass

    def copy(self, text: str) -> None:
        self.copied = text

    def title(self, text: str) -> None:
        self.window = text

    def clean(self) -> None:
        self.printed = ""

    def turn_ended(self, seconds: float) -> None:
        pass

    def show_prompt(self) -> None:
        pass

    def exit(self, error: BaseException | None = None) -> None:
        self.left = True


class _Transcript(Transcript):
    """Transcript that records the texts of waits."""

    def __init__(self, screen: ScriptedScreen) -> None:
        super().__init__(screen.put)
        self.waited: list[str] = []

    def show_activity(self, text: str) -> None:
        self.waited.append(text)
        super().show_activity(text)


class CommandLine:
    """Runner of slash commands in a real context."""

    def __init__(
        self, services: ConversationServices, *, emit: Emit = lambda event: None, width: int = 100
    ) -> None:
        self.screen = ScriptedScreen(width)
        transcript = _Transcript(self.screen)
        self.waited = transcript.waited
        self.sent: list[str] = []  # messages that commands sent as the user
        self.context = CommandContext(
            services,
            Conversation(services, emit, _refuse),
            self.screen,
            Questions(
                self.screen,
                lambda: transcript,
                lambda mode: None,
                lambda words: False,
                lambda words: None,
                services.rules,
            ),
            lambda: transcript,
            RunningTask(self.screen.request_repaint),
            self.sent.append,
        )

    async def run(self, words: str) -> str:
        """Run a command; return its output."""
        found = parse(words, all_commands(self.context))
        assert found is not None
        self.context.put()  # prints the pending blank line, which is not part of the output
        self.screen.printed = ""
        await self.context.run(*found)
        return self.screen.printed


def settings_in(cwd: Path, *flags: str) -> UserSettings:
    """Return the settings of a user whose home is the project's folder."""
    environ = {"HOME": str(cwd)}

    def load() -> LoadedSettings:
        return load_settings(cwd, environ=environ, flags=flags)

    return UserSettings(load(), load, environ, str)


class CommandDesk:
    """A user who runs slash commands in the session of a conversation."""

    def __init__(self, talk: ScriptedConversation) -> None:
        self.agent: AgentState = talk.agent
        self.cwd = talk.cwd
        self.opened: list[dict[str, object]] = []
        self.logs: list[Path] = [talk.agent.log.path]
        self.model = ""
        services = ConversationServices(
            open=self._open,
            cwd=talk.cwd,
            version="0",
            sessions=lambda: self.logs,
            all_sessions=lambda: self.logs,
            settings=settings_in(talk.cwd, "model.id=scripted:x"),
            checks=lambda: [("FAIL", "credentials", "none")],
            models=lambda: [("claude-sonnet-5-5", "$2/10/0.1", "1M", "anthropic")],
            without_key=lambda: ["anthropic"],
            listed_models=lambda: [("ollama/qwen3", "free", "32k", "ollama")],
            providers=lambda: [("ready", "ollama", "runs here, 1 model")],
            set_model=self._set_model,
        )
        self.line = CommandLine(services)
        self.screen, self.waited = self.line.screen, self.line.waited
        asyncio.run(self.line.context.switch_session())
        self.opened.clear()

    async def _open(self, emit: Emit, ask: Ask, **which: object) -> AgentState:
        given = {name: value for name, value in which.items() if value not in (None, False)}
        self.opened.append(given)
        return self.agent

    def _set_model(self, agent: AgentState, id: str) -> None:
        self.model = id

    @property
    def session(self) -> str:
        return self.line.context.session

    def run(self, words: str) -> str:
        """Run a command; return its output."""
        return asyncio.run(self.line.run(words))


async def _refuse(question: Question) -> Answer:
    raise AssertionError(f"nobody is there to answer {question}")
