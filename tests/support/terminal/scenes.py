"""Draw the screens shown in `docs/guide`: the real command at work in a project.

A server plays prepared replies. Each scene types what a user would type and takes a picture when
the screen is still. `make screens` writes the pictures; `test_screens.py` checks that they are up
to date.

Parts that differ between runs are replaced with `SAME` before a picture is drawn. The ages of
sessions are synthetic, and the sizes of prompts come from the server.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL.Image
import pyte

from ctxagent.agent.session.entries import Assistant, Mask, Session, ToolResult, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.store import Project

from ..command import Place
from ..server.loopback import Say, Server
from . import newcomer
from .picture import DARK, LIGHT, Frame, Palette, Screen, shoot
from .screen import Terminal

MODEL = "claude-sonnet-5-5"
STILL = 0.8  # seconds without a change until a screen counts as still
LATE = 20.0  # seconds during which a different screen is captured again

_TIME = r"(?:\d+ min )?\d+(?:\.\d)? s"
SAME = (
    (r"(?<=^ctxagent )\d+\.\d+\.\d+", "0.2.0"),
    (rf"(?<=thought for ){_TIME}", "1.8 s"),
    (rf"{_TIME}(?= · Esc to stop)", "4.2 s"),
    (rf"(?<= · ){_TIME}(?= · \$)", "6.3 s"),  # of a turn
    (rf"(?<=\d · ){_TIME}(?= *$)|(?<=^  · ){_TIME}(?= *$)", "9.4 s"),  # of a compaction
    (rf"  {_TIME}(?= *$)", ""),  # of a tool, shown from one second on
    (rf"(?<=exit 1) · {_TIME}(?= *$)", ""),
    # Not every machine has a sandbox.
    (r"with your rights: there is no sandbox here", "inside the sandbox, without network"),
    (r"→ (about )?(\d+),\d{3}(?= tokens)", r"→ \1\2,500"),  # it counts the path of the project
)

PRICES = '''\
"""What things cost."""


def half(price: float) -> float:
    return price - 0.5


def three_for_two(price: float, count: int) -> float:
    return price * (count - count // 3)
'''
CHECK = """\
import sys

from prices import half, three_for_two

CASES = [("half of 3.00", half(3), 1.5), ("three for two", three_for_two(2, 3), 4.0)]
wrong = 0
for name, found, wanted in CASES:
    print("ok  " if found == wanted else "FAIL", name, f"{found:.2f}, wanted {wanted:.2f}")
    wrong += found != wanted
sys.exit(wrong > 0)
"""
AGENTRC = """\
[permissions]
allow = ["Bash(npm test:*)"]

[hooks]
after_tool = ["python3 format.py"]
"""
STATUS_COMMAND = """\
#!/usr/bin/env python3
import json, sys

now = json.load(sys.stdin)
tokens = now["tokens"]
print(
    f"\\033[32m◆ {now['project']}\\033[0m on \\033[36m{now['branch']}\\033[0m · {now['state']}"
    f" · {tokens['percent']:.0f} % of {tokens['window']:,} tokens · ${now['cost_usd']:.2f}"
)
"""


class Filmed(Terminal):
    """A terminal whose screen can be captured."""

    screen: Screen

    def __init__(self, *arguments: str, columns: int, rows: int, **more: Any) -> None:
        super().__init__(*arguments, columns=columns, rows=rows, **more)
        self.screen = Screen(columns, rows, history=1_000)
        self._stream = pyte.ByteStream(self.screen)

    def frame(self) -> Frame:
        self._feed()
        return shoot(self.screen).cropped().replaced(SAME)

    def settle(self) -> Frame:
        """Wait until the screen stops changing; return the frame."""
        frame, since = self.frame(), time.monotonic()
        while time.monotonic() - since < STILL:
            now = self.await_frame()
            if now != frame:
                frame, since = now, time.monotonic()
        return frame

    def await_frame(self) -> Frame:
        """Read output for a moment; return the frame."""
        self._read()
        return self.frame()


Take = Callable[[str, Filmed, Palette], None]


NO_SANDBOX = ("-c", "sandbox.mode=off")  # not every machine has one, which the screen would show


@dataclass(frozen=True, slots=True)
class Stage:
    """The project of a scene, with its own home."""

    place: Place

    @property
    def cwd(self) -> Path:
        return self.place.root / "home" / "shop"

    def environ(self, url: str) -> dict[str, str]:
        return {**self.place.server(url), "TIKTOKEN_CACHE_DIR": ""}

    @contextmanager
    def terminal(
        self, *arguments: str, steps: list[Say], columns: int = 80, rows: int = 24,
        theme: str = "dark",
    ) -> Iterator[Filmed]:  # fmt: skip
        """Run the command until its prompt; end it on exit."""
        with Server(steps) as server:
            terminal = Filmed(
                "--model", MODEL, "-c", f"ui.theme={theme}", *NO_SANDBOX, *arguments,
                cwd=self.cwd, env=self.environ(server.url), columns=columns, rows=rows,
            )  # fmt: skip
            try:
                terminal.see("sonnet-5-5")  # the session is open
                yield terminal
                assert server.rejected == []
            finally:
                terminal.child.close(force=True)


@contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as folder:
        it = Stage(Place(Path(folder)))
        (it.cwd / "docs").mkdir(parents=True)
        for name, text in (("prices.py", PRICES), ("check.py", CHECK), ("docs/prices.md", "")):
            (it.cwd / name).write_text(text)
        git = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=0")
        env = {**it.place.environ(), "GIT_CONFIG_NOSYSTEM": "1"}
        for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "All")):
            subprocess.run([*git, *words], cwd=it.cwd, env=env, check=True)
        yield it


def used(prompt: int, output: int, new: int = 900) -> dict[str, int]:
    """Return the usage of a reply; all prompt tokens except `new` come from the cache."""
    return {
        "input_tokens": 0,
        "cache_read_input_tokens": prompt - new,
        "cache_creation_input_tokens": new,
        "output_tokens": output,
    }


def call(name: str, **given: Any) -> tuple[str, dict[str, Any]]:
    return name, given


RUN = call("Bash", command="python3 check.py")
READ = call("Read", path="prices.py")
EDIT = call("Edit", path="prices.py", old_string="price - 0.5", new_string="price / 2")
ANSWER = """\
## Fixed

`half` took away **fifty cents** where it should have halved. It divides now, and both checks pass.

| price | before | now |
|------:|-------:|----:|
|  3.00 |   2.50 | 1.50 |
| 10.00 |   9.50 | 5.00 |

1. `prices.py` is the only file that changed.
2. Nothing else calls `half`.
"""
MENDING = [
    Say(
        thinking="The check fails. I run it first and read its output.",
        text="I run the check first.",
        tools=[RUN],
        usage=used(9_310, 84, 9_310),
    ),
    Say("Half of 3.00 is wrong.", tools=[READ], usage=used(9_520, 61)),
    Say(tools=[EDIT], usage=used(9_760, 118)),
    Say(tools=[RUN], usage=used(9_990, 52)),
    Say(ANSWER, usage=used(10_150, 166)),
]
FREELY = ("--permission-mode", "accept-edits", "--allow", "Bash(python3 check.py)")


def mend(
    it: Stage, take: Take, name: str, *, columns: int, rows: int, theme: str = "dark"
) -> None:  # fmt: skip
    """Play a whole turn."""
    with it.terminal(*FREELY, steps=MENDING, columns=columns, rows=rows, theme=theme) as terminal:
        terminal.type("The check fails. Find out why and fix it.\r")
        terminal.see(lambda text: "context 0%" in " ".join(text.split()) and "% full" in text)
        take(name, terminal, LIGHT if theme == "light" else DARK)


def turn(it: Stage, take: Take) -> None:
    mend(it, take, "turn", columns=80, rows=60)


def light(it: Stage, take: Take) -> None:
    mend(it, take, "light", columns=80, rows=24, theme="light")


def narrow(it: Stage, take: Take) -> None:
    mend(it, take, "narrow", columns=50, rows=20)


def completion(it: Stage, take: Take) -> None:
    with it.terminal(steps=[], rows=14) as terminal:
        terminal.type("/co")
        terminal.see("/compact ")
        take("commands", terminal, DARK)
        terminal.type("\x15look at @pri")
        terminal.see("docs/prices.md")
        take("paths", terminal, DARK)


def statusline(it: Stage, take: Take) -> None:
    command = it.place.root / "home" / "line"
    command.write_text(STATUS_COMMAND)
    command.chmod(0o755)
    step = Say("`prices.py` has two: `half` and `three_for_two`.", usage=used(9_310, 40, 9_310))
    with it.terminal("-c", "statusline.command=~/line", steps=[step], rows=14) as terminal:
        terminal.type("Which functions are there?\r")
        terminal.see("idle · 0 %")
        terminal.see("$0.02")
        take("statusline", terminal, DARK)


def trust(it: Stage, take: Take) -> None:
    (it.cwd / ".agentrc").write_text(AGENTRC)
    (it.cwd / "format.py").write_text("")
    with Server([]) as server:
        terminal = Filmed(
            "config", "--trust", cwd=it.cwd, env=it.environ(server.url), columns=80, rows=20
        )
        try:
            terminal.see("[n]othing?")
            take("trust", terminal, DARK)
        finally:
            terminal.child.close(force=True)


def permission(it: Stage, take: Take) -> None:
    tests = call("Bash", command="npm test -- --watch=false", description="run the tests")
    steps = [
        Say("This is the line.", tools=[EDIT], usage=used(9_400, 90)),
        Say("Now the tests.", tools=[tests], usage=used(9_600, 70)),
    ]
    with it.terminal(steps=steps) as terminal:
        terminal.type("Mend half() and run the tests.\r")
        terminal.see("[y]es")
        take("permission", terminal, DARK)
        terminal.type("y\r")
        terminal.see("npm test -- --watch=false")
        terminal.see(lambda text: text.rstrip().count("[y]es") == 1)
        terminal.keys()
        terminal.type("r")
        terminal.see("? Bash(npm test:*)")
        take("always", terminal, DARK)


def dangerous(it: Stage, take: Take) -> None:
    """Show a long command that deletes files at its end."""
    body = "".join(f"load('prices-{n}.csv')\n" for n in range(58))
    command = f"python3 - <<'END'\n{body}END\nrm -rf $HOME/.cache/prices"
    say = Say("I import the lists.", tools=[call("Bash", command=command)], usage=used(9_400, 90))
    with it.terminal(steps=[say], rows=24) as terminal:
        terminal.type("Import the price lists again.\r")
        terminal.keys()
        terminal.type("\x1b[B")
        terminal.see("❯ 1. [y]es")
        take("dangerous", terminal, DARK)


def plan(it: Stage, take: Take) -> None:
    text = (
        "# Round half() to whole cents\n\n`half(2.75)` gives 1.375, which nobody can pay. It is "
        "rounded half up, as the shop's receipts are.\n\n- Only `prices.py` changes; the receipts "
        "stay as they are\n- `python3 check.py` shows it"
    )
    steps = ["Round in half(), half up", "Add 2.75 to the cases of check.py", "Run check.py"]
    say = Say(tools=[call("Plan", plan=text, steps=steps)], usage=used(9_400, 90))
    with it.terminal("--permission-mode", "plan", steps=[say]) as terminal:
        terminal.type("half() must give prices that can be paid.\r")
        terminal.keys("[e]dit the plan")
        take("plan", terminal, DARK)


def form(it: Stage, take: Take) -> None:
    choices = [
        {"label": "half up", "description": "as the receipts do"},
        {"label": "to even", "description": "as Python's round() does"},
    ]
    asked = {"question": "How is half a cent rounded?", "choices": choices}
    names = {"question": "Which prices?", "choices": [], "multiple": True}
    say = Say(tools=[call("AskUser", questions=[asked, names])], usage=used(9_400, 90))
    with it.terminal(steps=[say], rows=12) as terminal:
        terminal.type("half() must give prices that can be paid.\r")
        terminal.keys("1. half up")
        take("form", terminal, DARK)


def search(it: Stage, take: Take) -> None:
    pages = (
        ("Rounding half to even - Wikipedia", "https://en.wikipedia.example/Rounding", None),
        ("decimal: fixed-point arithmetic", "https://docs.python.example/decimal", "2 weeks ago"),
        ("Which way do shops round?", "https://shops.example/rounding", "March 3, 2026"),
    )
    found = [
        {"type": "web_search_result", "title": title, "url": url, "page_age": age,
         "encrypted_content": "RW5j" * 900}
        for title, url, age in pages
    ]  # fmt: skip
    id, query = "srvtoolu_1", {"query": "how banks round half a cent"}
    blocks = [
        {"type": "text", "text": "I look how others round."},
        {"type": "server_tool_use", "id": id, "name": "web_search", "input": query},
        {"type": "web_search_tool_result", "tool_use_id": id, "content": found},
    ]
    answer = "Banks round half **to even**, `decimal.ROUND_HALF_EVEN`; shops mostly half up."
    usage = {**used(12_900, 140, 3_700), "server_tool_use": {"web_search_requests": 1}}
    say = Say(answer, blocks=blocks, usage=usage)
    with it.terminal("-c", "web.search=on", steps=[say], rows=20) as terminal:
        terminal.type("How do banks round half a cent?\r")
        terminal.see(lambda text: "shops mostly half up" in text and "context" in text)
        take("search", terminal, DARK)


def image(it: Stage, take: Take) -> None:
    """Show an image dropped on the terminal, and one read by the agent."""
    for name, shade in (("till.png", 0), ("receipt.bmp", 255)):
        picture = PIL.Image.new("RGB", (2_400, 900), (shade, shade, 120))
        picture.save(it.cwd / name, optimize=False)
    steps = [
        Say(tools=[call("Read", path="receipt.bmp")], usage=used(12_100, 70)),
        Say("The till rounds **0.125 up** to 0.13, the receipt **down** to 0.12.",
            usage=used(14_900, 90)),
    ]  # fmt: skip
    with it.terminal(steps=steps, rows=24) as terminal:
        terminal.type(f"\x1b[200~'{it.cwd}/till.png'\x1b[201~")
        terminal.see("@till.png")
        terminal.type("differs from the receipt. Why?\r")
        terminal.see(lambda text: "the receipt down" in text and "context" in text)
        take("image", terminal, DARK)


def queue(it: Stage, take: Take) -> None:
    build = "for part in cart prices shop; do echo building $part; done; sleep 100"
    steps = [
        Say("I build all of it.", tools=[call("Bash", command=build)], usage=used(9_400, 90)),
    ]
    with it.terminal("--permission-mode", "bypass", steps=steps, rows=20) as terminal:
        terminal.type("Build it all.\r")
        terminal.see("building shop")
        terminal.type("Then write down in docs/prices.md how half() rounds.\r")
        terminal.type("And commit it, please.\x1b\r")
        terminal.see("❯ And commit it")
        terminal.type("!git status --sh")
        terminal.see("s · Esc to stop")
        take("queue", terminal, DARK)


TALKS = (
    # hours ago, branch, the user's message, the final reply
    (0.5, "main", "The check fails. Find out why and fix it.", "Both checks pass now."),
    (3, "rounding", "Round every price to whole cents, half up.", "All 14 prices are rounded."),
    (27, "main", "What does three_for_two() do with a count of 0?", "It gives 0.00."),
    (30, "vouchers", "Add vouchers: an amount, or a share of the sum.", "Vouchers are in."),
    (52, "vouchers", "Which prices do vouchers not apply to?", "To gift cards and deposits."),
    (80, "main", "Why is the import of prices slow?", "It reads all currencies at once."),
    (200, "rounding", "Find a decimal type that rounds as banks do.", "decimal.Decimal does."),
    (900, "main", "Set the project up: a check, a README.", "The project is set up."),
)


def sessions(it: Stage, take: Take) -> None:
    project = Project(it.place.state, it.cwd)
    for number, (hours, branch, words, answer) in enumerate(reversed(TALKS)):
        folder = project.folder / "sessions" / f"20261101-0000{number:02}-{number:06x}"
        log = _log(folder, it.cwd, branch)
        log.append(User(content=words))
        log.append(_reply({"type": "text", "text": answer}))
        log.close()
        left = time.time() - 3_600 * hours - 60
        os.utime(log.path, (left, left))
    with it.terminal(steps=[]) as terminal:
        terminal.type("/resume\r")
        terminal.see("search:")
        terminal.type("price")
        terminal.see(" of 8")
        terminal.type("\x1b[B")
        terminal.see("gift cards and deposits")
        take("resume", terminal, DARK)


LONG = "20261120-101502-5a1d3e"
SUMMARY = """\
## Session Intent
Prices that are rounded to whole cents everywhere.

## Key Decisions
1. Half a cent is rounded up, as the person asked.

## Current State
Phase: writing the code
- Done: prices.py
- In progress: the report

## Next Steps
1. Round in report.py too.
"""


def context(it: Stage, take: Take) -> None:
    log = _log(Project(it.place.state, it.cwd).folder / "sessions" / LONG, it.cwd, "main")
    _fill(log)
    log.close()
    steps = [Say(SUMMARY, usage=used(92_400, 210, 92_400))]
    few = ("-c", "model.context_window=200000", "-c", "compact.keep_tokens=4000")
    with it.terminal("--resume", LONG, *few, steps=steps, rows=60) as terminal:
        terminal.type("/context report\r")
        terminal.see("next compaction:")
        terminal.see("it comes")
        take("context", terminal, DARK)
    with it.terminal("--resume", LONG, *few, steps=steps) as terminal:
        terminal.type("/context\r")
        terminal.see("Esc close")
        terminal.type("s\x1b[Hd")
        terminal.see("Enter: apply")
        take("context-items", terminal, DARK)
    with it.terminal("--resume", LONG, *few, steps=steps, rows=20) as terminal:
        terminal.type("/compact keep the rounding rules\r")
        terminal.see("/uncompact undoes it")
        take("compaction", terminal, DARK)


SCENES = (
    turn, light, narrow, completion, statusline, trust, permission, dangerous, plan, form, search,
    image, queue, sessions, context, *newcomer.scenes(),
)  # fmt: skip


def _log(folder: Path, cwd: Path, branch: str) -> Log:
    log = Log(folder / "log.jsonl")
    log.append(
        Session(
            id=folder.name, cwd=str(cwd), branch=branch, version="0", model=MODEL,
            system=_words(1_900), tools=_tools(),
        )
    )  # fmt: skip
    return log


def _tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    names = ("Bash", "Read", "Grep", "Glob", "Write", "Edit", "Todo", "Task", "Recall")
    return [{"name": n, "description": _words(330), "input_schema": schema} for n in names]


def _words(count: int) -> str:
    return "A price is in dollars. " * (count // 5)


def _reply(*blocks: dict[str, Any], usage: Mapping[str, int] | None = None) -> Assistant:
    return Assistant(
        content=list(blocks), usage=dict(usage or {}), stop_reason="end_turn", model=MODEL
    )


def _fill(log: Log) -> None:
    """Record a session of some length: files read, commands run, one old result cleared."""
    log.append(User(content=_words(150), source="environment"))
    log.append(User(content=_words(1_400), source="instructions"))
    log.append(User(content="Round every price to whole cents, half up."))
    results = (
        (READ, 6_200), (call("Grep", pattern="price"), 3_100), (RUN, 9_400),
        (call("Read", path="report.py"), 14_800), (call("Read", path="cart.py"), 11_300),
        (call("Bash", command="git log --stat -20"), 9_900), (RUN, 2_300),
        (call("Read", path="docs/prices.md"), 8_100),
    )  # fmt: skip
    for number, ((name, given), size) in enumerate(results):
        use = {"type": "tool_use", "id": f"c{number}", "name": name, "input": given}
        log.append(_reply({"type": "text", "text": _words(120)}, use))
        result = log.append(ToolResult(tool_use_id=f"c{number}", content=_words(size)))
        if number == 2:
            run = result.seq
        if number == 5:
            outcome = "done, exit 1 · 13,625 tokens compacted"
            stub = f'[Bash "python3 check.py" · {outcome} · full text: #{run}]'
            log.append(
                Mask(layer="microcompact", trigger="turn", tokens_before=70_000,
                     tokens_after=56_417,
                     targets=[{"seq": run, "tool_use_id": "c2", "stub": stub}])
            )  # fmt: skip
    usage = {"input": 0, "cache_read": 84_100, "cache_creation": 7_900, "output": 310}
    text = "Every price in `prices.py` and `cart.py` is rounded now; `report.py` is next."
    log.append(_reply({"type": "text", "text": text}, usage=usage))


def draw(folder: Path, kept: Path | None = None) -> None:
    """Write the pictures of all scenes to a folder. A still screen that differs from `kept` gets
    more time, because a program can pause for long on a busy machine.
    """

    def take(name: str, terminal: Filmed, palette: Palette) -> None:
        title = f"ctxagent: {name}. The replies of the model are scripted."
        file = f"{name}.svg"
        wanted = (kept / file).read_text() if kept and (kept / file).exists() else None
        until = time.monotonic() + LATE
        while True:
            picture = terminal.settle().svg(palette, title=title)
            if wanted in (None, picture) or time.monotonic() > until:
                break
        (folder / file).write_text(picture, encoding="utf-8")

    def play(scene: Callable[[Stage, Take], None]) -> None:
        with stage() as it:
            scene(it, take)

    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(play, SCENES))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
