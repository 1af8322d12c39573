"""Clones the project on fresh machines, and runs the commands of the README there.

    make fresh                                         # in all places, which takes an hour
    make fresh PLACES='root-home user-tmp'             # in some places
    make fresh PLACES=user-long KIND=full              # on machines with all optional programs
    make fresh PLACES=user-tmp TESTS='tests/tools -x'  # a quick try, with arguments for pytest

A fresh machine is a new Debian root. A minimal one has what the README names: python3 with venv,
make and git. A full one also has the packages in `programs.txt`. `make demo` and `make test` each
get their own root and clone. The clone has what is committed. `build/fresh` keeps the logs of
failures, and the packages that pip has downloaded.
"""

import argparse
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxagent.tests.install.debian_root import (
    CheckFailed,
    DebianRoot,
    make_archive,
    require_roots,
    unpack,
)

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "fresh"
RELEASE = "trixie"
OPTIONAL = [line.split()[0] for line in (Path(__file__).with_name("programs.txt")).open()]
README = ("python3", "python3-venv", "make", "git")
PACKAGES = {"minimal": README, "full": (*README, *OPTIONAL)}
HOMES = {"root": "/root", "user": "/home/user"}
LONG_PATH_CHARS = 180
LONG_PATH = f"/srv{'/a-folder-with-a-long-name' * 9}"[: LONG_PATH_CHARS - len("/ctxagent")]
FOLDERS = {"home": "{home}/ctxagent", "tmp": "/tmp/ctxagent", "long": f"{LONG_PATH}/ctxagent"}
COMMANDS = ("demo", "test")
SOURCE, PIP_CACHE = "/srv/ctxagent.git", "/var/cache/pip"
# As the user: clone the project into a new folder, and run a command of the README there.
RUN = 'mkdir -p "$2" && git clone --quiet "$1" "$2" && cd "$2" && exec make "$3"'
COUNTS = re.compile(r"^(?:=+ )?(\d+ [a-z]+(?:, \d+ [a-z]+)*) in \d+\.\d+s", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A user, a folder for the clone, and a kind of machine."""

    user: str
    folder: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.user}-{self.folder}"

    @property
    def path(self) -> str:
        return FOLDERS[self.folder].format(home=HOMES[self.user])

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a login, without a language and a terminal."""
        return {
            "HOME": HOMES[self.user],
            "LOGNAME": self.user,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "SHELL": "/bin/bash",
            "USER": self.user,
            "PIP_CACHE_DIR": PIP_CACHE,
        }


# Each user and each folder, with few runs.
PLACES = (
    Place("root", "home", "minimal"),
    Place("user", "tmp", "minimal"),
    Place("user", "long", "minimal"),
    Place("user", "home", "full"),
)


@dataclass(frozen=True)
class Outcome:
    """How a command of the README ended."""

    command: str
    exit_code: int
    log: Path
    wall_s: float
    cpu_s: float

    @property
    def counts(self) -> str:
        """Return how many tests passed, failed and were skipped; "" if no test ran."""
        found = COUNTS.findall(self.log.read_text(errors="replace"))
        return found[-1] if found else ""


def places(names: Sequence[str], kind: str) -> list[Place]:
    """Return the places with these names, or all; the machines are of this kind if it is given.

    Raises CheckFailed for a name that has no user or no folder.
    """
    usual = {place.name: place for place in PLACES}
    found = [usual.get(name) or _place(name) for name in names] or PLACES
    return [Place(each.user, each.folder, kind or each.kind) for each in found]


def _place(name: str) -> Place:
    user, _, folder = name.partition("-")
    if user not in HOMES or folder not in FOLDERS:
        raise CheckFailed(f"no place {name}; use {' or '.join(HOMES)}, then -{', -'.join(FOLDERS)}")
    return Place(user, folder, "minimal")


def prepare(machine: DebianRoot, place: Place) -> None:
    """Add the user, the project's repository and pip's downloads to a new root."""
    source = machine.inside(SOURCE)
    clone = ["git", "clone", "--quiet", "--bare", "--no-local", ROOT, source]
    subprocess.run(clone, check=True)
    machine.binds[KEPT / "pip"] = PIP_CACHE
    add = "" if place.user == "root" else f"useradd --create-home --shell /bin/bash {place.user}\n"
    script = f"set -e\n{add}chmod 1777 /srv\nchown -R {place.user}: {SOURCE} {PIP_CACHE}"
    if machine.start(["sh", "-c", script]).returncode:
        raise CheckFailed(f"{place.name} could not be prepared")
    machine.user, machine.environ = place.user, place.environ


def run(command: str, place: Place, archive: Path, root: Path, tests: str) -> Outcome:
    """Run a command of the README on a new machine, which is removed afterwards."""
    try:
        unpack(archive, root)
        machine = DebianRoot(root)
        prepare(machine, place)
        if tests:
            machine.environ["PYTEST_ADDOPTS"] = tests
        log = KEPT / f"{place.name}-{place.kind}-{command}.log"
        before, cpu_before = time.monotonic(), _cpu_s()
        with log.open("w") as stream:
            done = machine.start(
                ["sh", "-c", RUN, "sh", SOURCE, place.path, command],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        took = time.monotonic() - before, _cpu_s() - cpu_before
        return Outcome(command, done.returncode, log, *took)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _cpu_s() -> float:
    """Return the processor time of all ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def line(place: Place, outcomes: Sequence[Outcome]) -> str:
    """Return what is printed for a place."""
    failed = [outcome for outcome in outcomes if outcome.exit_code]
    words = [
        f"{place.name:<9}  {place.kind:<7}  {'FAILED' if failed else 'passed'}",
        *(outcome.counts for outcome in outcomes if outcome.counts),
        f"{sum(o.wall_s for o in outcomes) / 60:.1f} min",
        f"CPU {sum(o.cpu_s for o in outcomes) / 60:.1f} min",
        *(f"make {o.command}: exit code {o.exit_code}, {o.log.relative_to(ROOT)}" for o in failed),
    ]
    return "  ".join(words)


def try_all(chosen: Iterable[Place], tests: str) -> bool:
    """Try the places one after another; return True if all passed."""
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        print("Changes that are not committed are left out.", flush=True)
    (KEPT / "pip").mkdir(parents=True, exist_ok=True)
    archives: dict[str, Path] = {}
    passed = True
    with tempfile.TemporaryDirectory(prefix="ctxagent-fresh-") as temporary:
        folder = Path(temporary)
        for place in chosen:
            if place.kind not in archives:
                print(f"Making a {place.kind} Debian {RELEASE} ...", flush=True)
                archives[place.kind] = folder / f"{place.kind}.tar"
                make_archive(RELEASE, archives[place.kind], PACKAGES[place.kind])
            archive = archives[place.kind]
            outcomes = [run(each, place, archive, folder / "root", tests) for each in COMMANDS]
            print(line(place, outcomes), flush=True)
            for outcome in outcomes:
                if outcome.exit_code:
                    passed = False
                else:
                    outcome.log.unlink()
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", help="for example root-home; default: all")
    parser.add_argument("--kind", choices=PACKAGES, default="", help="of the machines")
    parser.add_argument("--tests", default="", help="arguments for pytest")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up
    try:
        chosen = places(given.places, given.kind)
        require_roots()
        return 0 if try_all(chosen, given.tests) else 1
    except (CheckFailed, subprocess.CalledProcessError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
