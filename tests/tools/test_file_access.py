"""A path with a link that is replaced by a file while it is resolved."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Tool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.glob import GlobTool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.write import WriteTool

CALLS: list[tuple[type[Tool[Any]], dict[str, Any]]] = [
    (ReadTool, {"path": "a"}),
    (WriteTool, {"path": "a", "content": "x"}),
    (EditTool, {"path": "a", "old_string": "one", "new_string": "two"}),
    (GrepTool, {"path": "a", "pattern": "one"}),
    (GlobTool, {"path": "a", "pattern": "*"}),
]


@pytest.mark.parametrize(("tool", "given"), CALLS, ids=[tool.name for tool, _ in CALLS])
def test_a_link_that_is_a_file_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: type[Tool[Any]], given: dict[str, Any]
) -> None:
    (tmp_path / "target").write_text("one\n")
    (tmp_path / "a").symlink_to("target")

    def readlink(path: str, **more: Any) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    monkeypatch.setattr(os, "readlink", readlink)
    params = tool.Params.model_validate(given)
    context = Context(tmp_path, session_dir=tmp_path / "session", env={})
    # Newer Pythons resolve a path with such a link; then opening it fails.
    why = "cannot be found: Invalid argument|leads elsewhere"
    with pytest.raises(ToolError, match=rf"^a ({why}).* Nothing was done\. Call it again\.$"):
        asyncio.run(tool().run(params, context))
    assert (tmp_path / "target").read_text() == "one\n"
