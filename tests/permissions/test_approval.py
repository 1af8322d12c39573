"""Permissions: rules, modes, and a table of commands with the verdict each must get."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.objections import Verdict
from ctxagent.agent.permissions.rules import Rule, parse_rule, path_matcher
from ctxagent.tools.base import Context, Effect, Output, Params, Tool


class Subject(Params):
    text: str


class Fake(Tool[Subject]):
    Params = Subject

    def __init__(self, name: str, effect: Effect) -> None:
        self.name, self.effect = name, effect  # type: ignore[misc]

    def subject(self, params: Subject) -> str:
        return params.text

    async def run(self, params: Subject, context: Context) -> Output:
        raise AssertionError("a call is judged here, never run")


EFFECTS: dict[str, Effect] = {
    "Bash": "run", "Read": "read", "Grep": "read", "Glob": "read", "Write": "edit",
    "Edit": "edit", "Todo": "none", "Job": "none", "Task": "run", "Recall": "none",
}  # fmt: skip


def judge(approval: Approval, tool: str, text: str = "") -> Verdict:
    return approval.judge(Fake(tool, EFFECTS[tool]), Subject(text=text))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a secret folder, and links out of it and into its .git."""
    root = tmp_path / "project"
    for folder in ("src/deep", "secrets", ".git/hooks", "out"):
        (root / folder).mkdir(parents=True)
    for file in ("src/app.py", "secrets/key", "README.md", ".git/config"):
        (root / file).write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "data").write_text("x")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "hooks").symlink_to(root / ".git" / "hooks")
    (root / "src" / "key").symlink_to(root / "secrets" / "key")
    return root


@pytest.fixture
def approval(project: Path, monkeypatch: pytest.MonkeyPatch) -> Approval:
    """Typical rules, used by the table."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    return Approval(
        cwd=project,
        allow=["Bash(pytest:*)", "Bash(git commit:*)", "Bash(npm run *)", "Bash(make)",
               "Bash(find:*)", "Bash(env:*)", "Bash(xargs:*)", "Bash(sudo:*)", "Edit(out/**)"],
        ask=["Bash(git push:*)"],
        deny=["Bash(rm:*)", "Bash(curl * | sh)", "Bash(npm publish:*)", "Read(secrets/**)",
              "Edit(secrets/**)"],
    )  # fmt: skip


ALLOWED = [
    # read-only commands
    "ls", "ls -la src", "cat README.md", "head -5 src/app.py | wc -l", "pwd && git status",
    "git log --oneline -5", "git diff HEAD~1 -- src/app.py", "git show HEAD:src/app.py",
    "grep -rn 'a/b' src", "rg -n '/etc/passwd' src", "find . -name '*.py' -type f", "true",
    "sed -n '1,20p' README.md", "sort README.md | uniq -c", "echo $HOME \"$x\"", "# a comment", "",
    "grep -A 3 foo src/app.py", "grep foo -- README.md", "grep -e x README.md",
    "grep -rn --include=*.py x src/deep", "git show HEAD~1",
    "[ \"$x\" = a ]", "printf '%s\\n' a", "sort src/*.py", "wc -l [R]*",
    "git --no-pager branch -a", "cd src && ls && cat deep/x", "cat *.md", "wc -l src/*.py",
    "for f in a b; do echo $f; done", "[ -f README.md ] && cat README.md",
    "diff src/app.py README.md",
    "ls 2>/dev/null", "ls >/dev/null 2>&1", "cat < README.md", "cat <<'E'\n$(rm x)\nE",
    "CI=1 ls", "timeout 5 ls", "date +%F", "test -f x || echo no", "python3 --version",
    # commands that rules allow
    "pytest", "pytest -q tests", "\"pytest\" -q", "py\\test -q",
    "pytest -q | tail -3",
    "make", "npm run build", "npm run build && pytest", "timeout 60 pytest -q", "time pytest",
    "git commit -m \"$(cat <<'E'\nit's done; rm x\nE\n)\"", "pytest > out/log 2>&1",
    "echo x >> out/a.txt", "env CI=1 pytest", "command pytest", "nohup nice pytest",
    "pytest \\\n  -q",
]  # fmt: skip
ASKED = [
    # not known as read-only, and without a rule
    "python x.py", "node -e 1", "mkdir a", "touch a", "git add .", "git checkout .",
    "git branch x",
    "curl http://a", "tee a", "sort -o a b", "sed -i s/a/b/ x", "awk -f x", "./ls",
    "less README.md",
    "pytestx", "pytest-x", "git commitx", "npm runx", "npm run", "make all", "PYTEST", "рytest",
    "ｌs",
    "ls; python x.py", "ls | python", "ls | bash", "python3", "echo $(python x.py)",
    "cat <(python x.py)",
    "ls\npython x.py",
    "if pytest; then python x.py; fi", "cat <<E\n$(python x.py)\nE", "ls & python x.py",
    # known only when it runs
    "$x", "$(echo ls)", "`ls`", "pytest`` x; $y", "eval ls", "source x", ". ./x", "exec ls",
    "alias ls=x", "X=1", "PATH=. ls", "PATH=. pytest", "LD_PRELOAD=./x pytest",
    "GIT_SSH=x git status",
    "ls() { x; }; ls", "pytest() { x; }; pytest", "{ls,x}", "l? x", "cat $x", "cat `ls`",
    "echo ${x@P}", "echo $((x))", "[[ $x -gt 1 ]]", "for PATH in .; do ls; done", "sort *",
    # wrappers, though rules name them
    "env pytest -q X=1 && env FOO=1 pytest", "env -S 'pytest'", "sudo pytest", "ls | xargs pytest",
    "find . -exec pytest {} \\;", "find . -delete", "find . -fprint x -ok ls \\;", "sh -c pytest",
    "bash -c 'ls'", "setsid pytest", "command -p env -i pytest", "timeout $x pytest",
    # options that write or run
    "git -c core.pager=./x log", "git -c core.fsmonitor=./x status", "git --exec-path=. status",
    "git log --output=x", "git diff --ext-diff", "git grep -O./x a", "git -C .. status",
    "cd src && cd .. && git status", "git --git-dir=x log", "rg --pre ./x a", "file -C",
    "uniq a b",
    "printf -v PATH x", "date -s now", "tree -o x", "git remote add x y", "git config a.b c",
    # files
    "cat /etc/shadow", "cat ~/.ssh/id_rsa", "cat ../outside/data", "cat link/data", "ls /",
    "ls ..",
    "cd .. && ls", "cd && ls", "cd - && ls", "ls; cd src", "(cd src)", "cd link && cat data",
    "head -c1 </etc/shadow",
    "grep -f/etc/shadow x", "grep -eroot /etc/shadow", "grep -f /etc/shadow x",
    "wc --files0-from=/etc/x",
    "git diff --no-index /dev/null /etc/shadow", "grep -r x .", "rg x", 
    "echo x > a", "echo x > .git/hooks/pre-commit", "echo x >> ~/.bashrc", "echo x > /etc/x",
    "pytest > log", "ls &> a", "ls >| a", "ls >& a", "> README.md", "echo x > $f",
    "echo x > out/*",
    "echo x > out/../a", "echo x > link/a", "cat </dev/tcp/a/1", "pytest > out/a > b",
    # options with a file, in any position
    "grep /etc/passwd -e root", "rg /etc -e root", "grep ../outside/data -e .", 
    "grep -e x -- /etc/x",
    "grep --exclude-from ../x . README.md", "rg --ignore-file /etc/passwd x src",
    "grep -- -e /etc/x", "grep -5f/etc/shadow x", "grep x -- ../outside/data",
    "file -fsrc/../../outside/data", "grep -fsrc/../../outside/data x", "rg -fsrc/../../x x src",
    "diff -Xsrc/../../x a b", "git grep -fsrc/../../x", "git blame -Ssrc/../../x README.md",
    "git ls-files -Xsrc/../../x", "grep -R x src", "rg -L x src", "diff -r src out",
    "sort --files0-from=x",
    # expansions of ~ and patterns
    "cat ~+/../outside/data", "cat ~-/x", "cat ~1/x", "cd ~+/.. && pytest", "echo x > ~+/../out",
    "cat [l]ink/data", "cat lin[k-k]/data", "uniq s*", "find . -d*", "test -[v] 'a[$(x)]'",
    "sort README.md -*", "git diff --o*", "ls -*", "[ * ]", "for x in a; do [ $x ]; done",
    "[[ ! a ||-v 'a[$(x)]' ]]", "printf %n PATH", "uniq - README.md", "uniq -- a b", "uniq - -",
    # how bash and the grammar differ
    "git sta\\\ntus", "ls\n\\python x", "ls\n\\\npython x", "echo \\ #; python x", "ls\rpython x",
    "cat <<E\n E\n: '\nE\npython x\n: '", "ls\u00a0x", "ls\u200b", "echo 'a", "ls )",
    "ls > out/a x",
    # ask rules
    "git push", "git push -f && ls", "git -C . push", "git --no-pager push", "git $x",
    "git {push,x}",
    "git pus? x", "/usr/bin/git push", "npm $x",
]  # fmt: skip
DENIED = [
    "rm x", "rm", "/bin/rm x", "r\\m x", "'rm' x", "r''m x", "\"r\"m x", "$'rm' x", "ls; rm x",
    "ls && rm x",
    "ls | rm x", "ls & rm x", "(rm x)", "{ rm x; }", "! rm x", "echo $(rm x)", "echo `rm x`",
    "echo \"$(rm x)\"", "cat <(rm x)", "ls > >(rm x)", "if rm x; then ls; fi",
    "for i in 1; do rm x; done",
    "while ls; do rm x; done", "case a in a) rm x;; esac", "f() { rm x; }", "coproc rm x",
    "cat <<E\n$(rm x)\nE", "ls <<< $(rm x)", "X=$(rm x)", "X=1 rm x", "env X=1 rm x",
    "env -i rm x",
    "sudo rm x", "sudo -u root -n rm x", "command rm x", "builtin command rm x", "exec rm x",
    "ls | xargs rm", "ls | xargs -n 1 -I {} rm {}", "find . -exec rm {} +",
    "find . -okdir rm {} \\;",
    "bash -c 'rm x'", "sh -ec \"ls; rm x\"", "eval rm x", "eval 'rm x'", "trap 'rm x' EXIT",
    "timeout 5 rm x", "nohup nice -n 5 rm x", "time rm x", "setsid rm x", "time X=1 rm x",
    "ls\nrm x", "ls \\\n; rm x", "> out/a rm x", "rm $x", "rm *", "ls\n\\rm x", "ls\n\\\nrm x",
    "echo \\ #; rm x", "echo 'a\nrm x", "r\\\nm x", "npm publish", "npm --silent publish",
    "[[ -n $(rm x) ]]", "echo ${x:-$(rm x)}", "echo $(( $(rm x) ))", "ls # no\nrm x",
    "pytest; rm x",
    # denied files, by any command
    "cat secrets/key", "cat src/key", "cat ./src/../secrets/key", "grep x secrets/key",
    "cat secrets/*", "cat s*/key",
    "python x.py secrets/key", "cat < secrets/key", "cd src && cat ../secrets/key", "ls secrets",
    "cd secrets && cat key", "pytest --file=secrets/key", "echo x > secrets/key",
    "cp x secrets/key",
    "sudo " * 9 + "rm x", "echo " + "a" * 40_000 + "; rm x",
    "tee secrets/new", "git show HEAD:secrets/key",
]  # fmt: skip


@pytest.mark.parametrize("command", ALLOWED)
def test_allowed(approval: Approval, command: str) -> None:
    assert judge(approval, "Bash", command).action == "allow"


@pytest.mark.parametrize("command", ASKED)
def test_asked(approval: Approval, command: str) -> None:
    assert judge(approval, "Bash", command).action == "ask"


@pytest.mark.parametrize("command", DENIED)
def test_denied(approval: Approval, command: str) -> None:
    assert judge(approval, "Bash", command).action == "deny"


@pytest.mark.parametrize("command", DENIED)
def test_bypass_keeps_deny_rules(approval: Approval, command: str) -> None:
    approval.mode = "bypass"
    assert judge(approval, "Bash", command).action == "deny"


@pytest.mark.parametrize("command", ASKED)
def test_bypass_allows_the_rest(approval: Approval, command: str) -> None:
    approval.mode = "bypass"
    assert judge(approval, "Bash", command).action == "allow"


@pytest.mark.parametrize("command", [*ALLOWED, *ASKED, *DENIED])
def test_a_remembered_rule_allows_the_call(project: Path, command: str) -> None:
    """Every suggested rule is valid, and repeated suggestions come to an end."""
    approval = Approval(cwd=project)
    for _ in range(8):
        verdict = judge(approval, "Bash", command)
        if verdict.action == "allow":
            return
        approval.allow_for_session(verdict.rule)
    pytest.fail(f"still asked: {verdict}")


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("black src", "Bash(black:*)"), ("black -q .", "Bash(black:*)"),
        ("git push origin main", "Bash(git push:*)"), ("make test", "Bash(make test)"),
        ("npm run build", "Bash(npm run:*)"), ("python -m pytest -q", "Bash(python -m pytest:*)"),
        ("python tools/x.py a", "Bash(python tools/x.py:*)"), ("python -c 1", "Bash(python -c 1)"),
        ("rm -rf *.o", "Bash(rm -rf \\*.o)"), ("ls; make x; make y", "Bash(make x)"),
        ("timeout 9 make x", "Bash(make x)"), ("sudo make x", "Bash(sudo make x)"),
        ("X=1; ls", "Bash(X=1; ls)"), ("cat /etc/x", "Read(/etc/x)"), ("ls > a", "Edit(a)"),
        ("'my tool' x", "Bash('my tool' x:*)"), ("ls > $x", "Bash(ls > $x)"),
        ("git -C x push", "Bash(git -C x push)"), ("awk -f x f; ls", "Bash(awk -f x f)"),
        ("sed -i s/a/b/ f", "Bash(sed -i s/a/b/ f)"), ("tar xf a", "Bash(tar xf a)"),
        ("python3.11 -c 1", "Bash(python3.11 -c 1)"), ("nodejs -e 1", "Bash(nodejs -e 1)"),
        ("pypy3.10 x.py a", "Bash(pypy3.10 x.py:*)"), ("vim -c q", "Bash(vim -c q)"),
        ("sqlite3 a.db x", "Bash(sqlite3 a.db x)"), ("npx tool x", "Bash(npx tool x)"),
        ("uv run x.py", "Bash(uv run x.py)"), ("npm exec tool", "Bash(npm exec tool)"),
        ("docker run image", "Bash(docker run image)"), ("mytool ./x", "Bash(mytool:*)"),
        ("git config a b", "Bash(git config a b)"), ("cp a ~/.bashrc", "Bash(cp a ~/.bashrc)"),
        ("uniq a b", "Bash(uniq a b)"), ("find . -fprint x", "Bash(find . -fprint x)"),
        ("python3.11 -m pytest x", "Bash(python3.11 -m pytest:*)"),
        ("/usr/bin/gawk 1", "Bash(/usr/bin/gawk 1)"), ("bun x y", "Bash(bun x y)"),
    ],
)  # fmt: skip
def test_the_rule_that_would_allow(tmp_path: Path, command: str, rule: str) -> None:
    assert judge(Approval(cwd=tmp_path), "Bash", command).rule == rule


def test_an_exact_rule_allows_only_the_exact_command(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, allow=["Bash(X=1 make \\*)"])
    assert judge(approval, "Bash", "X=1 make *").action == "allow"
    assert judge(approval, "Bash", "X=1 make *; ls").action == "ask"
    assert judge(approval, "Bash", "X=1 make a").action == "ask"


def test_bash_without_a_subject_allows_all_but_what_others_forbid(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, allow=["Bash"], ask=["Bash(git push:*)"])
    assert judge(approval, "Bash", "x=1; sudo make").action == "allow"
    assert judge(approval, "Bash", "x=1; git push").action == "ask"
    assert judge(approval, "Bash", "x=push; git $x").action == "ask"
    approval.allow_for_session("Bash(git push:*)")
    assert judge(approval, "Bash", "git push").action == "ask"


@pytest.mark.parametrize(
    ("mode", "tool", "text", "action"),
    [
        ("ask", "Read", "src/app.py", "allow"), ("ask", "Read", "", "allow"),
        ("ask", "Read", "/etc/passwd", "ask"), ("ask", "Read", "../outside/data", "ask"),
        ("ask", "Read", "src/../../outside/data", "ask"), ("ask", "Read", "link/data", "ask"),
        ("ask", "Read", "link/../outside/data", "ask"), ("ask", "Read", "~/.ssh/id", "ask"),
        ("ask", "Grep", ".", "allow"), ("ask", "Glob", "/", "ask"), ("ask", "Edit", "a", "ask"),
        ("ask", "Write", "a", "ask"), ("ask", "Todo", "", "allow"), ("ask", "Task", "x", "ask"),
        ("accept-edits", "Edit", "src/app.py", "allow"),
        ("accept-edits", "Write", "new/a", "allow"),
        ("accept-edits", "Edit", "/etc/passwd", "ask"), ("accept-edits", "Edit", "../a", "ask"),
        ("accept-edits", "Edit", "link/a", "ask"), ("accept-edits", "Edit", ".git/config", "ask"),
        ("accept-edits", "Edit", ".GIT/config", "ask"),
        ("accept-edits", "Edit", "a/.git/x", "ask"),
        ("accept-edits", "Edit", "hooks/pre-commit", "ask"),
        ("accept-edits", "Edit", ".git", "ask"),
        ("accept-edits", "Write", ".agentrc", "ask"), ("accept-edits", "Write", ".bashrc", "ask"),
        ("accept-edits", "Write", ".ctxagent/agents/a.md", "ask"),
        ("accept-edits", "Edit", "src/../.git/config", "ask"),
        ("accept-edits", "Bash", "echo x > src/new", "allow"),
        ("accept-edits", "Bash", "echo x > .git/hooks/a", "ask"),
        ("accept-edits", "Bash", "cd .git && echo x > hooks/a", "ask"),
        ("accept-edits", "Bash", "make", "ask"), ("accept-edits", "Read", "/etc/passwd", "ask"),
        ("plan", "Read", "src/app.py", "allow"), ("plan", "Read", "/etc/passwd", "ask"),
        ("plan", "Edit", "a", "deny"), ("plan", "Bash", "ls | wc", "allow"),
        ("plan", "Bash", "make", "deny"), ("plan", "Bash", "ls > a", "deny"),
        ("plan", "Bash", "timeout 5 ls", "allow"), ("plan", "Bash", "X=1", "deny"),
        ("plan", "Bash", "cat /etc/passwd", "ask"), ("plan", "Task", "x", "deny"),
        ("plan", "Bash", "uniq - README.md", "deny"), ("plan", "Bash", "uniq s*", "deny"),
        ("plan", "Bash", "find . -d*", "deny"),
        ("accept-edits", "Bash", "echo x > ~+/../out", "ask"),
        ("accept-edits", "Bash", "echo x > ~-/out", "ask"),
        ("plan", "Todo", "", "allow"), ("bypass", "Edit", "/etc/passwd", "allow"),
        ("bypass", "Task", "", "allow"), ("bypass", "Bash", "$x", "allow"),
    ],
)  # fmt: skip
def test_modes(project: Path, mode: PermissionMode, tool: str, text: str, action: str) -> None:
    assert judge(Approval(cwd=project, mode=mode), tool, text).action == action


def test_plan_mode_overrides_allow_rules(project: Path) -> None:
    approval = Approval(cwd=project, mode="plan", allow=["Edit", "Bash(make:*)"])
    for tool, text, rule in (
        ("Edit", "src/a.py", "Edit(src/a.py)"),
        ("Bash", "make", "Bash(make)"),
    ):
        verdict = judge(approval, tool, text)
        assert (verdict.action, verdict.rule) == ("deny", rule)
        assert "plan mode is on" in verdict.reason
    approval.mode = "ask"
    assert judge(approval, "Edit", "src/a.py").action == "allow"


@pytest.mark.parametrize(
    ("rule", "tool", "path", "action"),
    [
        ("Edit(src/**)", "Edit", "src/app.py", "allow"),
        ("Edit(src/**)", "Write", "src/a/b", "allow"),
        ("Edit(src/**)", "Edit", "srcs/a", "ask"),
        ("Edit(src/**)", "Edit", "src/../README.md", "ask"),
        ("Edit(src/*)", "Edit", "src/app.py", "allow"),
        ("Edit(src/*)", "Edit", "src/deep/a", "ask"),
        ("Edit(src)", "Edit", "src/deep/a", "allow"), ("Edit(*.md)", "Edit", "README.md", "allow"),
        ("Edit(*.md)", "Edit", "src/a.md", "ask"), ("Edit(**/*.md)", "Edit", "src/a.md", "allow"),
        ("Edit(*.md)", "Edit", "readme.MD", "ask"),
        ("Edit(./src/a?.py)", "Edit", "src/a1.py", "allow"),
        ("Edit(src/[id].py)", "Edit", "src/[id].py", "allow"),
        ("Edit(src/[id].py)", "Edit", "src/i.py", "ask"),
        ("Edit(**)", "Edit", "../a", "ask"), ("Edit(**)", "Edit", "link/a", "ask"),
        ("Edit(link/**)", "Edit", "link/a", "ask"), ("Edit", "Edit", "/etc/x", "allow"),
        ("Edit(src/**)", "Read", "/etc/x", "ask"), ("Read(/etc/**)", "Read", "/etc/x", "allow"),
        ("Read(//etc/**)", "Read", "/etc/x", "allow"),
        ("Read(/etc/**)", "Read", "/etc/../root/x", "ask"),
        ("Read(/etc/**)", "Grep", "/etc", "ask"), ("Read(/etc)", "Grep", "/etc", "allow"),
        ("Read(/etc)", "Glob", "/etc/x", "allow"), ("Grep(/etc)", "Read", "/etc/x", "ask"),
        ("Read(~/notes/**)", "Read", "~/notes/a", "allow"),
        ("Read(~/notes/**)", "Read", "~/other", "ask"),
        ("Read(../outside/**)", "Read", "../outside/data", "allow"),
        ("Read(../outside/**)", "Read", "link/data", "allow"),
        ("Write(src/**)", "Edit", "src/app.py", "ask"),
        ("Write(src/**)", "Write", "src/a", "allow"),
        ("Read(/etc/x)", "Bash", "cat /etc/x", "allow"),
        ("Edit(src/**)", "Bash", "ls > src/a", "allow"),
    ],
)  # fmt: skip
def test_allow_rules_for_paths(project: Path, rule: str, tool: str, path: str, action: str) -> None:
    assert judge(Approval(cwd=project, allow=[rule]), tool, path).action == action


@pytest.mark.parametrize(
    ("rule", "tool", "path"),
    [
        ("Read(secrets/**)", "Read", "secrets/key"), ("Read(secrets)", "Grep", "secrets"),
        ("Read(secrets/**)", "Read", "src/key"), ("Read(src/key)", "Read", "src/key"),
        ("Read(key)", "Read", "secrets/key"), ("Read(*.py)", "Read", "src/app.py"),
        ("Read(link/**)", "Read", "../outside/data"), ("Read(../outside)", "Read", "link/data"),
        ("Edit(.git/**)", "Write", "hooks/pre-commit"), ("Edit", "Edit", "a"),
        ("Glob", "Glob", "."),
        ("Todo", "Todo", ""), ("Bash", "Bash", "ls"), ("Task", "Task", "x"),
        ("Read", "Bash", "cat a"),
    ],
)  # fmt: skip
def test_deny_rules_win(project: Path, rule: str, tool: str, path: str) -> None:
    approval = Approval(cwd=project, mode="bypass", allow=[rule, "Read", "Edit", tool], deny=[rule])
    verdict = judge(approval, tool, path)
    assert (verdict.action, verdict.rule) == ("deny", rule)


def test_ask_rules_come_between_deny_and_allow(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Edit"], ask=["Edit(src/**)", "Read(README.md)"])
    assert judge(approval, "Edit", "a").action == "allow"
    assert judge(approval, "Edit", "src/a").rule == "Edit(src/**)"
    assert judge(approval, "Read", "README.md").action == "ask"
    assert judge(approval, "Bash", "cat README.md").action == "ask"


def test_a_search_over_denied_files_is_asked_about(project: Path) -> None:
    (project / ".env").write_text("KEY=1")
    assert judge(Approval(cwd=project, deny=["Read(.env)"]), "Grep", ".").action == "allow"
    approval = Approval(cwd=project, ask=["Read(.env)"], deny=["Read(.e*)"])
    verdict = judge(approval, "Grep", ".")
    assert verdict.action == "ask"
    assert "Read(.env)" in verdict.reason
    assert judge(approval, "Grep", "src").action == "allow"
    assert judge(approval, "Bash", "grep -r KEY .").action == "ask"
    assert judge(approval, "Bash", "grep -rn --include=*.py KEY src").action == "allow"
    assert judge(approval, "Bash", "cat .e*").action == "deny"
    approval.allow_for_session(verdict.rule)
    assert judge(approval, "Grep", ".").action == "allow"
    assert judge(approval, "Read", ".env").action == "deny"


HIDDEN = [
    "cat ~+/sub/.env", "cat sub/.en[v]", "cat sub/.en[!x]", "cat sub/.en?", "cat sub/*/../.env",
    "grep .env -e .", "grep -5f.env x", "grep -r KEY sub", "grep -5r KEY su*", "grep -rh KEY",
    "grep -d recurse KEY sub", "rg KEY", "rg -e sub", "rg -A 3 src",
    "grep -rn --include=x KEY", "git grep KEY", "diff --rec sub src",
    "cat sub/.[[:alpha:]]nv", "cat -- sub/.env", "cat < sub/.en*", "cat */*/*/*",
]  # fmt: skip


@pytest.mark.parametrize("command", HIDDEN)
def test_a_denied_file_is_not_read_by_another_spelling(project: Path, command: str) -> None:
    (project / "sub").mkdir()
    for file in (".env", "sub/.env"):
        (project / file).write_text("KEY=1")
    approval = Approval(cwd=project, deny=["Read(.env)"])
    assert judge(approval, "Bash", command).action != "allow"


def test_a_pattern_without_matches_is_a_plain_name(project: Path) -> None:
    approval = Approval(cwd=project)
    (project / "l[i]nk").symlink_to("/etc/passwd")
    assert judge(approval, "Bash", "cat src/[z]x").action == "allow"
    assert judge(approval, "Bash", "cat src/[a]pp.py src/[!z]pp.py").action == "allow"
    assert judge(approval, "Bash", "cat l[i]n[kz]").action == "ask"
    assert judge(approval, "Bash", "cat l[i]nk").action == "ask"


@pytest.mark.slow
def test_more_files_than_can_be_looked_at_are_asked_about(project: Path) -> None:
    (project / "many").mkdir()
    for number in range(1001):
        (project / "many" / str(number)).touch()
    assert judge(Approval(cwd=project), "Bash", "cat many/*").action == "ask"
    (project / "many" / "0").unlink()
    assert judge(Approval(cwd=project), "Bash", "cat many/*").action == "allow"


def test_a_file_named_like_an_option(project: Path) -> None:
    approval = Approval(cwd=project)
    assert judge(approval, "Bash", "grep x *.md").action == "allow"
    (project / "-x.md").touch()
    assert judge(approval, "Bash", "grep x *.md").action == "ask"
    (project / "-link").symlink_to("/etc/passwd")
    assert judge(approval, "Bash", "cat -- -x.md").action == "allow"
    assert judge(approval, "Bash", "cat -- -link").action == "ask"


def test_a_folder_too_large_to_scan_may_contain_a_denied_name(project: Path) -> None:
    (project / "many").mkdir()
    for number in range(4):
        (project / "many" / str(number)).touch()
    anywhere = path_matcher(".env", str(project), widely=True)
    assert anywhere.below(str(project / "many"), max_files=3)
    assert not anywhere.below(str(project / "many"), max_files=4)
    assert not path_matcher("x/.env", str(project), widely=True).below(str(project), max_files=3)


def test_the_sessions_own_folder_is_read_without_a_question(project: Path, tmp_path: Path) -> None:
    approval = Approval(cwd=project, readable=[tmp_path / "session"])
    assert judge(approval, "Read", str(tmp_path / "session" / "offloaded" / "a")).action == "allow"
    assert judge(approval, "Bash", f"cat {tmp_path}/session/a").action == "allow"
    assert judge(approval, "Read", str(tmp_path / "sessions")).action == "ask"
    approval.mode = "accept-edits"
    assert judge(approval, "Edit", str(tmp_path / "session" / "a")).action == "ask"


def test_a_project_reached_through_a_link(project: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(project)
    approval = Approval(cwd=tmp_path / "alias", allow=["Edit(src/**)"])
    assert judge(approval, "Read", "src/app.py").action == "allow"
    assert judge(approval, "Read", str(project / "src/app.py")).action == "allow"
    assert judge(approval, "Edit", str(project / "src/app.py")).action == "allow"
    assert judge(approval, "Edit", "README.md").rule == "Edit(README.md)"


def test_a_link_made_later_does_not_widen_a_rule(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Edit(out/**)"])
    assert judge(approval, "Edit", "out/a").action == "allow"
    (project / "out").rmdir()
    (project / "out").symlink_to("/etc")
    assert judge(approval, "Edit", "out/a").action == "ask"


@pytest.mark.parametrize("path", ["a", "~x", " ", "a*b?", "src/[x].py", "a b(c)", "/etc/x", "../y"])
def test_remembering_an_edit(project: Path, path: str) -> None:
    approval = Approval(cwd=project)
    asked = judge(approval, "Edit", path)
    assert asked.action == "ask"
    approval.allow_for_session(asked.rule)
    assert judge(approval, "Edit", path).action == "allow"
    assert judge(approval, "Edit", "other").action == "ask"
    assert approval.rules()["session"] == [asked.rule]


def test_rules_are_shown_in_the_order_of_their_force(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, allow=["Read", " Edit(a) "], deny=["Bash(rm:*)"])
    assert dict(approval.rules()) == {
        "deny": ["Bash(rm:*)"],
        "ask": [],
        "allow": ["Read", "Edit(a)"],
        "session": [],
    }


def test_parse_rule() -> None:
    assert parse_rule("Read") == Rule("Read")
    assert parse_rule("Bash(echo (a):*)") == Rule("Bash", "echo (a):*")
    assert str(parse_rule(" Edit(src/**) ")) == "Edit(src/**)"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "For example"), ("Bash(", "For example"), ("Bash()", "For example"),
        ("Bash( )", "For"),
        ("Bash(a) b", "For example"), ("git status", "For example"), ("bash(ls)", "mean Bash?"),
        ("Raed(x)", "mean Read?"), ("Zzzz", "The tools are Bash"), ("Bash(:*)", "For example"),
        ("Bash(a *:*)", "For example"),
    ],
)  # fmt: skip
def test_a_malformed_rule_is_named(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    assert repr(text) in caught.value.message
    assert hint in caught.value.hint


NASTY = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            [
                *ALLOWED,
                *ASKED,
                *DENIED,
                "\0",
                "\udc80",
                "~",
                "/",
                "..",
                "$(",
                "'",
                "\\",
                "*",
                "<<E\n",
            ]
        ),
        max_size=3,
    ).map("".join),
)


@pytest.mark.slow
@given(text=NASTY, mode=st.sampled_from(["ask", "accept-edits", "plan", "bypass"]))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("tool", ["Bash", "Read", "Grep", "Write", "Todo", "Task"])
def test_judging_never_fails(project: Path, tool: str, text: str, mode: PermissionMode) -> None:
    approval = Approval(cwd=project, mode=mode, deny=["Bash(rm:*)", "Read(.env)"], ask=["Edit(a*)"])
    verdict = judge(approval, tool, text)
    if verdict.action != "allow":
        approval.allow_for_session(verdict.rule)


def test_home_is_not_needed(project: Path) -> None:
    assert judge(Approval(cwd=project), "Read", os.sep + "~" * 5000).action == "ask"


class Box:
    """A sandbox that allows one folder and maps /tmp to a private folder."""

    required = network = by_name = False
    absent = unasked_absent = partial = ""

    def __init__(self, project: Path, **fields: object) -> None:
        self.project = str(project)
        self.own = str(project.parent / "own")
        for name, value in fields.items():
            setattr(self, name, value)

    def can_read(self, path: str) -> bool:
        return path.startswith((self.project, "/usr", "/etc"))

    def can_write(self, path: str) -> bool:
        return path.startswith(self.project)

    def moved(self, path: str) -> str:
        return self.own + path.removeprefix("/tmp/box") if path.startswith("/tmp/box") else path


def boxed(project: Path, mode: PermissionMode = "ask", **fields: object) -> Approval:
    approval = Approval(cwd=project, mode=mode, allow=["Bash(mytool:*)"], deny=["Read(secrets/**)"])
    approval.sandbox = Box(project, **fields)  # type: ignore[assignment]
    return approval


@pytest.mark.parametrize(
    ("mode", "sandboxed", "unasked"),
    [
        ("ask", False, False), ("ask", True, True), ("accept-edits", True, True),
        ("plan", True, False),
        ("bypass", True, False), ("sandboxed", False, True), ("sandboxed", True, True),
    ],
)  # fmt: skip
def test_commands_that_need_no_question_in_the_sandbox(
    project: Path, mode: PermissionMode, sandboxed: bool, unasked: bool
) -> None:
    approval = Approval(cwd=project, mode="ask")
    approval.mode, approval.sandboxed = mode, sandboxed
    assert approval.sandboxed is unasked


def test_sandboxed_commands_are_allowed(project: Path) -> None:
    approval = boxed(project, "sandboxed")
    verdict = judge(approval, "Bash", "touch new")
    assert (verdict.action, verdict.confined, verdict.rule) == ("allow", True, "Bash(touch:*)")
    assert not judge(approval, "Bash", "mytool x").confined
    verdict = judge(approval, "Bash", "curl x")
    assert (verdict.action, verdict.confined) == ("ask", False)
    assert verdict.reason == "the sandbox does not allow the network: `curl`"
    assert "protected file: .git" in judge(approval, "Bash", "touch .git/x").reason
    assert "path outside of the project" in judge(approval, "Bash", "touch ../x").reason
    assert judge(approval, "Bash", "cat secrets/key").action == "deny"
    assert judge(approval, "Bash", "x() { y; }; x").confined
    guarded = Approval(cwd=project, mode="sandboxed", ask=["Bash(git push:*)"])
    guarded.sandbox = approval.sandbox
    for command in ("x() { y; }; x", "git $x", "git push"):
        assert judge(guarded, "Bash", command).action == "ask"


@pytest.mark.parametrize("fields", [None, {"unasked_absent": "the kernel forbids it."}])
def test_commands_need_approval_without_a_sandbox(
    project: Path, fields: dict[str, object] | None
) -> None:
    approval = boxed(project, "sandboxed", **(fields or {}))
    if fields is None:
        approval.sandbox = None
    reason = "the kernel forbids it." if fields else "the sandbox is off."
    assert approval.unconfined == reason
    verdict = judge(approval, "Bash", "touch new")
    assert verdict.action == "ask"
    assert verdict.reason.endswith(f"; not sandboxed: {reason.removesuffix('.')}")
    assert boxed(project).unconfined == ""


def test_whether_the_sandbox_would_confine_a_call(project: Path) -> None:
    def would(command: str, approval: Approval) -> bool:
        return approval.would_confine(Fake("Bash", "run"), Subject(text=command))

    approval = boxed(project)
    assert would("touch new", approval)
    assert not would("curl x", approval)
    assert not would("ls", approval)
    assert not approval.sandboxed
    approval.sandboxed = True
    assert not would("touch new", approval)


def test_git_that_stores_guarded_ignored_files_needs_approval(project: Path) -> None:
    """Ignored files are in no index yet, so nothing else shows that git will store them."""
    settings = {"allow": ["Bash(git:*)"], "deny": ["Read(.env)"]}
    commands = ("git stash -qa; git show stash^3", "git stash push --all", "git add -f .")
    for there, action in ((False, "allow"), (True, "ask")):
        if there:
            (project / ".env").write_text("KEY=1")
        for command in commands:
            assert judge(Approval(cwd=project, **settings), "Bash", command).action == action
    for command in ("git stash -u", "git add -A", "git commit -am all"):
        assert judge(Approval(cwd=project, **settings), "Bash", command).action == "allow"


def test_files_that_rules_guard(project: Path) -> None:
    approval = Approval(
        cwd=project, deny=["Read(secrets/**)", "Grep", "Edit(README.md)"], ask=["Read(src/app.py)"]
    )
    read, written = approval.guarded_files() or ([], [])
    assert {str(Path(path).relative_to(project)) for path in read} == {"secrets", "src/app.py"}
    assert written == [str(project / "README.md")]
    assert Approval(cwd=project).guarded_files() == ([], [])


def test_a_required_sandbox_bounds_files_too(project: Path) -> None:
    approval = boxed(project, "bypass", required=True)
    for tool, path, doing in (
        ("Read", "../outside/data", "read"),
        ("Edit", "/etc/hosts", "edited"),
    ):
        verdict = judge(approval, tool, path)
        assert verdict.action == "deny"
        assert f"may not be {doing} here: it is outside of the sandbox" in verdict.reason
    assert judge(approval, "Read", "/etc/hosts").action == "allow"
    assert judge(approval, "Edit", "src/app.py").action == "allow"
    assert judge(boxed(project, "bypass"), "Edit", "/etc/hosts").action == "allow"


def test_files_that_an_allowed_command_opens(project: Path) -> None:
    outside = str(project.parent / "outside" / "data")
    approval = boxed(project, "bypass")
    assert judge(approval, "Bash", f"mytool {outside} /etc/hosts src/app.py").opens == (outside,)
    assert judge(approval, "Bash", "mytool src/app.py").opens == ()
    assert judge(approval, "Bash", f"cat secrets/key {outside}").opens == ()
    absent = boxed(project, "bypass", absent="no kernel")
    assert judge(absent, "Bash", f"mytool {outside}").opens == ()
    assert judge(Approval(cwd=project, mode="bypass"), "Bash", f"mytool {outside}").opens == ()


def test_paths_of_commands_in_their_own_temporary_folder(project: Path) -> None:
    """A path below /tmp means the file in the sandbox's private /tmp."""
    own = project.parent / "own"
    own.mkdir()
    (own / "made").write_text("x")
    approval = boxed(project)
    verdict = judge(approval, "Read", "/tmp/box/made")
    assert (verdict.action, verdict.path) == ("allow", str(own / "made"))
    assert judge(approval, "Read", "/tmp/box/missing").path == str(own / "missing")
    assert judge(approval, "Edit", "/tmp/box/new").action == "ask"
    assert judge(boxed(project, "accept-edits"), "Edit", "/tmp/box/new").action == "allow"
    (own / "link").symlink_to("/etc/passwd")
    assert judge(approval, "Read", "/tmp/box/link").action == "ask"
    assert judge(Approval(cwd=project), "Read", "/tmp/box/made").action == "ask"


NETWORK_TOOL, FETCH = Fake("Network", "run"), Fake("WebFetch", "run")


def test_hosts_of_commands_in_the_sandbox(project: Path) -> None:
    def host(approval: Approval, name: str) -> Verdict:
        return approval.judge(NETWORK_TOOL, Subject(text=name))

    approval = Approval(cwd=project, allow=["Network(*.good.org)"], deny=["Network(bad.org)"])
    assert host(approval, "a.good.org").action == "allow"
    assert host(approval, "bad.org").action == "deny"
    verdict = host(approval, "other.org")
    assert (verdict.action, verdict.rule) == ("ask", "Network(other.org)")
    assert verdict.reason == "a command wants to reach other.org"
    approval.mode = "bypass"
    verdict = host(approval, "other.org")
    assert verdict.action == "deny"
    assert verdict.reason == "other.org is not in sandbox.network, and bypass asks about nothing"
    assert host(approval, "a.good.org").action == "allow"
    asked = Approval(cwd=project, ask=["Network(x.org)"])
    assert host(asked, "x.org").rule == "Network(x.org)"
    assert "needs approval due to the rule" in host(asked, "x.org").reason


def test_pages_of_the_web(project: Path) -> None:
    approval = Approval(cwd=project, allow=["WebFetch(good.org)"])
    assert approval.judge(FETCH, Subject(text="good.org")).action == "allow"
    for mode in ("ask", "plan"):
        approval.mode = mode  # type: ignore[assignment]
        verdict = approval.judge(FETCH, Subject(text="other.org"))
        assert (verdict.action, verdict.rule) == ("ask", "WebFetch(other.org)")
        assert verdict.reason == "it reaches other.org"


def test_tools_that_were_given_to_the_session(project: Path) -> None:
    approval = Approval(cwd=project, given=["Task"])
    verdict = judge(approval, "Task", "x")
    assert (verdict.action, verdict.reason) == ("allow", "Task was given to the session")
    approval.mode = "plan"
    assert judge(approval, "Task", "x").action == "deny"
    verdict = judge(Approval(cwd=project), "Task", "x")
    assert (verdict.reason, verdict.rule) == ("Task may change something", "Task")
    assert judge(Approval(cwd=project), "Todo").reason == "Todo changes nothing"
    assert judge(Approval(cwd=project, given=["Task"], ask=["Task"]), "Task").action == "ask"


def test_paths_that_deny_rules_hide_from_listings(project: Path) -> None:
    approval = Approval(cwd=project, deny=["Read(secrets/**)", "Edit(README.md)"])
    assert approval.denies_reading(str(project / "secrets" / "key"))
    assert approval.denies_reading(str(project / "src" / "key"))
    assert not approval.denies_reading(str(project / "README.md"))
    assert not approval.denies_reading(str(project / "src" / "app.py"))
    assert not Approval(cwd=project, ask=["Read(secrets/**)"]).denies_reading(
        str(project / "secrets" / "key")
    )


@pytest.mark.parametrize(
    ("tool", "text", "action"),
    [
        ("Bash", "ls | wc", "allow"), ("Bash", "touch x", "deny"), ("Bash", "ls > x", "deny"),
        ("Bash", "mytool", "deny"),
        ("Bash", "./ls", "deny"), ("Read", "README.md", "allow"), ("Edit", "README.md", "deny"),
        ("Task", "x", "deny"),
        ("Todo", "", "allow"), ("Read", "secrets/key", "deny"),
    ],
)  # fmt: skip
def test_a_read_only_view_denies_changes(project: Path, tool: str, text: str, action: str) -> None:
    approval = Approval(
        cwd=project, mode="bypass", allow=["Bash(mytool:*)"], deny=["Read(secrets/**)"]
    )
    verdict = judge(approval.read_only_view(), tool, text)
    assert verdict.action == action
    assert ("this subagent only looks" in verdict.reason) is (action == "deny" and tool != "Read")
    assert judge(approval, "Edit", "README.md").action == "allow"


def test_a_command_that_no_shell_takes(project: Path) -> None:
    verdict = judge(Approval(cwd=project, mode="bypass"), "Bash", "a" * 131_072)
    assert verdict.action == "deny"
    assert "131,071 bytes" in verdict.reason
    assert judge(Approval(cwd=project, mode="bypass"), "Bash", "a" * 131_071).action == "allow"


def test_rules_come_and_go(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Bash(make)"])
    approval.allow_for_session("Bash(mytool:*)")
    approval.allow_for_session("Bash(mytool:*)")
    assert approval.rules()["session"] == ["Bash(mytool:*)"]
    view = approval.read_only_view()
    assert approval.revoke("Bash(make)")
    assert approval.revoke("Bash(mytool:*)")
    assert not approval.revoke("Bash(mytool:*)")
    assert view.rules()["allow"] == view.rules()["session"] == []
    extended = approval.with_rule("Edit")
    assert judge(extended, "Edit", "x").action == "allow"
    assert judge(approval, "Edit", "x").action == "ask"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("touch x", "`touch x` may change something"),
        ("git $x", "the rule Bash(git push:*) may apply to `git $x`"),
        ("ls $x", "`ls $x` may change"),
        ("./ls", "`./ls` may change something"),
        ("cat ../outside/data", "reading ../outside/data: outside the project"),
        ("ls > $y", "known only at run time"),
        ("cat */*/*/x", "matches too many files to check"),
        ("grep -R x src", "it follows links, which may lead anywhere"),
        ("sudo ls", "sudo runs another command"),
        ("echo x > new", "editing new: mode `ask` requires approval for edits"),
        ("git push", "needs approval due to the rule"),
        ("ls --version x", None), ("tar --version", None),
        ("git log --outp x", "the rule Bash(git log:*) does not cover `--outp`"),
        ("git diff f ../x", "reading ../x: outside the project"),
        ("timeout 5 ls", None),
    ],
)  # fmt: skip
def test_the_reason_of_a_verdict(project: Path, command: str, reason: str | None) -> None:
    verdict = judge(
        Approval(
            cwd=project,
            ask=["Bash(git push:*)"],
            allow=["Bash(git log:*)", "Bash(git diff:*)"],
            path="/usr/bin:/bin",
        ),
        "Bash",
        command,
    )
    assert verdict.action == ("ask" if reason else "allow")
    assert (reason or "") in verdict.reason


def test_paths_of_a_rule_may_be_absolute(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Bash(git add:*)", "Bash(pytest:*)"])
    for command in ("git add {0}/src", "cd src && git add deep", "pytest {0}/src/app.py"):
        assert judge(approval, "Bash", command.format(project)).action == "allow"
    for command in ("git add {0}/../x", "cd src && git add ../../x", "pytest {0}2"):
        assert judge(approval, "Bash", command.format(project)).action == "ask"


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("git commit -m x", True), ("git add . && git commit -m x", True),
        ("cd src && git add app.py", True), ("git log | head", True), ("git stash clear", False),
        ("mkdir x && git mv src x", True), ("echo x && git tag v1", True),
        ("make && git commit -m x", False), ("rm -rf .git", False), ("ls", False),
        ("find . -delete; git status", False), ("xargs git add < f", False),
        ('git status; f=.git/HEAD; echo bad > "$f"', False), ("git status > x", False),
        ("GIT_EDITOR='sh x' git commit", False), ("PATH=$PWD/bin:$PATH; git status", False),
        ("git status; [[ -v 'a[$(sh x)]' ]]", False), ("git -c alias.z='!sh x' z", False),
        ("GIT_CONFIG_COUNT=1 git gc", False), ("touch $x/HEAD; git status", False),
        ("git add f; awk 'BEGIN{print 1}'", False), ("git rebase --exec ./x main", False),
        ("git rebase --continue", False), ("git bisect run ./x", False),
    ],
)  # fmt: skip
def test_git_that_runs_alone_may_write_its_repository(
    project: Path, command: str, plain: bool
) -> None:
    approval = Approval(cwd=project, mode="bypass", path="/usr/bin:/bin")
    assert judge(approval, "Bash", command).writes_repository is plain


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git commit -qm x", "allow"), ("git add -A && git commit -am x", "allow"),
        ("git stash", "allow"), ("git stash pop", "allow"), ("git rebase main", "allow"),
        ("git stash clear", "ask"), ("git stash drop", "ask"),
        ("git reflog expire --all --expire=now", "ask"), ("git gc --prune=now", "ask"),
        ("git update-ref -d HEAD", "ask"), ("git branch -D x", "ask"), ("git tag -d x", "ask"),
        ("git filter-branch x", "ask"), ("git prune", "ask"), ("git -c gc.auto=0 gc", "ask"),
        ("git worktree remove x", "ask"), ("git rebase --exec ./x main", "ask"),
    ],
)  # fmt: skip
def test_git_that_discards_history_needs_approval_in_the_sandbox(
    project: Path, command: str, action: str
) -> None:
    assert judge(boxed(project, "sandboxed"), "Bash", command).action == action


def test_a_program_that_is_not_the_systems(project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin" / "ls").write_text("#!/bin/sh\n")
    (project / "bin" / "ls").chmod(0o755)
    approval = Approval(cwd=project, path=f"{project}/bin:/usr/bin:/bin", mode="accept-edits")
    assert (
        "`ls` resolves to a folder that commands can write to"
        in judge(approval, "Bash", "ls").reason
    )
    assert "a folder of the PATH" in judge(approval, "Edit", "bin/tool").reason
    assert judge(approval, "Edit", "src/tool").action == "allow"


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "sandboxed"])
def test_files_that_hooks_run_are_edited_only_after_a_question(
    project: Path, mode: PermissionMode
) -> None:
    script, other = str(project / "src" / "app.py"), str(project / "README.md")
    approval = Approval(mode=mode, cwd=project, allow=["Edit(src/**)", "Edit(README.md)"])
    approval.folders.pinned = [script]
    assert judge(approval, "Edit", script).action == "ask"
    assert judge(approval, "Edit", other).action == "allow"
    assert judge(approval, "Read", script).action == "allow"
    assert judge(approval.in_mode("bypass"), "Edit", script).action == "allow"
    assert judge(approval.with_rule("Edit(src/app.py)"), "Edit", script).action == "allow"
