"""Permission rules: parsing, covered tools, matching paths and commands."""

import os
from pathlib import Path

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions.rules import (
    Rule,
    allows_part,
    allows_text,
    exact_command,
    exact_path,
    forbids_part,
    narrowest_subject,
    parse_rule,
    path_matcher,
)
from ctxagent.agent.permissions.shell.parser import parse


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Bash", Rule("Bash")), (" Read ( x) ", None), (" Read(x) ", Rule("Read", "x")),
        ("Bash(a\nb)", Rule("Bash", "a\nb")), ("Bash((a))", Rule("Bash", "(a)")),
        ("mcp__srv__tool", Rule("mcp__srv__tool")), (" mcp__srv__* ", Rule("mcp__srv__*")),
        ("Bash(:*)", None), ("Bash(  )", None), ("Bash()", None), ("Read()", None), ("", None),
        ("Bash(a*b:*)", None), ("Bash(a\\*b:*)", Rule("Bash", "a\\*b:*")), ("Bash( :*)", None),
        ("Read(a\0b)", None), ("Read(\ud800)", None), ("Read(:*)", Rule("Read", ":*")),
        ("Nothing(x)", None), ("1Bash", None), ("mcp__srv(x)", None),
        ("Task( )", Rule("Task", " ")),
    ],
)  # fmt: skip
def test_reading(text: str, rule: Rule | None) -> None:
    if rule is None:
        with pytest.raises(UsageError):
            parse_rule(text)
    else:
        assert parse_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Bsh(x)", "Did you mean Bash?"), ("edit", "Did you mean Edit?"),
        ("Websearch", "WebSearch?"),
        ("Xyzzy", "The tools are Bash, Read,"), ("Bash(", "For example Bash(git status:*)"),
        ("Bash(:*)", "For example"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_answered_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_rule(text)
    assert hint in error.value.hint
    assert "For example Bash(git status:*)" in error.value.hint


@pytest.mark.parametrize(
    ("rule", "covered", "others"),
    [
        ("Read", ["Read", "Grep", "Glob"], ["Edit", "Bash", "mcp__a__b"]),
        ("Edit", ["Edit", "Write"], ["Read"]), ("Write", ["Write"], ["Edit"]),
        ("Grep", ["Grep"], ["Read", "Glob"]), ("Mcp", ["mcp__a__b"], ["Bash"]),
        ("mcp__a", ["mcp__a__b", "mcp__a"], ["mcp__ab__c", "Mcp"]),
        ("mcp__a__*", ["mcp__a__b"], ["mcp__b__c"]), ("mcp__a__b", ["mcp__a__b"], ["mcp__a__bc"]),
    ],
)  # fmt: skip
def test_the_tools_that_a_rule_covers(rule: str, covered: list[str], others: list[str]) -> None:
    parsed = parse_rule(rule)
    assert [tool for tool in (*covered, *others) if parsed.covers(tool)] == covered


def test_rules_for_every_call_of_a_tool() -> None:
    assert parse_rule("Bash").any
    assert parse_rule("Bash(*)").any
    assert parse_rule("Read").any
    assert not parse_rule("Read(*)").any
    assert not parse_rule("Bash(ls)").any
    assert parse_rule("Glob(a)").path == "a"
    assert parse_rule("Edit").path == parse_rule("Bash(a)").path == parse_rule("Task(a)").path == ""
    relative = [
        parse_rule(text).relative for text in ("Read(a)", "Edit(/a)", "Read(~/a)", "Bash(a)")
    ]
    assert relative == [True, False, False, False]
    assert [str(parse_rule(text)) for text in (" Read ", "Read(a b)")] == ["Read", "Read(a b)"]


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("cargo build --release", "cargo build:*"), ("cargo --version x", "cargo --version x"),
        ("mytool", "mytool:*"), ("mytool Build", "mytool:*"), ("mytool b*", "mytool:*"),
        ("cd src", "cd src"), ("python3.11 -m pytest x", "python3.11 -m pytest:*"),
        ("python -m $x", "python -m $x"), ("python a.py x", "python a.py:*"),
        ("python -", "python -"),
        ("python", "python"), ("python -i a.py", "python -i a.py"), ("pytest tests", "pytest:*"),
        ("pytest /etc", "pytest /etc"), ("make x", "make x"), ("gradle x", "gradle x"),
        ("sqlite3 x", "sqlite3 x"), ("psql-14 x", "psql-14 x"), ("npm run x", "npm run:*"),
        ("pnpm run x", "pnpm run:*"), ("yarn run x", "yarn run:*"), ("bun run x", "bun run x"),
        ("tool exec x", "tool exec x"), ("tool dlx x", "tool dlx x"),
        ("tool eval x", "tool eval x"),
        ("git commit -m x", "git commit:*"), ("git rebase x", "git rebase x"),
        ("git log --output=x", "git log --output=x"),
        ("git fetch", "git fetch"), ("git submodule update", "git submodule update"),
        ("git add .", "git add:*"),
        ("sort -o a b", "sort -o a b"), ("tee a", "tee a"), ("'my tool' go", "'my tool' go:*"),
        ("touch a", "touch:*"), ("mkdir -p a", "mkdir:*"), ("ls > a; mytool x", "mytool x:*"),
        ("mytool 'a*'", "mytool:*"), ("rm 'a*'", "rm 'a\\*'"),
        ("/opt/x/mytool go", "/opt/x/mytool go:*"),
        ("gdb x", "gdb x"), ("tmux", "tmux"), ("docker exec x", "docker exec x"),
        ("docker ps", "docker ps:*"), ("Rscript a.R", "Rscript a.R:*"), ("ruby -e x", "ruby -e x"),
    ],
)  # fmt: skip
def test_the_narrowest_rule_worth_keeping(command: str, subject: str) -> None:
    script = parse(command)
    assert narrowest_subject(script.parts[-1], script) == subject


def test_exact_subjects_mean_the_text_alone() -> None:
    assert exact_command("  ls *\n") == "ls \\*"
    assert exact_path("a*b?") == "a\\*b\\?"


@pytest.mark.parametrize(
    ("rule", "command", "allowed"),
    [
        ("Bash", "x; y", True), ("Bash(x; y)", " x; y ", True), ("Bash(x; y)", "x; z", False),
        ("Bash(x \\*)", "x *", True), ("Bash(x *)", "x *", False), ("Bash(x:*)", "x:*", False),
        ("Bash(x:*)", "x", False),
    ],
)  # fmt: skip
def test_a_whole_command(rule: str, command: str, allowed: bool) -> None:
    assert allows_text(parse_rule(rule), command) is allowed


@pytest.mark.parametrize(
    ("rule", "command", "allowed", "forbidden"),
    [
        ("Bash", "ls", True, "yes"), ("Bash(mytool a:*)", "mytool a b", True, "yes"),
        ("Bash(mytool a:*)", "mytool 'a' b", True, "yes"),
        ("Bash(mytool a:*)", "mytool", False, "no"),
        ("Bash(mytool a:*)", "mytool ab", False, "no"),
        ("Bash(mytool a:*)", "mytool $x", False, "maybe"),
        ("Bash(mytool a:*)", "/x/mytool a", False, "yes"),
        ("Bash(mytool a:*)", "mytool -v a", False, "yes"),
        ("Bash(mytool a)", "mytool a", True, "yes"), ("Bash(mytool a)", "mytool a b", False, "no"),
        ("Bash(mytool a)", "mytool  'a'", False, "yes"),
        ("Bash(mytool *)", "mytool a b", True, "yes"),
        ("Bash(mytool *)", "mytool", False, "no"), ("Bash(mytool *)", "/x/mytool a", False, "yes"),
        ("Bash(mytool a)", "mytool $x", False, "maybe"),
        ("Bash(mytool a)", "other $x", False, "no"),
        ("Bash(mytool \\* b)", "mytool '*' b", False, "yes"),
        ("Bash('my tool':*)", "'my tool' x", True, "yes"),
        ("Bash(it's:*)", "its x", False, "no"), ("Bash(a.c *)", "abc x", False, "no"),
        ("Bash(* push)", "git push", True, "yes"),
        ("Bash(mytool *)", "mytool \"a\nb\"", True, "yes"),
    ],
)  # fmt: skip
def test_a_simple_command(rule: str, command: str, allowed: bool, forbidden: str) -> None:
    (part,) = parse(command).parts
    assert allows_part(parse_rule(rule), part) is allowed
    assert forbids_part(parse_rule(rule), part) == forbidden


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/.env", "a*"):
        (root / name).touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "d.py").touch()
    (root / "link").symlink_to(tmp_path / "outside")
    return root


def test_a_pattern_read_narrowly_and_widely(project: Path) -> None:
    def matches(subject: str, path: str) -> list[bool]:
        place = os.path.normpath(project / path)
        return [path_matcher(subject, str(project), widely=w).matches(place) for w in (False, True)]

    assert matches("a.py", "a.py") == [True, True]
    assert matches("b.py", "src/b.py") == [False, True]
    assert matches("src/", "src/b.py") == [True, True]
    assert matches("deep/", "src/deep/c.py") == [False, True]
    assert matches("src/**", "src") == [False, True]
    assert matches("src/**", "src/deep/c.py") == [True, True]
    assert matches("src/*", "src/deep/c.py") == [False, False]
    assert matches("src/**/c.py", "src/c.py") == [True, True]
    assert matches("src/**/c.py", "src/deep/c.py") == [True, True]
    assert matches("src/?.py", "src/b.py") == [True, True]
    assert matches("src/?.py", "src/bb.py") == [False, False]
    assert matches("src/d*/c.py", "src/deep/c.py") == [True, True]
    assert matches("a\\*", "a*") == [True, True]
    assert matches("a\\*", "ab") == [False, False]
    assert matches("link/**", "../outside/d.py") == [False, True]
    assert matches(f"{project}/link/**", "../outside/d.py") == [False, True]
    assert matches(f"{project.parent}/outside/*", "../outside/d.py") == [True, True]
    assert matches("/**", "a.py") == [True, True]
    assert matches("//" + str(project) + "/a.py", "a.py") == [True, True]


def test_a_link_outside_of_the_project_is_followed(project: Path) -> None:
    (project.parent / "named").symlink_to(project.parent / "outside")
    for widely in (False, True):
        matcher = path_matcher(f"{project.parent}/named/**", str(project), widely=widely)
        assert matcher.matches(f"{project.parent}/outside/d.py")


def test_home_is_expanded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    assert path_matcher("~/src/*", "/", widely=False).matches(f"{project}/src/b.py")
    assert path_matcher("~", "/", widely=False).matches(f"{project}/a.py")


@pytest.mark.parametrize(
    ("subject", "folder", "below"),
    [
        ("src/b.py", ".", True), ("src/b.py", "src", True), ("src/b.py", "src/deep", False),
        ("src/b.*", "src", True), ("src/x.*", "src", False), ("*.py", "src/deep", True),
        (".env", ".", True), (".env", "src/deep", False), ("src/[b].py", "src", False),
        ("a\\*", ".", True), ("nothing", ".", False), ("src/**", "src", True),
        ("src/.e*", "src", True),
    ],
)  # fmt: skip
def test_files_below_a_folder(project: Path, subject: str, folder: str, below: bool) -> None:
    matcher = path_matcher(subject, str(project), widely=True)
    assert matcher.below(os.path.normpath(project / folder)) is below


def test_a_folder_too_large_to_scan_counts_as_a_match(project: Path) -> None:
    matcher = path_matcher("nothing", str(project), widely=True)
    assert matcher.below(str(project), max_files=8) is False
    assert matcher.below(str(project), max_files=7) is True
    assert matcher.find([str(project)], max_files=8) == []
    assert matcher.find([str(project)], max_files=7) is None
    assert path_matcher("src/x", str(project), widely=True).find([str(project)], 0) == []


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        ("src/b.py", ["src/b.py"]), ("src/*.py", ["src/b.py"]),
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        (".env", ["src/.env"]), ("src", ["src"]), ("src/**", ["src"]), ("a\\*", ["a*"]),
        ("nothing", []),
        ("src/nothing", []), ("src/.*", ["src/.env"]), ("deep", ["src/deep"]),
    ],
)  # fmt: skip
def test_the_files_that_a_pattern_finds(project: Path, subject: str, names: list[str]) -> None:
    found = path_matcher(subject, str(project), widely=True).find([str(project)])
    assert sorted({str(Path(path).relative_to(project)) for path in found or []}) == names
