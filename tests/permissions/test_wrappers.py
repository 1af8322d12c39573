"""Commands that start others: the position of the inner command, or the script for a shell."""

import shlex

import pytest

from ctxagent.agent.permissions.shell.wrappers import find_inner_commands, is_shell


def started(text: str) -> list[str]:
    """The commands that a command starts, each as one text."""
    words = shlex.split(text)
    return [" ".join(words[start:stop]) for start, stop in find_inner_commands(words).spans]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("timeout 5 ls", "ls"), ("timeout -k 3 -s KILL 5 ls -l", "ls -l"), ("timeout 5s ls", "ls"),
        ("timeout --signal=KILL 5 ls", "ls"), ("timeout --preserve-status 5 ls", "ls"),
        ("timeout --kill-after 3 5 ls", "ls"), ("nice ls", "ls"), ("nice -n 5 ls", "ls"),
        ("nice -5 ls", "ls"), ("nice --adjustment 5 ls", "ls"), ("nohup ls", "ls"),
        ("time ls", "ls"), ("time -p ls", "ls"), ("command ls", "ls"), ("env ls", "ls"),
        ("env CI=1 LC_ALL=C ls", "ls"), ("env TZ=UTC NO_COLOR=1 ls", "ls"), ("time CI=1 ls", "ls"),
        ("env RUST_BACKTRACE=1 PYTHONUNBUFFERED=1 ls", "ls"), ("/usr/bin/nice ls", "ls"),
    ],
)  # fmt: skip
def test_harmless_wrappers(text: str, inner: str) -> None:
    assert started(text) == [inner]
    found = find_inner_commands(shlex.split(text))
    assert found.transparent
    assert not found.doubt


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("sudo ls", "ls"), ("sudo -u root -g wheel ls", "ls"), ("sudo A=1 ls", "ls"),
        ("sudo --user root --chdir / ls", "ls"), ("doas -u root ls", "ls"), ("exec -a x ls", "ls"),
        ("env PATH=. ls", "ls"), ("env -u A ls", "ls"), ("env -C / ls", "ls"),
        ("env --unset A ls", "ls"), ("env -i ls", "ls"), ("timeout -v 5 ls", "ls"),
        ("time -o f ls", "ls"), ("time --output f ls", "ls"), ("stdbuf -o L ls", "ls"),
        ("ionice -c 3 ls", "ls"), ("flock -w 3 lock ls", "ls"), ("strace -o f -e x ls", "ls"),
        ("chrt 5 ls", "ls"), ("taskset 1 ls", "ls"), ("chroot / ls", "ls"), ("setsid ls", "ls"),
        ("busybox ls", "ls"), ("builtin ls", "ls"), ("parallel -j 4 ls", "ls"),
        ("nsenter -t 1 ls", "ls"), ("prlimit --pid 1 ls", "ls"), ("setpriv --reuid 1 ls", "ls"),
        ("systemd-run -p x --unit u ls", "ls"), ("numactl -N 1 ls", "ls"), ("xargs -a f ls", "ls"),
        ("proxychains -f c ls", "ls"), ("xvfb-run -s x ls", "ls"), ("caffeinate -t 3 ls", "ls"),
        ("ltrace -e x ls", "ls"), ("runuser -u a ls", "ls"), ("coproc ls", "ls"),
        ("coproc x { ls; }", "ls; }"), ("gosu root ls", "ls"), ("valgrind ls", "ls"),
        ("nice $x ls", "$x ls"),
    ],
)  # fmt: skip
def test_wrappers_that_only_a_person_can_judge(text: str, inner: str) -> None:
    found = find_inner_commands(text.split())
    assert started(text) == [inner]
    assert not found.transparent or text.startswith("nice")
    assert found.doubt or found.transparent


@pytest.mark.parametrize("text", ["command -v ls", "command -V ls", "command -pv ls"])
def test_judging_a_command_starts_no_process(text: str) -> None:
    found = find_inner_commands(text.split())
    assert (found.spans, found.doubt) == ((), "")


@pytest.mark.parametrize("text", ["nice", "timeout 5", "env", "env CI=1", "nohup"])
def test_a_wrapper_without_a_command_is_not_transparent(text: str) -> None:
    found = find_inner_commands(text.split())
    assert found.spans == ()
    assert not found.transparent


@pytest.mark.parametrize(
    ("text", "passes_names"),
    [
        ("xargs wc", True), ("xargs -0 wc", True), ("xargs -r -n 5 wc", True),
        ("xargs -P 4 -L 1 wc", True), ("xargs -n5 wc", True), ("xargs --null wc", True),
        ("xargs --max-args=3 --max-procs=2 --no-run-if-empty wc", True),
        ("xargs -d \\n wc", True), ("xargs -d , wc", False), ("xargs -I {} wc {}", False),
        ("xargs -a f wc", False), ("xargs -E x wc", False), ("xargs", False), ("xargs -0", False),
        ("find . -exec wc {} +", True), ("find . -exec wc {} ;", True),
        ("find . -execdir wc {} +", False), ("find . -ok wc {} ;", False),
        ("find . -exec wc {} + -delete", False), ("find . -fprint x -exec wc {} +", False),
        ("find . -exec git log {} +", False), ("sudo ls", False),
    ],
)  # fmt: skip
def test_commands_that_hand_names_to_another(text: str, passes_names: bool) -> None:
    assert find_inner_commands(text.split(" ")).passes_names is passes_names


def test_find_starts_each_of_its_commands() -> None:
    assert started("find . -exec wc {} ';' -ok rm {} ';' -okdir mv {} a ';'") == [
        "wc {}", "rm {}", "mv {} a",
    ]  # fmt: skip
    assert started("find . -exec wc {} + -print") == ["wc {}"]
    assert started("find . -execdir cat x") == ["cat x"]


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("find . -name a", ""), ("find . -delete", "find deletes what it finds"),
        ("find . -na[m]e a", "find may read a file name as an option"),
        ("find . -*", "find may read a file name as an option"),
        ("find * -name a", ""), ("alias x=y", "alias changes the shell itself"),
        ("export A=1", "export changes the shell itself"),
        ("read x", "read changes the shell itself"),
        ("ls -l", ""), ("bash script", ""), ("sh", ""), ("git log", ""),
    ],
)  # fmt: skip
def test_doubts(text: str, doubt: str) -> None:
    assert find_inner_commands(text.split()).doubt == doubt


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("sh -c 'rm x'", "rm x"), ("bash -lc 'rm x' arg", "rm x"), ("bash -ec 'rm x'", "rm x"),
        ("bash -c -e 'rm x'", "rm x"), ("bash -c +e 'rm x'", "rm x"),
        ("zsh --command 'rm x'", "rm x"),
        ("/bin/dash -c 'rm x'", "rm x"), ("su -c 'rm x' root", "rm x"), ("sh -c", ""),
        ("eval rm x", "rm x"), ("trap 'rm x' EXIT", "rm x"), ("trap", ""),
        ("env -S 'rm x'", "rm x"), ("env -S rm x", "rm x"), ("env -Srm x", "rm x"),
        ("env --split-string='rm a' x", "rm a x"), ("flock l -c 'rm x' y", "rm x"),
        ("flock l --command 'rm x'", "rm x"), ("rsync -e 'rm x' a b", "rm x"),
        ("rsync --rsh='rm x' a b", "rm x"), ("tar -I 'rm x' -xf a", "rm x"),
        ("tar --to-command='rm x' -xf a", "rm x"),
        ("tar -xf a --checkpoint-action=exec='rm x'", "rm x"),
        ("tar --use-compress-program='rm x' -xf a", "rm x"), ("git rebase -x 'rm x'", "rm x"),
        ("git rebase --exec 'rm x' main", "rm x"), ("git rebase --exec='rm x'", "rm x"),
        ("git difftool --extcmd='rm x'", "rm x"), ("git fetch --upload-pack='rm x'", "rm x"),
        ("git push --receive-pack='rm x'", "rm x"), ("git rebase -x a -x b", "a\nb"),
        ("git submodule foreach rm x", "rm x"), ("git bisect run rm x", "rm x"),
        ("watch -n 2 rm x", "rm x"), ("watch --interval 2 rm x", "rm x"),
        ("ssh -p 1 host rm x", "rm x"),
        ("ssh host", ""), ("hyperfine -w 3 rm x", "rm x"), ("runuser -c 'rm x'", "rm x"),
        ("runuser --command='rm x'", "rm x"),
    ],
)  # fmt: skip
def test_texts_that_a_shell_runs(text: str, script: str) -> None:
    found = find_inner_commands(shlex.split(text))
    assert found.script == script
    assert bool(found.doubt) >= bool(script)


def test_many_texts_of_env_are_read_once() -> None:
    found = find_inner_commands(["env", *["-S"] * 40, "rm", "x"])
    assert found.script.count("\n") < 30
    assert found.script.startswith("-S ")


@pytest.mark.parametrize(
    "name", ["sh", "bash", "/bin/zsh", "dash", "ksh", "fish", ".", "source", "eval"]
)
def test_shells(name: str) -> None:
    assert is_shell(name)


@pytest.mark.parametrize("name", ["ls", "bashful", "/x/sh/ls", "python", "trap", ""])
def test_no_shells(name: str) -> None:
    assert not is_shell(name)
