"""`ctxagent rpc`: sessions for a program, as JSON-RPC over standard input and output."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import click

from ctxagent.api.base import CtxagentError, UsageError
from ctxagent.api.cli import exits_with_code, launch_of
from ctxagent.api.front_ends import bounded_lines, event_json, question_json
from ctxagent.api.session import Agent, Answer, Event, Question, SessionChoice, events


class RpcSession:
    def __init__(self, server: "Server", folder: str, resume: str | None = None) -> None:
        self.server, self.id, choice = server, "", SessionChoice(id=resume)
        launch = launch_of({**server.options, "cwd": Path(folder)})
        self.agent = Agent.launched(launch, choice, approve=self.approve, on_event=self.show)

    def show(self, event: Event) -> None:
        if isinstance(event, events.SessionOpened):
            self.id = event.session_id
        self.server.write(method="event", params={"session": self.id, **event_json(event)})

    async def approve(self, question: Question) -> Answer | None:
        given = await self.server.ask({"session": self.id, **question_json(question)})
        return Answer(**given) if given else None

    async def send(self, text: str) -> dict[str, Any]:
        return (await self.agent.run(text)).to_json()

    async def compact(self, words: str = "") -> dict[str, Any]:
        return await self.send(f"/compact {words}")

    async def interrupt(self) -> bool:
        return self.agent.interrupt()

    async def close(self) -> None:
        await self.agent.close()
        del self.server.sessions[self.id]


class Server:
    def __init__(self, options: dict[str, Any], sink: int) -> None:
        self.options, self.sink = options, os.fdopen(sink, "w", encoding="utf-8")
        self.sessions: dict[str, RpcSession] = {}
        self.asked: dict[int, asyncio.Future[Any]] = {}

    def write(self, **message: Any) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), file=self.sink, flush=True)

    async def ask(self, params: dict[str, Any]) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.asked[id(answer)] = answer
        self.write(id=id(answer), method="ask", params=params)
        return await answer

    async def call(self, method: str, session: str = "", **params: Any) -> Any:
        if method == "open":
            opened = await asyncio.to_thread(RpcSession, self, **params)
            await opened.agent.open()
            self.sessions[opened.id] = opened
            return opened.id
        if session not in self.sessions or method not in ("send", "compact", "interrupt", "close"):
            raise UsageError(f"there is no method {method!r}, or no open session {session!r}")
        return await getattr(self.sessions[session], method)(**params)

    async def take(self, line: bytes | None) -> None:
        message = dict[str, Any]()
        try:
            message = json.loads(line or b"")
            if "method" not in message:
                self.asked.pop(message["id"]).set_result(message.get("result"))
                return
            reply = {"result": await self.call(message["method"], **message.get("params", {}))}
        except (CtxagentError, LookupError, TypeError, ValueError) as error:
            reply = {"error": {"code": -32000, "message": str(error)}}
        self.write(id=message.get("id"), **reply)

    async def serve(self) -> None:
        lines = bounded_lines(0)
        async with asyncio.TaskGroup() as group:
            while found := await asyncio.to_thread(next, lines, None):
                group.create_task(self.take(found[1]))
            for each in [*self.sessions.values()]:
                await each.close()


@click.command()
@click.pass_obj
@exits_with_code
def command(options: dict[str, Any]) -> int:
    """Serve a program by JSON-RPC (stdin, stdout)."""
    sink = os.dup(1)
    os.dup2(2, 1)  # all other output goes to standard error
    asyncio.run(Server(options, sink).serve())
    return 0
