"""Commands that only look and their hostile twins: what needs no question, and what does."""

import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.permissions.approval import Approval
from ctxagent.tools.bash import BashParams, BashTool

from ..support.command import Place
from ..support.server.loopback import Say, Server

LOOKERS = [
    "cd PROJECT && git status",
    "cd PROJECT && git log --oneline -5",
    "cd src && git diff --stat",
    "cd PROJECT && git diff HEAD~1 -- a.py",
    "git -C . status",
    "git -C src log --oneline",
    "git -C PROJECT diff",
    "for f in *.py; do wc -l $f; done",
    'for f in *.py; do wc -l "$f"; done',
    "for f in a.py b.py; do head -5 $f; done",
    'for f in a.py b.py; do echo "== $f"; sed -n \'1,5p\' "$f"; done',
    "for f in $(git ls-files); do echo $f; done",
    "find . -name '*.py' | xargs wc -l",
    "find . -type f -name '*.py' -print0 | xargs -0 grep -n foo",
    "find src -name '*.py' | sort | head -20 | xargs cat",
    "git ls-files | xargs wc -l",
    "git ls-files '*.py' | grep -v test | xargs -n 5 ls -l",
    "rg -l foo src | xargs wc -l | tail -1",
    "grep -rl foo src | xargs head -3",
    "find . -name '*.py' -exec wc -l {} +",
    "find src -type f -exec grep -l x {} \\;",
    "awk '{print $1}' f",
    "awk -F: '{print $1, $3}' f",
    "awk 'NR>=10 && NR<=20' f",
    "awk '$3 > 100 {print $1}' f",
    "awk -v n=3 'NR==n {print; exit}' f",
    "ps aux | awk '{print $2}'",
    "sed -n '/x/p' f",
    "sed 's/a/b/' f",
    "sed -E 's/(a|b)+/c/g; s/x//' f",
    "sed -n '10,20p' a.py",
    "sed -n '/def main/,/^$/p' a.py",
    "sed -e 's/a/b/' -e '1d' f",
    "sed '/^#/d' f | head",
    "sed -n '$=' f",
    "cat f | sed 's#a#b#g'",
    "wc -l $(git ls-files)",
    "cat $(git ls-files '*.md')",
    "grep -n foo $(find . -name '*.py')",
    "head -3 $(git diff --name-only)",
    "x=1; echo $x",
    'name=world; echo "hello $name"',
    'n=$(wc -l < f); echo "$n lines"',
    "printf 'a\\n'",
    "printf '%s\\n' \"$HOME\"",
    "printf '%d files\\n' 3",
    "ps aux",
    "ps -ef | grep python",
    "ps -o pid,ppid,cmd -p 1",
    "uptime",
    "hostname",
    "hostname -f",
    "git --version",
    "python3 --version",
    "node --version",
    "bash --version",
    "ls --help",
    "tar --help",
    "make --version",
    "grep --version",
    "git -C . log --oneline | head -3",
]
TWINS = [
    "cd /tmp && git status",
    "cd src && cd .. && git status",
    'cd "$X" && git diff',
    "cd PROJECT && git diff --output=x",
    "git -C .. status",
    "git -C /tmp log --oneline",
    'git -C "$D" diff',
    "for f in *.py; do rm $f; done",
    'for f in *.py; do f=/etc/passwd; cat "$f"; done',
    "for f in /etc/passwd; do head -5 $f; done",
    "for f in a.py b.py; do sed -i 's/a/b/' \"$f\"; done",
    "for PATH in /tmp; do ls; done",
    "find . -name '*.py' | xargs rm",
    "find . -type f -print0 | xargs -0 sed -i s/a/b/",
    "echo /etc/passwd | xargs cat",
    "cat f | xargs cat",
    "git ls-files | xargs -I{} sh -c 'rm {}'",
    "git ls-files | sed 's#^#/etc/#' | xargs cat",
    "rg -l foo src | xargs -d, cat",
    "grep -rl foo / | xargs head -3",
    "find . -name '*.py' -exec rm {} +",
    "find /etc -type f -exec grep -l x {} \\;",
    "awk 'BEGIN{system(\"touch x\")}'",
    "awk '{print $1 > \"out\"}' f",
    "awk 'BEGIN{while((\"ls\" | getline l)>0) print l}'",
    "awk '{print | \"sh\"}' f",
    "awk -f prog f",
    "awk -i inplace '{print}' f",
    "awk 'BEGIN{ARGV[1]=\"/etc/passwd\"; ARGC=2} {print}'",
    "sed -n '/x/w out' f",
    "sed 's/a/b/w out' f",
    "sed 's/a/b/e' f",
    "sed -n '1e touch x' f",
    "sed -i 's/a/b/' f",
    "sed -e 's/a/b/' -f script f",
    "sed '1r /etc/passwd' f",
    "sed -n 'W out' f",
    "sed 's#a#b#g;w out' f",
    "wc -l $(cat list)",
    "cat $(echo /etc/passwd)",
    "grep -n foo $(find / -name '*.py')",
    "head -3 $(rm x)",
    "PATH=.:$PATH; ls",
    "x=rm; $x f",
    "LD_PRELOAD=./x.so; ls",
    "BASH_ENV=x; bash -c ls",
    "printf -v PATH '%s' .",
    "printf '%n' PATH",
    'n=$(rm x); echo "$n"',
    "ps eww",
    "ps axe -o pid,env",
    "hostname evil",
    "uptime > out",
    "hostname -F f",
    "./tool --version",
    "nosuchprogram --version",
    "python3 --version x.py",
    "bash --help -c 'rm x'",
    "ls --help > x",
    "tar --help --to-command=x",
    "sudo --version; sudo rm x",
    "git -C . log --output=x",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with files of plain names."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    for name in ("a.py", "b.py", "f", "g.md", "list", "src/c.py"):
        (root / name).write_text("x\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@pytest.fixture(autouse=True)
def usual_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")


def judged(project: Path, command: str, **rules: list[str]) -> str:
    approval = Approval(cwd=project, **rules)  # type: ignore[arg-type]
    text = command.replace("PROJECT", str(project))
    return approval.judge(BashTool(), BashParams(command=text)).action


@pytest.mark.parametrize("command", LOOKERS)
def test_what_only_looks_needs_no_question(project: Path, command: str) -> None:
    assert judged(project, command) == "allow"


@pytest.mark.parametrize("command", TWINS)
def test_its_twin_does(project: Path, command: str) -> None:
    assert judged(project, command) == "ask"


def test_there_are_enough_of_both() -> None:
    assert len(set(LOOKERS)) >= 60
    assert len(set(TWINS)) >= 60


HANDED_OVER = (
    "find . -name '*.py' | xargs cat",
    "cat $(git ls-files)",
    "find . -type f -exec cat {} +",
)


@pytest.mark.parametrize("command", HANDED_OVER)
@pytest.mark.parametrize("name", ["a b", "-n", "'quoted'", "sub /etc/passwd", "tab\there"])
def test_a_name_that_could_be_taken_for_more(project: Path, name: str, command: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert judged(project, command) == "ask"


@pytest.mark.parametrize("command", HANDED_OVER)
def test_a_link_that_leads_out(project: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "outside").write_text("x")
    (project / "src" / "link").symlink_to(tmp_path / "outside")
    assert judged(project, command) == "ask"
    assert judged(project, "wc -l src/c.py") == "allow"


@pytest.mark.parametrize("command", HANDED_OVER)
def test_files_that_a_rule_keeps(project: Path, command: str) -> None:
    assert judged(project, command, deny=["Read(g.md)"]) != "allow"


def test_rules_hold_within(project: Path) -> None:
    """Rules for what stands in a loop, a substitution or behind xargs count as before."""
    for command in (
        "for f in *.py; do wc -l $f; done",
        "echo $(wc -l f)",
        "git ls-files | xargs wc",
    ):
        assert judged(project, command, deny=["Bash(wc:*)"]) == "deny"
        assert judged(project, command, ask=["Bash(wc:*)"]) == "ask"


def test_names_that_a_loop_finds_are_split(project: Path) -> None:
    assert judged(project, "for f in *.py; do cat $f; done") == "allow"
    (project / "x .py").touch()
    assert judged(project, "for f in *.py; do cat $f; done") == "ask"
    assert judged(project, 'for f in *.py; do cat "$f"; done') == "allow"


@pytest.mark.parametrize("place", [".venv/bin", "node_modules/.bin", ""])
def test_a_program_that_the_project_brings(
    project: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """First on the PATH, it is what runs: it is asked about, and what is not there is not."""
    folder = project / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tar").write_text("#!/bin/sh\n")
    (folder / "tar").chmod(0o755)
    assert judged(project, "tar --version") == "allow"
    path = str(folder) if place else ""
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    assert judged(project, "tar --version") == "ask"
    assert judged(project, "make --help") == "allow"


def test_a_repository_inside_is_looked_at(project: Path) -> None:
    """One that names a program is asked about, whichever way git is led there."""
    inner = project / "inner"
    subprocess.run(["git", "init", "-q", inner], check=True)
    commands = ("git -C inner status", "cd inner && git status", "cd PROJECT/inner && git diff")
    for command in commands:
        assert judged(project, command) == "allow"
    subprocess.run(["git", "-C", inner, "config", "core.fsmonitor", "./x"], check=True)
    subprocess.run(["git", "-C", inner, "config", "diff.external", "./x"], check=True)
    for command in commands:
        assert judged(project, command) == "ask"
    assert judged(project, "find . -maxdepth 1 -exec git -C {} diff \\;") == "ask"


@pytest.mark.slow
def test_by_the_real_command(tmp_path: Path) -> None:
    """Headless, where nobody can be asked: lookers run, and a twin is denied."""
    place = Place(tmp_path)
    (place.project / "f").write_text("one two\n")
    run = [
        "awk '{print $2}' f",
        "for x in *; do wc -l $x; done",
        "awk 'BEGIN{system(\"touch x\")}'",
    ]
    said = [Say(tools=[("Bash", {"command": command})]) for command in run]
    with Server([*said, Say("Done.")]) as server:
        done = place.run("-p", "look", env=place.server(server.url))
        requests = str(server.requests[-1])
    assert done.returncode == 3
    assert "1 f" in requests
    assert "two" in requests
    assert not (place.project / "x").exists()
