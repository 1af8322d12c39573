"""Stored keys of providers: in the system's keyring, or in a private file."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.models.keys import KeyStore

KEY = "test-key-1"
RING = """#!/bin/sh
case $1 in
  store) cat > $HOME/ring;;
  lookup) cat $HOME/ring;;
  clear) rm $HOME/ring;;
esac
"""


def environ(folder: Path, program: str = "") -> dict[str, str]:
    (folder / "bin").mkdir()
    if program:
        (folder / "bin" / "secret-tool").write_text(program)
        (folder / "bin" / "secret-tool").chmod(0o755)
    return {"HOME": str(folder), "PATH": f"{folder}/bin:/usr/bin:/bin"}


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 1\n", "#!/bin/sh\necho other\n"])
def test_without_a_keyring_a_private_file_has_the_key(tmp_path: Path, program: str) -> None:
    store = KeyStore(tmp_path / "state", environ(tmp_path, program))
    assert not store.has_asked
    assert store.keep("A_KEY", KEY) == store.path
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert json.loads(store.path.read_text()) == {"keys": {"A_KEY": KEY}}
    found = {"B_KEY": "b"}
    store.add_to(found)
    assert found == {"A_KEY": KEY, "B_KEY": "b"}
    assert store.has("A_KEY")
    assert not store.has("B_KEY")


def test_the_keyring_has_the_key(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "state", environ(tmp_path, RING))
    assert store.keep("A_KEY", KEY) is None
    assert (tmp_path / "ring").read_text() == KEY
    assert KEY not in store.path.read_text()
    found: dict[str, str] = {}
    store.add_to(found)
    assert found == {"A_KEY": KEY}
    assert store.forget("A_KEY")
    assert not store.forget("A_KEY")
    assert not (tmp_path / "ring").exists()
    assert store.has_asked


def test_a_variable_counts_more_than_a_kept_key(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "state", environ(tmp_path))
    store.keep("A_KEY", KEY)
    found = {"A_KEY": ""}
    store.add_to(found)
    assert found == {"A_KEY": ""}


@pytest.mark.parametrize("text", ["", "[]", '{"keys": []}', '{"keys": 3}', "{"])
def test_an_invalid_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    store = KeyStore(tmp_path, environ(tmp_path))
    store.path.write_text(text)
    assert not store.has_asked
    assert not store.has("A_KEY")
    store.keep("A_KEY", KEY)
    assert store.has("A_KEY")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    store = KeyStore(tmp_path / "state", environ(tmp_path))
    with pytest.raises(RecordError, match="cannot be written"):
        store.keep("A_KEY", KEY)
