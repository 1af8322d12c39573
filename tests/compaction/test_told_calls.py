"""What outlines tell of calls: programs, targets and whole paths."""

import pytest

from ctxagent.agent.compaction.layers.later_calls import (
    cut_between_words,
    told_call,
    told_programs,
    without_setup,
)

from ..support.sessions.history import History


@pytest.mark.parametrize(
    ("command", "told", "programs"),
    [
        (
            "cd /a/b && FOO=1 timeout 60 npm run check 2>&1 | tail -20",
            "npm run check 2>&1 | tail -20",
            ["npm run check"],
        ),
        ("sudo -u x env A=1 nice -n 5 make -C sub check", None, ["make -C sub check"]),
        ("bash -lc \"rg -n 'x y' src/a.ts\"", None, ["rg -n 'x y' src/a.ts"]),
        ("export A=1; source env.sh; make", "make", ["make"]),
        ("(cd sub && make)", None, ["make"]),
        ("cat > a/b.py <<'EOF'\nrm -rf x\nEOF", "cat > a/b.py <<'EOF' rm -rf x EOF", ["> a/b.py"]),
        ('for f in a b; do wc -l "$f"; done', None, ["wc -l a", "wc -l b"]),
        ("ls $(git root)/src", "ls $(git root)/src", ["ls $(git root)/src"]),
        ("cat 'my file' | grep foo | head -5", None, ["cat 'my file'", "grep foo"]),
        ("type C:\\x\\y.txt", "type C:\\x\\y.txt", ["type C:\\x\\y.txt"]),
        ("cd /x", "cd /x", ["cd /x"]),
        ("", "", [""]),
        ("if [", "if [", ["if ["]),
    ],
)
def test_commands(command: str, told: str | None, programs: list[str]) -> None:
    assert [*told_programs(command)] == programs
    if told is not None:
        assert without_setup(command) == told


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("git add a b", 11, "git add a b"),
        ("git add a b", 10, "git add a …"),
        ("git add 'my file' b", 12, "git add …"),
        ("git add my\\ file b", 13, "git add …"),
        ("a/very/long/path b", 5, "a/very/long/path …"),
        ("a/very/long/path", 5, "a/very/long/path"),
        ("", 5, ""),
    ],
)
def test_a_cut_leaves_whole_words(text: str, limit: int, cut: str) -> None:
    assert cut_between_words(text, limit) == cut


@pytest.mark.parametrize("tool", ["Read", "Write", "Edit"])
@pytest.mark.parametrize("path", ["/p/" + "deep/" * 60 + "a.py", "C:\\a  b\\c.py", "a b.py"])
def test_a_path_is_whole(tool: str, path: str) -> None:
    history = History()
    history.say("go")
    history.call(tool, {"path": path}, "ok")
    (result,) = history.view().results()
    assert told_call(result, 40) == path


def test_an_edit_without_a_path_names_the_files_that_it_changed() -> None:
    history = History()
    history.say("go")
    rows = [{"path": path, "action": "modified"} for path in ("b.py", "a.py")]
    history.call("Edit", {"patch": "…"}, "ok", details={"changes": rows})
    history.call("Grep", {"pattern": "x" * 60}, "none")
    edit, grep = history.view().results()
    assert told_call(edit, 40) == "b.py; a.py"
    assert told_call(grep, 40) == "x" * 39 + "…"
