"""The proxy in a thread of this process, on a loopback port."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from ctxagent.addons.proxy.serve import ProxyOptions, serving
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.session.entries import Entry
from ctxagent.agent.session.log import Entries
from ctxagent.agent.session.store import Project


@dataclass(frozen=True)
class Got:
    """An answer as received, before decoding."""

    status: int
    headers: httpx2.Headers
    raw: bytes


@dataclass
class RunningProxy:
    """A proxy, a client of it, and its logs and reports."""

    url: str
    client: httpx2.Client
    project: Project
    reports: list[str] = field(default_factory=list)

    def send(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Got:
        request = self.client.build_request(method, path, content=data, headers=dict(headers))
        answer = self.client.send(request, stream=True)
        try:
            return Got(answer.status_code, answer.headers, b"".join(answer.iter_raw()))
        finally:
            answer.close()

    def post(self, path: str, data: bytes) -> Got:
        return self.send("POST", path, data, {"content-type": "application/json"})

    def logs(self) -> list[Path]:
        return self.project.logs()

    def entries(self) -> list[Entry]:
        """Return the entries of the only session."""
        (log,) = self.logs()
        return [*Entries(log)]


@contextmanager
def running_proxy(
    folder: Path, upstream: str, policy: Policy = DEFAULT, window: int | None = None, *,
    summaries: bool = True,
) -> Iterator[RunningProxy]:  # fmt: skip
    """Run a proxy for the project `folder`/project; `upstream` is the base URL of its server."""
    project = Project(folder / "state", folder / "project")
    project.cwd.mkdir(parents=True, exist_ok=True)
    reports: list[str] = []
    all_upstreams = {"messages": upstream, "openai": f"{upstream}/v1", "gemini": upstream}
    options = ProxyOptions(
        project, policy, 0, all_upstreams, summaries=summaries, window=window, report=reports.append
    )
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    found: list[str] = []
    ready = threading.Event()

    async def run() -> None:
        try:
            async with serving(options, {}) as address:
                found.append(address)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    ready.wait()
    try:
        with httpx2.Client(base_url=found[0], timeout=60) as client:
            yield RunningProxy(found[0], client, project, reports)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
