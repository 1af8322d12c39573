"""Attachments: files and directories that a message names with `@`, and piped input.

For small models, which change files that they have not read, also short text files that a message
names without `@`.

Each attachment is recorded as an entry after the message. A file is read as by the Read tool, a
directory is listed as by Glob. The user is not asked, because naming a file allows reading it. Deny
rules still apply.
"""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools import text as texts
from ...tools.base import Output, Params, Tool
from ...tools.glob import GlobParams, GlobTool
from ...tools.image import image_size
from ...tools.offered import Offered
from ...tools.read import MAX_LINES, ReadParams, ReadTool, image_output
from ...tools.system.phrasing import count_of
from ..compaction.layers import move
from ..compaction.policy import Policy
from ..context.tokens import estimate
from ..errors import RecordError, ToolError
from ..events import Notice, waiting
from ..extensions.command import is_command_message
from ..launch import AttachedData
from ..lazy import regex
from ..loop.interface import Feature, IncomingMessage
from ..loop.live_session import LiveSession
from ..loop.tool_calls import ToolRunner
from ..session.entries import ATTACHMENT, Content, User
from .mentions import (
    MAX_NAMED,
    Mention,
    ResourceMention,
    find_mentions,
    missing_names,
    named_files,
)

if TYPE_CHECKING:
    from ..extensions.mcp.servers import McpServers

MAX_MENTIONS = 20  # attached per message
_NUMBER = regex(r"^ *\d+\t")
_LIKE_WORD = regex(r"[\w./-]*\w")

Attached = Mention | ResourceMention | AttachedData


class AttachmentsFeature(Feature):
    """Attaches files, directories, resources and data to the user's messages."""

    name = "attachments"

    def __init__(
        self, session: LiveSession, runner: ToolRunner, servers: "McpServers | None" = None
    ) -> None:
        super().__init__(session)
        self._runner, self._servers = runner, servers

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Attach the data of a message, and the files that the message names with `@`."""
        typed = not (message.verbatim or is_command_message(message.content))
        servers = self._servers.names if self._servers else ()
        cwd = self.session.context.cwd
        named = await asyncio.to_thread(
            find_mentions, message.content, cwd, typed=typed, servers=servers
        )
        if typed:
            missing = await asyncio.to_thread(missing_names, message.content, cwd, servers=servers)
            self._report_missing(message.content, missing)
        if self.session.policy.brief and not message.verbatim:
            named += await self._named(message.content, known=named)
        attached: list[Attached] = [*message.attached, *named]
        for data in attached:
            if isinstance(data, AttachedData):
                await self._attach_data(data)
        mentions = [each for each in attached if isinstance(each, Mention)]
        for mention in mentions[:MAX_MENTIONS]:
            await self._attach_mention(mention)
        resources = [each for each in attached if isinstance(each, ResourceMention)]
        for resource in resources[:MAX_MENTIONS]:
            await self._attach_resource(resource)
        if left := [mention.as_written for mention in mentions[MAX_MENTIONS:]]:
            more = f"@{left[0]}" + (f" and {len(left) - 1:,} more" if len(left) > 1 else "")
            self._warn(f"{more}: not attached; at most {MAX_MENTIONS} per message")

    def _report_missing(self, words: Content, missing: Mapping[str, bool]) -> None:
        """Report names of files that do not exist, and other names in a message of a single line,
        which is not code.
        """
        is_line = isinstance(words, str) and "\n" not in words.strip()
        for name, is_file in [*missing.items()][:MAX_NAMED]:
            told = f"@{name}: there is no such file or directory; the name is sent as text"
            if is_file:
                self._warn(told)
            elif is_line and _LIKE_WORD.fullmatch(name):
                self.session.emit(Notice("info", told))

    async def _named(self, words: Content, *, known: Collection[object]) -> list[Mention]:
        """Return the files to attach that a message names without `@`."""
        cwd = self.session.context.cwd
        paths = {each.path for each in known if isinstance(each, Mention)}
        found = await asyncio.to_thread(named_files, words, cwd)
        judge = self.session.approval.judge
        return [
            each
            for each in found
            if each.path not in paths and judge(*_call(cwd, each)).action == "allow"
        ]

    async def _attach_mention(self, mention: Mention) -> None:
        tool, params = _call(self.session.context.cwd, mention)
        verdict = self.session.approval.judge(tool, params)
        if not mention.typed and verdict.action != "allow":
            self._warn(f"@{mention.as_written}: not attached; {verdict.reason}")
            return
        if verdict.action == "deny":
            output = Output(f"Not allowed: {verdict.reason}.", is_error=True)
        else:
            id = f"{ATTACHMENT}-{self.session.log.last_seq + 1}"
            output = self.session.context.redact(
                await self._runner.watched(tool, params, id, verdict)
            )
        kept = self._runner.files.save_original(output)
        details = {
            **output.details,
            **kept,
            "call": {"name": tool.name, "input": params.model_dump()},
        }
        text = output.text
        if self.session.policy.brief and "lines" in details:  # such models copy the numbers
            text = "\n".join(_NUMBER.sub("", line) for line in text.split("\n"))
        told, content = f"attached {mention.as_written}", f"{_heading(mention, tool)}:]\n{text}"
        blocks: Content = [block for block in output.blocks or () if block.get("type") != "text"]
        if output.is_error:
            content = f"{_heading(mention, tool)}, but it could not be read. {output.text}]"
        elif not blocks and estimate(output.text) > self._most():
            content, lines = _beginning(
                self.session.policy, mention, output, self.session.context.offered
            )
            details |= {"lines": lines} if "lines" in details else {}
            told += ", as a reference because it is large"
        elif "width" in details:
            told += f", {image_size(details)}"
        self.session.record(
            User(
                content=[_text(content), *blocks] if blocks else content,
                source=ATTACHMENT,
                details=details,
            )
        )
        if output.is_error:
            self._warn(f"@{mention.as_written}: not attached; {output.text}")
        else:
            self.session.emit(Notice("info", told))

    async def _attach_resource(self, mention: ResourceMention) -> None:
        """Record the content of a resource. A large text becomes a reference; binary data goes
        to files.
        """
        given = f"{mention.server}:{mention.uri}"
        if self._servers is None:
            return
        tool = self._servers.reader(mention.server)
        params = tool.Params.model_validate({"uri": mention.uri})
        verdict = self.session.approval.judge(tool, params)
        if verdict.rule in self.session.approval.rules()["deny"]:
            self._warn(f"@{given}: not attached; {verdict.reason}")
            return
        id = f"{ATTACHMENT}-{self.session.log.last_seq + 1}"
        with waiting(self.session.emit, f"the MCP server {mention.server}"):
            output = await self._runner.watched(tool, params, id, verdict)
        if output.is_error:
            self._warn(f"@{given}: not attached; {self.session.context.redact(output).text}")
            return
        text, offloaded = await asyncio.to_thread(self._moved, output.text, "Mcp")
        heading = (
            f"[The user attached the resource {mention.uri} of the MCP server {mention.server}:]"
        )
        call = {"name": "Mcp", "input": {"tool": tool.name, "arguments": {"uri": mention.uri}}}
        details = {**output.details, "call": call}
        content = f"{heading}\n{text}"
        self.session.record(
            User(content=content, source=ATTACHMENT, details=details, offloaded=offloaded)
        )
        self.session.emit(Notice("info", f"attached {given}"))

    async def _attach_data(self, piped: AttachedData) -> None:
        """Record piped input. A large text becomes a reference to a file of the session."""
        call = {"name": piped.name, "input": {}}
        details: dict[str, Any] = {"call": call, "bytes": len(piped.data)}
        size, offloaded = f"{len(piped.data):,} bytes", None
        content: Content
        try:
            data, name = piped.data, piped.title
            if shown := await asyncio.to_thread(image_output, name, data, len(data)):
                content = shown.blocks or shown.text
                details |= {**shown.details, **self._runner.files.save_original(shown)}
            else:
                text = (await asyncio.to_thread(texts.decode, piped.data))[0]
                count = texts.count_lines(text)
                size = f"{count_of(count, 'line')}, {size}"
                text, offloaded = await asyncio.to_thread(
                    self._moved, texts.printable(text), piped.name
                )
                cut = f", cut: {piped.cut}" if piped.cut else ""
                content = f"[The user attached {piped.title}, {size}{cut}:]\n{text}"
            self.session.emit(Notice("info", f"attached {piped.title}, {size}"))
        except (texts.NotText, ToolError) as error:
            why = f"{piped.title} is binary, not text: {texts.kind(piped.data) or 'data'}, {size}"
            why = str(error) if isinstance(error, ToolError) else why
            content = f"[The user attached {piped.title}, but it can't be shown. {why}]"
            self._warn(f"{piped.title} is not attached; {why}")
        self.session.record(
            User(content=content, source=ATTACHMENT, details=details, offloaded=offloaded)
        )

    def _moved(self, text: str, name: str) -> tuple[str, str | None]:
        """Return (text without secrets, None). For a large text, write it to a file of the session
        and return (reference, file). Blocks. Raises RecordError.
        """
        text = self.session.context.redact(Output(text)).text
        policy = self.session.policy.moving_above(self._most())
        try:
            found = move.move_to_file(
                text,
                tool=name,
                seq=self.session.log.last_seq + 1,
                folder=self.session.folder,
                policy=policy,
                offered=self.session.context.offered,
            )
        except OSError as error:
            raise RecordError(
                f"cannot keep the input in {self.session.folder}: {error.strerror}"
            ) from error
        return (text, None) if found is None else (found[0].reference, found[1])

    def _most(self) -> int:
        """Return the largest text, in tokens, that is attached in full."""
        share = int(move.MAX_WORDS_SHARE * self.session.model.current_window().size)
        return min(share, self.session.policy.moves_above("Read") or share)

    def _warn(self, text: str) -> None:
        self.session.emit(Notice("warning", text))


def _heading(mention: Mention, tool: Tool[Any]) -> str:
    what = "file" if tool.name == ReadTool.name else "directory"
    return f"[The user attached the {what} {mention.as_written}"


def _call(cwd: Path, mention: Mention) -> tuple[Tool[Any], Params]:
    """Return the call that reads the file or lists the directory of a mention."""
    if (cwd / Path(mention.path).expanduser()).is_dir():
        return GlobTool(), GlobParams(pattern="*", path=mention.path)
    count = MAX_LINES if mention.last is None else mention.last - mention.first + 1
    limit = min(count, MAX_LINES)
    return ReadTool(), ReadParams(path=mention.path, offset=mention.first, limit=limit)


def _beginning(
    policy: Policy, mention: Mention, output: Output, offered: Offered
) -> tuple[str, list[int]]:
    """Return a reference to a large file with its first lines, and the numbers of the first and
    last of these lines.
    """
    lines, size = list[str](), 0
    for line in output.text.split("\n"):
        size += len(line) + 1
        if size > policy.preview_chars and lines:
            break
        lines.append(line[: policy.preview_chars])
    details, size = output.details, Path(output.details["path"]).stat().st_size
    units = {"lines": "total", "pages": "pages", "cells": "cells"}
    facts = [f"{details[key]:,} {unit}" for unit, key in units.items() if details.get(key)]
    head = (
        f"[The user attached the file {mention.as_written}: "
        f"{', '.join([f'{size:,} bytes', *facts])}, too large to be given whole. It begins with "
        "the lines below"
        + offered.say("; {Read} it with offset and limit", ", or {Grep} it" * ("lines" in details))
        + ".]"
    )
    return "\n".join([head, *lines]), [mention.first, mention.first + len(lines) - 1]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
