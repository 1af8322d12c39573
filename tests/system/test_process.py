"""Process trees, the output they leave, and their environment."""

import asyncio
import os
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.errors import ToolError
from ctxagent.tools.system import end_with_parent, process_table
from ctxagent.tools.system.capture import SHOWN_BYTES, Capture, KeptOutput, Live, clean
from ctxagent.tools.system.environment import child_environment, is_secret
from ctxagent.tools.system.process import TREE_VARIABLE, Process, Tree, ending
from ctxagent.tools.system.process_table import ProcessTable, PsutilTable, birth
from ctxagent.tools.system.unicode import whole_length

from ..support.command import alive, comes, gone

ENV = {"PATH": os.environ["PATH"]}


class Lines:
    """A sink whose lines can be waited for."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = 0
        self._fed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        self.data += data
        self._fed.set()

    def close(self) -> None:
        self.closed += 1

    async def numbers(self, count: int) -> list[int]:
        async with asyncio.timeout(100):
            while self.data.count(b"\n") < count:
                self._fed.clear()
                await self._fed.wait()
        return [int(line) for line in self.data.split()]


def open_files() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


async def start(command: str, sink: Lines, cwd: Path, env: dict[str, str] = ENV) -> Process:
    return await Process.start(command, cwd=cwd, env=env, sink=sink)


DEAF = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done'"

# Each prints its process number, and the tree is found by another thing it cannot shake off.
FUGITIVES = {
    "child": "sleep 1000 & echo $!; wait",
    "another session": "setsid sh -c 'echo $$; exec sleep 1000' & wait",
    "orphan in another session": "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000",
    "orphan without our environment": "(env -i sh -c 'echo $$; exec sleep 1000' &); sleep 1000",
    "child in another session without it": "setsid env -i sh -c 'echo $$; sleep 1000' & wait",
    "the same, deaf": f"setsid env -i {DEAF} & wait",
    "deaf to the request to end": DEAF,
    "stopped": "sh -c 'echo $$; kill -STOP $$'; sleep 1000",
}


@pytest.mark.slow
@pytest.mark.parametrize("table", [process_table.TABLE, PsutilTable()], ids=["proc", "psutil"])
@pytest.mark.parametrize("command", FUGITIVES.values(), ids=FUGITIVES.keys())
def test_the_whole_tree_ends(
    command: str, table: ProcessTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_table, "TABLE", table)

    async def scene() -> None:
        sink = Lines()
        process = await start(command, sink, tmp_path)
        (pid,) = await sink.numbers(1)
        assert alive(pid)
        await process.end()
        assert gone(pid, process.pid)
        assert process.survivors() == []
        assert not process.running
        assert sink.closed == 1

    asyncio.run(scene())


def test_a_tree_is_killed_though_its_ending_is_cancelled(tmp_path: Path) -> None:
    async def scene() -> None:
        sink = Lines()
        process = await start(FUGITIVES["deaf to the request to end"], sink, tmp_path)
        (pid,) = await sink.numbers(1)
        ending = asyncio.create_task(process.end())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert gone(pid)
        await process.exited()

    asyncio.run(scene())


def test_both_tables_say_the_same_of_this_process() -> None:
    here = process_table.TABLE.row(os.getpid())
    other = PsutilTable().row(os.getpid())
    assert here is not None
    assert other is not None
    assert here[:2] == other[:2] == (os.getppid(), os.getsid(0))
    assert process_table.TABLE.row(2**22 + 1) is PsutilTable().row(2**22 + 1) is None
    with subprocess.Popen(["sleep", "1000"], env={"WALRUS": "1", "É": "é"}) as child:
        assert comes(lambda: bool(process_table.TABLE.environment(child.pid)))
        found = {table.environment(child.pid) for table in (process_table.TABLE, PsutilTable())}
        child.kill()
    assert found == {"WALRUS=1\0É=é\0".encode()}


def test_without_any_table_the_group_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def numbers(self) -> list[int]:
            return []

        def row(self, pid: int) -> None:
            return None

        def environment(self, pid: int) -> bytes:
            return b""

        def name(self, pid: int) -> str:
            return ""

        def may_write(self, pid: int, pipe: os.stat_result) -> bool:
            return False

    monkeypatch.setattr(process_table, "TABLE", Nothing())

    async def scene() -> None:
        sink = Lines()
        process = await start(FUGITIVES["child"], sink, tmp_path)
        (pid,) = await sink.numbers(1)
        await process.end()
        assert gone(pid, process.pid)

    asyncio.run(scene())


def test_other_trees_are_left_alone(tmp_path: Path) -> None:
    async def scene() -> None:
        one, two = Lines(), Lines()
        first = await start("echo 1; sleep 1000", one, tmp_path)
        second = await start("echo 2; sleep 1000", two, tmp_path)
        await one.numbers(1)
        await two.numbers(1)
        await first.end()
        assert second.running
        assert second.survivors()[0] == second.pid
        await second.end()

    asyncio.run(scene())


def test_a_number_that_went_to_a_stranger_is_not_taken_for_ours() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        assert Tree("no such mark", stranger.pid, birth(stranger.pid)).members() == {stranger.pid}
        assert Tree("no such mark", stranger.pid, b"0").members() == set()
        assert Tree("no such mark", stranger.pid, None).members() == set()
        stranger.kill()


def test_sessions_from_outside_a_container_are_not_taken_for_ours() -> None:
    assert Tree("no such mark", 0, None).members() == set()


def test_what_was_written_before_the_end_is_heard(tmp_path: Path) -> None:
    async def scene() -> bytes:
        sink = Lines()
        process = await start("trap 'echo 2; exit' TERM; echo 1; sleep 1000 & wait", sink, tmp_path)
        await sink.numbers(1)
        await process.end()
        return sink.data

    assert asyncio.run(scene()) == b"1\n2\n"


def test_a_held_output_is_not_waited_for_forever(tmp_path: Path) -> None:
    async def scene() -> None:
        sink = Lines()
        process = await start("env -i sleep 1000 & echo $!", sink, tmp_path)
        assert await process.exited()
        assert not await process.finished(0.01)
        assert process.exit_code == 0
        assert process.running
        (pid,) = await sink.numbers(1)
        assert process.survivors() == [pid]
        await process.end()
        assert not process.running
        assert gone(pid)

    asyncio.run(scene())


@pytest.mark.slow
def test_nothing_is_left_open_and_everything_is_reaped(tmp_path: Path) -> None:
    async def scene() -> tuple[int, int]:
        before = open_files()
        done = await start("echo 1", Lines(), tmp_path)
        await done.finished()
        ended = await start("sleep 1000 & wait", Lines(), tmp_path)
        await ended.end()
        with suppress(ToolError):
            await start("true", Lines(), tmp_path / "missing")
        late = asyncio.create_task(start("sleep 1000", Lines(), tmp_path))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert open_files() == before
        return done.pid, ended.pid

    for pid in asyncio.run(scene()):
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(6))
def test_a_start_that_is_cancelled_leaves_nothing(steps: int, tmp_path: Path) -> None:
    token = f"started in {tmp_path}"

    async def scene() -> None:
        before = open_files()
        starting = asyncio.create_task(
            start("setsid sleep 1000 & wait", Lines(), tmp_path, {**ENV, "TOKEN": token})
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        if not starting.cancel():
            await starting.result().end()
        await asyncio.wait([starting])
        assert open_files() == before

    asyncio.run(scene())
    assert Tree(token, -1, None).members() == set()


def test_a_loop_that_was_held_up_still_hears_the_end(tmp_path: Path) -> None:
    for name in ("go", "done"):
        os.mkfifo(tmp_path / name)

    def hold_up() -> None:
        (tmp_path / "go").write_text("\n")
        (tmp_path / "done").read_text()
        time.sleep(0.02)

    async def scene() -> None:
        sink = Lines()
        command = "(read x < go; echo 1; exec 1>&- 2>&-; echo > done) & :"
        process = await start(command, sink, tmp_path)
        await process.exited()
        asyncio.get_running_loop().call_soon(hold_up)
        assert await process.finished(0.01)
        assert sink.data == b"1\n"

    asyncio.run(scene())


def test_marks_add_up_so_an_agent_within_an_agent_can_be_ended(tmp_path: Path) -> None:
    async def scene() -> bytes:
        sink = Lines()
        process = await start(
            f'echo "${TREE_VARIABLE}"', sink, tmp_path, {**ENV, TREE_VARIABLE: "outer"}
        )
        await process.finished()
        return sink.data

    outer, _, inner = asyncio.run(scene()).decode().strip().partition(":")
    assert outer == "outer"
    assert len(inner) == 16


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "exit 1"),
        (255, "exit 255"),
        (-9, "killed by SIGKILL"),
        (139, "exit 139 (128 + SIGSEGV)"),
        (-200, "killed by signal 200"),
    ],
)
def test_endings_in_words(code: int, words: str) -> None:
    assert ending(code) == words


CLEANED = {
    "plain": ("a\tb\n", "a\tb\n"),
    "colours": ("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[m", "red true"),
    "title": ("\x1b]0;title\x07text", "text"),
    "link": ("\x1b]8;;http://a.b\x1b\\here\x1b]8;;\x1b\\", "here"),
    "unfinished title takes its line only": ("\x1b]0;title\nnext", "\nnext"),
    "device string": ("\x1bPq#0;2\n~~\x1b\\after", "after"),
    "charset and keypad": ("\x1b(B\x1b=x\x1b>", "x"),
    "8-bit": ("\x9b31mred\x9b0m", "red"),
    "cut escape": ("text\x1b[3", "text"),
    "lone escape": ("a\x1b", "a"),
    "windows lines": ("a\r\nb\r\r\n", "a\nb\n"),
    "progress": (" 10%\r 50%\r100%\ndone", "100%\ndone"),
    "shorter overwrites in part": ("abcdef\rxy", "xycdef"),
    "erase to the end": ("abcdef\rxy\x1b[K", "xy"),
    "erase the line": ("abcdef\x1b[2Kxy", "xy"),
    "column one": ("abc\x1b[Gx", "xbc"),
    "trailing return": ("50%\r", "50%"),
    "backspace": ("N\bNA\bA", "NA"),
    "spinner": ("|\b/\b-\b \bdone", "done"),
    "backspace at the start": ("\b\bx", "x"),
    "nul, bell, delete": ("a\0b\x07c\x7fd", "abcd"),
    "other scripts": ("naïve 漢字 🙂", "naïve 漢字 🙂"),
}


@pytest.mark.parametrize(("raw", "cleaned"), CLEANED.values(), ids=CLEANED.keys())
def test_cleaning(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["\r", "a\b", "\x1b]", "\x1bP", "\x1b[", "\rx", "\x1b[K"])
def test_cleaning_takes_time_in_proportion(piece: str) -> None:
    assert clean("y" * 300_000 + piece * 300_000 + "\nz")[-1] == "z"  # else it would take minutes


@pytest.mark.slow
@given(st.text(st.sampled_from("a \n\r\b\0\x1b[]K2;mP\\\x07\x9b\x85é")))
def test_no_control_character_survives(text: str) -> None:
    cleaned = clean(text)
    assert cleaned == "".join(c for c in cleaned if c in "\n\t" or c.isprintable())
    assert clean(cleaned) == cleaned


@pytest.mark.slow
@given(st.text())
def test_a_cut_falls_between_characters(text: str) -> None:
    data = text.encode()
    for end in range(len(data) + 1):
        data[: whole_length(data[:end])].decode()
        assert end - whole_length(data[:end]) < 4


def capture(chunks: list[bytes], kept: int) -> KeptOutput:
    async def scene() -> KeptOutput:
        heard = Capture(kept=kept)
        for chunk in chunks:
            heard.feed(chunk)
        heard.close()
        return heard.output

    return asyncio.run(scene())


def test_all_is_kept_up_to_the_limit() -> None:
    heard = capture([b"abc", b"defgh"], kept=4)
    assert heard.dropped == 0
    assert heard.text("") == "abcdefgh"


def test_above_it_beginning_and_end_are_kept_and_the_rest_is_counted() -> None:
    lines = b"".join(b"%06d\n" % n for n in range(10_000))
    heard = capture([lines[i : i + 997] for i in range(0, len(lines), 997)], kept=70)
    assert heard.dropped == 70_000 - 140
    head, middle, tail = heard.text("look elsewhere").partition(
        "[69,860 bytes left out here; look elsewhere]\n"
    )
    assert middle
    assert head.split() == [f"{n:06d}" for n in range(10)]
    assert tail.split() == [f"{n:06d}" for n in range(9_990, 10_000)]


@pytest.mark.parametrize("kept", range(6, 18))
def test_a_cut_never_splits_a_character(kept: int) -> None:
    text = capture(["aé漢🙂".encode() * 20], kept=kept).text("")
    assert "\ufffd" not in text
    whole_bytes = len("".join(text.split("\n")[::2]).encode())
    assert f"[{200 - whole_bytes} bytes left out" in text


def test_memory_is_bounded() -> None:
    chunk = b"x" * 10_000
    tracemalloc.start()
    heard = capture([chunk] * 1_000, kept=10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert heard.dropped == 9_980_000
    assert peak < 1_000_000


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert capture([b"a\xffb"], kept=9).text("") == "a\ufffdb"


def test_people_see_output_in_few_pieces_and_whole_characters() -> None:
    async def scene() -> list[str]:
        shown: list[str] = []
        live = Live(shown.append)
        for byte in "\x1b[1mé漢\x1b[0m\n".encode():
            live.feed(bytes([byte]))
        live.close()
        return shown

    assert asyncio.run(scene()) == ["é漢\n"]


@pytest.mark.slow
def test_people_see_dots_at_once_but_not_a_line_being_redrawn() -> None:
    async def scene() -> list[str]:
        shown: list[str] = []
        news = asyncio.Event()

        def show(text: str) -> None:
            shown.append(text)
            news.set()

        async def feed(data: bytes) -> None:
            live.feed(data)
            news.clear()
            await asyncio.wait_for(news.wait(), 100)

        live = Live(show)
        await feed(b"..")
        await feed(b".\xc3")
        await feed(b"\xa9\n10%\r20%")
        live.feed(b"\r100%\n")
        live.close()
        return shown

    assert asyncio.run(scene()) == ["..", ".", "é\n", "100%\n"]


def test_a_line_redrawn_after_it_was_shown_starts_anew() -> None:
    async def scene() -> list[str]:
        shown: list[str] = []
        news = asyncio.Event()
        live = Live(lambda text: (shown.append(text), news.set())[0])
        live.feed(b"working")
        await asyncio.wait_for(news.wait(), 100)
        live.feed(b"\rdone   \n")
        live.close()
        return shown

    assert asyncio.run(scene()) == ["working", "\ndone\n"]


@pytest.mark.parametrize("pieces", [2, 100])
def test_people_see_the_newest_of_a_flood(pieces: int) -> None:
    async def scene() -> str:
        shown: list[str] = []
        live = Live(shown.append)
        for _ in range(pieces):
            live.feed("漢".encode() * (SHOWN_BYTES // 3))
        live.feed(b"end")
        live.close()
        return "".join(shown)

    text = asyncio.run(scene())
    assert text.endswith("漢end")
    assert SHOWN_BYTES - 3 < len(text.encode()) <= SHOWN_BYTES
    assert "\ufffd" not in text


SECRET = """
    ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL OPENAI_API_KEY openai_apikey
    GITHUB_TOKEN GH_TOKEN CLAUDE_CODE_OAUTH_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    AWS_SESSION_TOKEN AZURE_CLIENT_SECRET SECRET_KEY_BASE DJANGO_SECRET PGPASSWORD MYSQL_PWD
    DB_PASS SSHPASS GPG_PASSPHRASE AZURE_DEVOPS_EXT_PAT STRIPE_KEY SSH_PRIVATE_KEY CI_JOB_JWT
    NPM_CONFIG__AUTH npm_config_//registry.example/:_authToken SLACK_WEBHOOK_URL GCP_CREDENTIALS
    REDISCLI_AUTH DOCKER_AUTH_CONFIG DB_CREDS GITHUB_TOKENS SIGNING_KEYS FTP_PWD ADMIN_PWD
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_secrets_by_name(name: str) -> None:
    assert is_secret(name)
    assert name not in child_environment({name: "x"})


HARMLESS = """
    PATH HOME LANG LC_ALL PWD OLDPWD SHELL USER VIRTUAL_ENV PYTHONPATH SSH_AUTH_SOCK XAUTHORITY
    SSH_ASKPASS GOOGLE_APPLICATION_CREDENTIALS AWS_SHARED_CREDENTIALS_FILE AWS_PROFILE MAX_TOKENS
    TOKENIZERS_PARALLELISM DATABASE_URL KEYBOARD_LAYOUT COMPASS GIT_AUTHOR_NAME CTXAGENT_STATE_DIR
    _
"""


@pytest.mark.parametrize("name", HARMLESS.split())
def test_harmless_by_name(name: str) -> None:
    assert child_environment({name: "x"})[name] == "x"


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "UV_EXTRA_INDEX_URL", "npm_config_registry"])
def test_indexes_of_packages_by_what_they_hold(name: str) -> None:
    assert name not in child_environment({name: "https://me:secret@packages.example/simple"})
    assert name in child_environment({name: "https://packages.example/simple"})


def test_the_person_can_let_names_through() -> None:
    environ = {"GH_TOKEN": "1", "AWS_SESSION_TOKEN": "2", "NPM_TOKEN": "3"}
    passed = child_environment(environ, keep=iter(["GH_TOKEN", "AWS_*"]))
    assert {name: passed.get(name) for name in environ} == {
        "GH_TOKEN": "1",
        "AWS_SESSION_TOKEN": "2",
        "NPM_TOKEN": None,
    }


def test_nothing_waits_for_a_person() -> None:
    passed = child_environment({"PAGER": "less", "TERM": "xterm-256color"})
    assert (passed["PAGER"], passed["GIT_PAGER"], passed["TERM"]) == ("cat", "cat", "dumb")
    assert passed["GIT_TERMINAL_PROMPT"] == "0"
    assert "CI" not in passed


GIT_TRAP = (
    "git init -q --bare trap && cd trap && git config core.bare false "
    "&& git config core.worktree . && git config core.fsmonitor 'touch PWNED; false'"
)


def test_git_runs_nothing_that_a_folder_configures(tmp_path: Path) -> None:
    subprocess.run(["bash", "-c", GIT_TRAP], cwd=tmp_path, check=True)
    trap = tmp_path / "trap"
    subprocess.run(["git", "status"], cwd=trap, env=dict(os.environ), capture_output=True)
    assert (trap / "PWNED").exists()  # the trap works
    (trap / "PWNED").unlink()
    child = child_environment(os.environ)
    done = subprocess.run(["git", "status"], cwd=trap, env=child, capture_output=True, text=True)
    assert done.returncode != 0
    assert "safe.bareRepository" in done.stderr
    (trap / ".git").symlink_to(".")
    subprocess.run(["git", "status"], cwd=trap, env=child, capture_output=True)
    assert not (trap / "PWNED").exists()


@pytest.mark.parametrize(("bound", "size"), [("", 5_000), (",1000", 1_000)])
def test_a_leash_bounds_the_files_of_its_command(tmp_path: Path, bound: str, size: int) -> None:
    held, end = os.pipe()
    leashed = [sys.executable, "-I", "-S", end_with_parent.__file__, f"{held}{bound}"]
    command = [*leashed, "sh", "-c", "head -c 5000 /dev/zero > written"]
    done = subprocess.run(command, cwd=tmp_path, pass_fds=[held], start_new_session=True)
    os.close(held)
    os.close(end)
    assert (tmp_path / "written").stat().st_size == size
    assert bool(done.returncode) == bool(bound)


@pytest.mark.parametrize("count", ["1", "", "x"])
def test_git_keeps_the_settings_of_the_environment(tmp_path: Path, count: str) -> None:
    own = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "own.x", "GIT_CONFIG_VALUE_0": "mine"}
    child = child_environment({**os.environ, **own})
    asked = {
        "core.fsmonitor": "false", "safe.bareRepository": "explicit", "diff.submodule": "short",
    }  # fmt: skip
    asked |= {"own.x": "mine"} if count == "1" else {}
    for name, value in asked.items():
        done = subprocess.run(
            ["git", "config", name], cwd=tmp_path, env=child, capture_output=True, text=True
        )
        assert done.stdout.strip() == value
