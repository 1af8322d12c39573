"""Situations from public reports about the daily use of coding agents, one row each.

To add a report, add a row to the file of its kind. `players.py` describes the fields.
"""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from .players import PLAYERS, Row

TABLES = sorted(Path(__file__).parent.glob("*.toml"))
ROWS: list[Row] = [
    {"kind": path.stem, **row}
    for path in TABLES
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["report"]
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[f"{r['kind']}: {r['situation']}" for r in ROWS])
def test_the_situation_of_a_report(row: Row, tmp_path: Path) -> None:
    PLAYERS[row["kind"]](row, tmp_path)


def test_each_row_has_a_source_and_a_situation_of_its_own() -> None:
    assert {path.stem for path in TABLES} == PLAYERS.keys()
    assert all(len(row["source"].split("#")) == 2 for row in ROWS)
    situations = Counter((row["kind"], row["situation"]) for row in ROWS)
    assert [each for each, count in situations.items() if count > 1] == []
