"""Test the adapter without a container: `.venv/bin/python benchmarks/harbor/run.py PYTHON`.

PYTHON is a Python 3.12 or newer with Harbor installed. The script builds a wheel of this checkout.
Then Harbor's own classes install the wheel and run a task twice in a fake environment, which runs
commands on this machine in a temporary folder. The model is the strict server of the tests. The
script prints what Harbor would receive.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ctxagent.tests.support.fleet import CALLS, git, repository, work
from ctxagent.tests.support.server.loopback import Server

ROOT = Path(__file__).resolve().parents[2]
INSIDE = """\
import asyncio, json, shutil, sys
from pathlib import Path
from unittest.mock import create_autospec

import ctxagent_agent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext

root, wheel = Path(sys.argv[1]), sys.argv[2]
ctxagent_agent.FOLDER = str(root / "installed")


async def exec(command, cwd=None, env=None, timeout_sec=None, user=None):
    if command.startswith("[ -d /installed-agent ]"):
        return ExecResult(return_code=0)
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, cwd=cwd or root / "app", env={**HOST, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)


async def upload_file(source_path, target_path):
    shutil.copyfile(source_path, target_path)


async def main():
    agent = ctxagent_agent.Ctxagent(
        logs_dir=root / "logs", model_name="anthropic/claude-sonnet-5-5", wheel=wheel,
        max_turns=20)
    type(agent).environment_logs_dir = property(lambda self: root / "logs")
    environment = create_autospec(BaseEnvironment, instance=True, default_user=None)
    environment.exec, environment.upload_file = exec, upload_file
    await agent.setup(environment)
    for _ in range(2):
        context = AgentContext()
        await agent.run("Write made.txt.", environment, context)
        agent.populate_context_post_run(context)
        print(json.dumps({"version": agent.version(), **context.model_dump(exclude_none=True)}))


import os
HOST = {"PATH": os.environ["PATH"], "HOME": str(root)}
asyncio.run(main())
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="harbor-") as name, Server(work) as server:
        root = Path(name)
        wheels = root / "dist"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels)]
        subprocess.run([*command, str(ROOT)], check=True)
        repository(root / "app")
        env = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "PYTHONPATH": str(Path(__file__).parent),
            "ANTHROPIC_API_KEY": "test",
            "ANTHROPIC_BASE_URL": server.url,
        }
        (wheel,) = wheels.iterdir()
        done = subprocess.run(
            [sys.argv[1], "-c", INSIDE, name, str(wheel)],
            env=env, text=True, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        first, second = map(json.loads, done.stdout.splitlines())
        print(json.dumps(first, indent=1))
        held = {
            "the second run gives the first one's result": first == second,
            "the server was asked once": len(server.requests) == CALLS + 1 and not server.rejected,
            "the file is there": "?? made.txt" in git(root / "app", "status", "--short"),
        }
        for what, holds in held.items():
            print(f"{'ok' if holds else 'WRONG'}: {what}")
        return int(not all(held.values()))


if __name__ == "__main__":
    sys.exit(main())
