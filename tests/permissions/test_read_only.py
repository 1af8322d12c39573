"""Read-only commands and similar hostile ones: which need approval and which do not."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.shell import read_only
from ctxagent.agent.permissions.shell.parser import Word, parse
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
    "wc -l $(cat list)",
    "cat $(echo f)",
    "find . -name '*.py' -exec sed -n '1,5p' {} +",
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
    "git --version",
    "python3 --version",
    "node --version",
    "bash --version",
    "ls --help",
    "tar --help",
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
    "git ls-files | xargs -I{} sh -c 'rm {}'",
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
    "wc -l $(./list)",
    "sort $(cat list)",
    "rg foo $(git ls-files)",
    "git ls-files | xargs rg foo",
    "git ls-files | xargs sort",
    "pytest --help",
    "cargo --version",
    "rustc --version",
    "mvn --version",
    "make --version",
    "go version",
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
    "hostname -f",
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
    """A repository with plain file names."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    for name in ("a.py", "b.py", "f", "g.md", "list", "src/c.py"):
        (root / name).write_text("x\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


@pytest.fixture(autouse=True)
def usual_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")


def judged(project: Path, command: str, *, confined: bool = True, **given: Any) -> str:
    approval = Approval(cwd=project, **given)
    approval.kernel_confines_read_only = lambda: confined
    text = command.replace("PROJECT", str(project))
    return approval.judge(BashTool(), BashParams(command=text)).action


@pytest.mark.parametrize("command", LOOKERS)
def test_read_only_commands_need_no_approval(project: Path, command: str) -> None:
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
    "cat f | xargs cat",
    "cat $(echo ../secret)",
)


@pytest.mark.parametrize("command", HANDED_OVER)
def test_commands_that_receive_names_need_kernel_confinement(project: Path, command: str) -> None:
    """The files of such a command are known only at run time. It needs approval if the kernel
    cannot confine it, or if another part of the command is not read-only.
    """
    assert judged(project, command) == "allow"
    assert judged(project, command, confined=False) == "ask"
    assert judged(project, f"{command}; mkdir x", allow=["Bash(mkdir:*)"]) == "ask"
    assert judged(project, f"{command} > out", mode="accept-edits") == "ask"


def test_a_command_that_only_looks_says_so(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Bash(mkdir:*)"])
    for command, expected in (
        ("ls", True),
        ("ls | head", True),
        ("cd src && git log", True),
        ("wc -l < f", True),
        ("mkdir x", False),
        ("ls; mkdir x", False),
        ("ls > x", False),
        ("python x.py", False),
    ):
        verdict = approval.judge(BashTool(), BashParams(command=command))
        assert verdict.read_only is expected, command


def test_rules_hold_within(project: Path) -> None:
    """Rules also apply to commands in a loop, in a substitution or after xargs."""
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
    """A project's program that is first on the PATH needs approval. A missing one does not."""
    folder = project / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tar").write_text("#!/bin/sh\n")
    (folder / "tar").chmod(0o755)
    assert judged(project, "tar --version") == "allow"
    path = str(folder) if place else ""
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    assert judged(project, "tar --version") == "ask"
    assert judged(project, "ls --help") == "allow"


def test_a_repository_inside_is_looked_at(project: Path) -> None:
    """An inner repository that names a program needs approval, however git gets there."""
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
    """In a headless run, read-only commands run and a hostile variant is denied."""
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git branch -a", True), ("git branch new", False), ("git branch -D x", False),
        ("git branch --list 'x*'", True), ("git tag", True), ("git tag v1", False),
        ("git remote -v", True), ("git remote add a b", False), ("git stash list", True),
        ("git stash", False), ("git config --get user.name", True), ("git config a b", False),
        ("git --no-pager log", True), ("git -c core.pager=x log", False), ("git -C x log", False),
        ("git --exec-path=x log", False), ("git log --output=x", False),
        ("git log --outp x", False),
        ("git diff --ext-diff", False), ("git grep -Oless x", False), ("git push", False),
        ("git", True), ("git --version", True), ("git log --oneline -5", True),
        ("find . -name x", True), ("find . -fprintf x y", False), ("find . -fls x", False),
        ("sort a", True), ("sort -uo b a", False), ("sort --out=b a", False), ("sort *", False),
        ("sort -k2 a", True), ("uniq a", True), ("uniq a b", False), ("date", True),
        ("date +%F", True), ("date 01010101", False), ("date -s now", False),
        ("rg x", True), ("rg --pre ./x y", False), ("rg --pre=./x y", False), ("rg -z x", False),
        ("rg --pretty x", True), ("sed -n 1,5p a", True), ("sed -n '5,$p' a", True),
        ("sed -i s/a/b/ a", False), ("sed -n 'w x' a", False), ("sed -n 1e a", False),
        ("sed -n 1p -i a", False), ("printf %s x", True), ("printf -v x y", False),
        ("test -f x", True), ("test -v x", False), ("command -v ls", True), ("set -eu", True),
        ("set -o pipefail", True), ("set -- a", False), ("file -C -m x", False), ("file x", True),
        ("python --version", True), ("python x.py", False), ("jq . a", True), ("tree -o x", False),
        ("./ls", False), ("/tmp/ls", False), ("LS", False), ("ｌｓ", False), ("cat $x", False),
        ("echo $x", True), ("printf $x", False), ("env", False), ("awk 1 x", True),
        ("uniq - x", False), ("uniq -- a b", False), ("uniq -- -a b", False), ("uniq -", True),
        ("uniq a*", False), ("find . -d*", False), ("find . -*", False), ("sort a -*", False),
        ("sort -- *", True), ("sort a*", True), ("git diff --o*", False), ("rg x a*", True),
        ("test -[v] a", False), ("grep -* a", False), ("grep a *", True),
        ("grep --include=*.py a b", True), ("grep --file=*/a b", False), ("sed -n 1p *", False),
        ("cat ~+/x", False), ("cat ~-", False), ("cat ~1/x", False), ("cat ~/x", True),
        ("cat ~root/x", True), ("cat '~+/x'", True), ("git log a:~+", False),
        ("cat a=~-/x", False),
        ("git show HEAD~1", True), ("cat x'['[b]", False), ("cat x\\[[b]", False),
        ("cat 'x y'*", True), ("jq -n 'import \"/etc/x\" as $d; $d'", False),
        ("jq 'include \"a\"; .'", False), ("jq '\"/etc/x\"|modulemeta'", False),
        ("jq .imported a", True), ("printf %n PATH", False), ("printf '%-5ln' PATH", False),
        ("printf '100%%\\n'", True), ("arch", True), ("arch -arm64 x", False),
        ("sort --files0-from=a", False), ("sort --files0-from a", False),
        ("tee x", False), ("less x", False), ("curl x", False), ("cd a", True), ("cd", False),
    ],
)  # fmt: skip
def test_the_table_of_commands_that_only_look(text: str, expected: bool) -> None:
    (part,) = parse(text).parts
    assert read_only.is_read_only(part) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ps", True), ("ps -C bash", True), ("ps --pid 1", True), ("ps -u root -o pid", True),
        ("ps -o env", False), ("ps e", False), ("ps -p", False), ("ps 1,2", True),
        ("ps aux --forest", True),
        ("ps --sort=-pcpu", True), ("ps --format pid,cmd", True), ("ps -E", False),
        ("git config --list", True), ("git config -l", True), ("git config -l x", False),
        ("git config --get a b", False), ("git config --unset a", False), ("git remote", True),
        ("git remote get-url origin", True), ("git remote remove a", False),
        ("git remote -v a", False),
        ("git stash show", True), ("git stash pop", False), ("git reflog", True),
        ("git reflog show a", True),
        ("git reflog expire", False), ("git worktree list", True), ("git worktree add a", False),
        ("git branch", True), ("git branch -vv", True), ("git branch --contains a", True),
        ("git branch --merged main", True), ("git branch --show-current", True),
        ("git branch -m a", False),
        ("git branch --format=%x", True), ("git branch --sort=a b", False),
        ("git branch --set-upstream-to=a", False),
        ("git tag -l 'v*'", True), ("git tag -n3", True), ("git tag -d a", False),
        ("git tag --points-at a", True),
        ("git tag -l", True), ("git tag -n a", False), ("git -P log", True),
        ("git --no-optional-locks status", True),
        ("git --version x", False), ("git status --help", False), ("git diff --submodule", False),
        ("git log --exec x", False), ("git cat-file --filters a", False), ("git version", True),
        ("git commit -m x", False), ("git blame -O a", False), ("exit 1", True), ("exit", True),
        ("exit x", False),
        ("wait 12", True), ("wait -n", False), ("uptime -p", True), ("uptime -x", False),
        ("hostname -I", True),
        ("hostname x", False), ("wc --files0-from=a", False), ("du --files0-from a", False),
        ("du -sh a", True),
        ("tree -L 2", True), ("tree -R", False), ("file -f a", False), ("file -z a", False),
        ("file -Z a", False),
        ("file --files-from a", False), ("sort -T a b", False),
        ("sort --compress-program=a b", False),
        ("sort --temporary-directory=a b", False), ("jq -f a b", False), ("jq -L a . b", False),
        ("jq --from-file a", False), ("jq --library-path a", False), ("date -u -R", True),
        ("date --utc", True),
        ("date -Iseconds", True), ("date --iso-8601=s", True), ("date --rfc-3339=ns", True),
        ("date --date=now", True),
        ("date -d now", True), ("date -f a", False), ("date -f.env", False),
        ("date --set=now", False), ("command -V ls", True),
        ("command ls", False),
        ("command", False), ("set", False), ("set -o", True), ("set +x", True),
        ("test -R x", False),
        ("rg --hostname-bin=a x", False), ("rg --search-zip x", False), ("rg --hid x", False),
        ("rg --hidden x", True),
        ("rg --", True),
        ("find . -files0-from a", False), ("find . -execdir a +", False),
        ("find . -okdir a", False),
        ("find . -fprint0 a", False), ("python3 -V", True), ("node -v", True),
        ("python3 -V x", False),
        ("printf -v", False), ("printf '%5.3hhn' a", False), ("printf '%d' $x", True),
        ("uniq -c a", True),
        ("uniq -- a", True), ("cmp a b", True), ("id", True), ("mv a b", False),
        ("nawk 1 a", True),
        ("gawk -f a", False), ("ls $x", False), ("seq $x", True), ("cd a b", False),
        ("cd -P", False),
    ],
)  # fmt: skip
def test_more_commands_that_only_look_and_others(text: str, expected: bool) -> None:
    assert read_only.is_read_only(parse(text).parts[0]) is expected


def words(found: Iterable[Word]) -> list[str]:
    return [word.text for word in found]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("cat a b", ["a", "b"]), ("cat -- -a", ["-a"]), ("cat -n a", ["a"]), ("grep x a", ["a"]),
        ("grep -e x a", ["a"]), ("grep -f a b", ["a", "b"]), ("grep -fa b", ["a", "b"]),
        ("grep -nfa b", ["a", "b"]), ("grep --file=a b", ["a", "b"]), ("grep -- x a", ["a"]),
        ("grep --regexp=x a", ["a"]), ("rg x", []),
        ("rg --ignore-file a x b", ["a", "b"]),
        ("sed p a", ["a"]), ("awk 1 a", ["a"]), ("dd if=a of=b", ["if=a", "a", "of=b", "b"]),
        ("git show HEAD:a", ["HEAD:a", "a"]), ("echo a *", ["*"]), ("echo a", []),
        ("mytool --x=a b", ["a", "b"]), ("mytool -xSa", ["a"]), ("mytool -x-fa", []),
        ("cat ''", []),
        ("mytool --file", []), ("cat -", []), ("diff -Xa b c", ["a", "b", "c"]),
        ("mytool a=b:c", ["a=b:c", "b:c", "c"]),
    ],
)  # fmt: skip
def test_arguments_that_may_be_files(text: str, paths: list[str]) -> None:
    found = words(read_only.path_arguments(parse(text).parts[0]))
    assert found == paths


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("cat a", []), ("ls -R a", []), ("grep x a", []), ("grep -r x a", ["a"]),
        ("grep -r x", ["."]),
        ("grep --recursive x a", ["a"]), ("grep -rn --include=a x b", ["b"]),
        ("grep -rA 3 x a", ["a"]),
        ("grep -d recurse x a", ["a"]), ("rg x", ["."]), ("rg x a", ["a"]),
        ("rg -t py x a", ["a"]),
        ("rg -n x a", ["a"]), ("diff a b", ["a", "b"]), ("git grep x", ["."]),
        ("git log", []),
        ("git diff a", ["a"]), ("fgrep -R x a", ["a"]),
        ("grep --directories=recurse x a", ["a"]),
    ],
)  # fmt: skip
def test_folders_that_are_searched(text: str, folders: list[str]) -> None:
    found = words(read_only.searched_folders(parse(text).parts[0]))
    assert found == folders


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("grep -R x .", True), ("grep -nR x .", True), ("grep -r x .", False),
        ("grep --dereference-recursive x", True),
        ("rg -L x", True), ("rg --follow x", True), ("rg x", False), ("diff src src", True),
        ("diff a.py b.py", False),
        ("diff s* x", True), ("ls -L", False), ("cat a", False), ("diff ~ a.py", True),
        ("grep x --", False),
    ],
)  # fmt: skip
def test_commands_that_follow_links(project: Path, text: str, follows: bool) -> None:
    assert read_only.follows_links(parse(text).parts[0], [str(project)]) is follows


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("ls | wc", True), ("timeout 5 ls", True), ("find . | xargs cat", True), ("ls > a", False),
        ("rm a", False), ("ls; rm a", False), ("ls > /dev/null", True), ("", True),
        ("ls 'a", False),
        ("timeout 5 rm a", False),
    ],
)  # fmt: skip
def test_commands_that_change_no_file(text: str, certain: bool) -> None:
    assert read_only.changes_no_file(parse(text)) is certain


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("rm a.py", ["a.py"]), ("rm -r src", ["src"]), ("touch src", []),
        ("touch src/new", ["src/new"]),
        ("cat a.py", []), ("echo x > new", ["new"]), ("sed -i p a.py", ["a.py"]),
        ("cd src && rm c.py", ["src/c.py", "c.py"]),
        ("rm *.py", ["a.py", "b.py"]), ("rm $x", []), ("rm nowhere/deep/x", ["nowhere/deep/x"]),
        ("rm a.py/x", []),
        ("mv src lib", ["src", "lib"]), ("pushd src; rm c.py", ["src/c.py", "c.py"]),
        ("rm a.py a.py", ["a.py"]),
        ("/bin/rm -r src", ["src"]), ("mytool --out=new", ["new"]),
    ],
)  # fmt: skip
def test_paths_that_a_command_may_change(project: Path, text: str, paths: list[str]) -> None:
    found = read_only.touched_paths(parse(text), str(project))
    names = {str(Path(path).relative_to(project)) for path in found}
    assert names >= set(paths)
    assert "g.md" not in names
    assert bool(names) == bool(paths)


def test_changed_paths_are_few_and_links_are_kept(project: Path) -> None:
    (project / "link").symlink_to("a.py")
    (project / "in").symlink_to("src")
    found = read_only.touched_paths(parse("rm link in/c.py"), str(project))
    assert found == [str(project / "link"), str(project / "src/c.py")]
    many = read_only.touched_paths(
        parse("rm " + " ".join(f"f{n}" for n in range(70))), str(project)
    )
    assert len(many) == read_only.MAX_TOUCHED_PATHS


def test_commands_with_a_form_that_only_looks() -> None:
    assert read_only.has_read_only_form("sort")
    assert not read_only.has_read_only_form("rm")
    assert read_only.reads_files("cat")
    assert not read_only.reads_files("echo")
    assert not read_only.reads_files("rm")
    assert not read_only.has_read_only_form("python")
