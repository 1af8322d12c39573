"""Record which tests run which line of a room, and how long each test takes.

Usage: python -m ctxagent.tests.support.mutants.coverage_map ROOM OUTPUT TEST_FILE...
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).parents[3]
# As `make test`: a change that only the full suite notices counts as unnoticed.
QUIET = ("-q", "-x", "-m", "not full", "-p", "no:cacheprovider", "-p", "no:xdist")


class Recorder:
    """Pytest plugin that sets the coverage context to the running test; it is "" for imports."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.seconds: dict[str, float] = {}
        self._measured = measured

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = time.monotonic()
        self._measured.switch_context(item.nodeid)
        result = yield
        self._measured.switch_context("")
        self.seconds[item.nodeid] = time.monotonic() - begun
        return result


def main() -> int:
    """Run test files under coverage and write the map as JSON."""
    room, output, *files = sys.argv[1:]
    folder = ROOT / "agent" / room
    measured = coverage.Coverage(data_file=None, config_file=False, include=[f"{folder}/*"])
    measured.start()
    recorder = Recorder(measured)
    status = pytest.main([*QUIET, *files], plugins=[recorder])
    measured.stop()
    data = measured.get_data()
    lines = {
        str(Path(path).relative_to(ROOT)): {
            line: sorted(set(tests)) for line, tests in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }
    libraries = sorted(
        name for name in sys.modules if name.split(".")[0] not in ("ctxagent", "tests", "conftest")
    )
    found = {"seconds": recorder.seconds, "lines": lines, "libraries": libraries}
    Path(output).write_text(json.dumps(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
