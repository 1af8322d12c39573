"""Write the sessions for docs/internals/seeds.md: a folder for each preset, with a project and the
script of a model that works in it. `python -m ctxagent.tests.support.sessions.seeds`.
"""

import json
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]

SUMMARY = """## Session Intent
Sum the numbers of every list into sums.txt.
## Files Modified
- `sums.txt` — the sums of the lists so far
## Files Read
- `lists.md` — which lists there are
## Key Decisions
1. Sum with awk, because the lists are long.
## Current State
Phase: summing
- Done: the first lists
- In progress: sums.txt, the last list
## Critical Facts
- Never touch vendor/.
- The first list sums to 72006000.
## Error Context
None.
## Next Steps
1. Sum the last list into sums.txt.
"""
NOTES = """# Notes

## Session Continuity

The lists are summed one after another.

## Decision Log

- awk sums the lists: they are long.
"""
UNSURE = "Could you clarify what you would like me to do?"
TODO = "Sum the first lists"


def bash(command: str) -> dict[str, Any]:
    return step(("Bash", {"command": command}))


def numbers(lines: int, start: int) -> Call:
    """Return a call with a result of about three tokens per line."""
    return "Bash", {"command": f"seq {start} {start + lines - 1}"}


def small(count: int, start: int) -> list[Call]:
    """Return calls with results of less than 1,000 tokens, which no layer clears."""
    return [numbers(310, start + 1_000 * n) for n in range(count)]


def write(name: str, lines: int) -> dict[str, Any]:
    content = "".join(f"{name} has line {n}\n" for n in range(lines))
    return step(("Write", {"path": name, "content": content}))


def todo(status: str) -> dict[str, Any]:
    return step(("Todo", {"todos": [{"content": TODO, "status": status}]}))


def step(*calls: Call, text: str = "", thinking: str = "") -> dict[str, Any]:
    tools = [{"name": name, "input": given} for name, given in calls]
    return {"text": text, "thinking": thinking, "tools": tools}


def task(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps that start a subagent, and the subagent's steps."""
    given = {"description": "Count the lists", "prompt": "Count the lists.", "type": "general"}
    return [step(("Task", given)), *steps]


START = [
    step(("Read", {"path": "lists.md"}), thinking="First see which lists there are."),
    step(("Write", {"path": "sums.txt", "content": "72006000\n"})),
    bash("test 1 -eq 2 || { echo 'Error: the sums differ' >&2; exit 3; }"),
]
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    # 40,000 tokens: a result goes to a file, at half of the window another and two inputs go, then
    # 75 and 85 % are reached at once.
    "ctx-001": [
        *START,
        step(numbers(12_000, 10_000)),
        *(write(f"part_{n}.txt", 100) for n in range(6)),
        bash("echo other > part_0.txt"),
        step(numbers(3_000, 20_000)),
        step(*small(3, 30_000)),
        step(("Recall", {"query": "21998"})),
        todo("in_progress"),
        step(text=UNSURE),
        *(step(numbers(3_000, 10_000 * n)) for n in (4, 5, 6)),
        step(text=UNSURE),
        step(text="The lists are summed but for the last."),
    ],
    # 40,000 tokens: a task ends within the run, then 85 % is reached.
    "anchored": [
        *START,
        todo("in_progress"),
        *(step(numbers(1_500, 10_000 * n)) for n in range(1, 4)),
        *task(step(text="There are two lists.")),
        *task(step(text="There are two lists, as before.")),
        todo("completed"),
        bash("wc -l lists.md"),
        *(step(*(numbers(370, 10_000 * n + 1_000 * k) for k in range(4))) for n in range(4, 12)),
        step(text="The lists are summed but for the last."),
    ],
    # 100,000 tokens: up to 95 %, then on to the end of the session.
    "ledger": [
        *START,
        todo("in_progress"),
        *(step(*small(24, 100_000 * n)) for n in range(1, 4)),
        *(step(*small(10, 100_000 * n)) for n in range(4, 6)),
        *(step(*small(1, 100_000 * n)) for n in range(6, 18)),
        *(step(*small(24, 100_000 * n)) for n in range(18, 20)),
        step(text="The lists are summed but for the last."),
    ],
    # 60,000 tokens: one result goes to a file, old ones are cleared, then 93 % is reached.
    "v5": [
        *START,
        step(numbers(30_000, 100_000)),
        *(step(numbers(1_500, 10_000 * n)) for n in range(1, 6)),
        *task(*(step(numbers(1_500, 10_000 * n)) for n in range(1, 6)), step(text="Two lists.")),
        *(step(*small(12, 100_000 * n)) for n in range(1, 5)),
        *(step(*small(1, 100_000 * n)) for n in range(5, 20)),
        step(text="The lists are summed but for the last."),
    ],
}
SCRIPTS["stress"] = SCRIPTS["ctx-001"]  # 40,000 tokens, and everything at a quarter of them
SCRIPTS["limit"] = [step(numbers(3_000, 10_000 * n)) for n in range(1, 5)]  # 20,000, nothing goes


def main() -> None:
    for preset, steps in SCRIPTS.items():
        folder = Path(preset)
        (folder / ".run").mkdir(parents=True)
        (folder / "lists.md").write_text("- first\n- last\n")
        (folder / "NOTES.md").write_text(NOTES)
        state = {"state": "RUNNING", "sprints": {"current": "sprint-2"}}
        (folder / ".run" / "sprint-plan-state.json").write_text(json.dumps(state))
        script = {"steps": steps, "summary": step(text=SUMMARY)}
        (folder / "script.json").write_text(json.dumps(script))
        exam = {"steps": [step(text="The sums are in sums.txt.")], "summary": script["summary"]}
        (folder / "exam.json").write_text(json.dumps(exam))


if __name__ == "__main__":
    main()
