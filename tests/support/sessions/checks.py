"""A recorded session with checks that fail in several languages, odd paths and a todo list.

checks()  # a Recording; `FAILING` has the checks that never passed, `TODOS` the newest list
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    Recording,
)

FAILING = {  # the lines that a check printed, by command
    "sh checks/sum.sh": "expected 4 but got 3",
    "sh checks/ru.sh": "Проверка не пройдена: итог",
    "sh checks/ja.sh": "合計が一致しません",
    "sh checks/de.sh": "Prüfung nicht bestanden: Summe",
    "node checks/lists.js": "  1) sums lists:\n      + expected - actual\n      -3\n      +4",
}
PASSED_LATER = "sh checks/later.sh"
PATHS = (
    "src/deep/" + "folder/" * 40 + "amounts.py",
    "src/with blanks/my file.py",
    r"C:\work\src\totals.py",
    "src/größe/金額.py",
)
TODOS = [
    {"content": "Repair the sums", "status": "completed"},
    {"content": "Repair the lists", "status": "in_progress"},
    {"content": "Write the report", "status": "pending"},
]


def checks(rounds: int = 60) -> Recording:
    """Return the recording. `rounds` of reading and searching follow the facts."""
    ids = count()
    steps: list[RecordedMessage | RecordedReply] = [
        RecordedMessage("Run the checks and repair what fails.")
    ]
    for said, name, given, text, failed in _work(rounds):
        call = RecordedCall(f"k{next(ids)}", name, given, text, failed)
        steps.append(RecordedReply(said, (call,)))
    steps.append(RecordedReply("The rest is open."))
    return Recording("checks that fail", "none", tuple(steps))


def _work(rounds: int) -> Iterator[tuple[str, str, dict[str, Any], str, bool]]:
    """Yield the calls: text, tool, input, output, and whether it failed."""
    older = [{**todo, "status": "pending"} for todo in TODOS]
    yield "The plan.", "TodoWrite", {"todos": older}, "Noted.", False
    yield "This one fails.", "Bash", {"command": PASSED_LATER}, "no\nexit code 1", True
    for command, told in FAILING.items():
        given = {"command": f"cd /work && {command}"}
        yield "A check.", "Bash", given, f"{told}\nexit code 1", True
    for path in PATHS:
        change = {"file_path": path, "old_string": "a = 3", "new_string": "a = 4"}
        yield "I change it.", "Edit", change, "Edited.", False
    yield "Better now?", "Bash", {"command": PASSED_LATER}, "yes", False
    yield "As it stands:", "TodoWrite", {"todos": TODOS}, "Noted.", False
    for number in range(rounds):
        text = "\n".join(f"{number}.{n} a line of the log" for n in range(120))
        yield f"Part {number} of the log.", "Read", {"file_path": f"logs/{number}.log"}, text, False
        command = {"command": f"cd /work && grep -c part{number} logs/all.log"}
        yield "And how often.", "Bash", command, f"{number}\nexit code 1", True
