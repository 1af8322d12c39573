"""Programs of sed and awk: those that only print, and those that write, run or read more."""

import pytest

from ctxagent.agent.permissions.shell.read_only import awk_only_prints, sed_only_prints

SED_PRINTS = [
    ["p"], ["-n", "1p"], ["-n", "1,5p"], ["-n", "1~2p", "f"], ["-n", "/a/,+3p"], ["-n", "/a/,~4p"],
    ["-n", "$p"], ["-n", "1 , 5 p"], ["-n", "/a/I,/b/M{p;=}"], ["-n", "2!p"], ["-n", "2! p"],
    ["s/a/b/"], ["s/a/b/gpI3"], ["s|a|b|;s#c#d#"], ["y/abc/xyz/"], ["y/a/b/;p"], ["5q"], ["q3"],
    ["Q"], ["-e", "1d", "-e", "s/a/b/", "f"], ["--expression", "p"], ["-nE", "p"],
    ["--quiet", "--regexp-extended", "p"], ["-s", "-z", "-u", "p"], ["-n", "/a\\/b/p"],
    ["s/\\//x/"], ["s/[ab]/x/"], ["h;H;g;G;x;n;N;D;P;l"], ["\n p ;\n d"], ["p", "-"],
]  # fmt: skip
SED_DOES_MORE = [
    [], ["-n"], ["-i", "p"], ["-n", "-i.bak", "p"], ["-f", "script"], ["--in-place", "p"], ["w f"],
    ["p;w f"], ["1,2w f"], ["s/a/b/w f"], ["s/a/b/e"], ["s/a/b/gw f"], ["e ls"], ["1e"], ["r f"],
    ["R f"], ["W f"], ["a text"], ["i text"], ["c text"], ["b end"], [":label"], ["s/a/b"],
    ["s/a"], ["s"], ["y/a/b"], ["/a"], ["/a/w f"], ["s\\a\\b\\"], ["sxaxbx"], ["s a b "],
    ["s/[/]/w f/"], ["s/a/[/;w f"], ["1,2,3p"], ["-e", "p", "-e", "w f"], ["-e"],
    ["--expression", "w f"], ["y/a/b/w f"], ["s/[]/][/p;/[]/p;/e;s/p/x/p"], ["s/[^]/]/x/"],
    ["/[[.].]/]/p"], ["s/[[=]=]/]/x/;w f"],
]  # fmt: skip
AWK_PRINTS = [
    ["1"], ["{print}"], ["{print $1}", "f"], ["-F:", "{print $1}", "f"], ["-F", ":", "{print $1}"],
    ["-v", "n=1", "NR==n"], ["-vn=1", "NR==n"], ["$1 > 3"], ["$1 > 3 {print}"], ["a || b"],
    ["{print a || b}"], ["{print $1 >= 2}"], ["/x/", "f", "g"], ["1", "-"],
    ["{printf \"%s\", $1}"],
]  # fmt: skip
AWK_DOES_MORE = [
    ['BEGIN{system \\\n("x")}'], ['{system("x")}'], ["{close(1)}"], ["{unknown($1)}"],
    [], ["-F:"], ["-v", "n=1"], ["-v"], ["-v", "n", "1"], ["-v", "1n=2", "1"], ["-f", "prog"],
    ["-i", "inplace", "1"], ["-E", "prog"], ["--file=prog"], ["1", "-f", "prog"], ["1", "f", "-x"],
    ["BEGIN{system(\"x\")}"], ["{getline}"], ["@load \"x\""], ["{print | \"sh\"}"],
    ["{print > \"f\"}"], ["{print >> \"f\"}"], ["{ARGV[1]=\"f\"}"], ["{ARGC=2}"],
    ["PROCINFO[1]"], ["{extension(\"x\")}"], ["$1 > 3 {print > 2}"], ["-vn", "1"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", SED_PRINTS, ids=str)
def test_sed_that_prints(arguments: list[str]) -> None:
    assert sed_only_prints(arguments)


@pytest.mark.parametrize("arguments", SED_DOES_MORE, ids=str)
def test_sed_that_does_more(arguments: list[str]) -> None:
    assert not sed_only_prints(arguments)


@pytest.mark.parametrize("arguments", AWK_PRINTS, ids=str)
def test_awk_that_prints(arguments: list[str]) -> None:
    assert awk_only_prints(arguments)


@pytest.mark.parametrize("arguments", AWK_DOES_MORE, ids=str)
def test_awk_that_does_more(arguments: list[str]) -> None:
    assert not awk_only_prints(arguments)
