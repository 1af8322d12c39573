"""Permissions of files and folders: read from disk, stored with a tree, merged and restored."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.worktree.left_out import LeftOut
from ctxagent.agent.worktree.object_store import GitFailed, ObjectStore
from ctxagent.agent.worktree.saved_files import (
    FileModes,
    apply_modes,
    changed_modes,
    file_kinds,
    folders_of,
    keep_modes,
    load_with_modes,
    read_modes,
    store_with_modes,
)

from .test_snapshots import ENV

PLAIN, PROGRAM, LINK = "100644", "100755", "120000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def store(root: Path) -> ObjectStore:
    """A store whose index has every file below the root."""
    for name in ("a", "src/b", "src/run"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    (root / "src" / "run").chmod(0o755)
    (root / "link").symlink_to("a")
    made = ObjectStore(root.parent / "store", root.parent / "index", str(root), ENV)
    made.make(None, "", ())
    made.run("add", "--all")
    return made


def tree_in(store: ObjectStore) -> str:
    return store.run("write-tree").decode().strip()


def bits(root: Path, *names: str) -> list[str]:
    return [f"{(root / name).lstat().st_mode & 0o7777:o}" for name in names]


def test_folders_are_those_above_the_files() -> None:
    assert folders_of(["a", "x/y/z/b", "x/c"]) == {"x", "x/y", "x/y/z"}
    assert folders_of([]) == set()


def test_usual_modes_depend_on_the_kind_of_file() -> None:
    modes = FileModes(0o640, 0o750, 0o700, {"odd": 0o600}, {"src": 0o755})
    assert [modes.of(*each) for each in (("a", PLAIN), ("b", PROGRAM), ("odd", PROGRAM))] == [
        0o640, 0o750, 0o600,
    ]  # fmt: skip
    assert (modes.of_folder("src"), modes.of_folder("other")) == (0o755, 0o700)


def test_the_files_of_a_tree_with_their_kinds(store: ObjectStore) -> None:
    kinds = {"a": PLAIN, "link": LINK, "src/b": PLAIN, "src/run": PROGRAM}
    assert file_kinds(store) == file_kinds(store, tree_in(store)) == kinds
    assert file_kinds(store, tree_in(store), ["src/run", "none"]) == {"src/run": PROGRAM}


def test_only_what_is_not_usual_is_listed(root: Path) -> None:
    kinds = {"d/a": PLAIN, "d/b": PLAIN, "e/c": PLAIN, "f/run": PROGRAM}
    kinds |= {"link": LINK, "gone": PLAIN}
    for name in ("d/a", "d/b", "e/c", "f/run"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch(0o600)
        (root / name).chmod(0o640)
    (root / "e/c").chmod(0o604)
    (root / "f/run").chmod(0o710)
    (root / "d").chmod(0o750)
    (root / "e").chmod(0o750)
    (root / "f").chmod(0o700)
    (root / "link").symlink_to("d/a")
    assert read_modes(str(root), kinds) == FileModes(
        0o640, 0o710, 0o750, {"e/c": 0o604}, {"f": 0o700}
    )
    assert read_modes(str(root), {}) == FileModes()


def test_files_of_a_tree_without_permissions_keep_who_can_read_them() -> None:
    found = FileModes(0o644, 0o755, 0o755, {"key": 0o600, "run": 0o700, "odd": 0o640}, {"d": 0o700})
    old = {"key": PLAIN, "run": PROGRAM, "odd": PLAIN, "d/x": PLAIN, "gone": PLAIN}
    new = {"key": PLAIN, "run": PLAIN, "odd": PROGRAM, "d/x": PLAIN, "new": PROGRAM}
    kept = keep_modes(found, old, new)
    assert kept.files == {"key": 0o600, "run": 0o600, "odd": 0o750, "d/x": 0o644}
    assert kept.folders == {"d": 0o700}
    assert (kept.of("new", PROGRAM), kept.of("new", PLAIN)) == (0o755, 0o644)


def test_permissions_are_given_to_what_is_there_and_to_no_link(root: Path) -> None:
    (root / "d" / "e").mkdir(parents=True)
    for name in ("a", "d/run", "d/e/odd", "target"):
        (root / name).touch(0o600)
    (root / "link").symlink_to("target")
    modes = FileModes(0o640, 0o750, 0o755, {"d/e/odd": 0o444}, {"d": 0o555, "d/e": 0o500})
    kinds = {"a": PLAIN, "d/run": PROGRAM, "d/e/odd": PLAIN, "link": LINK, "gone/x": PLAIN}
    apply_modes(str(root), kinds, modes)
    assert bits(root, "a", "d/run", "d/e/odd", "d", "d/e", "target") == [
        "640", "750", "444", "555", "500", "600",
    ]  # fmt: skip
    (root / "d").chmod(0o755)
    (root / "d" / "e").chmod(0o755)


def test_a_tree_is_loaded_with_the_permissions_that_it_was_stored_with(store: ObjectStore) -> None:
    tree = tree_in(store)
    modes = FileModes(0o600, 0o700, 0o711, {"é": 0o644, "a": 0o640}, {"src": 0o755})
    name = store_with_modes(store, tree, modes)
    assert load_with_modes(store, name) == (tree, modes)
    assert load_with_modes(store, tree) == (tree, None)
    turned = FileModes(0o600, 0o700, 0o711, {"a": 0o640, "é": 0o644}, {"src": 0o755})
    assert store_with_modes(store, tree, turned) == name  # the order is no difference
    with_record = store_with_modes(store, tree, modes, LeftOut.of(["x.log"]))
    assert with_record != name
    assert load_with_modes(store, with_record) == (tree, modes)
    assert b"parent " in store.run("cat-file", "commit", with_record)


@pytest.mark.parametrize(
    "message", ["", "{", "[]", json.dumps({"file": 1}), json.dumps({"files": 1, "folders": {}})]
)
def test_a_message_that_says_nothing_is_a_tree_without_permissions(
    store: ObjectStore, message: str
) -> None:
    tree = tree_in(store)
    commit = f"tree {tree}\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\n{message}\n"
    name = store.run("hash-object", "-t", "commit", "-w", "--stdin", given=commit.encode())
    assert load_with_modes(store, name.decode().strip()) == (tree, None)


def test_a_name_that_is_no_tree_is_an_error(store: ObjectStore) -> None:
    blob = store.run("hash-object", "-w", "--stdin", given=b"x").decode().strip()
    for name in (blob, "0" * 40):
        with pytest.raises(GitFailed, match=f"there is no tree {name}"):
            load_with_modes(store, name)


def test_files_whose_permissions_alone_have_changed(store: ObjectStore) -> None:
    tree = tree_in(store)
    before = store_with_modes(store, tree, FileModes())
    after = store_with_modes(store, tree, FileModes(files={"a": 0o600, "link": 0o600}))
    assert changed_modes(store, before, after) == ["a"]
    assert changed_modes(store, before, before) == []
    assert changed_modes(store, before, tree) == changed_modes(store, tree, after) == []
    store.run("update-index", "--chmod=+x", "a")
    other = store_with_modes(store, tree_in(store), FileModes(0o600))
    assert changed_modes(store, before, other) == ["src/b"]  # `a` has changed in itself
