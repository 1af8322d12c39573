"""A generated recording with facts of many kinds, for questions about what a context still tells.

Each seed gives other names, numbers and texts.
"""

import random
from collections.abc import Iterator

from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)

PARTS = 8
_WORDS = (
    "amber", "basin", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper",
    "kelp", "lagoon", "marble", "nectar", "onyx", "pepper", "quartz", "raven", "saffron", "timber",
    "umber", "velvet", "willow", "xenon", "yarrow", "zephyr",
)  # fmt: skip


def reading_day(seed: int = 0, parts: int = PARTS) -> Recording:
    """Return a recording of about 6,000 tokens."""
    return Recording(f"generated {seed}", "none", tuple(_steps(random.Random(seed), parts)))


def _steps(chance: random.Random, parts: int) -> Iterator[RecordedStep]:
    names = chance.sample(_WORDS, parts)
    number = 0
    for place, name in enumerate(names):
        if place % 3 == 0:
            ticket = chance.randrange(1_000, 9_999)
            yield RecordedMessage(
                f"Bring {name} over to the new store, ticket {name.upper()}-{ticket}. Never change "
                f"the file `{name}_{ticket}.sql`, because others read it."
            )
        for said, tool, given, text, failed in _work(chance, name, place):
            number += 1
            call = RecordedCall(f"r{number}", tool, given, text, failed)
            yield RecordedReply(said, (call,))
    todos = [
        {"content": f"Move {name} to the {chance.choice(_WORDS)} table", "status": status}
        for name, status in zip(
            names, ("completed", "in_progress", *["pending"] * parts), strict=False
        )
    ]
    listed = RecordedCall("todo", "Todo", {"todos": todos}, "The list is kept.")
    yield RecordedReply("I note what is open.", (listed,))
    yield RecordedReply("The parts are moved as far as the list says.")


def _work(
    chance: random.Random, name: str, place: int
) -> Iterator[tuple[str, str, dict[str, object], str, bool]]:
    path, port = f"src/{name}/{name}_store.py", chance.randrange(20_000, 60_000)
    lines = [
        f"def {name}_{verb}_{chance.randrange(10, 99)}(row):\n    return {chance.randrange(99)}\n"
        for verb in chance.sample(("read", "write", "merge", "count", "close", "open"), 5)
    ]
    filler = "\n".join(
        f"# row {n}: {' '.join(chance.choices(_WORDS, k=8))}"
        for n in range(chance.randrange(8, 24))
    )
    code = f"{name}_port = {port}\n\n{lines[0]}\n{filler}\n{''.join(lines[1:])}"
    yield f"I look at {name} first.", "Read", {"file_path": path}, code, False
    old, new = (
        f"    limit = {chance.randrange(100, 999)}",
        f"    limit = {chance.randrange(1000, 9999)}",
    )
    yield (
        f"We use `{chance.choice(_WORDS)}_{place}` instead of the old name, because it is shorter.",
        "Edit", {"file_path": path, "old_string": old, "new_string": new}, "Done.", False,
    )  # fmt: skip
    if failed := place % 3 != 2:
        text = f"FAILED tests/test_{name}.py::test_{chance.choice(_WORDS)}_{chance.randrange(99)}\n"
        text += f"AssertionError: {name} has {chance.randrange(100, 999)} rows\n"
    else:
        text = f"{chance.randrange(10, 99)} passed in 0.{chance.randrange(10, 99)} s\n"
    text = f"{filler}\n{text}exit code {2 * failed}"
    yield "Now the tests.", "Bash", {"command": f"pytest -q tests/test_{name}.py"}, text, failed
