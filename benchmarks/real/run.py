"""Measure the program with a small real model.

    .venv/bin/python benchmarks/real/run.py [PART...] [--minutes N] [--name NAME]

README.md explains the parts and has the results. `make real` installs the model first. What was
measured is kept in `.real/results` by NAME, by default the commit of the program: a stopped run
goes on where it was, and a run that has all results only prints them.
"""

import argparse
import sys
from pathlib import Path

import reading
import summaries
import tasks
from results import Clock, Results, markdown, state_of_program


def _tasks(results: Results, clock: Clock, given: argparse.Namespace) -> None:
    variants = given.variants or tasks.VARIANTS
    tasks.measure(results, clock, variants, given.seeds, given.threads)
    table = list(tasks.report(results, variants))
    print(markdown(table))
    results.write(table)


def _reading(results: Results, clock: Clock, given: argparse.Namespace) -> None:
    found = reading.recordings(given.sessions, tuning=given.tuning)
    if given.plan:
        print(*reading.plan(found), sep="\n")
        return
    reading.measure(results, clock, found, given.variants or reading.VARIANTS, given.threads)
    tables = reading.report(results)
    for title, table in tables.items():
        print(f"### {title}\n\n{markdown(table)}\n")
    results.write([], tables=tables)


def _summaries(results: Results, clock: Clock, given: argparse.Namespace) -> None:
    summaries.measure(results, clock, given.sessions, given.threads)
    table = list(summaries.report(results))
    print(markdown(table))
    results.write(table)


PARTS = {"tasks": _tasks, "reading": _reading, "summaries": _summaries}


def main() -> int:
    parser = argparse.ArgumentParser(prog="real", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="bound of the whole run")
    parser.add_argument("--name", default=state_of_program())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="*", help="of tasks and reading; all by default")
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--sessions", type=Path, help="a folder with recorded sessions (*.gz)")
    parser.add_argument(
        "--tuning", action="store_true", help="reading: other sessions, which no report has"
    )
    parser.add_argument(
        "--plan", action="store_true", help="reading: print the questions, ask no model"
    )
    given = parser.parse_args()
    clock = Clock(given.minutes)
    parts = given.parts or list(PARTS)
    for number, part in enumerate(parts):
        print(f"\n## {part}\n", flush=True)
        name = f"{part}-tuning" if part == "reading" and given.tuning else part
        share = Clock(clock.minutes_left() / (len(parts) - number))
        PARTS[part](Results(name, given.name), share, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
