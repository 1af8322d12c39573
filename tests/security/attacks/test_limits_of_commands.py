"""The kernel enforces the limits of each command, however it is spelled: denied files, the
project's repository, and the files that read-only commands may read.
"""

import asyncio
import os
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest

from ctxagent.agent.events import Answer, Notice, Question
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.permissions import rule_set
from ctxagent.agent.permissions.objections import Verdict
from ctxagent.agent.security import landlock
from ctxagent.agent.security.bubblewrap import Bubblewrap
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.base import Context
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.system.confinement import CommandLimits

from ...support.machine import BUBBLEWRAP, LANDLOCK, lacks, needs_bwrap, needs_landlock
from ...support.sessions.conversation import Conversation, answering
from ..test_sandbox import SECRET, WHO, Field, as_user, git, place  # noqa: F401

DENIED = "what-the-rule-denies"
# Each shows `.env` or `config/.env` unless a sandbox hides it; rules detect only a few of them.
SPELLINGS = (
    "cat .{{env,x}}", "date -f.env", "tar -cT.env", "grep -r {part} config", "grep -rn {part} .",
    "rg -uu {part}", "cp -r config c2; cat c2/.env", "mv config c3; cat c3/.env", "awk -f.env",
    "ln config/.env hard; cat hard", "tar c . | tar xO", "git diff --no-index f .env",
    "git hash-object -w .env && git cat-file -p $(git hash-object .env)", "xargs -a.env echo",
    "find config -type f -exec cat {{}} +", "x=env; cat .$x", "sh -c 'cd config && cat .e*'",
    "python3 -c \"print(open('.e' + 'nv').read())\"", "wc --files0-from=.env",
    "perl -e 'rename q(.env), q(e2); open F, q(e2); print <F>'",
)  # fmt: skip


def sandboxed(place: Field, kind: str, limits: CommandLimits) -> Context:  # noqa: F811
    """A context whose commands have these limits, under one kind of sandbox."""
    context = place.context()
    box = context.sandbox
    if kind != "bubblewrap":
        box._bubblewrap = Bubblewrap(absent="bwrap is not installed.")
    return replace(context, sandbox=box.for_command(limits))


def told(place: Field, kind: str, limits: CommandLimits, *commands: str) -> list[str]:  # noqa: F811
    """The output of the commands."""
    context, tool = sandboxed(place, kind, limits), BashTool()

    async def scene() -> list[str]:
        return [(await tool.run(BashParams(command=each), context)).text for each in commands]

    return asyncio.run(scene())


def talking(
    place: Field,  # noqa: F811
    commands: Sequence[dict[str, Any]],
    kind: str = "bubblewrap",
    verdict: Callable[[Verdict], Verdict] = lambda verdict: verdict,
    answers: Sequence[Answer] = (),
    **fields: Any,
) -> tuple[Conversation, list[Question]]:
    """Run the model's commands in one reply. `verdict` changes the verdict on each."""
    ask, questions = answering(*answers)
    steps = [Step(tools=[("Bash", each) for each in commands]), Step(text="done")]
    talk = Conversation(place.cwd, steps, ask=ask, **fields)
    box = place.context().sandbox
    box.off = kind == "off"
    if kind != "bubblewrap":
        box._bubblewrap = Bubblewrap(absent="bwrap is not installed.")
    shown = None if box.off else box
    talk.agent.context = replace(
        talk.agent.context, env=place.environ, sandbox=shown, read_only_sandbox=box
    )
    judge = talk.agent.approval.judge
    talk.agent.approval.judge = lambda tool, params: verdict(judge(tool, params))  # type: ignore[method-assign]
    talk.agent.approval.sandbox = shown
    talk.say("go")
    return talk, questions


def texts(talk: Conversation) -> list[str]:
    return [str(result.content) for result in talk.of(ToolResult)]


def writes(verdict: Verdict) -> Verdict:
    return replace(verdict, writes_repository=True)


def looks(verdict: Verdict) -> Verdict:
    return replace(verdict, action="allow", read_only=True)


@pytest.fixture
def secretive(place: Field) -> Field:  # noqa: F811
    """A project with files that a rule guards from being read."""
    (place.cwd / "config").mkdir()
    for name in (".env", "config/.env"):
        (place.cwd / name).write_text(f"{DENIED}\n")
    (place.cwd / "f").write_text("plain\n")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK])
def test_a_denied_file_is_not_read_in_bypass(secretive: Field, kind: str) -> None:
    """In no spelling, and not through a second name that an earlier command created."""
    commands = [{"command": each.format(part=DENIED[:-4])} for each in SPELLINGS]
    commands += [{"command": "cat c2/.env c3/.env hard e2 2>&1; ls -A"}]
    talk, _ = talking(secretive, commands, kind, deny=["Read(.env)"])
    assert DENIED not in "".join(texts(talk))
    assert (secretive.cwd / ".env").read_text() == f"{DENIED}\n"
    control, _ = talking(secretive, [{"command": "date -f.env"}], kind, session="control")
    assert DENIED in texts(control)[0]


@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK])
@pytest.mark.parametrize("mode", ["bypass", "ask", "accept-edits", "sandboxed"])
def test_what_may_not_be_edited_is_read_only(secretive: Field, kind: str, mode: str) -> None:
    script = secretive.cwd / "config/.env"
    change = "import sys; open(sys.argv[1] + '/.env', 'w')"
    commands = [
        {"command": f'python3 -c "{change}" config'},
        {"command": f'mv config other; python3 -c "{change}" other'},
        {"command": "find config -delete; python3 -c \"print(open('config/.env').read())\""},
    ]
    rules = {"deny": ["Edit(config/.env)"], "allow": ["Bash"]}
    talk, _ = talking(secretive, commands, kind, mode=mode, **rules)
    assert script.read_text() == f"{DENIED}\n"
    assert DENIED in texts(talk)[2]


@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK])
def test_rules_that_name_too_many_files(
    secretive: Field, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Commands still run, with one warning that rules are checked by text only."""
    monkeypatch.setattr(rule_set, "MAX_GUARDED", 1)
    commands = [{"command": "true"}, {"command": "python3 -c 1"}]
    talk, _ = talking(secretive, commands, kind, deny=["Read(.env)"])
    (warning,) = [event.text for event in talk.events if isinstance(event, Notice)]
    assert "only the text of the command is checked" in warning


@needs_bwrap
def test_with_too_many_guarded_files_commands_need_approval(
    secretive: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "MAX_GUARDED", 1)
    asked = {"mode": "sandboxed", "deny": ["Read(.env)"], "answers": [Answer(False)]}
    _, questions = talking(secretive, [{"command": "python3 -c 1"}], **asked)
    assert "more files than the sandbox can hide" in questions[0].reason


# Each destroys the history unless it is protected.
DESTROY = (
    "find . -delete", "find .git -delete", "rm -rf .git/objects", "rsync -a --delete /var/empty/ .",
    "perl -MFile::Path -e 'rmtree q(.git/objects)'", "truncate -s0 .git/HEAD", "mv .git gone",
    "cd .git && rm -rf objects refs", "xargs rm -rf <<< .git", "rm -rf .g*", "rm -rf {.git,x}",
    "rm -rf $PWD/.git", "mv .git/objects /tmp/", "python3 -c \"import os; os.rename('.git', 'x')\"",
    "git init -q --separate-git-dir=elsewhere",
)  # fmt: skip


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_no_command_destroys_the_history(place: Field, who: str) -> None:  # noqa: F811
    """Nor that of a submodule, nor from a linked work tree."""
    for repository in (place.cwd, place.root / "outside"):
        git(repository, "init", "-q")
        git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.cwd, "-c", "protocol.file.allow=always", "submodule", "add", "-q",
        str(place.root / "outside"), "sub")  # fmt: skip
    git(place.cwd, "worktree", "add", "-q", str(place.root / "linked"))
    main = place.cwd
    before = git(main, "log", "--all", "--format=%H")
    limits = CommandLimits(writes_repository=False)
    as_user(who, place.root, told, place, "bubblewrap", limits, *DESTROY)
    place.cwd = place.root / "linked"
    linked = [f"find {main}/.git -delete", f"rm -rf {main}/.git", "rm -rf .git; rm -f .git"]
    as_user(who, place.root, told, place, "bubblewrap", limits, *linked)
    shown = ["-c", f"safe.directory={main}", "log", "--all", "--format=%H"]
    assert git(main, *shown) == before
    assert (place.cwd / ".git").read_text().startswith("gitdir: ")
    assert (main / ".git/modules/sub/HEAD").exists()


@needs_bwrap
def test_the_repository_is_written_by_git_and_after_a_question(place: Field) -> None:  # noqa: F811
    """A script that commits fails with advice. Once approved, the same text runs again without
    asking. Repositories that commands create are writable.
    """
    (place.cwd / "release.sh").write_text("git commit -q --allow-empty -m release\n")
    run = {"command": "sh release.sh && echo done"}
    commands = [run, {**run, "repository": True}, {**run, "repository": True}, run]
    commands += [{"command": "git init -q new && git -C new commit -q --allow-empty -m x; echo $?"}]
    asking = {"mode": "accept-edits", "allow": ["Bash"], "answers": [Answer(True)]}
    talk, questions = talking(place, commands, **asking)
    failed, *later, own = texts(talk)
    assert "call it again with repository: the user is asked" in failed
    assert "but not .git; of homes" in failed
    assert talk.of(ToolResult)[0].details["blocked"] == "repository"
    assert [question.reason for question in questions] == ["it would write .git"]
    assert later == ["done"] * 3
    assert own.startswith("0\n")
    commands = [{"command": "git commit -q --allow-empty -m x"}]
    plain, _ = talking(place, commands, verdict=writes, session="plain")
    assert texts(plain)[-1] == "[no output; exit 0]"


@needs_bwrap
def test_the_repository_where_nobody_is_asked(place: Field) -> None:  # noqa: F811
    (place.cwd / "release.sh").write_text("git commit -q --allow-empty -m release\n")
    commit = {"command": "sh release.sh && echo done"}
    calls = [{**commit, "repository": True}, {**commit, "unsandboxed": True}]
    refused, outside = texts(talking(place, calls)[0])
    assert "call it again with unsandboxed" in refused
    assert outside == "done"


LOOK = (
    "git status --short", "git log --format=%s", "git diff", "git blame f", "git ls-files",
    "rg -n plain", "find . -name f", "ls -la f", "ps -o pid= -p $$ | wc -l", "df . | wc -l",
    "which git", "python3 --version", "cat < f | sort | tee /dev/stderr | wc -l; exit 3",
    "cat <<< text", "git -C sub status --short", "cat ~/.gitconfig",
)  # fmt: skip


@pytest.fixture
def looked_at(place: Field) -> Field:  # noqa: F811
    """A project with a commit and a change, and a secret next to it."""
    (place.cwd / "f").write_text("plain\n")
    (place.cwd / "sub").mkdir()
    (place.root / "home/.gitconfig").write_text("[core]\n\tabbrev = 12\n")
    git(place.cwd, "add", "f")
    git(place.cwd, "commit", "-q", "-m", "one")
    (place.cwd / "f").write_text("plain\nmore\n")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK])
@pytest.mark.parametrize("who", WHO)
def test_read_only_commands_work_as_usual(looked_at: Field, who: str, kind: str) -> None:
    """Their output and exit codes are the same as without a sandbox, also if a program is not
    installed.
    """
    env = {**looked_at.environ, "PATH": looked_at.path}
    plain = [
        subprocess.run(["bash", "-c", each], cwd=looked_at.cwd, env=env, stdout=PIPE, stderr=STDOUT)
        for each in LOOK
    ]
    limits = CommandLimits(looks=True)
    found = as_user(who, looked_at.root, told, looked_at, kind, limits, *LOOK)
    for command, before, now in zip(LOOK, plain, found, strict=True):
        wanted = (before.stdout.decode().strip() or "[no output; exit 0]").splitlines()
        owner = command == "ls -la f" and who != "us"
        assert owner or wanted[0].strip() in now, (command, wanted, now)
    assert "[exit 3]" in found[12]


OUTSIDE = (
    "cat ../../outside/file", "cat {root}/outside/file", "cat $HOME/notes/plain", "cat link",
    "cat $HOME/.ssh/id", "cat /proc/self/root{root}/outside/file", "grep : /etc/shadow",
    "grep -rs {secret} {root}/outside /root /home", "xargs -a names cat", "cat $(cat names)",
    "cat {root}/state/projects/p/sessions/other/log.jsonl",
    "git grep --no-index {secret} -- ../../outside",
    "git diff --no-index /dev/null ../../outside/file",
)  # fmt: skip
WRITE = (
    "echo x > new", "echo x >> f", "mkdir made", "rm f", "mv f g", "git commit -qam x",
    "echo x > .git/new", "mkdir /new-in-the-root", "chmod 600 f && false",
    "echo x > {root}/outside/new",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK])
@pytest.mark.parametrize("who", WHO)
def test_read_only_commands_are_confined(looked_at: Field, who: str, kind: str) -> None:
    """They open no file outside, by no path and no link, change nothing, and have no network."""
    (looked_at.cwd / "link").symlink_to(looked_at.root / "outside/file")
    (looked_at.cwd / "names").write_text("/etc/shadow\n../../outside/file\n")
    before = sorted(os.walk(looked_at.cwd))
    fill = {"root": str(looked_at.root), "secret": SECRET}
    outside = [each.format(**fill) for each in OUTSIDE]
    written = [each.format(**fill) for each in WRITE]
    reach = ["exec 3<>/dev/tcp/127.0.0.1/9"]
    limits = CommandLimits(looks=True)
    commands = [*outside, *written, *reach]
    found = as_user(who, looked_at.root, told, looked_at, kind, limits, *commands)
    said = dict(zip(commands, found, strict=True))
    shown = [command for command in outside if SECRET in said[command].replace(command, "")]
    assert shown == []
    assert "root:" not in said["grep : /etc/shadow"]
    assert all("[exit " in said[command] for command in written), said
    assert "not supported by protocol" in said[reach[0]]
    assert sorted(os.walk(looked_at.cwd)) == before
    assert (looked_at.cwd / "f").read_text() == "plain\nmore\n"


@needs_bwrap
def test_read_only_commands_see_files_of_earlier_commands(place: Field) -> None:  # noqa: F811
    """They see the session's temporary files and folder, but no files of ask and deny rules."""
    place.temporary = ("/tmp",) if not str(place.root).startswith("/tmp") else ()
    (place.cwd / "guarded").write_text(SECRET)
    folder = f"{place.root}/state/projects/p/sessions/own"
    commands = [{"command": f"cat {folder}/log.jsonl"}, {"command": "cat guar*"}]
    talk, _ = talking(place, commands, verdict=looks, mode="ask", deny=["Read(guarded)"])
    own, guarded = texts(talk)
    assert own == SECRET
    assert SECRET not in guarded


@pytest.mark.parametrize("kind", [BUBBLEWRAP, LANDLOCK, pytest.param("off", marks=needs_landlock)])
@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_names_from_a_forged_index(place: Field, kind: str, mode: str) -> None:  # noqa: F811
    """An index with entries that lead out of the project, in each sandbox and without one."""
    (place.cwd / "f").write_text("plain\n")
    git(place.cwd, "add", "f")
    blob = git(place.cwd, "rev-parse", ":f").strip()
    names = ["/etc/shadow", str(place.root / "outside/file"), "f"]
    (place.cwd / ".git/index").write_bytes(index_of(names, blob))
    commands = [{"command": "cat $(git ls-files)"}, {"command": "git ls-files | xargs cat"}]
    talk, questions = talking(place, commands, kind, looks, mode=mode)
    assert questions == []
    for text in texts(talk):
        assert "plain" in text
        assert "root:" not in text
        assert SECRET not in text


def index_of(names: Sequence[str], blob: str) -> bytes:
    """A git index with an entry for each name."""
    content = b"DIRC" + struct.pack(">II", 2, len(names))
    for name in sorted(map(str.encode, names)):
        stat = struct.pack(">10I", *[0] * 6, 0o100644, 0, 0, 6)
        entry = stat + bytes.fromhex(blob) + struct.pack(">H", len(name)) + name
        content += entry + b"\0" * (8 - len(entry) % 8)
    return content + sha1(content).digest()


@needs_landlock
def test_a_looking_command_that_asks_to_run_outside(place: Field) -> None:  # noqa: F811
    """It needs approval, even if the sandbox is off."""
    call = {"command": f"cat {place.root}/outside/file", "unsandboxed": True}
    talk, questions = talking(place, [call], "off", looks, [Answer(True)], mode="ask")
    assert [question.reason for question in questions] == ["it would run OUTSIDE the sandbox"]
    assert texts(talk) == [SECRET]


def test_unconfined_read_only_commands(place: Field, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(landlock, "works", lambda: False)
    box = place.context().sandbox
    assert box.holds_looking == (lacks("bubblewrap") == "")
    box._bubblewrap = Bubblewrap(absent="bwrap is not installed.")
    assert not box.holds_looking
    talk, _ = talking(place, [{"command": "cat ../../outside/file"}], "off", looks, mode="ask")
    assert texts(talk) == [SECRET]


@needs_bwrap
def test_many_files_of_a_command_hide_no_file_from_the_rule(
    secretive: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating more files than the sandbox can hide does not expose a guarded file."""
    monkeypatch.setattr(rule_set, "MAX_GUARDED", 5)
    make = "import os; [os.mkdir(f'd{n}') or open(f'd{n}/.e' + 'nv', 'w') for n in range(6)]"
    read = "python3 -c \"print(open('.e' + 'nv').read())\""
    commands = [{"command": "true"}, {"command": f'python3 -c "{make}"'}, {"command": read}]
    talk, _ = talking(secretive, commands, deny=["Read(.env)"])
    assert (secretive.cwd / "d5/.env").exists()
    assert DENIED not in "".join(texts(talk))


@needs_bwrap
def test_a_denied_file_keeps_its_mode(secretive: Field) -> None:
    """A hidden file is replaced by the system's /dev/null, whose mode must not change."""
    mode = Path("/dev/null").stat().st_mode
    talk, _ = talking(secretive, [{"command": "chmod -R go-rwx ."}], deny=["Read(.env)"])
    assert "Read-only" in texts(talk)[0]
    assert Path("/dev/null").stat().st_mode == mode


@needs_bwrap
def test_a_submodule_with_its_repository_in_place(place: Field) -> None:  # noqa: F811
    inner = place.cwd / "inner"
    git(place.cwd, "init", "-q", str(inner))
    git(inner, "commit", "-q", "--allow-empty", "-m", "one")
    git(place.cwd, "add", "inner")
    remove = "import shutil; shutil.rmtree('inner/.git', ignore_errors=True)"
    talking(place, [{"command": f'python3 -c "{remove}"'}])
    assert (inner / ".git/HEAD").exists()
    git(inner, "log")
