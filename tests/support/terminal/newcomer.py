"""The screens for `docs/guide/first-steps.md`: from a first start without a key to a commit, on a
standard terminal and on a small one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..server.loopback import Say, Server
from .picture import DARK

if TYPE_CHECKING:
    from .scenes import Filmed, Stage, Take

KEY = "sk-test-key-1"
SIZES = ((80, 24), (40, 12))
COMMIT = "git -c user.name=x -c user.email=x@localhost commit -qam 'Halve in half()'"
TASK = "half() is wrong. Mend it and commit."


def newcomer(it: "Stage", take: "Take", columns: int, rows: int) -> None:
    from .scenes import used

    edit = {"path": "prices.py", "old_string": "price - 0.5", "new_string": "price / 2"}
    steps = [
        Say("walrus"),
        Say(tools=[("Read", {"path": "prices.py"})], usage=used(9_310, 61, 9_310)),
        Say("It takes off fifty cents.", tools=[("Edit", edit)], usage=used(9_520, 118)),
        Say(tools=[("Bash", {"command": COMMIT})], usage=used(9_760, 84)),
        Say("`half` divides now, and that is committed.", usage=used(9_990, 22)),
    ]
    number = 0

    def shoot(terminal: "Filmed") -> None:
        nonlocal number
        number += 1
        take(f"first-{number}-{columns}", terminal, DARK)

    with _first_start(it, steps, columns, rows) as terminal:
        terminal.see("Choose a provider")
        shoot(terminal)
        terminal.type("anth\r")
        terminal.see("Step 2 of 3")
        terminal.type(KEY)
        terminal.see("*" * len(KEY))
        shoot(terminal)
        terminal.type("\r")
        terminal.keys("1. explain")
        shoot(terminal)
        terminal.type("w")
        terminal.see(lambda text: "Step 3" not in text.rpartition("from now on; /model")[2])
        terminal.type(f"{TASK}\r")
        terminal.keys()
        shoot(terminal)
        terminal.type("y")
        terminal.see(lambda text: "commit -qam" in text)
        terminal.see(lambda text: "Bash" in text.rpartition("[y]es")[0].rpartition("Edit")[2])
        terminal.keys()
        terminal.type("y")
        terminal.see("context 0%")
        shoot(terminal)


@contextmanager
def _first_start(it: "Stage", steps: list[Say], columns: int, rows: int) -> "Iterator[Filmed]":
    """Start the command for the first time, without a key, with a local default provider."""
    from .scenes import NO_SANDBOX, Filmed

    folder = it.place.root / "home" / ".config" / "ctxagent"
    folder.mkdir(parents=True)
    with Server(steps) as server:
        (folder / "providers.toml").write_text(
            f'[anthropic]\naddress = "{server.url}"\nprotocol = "messages"\n'
        )
        more: dict[str, Any] = {"columns": columns, "rows": rows}
        env = it.place.environ({"TIKTOKEN_CACHE_DIR": ""})
        del env["CTXAGENT_STATE_DIR"]  # the screen shows the path of the key file
        theme = ("-c", "ui.theme=dark")
        terminal = Filmed(*theme, *NO_SANDBOX, cwd=it.cwd, env=env, **more)
        try:
            yield terminal
            assert server.rejected == []
        finally:
            terminal.child.close(force=True)


def scenes() -> "list[Callable[[Stage, Take], None]]":
    """Return a scene for each size of the terminal."""

    def scene(columns: int, rows: int) -> "Callable[[Stage, Take], None]":
        return lambda it, take: newcomer(it, take, columns, rows)

    return [scene(*size) for size in SIZES]
