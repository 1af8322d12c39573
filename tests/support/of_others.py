"""Third-party programs from npm and PyPI, installed into the cache of pytest."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

NPM = (
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@copilotkit/aimock",
    "acpx",
)
AIMOCK = Path("node_modules/@copilotkit/aimock")  # in the folder of what is installed
ACPX = Path("node_modules/.bin/acpx")
INSTALL_TIMEOUT_S = 180


def installed(config: pytest.Config) -> Path:
    """Return the folder with the programs; skip the test if they cannot be installed."""
    assert config.cache is not None
    folder = config.cache.mkdir("mcp_servers")
    with (folder / "lock").open("w") as lock:  # other workers install nothing meanwhile
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install(folder)
    return folder


def _install(folder: Path) -> None:
    """Install missing programs, once per test run; skip the test on failure."""
    refused = folder / f"refused-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    if refused.exists():
        pytest.skip(refused.read_text())
    npm = ["npm", "install", "--silent", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000",
           "--prefix", str(folder)]  # fmt: skip
    python = folder / "python"
    steps: list[list[str]] = []
    if not all((folder / "node_modules" / name).exists() for name in NPM):
        steps.append([*npm, *NPM])
    if not (python / "bin" / "mcp-server-time").exists():
        steps.append([sys.executable, "-m", "venv", str(python)])
        steps.append(
            [str(python / "bin" / "pip"), "install", "--quiet", "--retries=1", "mcp-server-time"]
        )
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, timeout=INSTALL_TIMEOUT_S)
            why = (done.stderr.decode()[-200:] or "it failed") if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"it did not end in {INSTALL_TIMEOUT_S} s"
        if why:
            refused.write_text(f"{' '.join(step[:3])}: {why}")
            pytest.skip(refused.read_text())
