"""Start-up: CPU and wall seconds until something is there, beside an empty Python process.

`first request` runs the real command against a server on loopback that answers at once, so it
holds the import of the SDK, one request and the reply. `first paint` is the CPU time a REPL in a
pseudo-terminal has used when its prompt is there.
"""

import sys
import tempfile
from pathlib import Path

import measure
from serving import answering, environ


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, answering() as url:
        cwd, env = Path(folder), environ(folder, url)
        commands = {
            "empty python": [sys.executable, "-c", "pass"],
            "--version": [measure.COMMAND, "--version"],
            "--help": [measure.COMMAND, "--help"],
            "import of the REPL": [sys.executable, "-c", "import ctxagent.agent.ui.repl"],
            "import of anthropic": [sys.executable, "-c", "import anthropic"],
            "-p, one request": [measure.COMMAND, "-p", "hello"],
        }
        rows = {}
        for name, command in commands.items():
            used, wall = measure.median(lambda c=command: measure.cpu(c, env=env, cwd=cwd))
            rows[name] = {"cpu_s": used, "wall_s": wall}
        used, wall = measure.median(lambda: measure.first_paint(env=env, cwd=cwd))
        rows["first paint of the REPL"] = {"cpu_s": used, "wall_s": wall}
        empty = rows["empty python"]["cpu_s"]
        for figures in rows.values():
            figures["x_empty"] = figures["cpu_s"] / empty
    measure.report("start-up", rows)


if __name__ == "__main__":
    main()
