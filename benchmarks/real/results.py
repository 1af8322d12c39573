"""Keep the results of the measurements with a real model, so that a stopped run can go on."""

import json
import math
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxagent.tests.real.model import INSTALLED

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
Z = 1.96  # of the normal distribution, for intervals of 95 %


def state_of_program() -> str:
    """Return the commit of the program, with `+` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


@dataclass
class Results:
    """The rows of one part, in a file that is only added to. `name` keeps runs apart."""

    part: str
    name: str
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            self.rows = [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]

    @property
    def file(self) -> Path:
        return INSTALLED / "results" / f"{self.name}-{self.part}.jsonl"

    def has(self, **key: Any) -> bool:
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def select(self, **key: Any) -> list[Row]:
        return [row for row in self.rows if key.items() <= row.items()]

    def write(self, table: Sequence[Row], **about: Any) -> None:
        """Write the report as JSON, next to the rows."""
        report = {"part": self.part, "name": self.name, **about, "rows": table}
        self.file.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")


@dataclass(frozen=True)
class Clock:
    """A bound on the time of a run."""

    minutes: float
    began: float = field(default_factory=time.monotonic)

    def has_time(self) -> bool:
        return self.minutes_left() > 0

    def minutes_left(self) -> float:
        return self.minutes - (time.monotonic() - self.began) / 60


def interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate (Wilson's score interval, 1927)."""
    if not total:
        return 0.0, 1.0
    rate, square = right / total, Z * Z / total
    middle = rate + square / 2
    half = Z * math.sqrt(rate * (1 - rate) / total + square / (4 * total))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def markdown(rows: Iterable[Row]) -> str:
    """Return rows with the same keys as a table."""
    rows = list(rows)
    if not rows:
        return "(nothing was measured)"
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(map(_shown, r.values())) for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 100
        else (f"{value:.0f}" if isinstance(value, float) else str(value))
    )
