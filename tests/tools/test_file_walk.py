"""Files of a search that are opened by name stay below its root."""

import os
from contextlib import chdir
from pathlib import Path

from ctxagent.tools.search.python.file_walk import named_files


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "root/real/deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for name in ("root/real/deep/a", "root/b", "outside/a"):
        (tmp_path / name).write_text(name)
    (tmp_path / "root/folder").symlink_to("../outside")
    (tmp_path / "root/file").symlink_to("../outside/a")
    with chdir(tmp_path / "root"):
        asked = ["real/deep/a", "folder/a", "file", "b", "missing"]
        found = {path: os.read(descriptor, 99) for path, descriptor in named_files(asked)}
    assert found == {"real/deep/a": b"root/real/deep/a", "b": b"root/b"}
