"""Measure the program with a small real model.

    .venv/bin/python benchmarks/real/run.py [tasks] [summaries] [--minutes N] [--name NAME]

README.md explains the parts and has the results. `make real` installs the model first. What was
measured is kept in `.real/results` by NAME, by default the commit of the program: a stopped run
goes on where it was, and a run that has all results only prints them.
"""

import argparse
import sys
from pathlib import Path

import summaries
import tasks
from results import Clock, Results, markdown, state_of_program

PARTS = ("tasks", "summaries")


def _tasks(results: Results, clock: Clock, given: argparse.Namespace) -> None:
    variants = given.variants or tasks.VARIANTS
    tasks.measure(results, clock, variants, given.seeds, given.threads)
    table = list(tasks.report(results, variants))
    print(markdown(table))
    results.write(table)


def _summaries(results: Results, clock: Clock, given: argparse.Namespace) -> None:
    summaries.measure(results, clock, given.sessions, given.threads)
    table = list(summaries.report(results))
    print(markdown(table))
    results.write(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="real", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="bound of the whole run")
    parser.add_argument("--name", default=state_of_program())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="*")
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--sessions", type=Path, help="a folder with recorded sessions (*.gz)")
    given = parser.parse_args()
    clock = Clock(given.minutes)
    for part in given.parts:
        print(f"\n## {part}\n", flush=True)
        {"tasks": _tasks, "summaries": _summaries}[part](Results(part, given.name), clock, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
