"""Run a command while compute-bound processes share the processors with it.

    python -m ctxagent.tests.support.load 16 make test

Exits with the command's exit code. The processes end with this one, even if it is killed.
"""

import argparse
import os
import subprocess
import sys

COMPUTE = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="load", description="Run a command on a busy machine.")
    parser.add_argument("count", type=int, help="how many processes compute meanwhile")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    compute = [sys.executable, "-I", "-S", "-c", COMPUTE, str(os.getpid())]
    computing = [subprocess.Popen(compute) for _ in range(given.count)]
    try:
        return subprocess.run(given.command).returncode
    finally:
        for each in computing:
            each.kill()


if __name__ == "__main__":
    sys.exit(main())
