"""One session of an editor: its conversation, the running turn, and the updates for the editor.

The output of slash commands that the editor calls becomes text.
"""

import asyncio
import binascii
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    BlobResourceContents,
    CurrentModeUpdate,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    TextContentBlock,
    UnstructuredCommandInput,
)

from ...api.base import CtxagentError, UsageError, dataclass, regex
from ...api.front_ends import (
    EFFORTS,
    ChoiceRow,
    Choices,
    Command,
    CommandContext,
    Conversation,
    ConversationServices,
    Questions,
    RunningTask,
    Screen,
    all_commands,
    parse,
    read_command_files,
)
from ...api.session import AttachedData, Event, TurnFinished
from ...api.text import clean, one_line
from .questions import EditorQuestions
from .updates import Update, UpdateStream, message, replay_updates, usage_update

if TYPE_CHECKING:
    from acp.interfaces import Client
    from rich.console import RenderableType

    from ...api.front_ends import Attached, Menu, Option, Transcript


PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

_LINES = regex(r"L?(\d{1,9})(?:[-:]L?(\d{1,9}))?")
_BARE = regex(r"""[^\s"]+""")


@dataclass(frozen=True, slots=True)
class EditorPrompt:
    """A user message from an editor, with its attachments."""

    text: str
    attached: Sequence[AttachedData] = ()


def read_prompt_blocks(blocks: Sequence[PromptBlock], cwd: Path) -> EditorPrompt:
    """Return the message in a prompt. A link to a file becomes an `@path` mention, as if typed. A
    resource with its content and an image become attachments. Raises UsageError for an unsupported
    block and for an empty prompt.
    """
    words, attached, images = list[str](), list[AttachedData](), 0
    for place, block in enumerate(blocks):
        if isinstance(block, TextContentBlock):
            words.append(block.text)
        elif isinstance(block, ImageContentBlock):
            images += 1
            data = _decoded(block.data, f"prompt[{place}].data")
            attached.append(AttachedData(data, title="an image", name="Image"))
        elif isinstance(block, ResourceContentBlock):
            words.append(_mention(block.uri, block.name, cwd))
        elif isinstance(block, EmbeddedResourceContentBlock):
            resource = block.resource
            name = _path_of(resource.uri) or resource.uri
            if isinstance(resource, BlobResourceContents):
                data = _decoded(resource.blob, f"prompt[{place}].resource.blob")
            else:
                data = resource.text.encode("utf-8", "replace")
            words.append(f"[{_shown(name, cwd)}]")
            attached.append(AttachedData(data, title=name, name="Resource"))
        else:
            raise UsageError(
                f"prompt[{place}]: audio is not supported", hint="Send it as text, or as a file."
            )
    text = "".join(words)
    if not text.strip() and not attached:
        raise UsageError("the prompt is empty", hint="Send a text block, or an image.")
    if not text.strip():
        text = "[an image]" if images == 1 else f"[{images} images]"
    return EditorPrompt(text, attached)


def _mention(uri: str, name: str, cwd: Path) -> str:
    """Return a link as text: an `@path` mention of its file, else a Markdown link."""
    path = _path_of(uri)
    if not path:
        return f"[{name}]({uri})"
    shown = _shown(path, cwd)
    if lines := _LINES.fullmatch(urlsplit(uri).fragment):
        shown += f":{lines[1]}" + (f"-{lines[2]}" if lines[2] else "")
    if _BARE.fullmatch(shown):
        return f"@{shown}"
    quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{quoted}"'


def _path_of(uri: str) -> str:
    """Return the path in a `file:` URI or a plain path, "" for any other URI."""
    if uri.startswith("/"):
        return uri
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _shown(path: str, cwd: Path) -> str:
    try:
        return str(Path(path).relative_to(cwd))
    except ValueError:
        return path


def _decoded(data: str, where: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(
            f"{where} is not base64: {error}", hint="Report it to the authors of the editor."
        ) from None


WIDTH = 100  # columns of command output
NOBODY_ANSWERS = "n"

_CHOICE = regex(r"\[(\w)\](\w*[^·\n]*)")

# Asks a question with (ID, name) choices; returns the chosen ID, "" for none.
Choose = Callable[[str, Sequence[tuple[str, str]]], Awaitable[str]]


class CommandScreen(Screen):
    """A screen for commands only, without typed input or live painting."""

    echoes = paints = speaks = unfinished = False
    palette = ""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._printed: list[RenderableType] = []
        self.printed = 0

    def take(self) -> str:
        """Return the output since the last call as text."""
        from ...api.front_ends import render_text

        shown, self._printed = self._printed, []
        return clean(render_text(shown, width=WIDTH, depth="plain")).strip("\n") if shown else ""

    def put(self, renderable: "RenderableType") -> None:
        self._printed.append(renderable)
        self.printed += 1

    async def answer(
        self, choices: Choices, keys: str, texts: Sequence[str] = (),
        rows: Sequence[ChoiceRow] = (), *, hidden: bool = False,
    ) -> str:  # fmt: skip
        asked = choices("")
        options = [(key, f"{key}{rest}".strip()) for key, rest in _CHOICE.findall(asked)]
        text = "\n\n".join(filter(None, [self.take(), _CHOICE.sub("", asked).strip(" ·\n")]))
        offered = [(key, name) for key, name in options if key in keys]
        offered += [(row.key, row.label) for row in rows]
        return await self._choose(text, offered) or NOBODY_ANSWERS

    async def pick(self, menu: "Menu") -> "Option | None":
        options = [option for page in menu.load(0) for option in page]
        names = [(o.key, " · ".join(filter(None, (o.title, *map(str, o.facts))))) for o in options]
        chosen = await self._choose(menu.title, names)
        return next((option for option in options if option.key == chosen), None)

    async def edit(self, text: str, name: str) -> str:
        raise CtxagentError(
            f"{name} cannot be edited from here", hint="Say no, and what to change."
        )

    async def run(self, ready: Callable[[], None]) -> None:
        ready()

    def print_line(self, line: str) -> None:
        self.put(line)

    def hint(self, text: str) -> None:
        self.put(text)


MAX_TITLE_CHARS = 80
INTERRUPT_TIMEOUT_S = 5.0  # limit for an interrupted turn to end on close
# Commands that leave the session or need a terminal.
LEFT_OUT = frozenset(
    {"new", "clear", "resume", "fork", "rewind", "undo", "uncompact", "exit", "unfold"}
    | {"background", "copy", "model", "effort", "sessions", "from-recording"}
)
MODE_NAMES = {
    "ask": ("Ask", "Asks before commands and edits."),
    "accept-edits": ("Accept edits", "Edits project files without asking, asks before commands."),
    "sandboxed": ("Sandboxed", "Runs sandboxed commands without asking."),
    "plan": ("Plan", "Reads only, and proposes a plan."),
    "bypass": ("Bypass", "Never asks."),
}
MODEL, EFFORT = "model", "effort"  # option IDs
MODEL_EFFORT = "default"  # the model's default effort


class SessionPlace(Protocol):
    """The services of a directory, and the processes started for it."""

    @property
    def services(self) -> ConversationServices: ...

    def end(self) -> None:
        """Stop the processes. Blocks."""


@dataclass(eq=False, slots=True)
class WaitingPrompt:
    """A prompt that waits for the end of the running turn, or is added to that turn."""

    prompt: EditorPrompt
    is_taken: bool = False

    @property
    def steers(self) -> bool:
        """Whether it may be sent to the model during a turn."""
        return not self.prompt.attached and not self.prompt.text.startswith("/")


class EditorSession:
    """A session that the editor has open. `id` is its ID in the protocol."""

    def __init__(
        self,
        place: SessionPlace,
        client: "Client",
        send: Callable[[str, Update], None],
        *,
        shows_terminals: bool = False,
        shows_forms: bool = False,
    ) -> None:
        self._place, self._services = place, place.services
        self._send_to = send
        self.id = ""
        self._early: list[Update] = []  # updates from before the editor knows the session
        self.updates = UpdateStream(self._send, self._services.cwd, shows_terminals)
        self._questions = EditorQuestions(
            client, lambda: self.id, self.updates, shows_forms=shows_forms
        )
        self.conversation = Conversation(self._services, self._emit, self._questions.ask)
        self._task = RunningTask(lambda: None)
        self._screen = CommandScreen(self._questions.choose)
        self._context = self._command_context()
        self._turn = asyncio.Lock()
        self._waiting: deque[WaitingPrompt] = deque()
        self._prompt_of_command = ""
        self._shown_mode = ""
        self._shown_commands: list[AvailableCommand] = []
        self._shown_transcript: Transcript | None = None
        self._is_known = False  # whether the editor knows the session's ID
        self._events, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def _command_context(self) -> CommandContext:
        asked = Questions(
            self._screen, self._transcript, lambda mode: None, lambda text: False, lambda text: None
        )
        return CommandContext(
            self._services,
            self.conversation,
            self._screen,
            asked,
            self._transcript,
            self._task,
            self._send_next,
        )

    # Opening and closing.

    async def open(self, *, resume: str | None = None, fork: bool = False) -> None:
        """Open a new session, or an existing one by its ID. Raises CtxagentError."""
        await self.conversation.switch_session(resume=resume, fork=fork)
        self.id = self.conversation.session
        self._shown_mode = self.conversation.agent.approval.mode

    async def replay(self) -> None:
        """Send the recorded conversation to the editor, which already knows the session."""
        self._is_known = True
        entries = self.conversation.agent.log.entries()
        shown = await asyncio.to_thread(lambda: [*replay_updates(entries, self._services.cwd)])
        for update in shown:
            self._send(update)

    async def send_state(self) -> None:
        """Send updates from the opening, the available commands, and the context usage."""
        while self._early:
            self._send_to(self.id, self._early.pop(0))
        self._is_known = True
        await self._send_commands()
        await self._send_usage()

    async def close(self) -> None:
        """Interrupt the running task, and close the session."""
        self._drop_waiting()
        await self._task.end(INTERRUPT_TIMEOUT_S)
        try:
            with suppress(CtxagentError, TimeoutError):
                await self.conversation.finish()
        finally:
            await self.conversation.close()
            await asyncio.to_thread(self._place.end)

    # Modes and options.

    @property
    def modes(self) -> SessionModeState:
        return SessionModeState(
            current_mode_id=self.conversation.agent.approval.mode,
            available_modes=[
                SessionMode(id=mode, name=name, description=about)
                for mode in self.conversation.modes
                for name, about in [MODE_NAMES[mode]]
            ],
        )

    def set_mode(self, id: str) -> None:
        """Set the permission mode. Raises UsageError for an unavailable mode."""
        modes = self.conversation.modes
        mode = next((each for each in modes if each == id), None)
        if mode is None:
            raise UsageError(f"there is no mode {id!r} here", hint=f"One of {', '.join(modes)}.")
        self.conversation.set_mode(mode)
        self._shown_mode = id
        self._questions.settle()

    @property
    def options(self) -> list[SessionConfigOptionSelect]:
        """The model and effort options that the editor may change."""
        agent = self.conversation.agent
        models = list(dict.fromkeys([*(row[0] for row in self._services.models()), agent.model.id]))
        return [
            _select(MODEL, "Model", "model", agent.model.id, models),
            _select(
                EFFORT, "Effort", "thought_level", agent.model.effort or MODEL_EFFORT,
                list(dict.fromkeys([*EFFORTS, agent.model.effort or MODEL_EFFORT])),
            ),
        ]  # fmt: skip

    def set_option(self, id: str, value: str | bool) -> None:
        """Change an option. Raises UsageError for an unknown option or value."""
        found = next((option for option in self.options if option.id == id), None)
        if found is None:
            raise UsageError(f"there is no option {id!r}", hint=f"One of {MODEL}, {EFFORT}.")
        values = [option.value for option in cast("list[SessionConfigSelectOption]", found.options)]
        if value not in values:
            hint = f"One of {', '.join(values)}."
            raise UsageError(f"the option {id} has no value {value!r}", hint=hint)
        if id == MODEL:
            self.conversation.set_model(str(value))
        elif value != MODEL_EFFORT:
            self.conversation.agent.model.effort = str(value)

    # Prompts.

    async def prompt(self, blocks: Sequence[PromptBlock]) -> TurnFinished:
        """Run a turn or command for a user message, and return its result. During another turn, add
        the message to that turn before its next call, or wait for its end. Raises CtxagentError.
        """
        waiting = WaitingPrompt(read_prompt_blocks(blocks, self._services.cwd))
        self._waiting.append(waiting)
        async with self._turn:
            if waiting.is_taken or waiting not in self._waiting:  # added to a turn, or cancelled
                return TurnFinished("ok" if waiting.is_taken else "interrupted", "")
            self._waiting.remove(waiting)
            finished = await self._serve(waiting.prompt)
            await self._send_after_turn()
            return finished

    def cancel(self) -> None:
        """End the running turn, and drop waiting prompts."""
        self._drop_waiting()
        self._task.cancel()

    def _drop_waiting(self) -> None:
        self._waiting.clear()

    async def _serve(self, prompt: EditorPrompt) -> TurnFinished:
        text = prompt.text
        if text.startswith("/") and not prompt.attached:
            await read_command_files(self._context)
            found = self._parse(text)
            if found and found[0].run is not None:
                text = await self._run_command(*found)
                if not text:
                    return TurnFinished("ok", "")
        return await self._run_turn(text, prompt.attached)

    def _parse(self, text: str) -> tuple[Command, str] | None:
        """Return the command that the text calls, or None. Raises UsageError for an unknown command
        and for one that only works in a terminal.
        """
        found = parse(text, all_commands(self._context))
        if found and found[0].name in LEFT_OUT:
            raise UsageError(
                f"/{found[0].name} is for the terminal",
                hint=f"ctxagent --resume {self.id} continues this session in a terminal.",
            )
        return found

    async def _run_command(self, command: Command, argument: str) -> str:
        """Run a command, and return the prompt it sends next, "" for none."""
        self._prompt_of_command = ""
        error = await self._task.run(_error_of(self._context.run(command, argument)))
        if shown := self._screen.take():
            self._send(message(f"```\n{shown}\n```\n"))
        if isinstance(error, CtxagentError):
            raise error
        if isinstance(error, Exception):  # an internal error leaves the session usable
            raise self.conversation.record_fault(error)
        return self._prompt_of_command

    def _send_next(self, text: str) -> None:
        self._prompt_of_command = text

    async def _run_turn(self, text: str, attached: "Sequence[Attached]") -> TurnFinished:
        from ...api.session import run_turn

        try:
            turn = run_turn(self.conversation.agent, text, self._next_mid_turn, attached=attached)
            finished = await self._task.run(turn)
        finally:
            self.conversation.end_turn()
        return finished or TurnFinished("interrupted", "")

    def _next_mid_turn(self) -> str | None:
        found = next((each for each in self._waiting if each.steers), None)
        if found is None:
            return None
        self._waiting.remove(found)
        found.is_taken = True
        return found.prompt.text

    # Updates for the editor.

    def _send(self, update: Update) -> None:
        if self._is_known:
            self._send_to(self.id, update)
        else:
            self._early.append(update)

    def _emit(self, event: Event) -> None:
        """Show an event. May be called from any thread."""
        if threading.get_ident() == self._thread:
            self._show(event)
        else:
            self._events.call_soon_threadsafe(self._show, event)

    def _show(self, event: Event) -> None:
        self.updates.show(event)
        if self.conversation.is_open and self.id:
            mode = self.conversation.agent.approval.mode
            if mode != self._shown_mode:
                self._shown_mode = mode
                told = CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
                self._send(told)

    async def _send_after_turn(self) -> None:
        await self._send_usage()
        await self._send_commands()
        ledger = self.conversation.agent.ledger
        first = ledger.typed_messages[0][1] if ledger.typed_messages else ""
        if title := ledger.title or one_line(first, MAX_TITLE_CHARS):
            now = datetime.now(UTC).isoformat()
            self._send(
                SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=now)
            )

    async def _send_usage(self) -> None:
        agent = self.conversation.agent
        window = agent.model.current_window()
        self._send(usage_update(window.tokens, window.size, agent.totals.all.cost_usd))

    async def _send_commands(self) -> None:
        await read_command_files(self._context)
        self._screen.take()  # problems with files are shown when a command is called
        shown = [
            AvailableCommand(
                name=command.name,
                description=command.help,
                input=AvailableCommandInput(root=UnstructuredCommandInput(hint=command.argument))
                if command.argument
                else None,
            )
            for command in all_commands(self._context).values()
            if command.name not in LEFT_OUT
        ]
        if shown != self._shown_commands:
            self._shown_commands = shown
            self._send(
                AvailableCommandsUpdate(
                    session_update="available_commands_update", available_commands=shown
                )
            )

    def _transcript(self) -> "Transcript":
        if self._shown_transcript is None:
            from ...api.front_ends import Transcript

            self._shown_transcript = Transcript(self._screen.put, echo=False, paints=False)
        return self._shown_transcript


async def _error_of(work: Coroutine[Any, Any, None]) -> BaseException | None:
    """Run `work` to its end, and return its exception, if any."""
    return (await asyncio.gather(work, return_exceptions=True))[0]


def _select(
    id: str, name: str, category: str, now: str, values: Sequence[str]
) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect(
        type="select",
        id=id,
        name=name,
        category=category,  # type: ignore[arg-type]
        current_value=now,
        options=[SessionConfigSelectOption(value=value, name=value) for value in values],
    )
