"""Parsing a command: no command that bash would run is missed, or the text is doubtful."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxagent.agent.permissions.shell.parser import Script, parse

from ..support.machine import needs, program


def lines(script: Script) -> list[str]:
    return [" ".join(word.text for word in part.words) for part in script.parts]


def certain(script: Script) -> bool:
    return not script.doubt and not any(part.doubt for part in script.parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ls -l && rm x; pwd", ["ls -l", "rm x", "pwd"]),
        ("cat a | grep b |& tee c &", ["cat a", "grep b", "tee c"]),
        ("(ls; { rm x; })", ["ls", "rm x"]),
        ("! ls", ["ls"]),
        ("git <<EOF push\nEOF", ["git push"]),
        ("command -p rm x", ["command -p rm x", "rm x"]),
        ("c $(rm x) `rm y` \"$(rm z)\"", ["c $(rm x) `rm y` \"$(rm z)\"", "rm x", "rm y", "rm z"]),
        ("diff <(rm a) >(tee b)", ["diff <(rm a) >(tee b)", "rm a", "tee b"]),
        ("if ls; then rm a; elif b; then c; else d; fi", ["ls", "rm a", "b", "c", "d"]),
        ("for f in $(ls); do rm $f; done", ["ls", "rm $f"]),
        ("while a; do b; done", ["a", "b"]),
        ("case $x in a) rm x;; *) ls;; esac", ["rm x", "ls"]),
        ("[[ -f $(rm x) ]]", ["rm x"]),
        ("cat <<EOF | sh\n$(rm x)\nEOF", ["cat", "sh", "rm x", "$(rm x)", "rm x"]),
        ("bash <<< 'rm x'", ["bash", "rm x"]),
        ("cat <<'EOF'\n$(rm x)\nEOF", ["cat"]),
        ("ls <<< $(rm x)", ["ls", "rm x"]),
        ("> out rm x", ["rm x"]),
        ("g\\it 'sta'\"tus\"", ["git status"]),
        ("git log \\\n  -1", ["git log -1"]),
        ("timeout -k 5 9s nice -n 3 ls", ["timeout -k 5 9s nice -n 3 ls", "nice -n 3 ls", "ls"]),
        ("", []),
        ("# nothing", []),
    ],
)  # fmt: skip
def test_every_simple_command_is_a_part(text: str, parts: list[str]) -> None:
    assert lines(parse(text)) == parts


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sudo -u root rm x", "rm x"),
        ("sudo -n env -u A B=1 rm x", "rm x"),
        ("env -i PATH=/x rm x", "rm x"),
        ("ls | xargs -n 1 rm", "rm"),
        ("ls | xargs -I {} sh -c 'rm {}'", "rm {}"),
        ("find . -name a -exec rm {} \\; -execdir mv {} b +", "rm {}"),
        ("find . -name a -exec rm {} \\; -execdir mv {} b +", "mv {} b"),
        ("bash -lc 'cd /; rm x'", "rm x"),
        ("sh -e -c \"rm x\"", "rm x"),
        ("eval 'rm' x", "rm x"),
        ("trap 'rm x' EXIT", "rm x"),
        ("exec -a ls rm x", "rm x"),
        ("time FOO=1 rm x", "rm x"),
        ("coproc c { rm x; }", "rm x"),
        ("f() { rm x; }", "rm x"),
        ("git > out push", "git push"),
        ("X=$(rm x)", "rm x"),
        ("export X=$(rm x)", "rm x"),
        ("a[$(rm x)]=1", "rm x"),
        ("(( x = $(rm x) ))", "rm x"),
        ("echo ${x:-$(rm x)}", "rm x"),
        ("echo \\ #; rm x", "rm x"),
        ("ls\n\\\nrm x", "rm x"),
    ],
)  # fmt: skip
def test_inner_commands_are_found_and_doubtful(text: str, part: str) -> None:
    script = parse(text)
    assert part in lines(script)
    assert not certain(script)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "$x foo", "$(echo rm) x", "r* x", "{rm,x}", "`echo rm` x",  # names known only at run time
        "PATH=x ls", "LD_PRELOAD=./x.so ls", "GIT_DIR=x git status", "X=1", "X=1; ls", "CI=$x ls",
        "alias ls=rm", "source x", ". x", "eval ls", "exec ls", "export A=1", "hash -p x ls",
        "ls() { rm x; }; ls", "for PATH in .; do ls; done", "unset x", "read x", "coproc ls",
        "[[ ! a ||-v x ]]", "[[ ! a &&-v x ]]", "[ * ]", "[ -f a* ]", "for x in a; do [ $x ]; done",
        "[ a = $x ]", "[ \"-v\" x ]", "[ -[v] x ]",
        "echo ${x@P}", "echo ${x:=1}", "echo ${!x}", "echo $((x))", "let x=1", "(( x ))",
        "for ((i=0;i<3;i++)); do ls; done", "[[ $x -eq 1 ]]", "[ -v x ]",
        "sudo ls", "doas ls", "xargs ls", "env -S 'ls'", "env FOO=1 ls", "setsid ls", "busybox ls",
        "find . -delete", "find . -ok ls \\;", "sh -c ls", "su -c ls", "watch ls", "time -o f ls",
        "timeout $x ls", "echo 'a", "ls (", "ls )", "if ls", "git > out push",
        "git sta\\\ntus", "ls\n\\rm x", "ls\n\\\nrm x", "echo \\ #; rm x", "ls\r\nrm x",
        "ls\u00a0-l", "ls\u2028rm x", "ls\u200b", "ls\x00rm", "ls \udcff", "''\\{ ls",
        "cat <<EOF\n EOF\n: '\nEOF\nrm x\n: '", "cat <<EOF\n`rm x`\nEOF", "cat <<E\"O\"F\nEOF",
        "echo `ls \\`rm x\\``", "ls 2>$x 3<>y", "[ a\n]", "ls -2>&1", "git push<<E\nE\n2>a -x<<<b",
        "ls -b<<E\nE", "\\ ", "time { ls; }",
        "sudo " * 50 + "ls", "eval " * 5000, "eval 'a" * 3000, "(" * 5000, "x" * 60_000,
    ],
)  # fmt: skip
def test_doubt(text: str) -> None:
    script = parse(text)
    assert not certain(script) or not all(w.fixed for w in (*script.reads, *script.writes))


@pytest.mark.parametrize(
    "text",
    [
        "ls", "CI=1 LC_ALL=C ls", "git log \\\n  --oneline", "ls # a comment", "# one\nls",
        "echo $x ${x} \"$x\" $((1 + 2))", "cat <<'EOF'\na $(b) `c`\nEOF", "cat <<-X\n\ta\n\tX",
        "for f in a b; do echo $f; done", "[ -f x ] && [[ $x == a ]]", "ls 2>&1 >/dev/null &",
        "[ \"$x\" = 'a*' ]", "[ -n \"$(ls)\" ]", "ls ~ ~/a ~root a~ HEAD~1",
        "find . -name '*.py' -type f", "timeout 5 ls", "git commit -m \"$(cat <<'E'\nit's\nE\n)\"",
        "bash script.sh", "command -v ls", "echo {1..3} {a,b}", "time -p ls", "sort <x >y",
    ],
)  # fmt: skip
def test_no_doubt(text: str) -> None:
    assert certain(parse(text))


def test_words_are_what_the_command_receives() -> None:
    (part,) = parse("""c 'a b' "c\\"d\\n" e\\ f g'h'"i" $'j' $x "k$x" l* m{1,2} '*' """).parts
    assert [word.text for word in part.words[1:6]] == ["a b", 'c"d\\n', "e f", "ghi", "j"]
    assert [word.fixed for word in part.words[1:]] == [True] * 5 + [False, False, True, False, True]
    assert [word.glob for word in part.words[1:]] == [False] * 7 + [True, False, False]


def test_redirections() -> None:
    script = parse("a <r >w 2>>e &>b 2>&1 >&- >/dev/null >&both; { c; } >| f")
    assert [word.text for word in script.reads] == ["r"]
    assert [word.text for word in script.writes] == ["w", "e", "b", "both", "f"]


def test_characters_that_crash_the_grammar() -> None:
    for letter in "\U00031860\U000f022b\u010c\u01ac":
        assert parse(f"{{{letter} echo ${{{letter}").text


@pytest.mark.slow
@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_parse_takes_any_text(text: str) -> None:
    assert parse(text).text == text


PIECES = [
    " ", "\n", ";", "&&", "|", "&", "(", ")", "{ ", "; }", "$(", "`", "'", '"', "\\", "\\\n", "#",
    " #", "$x", "z1 ", "z2", "z3 a", ">f", "2>&1", "<<E\n", "\nE\n", "<<'E'\n", "\tE\n", "<<<",
    "if ", "; then ", "; fi", "for i in a; do ", "; done", "case a in a) ", ";; esac", "!", "[[ a ",
    "]]", "$'", "{a,b}", "time ", "\\ ", "\\#", "x=1 ", "~", "-", '""', "<(", "function g ",
]  # fmt: skip
# Reports each command that bash cannot find, words between \x1f, commands between \0.
# Bash writes line by line, and parallel commands would write in between.
REPORT = """command_not_found_handle() {
    local IFS=$'\\x1f'; local words="$*"; printf '%s\\0' "${words//$'\\n'/$'\\x1e'}" >> "$REPORT"
}
eval "$COMMAND"
"""


@pytest.mark.slow
@needs("bash")
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=2, max_size=10))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_bash_runs_no_command_that_the_parser_missed(pieces: list[str], tmp_path: Path) -> None:
    command = "".join(pieces)
    script = parse(command)
    if not certain(script):
        return
    report, folder = tmp_path / "report", tmp_path / "work"
    report.write_bytes(b"")
    folder.mkdir(exist_ok=True)
    subprocess.run(
        [program("bash") or "", "--norc", "-c", REPORT],
        cwd=folder,
        env={"PATH": "/nonexistent", "REPORT": str(report), "COMMAND": command},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=200,
        check=False,
    )
    seen = {"\x1f".join(w.text for w in part.words) for part in script.parts}
    vague = {p.name for p in script.parts if not all(w.fixed and not w.glob for w in p.words)}
    vague |= {p.name for p in script.parts if any("~" in w.text for w in p.words)}
    for words in reported(report):
        assert "\x1f".join(words) in seen or words[0] in vague, command


def reported(report: Path) -> list[list[str]]:
    """The words of each command that bash ran."""
    lines = os.fsdecode(report.read_bytes()).replace("\x1e", "\n").split("\0")[:-1]
    return [line.split("\x1f") for line in lines]
