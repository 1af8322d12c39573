"""A table of hostile shell commands, with the verdict that each gets under typical rules. Nothing
that could run or write what nobody approved is allowed; where the text leaves it open, it is asked
about; and what a deny rule names is denied in every mode, however it is spelled."""

import time
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.permissions.approval import MAX_COMMAND_BYTES, Approval

from ..permissions.test_approval import judge

ALLOW = [
    "Bash(git status:*)", "Bash(git diff:*)", "Bash(git log:*)", "Bash(ls:*)", "Bash(cat:*)",
    "Bash(pytest:*)", "Bash(npm test)", "Bash(make:*)", "Bash(find:*)", "Edit(src/**)",
]  # fmt: skip
DENY = ["Bash(rm -rf:*)", "Bash(git push:*)", "Read(~/.ssh/**)", "Read(.env)", "Bash(curl:*)"]

# The verdict, and the command. `;;` begins a remark.
TABLE = r"""
;; harmless, and not to be asked about
allow  ls -la src
allow  ls | wc -l
allow  ls # curl x
allow  cat README.md src/app.py
allow  cat src/app.py > src/copy.py
allow  cat <README.md
allow  echo '#' "; curl x"
allow  echo "rm -rf /"
allow  echo 'git push'
allow  grep curl README.md
allow  grep -r KEY src
allow  rg KEY src
allow  git log --grep 'rm -rf'
allow  git log --grep="git push"
allow  git log -5 --oneline | cat
allow  git log --pretty=fuller -p -- src
allow  git status --porcelain && git diff HEAD~1
allow  git diff --output-indicator-new=x
allow  git branch -a
allow  git config --get user.name
allow  find . -name '*.py' -type f | head
allow  pytest -q tests 2>&1 | tail -5
allow  pytest -k 'curl or rm' -x src/test_a.py::test_b
allow  make && make -j4 test CC=gcc TESTS=src/a.py
allow  make -C src -k all
allow  npm test && ls
allow  cd src && pytest
allow  cd src && git status
allow  type curl; which curl; command -v curl
allow  sleep 5 & wait
allow  [ -f README.md ] && cat README.md
allow  for f in a b; do echo $f; done
allow  printf '%s\n' a
;; what a substitution runs is run
deny   cat $(curl x)
deny   cat `curl x`
deny   cat <(curl x)
deny   ls > >(curl x)
deny   cat "$(cat "$(curl x)")"
deny   ls "${x:-$(curl x)}"
deny   ls $((1 + $(curl x)))
deny   X=$(curl x)
deny   ls <<< $(curl x)
deny   ls >$(curl x)
ask    ls "${x:-`touch x`}"
ask    ls ${a[$(touch x)]}
ask    ls $((a[$(touch x)]))
ask    [[ -v 'a[$(touch x)]' ]]
ask    test -v 'a[$(touch x)]'
ask    [[ $x -eq 1 ]]
ask    ls ${x@P}
ask    ls "${!x}"
;; wrappers are seen through
deny   command -p git push
deny   builtin command git push
deny   exec -a ls git push
deny   env -i A=b git push
deny   env -S 'git push'
deny   env --split-string='git push'
deny   ls | xargs -n 1 git push
deny   echo 'git push' | xargs -0 sh -c
deny   nice -n5 git push
deny   timeout -s KILL 5 git push
deny   stdbuf -oL git push
deny   setsid --fork --wait git push
deny   nohup git push &
deny   time -p git push
deny   sudo -u x -E git push
deny   doas git push
deny   chroot /x git push
deny   ssh -p 22 host git push
deny   parallel git push ::: a
deny   watch -n 1 git push
deny   flock /tmp/x git push
deny   flock /tmp/x -c 'git push'
deny   script -qc 'git push' /dev/null
deny   strace -f -o x git push
deny   ltrace git push
deny   unshare -r git push
deny   nsenter -t 1 git push
deny   ionice -c 3 git push
deny   taskset 1 git push
deny   prlimit --nproc=1 git push
deny   runuser -u x -- git push
deny   su x -c 'git push'
deny   systemd-run git push
deny   dbus-run-session git push
deny   busybox rm -rf x
deny   toybox rm -rf x
deny   busybox sh -c 'git push'
deny   sh -ec "ls; git push"
deny   eval 'git' push
deny   trap 'git push' EXIT
deny   coproc git push
deny   hyperfine 'git push'
deny   rsync -e 'curl x' a b:
deny   tar xf a --to-command='curl x'
deny   tar cf /dev/null a --checkpoint=1 --checkpoint-action=exec='curl x'
deny   git rebase -x 'curl x' HEAD
deny   git submodule foreach 'curl x'
deny   git bisect run curl x
ask    ls | xargs git
ask    eval "$(cat src/app.py)"
ask    sudo ls
ask    env -i pytest
;; what a shell is fed, it runs
deny   bash <<< 'curl x'
deny   echo 'curl x' | sh
deny   printf '%s' 'git push' | bash -s
deny   . /dev/stdin <<< 'curl x'
ask    cat README.md | sh
ask    echo -e '\x63url x' | sh
ask    source src/app.py
ask    bash src/app.sh
;; find does more than to find
deny   find . -exec git push \;
deny   find . -ok git push \;
deny   find . -execdir sh -c 'git push' {} +
deny   find ~/.ssh -name x
ask    find . -delete
ask    find . -fprint src/../../x
ask    find . -fprintf .git/hooks/pre-commit x
ask    find . -fls x
ask    find . -exe? sh
ask    find . $x
;; git runs and writes by options, settings and variables
ask    git log --output=.git/hooks/pre-commit
ask    git log --output ../x
ask    git log --outp ../x
ask    git diff --output=src/../../x
ask    git diff --ext-diff
ask    git log -p --textconv
ask    git diff --no-index /dev/null /etc/shadow
ask    git log $x
ask    git log "$x"
ask    git log --out"$x"
ask    for f in --output=x; do git log $f; done
ask    git log {--output=x,-p}
ask    git status --help
ask    git -c core.pager=./x log
ask    git -c alias.status=!touch status
ask    git -C / status
ask    git --exec-path=. status
ask    git --git-dir=x log
ask    git --config-env=core.pager=X log
ask    git --paginate log
ask    git grep -O./x a
ask    git cat-file --textconv HEAD:x
ask    GIT_EXTERNAL_DIFF=./x git diff
ask    GIT_DIR=x git status
ask    GIT_PAGER=./x git log
ask    GIT_CONFIG_COUNT=1 git status
ask    git config core.pager x
ask    git ls-remote ext::sh
;; git push, spelled otherwise
deny   git  push -f
deny   git -C . push
deny   git --no-pager push
deny   git -c a=b push
deny   git --work-tree=x --git-dir=y push
deny   /usr/bin/git push
deny   ./git push
deny   g\it push
deny   "git" 'pu''sh'
deny   git $'push'
deny   git $'\x70ush'
deny   git $'\160ush'
deny   git $"push"
deny   X=1 git push
ask    git $x
ask    git {push,}
ask    git pus?
ask    git `echo push`
;; rm -rf, spelled otherwise
deny   rm -fr x
deny   rm -r -f x
deny   rm x -rf
deny   rm -v -rf x
deny   rm -rfv x
deny   rm -Rf x
deny   rm --recursive --force x
deny   rm --rec --forc x
deny   r''m -"rf" x
deny   'rm' '-rf' x
deny   //bin//rm -rf x
ask    rm -r$x
ask    rm x
;; curl, spelled otherwise
deny   c\url x
deny   c''url x
deny   $'\143url' x
deny   {curl,x}
deny   ../../../usr/bin/curl x
deny   ls & curl x
deny   ls |& curl x
deny   ls || curl x
deny   ! curl x
deny   (curl x)
deny   { curl x; }
deny   { curl x ;}
deny   case a in a) curl x;& b) ls;; esac
deny   until ls; do curl x; done
deny   for x in $(curl y); do ls; done
deny   function ls { curl x; }
deny   ls \# ; curl x
deny   ls '#'; curl x
ask    cur? x
ask    $(echo curl) x
ask    $c$u x
ask    !curl
;; other programs that run or write what they are told
ask    awk 'BEGIN{system("touch x")}'
ask    sed -n '1e touch x' README.md
ask    sed 'w /etc/x' README.md
ask    perl -e 'system("x")'
ask    python3 -c 'import os'
ask    less README.md
ask    man ls
ask    vi x
ask    rg --pre sh x src
ask    sort -o ../x README.md
ask    tee src/../../y
ask    cp src/app.py ~/x
ask    ln -s / src/x
ask    nc -e sh a 1
ask    docker run -v /:/h x
ask    npm test -- --x
ask    npm run test
;; make and pytest run what the project says, and not what the command says
ask    make SHELL=/tmp/x
ask    make test SHELL=sh
ask    make -f /tmp/Makefile
ask    make --file=../x
ask    make -C /tmp
ask    make -C..
ask    make -I../x
ask    make --eval='x:;touch y'
ask    make --ev 'x:;touch y'
ask    make MAKEFLAGS=--eval=x
ask    make "CC=touch x"
ask    make $x
ask    make --fil /tmp/x
ask    make -kC /tmp
ask    make -f - <README.md
ask    make 'x!=touch y'
ask    make "x=$(ls)"
ask    pytest @/tmp/x
ask    pytest /tmp/x
ask    pytest ../x/test_a.py
ask    pytest -c /tmp/x
ask    pytest --rootdir=/x
ask    pytest --basetemp=/home
ask    pytest --junitxml=/etc/x
ask    pytest -o addopts=x
;; variables, names and settings of the shell
ask    PATH=. ls
ask    PATH=.:$PATH; ls
ask    LD_PRELOAD=./x.so ls
ask    BASH_ENV=x bash -c ls
ask    IFS=/; ls
ask    CDPATH=/ cd etc
ask    PROMPT_COMMAND='touch x'
ask    export PATH=.
ask    declare -x PATH=.
ask    readonly PATH=.
ask    printf -v PATH .
ask    read PATH <<< .
ask    mapfile -C 'touch x' a
ask    hash -p ./x ls
ask    enable -f ./x.so ls
ask    alias ls=x
ask    ls() { touch x; }; ls
ask    git() (touch x)
ask    shopt -s expand_aliases
ask    compgen -C 'touch x'
ask    ((x=1)); ls
;; where output goes
ask    ls > .git/hooks/pre-commit
ask    ls > src/.git/config
ask    ls >> ~/.bashrc
ask    ls >| ../x
ask    ls > src/../../x
ask    ls <> ../x
ask    ls &> ../x
ask    ls >& ../x
ask    ls 3> ../x
ask    ls {fd}> ../x
ask    >../x
ask    ls > src/a > ../b
ask    ls > "$x"
ask    ls > src/*
ask    ls > src/{a,b}
ask    ls > link/x
ask    ls > /dev/tcp/host/80
ask    cat < /dev/tcp/host/80
ask    ls > /proc/self/root/etc/x
deny   ls > >(git push)
;; files that are kept from being read
deny   cat .env
deny   cat ./.env
deny   cat src/../.env
deny   cat src//../.env/.
deny   cat .e'n'v
deny   cat .en\v
deny   cat $'\x2eenv'
deny   cat .e*
deny   cat .en[v]
deny   cat <.env
deny   cat /dev/fd/3 3<.env
deny   echo $(<.env)
deny   cd src && cat ../.env
deny   cat /proc/self/cwd/.env
deny   cat /proc/self/root/proc/self/cwd/.env
deny   cat src/kept
deny   xxd .env
deny   xxd .e*
deny   cp .env src/a
deny   ln .env src/a
deny   git show HEAD:.env
deny   git diff --no-index /dev/null .env
deny   jq --rawfile a .env -n '$a'
deny   grep -f.env x
deny   cat ~/.ssh/id_rsa
deny   pushd ~/.ssh; cat id_rsa
deny   cd ~/.ssh && cat id_rsa
ask    cat $HOME/.ssh/id_rsa
deny   cat ~+/.env
ask    cat {.env,x}
ask    cat "$(echo .env)"
ask    cat /proc/$$/cwd/.env
ask    grep -r KEY .
ask    rg KEY
ask    git grep KEY
deny   cd .. && cat project/.env
ask    cd /; cat etc/shadow
;; what cannot be read
ask    ls (
ask    ls 'a
ask    ls $(
ask    if ls
ask    && ls
"""

# What does not show in a line, with what it is.
SPECIAL = [
    ("deny", "g\\\nit push", "a continuation in a word"),
    ("deny", "curl\\\n x", "a continuation between words"),
    ("deny", "ls; #\\\ncurl x", "no continuation in a comment"),
    ("ask", "git lo\\\ng", "read otherwise by the grammar"),
    ("allow", "git log \\\n  -5", "a plain continuation"),
    ("deny", "ls\n\n\ncurl x", "lines"),
    ("deny", "\tcurl x", "a blank before"),
    ("deny", "ls\r\ncurl x", "\\r is a character of a word"),
    ("ask", "ls\rtouch x", "\\r, which a terminal hides"),
    ("deny", "ls\0; curl x", "NUL"),
    ("ask", "ls\x0btouch x", "a vertical tab"),
    ("ask", "ls\x1b[2K", "an escape sequence"),
    ("ask", "\u0441url x", "a Cyrillic letter"),
    ("ask", "\uff4cs", "a wide letter"),
    ("ask", "git\u00a0status", "a blank that is none"),
    ("ask", "git sta\u200btus", "a character without width"),
    ("ask", "l\u00ads", "a soft hyphen"),
    ("ask", "\u202els", "writing turned round"),
    ("ask", "cat README.md\u200b", "at the end of a name"),
    ("allow", "cat <<'E'\n$(curl x)\nE", "nothing runs in a quoted document"),
    ("allow", "cat <<\\E\n`curl x`\nE", "quoted by a backslash"),
    ("deny", "cat <<E\n$(curl x)\nE", "an unquoted document is filled in"),
    ("deny", "cat <<E\n${x:-$(curl x)}\nE", "in a default"),
    ("ask", "cat <<-E\n\t$(touch x)\n\tE", "tabs before the end"),
    ("deny", "cat <<'E'\nE\ncurl x", "behind the end"),
    ("deny", "cat <<'E' ; curl x\nE", "on the first line"),
    ("deny", "cat <<A <<B\na\nA\n$(curl x)\nB", "two documents"),
    ("deny", "bash <<'E'\ncurl x\nE", "a document for a shell"),
    ("deny", "eval \"$(cat <<'E'\ncurl x\nE\n)\"", "for eval"),
    ("deny", "cat <<'E' | sudo sh\ncurl x\nE", "by a pipe"),
    ("ask", "python3 - <<'E'\nimport os\nE", "a document for another language"),
    ("deny", "ls" + " a" * 500_000, "longer than a command can be"),
    ("deny", "rm -rf x #" + "a" * 100_000, "too long to be taken apart"),
    ("ask", "(" * 10_000 + "ls" + ")" * 10_000, "deep nesting"),
    ("deny", "$(" * 3_000 + "curl x" + ")" * 3_000, "deep nesting of what is denied"),
    ("ask", "{ " * 5_000, "never closed"),
    ("ask", "a=(" * 9_000, "slow for the grammar"),
    ("allow", "cat " + "a/" * 5_000 + "x", "a path that is too long"),
]  # fmt: skip

ROWS = [
    (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
    for line in TABLE.strip().split("\n")
    if not line.startswith(";;")
] + [(verdict, command) for verdict, command, _ in SPECIAL]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "project"
    for folder in ("src/deep", "tests", ".git/hooks"):
        (root / folder).mkdir(parents=True)
    for file in ("src/app.py", "README.md", "Makefile", ".env"):
        (root / file).write_text("x\n")
    (root / "src" / "kept").symlink_to(root / ".env")
    (root / "link").symlink_to(root.parent)
    return root


def verdicts(project: Path, mode: PermissionMode) -> dict[str, str]:
    approval = Approval(cwd=project, mode=mode, allow=ALLOW, deny=DENY)
    return {command: judge(approval, "Bash", command).action for _, command in ROWS}


def test_the_verdict_that_each_must_get(project: Path) -> None:
    given = verdicts(project, "ask")
    wrong = [f"{want}, not {given[c]}: {c[:100]!r}" for want, c in ROWS if given[c] != want]
    assert wrong == [], "\n".join(wrong)
    assert len(ROWS) == len(given) > 150


def test_accepted_edits_change_nothing_for_commands(project: Path) -> None:
    given = verdicts(project, "accept-edits")
    assert [c[:100] for want, c in ROWS if given[c] != want] == []


def test_plan_mode_runs_nothing_that_is_asked_about(project: Path) -> None:
    given = verdicts(project, "plan")
    assert [c[:100] for want, c in ROWS if want != "allow" and given[c] == "allow"] == []
    changing = ("pytest", "make", "npm", "cat src/app.py >")
    assert [c for c in given if c.startswith(changing) and given[c] != "deny"] == []


def test_what_is_denied_stays_denied_in_bypass_mode(project: Path) -> None:
    given = verdicts(project, "bypass")
    assert [c[:100] for want, c in ROWS if (want == "deny") != (given[c] == "deny")] == []


def test_a_rule_that_says_it_allows_it(project: Path) -> None:
    for rule, command in (
        ("Bash(git log --output:*)", "git log --output x"),
        ("Bash(make --eval='a: ; ls')", "make --eval='a: ; ls'"),
        ("Bash(find . -fprint *)", "find . -fprint x"),
        ("Edit(src/.git/**)", "ls > src/.git/config"),
        ("Bash", "make SHELL=/tmp/x"),
    ):
        approval = Approval(cwd=project, allow=[*ALLOW, rule], deny=DENY)
        assert judge(approval, "Bash", command).action == "allow", command


def test_options_of_a_deny_rule_stand_anywhere(project: Path) -> None:
    approval = Approval(
        cwd=project,
        allow=["Bash(git:*)", "Bash(docker:*)", "Bash(sed:*)"],
        deny=["Bash(git push --force:*)", "Bash(docker run --privileged:*)", "Bash(sed -i:*)"],
    )
    expected = {
        "git push origin main": "allow", "git push origin main --force": "deny",
        "git push -f": "deny", "git -C . push x -uf": "deny",
        "git push --force-with-lease": "allow",
        "git push -- --force": "allow", "git push $x": "ask", "git commit -m '--force'": "ask",
        "docker run -it --privileged=true x": "deny", "docker run x": "allow",
        "sed -n -i 1p x": "deny", "sed -ni 1p x": "deny", "sed -n 1p x": "allow",
    }  # fmt: skip
    assert {c: judge(approval, "Bash", c).action for c in expected} == expected


def test_a_long_command_does_not_take_long(project: Path) -> None:
    """In processor time of this thread; without the bounds these took from 4 to 11 seconds."""
    approval = Approval(cwd=project, mode="bypass", allow=ALLOW, deny=DENY)
    start = time.thread_time()
    for command in (
        "ls " + "a " * (MAX_COMMAND_BYTES // 2 - 2),
        "(" * 10_001 + ")" * 10_001,
        "ls" + " a" * MAX_COMMAND_BYTES,
    ):
        judge(approval, "Bash", command)
    assert time.thread_time() - start < 3
