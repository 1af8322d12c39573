"""A folder of the project is replaced by a link again and again while the file tools work in it:
they neither read nor write a denied file.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security import guarded_parts
from ctxagent.agent.security.guarded_parts import search_bounds
from ctxagent.tools.base import Context, Tool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.file_access import MAX_FILE_BYTES
from ctxagent.tools.glob import GlobTool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.search.decoded_files import open_decoded
from ctxagent.tools.search.request import DecodedFile, Search
from ctxagent.tools.system import safe_open
from ctxagent.tools.write import WriteTool

from ...support.command import comes
from ...support.other_user import as_other_user
from ...support.ripgreps import KINDS, ripgrep_of

TRIES = 2_000
SEARCHES = int(os.environ.get("SEARCHES", "120"))  # `make soak` makes as many as tries
NOBODY = 65_534
SECRET = "a key that is nobody's business"
EXCHANGED = ("project/src", "project/link")
# Becomes a user and exchanges two paths for as long as its starter runs.
EXCHANGE = """
import ctypes, os, sys
RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2
exchange, starter, user = ctypes.CDLL(None).syscall, int(sys.argv[1]), int(sys.argv[2])
one, other = map(os.fsencode, sys.argv[3:])
if user != os.getuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
while os.getppid() == starter:
    exchange(RENAMEAT2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
"""
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.uname().machine != "x86_64",
    reason="exchanges by a system call of Linux on x86_64",
)


class Stage:
    """A project, a folder of secrets that a rule denies, and the code that replaces one by the
    other.
    """

    def __init__(self, root: Path) -> None:
        self.project, self.secrets = root / "project", root / "secrets"
        self.folder, link = (root / name for name in EXCHANGED)
        self.folder.mkdir(parents=True)
        self.secrets.mkdir()
        for name in ("key", "only-there"):
            (self.secrets / name).write_text(f"{SECRET}\n")
        (self.folder / "key").write_text("of the project\n")
        self.before = self.listing()
        self.context = Context(
            cwd=self.project,
            env=dict(os.environ),
            search_bounds=lambda folder: search_bounds(os.environ, folder),
        )
        self.approval = Approval(
            cwd=self.project, mode="accept-edits", deny=[f"Read({self.secrets}/**)"]
        )
        link.symlink_to(self.secrets)

    def listing(self) -> dict[str, str]:
        """The names in the folder of secrets."""
        return {path.name: path.read_text() for path in sorted(self.secrets.iterdir())}

    async def call(self, tool: Tool[Any], **given: Any) -> str:
        """Judge a call, run it if allowed, and return the text for the model."""
        params = tool.Params.model_validate(given)
        verdict = self.approval.judge(tool, params)
        if verdict.action != "allow":
            return ""
        self.context.judged_path = verdict.path
        self.context.is_denied = self.approval.denies_reading
        try:
            return (await tool.run(params, self.context)).text
        except ToolError as error:
            return str(error)


@contextmanager
def exchanging(root: Path, user: int) -> Iterator[None]:
    """Replace the folder by the link and back, again and again, as another user would."""
    command = [sys.executable, "-I", "-S", "-c", EXCHANGE, str(os.getpid()), str(user)]
    with subprocess.Popen([*command, *(str(root / name) for name in EXCHANGED)]) as swapper:
        try:
            yield
        finally:
            swapper.kill()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with exchanging(tmp_path, os.getuid()):
        made = Stage(tmp_path)
        assert comes((made.folder / "only-there").exists)
        yield made


def said(stage: Stage, tool: Tool[Any], tries: int, **given: Any) -> list[str]:
    async def all_of_them() -> list[str]:
        return [await stage.call(tool, **given) for _ in range(tries)]

    return asyncio.run(all_of_them())


def test_read(stage: Stage) -> None:
    texts = said(stage, ReadTool(), TRIES, path="src/key")
    assert not [text for text in texts if SECRET in text]
    assert any("of the project" in text for text in texts)


@pytest.mark.variants
@pytest.mark.parametrize("path", [".", "src"])
def test_grep(stage: Stage, path: str) -> None:
    given = {"pattern": "key|project", "path": path}
    for mode in ("content", "files", "count"):
        texts = said(stage, GrepTool(), SEARCHES // 6, output_mode=mode, **given)
        assert not [text for text in texts if SECRET in text or "only-there" in text]


@pytest.mark.variants
@pytest.mark.parametrize("kind", KINDS[1:])
def test_grep_with_a_copy(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The copy has the same bounds as the installed program."""
    ripgrep = ripgrep_of(kind, tmp_path / "state")
    monkeypatch.setattr("ctxagent.tools.grep.find_ripgrep", lambda path: ripgrep)
    monkeypatch.setattr(guarded_parts, "find_ripgrep", lambda path: ripgrep)
    texts = list[str]()
    while len(texts) < TRIES and not any("of the project" in text for text in texts):
        for path in (".", "src"):
            given = {"pattern": "key|project", "output_mode": "content", "path": path}
            texts += said(stage, GrepTool(), SEARCHES // 6, **given)
    assert not [text for text in texts if SECRET in text or "only-there" in text]
    assert any("of the project" in text for text in texts)


def test_files_in_other_encodings(stage: Stage) -> None:
    """They are read by the agent itself, without the bounds of a search."""
    search, found = Search(root=stage.project, pattern="", mode="content"), set[bytes]()
    for _ in range(TRIES):
        for text in open_decoded(search, iter([DecodedFile("src/key", "latin-1", 0)])):
            found.add(text.file.read())
            text.file.close()
    assert found == {b"of the project\n"}


@pytest.mark.variants
@pytest.mark.parametrize("path", [".", "src"])
def test_glob(stage: Stage, path: str) -> None:
    texts = said(stage, GlobTool(), SEARCHES, pattern="**/*", path=path)
    assert not [text for text in texts if "only-there" in text]


def test_write(stage: Stage) -> None:
    said(stage, WriteTool(), TRIES, path="src/new", content="written\n")
    said(stage, WriteTool(), TRIES // 20, path="src/deep/er/new", content="written\n")
    assert stage.listing() == stage.before


def test_edit(stage: Stage) -> None:
    for old, new in [("project", "PROJECT"), ("PROJECT", "project")] * (TRIES // 20):
        said(stage, EditTool(), 10, path="src/key", old_string=old, new_string=new)
    assert stage.listing() == stage.before


def test_without_the_guard_it_is_read(stage: Stage) -> None:
    """The attack succeeds if the judged file is opened by its path."""
    leaked = 0
    for _ in range(20 * TRIES):
        params = ReadTool.Params.model_validate({"path": "src/key"})
        if stage.approval.judge(ReadTool(), params).action == "allow":
            with suppress(OSError):
                data = (stage.project / "src" / "key").read_bytes()[:MAX_FILE_BYTES]
                leaked += SECRET.encode() in data
        if leaked:
            break
    assert leaked


@pytest.mark.parametrize("has_openat2", [True, False])
def test_each_way_to_open(stage: Stage, monkeypatch: pytest.MonkeyPatch, has_openat2: bool) -> None:
    """Also if the kernel has no openat2."""
    if not has_openat2:
        monkeypatch.setattr(safe_open, "_openat2", lambda: None)
    elif safe_open._openat2() is None:
        pytest.skip("this kernel has no openat2")
    found = set[bytes]()
    for tried in range(100 * TRIES):  # until it was there once
        if tried >= TRIES and found:
            break
        with suppress(OSError):
            descriptor = safe_open.open_regular(stage.folder / "key")
            found.add(os.read(descriptor, 100))
            os.close(descriptor)
    assert found == {b"of the project\n"}


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="all of it is an ordinary user's already")
def test_the_sandbox_works_for_an_ordinary_user() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        with exchanging(Path(folder), NOBODY):
            as_other_user(NOBODY, _all_tests, Path(folder))


def _all_tests(root: Path) -> None:
    stage = Stage(root)
    assert comes((stage.folder / "only-there").exists)
    for test in (test_read, test_write, test_edit, test_without_the_guard_it_is_read):
        test(stage)
    for path in (".", "src"):
        test_grep(stage, path)
        test_glob(stage, path)
