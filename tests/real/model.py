"""The small real models, and their server."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ctxagent.agent.models.chat_templates import FENCE, template_path

FOLDER = Path(__file__).parent
INSTALLED = FOLDER.parents[1] / ".real"  # by `make`
PYTHON = INSTALLED / "bin" / "python"


@dataclass(frozen=True)
class Model:
    """A model that `make` installs."""

    name: str
    template: Path  # its chat template
    weights: Path | None = None  # None: they are in its package


SMOLLM2 = Model("smollm2", FOLDER / "chat.jinja")
QWEN = Model("qwen2.5-coder", template_path(FENCE), INSTALLED / "qwen.gguf")


@contextmanager
def served(model: Model, window: int, threads: int = 2, seed: int = 1) -> Iterator[str]:
    """Serve a model at a free port of this machine; yield the address, without `/v1`."""
    port = free_port()
    numbers = map(str, (port, window, threads, seed))
    command = [str(PYTHON), str(FOLDER / "serve.py"), *numbers, model.name, str(model.template)]
    if model.weights is not None:
        command.append(str(model.weights))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout
            if not any(b"serving at" in line for line in server.stdout):
                sys.exit("The server did not start.")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
