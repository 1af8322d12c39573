"""Installs an sdist or a wheel into a fresh environment, and plays the demo there.

`make dist` does that with what it has built. The current directory is a fresh one, so that nothing
of the checkout is found.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
SHARED = (
    "share/man/man1/ctxagent.1",
    "share/bash-completion/completions/ctxagent",
    "share/zsh/site-functions/_ctxagent",
    "share/fish/vendor_completions.d/ctxagent.fish",
)


def try_out(file: Path, folder: Path) -> None:
    """Install a distribution with all that it needs below `folder`, and try what it has."""
    home, place = folder / "home", folder / "environment"
    home.mkdir()
    venv.create(place, with_pip=True)
    pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "--constraint", CONSTRAINTS, file], cwd=home, check=True)
    missing = [name for name in SHARED if not (place / name).is_file()]
    if missing:
        sys.exit(f"{file.name} has no {', '.join(missing)}")
    said = {words: run(place, home, *words) for words in (("--version",), ("demo", "--fast"))}
    version = said["--version",].strip()
    if not re.fullmatch(r"ctxagent \S+ \(commit [0-9a-f]{7}, Python \S+\)", version):
        sys.exit(f"{file.name}: --version names no commit: {version}")
    if "The project and the session of this demo are deleted." not in said["demo", "--fast"]:
        sys.exit(f"{file.name}: the demo did not come to its end:\n{said['demo', '--fast']}")
    print(f"{file.name}: installed, the demo works: {version}")


def run(place: Path, home: Path, *words: str) -> str:
    """Return what the installed command prints; it sees no environment but its own."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    command = [place / "bin" / "ctxagent", *words]
    return subprocess.run(
        command, cwd=home, env=environ, stdin=subprocess.DEVNULL, check=True, text=True,
        stdout=subprocess.PIPE,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="ctxagent-dist-") as temporary:
            try_out(Path(name).resolve(), Path(temporary))
