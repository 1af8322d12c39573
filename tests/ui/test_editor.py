import asyncio
import os
from pathlib import Path

import pytest

from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.ui.input.editor import edit

from ..support.command import gone


def script(folder: Path, text: str) -> str:
    path = folder / "my editor"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return f"'{path}' --wait"


def test_the_text_as_the_editor_leaves_it(tmp_path: Path) -> None:
    editor = script(
        tmp_path, f'[ "$1" = --wait ] && printf ", né" >> "$2"; echo "$2" > {tmp_path}/at'
    )
    assert asyncio.run(edit("born", "born.md", {"VISUAL": editor, "EDITOR": "false"})) == "born, né"
    assert not Path((tmp_path / "at").read_text().strip()).exists()


def test_an_editor_that_fails_leaves_the_text(tmp_path: Path) -> None:
    with pytest.raises(CtxagentError, match="ended with code 3"):
        asyncio.run(edit("x", "x.md", {"EDITOR": script(tmp_path, "exit 3")}))


@pytest.mark.parametrize("editor", ["/nowhere/at-all", "'open"])
def test_an_editor_that_is_not_there(editor: str) -> None:
    with pytest.raises(CtxagentError, match="could not be run"):
        asyncio.run(edit("x", "x.md", {"EDITOR": editor}))


def test_no_editor_at_all(tmp_path: Path) -> None:
    with pytest.raises(CtxagentError) as error:
        asyncio.run(edit("x", "x.md", {"PATH": str(tmp_path)}))
    assert "EDITOR" in error.value.hint


def test_an_interrupt_ends_the_editor(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    editor = script(tmp_path, f"echo $$ > {tmp_path}/started; exec sleep 300")

    async def run() -> int:
        editing = asyncio.create_task(edit("x", "x.md", {"EDITOR": editor}))
        pid = int(await asyncio.to_thread((tmp_path / "started").read_text))
        editing.cancel()
        await asyncio.wait({editing})
        assert editing.cancelled()
        return pid

    assert gone(asyncio.run(run()))
