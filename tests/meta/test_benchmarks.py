"""The benchmarks still run, and their counts hold, at sizes that take a moment."""

import importlib
import math
import re
import shutil
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(FOLDER))  # they are scripts, and import one another as such

import measure  # noqa: E402
import targets  # noqa: E402

NAMES = importlib.import_module("all").NAMES
SHARED = {"all", "measure", "serving", "targets"}
NOT_TINY = {  # targets of figures that need a long log, a long run, or a recorded session
    "cost / summaries only, long run",
    "resume, long log - short log, s",
    "resume, long log - short log, MB",
    "decisions lost with a summary",
    "10,000 calls, second half / first",
    "10,000 calls, second half, MB",
}


QUOTED = ("context.md", "how-it-works.md")
NOT_MEASURED = set() if shutil.which("strace") else {"stat_calls"}  # figures


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_at_a_tiny_size(name: str) -> None:
    benchmark = importlib.import_module(name)
    tables = dict(benchmark.main(**benchmark.SIZES["tiny"]))
    figures = [value for rows in tables.values() for row in rows.values() for value in row.values()]
    assert figures
    assert all(map(math.isfinite, figures))
    assert not [verdict for verdict in targets.check_targets(tables) if verdict.broken]
    for target in targets.TARGETS:
        measured = target.name not in NOT_TINY and target.figure not in NOT_MEASURED
        if target.title in tables and measured:
            assert any(target.figure in row for row in tables[target.title].values())


def test_all_of_them_are_run_and_each_has_its_sizes() -> None:
    assert sorted(NAMES) == sorted({file.stem for file in FOLDER.glob("*.py")} - SHARED)
    for name in NAMES:
        assert set(importlib.import_module(name).SIZES) == set(measure.LEVELS)


def test_each_target_is_of_a_table_that_there_is() -> None:
    files = [*(FOLDER / f"{name}.py" for name in NAMES), FOLDER / "peers" / "compare.py"]
    sources = "".join(file.read_text("utf-8") for file in files)
    assert [t.title for t in targets.TARGETS if f'"{t.title}"' not in sources] == []


def test_the_page_has_the_limits_and_verdicts_of_the_targets() -> None:
    page = (FOLDER.parent / "docs" / "guide" / "performance.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) +\| +(\S+) \| +(\S+) \| (yes|no) +\|$", page, re.MULTILINE)
    known = {target.name: target.most for target in targets.TARGETS}
    assert rows
    for name, most, measured, met in rows:
        assert f"{known[name]:.4g}" == most, name
        if float(measured) != known[name]:  # rounded
            assert (float(measured) < known[name]) == (met == "yes"), name


def test_the_pages_quote_the_table_of_recorded_sessions_and_its_targets() -> None:
    root = FOLDER.parent
    guide = {name: (root / "docs" / "guide" / name).read_text("utf-8") for name in QUOTED}
    row = r"^\| `(\w+)` \| (\S+) \| \d+ \((\S+) %\) \| (\d+) \| [\d,]+ \|$"
    rows = {name: found for name, *found in re.findall(row, guide["context.md"], re.MULTILINE)}
    for preset in ("default", "lean"):
        cost, needed, errors = rows[preset]
        cells = f"| `{preset}` | {cost} | {needed} % | {errors} |"
        assert cells in guide["how-it-works.md"]
        for target in targets.TARGETS:
            measured = {"ratio": cost, "needed_pct": needed}.get(target.figure)
            if (target.title, target.row) == (targets.RECORDED, preset) and measured:
                assert float(measured) <= target.most < float(measured) + 0.1
    cost, needed, _ = rows["default"]
    readme = " ".join((root / "README.md").read_text("utf-8").split())
    assert f"{needed} % of the results were needed again" in readme
    assert f"ctxagent cost {cost} of an agent that only summarises" in readme


def test_a_count_that_does_not_hold_is_broken_and_a_time_is_not() -> None:
    rows = {"only": {"rejected": 1.0, "lost": 0.0, "x_wall": 9.0}, "side by side": {"x_wall": 0.5}}
    told = {
        v.target.figure: (v.met, v.broken) for v in targets.check_targets({"four subagents": rows})
    }
    assert told == {"x_wall": (False, False), "rejected": (False, True), "lost": (True, False)}
