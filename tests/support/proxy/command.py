"""The real command `ctxagent proxy`, which can be killed and restarted on its port."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxagent.tests.support.command import COMMAND, Place
from ctxagent.tests.support.disk import Disk


@dataclass
class ProxyCommand:
    """A proxy process. `arguments` are options before `proxy`; `errors` is the file with its
    standard error.
    """

    place: Place
    upstream: str
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    port: int = 0
    inside: Disk | None = None  # disk with the state folder
    process: "subprocess.Popen[Any] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def errors(self) -> Path:
        return self.place.root / "proxy.err"

    def start(self) -> None:
        base = self.upstream
        upstreams = (f"messages={base}", f"openai={base}/v1", f"gemini={base}")
        options = [word for each in upstreams for word in ("--upstream", each)]
        with self.errors.open("a") as errors:
            words = [*self.arguments, "proxy", "--port", str(self.port), *options]
            given: dict[str, Any] = {}
            if self.inside is not None:
                words = self.inside.inside([COMMAND, *words], self.place.project)
                given["command"] = ()
            self.process = self.place.start(
                *words, env=self.place.environ(self.variables), stdout=subprocess.PIPE,
                stderr=errors, **given,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, (line, self.errors.read_text())
        self.port = int(found[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal; return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code: int = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code


@contextmanager
def proxy_command(place: Place, upstream: str, *arguments: str) -> Iterator[ProxyCommand]:
    """Run the proxy in the project of `place`."""
    command = ProxyCommand(place, upstream, arguments)
    command.start()
    try:
        yield command
    finally:
        if command.process is not None:
            command.stop(signal.SIGKILL)
