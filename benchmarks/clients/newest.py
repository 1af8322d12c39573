"""Install the newest clients, play every scenario with each, directly and through `ctxagent proxy`,
and write the table of the guide.

    make clients
    make clients CLIENTS='claude pi'

README.md describes the scenarios. The figures of clients that are not played again stay.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "peers"), str(HERE.parent / "protocols")]

from clients import CLIENTS  # noqa: E402
from install import NOT_PLAYED, Installed, install  # noqa: E402
from run import OUR_PROXY, SCENARIOS, WAYS, Figures, asked, play  # noqa: E402

ROOT = HERE.parents[1]
FOLDER = ROOT / ".clients"
FIGURES = FOLDER / "figures.json"
PAGE = ROOT / "docs/guide/proxy.md"
BEGIN, END = "<!-- make clients: begin -->", "<!-- make clients: end -->"
CALLS = 120
MAX_RELATIVE = 0.65  # cost through the proxy, as README and the guide say
NO = "–"
NOT_PROXIED = "not through the proxy"
NOT_DIRECTLY = "it fails without the proxy"
LABELS = {
    "task": "a task",
    "start": "starts with `recall` in the first request",
    "long": f"{CALLS} calls",
    "file": "older outputs, whole from the named file",
    "recall": "older outputs, whole by `recall`",
    "resume": "a session resumed",
    "compacted": "the client's own summary",
    "rewound": "a rewind",
    "subagent": "a subagent",
    "faults": "an overload, and a cut stream",
    "bound": "bound thinking",
    "refused": "requests refused",
    "direct": "dollars directly",
    "proxy": "dollars through the proxy",
    "relative": "relative",
}
NO_WAY = {  # why no output came back this way
    "file": "the proxy names no files for it",
    "recall": "it gets no tool `recall`",
}
Row = dict[str, Any]


def played(one: Installed, options: argparse.Namespace) -> Row:
    """Play all scenarios with a client; return its column of the table."""
    row: Row = {"date": str(datetime.date.today()), "cells": {}, "why": {}}
    cells, why = row["cells"], row["why"]
    if one.why_not:
        return {**row, "why": {"task": one.why_not}}
    refused = 0.0
    for name, scenario in SCENARIOS.items():
        shown = {"terminal": ("rewound", "compacted"), "again": WAYS[:2]}.get(name, (name,))
        if why_not := scenario.why_not(one.client):
            why.update(dict.fromkeys(shown, why_not))
            continue
        print(f"{one.client.name}, {name}", file=sys.stderr, flush=True)
        both = [
            play(one.client, one.command, name, argparse.Namespace(**vars(options), proxy=proxy))
            for proxy in (None, OUR_PROXY)
        ]
        row["version"] = str(both[0]["version"]).rstrip(".")
        if both[0]["done"]:
            refused += _number(both[1], "  refused by a rule") + _number(both[1], "  that failed")
        if name == "start":
            offered, starts = (
                _number(both[1], name) for name in ("  with recall in the first request", "starts")
            )
            if offered:
                cells[name] = f"{offered:.0f} of {starts:.0f}"
            else:
                why[name] = NO_WAY["recall"]
            continue
        if name == "again":
            cells |= _given_back(both[1])
            why |= {way: why_not for way, why_not in NO_WAY.items() if way not in cells}
            continue
        for each in shown:
            done, done_proxied = (float(f.get(each, f["done"])) > 0 for f in both)
            if done:
                cells[each] = "yes" if done_proxied else NOT_PROXIED
            else:
                why[each] = NOT_DIRECTLY
        if name == "long":
            cells |= _costs(*both)
    cells["refused"] = f"{refused:.0f}"
    return row


def _number(figures: Figures, name: str) -> float:
    return float(figures.get(name, 0.0))


def _costs(direct: Figures, proxied: Figures) -> Mapping[str, str]:
    cost = [_number(figures, "prompts, dollars") for figures in (direct, proxied)]
    relative = f"{cost[1] / cost[0]:.2f}" if cost[0] else NO
    return {"direct": f"{cost[0]:.2f}", "proxy": f"{cost[1]:.2f}", "relative": relative}


def _given_back(proxied: Figures) -> Mapping[str, str]:
    """Return the outputs that came back whole with one call, by the way used."""
    found = {way: str(proxied[f"  {way}, came back"]) for way in WAYS[:2]}
    return {way: text.replace("/", " of ") for way, text in found.items() if text != "0/0"}


def table(rows: Mapping[str, Row]) -> Iterator[str]:
    """Yield the lines of the table, one column per client, and the reasons of empty cells."""
    known = {name: row for name, row in rows.items() if row["cells"]}
    yield "| | " + " | ".join(f"{name} {row['version']}" for name, row in known.items()) + " |"
    yield "| --- |" + " ---: |" * len(known)
    yield "| date | " + " | ".join(row["date"] for row in known.values()) + " |"
    for key, label in LABELS.items():
        cells = (row["cells"].get(key, NO) for row in known.values())
        yield f"| {label} | " + " | ".join(cells) + " |"
    yield ""
    for name, row in rows.items():
        reasons: dict[str, list[str]] = {}
        for key, reason in row["why"].items():
            reasons.setdefault(reason, []).append(LABELS[key])
        for reason, labels in reasons.items():
            what = "" if not row["cells"] else f" ({', '.join(labels)})"
            yield f"- {name}{what}: {reason}."
    for name, (_, reason) in NOT_PLAYED.items():
        yield f"- {name}: {reason}."


def write(rows: Mapping[str, Row]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(table(rows)) + f"\n\n{END}{after}")


def main() -> None:
    newest = [name for name, client in CLIENTS.items() if client.package]
    words = argparse.ArgumentParser(description="the newest clients, through the proxy")
    words.add_argument("client", nargs="*", help=f"{', '.join(newest)}; without a name, all")
    words.add_argument("--limit", type=float, default=600.0, help="seconds for each start")
    given = words.parse_args()
    if unknown := set(given.client) - {*newest}:
        words.error(f"unknown: {', '.join(sorted(unknown))}")
    options = asked(["--calls", str(CALLS), "--limit", str(given.limit)])
    del options.proxy
    rows: dict[str, Row] = {}
    for one in install(FOLDER, given.client or newest):
        row = played(one, options)
        rows = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        rows[one.client.name] = row
        rows = {name: rows[name] for name in CLIENTS if name in rows}
        FIGURES.write_text(json.dumps(rows, indent=1))
        write(rows)
    print("\n".join(table(rows)))
    bad = [name for name, row in rows.items() if _is_bad(row)]
    if bad:
        raise SystemExit(f"not as expected: {', '.join(bad)}")


def _is_bad(row: Row) -> bool:
    """Return True if the proxy failed in a situation, or saved less than the guide says."""
    cells = row["cells"]
    relative = cells.get("relative", NO)
    back = [cells[way].split(" of ") for way in (*WAYS[:2], "start") if way in cells]
    return (
        NOT_PROXIED in cells.values()
        or cells.get("refused", "0") != "0"
        or any(came != asked for came, asked in back)
        or (relative != NO and float(relative) > MAX_RELATIVE)
    )


if __name__ == "__main__":
    main()
