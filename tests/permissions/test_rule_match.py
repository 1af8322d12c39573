"""Commands that a prefix rule matches: stray words, and options in any order."""

import pytest

from ctxagent.agent.permissions.rules import allows_part, forbids_part, parse_rule
from ctxagent.agent.permissions.shell.command_table import first_operand
from ctxagent.agent.permissions.shell.parser import parse
from ctxagent.agent.permissions.shell.reach import has_options


def allows(rule: str, command: str) -> bool:
    part = parse(command).parts[0]
    return allows_part(parse_rule(f"Bash({rule})"), part)


def forbids(rule: str, command: str) -> str:
    part = parse(command).parts[0]
    return forbids_part(parse_rule(f"Bash({rule})"), part)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git log:*", "git log -p --stat"),
        ("git diff:*", "git diff HEAD"), ("git:*", "git -C src status"), ("git:*", "git log"),
        ("git grep:*", "git grep -n x"), ("git commit:*", 'git commit -m "$x"'),
        ("git push:*", "git push origin main"),
        ("git clone:*", "git clone a"), ("git rebase:*", "git rebase main"),
        ("git archive:*", "git archive HEAD"), ("git format-patch:*", "git format-patch -1"),
        ("git -c a=b log:*", "git -c a=b log -1"), ("git status:*", "git status -s"),
        ("make:*", "make -C src all"), ("make:*", "make -j4 test"), ("make:*", "make CC=gcc"),
        ("make:*", "make -f Makefile"), ("make:*", "make --directory=src"), ("make:*", "make -k"),
        ("make:*", "make X=src/a"), ("git commit:*", 'git commit -m "$(cat x)"'),
        ("git commit:*", "git commit -F msg"), ("git stash:*", "git stash pop"),
        ("git branch:*", "git branch -d x"), ("git branch -D:*", "git branch -D x"),
        ("git tag:*", "git tag -a v1 -m x"),
        ("pytest:*", "pytest -p no:cacheprovider"), ("pytest:*", "pytest --cov=src"),
        ("pytest:*", "pytest --cov-report=term-missing"), ("python3 -m pytest:*",
        "python3 -m pytest"),
        ("python:*", "python x.py --anything"), ("mytool:*", "mytool --anything=/etc ../x"),
        ("npm test:*", "npm test -- --watch=false -t x"), ("cargo test:*",
        "cargo test -- --nocapture"),
        ("cat:*", "cat /etc/hosts"), ("find:*", "find . -mtime -1"), ("head:*", "head -n -5 f"),
        ("git push:*", "git push origin a:b"), ("git fetch:*", "git fetch origin main"),
        ("sed:*", "sed -n 1p /etc/hosts"), ("go test:*", "go test -run X ./..."),
        ("git push:*", "git push -u origin HEAD:x"), ("git clone:*", "git clone https://a/b"),
        ("gmake:*", "gmake all"), ("make:*", "make -Csrc"),
        ("pytest:*", "pytest -q tests"), ("pytest:*", "pytest -k /etc"),
        ("pytest:*", "pytest -m ~x"),
        ("pytest:*", "pytest tests/a.py::test_b"), ("pytest:*", 'pytest -k "a$x"'),
        ("pytest:*", "pytest --tb=short"), ("pytest:*", "pytest -n 4"),
        ("pytest:*", "pytest tests/*"),
        ("npm test:*", "npm test -- a"), ("cargo test:*", "cargo test a"),
        ("go test:*", "go test ./a"),
        ("python -m pytest:*", "python -m pytest tests"), ("uv run pytest:*", "uv run pytest a"),
        ("find:*", "find . -name x"), ("sort:*", "sort -u a"), ("rg:*", "rg x src"),
        ("black:*", "black /etc"), ("black:*", "black $x"), ("wc:*", "wc -l a"),
    ],
)  # fmt: skip
def test_a_kind_of_command_is_allowed(rule: str, command: str) -> None:
    assert allows(rule, command)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git log:*", "git log --output=x"), ("git log:*", "git log --outp x"),
        ("git diff:*", "git diff --ext-diff"), ("git diff:*", "git diff --no-index a b"),
        ("git diff:*", "git diff --textconv"), ("git show:*", "git show --help"),
        ("git grep:*", "git grep -O x"), ("git grep:*", "git grep --open-files-in-pager=x a"),
        ("git rebase:*", "git rebase -x x"), ("git rebase:*", "git rebase --exec x"),
        ("git clone:*", "git clone -u x a"), ("git clone:*", "git clone -c a=b c"),
        ("git clone:*", "git clone --upload-pack=x a"),
        ("git clone:*", "git clone --template=x a"),
        ("git fetch:*", "git fetch --upload-pack=x"), ("git pull:*", "git pull --upload-pack x"),
        ("git push:*", "git push --receive-pack=x"), ("git push:*", "git push --exec=x"),
        ("git archive:*", "git archive -o x HEAD"),
        ("git archive:*", "git archive --remote=x HEAD"),
        ("git format-patch:*", "git format-patch -o x"),
        ("git cat-file:*", "git cat-file --filters a"),
        ("git format-patch:*", "git format-patch --output-directory x"),
        ("git diff:*", "git diff $x"),
        ("git status:*", "git status --help"), ("git:*", "git -C ../x status"),
        ("git:*", "git -C /x status"),
        ("git:*", "git -c a=b log"), ("git:*", "git --git-dir=x log"),
        ("git:*", "git --work-tree x log"),
        ("git:*", "git --exec-path=x log"), ("git:*", "git unknown"),
        ("git:*", "git --config-env=a=b log"),
        ("git:*", "git config a b"), ("git diff:*", "git diff *"), ("git diff:*", "git diff -*"),
        ("make:*", "make -C /x"), ("make:*", "make -f ../x"), ("make:*", "make --eval=x"),
        ("make:*", "make -E x"), ("make:*", "make SHELL=x"), ("make:*", "make .SHELLFLAGS=x"),
        ("make:*", "make MAKEFLAGS=x"), ("make:*", "make GNUMAKEFLAGS=x"),
        ("make:*", "make X=/etc"),
        ("make:*", "make X!=ls"), ("make:*", "make -C../x"), ("make:*", "make --file=/x"),
        ("make:*", "make -kf /x"), ("make:*", "make --include-dir ../x"), ("make:*", "make -I /x"),
        ("make:*", "make MAKE:=x"), ("pytest:*", "pytest /etc"), ("pytest:*", "pytest ~/x"),
        ("pytest:*", "pytest ../x"), ("pytest:*", "pytest -o x=y"),
        ("pytest:*", "pytest --override-ini x=y"),
        ("pytest:*", "pytest --override-ini=x=y"), ("pytest:*", "pytest -c /x"),
        ("pytest:*", "pytest -c/x"),
        ("pytest:*", "pytest -p/x"), ("pytest:*", "pytest --rootdir=/x"),
        ("pytest:*", "pytest a/../../x"),
        ("pytest:*", "pytest $x"), ("pytest:*", 'pytest "$x"'), ("pytest:*", "pytest -k $x"),
        ("pytest:*", "pytest *"), ("pytest:*", "pytest @/x"),
        ("pytest:*", "pytest /x/a.py::test_b"),
        ("npm test:*", "npm test /x"), ("cargo test:*", "cargo test ../x"),
        ("npx jest:*", "npx jest /x"),
        ("uv run pytest:*", "uv run pytest /x"), ("bundle exec rspec:*", "bundle exec rspec /x"),
        ("python -m unittest:*", "python -m unittest /x"),
        ("vendor/bin/phpunit:*", "vendor/bin/phpunit /x"),
        ("find:*", "find . -delete"), ("find:*", "find . -exec ls {} +"), ("find:*", "find . $x"),
        ("sort:*", "sort -o a b"), ("sort:*", "sort --output=a b"), ("rg:*", "rg --pre x y"),
        ("git:*", "git ls-remote --exe='touch M;git-upload-pack' ."),
        ("git ls-remote:*", "git ls-remote --upload-pack=x ."), ("git:*", "git diff f ../x"),
        ("git:*", "git blame --contents ../x f"), ("git:*", "git archive --add-file=../x HEAD"),
        ("git:*", "git format-patch --signature-file=../x -1"), ("git:*", "git commit -F../x"),
        ("git:*", "git commit -F ../x"), ("git:*", "git init ../x"), ("git:*",
        "git worktree add ../x"),
        ("git:*", "git clone . ../x"), ("git:*", "git init --separate-git-dir=../x y"),
        ("git:*", "git clone ext::x"), ("git fetch:*", "git fetch file:///x"),
        ("git:*", "git stash clear"), ("git:*", "git stash drop"), ("git branch:*",
        "git branch -D x"), ("git tag:*", "git tag -d x"), ("git:*", "git update-ref -d HEAD"),
        ("git:*", "git reflog expire --all"), ("git:*", "git gc --prune=now"),
        ("git:*", "git remote set-url origin x"), ("git:*", "git commit -S"),
        ("git log:*", "git log --format=%G?"), ("git:*", "git commit --am"),
        ("pytest:*", "pytest --basetemp=src"), ("pytest:*", "pytest --log-file=.git/config"),
        ("pytest:*", "pytest --junitxml=.git/hooks/x"), ("pytest:*", "pytest --junit-xml=x"),
        ("pytest:*", "pytest --cov-report=html:x"), ("pytest:*", "pytest --cov=../x"),
        ("pytest:*", "pytest --rootdir x"), ("pytest:*", "pytest -p x"), ("pytest:*", "pytest @x"),
        ("pytest:*", "pytest --maxf 1"), ("python3 -m pytest:*", "python3 -m pytest --basetemp=a"),
        ("go test:*", "go test -exec ./x"), ("go test:*", "go test -o x"),
        ("cargo test:*", "cargo test --config x"), ("cargo test:*", "cargo test -- --logfile x"),
        ("npm test:*", "npm test -- --config x"), ("deno test:*", "deno test https://x/y.ts"),
        ("git:*", "git log --expand-tabs --output=x"), ("git:*", "git log -n --output=x"),
        ("git:*", "git archive --prefix --output=x HEAD"), ("git:*", "git log --format --output=x"),
        ("git:*", "git format-patch -1 --from --output-directory=x"),
        ("git:*", "git branch --sort --list x"), ("git:*", "git tag -s v1"),
        ("git:*", "git tag -u x v1"),
        ("git fetch:*", "git fetch --prune . '+refs/none/*:refs/*'"),
        ("git fetch:*", "git fetch origin a:b"),
        ("git push:*", "git push --delete . topic"), ("git fetch:*", "git fetch ../x"),
        ("git rebase:*", "git rebase --continue"), ("npx jest:*", "npx jest -t --config=x"),
        ("npm test:*", "npm test -- -t --globalSetup=x"), ("make:*", "make -t"),
        ("sed:*", "sed '1e x' f"), ("sed:*", "sed -n 'w x' f"), ("awk:*", "awk 'BEGIN{system(1)}'"),
        ("test:*", "test -v 'a[$(x)]'"), ("printf:*", "printf %n x"), ("ps:*", "ps eww"),
        ("tree:*", "tree -o x"), ("wc:*", "wc --files0-from=x"), ("black:*", "blackx"),
        ("black:*", "ls"),
    ],
)  # fmt: skip
def test_words_that_a_prefix_rule_does_not_cover(rule: str, command: str) -> None:
    assert not allows(rule, command)


def test_a_pattern_allows_the_stray_words_that_it_spells() -> None:
    assert allows("git log --output=x *", "git log --output=x -1")
    assert not allows("git log *", "git log --output=x -1")
    assert not allows("git log --output=x *", "git log --output=x --ext-diff")


def test_words_that_the_shell_fills_in() -> None:
    """An option's value may be known only to the shell if it remains one word."""
    for word in ('--since="$x"', '--grep "$x"', "--since='a b'"):
        assert allows("git log:*", f"git log {word}"), word
    for word in (
        "$x", '"$x"', "a$x", '-"$x"', "`ls`", "a{b,c}", '"$x"a$y', "'-'$x", 'a"$x"', "-- $x",
        "--since=$x", "--since $x", "--format=$x", "--grep {a,b}",
    ):  # fmt: skip
        assert not allows("git log:*", f"git log {word}"), word
    assert allows("mytool:*", "mytool $x")


@pytest.mark.parametrize(
    ("rule", "command", "answer"),
    [
        ("rm -rf:*", "rm -rf x", "yes"), ("rm -rf:*", "rm -r -f x", "yes"),
        ("rm -rf:*", "rm x -fr", "yes"),
        ("rm -rf:*", "rm -Rf x", "yes"), ("rm -rf:*", "rm --recursive --force x", "yes"),
        ("rm -rf:*", "rm --rec --forc x", "yes"), ("rm -rf:*", "/bin/rm -rf x", "yes"),
        ("rm -rf:*", "rm -r x", "no"), ("rm -rf:*", "rm x", "no"), ("rm -rf:*", "rm -- -rf", "no"),
        ("rm -rf:*", "rm -r $x", "maybe"), ("rm -rf:*", "rm -r *", "maybe"),
        ("rm -rf:*", "$x -rf", "maybe"),
        ("rm -rf:*", "r? -rf x", "maybe"), ("rm --force:*", "rm -f x", "yes"),
        ("rm --force:*", "rm --fo x", "yes"),
        ("rm --force:*", "rm --f x", "yes"), ("rm --force:*", "rm -- --force", "no"),
        ("rm --force:*", "rm -i x", "no"),
        ("git push --force:*", "git push origin -f", "yes"),
        ("git push --force:*", "git push --force-with-lease", "no"),
        ("git push --force:*", "git push origin", "no"),
        ("git push -f:*", "git -C x push -f", "yes"),
        ("git push:*", "git $x", "maybe"), ("git push:*", "git commit push", "no"),
        ("git push:*", "git", "no"),
        ("git push:*", "git $x push", "maybe"), ("npm publish:*", "npm --silent publish", "yes"),
        ("kubectl delete:*", "kubectl -n x delete y", "no"), ("a --x=1:*", "a --x=1", "yes"),
        ("a --x=1:*", "a --x=2", "no"), ("a --x:*", "a --x=2", "yes"),
        ("a --xy:*", "a --x", "yes"),
        ("a -long:*", "a -long", "yes"), ("a -x1:*", "a -x1", "yes"), ("a -x1:*", "a -x", "no"),
        ("ls:*", "lsx", "no"), ("ls:*", "ls", "yes"),
    ],
)  # fmt: skip
def test_options_in_any_order(rule: str, command: str, answer: str) -> None:
    assert forbids(rule, command) == answer


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["git", "log"], 1), (["git", "-C", "x", "log"], 3), (["git", "--no-pager", "log"], 2),
        (["git", "-c", "a=b", "--git-dir", "x", "log"], 5), (["git"], 1), (["git", "-P"], 2),
        (["npm", "-C", "x", "test"], 2), (["ls"], 1), (["git", "--namespace", "x", "log"], 3),
    ],
)  # fmt: skip
def test_the_first_operand(words: list[str], place: int) -> None:
    assert first_operand(words) == place


def test_options_are_recognised() -> None:
    assert has_options(["a", "-x"])
    assert has_options(["--long"])
    assert not has_options(["a", "-", "--", "x-y"])
