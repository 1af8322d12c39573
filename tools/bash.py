"""Bash: run one shell command until it ends, times out, is interrupted, or is sent to the
background.

On a timeout or interruption the whole process tree is killed. In the sandbox, processes that a
finished command leaves running are killed. Outside, the command becomes a job if its output is
still open. Processes detached on purpose, with redirected output, keep running.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from typing import Any

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import dataclass, regex
from .base import (
    OUTSIDE,
    Brief,
    Context,
    FiledOutput,
    Interrupted,
    Output,
    Params,
    Tool,
)
from .job import BackgroundJob, adopt, run_command, set_aside_notice, start_job
from .offered import JOB_WAYS, Offered, Wording
from .system.capture import Capture
from .system.confinement import Confinement
from .system.process import Process, ending

MAX_TIMEOUT_S = 600  # seconds
# Error messages of programs that the sandbox blocks.
SANDBOX_ERRORS = (
    "Read-only file system",
    "EROFS",
    "Operation not permitted",
    "EPERM",
    "resource busy",
    "Address family not supported",
    "EAFNOSUPPORT",
)
READ_ONLY_ERRORS = ("Read-only file system", "EROFS")
PARTIAL_SANDBOX_ERRORS = ("Permission denied", "EACCES")  # errors under Landlock alone
NETWORK_ERRORS = (
    "Network is unreachable", "Could not resolve", "name resolution", "Name or service not known",
    "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN", "Failed to connect", "Connection refused",
    "Address family not supported", "EAFNOSUPPORT",
)  # fmt: skip
# Limits of the search for hidden paths in the output of a failed command.
MAX_COMPLAINT_CHARS, MAX_COMPLAINT_PATHS = 4_000, 20
_PATH = regex(r"""/[^\s:'"`,;()<>\[\]]+""")
OUTPUT_GRACE_S = 0.3  # seconds that output may stay open after the shell has ended
ADVICE = ("to see all of it, redirect the output to a file", " and {Grep or Read} that")
IN_FILE = "the file of this output has them"


class BashParams(Params):
    command: str = Field(min_length=1)
    timeout: float = Field(120, ge=1, le=MAX_TIMEOUT_S, description="Seconds")
    run_in_background: bool = False
    unsandboxed: bool = False
    network: bool = False
    repository: bool = False  # .git is writable
    description: str | None = None  # for the user


class BashTool(Tool[BashParams]):
    name = "Bash"
    description = Wording(
        "Runs a bash command in the project directory. Returns stdout and stderr together. Each "
        "call is a new shell: `cd` and variables do not last. No stdin, no terminal. "
        "Use run_in_background for servers and what outlasts the timeout. If the sandbox stops a "
        "command, ask the user with unsandboxed, network or repository (writes .git).",
        " For files, prefer {Read, Grep, Glob and Edit}.",
    )
    brief = Brief(
        "Runs a command in bash, in the project directory. Returns its output. To make a file, "
        "write it with cat and a here-document.",
        ("command",),
    )
    effect = "run"
    Params = BashParams

    def subject(self, params: BashParams) -> str:
        return params.command

    def title(self, params: BashParams) -> str:
        first, _, rest = params.command.strip().partition("\n")
        return f"{first} …" if rest else first

    def why_ask_anyway(self, params: BashParams, context: Context) -> str:
        sandbox = context.sandbox
        if sandbox is None or sandbox.absent:
            return ""
        if params.unsandboxed:
            return "it would run OUTSIDE the sandbox"
        wants = ["reach the network"] * (params.network and sandbox.network_if_asked)
        wants += ["write .git"] * (params.repository and sandbox.keeps_repository)
        return f"it would {' and '.join(wants)}" if wants else ""

    async def preview(self, params: BashParams, context: Context) -> dict[str, Any]:
        confined(params, context)
        return {}

    async def run(self, params: BashParams, context: Context) -> Output:
        sandbox = confined(params, context)
        if sandbox and params.repository and sandbox.keeps_repository:
            raise ToolError(
                ".git stays read-only: in this mode the user is not asked about it. If the command "
                "must write it, call it again with unsandboxed."
            )
        if params.run_in_background:
            job = await start_job(params.command, context, sandbox)
            return _started(job, context.offered)
        capture = Capture(context.progress, open_file=context.open_file, sieve=context.sieve)
        process = await run_command(params.command, context, sandbox, sink=capture)
        outcome = _Outcome(params, process, capture, sandbox, context.redact, context.offered)
        try:
            ended = await outcome.waited(context)
            if outcome.job:
                return outcome.output()
            if not ended:
                outcome.timed_out = True
                await process.end()
            elif sandbox and process.left():
                await process.end()
            elif not await process.finished(OUTPUT_GRACE_S):
                outcome.become_job(context)
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await process.end()
            outcome.interrupted = True
            raise Interrupted(outcome.output()) from None
        except ToolError:
            await process.end()
            if capture.output.file is not None:
                capture.output.file.remove()
            raise
        return outcome.output()


@dataclass(slots=True)
class _Outcome:
    """The end of a foreground command, or its move to the background."""

    params: BashParams
    process: Process
    capture: Capture
    sandbox: Confinement | None
    redact: Callable[[Output], Output]
    offered: Offered
    began: float = field(default_factory=time.monotonic)
    timed_out: bool = False
    interrupted: bool = False
    backgrounded: bool = False  # by the user, before its end
    job: BackgroundJob | None = None

    async def waited(self, context: Context) -> bool:
        """Wait for the shell to end. Return False on a timeout. If the user ends the wait, make the
        command a job.
        """

        def to_background() -> None:
            if not limit.expired():
                self.become_job(context)
                self.backgrounded = True
                limit.reschedule(0)

        context.foreground.add(to_background)
        try:
            async with asyncio.timeout(self.params.timeout) as limit:
                await self.process.exited()
        except TimeoutError:
            pass
        finally:
            context.foreground.discard(to_background)
        return self.process.exit_code is not None

    def become_job(self, context: Context) -> None:
        """Turn the running command into a job. Raises ToolError."""
        self.job = adopt(
            self.process, self.params.command, context, self.capture.output, self.began
        )

    def output(self) -> Output:
        text = self.text()
        if self.backgrounded and self.job:
            note = self.note_of_job(self.job, text)
            return Output("\n".join(filter(None, (text, note))), self.details())
        failed = self.timed_out or self.interrupted or self.process.exit_code != 0
        notes = [self.note(), *self.about_sandbox(text if failed else "")]
        if not text and not any(notes):
            notes = ["[no output; exit 0]"]
        details = self.details()
        if failed and (blocked := self.blocked(text)):
            details["blocked"] = blocked
        said = "\n".join(filter(None, notes))
        filed = self.filed(said)
        if filed is None and self.capture.output.cut and not self.job:
            said = "\n".join(filter(None, (f"[It {self.capture.output.cut}]", said)))
        whole = "\n".join(filter(None, (text, said)))
        return Output(whole, details, is_error=failed, filed=filed)

    def text(self) -> str:
        """Return the output, or both its ends with a line that names the place of the rest."""
        advice = self.offered.say(*ADVICE)
        if self.job:
            advice = f"all of it is in {self.job.spool.path}"
        elif self.capture.output.file:
            advice = IN_FILE
        return self.capture.output.text(advice).strip("\n").rstrip()

    def filed(self, notes: str) -> FiledOutput | None:
        """Return the file with the output, with the notes at its end."""
        kept = self.capture.output
        if kept.file is None or self.job:
            return None
        kept.file.add_note(self.redact(Output(notes)).text)
        return FiledOutput(kept.file, kept.lines, kept.characters, kept.dropped > 0)

    def about_sandbox(self, complaint: str) -> Iterator[str]:
        """Yield notes for the model about the sandbox: that it may be the cause of the failure, and
        what it ended or undid.
        """
        if self.sandbox is None:
            return
        if self.process.left():
            yield "[what it left running was ended with it; run_in_background keeps such things]"
        if note := set_aside_notice(self.sandbox):
            yield note
        if kept_from := dict.fromkeys(self.process.refused):
            yield f"[not reached, as nobody has allowed it: {', '.join(kept_from)}]"
        if blocked := self.blocked(complaint):
            where = f"It ran in the sandbox: {self.sandbox.bounds()}."
            asks = blocked == "repository" or (
                blocked == "network" and self.sandbox.network_if_asked
            )
            way = blocked if asks else "" if self.sandbox.required else "unsandboxed"
            move = f" If that is why, call it again with {way}: the user is asked" if way else ""
            if blocked == "repository":
                move = f" Git alone may write .git: run it as a command of its own.{move}"
            yield f"[{where}{move}]"

    def blocked(self, complaint: str) -> str:
        """Return what the sandbox seems to have blocked, judging by the command's errors:
        "network", "repository", "files" or "" for nothing.
        """
        if self.sandbox is None:
            return ""
        if not self.sandbox.network and any(sign in complaint for sign in NETWORK_ERRORS):
            return "network"
        closed = any(sign in complaint for sign in READ_ONLY_ERRORS) and ".git" in complaint
        if closed and self.sandbox.keeps_repository:
            return "repository"
        signs = SANDBOX_ERRORS + (PARTIAL_SANDBOX_ERRORS if self.sandbox.partial else ())
        named = _PATH.findall(complaint, 0, MAX_COMPLAINT_CHARS)[:MAX_COMPLAINT_PATHS]
        there = [os.path.realpath(path) for path in named if os.path.lexists(path)]
        unseen = not all(map(self.sandbox.can_read, there))
        return "files" if unseen or any(sign in complaint for sign in signs) else ""

    def note(self) -> str:
        """Return a note for the model about the end of the command; "" after a plain success."""
        if self.interrupted:
            return "[interrupted by the user]"
        if self.timed_out:
            longer = f"Give a longer timeout (up to {MAX_TIMEOUT_S}) or run_in_background"
            move = longer if self.params.timeout < MAX_TIMEOUT_S else "Use run_in_background"
            killed = f"timed out after {self.params.timeout:g} s; the process tree was killed"
            return f"[{killed}. {move}]"
        code = self.process.exit_code
        notes = [f"[{ending(code)}]"] if code else []
        if self.job:
            way = self.offered.say("; the {Job} tool reads or ends it")
            notes.append(f"[{self.job.id}: {self.job.status}{way}]")
        return "\n".join(notes)

    def note_of_job(self, job: BackgroundJob, text: str) -> str:
        """Return a note for the model about a command that the user sent to the background."""
        seconds = time.monotonic() - self.began
        so_far = "above is its output so far" if text else "no output so far"
        return (
            f"[after {seconds:.0f} s the user sent it to the background, where it has no timeout; "
            f"{job.id}: {job.status}; {so_far}, all of it goes to {job.spool.path}"
            f"{self.offered.say(JOB_WAYS)}]"
        )

    def details(self) -> dict[str, Any]:
        cut = None if self.job else self.capture.output.cut
        return {
            "command": self.params.command,
            "exit_code": self.process.exit_code,
            "seconds": round(time.monotonic() - self.began, 3),
            "timed_out": self.timed_out,
            "interrupted": self.interrupted,
            "truncated": cut.printed - cut.kept if cut else 0,
            **(cut.details() if cut else {}),
            **({"job": self.job.id} if self.job else {}),
            **(
                {"backgrounded": True, **self.job.details()}
                if self.job and self.backgrounded
                else {}
            ),
            **({"sandboxed": True} if self.sandbox else {}),
            **({OUTSIDE: "the output of a command"} if self.has_network() else {}),
        }

    def has_network(self) -> bool:
        """Return True if the command was allowed the network, or reached a host by its name."""
        return self.params.network or bool(self.process.reached)


def confined(params: BashParams, context: Context) -> Confinement | None:
    """Return the sandbox of a command, None for none.

    Raises ToolError if the parameters do not fit the sandbox settings.
    """
    sandbox, unsandboxed = context.sandbox, params.unsandboxed
    if sandbox is None:
        return None
    if sandbox.required and sandbox.absent:
        raise ToolError(
            f"Commands run in a sandbox only here, and there is none: {sandbox.absent} The user "
            'can do that, or set sandbox.mode to "auto". Go on without commands.'
        )
    if params.network and sandbox.by_name:
        raise ToolError(
            "Run it without `network`: here commands reach hosts by name, through the proxy that "
            "their environment names, and the user is asked about new ones."
        )
    if params.network and not (sandbox.network or sandbox.absent or unsandboxed):
        raise ToolError("There is no network for commands here: sandbox.network is false.")
    if sandbox.required and unsandboxed:
        raise ToolError('No command runs outside of the sandbox here: sandbox.mode is "require".')
    return None if unsandboxed or sandbox.absent else sandbox


def _started(job: BackgroundJob, offered: Offered) -> Output:
    text = (
        f"[{job.id} started, pid {job.process.pid}; its output goes to {job.spool.path}"
        f"{offered.say(JOB_WAYS)}]"
    )
    return Output(text, job.details())
