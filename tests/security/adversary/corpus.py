"""The written commands of `corpus.txt`."""

from collections.abc import Iterator
from pathlib import Path

from .scenes import OBEDIENT

TEXT = Path(__file__).with_name("corpus.txt").read_text()
# Programs that may read the project's code or configuration with any options.
TOOLS = (*OBEDIENT, "pytest", "python3", "make", "npm", "git", "node", "ls", "rg", "jq", "sed")


def corpus() -> Iterator[tuple[str, str]]:
    """Yield each command once per scene in its heading. `⏎` is a line break; `%tool%` is replaced
    by each of several programs.
    """
    scenes = list[str]()
    for line in TEXT.splitlines():
        if line.startswith(";;"):
            scenes = line.removeprefix(";;").partition(":")[0].split()
            continue
        text = line.replace("⏎", "\n")
        for name in TOOLS if "%tool%" in text else ("",):
            yield from ((text.replace("%tool%", name), scene) for scene in scenes)
