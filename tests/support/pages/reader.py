"""A reader of the pages: a home with a project and a session, a shell, and a scripted model."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.session.log import LOG_NAME

from ..command import PATIENCE
from ..server.loopback import Body, Say
from ..sessions.recorded import claude
from ..terminal.screen import Terminal
from .checks import TOOLS, call_of, simple_commands
from .commands import ROOT

BASH = "/bin/bash"
QUESTION = re.compile(r"\[y/N\]|\(Y/n\)\?|\[y\]es")
LIST = re.compile(r"^search:", re.MULTILINE)
WAITING = re.compile(rf"^❯|{LIST.pattern}|{QUESTION.pattern}", re.MULTILINE)
ANSWER_SHOWN = re.compile(r'^\{"done": true\}(?s:.*)^❯', re.MULTILINE)
ASKING = (  # commands that ask, and then do something
    ("ctxagent", "plugin", "add"), ("ctxagent", "plugin", "update"),
    ("ctxagent", "plugin", "marketplace", "add"), ("ctxagent", "sessions", "delete"),
    ("pip", "uninstall"),
)  # fmt: skip
IN_CHECKOUT = ("make", "pip")  # programs that a reader runs in a checkout
# Files of the project, and in the home.
FILES: Mapping[str, str] = {
    "check.py": "raise SystemExit(0)\n",
    ".agentrc": '[permissions]\nallow = ["Bash(pytest:*)"]\n',
    "~/.gitconfig": "[user]\nname = x\nemail = x@localhost\n[commit]\ngpgsign = false\n",
    "~/src/kit/commands/hello.md": "Say hello.\n",
    "~/git/kit.git/commands/hello.md": "Say hello.\n",
    "~/git/tools.git/kit/commands/hello.md": "Say hello.\n",
    "~/git/tools.git/.claude-plugin/marketplace.json": json.dumps(
        {
            "name": "tools",
            "owner": {"name": "x"},
            "plugins": [{"name": "kit", "source": "./kit", "description": "format python"}],
        }
    ),
    "repos/billing/LICENSE": "2025\n",
    "repos/search/LICENSE": "2025\n",
    "repo/parser.py": "pass\n",
}
REPOSITORIES = (".", "repos/billing", "repos/search", "repo", "~/git/kit.git", "~/git/tools.git")
FACT = '---\nabout: "How to build"\n---\n\nRun `make up`, then `make`.\n'
SUMMARY = "## Session Intent\nThe tests pass.\n\n## Next Steps\n1. Go on.\n"
ANSWER = '{"done": true}'  # also fits a schema
SCRIPT = """\
set -a -o pipefail
cd "$(cat {state}/folder)"
[ -e {state}/variables ] && . {state}/variables
{text}
code=$?
pwd > {state}/folder
export -p > {state}/variables
exit $code
"""


def answer(body: Body) -> Say:
    """Answer a task, or write a summary."""
    last = body["messages"][-1]["content"][-1]
    return Say(SUMMARY if is_summary_question(str(last.get("text", ""))) else ANSWER)


def copy_checkout(folder: Path) -> None:
    """Copy the tracked and the new files of this project, with its environment for development."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    make_repository(folder)
    environment = folder / ".venv"
    environment.mkdir()
    for each in Path(sys.prefix).iterdir():
        if each.name != ".installed":
            (environment / each.name).symlink_to(each)
    (environment / ".installed").touch()


def make_repository(folder: Path) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=0")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "chore: all")):
        subprocess.run([*git, *words], cwd=folder, check=True)


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    said: str


@dataclass(slots=True)
class Reader:
    """A reader with a home below `root`, a checkout of this project, and a project with a session.

    `environment` is the virtual environment with the installed command; `url` is the address of the
    model.
    """

    root: Path
    checkout: Path
    environment: Path
    url: str

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.home / "work" / "cart"

    @property
    def state(self) -> Path:
        return self.home / "work" / "state"

    @property
    def recording(self) -> Path:
        return self.home / ".claude" / "projects" / "-cart" / "session.jsonl"

    def move_in(self) -> None:
        """Make the home, with a project in which the demo was played, and a copy of its session."""
        self.home.mkdir(parents=True)
        (self.root / "shell").mkdir()
        self._go(self.home)
        for text in (
            "ctxagent demo --fast --keep work",
            f"ctxagent --cwd {self.project} sessions fork ID",
        ):
            done = self.run(self.filled_in(text))
            assert done.code == 0, done.said
        self.save(FILES)
        self.recording.parent.mkdir(parents=True)
        self.recording.write_bytes(claude())
        memory = self._sessions(self.state)[0].parents[1] / "memory"
        memory.mkdir()
        (memory / "kit.md").write_text(FACT)
        for name in REPOSITORIES:
            make_repository(self.path(name))
        subprocess.run(["git", "tag", "v1.2"], cwd=self.home / "git" / "kit.git", check=True)
        self._go(self.project)

    def save(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(text)

    def path(self, name: str) -> Path:
        return self.home / name[2:] if name.startswith("~/") else self.project / name

    def filled_in(self, text: str) -> str:
        """Return a command with sample values for its placeholders."""
        samples = {
            "https://example.org/": f"file://{self.home}/git/",
            "--context-window N": "--context-window 200000",
            "--port 8765": "--port 0",
            "FILE": str(self.recording),
            "ID": next((folder.name for folder in self._sessions()), ""),
            "NAME": "kit",
            "MODEL": "claude-sonnet-5",
            "SECTION": "decision_log",
            "SECRET": "s3cret",
            "TASK": "hello",
            "TOPIC": "tests",
            "WORDS": "tests",
            "RUN": "tasks.jsonl",
            "DIR": ".",
            "N": self._checkpoint(),
        }
        for name, value in samples.items():
            if name.isupper():
                text = re.sub(rf"(?<![\w$\"'/.-]){name}(?![\w-])", value, text)
            else:
                text = text.replace(name, value)
        return text

    def follow(self, text: str) -> Done:
        """Run one form of a command of a page as a reader would. Afterwards, the copy of the
        session is again the newest session.
        """
        text = self.filled_in(text)
        words = simple_commands(text)[-1:] or [[text]]
        program = Path(words[0][0]).name
        call = call_of(words[0])
        folder = self.root / "shell" / "folder"
        before = folder.read_text()
        is_in_project = before.strip() == str(self.project)
        if is_in_project and (program in IN_CHECKOUT or words[0][0].startswith(TOOLS)):
            self._go(self.checkout)
        name = ("ctxagent", *call.path) if call else (program, *words[0][1:2])
        if name == ("ctxagent", "proxy") or "--serve" in words[0]:
            done = self.serve(text)
        elif (call and call.in_terminal) or name in ASKING:
            done = self.converse(text, has_message=bool(call and call.has_message))
        else:
            done = self.run(text)
        if is_in_project and folder.read_text().strip() == str(self.checkout):
            folder.write_text(before)
        os.utime(self._sessions(self.state)[1] / LOG_NAME)
        return done

    def run(self, text: str) -> Done:
        """Run a command to its end, without a terminal."""
        done = subprocess.run(
            [BASH, "-c", self._script(text)], cwd=self.root, env=self._environ(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout)

    def serve(self, text: str) -> Done:
        """Run a command that serves a page, and interrupt it when its address is printed."""
        with subprocess.Popen(
            [BASH, "-c", self._script(f"trap : INT; {text}")], cwd=self.root, env=self._environ(),
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            said = ""
            for line in process.stdout or ():
                said += line
                if "http://" in line:
                    os.killpg(process.pid, signal.SIGINT)
        return Done(process.returncode % 130, said)

    def converse(self, text: str, *, has_message: bool = False) -> Done:
        """Run a command in a terminal: agree to its question, or leave it at its prompt. With a
        message, wait for the answer first.
        """
        terminal = Terminal(
            "-c", self._script(text), cwd=self.root, env=self._environ(), command=BASH
        )
        wanted = ANSWER_SHOWN if has_message else WAITING
        with suppress(AssertionError):  # it ends by itself
            terminal.see(lambda screen: bool(wanted.search(screen)))
        if QUESTION.search(terminal.text()):
            terminal.type("y\r")
        elif wanted.search(terminal.text()):
            if LIST.search(terminal.text()):
                terminal.press("esc")
            terminal.press("ctrl-d")
        return Done(terminal.leave(), terminal.text())

    def _go(self, folder: Path) -> None:
        (self.root / "shell" / "folder").write_text(f"{folder}\n")

    def _sessions(self, state: Path | None = None) -> list[Path]:
        """Return the folders of the sessions in a state folder, by default that of the shell,
        oldest first.
        """
        logs = (state or self._state_of_shell()).glob(f"projects/*/sessions/*/{LOG_NAME}")
        return sorted((log.parent for log in logs), key=lambda folder: folder.name)

    def _state_of_shell(self) -> Path:
        variables = self.root / "shell" / "variables"
        text = variables.read_text() if variables.exists() else ""
        found = re.search(r'^declare -x CTXAGENT_STATE_DIR="(.*)"$', text, re.MULTILINE)
        return Path(found[1]) if found else self.state

    def _checkpoint(self) -> str:
        """Return the number of a checkpoint of the oldest session."""
        folders = (folder / "checkpoints" for folder in self._sessions()[:1])
        numbers = (re.search(r"\d+", each.name) for folder in folders for each in folder.iterdir())
        return next((number[0] for number in numbers if number), "1")

    def _script(self, text: str) -> str:
        return SCRIPT.format(state=self.root / "shell", text=text)

    def _environ(self) -> dict[str, str]:
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return {
            **pip,
            "PATH": f"{self.environment}/bin:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "CTXAGENT_STATE_DIR": str(self.state),
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key-1",
        }
