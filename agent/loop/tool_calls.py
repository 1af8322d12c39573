"""Run the tool calls of one reply.

Each call is checked (`call_arguments`), permitted (`call_gate`) and run. Calls that change nothing
run in parallel. Other calls run one after another, in the order of the reply. Each result is
recorded as soon as it is finished, so that an interrupt, a crash or a kill loses no result. Large
texts, images, and outputs that were written to a file while the command ran become files of the
session.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ...tools import image as images
from ...tools.base import Context, FiledOutput, Interrupted, Output, Params, Tool
from ...tools.system import orphans
from ...tools.system.capture import OutputFile
from ...tools.system.foreign_code import foreign_code
from ...tools.system.process import named
from ...tools.system.take_turn import in_thread, take_turn
from ..compaction.layers import move
from ..compaction.layers.move import OVERSIZE_GATE, file_name, move_to_file
from ..compaction.policy import Policy
from ..context.items import unnumbered
from ..errors import ToolError
from ..events import Emit, Notice, ToolFinished, ToolOutput, ToolStarted
from ..lazy import dataclass
from ..permissions.objections import Verdict
from ..security.planted import PlantedWatch
from ..session.archive import OFFLOADED, offload, offload_image, open_partial
from ..session.entries import Block, ToolResult
from ..session.log import LOG_NAME
from ..session.store import locate_log
from .call_arguments import (
    CallRefused,
    CheckedCall,
    checked_call,
    title_of,
    with_known_path,
)
from .call_gate import CallGate
from .dispatch import Features
from .file_changes import ChangeTracker
from .interface import ToolCall
from .live_session import LiveSession


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Writes the results of one conversation to files of its session."""

    tools: Mapping[str, Tool[Any]]
    context: Context
    policy: Policy
    next_seq: Callable[[], int]
    emit: Emit

    def opener(self, tool: str, id: str) -> Callable[[], OutputFile] | None:
        """Return a function that creates the file for the output of call `id` while it runs; None
        without a session folder.
        """
        folder = self.context.session_dir
        if folder is None:
            return None
        limit = self.context.max_output_bytes
        return lambda: open_partial(folder, tool, id, limit)

    def store(self, tool: str, output: Output, details: dict[str, Any]) -> tuple[str, str | None]:
        """Return the text for the model, and the session file with the whole output or None. A
        large text is moved to a file and replaced by a reference. Facts about the file are added to
        `details`.
        """
        if "printed_bytes" in details:
            sizes = (
                f"{details['printed_bytes']:,} bytes, {details['kept_bytes']:,} of them are kept"
            )
            told = f"the output of {tool} is cut: it printed {sizes}: {details.get('cut_by')}"
            self.emit(Notice("warning", told))
        if output.whole:
            return self._save_whole_text(tool, output)
        if output.filed:
            return self._finish_file(tool, output.text, output.filed, details)
        folder = self.context.session_dir
        if folder is None:
            return output.text, None
        room = self.tools[tool].max_result_tokens if tool in self.tools else None
        try:
            found = move_to_file(
                output.text,
                tool=tool,
                seq=self.next_seq(),
                folder=folder,
                policy=self.policy,
                room=room,
                offered=self.context.offered,
            )
        except OSError as error:
            details["gate"] = OVERSIZE_GATE
            details["not_offloaded"] = str(error.strerror)
            told = f"the output of {tool} stays in the context: it cannot be saved in {folder}"
            self.emit(Notice("warning", f"{told}: {error.strerror}"))
            return output.text, None
        if found is None:
            if not self.policy.line_numbers:
                details.update(unnumbered(tool, output.text))
            return output.text, None
        plan, path = found
        details["gate"] = OVERSIZE_GATE
        details["tokens_saved"] = plan.saved
        return plan.reference, path

    def save_original(self, output: Output) -> dict[str, Any]:
        """Save the original of an image to a session file, and return its details. Return an empty
        dict if there is no image or it cannot be saved.
        """
        folder, data = self.context.session_dir, output.original
        if not data or folder is None:
            return {}
        try:
            path = offload_image(folder, data, images.format_of(data).lower() or "bin")
        except OSError as error:
            told = f"only the log has the original image: it cannot be saved in {folder}"
            self.emit(Notice("warning", f"{told}: {error.strerror}"))
            return {}
        digest = hashlib.sha256(data).hexdigest()
        return {"image": {"path": path, "sha256": digest, "bytes": len(data)}}

    def _save_whole_text(self, tool: str, output: Output) -> tuple[str, str | None]:
        """Save the whole text of a partial output to a session file. Return the text with the path
        added, and the file.
        """
        folder, seq = self.context.session_dir, self.next_seq()
        if folder is None:
            return output.text, None
        path = folder / OFFLOADED / file_name(tool, seq, datetime.now())
        try:
            offload(path, output.whole)
        except OSError as error:
            return f"{output.text}\n[The rest cannot be kept: {error.strerror}]", None
        text = f"{output.text}\n[All of it: {self._ways_to(path, seq)}]"
        return text, str(path.relative_to(folder))

    def _ways_to(self, path: Path, seq: int) -> str:
        """Return how the model gets a text that is in a file."""
        return self.context.offered.say(
            ("{Read or Grep} {path}", "{path}"), ", or {Recall} #{seq}", path=path, seq=seq
        )

    def _finish_file(
        self, tool: str, text: str, filed: FiledOutput, details: dict[str, Any]
    ) -> tuple[str, str | None]:
        """Rename the file of an output to its final name, or remove it if the text stays in the
        context.
        """
        seq, file = self.next_seq(), filed.file
        try:
            file.move(file.path.with_name(file_name(tool, seq, datetime.now())))
        except OSError as error:  # the file keeps its name
            self.emit(Notice("warning", f"{file.path} cannot be renamed: {error.strerror}"))
        name = f"{OFFLOADED}/{file.path.name}"
        plan = move.plan(
            text,
            path=str(file.path),
            policy=self.policy,
            tool=tool,
            filed=filed,
            offered=self.context.offered,
        )
        if plan is None and not filed.is_needed:
            file.remove()
            return text, None
        if plan is None:
            kept = "What is kept of it" if file.cut else "All of it"
            return f"{text}\n[{kept}: {self._ways_to(file.path, seq)}]", name
        details["gate"] = OVERSIZE_GATE
        details["tokens_saved"] = plan.saved
        return plan.reference, name


UNJUDGED = Verdict("allow", "nobody was asked: it is a call of the user", writes_repository=True)

MAX_PARALLEL_CALLS = 16  # each may have a process with pipes
INTERRUPTED = "[interrupted by the user]"
NOT_RUN = "[not run: the user interrupted before this call started]"


@dataclass
class ToolRunner:
    """Runs the tool calls of one conversation."""

    session: LiveSession
    features: Features
    change_tracker: ChangeTracker | None = None  # finds what calls change
    planted: PlantedWatch | None = None  # finds files that commands leave for others to run
    gate: CallGate = field(init=False)  # decides which calls may run

    def __post_init__(self) -> None:
        self.gate = CallGate(self.session, self.features, self.planted)

    @property
    def tools(self) -> dict[str, Tool[Any]]:
        """The tools by the name that the model uses."""
        return {tool.wire_name: tool for tool in self.session.tools}

    @property
    def files(self) -> ResultFiles:
        """The writer of result files."""
        session = self.session
        return ResultFiles(
            self.tools, session.context, session.policy_now, lambda: self._next_seq, session.emit
        )

    @property
    def _next_seq(self) -> int:
        return self.session.log.last_seq + 1

    async def run(self, calls: list[Block], broken: Mapping[str, str], *, cut: bool) -> None:
        """Run the calls and record a result for each.

        `broken` has the raw arguments of calls with invalid JSON. `cut` is True if the reply was
        cut off at the output limit. After a cancellation, a result is recorded for every call
        before CancelledError is raised.
        """
        waiting = list(calls)
        try:
            while waiting:
                await take_turn()
                group = self._group(waiting)
                async with asyncio.TaskGroup() as tasks:
                    for call in group:
                        waiting.remove(call)
                        tasks.create_task(self._one(call, broken.get(call["id"]), cut))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        except asyncio.CancelledError:
            for call in waiting:
                self._finish(call, title_of(self.tools, call), _not_run(), 0.0)
            raise

    def _group(self, calls: list[Block]) -> list[Block]:
        """Return the calls to run next: several harmless calls in parallel, or one other call."""
        harmless, tools = list[Block](), self.tools
        for call in calls[:MAX_PARALLEL_CALLS]:
            tool = tools.get(call["name"])
            if tool and tool.effect not in ("none", "read"):
                break
            harmless.append(call)
        return harmless or calls[:1]

    async def _one(self, block: Block, raw: str | None, cut: bool) -> None:
        title, started, stopped = title_of(self.tools, block), time.monotonic(), _not_run()
        name = block["name"]
        try:
            checked = checked_call(self.tools, block, raw, cut=cut)
            checked = await with_known_path(checked, self.session.context)
            tool, params, given = checked.tool, checked.params, checked.arguments
            call = ToolCall(block["id"], tool.name, tool.title(params), given, self._cwd)
            name, title = tool.name, call.title
            params, call, verdict = await self.gate.permit(tool, params, call)
            title, started = call.title, time.monotonic()
            stopped = Output(INTERRUPTED, {"interrupted": True}, is_error=True)
            self.session.emit(ToolStarted(call.id, tool.name, title, dict(call.arguments)))
            output = await self.watched(tool, params, call.id, verdict)
        except CallRefused as refused:  # 0 seconds: waiting for the user does not count
            self._finish(block, title, refused.output, 0.0, name)
            return
        except Interrupted as interrupted:
            stopped = interrupted.output
            stopped = replace(stopped, details={**stopped.details, **_ran_with(call, checked)})
            self._finish(block, title, stopped, time.monotonic() - started, name)
            raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            self._finish(block, title, stopped, 0.0, name)
            raise
        seconds = time.monotonic() - started
        output = replace(output, details={**output.details, **_ran_with(call, checked)})
        try:
            output = await self.features.after_tool(call, output, seconds)
        finally:
            output = self._finish(block, title, output, seconds, name)
        await self.features.tool_finished(call, output, seconds)

    @property
    def _cwd(self) -> Path:
        return self.session.context.cwd

    async def permitted(self, tool: Tool[Any], params: Params, id: str) -> Output:
        """Run a call from a command file under the same permission rules as a call from the model.
        Return its output, or the reason why it may not run. Nothing is recorded. Raises the same
        errors as `watched`.
        """
        call = ToolCall(id, tool.name, tool.title(params), params.model_dump(), self._cwd)
        try:
            params, call, verdict = await self.gate.permit(tool, params, call)
            return await self.watched(tool, params, id, verdict)
        except CallRefused as refused:
            return refused.output

    async def watched(
        self, tool: Tool[Any], params: Params, id: str, verdict: Verdict = UNJUDGED
    ) -> Output:
        """Run a permitted call. Return its output, with its file changes and any files it left for
        other programs to run. Nothing is recorded.

        The call runs in the sandbox of its verdict, on the judged file. Raises Interrupted with the
        partial output, or CancelledError.
        """
        tracker, token, left, interrupted = self.change_tracker, None, None, False
        planted = self.planted if tool.effect == "run" or tool.name == "Job" else None
        if tracker:
            token = await tracker.before(tool, params)
            if token and (token.before is not None or token.edits is not None):
                await self.session.snapshot()
            await tracker.save(token)
        if planted:
            jobs = self.session.context.jobs
            await in_thread(planted.begin, jobs, unasked=verdict.confined)
        try:
            context = self._context(tool, id, verdict)
            with foreign_code(ToolError, Interrupted) as problems:
                given: Any = await tool.run(params, context)
                if not isinstance(given, Output):
                    raise TypeError(f"run must give an Output, not {type(given).__name__}")
                output = given
            if problems:
                text = f"{tool.name} failed by a fault of its own: {problems[0]}"
                output = Output(text, {"fault": problems[0].partition(":")[0]}, is_error=True)
        except ToolError as error:
            output = Output(str(error), dict(error.details), is_error=True)
        except Interrupted as interruption:
            output, interrupted = interruption.output, True
        finally:
            if planted:
                left = await in_thread(planted.end)
        if left:
            self.session.emit(Notice("warning", left.notice))
            output = replace(output, text=f"{output.text}\n{left.note}".strip("\n"))
            if output.filed:
                output.filed.file.add_note(self.session.context.redact(Output(left.note)).text)
        if tracker:
            try:
                found = await tracker.after(token, hurry=interrupted)
            except asyncio.CancelledError:
                raise Interrupted(output) from None
            output = replace(output, details={**output.details, **found})
        if interrupted:
            raise Interrupted(output)
        return output

    def _context(self, tool: Tool[Any], id: str, verdict: Verdict) -> Context:
        """Return the context of a call. Raises CallRefused."""
        return replace(
            self.gate.context_to_run(tool, verdict),
            progress=lambda text: self.session.emit(ToolOutput(id, text)),
            env=self._env(id),
            open_file=self.files.opener(tool.name, id),
            is_denied=self.session.approval.denies_reading,
        )

    def _env(self, id: str) -> Mapping[str, str]:
        """Return the environment of a call's commands. It includes the name of the call, to find
        leftover processes after a kill.
        """
        context = self.session.context
        if context.session_dir is None:
            return context.env
        session = locate_log(context.session_dir / LOG_NAME)[1]
        name = orphans.call_name(session, self._next_seq, id)
        return named(context.env, name)

    def _finish(
        self, call: Block, title: str, output: Output, seconds: float, name: str = ""
    ) -> Output:
        """Record a result, and return the output as recorded. `name` is the tool that ran, if the
        call used another name.
        """
        output = self.session.context.redact(output)
        details = {**output.details, **self.files.save_original(output)}
        content: str | list[Block] = output.blocks or output.text
        offloaded = None
        if output.whole or isinstance(content, str):
            content, offloaded = self.files.store(call["name"], output, details)
        recorded = self.session.record(
            ToolResult(
                tool_use_id=call["id"],
                content=content,
                is_error=output.is_error,
                details=details,
                offloaded=offloaded,
            )
        )
        shown = content if isinstance(content, str) else output.text
        self.session.emit(
            ToolFinished(
                call["id"], name or call["name"], title, output.is_error, shown, seconds, details,
                recorded.seq,
            )
        )  # fmt: skip
        return output


def _ran_with(call: ToolCall, checked: CheckedCall) -> dict[str, Any]:
    """Return the arguments that the call ran with, and its repairs, as details. Leave out arguments
    that the model sent, and an empty list of repairs.
    """
    is_changed = checked.is_repaired or call.arguments is not checked.arguments
    details: dict[str, Any] = {"arguments": dict(call.arguments)} if is_changed else {}
    return {**details, "repairs": [*checked.repairs]} if checked.repairs else details


def _not_run() -> Output:
    """Return the output of a call that was stopped before it started."""
    return Output(NOT_RUN, {"interrupted": True, "not_run": True}, is_error=True)
