"""Commands of a hostile grammar, judged and then run with real bash.

    python -m ctxagent.tests.security.adversary.run --commands 10000

Every command that some session allows without a question runs in a hostile project, in a private
root. Prints how many commands were allowed, by the mode and the rules, and every hole: an effect
that the session did not allow. Ends with 1 if there is a hole, 77 where no private root can be
made.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from .allowance import Judge, Setting, all_settings
from .corpus import corpus
from .grammar import commands
from .observer import Observer
from .private_root import FIELD, absent, in_private_root
from .scenes import build_scenes

SKIPPED = 77
MODULE = "ctxagent.tests.security.adversary.run"


@dataclass(frozen=True)
class Hole:
    """A command with effects that no rule allowed. `settings` are the sessions that ran it."""

    command: str
    scene: str
    effects: list[str]
    settings: list[str]
    reason: str  # of the verdict that allowed it

    def __str__(self) -> str:
        settings = ", ".join(self.settings[:4]) + (" …" if len(self.settings) > 4 else "")
        effects = "; ".join(self.effects[:4])
        return f"{self.command!r} [{self.scene}; {settings}]: {effects}\n    as {self.reason}"


class Adversary:
    """Judges and runs commands in the scenes of a private root."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        marks = FIELD / "marks"
        self.observer = Observer(marks)
        self.scenes = {scene.name: scene for scene in build_scenes(FIELD, marks)}
        self._judges = {
            name: Judge(scene, settings) for name, scene in self.scenes.items()
        }  # fmt: skip
        self.counts = Counter[str]()

    def try_command(self, text: str, name: str) -> Hole | None:
        """Judge a command, run it if any setting allows it, and return the hole it shows."""
        scene = self.scenes[name]
        command = text.replace("SCENE", str(scene.root))
        allowing = self._judges[name].allowing(command)
        self.counts.update(map(str, allowing))
        self.counts["allowed"] += bool(allowing)
        if not allowing:
            return None
        effects = self.observer.run(scene, command)
        self.counts["timed out"] += effects.timed_out
        if effects.timed_out:
            print(f"timed out: {command!r}", file=sys.stderr)
        found = {s: s.holes(verdict, command, effects) for s, verdict in allowing.items()}
        wrong = {setting: holes for setting, holes in found.items() if holes}
        if not wrong:
            return None
        first = next(iter(wrong))
        return Hole(text, name, wrong[first], [*map(str, wrong)], allowing[first].reason)

    def shrunk(self, hole: Hole) -> Hole:
        """Return the hole for the shortest command found by leaving out words."""
        words, kind = hole.command.split(" "), hole.effects[0].split()[0]
        place = 0
        while place < len(words) and len(words) > 1:
            shorter = words[:place] + words[place + 1 :]
            smaller = self.try_command(" ".join(shorter), hole.scene)
            if smaller and smaller.effects[0].split()[0] == kind:
                hole, words = smaller, shorter
            else:
                place += 1
        return hole


def work(items: Iterable[tuple[str, str]], settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield each hole when it is found, and the counts at the end."""
    adversary, seen = Adversary(settings), set[tuple[str, str]]()
    total = 0
    for text, scene in items:
        total += 1
        if hole := adversary.try_command(text, scene):
            counts = adversary.counts.copy()
            new = (hole.reason, hole.effects[0]) not in seen
            seen.add((hole.reason, hole.effects[0]))
            yield asdict(adversary.shrunk(hole) if new else hole)
            adversary.counts = counts
    yield {"counts": {"commands": total, **adversary.counts}}


def attack(
    arguments: Sequence[str], workers: int, report: Callable[[Hole], None] = lambda hole: None
) -> tuple[list[Hole], Counter[str]]:
    """Run workers in private roots, each with its share of the commands. `report` gets each hole
    when it is found. Raises CalledProcessError if a worker fails.
    """
    holes, counts = list[Hole](), Counter[str]()

    def serve(share: int) -> None:
        command = in_private_root([MODULE, *arguments, "--share", f"{share}/{workers}"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            for line in worker.stdout or ():
                found = json.loads(line)
                if "counts" in found:
                    counts.update(found["counts"])
                else:
                    holes.append(Hole(**found))
                    report(holes[-1])
        if worker.returncode:
            raise subprocess.CalledProcessError(worker.returncode, command)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(serve, range(workers)))
    return holes, counts


def items_of(wanted: int, seed: int, every: int) -> Iterator[tuple[str, str]]:
    """Yield each n-th written command, and a share of the generated ones, with their scenes."""
    yield from islice(corpus(), 0, None, every)
    yield from islice(commands(seed), wanted)


def observe(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the effects of commands in the plain scene."""
    adversary = Adversary(())
    scene = adversary.scenes["plain"]
    for text in texts:
        effects = asdict(adversary.observer.run(scene, text.replace("SCENE", str(scene.root))))
        yield {kind: found for kind, found in effects.items() if found}


def work_of(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    share, workers = map(int, given.share.split("/"))
    items = items_of(given.commands, given.seed, given.every)
    return work(islice(items, share, None, workers), [*all_settings()])


def main() -> int:
    parser = argparse.ArgumentParser(prog="adversary", description=__doc__.split("\n")[0])
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="take each n-th written command")
    # In a private root: this part of the commands, or just the effects of these.
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--observe", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share or given.observe:
        found = observe(json.loads(given.observe)) if given.observe else work_of(given)
        for each in found:
            print(json.dumps(each), flush=True)
        return 0
    if why := absent():
        print(f"skipped: {why}")
        return SKIPPED
    wanted = [
        f"--commands={given.commands}", f"--seed={given.seed}", f"--every={given.every}",
    ]  # fmt: skip
    holes, counts = attack(wanted, given.workers, lambda hole: print(f"hole: {hole}", flush=True))
    for name, count in sorted(counts.items()):
        print(f"{name:<34} {count:>7,}")
    print(f"{len(holes)} holes")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
