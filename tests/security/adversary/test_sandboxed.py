"""Written commands with the real tool in the real sandbox, in the modes that rarely ask: files
outside the project stay unchanged and unread, and so do files that rules guard.
"""

import re
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.events import Answer, Question
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.base import Context

from ...support.machine import needs_bwrap
from ...support.sessions.conversation import Conversation
from .allowance import DENY
from .corpus import corpus
from .scenes import GUARDED_SECRET, OUTSIDE_SECRET, Scene, build_scenes

# Nothing of the machine itself is put at risk: the sandbox may have a fault.
_OF_THE_MACHINE = re.compile(r"\b(?:date|hostname|dd|ps|ping|daemon|instaweb|pastebin)\b")
EVERY, COUNT = 19, 45  # commands


def texts(port: int) -> Iterator[str]:
    """Yield a sample of the written commands, with our own port."""
    plain = (text for text, scene in corpus() if scene == "plain" and "\n" not in text)
    harmless = (text for text in plain if not _OF_THE_MACHINE.search(text))
    for text in islice(harmless, 3, None, EVERY):
        yield text.replace("127.0.0.1:9", f"127.0.0.1:{port}").replace(
            "127.0.0.1/9", f"127.0.0.1/{port}"
        )


def context_of(scene: Scene, state: Path) -> Context:
    own = state / "own"
    own.mkdir(parents=True)
    # Files next to the project are in the home, which commands may not read.
    environ = {**scene.environ, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(scene.root)}
    box = Sandbox(
        cwd=scene.project, environ=environ, own_temporary=own / "temporary",
        own_caches=state / "caches", network=False, hide=[state], show=[own],
        temporary=(),
    )  # fmt: skip
    return Context(scene.project, session_dir=own, env=environ, sandbox=box)


@needs_bwrap
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sandboxed", "bypass"])
def test_the_sandbox_confines_unasked_commands(tmp_path: Path, mode: PermissionMode) -> None:
    (scene,) = (s for s in build_scenes(tmp_path, tmp_path / "marks") if s.name == "plain")

    async def decline(question: Question) -> Answer:
        return Answer(False)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        commands = list(islice(texts(server.getsockname()[1]), COUNT))
        commands = [text.replace("SCENE", str(scene.root)) for text in commands]
        steps = [Step(tools=[("Bash", {"command": text, "timeout": 20})]) for text in commands]
        talk = Conversation(
            scene.project, [*steps, Step(text="done")], mode=mode, deny=[*DENY, "Read(asked.txt)"],
            ask=decline,
        )  # fmt: skip
        talk.agent.context = context_of(scene, tmp_path / "state")
        talk.agent.approval.sandbox = talk.agent.context.sandbox
        talk.say("go")
        with pytest.raises(BlockingIOError):
            server.accept()
    results = talk.of(ToolResult)
    assert len(results) == len(commands)
    for command, result in zip(commands, results, strict=True):
        # Paths that a command visibly names are readable in bypass mode.
        assert mode == "bypass" or OUTSIDE_SECRET not in str(result.content), command
        assert GUARDED_SECRET not in str(result.content), command
    kept = ("project/.git/hooks", "project/.git/config", "project/.envrc", "project/.env")
    # The session's own folder is `project-state`.
    changed = [path for path in scene.changes() if path.startswith(("outside", "home", *kept))]
    assert changed == []
