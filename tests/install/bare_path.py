"""Makes a folder of links to python3, make, git and the programs of each Debian, and prints it.

    make test BARE=1    # the PATH is such a folder

So a test is found that needs another program without saying so. It needs dpkg-query.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

NEEDED = ("git", "make")  # and this Python
ALTERNATIVES = ("awk", "which")  # each Debian has them, but in different packages


def essential_programs() -> set[str]:
    """Return the names of the programs in the packages that Debian calls essential."""
    query = ["dpkg-query", "--show", "--showformat", "${Essential} ${Package}\\n"]
    shown = subprocess.run(query, capture_output=True, check=True, text=True).stdout
    packages = [line.split()[1] for line in shown.splitlines() if line.startswith("yes ")]
    query = ["dpkg-query", "--listfiles", *packages]
    listed = subprocess.run(query, capture_output=True, check=True, text=True).stdout
    files = [Path(line) for line in listed.splitlines()]
    return {file.name for file in files if file.parent.name in ("bin", "sbin")}


def make_links(folder: Path) -> None:
    """Make the folder again. Raises FileNotFoundError if a needed program is missing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    for name in sorted({*NEEDED, *ALTERNATIVES, *essential_programs()}):
        if found := shutil.which(name):
            (folder / name).symlink_to(os.path.abspath(found))  # noqa: PTH100
        elif name in NEEDED:
            raise FileNotFoundError(f"{name} is not in {os.environ['PATH']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.absolute()
    try:
        make_links(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no folder of programs: {error}")
    print(folder)
