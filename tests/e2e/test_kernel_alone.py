"""The kernel without its add-ons: the terminal, headless runs, tools, compaction, resume, undo."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.config.compaction_settings import PRESET_NAMES

from ..support.command import Place
from ..support.ripgreps import PROGRAM
from ..support.server.loopback import Body, Say, Server, Step
from ..support.terminal.screen import Terminal
from .test_compact import KEEP_LITTLE, RECORD

ROOT = Path(__file__).parents[2]
NOT_OURS = ("ctxagent", "__editable__", "__pycache__")  # how the rest begins in site-packages


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of an installation with the kernel's modules and no entry point."""
    place = tmp_path_factory.mktemp("kernel") / "environment"
    venv.create(place, symlinks=True, with_pip=False)
    packages = next(place.glob("lib/*/site-packages"))
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(NOT_OURS):
            (packages / installed.name).symlink_to(installed)
    (place / "bin/rg").symlink_to(PROGRAM)  # as the dependency ripgrep installs it
    own = packages / "ctxagent"
    for part in ("agent", "tools", "api"):
        shutil.copytree(ROOT / part, own / part, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "__init__.py", ROOT / "__main__.py"):
        shutil.copy(path, own)
    return [str(place / "bin" / Path(sys.executable).name), "-EP", "-m", "ctxagent"]


class Kernel(Place):
    """A place in which the kernel's command runs."""

    command: list[str]

    def does(self, server: Server, *arguments: str) -> str:
        """Run the command to its end; return what it prints."""
        with self.start(
            *arguments, command=self.command, env=self.server(server.url),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return str(out)


@pytest.fixture
def place(tmp_path: Path, kernel: list[str]) -> Kernel:
    place = Kernel(tmp_path)
    place.command = kernel
    return place


def test_it_has_no_add_on(place: Kernel) -> None:
    with Server([]) as server:
        listed = place.does(server, "--help").partition("Commands:")[2]
        in_group = place.does(server, "sessions", "--help").partition("Commands:")[2]
    commands = {
        line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "
    }
    assert commands & {"compact", "sessions", "models"} == {"compact", "sessions", "models"}
    assert not commands & {"acp", "doctor", "fleet", "mcp-server", "proxy", "replay", "wrap"}
    assert "list" in in_group
    assert "export" not in in_group


@pytest.mark.slow
def test_tools_and_resume(place: Kernel) -> None:
    made = place.project / "made.txt"
    steps = [
        Say(tools=[("Write", {"path": str(made), "content": "one\n"})]),
        Say(tools=[("Bash", {"command": "cat made.txt"})]),
        Say("It is made."),
        Say("It says one."),
    ]
    with Server(steps) as server:
        options = ("--permission-mode", "bypass", "-p")
        assert "It is made." in place.does(server, *options, "make a file")
        assert "It says one." in place.does(server, "--continue", "-p", "what does it say?")
    assert made.read_text() == "one\n"
    assert "make a file" in str(server.requests[-1]["messages"])
    assert server.rejected == []


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_compaction_and_undo(place: Kernel, preset: str) -> None:
    (place.project / "big.txt").write_text("word " * 3_000)
    steps = [Say(tools=[("Read", {"path": "big.txt"})]), Say("Words. " * 200), Say("About 3,000.")]

    def reply(body: Body) -> Step:
        asked = body["messages"][-1]["content"]
        if is_summary_question(asked if isinstance(asked, str) else asked[-1].get("text", "")):
            return Say(RECORD)
        return steps.pop(0) if steps else Say("Going on.")

    with Server(reply) as server:
        with_preset = ("--preset", preset)
        place.does(server, *with_preset, "-p", "what is in big.txt?")
        place.does(server, *with_preset, "--continue", "-p", "how many?")
        assert "compacted" in place.does(server, *with_preset, *KEEP_LITTLE, "compact", "--apply")
        place.does(server, "compact", "--undo")
        place.does(server, *with_preset, "--continue", "-p", "go on")
    assert "word word" in str(server.requests[-1]["messages"])
    assert [entry["kind"] for entry in place.entries()].count("revert") == 1


@pytest.mark.slow
def test_the_terminal(place: Kernel) -> None:
    with Server([Say("Hello.")]) as server:
        python, *arguments = place.command
        terminal = Terminal(
            *arguments, cwd=place.project, env=place.server(server.url), command=python
        )
        terminal.see("❯")
        terminal.type("Say hello.\r")
        terminal.see("Hello.")
        terminal.type("/export out.md\r")
        terminal.see("this needs the add-on 'export'")
        terminal.type("/exit\r")
        assert terminal.leave() == 0


@pytest.mark.slow
def test_a_requested_add_on_is_missed(place: Kernel) -> None:
    """Other settings of missing add-ons have no effect."""
    with Server([Say("Hello.")] * 2) as server:
        options = {"command": place.command, "env": place.server(server.url)}
        on = ("-c", "lsp.enabled=on", "-c", "telemetry.on=true")
        requested = place.run("-p", "go", *on, **options)
        off = ("-c", "lsp.enabled=off", "-c", "features.off=diagnostics")
        ignored = place.run("-p", "go", *off, **options)
    warning = "[{}] has no effect: the add-on {!r} is not installed"
    assert (requested.returncode, ignored.returncode) == (0, 0), ignored.stderr
    assert warning.format("lsp", "diagnostics") in requested.stderr
    assert warning.format("telemetry", "telemetry") in requested.stderr
    assert ignored.stderr == ""
