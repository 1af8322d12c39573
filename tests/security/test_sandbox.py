"""Commands under bubblewrap: what they can do, and every known escape."""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.events import Answer
from ctxagent.agent.loop.user_commands import run_shell_command as run_by_hand
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.security import bubblewrap, landlock, sandbox_paths
from ctxagent.agent.security.bubblewrap import Bubblewrap
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.agent.session.entries import ToolResult, User
from ctxagent.agent.ui import status
from ctxagent.tools.base import Context, Output
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.job import JobParams, JobTool, end_all
from ctxagent.tools.system.hardening import close_memory

from ..support.command import Place, comes, running
from ..support.machine import needs_bwrap
from ..support.other_user import as_other_user
from ..support.sessions.conversation import Conversation, answering

PLAIN = 1_000  # a user who is nobody special
WHO = ["us", *(["a plain user"] if os.geteuid() == 0 else [])]
SECRET = "-".join(("the", "secret", "of", "the", "person"))  # commands may read this file


@dataclass
class Field:
    """A home with secrets, a project with a repository, a state folder with two sessions, and an
    unrelated folder. None of them is a temporary folder.
    """

    root: Path
    network: bool = True
    write: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()
    temporary: tuple[str, ...] = ()
    cwd: Path = field(init=False)
    path: str = "/usr/local/bin:/usr/bin:/bin"

    def __post_init__(self) -> None:
        self.cwd = self.root / "work" / "project"
        for name in (
            "home/.ssh/id", "home/.aws/credentials", "home/.netrc", "home/.bash_history",
            "home/.config/gh/hosts.yml", "home/.config/ctxagent/agentrc", "home/notes/plain",
            "state/projects/p/sessions/own/log.jsonl", "state/projects/p/sessions/other/log.jsonl",
            "outside/file", "work/project/.agentrc", "work/project/.ctxagent/agents/a.md",
        ):  # fmt: skip
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{SECRET}\n")
        git(self.cwd, "init", "-q")
        (self.cwd / ".git" / "hooks").mkdir(exist_ok=True)

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": self.path, "HOME": str(self.root / "home"), **IDENTITY}

    def context(self, **fields: Any) -> Context:
        state = self.root / "state"
        own = state / "projects/p/sessions/own"
        box = Sandbox(
            cwd=self.cwd,
            environ=self.environ,
            own_temporary=own / "temporary",
            own_caches=self.root / "own-caches",
            network=self.network,
            write=self.write,
            read=self.read,
            hide=[state, self.root / "home/.config/ctxagent"],
            show=[own],
            temporary=self.temporary,
            **fields,
        )
        return Context(self.cwd, session_dir=own, env=self.environ, sandbox=box)

    def run(self, *commands: str, **params: Any) -> list[Output]:
        """Run the commands one after another, as in one session."""

        async def scene() -> list[Output]:
            context = self.context()
            try:
                return [
                    await BashTool().run(BashParams(command=command, **params), context)
                    for command in commands
                ]
            finally:
                await end_all(context.jobs)

        return asyncio.run(scene())


IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"))
}


def git(cwd: Path, *arguments: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **IDENTITY}
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def place() -> Iterator[Field]:
    """A folder that an ordinary user can access, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        root = Path(folder).resolve()
        root.chmod(0o755)
        yield Field(root)


def as_user(who: str, root: Path, work: Callable[..., Any], *given: Any) -> Any:
    """The result of `work` in a separate process of this user, who owns the files."""
    if who == "us":
        return work(*given)
    for path in (root, *root.rglob("*")):
        os.lchown(path, PLAIN, PLAIN)
    return as_other_user(PLAIN, _with_new_bubblewrap, work, *given)


def _with_new_bubblewrap(work: Callable[..., Any], *given: Any) -> Any:
    """Check again whether bubblewrap works for this user."""
    bubblewrap._try.cache_clear()
    return work(*given)


def texts_of(place: Field, *commands: str) -> list[str]:
    """The output of the commands."""
    return [output.text for output in place.run(*commands)]


OUT = "ESCAPED"
ATTEMPTS = {
    "write outside": "echo x > $R/outside/new",
    "write to the home": "echo x > $HOME/.bashrc",
    "through a link": "ln -sfn $R/outside link; echo x > link/new",
    "a secret": "grep -rqs {secret} $HOME/.ssh $HOME/.aws $HOME/.netrc $HOME/.bash_history",
    "a secret of a program": "grep -rqs {secret} $HOME/.config",
    "the root of another process": "cat /proc/[0-9]*/root$HOME/.ssh/id 2>/dev/null | grep -q .",
    "the folder of another process": "cat /proc/[0-9]*/cwd/../../home/.ssh/id | grep -q .",
    "the environment of others": "grep -qs MARK={mark} /proc/[0-9]*/environ",
    "the number of others": "kill -0 {pid} 2>/dev/null && grep -q 61.7 /proc/{pid}/cmdline",
    "writable again": "mount -o remount,rw / && echo x > $R/outside/new",
    "a bind mount": "mount --bind $R/outside /mnt && echo x > /mnt/new",
    "uncovered": "umount -l $HOME/.ssh && cat $HOME/.ssh/id",
    "uncovered in a namespace": "unshare -Urm sh -c 'umount -l $HOME/.ssh && cat $HOME/.ssh/id'",
    "writable in a namespace": "unshare -Urm sh -c 'mount -o remount,rw,bind / && >$R/outside/new'",
    "another namespace": "nsenter -t 1 -m -- touch $R/outside/new",
    "a new root": "chroot /proc/1/root touch $R/outside/new",
    "moved away": "mv $HOME/.ssh $HOME/.ssh2 || mv $HOME $R/home2",
    "a hook": "echo x > .git/hooks/pre-commit",
    "other hooks": "mv .git/hooks .git/hooks2 || rm -rf .git/hooks || ln -sfn /tmp .git/hooks",
    "git's configuration": "git config core.fsmonitor x || echo x >> .git/config",
    "other configuration": "mv -f /etc/hostname .git/config || rm -f .git/config",
    "another repository": "mv .git .git2 || rm -rf .git/config",
    "our settings": "echo x >> .agentrc || mv .agentrc .agentrc2 || rm .agentrc",
    "our types": "echo x > .ctxagent/agents/b.md || mv .ctxagent other",
    "another session": "cat $R/state/projects/p/sessions/other/log.jsonl",
    "the own session": "echo x >> $R/state/projects/p/sessions/own/log.jsonl",
    "new privileges": "grep -q 'NoNewPrivs:.0' /proc/self/status",
    "powers": "perl -ne 'exit !(hex($1) & 0x8280004) if /^CapEff:\\s*(\\w+)/' /proc/self/status",
    "a terminal": "exec 9<>/dev/tty",
    "keys typed": "perl -e 'exit !ioctl(STDERR, 0x5412, \"x\")'",
    "a device": "mknod d b 8 0 && head -c1 d",
    "a disk": "for d in /dev/[hsv]d?; do head -c1 $d >/dev/null && exit 0; done; exit 1",
    # Opened only: were one of these let through, the attempt must not harm who tests.
    "the kernel": ": >> /proc/sys/kernel/core_pattern || : >> /proc/sysrq-trigger",
    "the system": "for f in /sys/kernel/uevent_helper /sys/power/state; do : >> $f && exit; done",
    "passwords": "grep -q : /etc/shadow",
    "a socket": "perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer=>\"$R/outside/s\")'",
    "docker": "test -S /run/docker.sock || test -S /var/run/docker.sock",
    "the agent of ssh": 'test -n "$SSH_AUTH_SOCK$DBUS_SESSION_BUS_ADDRESS$DISPLAY"',
    "a preloaded library": "LD_PRELOAD=$R/home/.ssh/id cat $HOME/.ssh/id",
}


def attempts(place: Field, mark: str, pid: int) -> dict[str, str]:
    """The output of each attempt."""

    async def scene() -> dict[str, str]:
        context = place.context()
        context.env = {**context.env, "R": str(place.root), "SSH_AUTH_SOCK": "/tmp/s"}
        texts = {}
        for name, attempt in ATTEMPTS.items():
            filled = attempt.replace("{mark}", mark).replace("{pid}", str(pid))
            command = f"( {filled.replace('{secret}', SECRET)} ) && echo {OUT}"
            output = await BashTool().run(BashParams(command=command), context)
            texts[name] = output.text
        return texts

    return asyncio.run(scene())


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_no_way_out(place: Field, who: str) -> None:
    """Each attempt ends in `&& echo ESCAPED`, and none may print it."""
    mark = secrets.token_hex(8)
    before = (place.cwd / ".git/config").read_text()
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(place.root / "outside" / "s"))
        server.listen()
        other = stack.enter_context(
            subprocess.Popen(["sleep", "61.7"], env={"MARK": mark, "PATH": place.path})
        )
        stack.callback(other.kill)

        texts = as_user(who, place.root, attempts, place, mark, other.pid)
        assert other.poll() is None
    assert {name: text for name, text in texts.items() if OUT in text or SECRET in text} == {}
    assert not (place.root / "outside" / "new").exists()
    assert (place.cwd / ".git/config").read_text() == before
    assert not (place.cwd / ".git/hooks/pre-commit").exists()
    assert (place.cwd / ".agentrc").read_text() == f"{SECRET}\n"


def test_each_attempt_would_succeed_outside(place: Field) -> None:
    """Some of the attempts without a sandbox, to prove that they work."""
    context = Context(place.cwd, env={**place.environ, "R": str(place.root)})
    for name in ("write outside", "through a link", "a secret", "a hook", "our settings"):
        command = f"( {ATTEMPTS[name].replace('{secret}', SECRET)} ) && echo {OUT}"
        assert OUT in asyncio.run(BashTool().run(BashParams(command=command), context)).text, name


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_ordinary_work_succeeds_in_the_sandbox(place: Field, who: str) -> None:
    """Project files, commits, exit codes and signals, and the session's own folder work."""
    commands = (
        "echo a > file && git add file && git commit -qm one && git log --format=%s",
        f"cat {place.root}/state/projects/p/sessions/own/log.jsonl",
        "echo out; echo err >&2; exit 3",
        "kill -KILL $$",
        "(kill -TERM $BASHPID); echo $?; cat; tty",
        "pwd; set -- /proc/[0-9]*; echo $#",
    )
    texts = as_user(who, place.root, texts_of, place, *commands)
    assert texts == [
        "one",
        SECRET,
        "out\nerr\n[exit 3]",
        "[exit 137 (128 + SIGKILL)]",
        "Terminated\n143\nnot a tty\n[exit 1]",  # as bash says outside
        f"{place.cwd}\n3",  # init, the shell that waits, and this one
    ]


def gone(mark: str) -> bool:
    """Wait until the kernel has ended them."""
    return comes(lambda: not running(mark))


@pytest.mark.slow
@needs_bwrap
def test_nothing_outlives_its_call(place: Field) -> None:
    mark = f"61.{secrets.randbelow(10**9)}"
    sleeps = f"sleep {mark}"
    daemon = f"setsid nohup sh -c '(trap \"\" TERM HUP; {sleeps}) &' >/dev/null 2>&1 &"
    (output,) = place.run(f"{daemon} {sleeps} & sleep 0.2; echo done")
    assert output.text.startswith("done\n[what it left running was ended with it;")
    assert not output.is_error
    assert gone(mark)
    (output,) = place.run(f"{daemon} trap '' TERM; {sleeps}", timeout=1)
    assert "timed out" in output.text
    assert gone(mark)


@pytest.mark.slow
@needs_bwrap
def test_sigterm_leaves_time_to_exit(place: Field) -> None:
    command = "trap 'echo tidied; exit' TERM; echo on; while :; do sleep 0.1; done"
    for seconds in (1, 5, 25):  # on a busy machine the first may pass before any output
        (output,) = place.run(command, timeout=seconds)
        if output.text.startswith("on\n"):
            break
    assert output.text.startswith("on\n")
    assert "tidied\n[timed out" in output.text


@pytest.mark.slow
@needs_bwrap
def test_jobs_last_and_are_reached(place: Field) -> None:
    """A job keeps running over several calls, even after its shell ends. A later job reaches its
    socket, but not a foreign socket in the same folder.
    """
    temporary = place.root / "tmp"
    temporary.mkdir()
    place.temporary = (str(temporary),)
    mark = f"61.{secrets.randbelow(10**9)}"
    serve = "IO::Socket::UNIX->new(Local => shift, Listen => 5) or die; print qq(ready\\n)"
    job = f"perl -MIO::Socket::UNIX -e '$|=1; $s={serve}; sleep 61' $T/ours & sleep {mark} & exit 0"
    reach = "perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => shift) ? 1 : 0' $T/"

    async def scene() -> tuple[str, str]:
        context = place.context()
        context.env = {**context.env, "T": str(temporary)}
        started = await BashTool().run(BashParams(command=job, run_in_background=True), context)
        said = ""
        while "ready" not in said and "running" in started.details["status"]:
            said += (await JobTool().run(JobParams(action="read"), context)).text
            await asyncio.sleep(0.01)
        reached = await BashTool().run(BashParams(command=f"{reach}ours; {reach}theirs"), context)
        status = context.jobs["job-1"].status
        await end_all(context.jobs)
        return status, reached.text

    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(temporary / "theirs"))
        stranger.listen()
        status, reached = asyncio.run(scene())
    assert status.startswith("running")
    assert reached == "10"
    assert gone(mark)


@pytest.mark.slow
@needs_bwrap
def test_without_a_network(place: Field) -> None:
    """No ports or abstract sockets of the machine can be reached, but a server within the command
    can.
    """
    place.network = False
    own = (
        "$s=IO::Socket::INET->new(Listen=>1,LocalAddr=>q(127.0.0.1)); "
        "print IO::Socket::INET->new(PeerAddr=>q(127.0.0.1),PeerPort=>$s->sockport) ? q(own) : $!"
    )
    name = f"box-{secrets.token_hex(4)}"
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        reach = f"perl -MIO::Socket::UNIX -e 'exit !IO::Socket::UNIX->new(Peer=>qq(\\0{name}))'"
        commands = (
            f"exec 3<>/dev/tcp/127.0.0.1/{port.getsockname()[1]} && echo {OUT}",
            f"{reach} && echo {OUT}",
            f"perl -MIO::Socket::INET -e '{own}'",
        )
        port_text, abstract_text, own_text = (output.text for output in place.run(*commands))
        place.network = True
        assert place.run(commands[0])[0].text == OUT
    assert OUT not in port_text
    assert "there is no network" in port_text
    assert OUT not in abstract_text
    assert own_text == "own"


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("name", ["a b'c\"d", "new\nline $HOME `id`", "-dash", "ünï\udcff"])
def test_odd_names(place: Field, name: str) -> None:
    place.cwd = place.cwd.rename(place.root / "work" / name)
    (output,) = place.run("echo x > new && git add new && git commit -qm x && echo ok")
    assert output.text == "ok"
    (output,) = place.run("echo x > ../new")
    assert "Read-only file system" in output.text
    assert "It ran in the sandbox" in output.text


@needs_bwrap
def test_a_link_to_the_project(place: Field) -> None:
    link = place.root / "link"
    link.symlink_to(place.cwd)
    place.cwd = link
    assert place.run("pwd; echo x > new; cat new")[0].text == f"{link}\nx"


@needs_bwrap
def test_a_home_as_the_project(place: Field) -> None:
    """Files that run at login stay unchanged; folders without a dot are writable."""
    place.cwd = place.root / "home"
    attempts = "echo x > .bashrc; echo x > .zshenv; echo x > notes/new; cat .ssh/id; ls notes"
    assert place.run(attempts)[0].text.endswith("new\nplain")
    assert not (place.cwd / ".zshenv").exists()
    place.cwd = place.root  # the parent of the home
    assert "Read-only" in place.run("echo x > new; echo x > home/notes/newer")[0].text
    assert not (place.root / "home/notes/newer").exists()


@needs_bwrap
def test_a_hidden_path_disappears_during_the_start(
    place: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example another program's socket: the sandbox starts again, the command only once."""
    sockets = [iter([("/gone/with/its/folder", "1")]), iter([("/gone", "2")])]
    monkeypatch.setattr(sandbox_paths, "sockets", lambda: sockets.pop(0) if sockets else iter(()))
    assert [output.text for output in place.run("echo x >> file; cat file")] == ["x"]
    assert sockets == []
    monkeypatch.setattr(sandbox_paths, "sockets", lambda: iter([("/gone/for/ever", "1")]))
    assert "bwrap: Can't" in place.run("cat file")[0].text


@needs_bwrap
def test_folders_that_are_given(place: Field) -> None:
    place.write = (place.root / "outside", Path("~/notes"), Path("/not/there"))
    (output,) = place.run("echo x > ../../outside/new; echo x > ~/notes/new; echo $?; echo x > ~/n")
    assert output.text.startswith("0\n")
    assert "Read-only" in output.text
    assert (place.root / "home/notes/new").exists()
    assert not (place.root / "home/n").exists()
    assert not Path("/not").exists()


@pytest.mark.slow
@needs_bwrap
def test_linked_work_trees_and_submodules(place: Field) -> None:
    """A commit writes to a repository elsewhere if that repository names the work tree."""
    git(place.cwd, "commit", "-q", "--allow-empty", "-m", "first")
    linked = place.root / "linked"
    git(place.cwd, "worktree", "add", "-q", str(linked))
    (place.cwd / "inner").mkdir()
    git(place.root / "outside", "init", "-q")
    git(place.root / "outside", "commit", "-q", "--allow-empty", "-m", "theirs")
    git(place.cwd, "-c", "protocol.file.allow=always", "submodule", "add", "-q",
        str(place.root / "outside"), "inner/sub")  # fmt: skip
    main = place.cwd
    for cwd in (linked, main / "inner/sub", main / "inner"):
        place.cwd = cwd
        commit = "git commit -q --allow-empty -m more && git log -1 --format=%s"
        assert place.run(commit)[0].text == "more"
        text = place.run("git config a.b c; echo x > $(git rev-parse --git-path hooks)/pre-commit")
        assert "pre-commit: Read-only" in text[0].text
    place.cwd = hostile = place.root / "hostile"
    hostile.mkdir()
    for victim in (main / ".git", main / ".git/worktrees/linked", place.root / "home/.ssh"):
        (hostile / ".git").write_text(f"gitdir: {victim}\n")
        assert "Read-only" in place.run(f"touch {main}/.git/new {place.root}/home/new")[0].text


@pytest.mark.slow
@needs_bwrap
def test_a_git_folder_cannot_be_replaced_to_open_it(place: Field) -> None:
    """If a command could rename and copy a submodule's or work tree's repository, it could write
    it.
    """
    for repository in (place.cwd, place.root / "outside"):
        git(repository, "init", "-q")
        git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.cwd, "-c", "protocol.file.allow=always", "submodule", "add", "-q",
        str(place.root / "outside"), "inner/sub")  # fmt: skip
    git(place.cwd, "worktree", "add", "-q", str(place.root / "linked"))
    exchange = "mv .git/{0} .git/old; cp -r .git/old .git/{0} && echo x >> .git/{1}"
    config = (place.cwd / ".git/modules/inner/sub/config").read_text()
    outputs = place.run(
        "git -C inner/sub commit -q --allow-empty -m more && git -C inner/sub log -1 --format=%s",
        exchange.format("modules", "modules/inner/sub/config"),
        exchange.format("modules/inner", "modules/inner/sub/config"),
        exchange.format("worktrees", "worktrees/linked/commondir"),
        exchange.format("worktrees/linked", "worktrees/linked/commondir"),
        "echo ../../../evil > .git/worktrees/linked/commondir",
    )
    for output in outputs[1:5]:
        assert "busy" in output.text
    assert outputs[0].text == "more"
    assert "Read-only" in outputs[5].text
    assert (place.cwd / ".git/modules/inner/sub/config").read_text() == config
    assert (place.cwd / ".git/worktrees/linked/commondir").read_text() == "../..\n"


@pytest.mark.slow
@needs_bwrap
def test_what_the_agent_would_run_is_set_aside(place: Field) -> None:
    """Files that git would read as configuration, or that replace git itself."""
    bin = place.cwd / ".venv" / "bin"
    bin.mkdir(parents=True)
    place.path = f"{bin}:{place.path}"
    plant = "mkdir evil; echo ../evil > .git/commondir; cp /bin/true .venv/bin/git"
    (output,) = place.run(plant)
    assert output.text.startswith("[it made what git or the agent would run; set aside as ")
    assert not (place.cwd / ".git/commondir").exists()
    assert not (bin / "git").exists()
    assert git(place.cwd, "rev-parse", "--git-common-dir").strip() == ".git"
    for action in ("wait", None):  # a job's are, when it is known to have ended, or at the end
        (told,) = asyncio.run(planted_by_a_job(place, action))
        assert ("set aside as" in told) == (action == "wait")
        assert not (place.cwd / ".git/commondir").exists()
    shutil.copy("/bin/true", bin / "git")  # by the user, between two commands
    shutil.copy("/bin/true", bin / "rg")
    outputs = place.run("true", "cp /bin/false .venv/bin/git || echo closed")
    assert "closed" in outputs[1].text
    assert (bin / "rg").exists()


async def planted_by_a_job(place: Field, action: Literal["wait"] | None) -> list[str]:
    context = place.context()
    plant = BashParams(command="echo ../evil > .git/commondir", run_in_background=True)
    told = [(await BashTool().run(plant, context)).text]
    if action:
        told = [(await JobTool().run(JobParams(action=action, timeout=60), context)).text]
    (job,) = context.jobs.values()
    await job.process.finished()
    await end_all(context.jobs, context.sandbox)
    return told


def test_where_it_is_absent(place: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run as usual, unless the sandbox is required; then none runs, in no way."""
    monkeypatch.setattr(landlock, "works", lambda: False)
    context = place.context()
    assert isinstance(context.sandbox, Sandbox)
    context.sandbox._bubblewrap = Bubblewrap(absent="bwrap is not installed. Install it.")
    params = BashParams(command="cat $HOME/.ssh/id")
    assert asyncio.run(BashTool().run(params, context)).text == SECRET
    assert BashTool().why_ask_anyway(BashParams(command="x", unsandboxed=True), context) == ""
    context.sandbox.required = True
    for given in (params, BashParams(command="echo", unsandboxed=True)):
        with pytest.raises(ToolError, match=r"bwrap is not installed\. Install it\."):
            asyncio.run(BashTool().run(given, context))
    context.sandbox._bubblewrap = Bubblewrap(["/usr/bin/bwrap"])
    with pytest.raises(ToolError, match="No command runs outside of the sandbox"):
        asyncio.run(BashTool().run(BashParams(command="echo", unsandboxed=True), context))


def leaving(place: Field, mode: str, **fields: Any) -> Conversation:
    """A conversation in which one command asks to run outside."""
    call = ("Bash", {"command": "cat $HOME/.ssh/id", "unsandboxed": True})
    steps = [Step(tools=[call]), Step(text="done")]
    talk = Conversation(place.cwd, steps, mode=mode, **fields)
    talk.agent.context = replace(
        talk.agent.context, env=place.environ, sandbox=place.context().sandbox
    )
    return talk


@needs_bwrap
def test_running_outside_needs_approval(place: Field) -> None:
    """Even if a rule allows the command. No rule is suggested that would not cover it."""
    ask, questions = answering(Answer(True))
    talk = leaving(place, "ask", allow=["Bash"], ask=ask)
    talk.say("read it")
    (question,) = questions
    assert question.reason == "it would run OUTSIDE the sandbox"
    assert question.offers == ()
    assert [result.content for result in talk.of(ToolResult)] == [SECRET]


@needs_bwrap
def test_running_outside_in_headless_mode(place: Field) -> None:
    nobody = leaving(place, "ask", allow=["Bash"])
    assert nobody.say("read it").status == "denied"
    assert "OUTSIDE the sandbox" in nobody.of(ToolResult)[0].content
    shutil.rmtree(nobody.agent.log.path.parents[2])
    bypass = leaving(place, "bypass")
    bypass.say("read it")
    assert bypass.of(ToolResult)[0].content == SECRET
    shutil.rmtree(bypass.agent.log.path.parents[2])
    denied = leaving(place, "bypass", deny=["Bash(cat:*)"])
    denied.say("read it")
    assert "denied by the rule" in denied.of(ToolResult)[0].content


@needs_bwrap
def test_a_person_runs_outside(place: Field) -> None:
    talk = leaving(place, "ask")
    asyncio.run(run_by_hand(talk.agent, "cat $HOME/.ssh/id"))
    assert SECRET in str(talk.of(User)[-1].content)


@pytest.mark.slow
@needs_bwrap
def test_the_command_where_commands_could_change_it(tmp_path: Path) -> None:
    """In / commands could write anywhere: the message gives this reason and a place that works."""
    place = Place(tmp_path)
    doctor = place.run("--cwd", "/", "doctor").stdout
    (line,) = [line for line in doctor.splitlines() if " sandbox: " in line]
    assert "bwrap is not used, since commands can write to its folder. Start in" in line
    assert "nstall" not in line
    done = place.run(
        "--cwd", "/", "-p", "hi", "-c", "sandbox.mode=require", "--model", "scripted:x"
    )
    assert done.returncode == 2
    assert "bwrap is not used, since commands can write to its folder\n" in done.stderr
    assert "Start in a project's folder, or name it with --cwd DIR." in done.stderr


@pytest.mark.slow
def test_a_bubblewrap_of_the_project_is_never_used(tmp_path: Path) -> None:
    """A program that a command may have planted is not run; the advice is to install another."""
    place = Place(tmp_path)
    planted = place.project / "bin" / "bwrap"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\ntouch planted\n")
    planted.chmod(0o755)
    env = place.environ({"PATH": f"{planted.parent}:{os.environ['PATH']}"})
    assert " sandbox: " in place.run("doctor", env=env).stdout
    assert not (place.project / "planted").exists()


def test_the_status_says_that_there_is_none() -> None:
    now = status.StatusLine(model="model", mode="ask", branch="main", sandbox=status.NO_SANDBOX)
    assert "".join(text for _, text in status.fit_line(now, 80)) == "model · ask · !! · main"
    assert "".join(text for _, text in status.fit_line(now, 9)) == "!!"


def peek_and_stop(place: Field, mark: str) -> list[str]:
    """Close the memory of this process. Return the output of a command that reads it, and an ended
    one.
    """
    close_memory()
    peek = f"cat /proc/{os.getpid()}/environ; ls /proc/{os.getpid()}/fd"
    context = Context(place.cwd, env=place.environ)
    plain = asyncio.run(BashTool().run(BashParams(command=peek), context)).text
    slow = BashParams(command=f"sleep {mark} & sleep {mark}", timeout=1)
    return [plain, asyncio.run(BashTool().run(slow, context)).text]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the root alone can be another user")
def test_the_agents_memory_is_closed(place: Field) -> None:
    """A process of the same user cannot read the environment or memory of a process that has closed
    it. That process can still start and end commands.
    """
    mark = f"61.{secrets.randbelow(10**9)}"
    peeked, ended = as_user("a plain user", place.root, peek_and_stop, place, mark)
    assert peeked.count("Permission denied") == 2
    assert "the process tree was killed" in ended
    assert gone(mark)


def test_files_that_hooks_run_are_read_only(place: Field) -> None:
    script, other = place.cwd / "scripts" / "fmt.sh", place.cwd / "scripts" / "other.sh"
    script.parent.mkdir()
    script.touch()
    elsewhere = place.root / "outside" / "file"
    box = place.context().sandbox
    assert isinstance(box, Sandbox)
    pinned = [str(script), str(elsewhere), str(other)]
    assert box.can_write(str(script))
    box = replace(box, pinned=pinned)
    assert not box.can_write(str(script))
    assert box.can_write(str(other))
    assert str(elsewhere) not in box.boundary().regions
