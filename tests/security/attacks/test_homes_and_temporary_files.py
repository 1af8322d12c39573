"""Homes and temporary files in the sandbox: toolchains are visible, caches and temporary files are
private, and the file tools agree. Each attempt is also made outside the sandbox, where it succeeds.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.models.scripted import Step
from ctxagent.agent.security.sandbox_paths import words
from ctxagent.agent.session.entries import ToolResult

from ...support.command import Place
from ...support.machine import needs_bwrap
from ...support.server.loopback import Say, Server
from ...support.sessions.conversation import Conversation
from ..test_sandbox import SECRET, WHO, Field, as_user, place, texts_of  # noqa: F401

CREDENTIALS = words("""
.authinfo .authinfo.gpg .cache/huggingface/token .gradle/gradle.properties .m2/settings.xml
.config/pypoetry/auth.toml .config/pip/pip.conf .config/uv/uv.toml .sbt/credentials
.nuget/NuGet/NuGet.Config .bundle/config .composer/auth.json .condarc .cargo/config.toml
.config/hcloud/cli.toml .config/configstore/firebase-tools.json .config/stripe/config.toml
.databrickscfg .kaggle/kaggle.json .subversion/auth/svn.simple/x .mylogin.cnf .wakatime.cfg
.config/some-new-tool/token .local/share/some-new-tool/session notes/passwords.txt
""")


def run(who: str, place: Field, *commands: str) -> list[str]:  # noqa: F811
    """The output of the commands."""
    texts: list[str] = as_user(who, place.root, texts_of, place, *commands)
    return texts


def plant(place: Field) -> None:  # noqa: F811
    for name in CREDENTIALS:
        path = place.root / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("read", [(), (Path("~"),)], ids=["by itself", "home opened"])
def test_credentials_of_a_home(place: Field, who: str, read: tuple[Path, ...]) -> None:  # noqa: F811
    """No credential is read. If the user opens the home, known credentials stay hidden."""
    plant(place)
    known = CREDENTIALS[:21] if read else CREDENTIALS
    files = " ".join(f"$HOME/{name}" for name in known)
    command = f"cat {files}; grep -rs {SECRET} {files}"
    place.read = read
    [text] = run(who, place, command)
    assert SECRET not in text
    done = subprocess.run(
        ["sh", "-c", command], env=place.environ, capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.count(SECRET) == 2 * len(known)


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_what_a_shell_or_a_package_manager_would_run_later(place: Field, who: str) -> None:  # noqa: F811
    """Files that a command writes to caches stay in the private caches."""
    home = place.root / "home"
    planted = home / ".cache" / "p10k-instant-prompt-me.zsh"
    module = home / ".cargo/registry/src/lib.rs"
    for path in (planted, module):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("good\n")
    texts = run(
        who,
        place,
        f"echo bad > {planted}; mkdir -p ~/.npm/_npx && echo bad > ~/.npm/_npx/x",
        f"cat {planted} ~/.npm/_npx/x {module}",
        "echo bad > ~/.profile; git config --global core.pager evil",
        f"echo bad > {module}",
        # The private folders are mounted: no link can replace them for the next command.
        "rm -rf ~/.cache ~/.npm; mv ~/.cache ~/.cache2; ln -sfT ~/.ssh ~/.cache",
    )
    assert texts[1] == "bad\nbad\ngood"
    assert all("Read-only file system" in text for text in texts[2:])
    assert planted.read_text() == module.read_text() == "good\n"
    assert not (home / ".npm").exists()
    assert not (home / ".profile").exists()
    assert not (home / ".gitconfig").exists()


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_toolchains_work(place: Field, who: str) -> None:  # noqa: F811
    """Programs and libraries in a home run, even through links; nothing else is visible."""
    home = place.root / "home"
    for name in (".nvm/versions/bin/tool", "dotfiles/gitconfig", "own/bin/mine"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[user]\n\tname = N\n" if "git" in name else "#!/bin/sh\necho runs\n")
        path.chmod(0o755)
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    place.path = f"{place.path}:{home}/own/bin"
    commands = (
        "~/.nvm/versions/bin/tool; mine; git config --global user.name; ls -A ~",
        "ls ~/own",
    )
    first, second = run(who, place, *commands)
    seen = first.split()
    assert seen[:3] == ["runs", "runs", "N"]
    assert {".ssh", ".netrc", "notes", "dotfiles"}.isdisjoint(seen[3:])
    assert second == "bin"


@pytest.mark.slow
@needs_bwrap
@pytest.mark.parametrize("who", WHO)
def test_temporary_files_are_private(place: Field, who: str) -> None:  # noqa: F811
    """Other programs' temporary files are invisible, and other programs do not see those of a
    command.
    """
    others = place.root / "tmp"
    others.mkdir()
    others.chmod(0o777)
    (others / "theirs").write_text(SECRET)
    place.temporary = (str(others),)
    first, second = run(
        who,
        place,
        f"ls -A {others}; echo mine > {others}/mine; ln -s {place.root}/outside {others}/link",
        f"cat {others}/mine; cat {others}/theirs; echo x > {others}/link/new",
    )
    assert "theirs" not in first
    assert second.startswith("mine\n")
    assert SECRET not in second
    assert [path.name for path in others.iterdir()] == ["theirs"]
    assert not (place.root / "outside" / "new").exists()


def talk_in(place: Field, *calls: tuple[str, dict[str, Any]], **fields: Any) -> list[ToolResult]:  # noqa: F811
    talk = Conversation(place.cwd, [*(Step(tools=[call]) for call in calls), Step(text="done")],
                        mode="bypass")  # fmt: skip
    talk.agent.context.sandbox = talk.agent.approval.sandbox = place.context(**fields).sandbox
    talk.agent.context.env = place.environ
    try:
        assert talk.say("go").status in ("ok", "denied"), talk.events[-3:]
        return talk.of(ToolResult)[-len(calls) :]
    finally:
        talk.agent.log.close()


@pytest.mark.slow
@needs_bwrap
def test_file_tools_find_the_same_temporary_files(place: Field) -> None:  # noqa: F811
    others = place.root / "tmp"
    others.mkdir()
    (others / "theirs").write_text("theirs\n")
    place.temporary = (str(others),)
    name, own = f"{others}/x.py", place.root / "state/projects/p/sessions/own/temporary"
    results = talk_in(
        place,
        ("Write", {"path": name, "content": "print(6 * 7)\n"}),
        ("Bash", {"command": f"python3 {name}; echo more > {others}/made"}),
        ("Read", {"path": f"{others}/made"}),
        ("Edit", {"path": name, "old_string": "6", "new_string": "5"}),
        ("Bash", {"command": f"python3 {name}"}),
        ("Glob", {"pattern": "*", "path": str(others)}),
        ("Read", {"path": f"{others}/theirs"}),
    )
    told = [result.content for result in results]
    assert f"Outside of the sandbox it is {own}/x.py." in told[0]
    assert told[1] == "42"
    assert "more" in told[2]
    assert told[4] == "35", told[3]
    assert "x.py" in told[5]
    assert "theirs" in told[6]
    assert [path.name for path in others.iterdir()] == ["theirs"]
    assert (own / "x.py").exists()


@pytest.mark.slow
@needs_bwrap
def test_a_required_sandbox_also_limits_file_tools(place: Field) -> None:  # noqa: F811
    """Also in mode bypass, in which each call succeeds if the sandbox is not required."""
    home = place.root / "home"
    (place.root / "trust").mkdir()
    calls = [
        ("Read", {"path": str(home / ".ssh/id")}),
        ("Read", {"path": str(home / "notes/plain")}),
        ("Grep", {"pattern": SECRET, "path": str(home / "notes")}),
        ("Glob", {"pattern": "*", "path": str(home)}),
        ("Write", {"path": str(home / "new"), "content": "x"}),
        ("Write", {"path": str(place.root / "state/trusted.json"), "content": "x"}),
        ("Write", {"path": str(place.cwd / ".git/hooks/pre-commit"), "content": "x"}),
        ("Write", {"path": str(place.root / "outside/new"), "content": "x"}),
    ]
    results = talk_in(place, *calls, required=True)
    for result in results:
        assert result.is_error
        assert "outside of the sandbox" in str(result.content)
        assert SECRET not in str(result.content)
    assert not (place.root / "outside/new").exists()
    assert not (place.cwd / ".git/hooks/pre-commit").exists()
    temporary = place.root / "tmp"
    temporary.mkdir()
    place.temporary = (str(temporary),)
    inside = talk_in(place, ("Write", {"path": "a.txt", "content": "x"}),
                     ("Write", {"path": f"{temporary}/x", "content": "x"}),
                     ("Bash", {"command": f"cat {temporary}/x"}),
                     ("Read", {"path": "/etc/passwd"}), required=True)  # fmt: skip
    assert not any(result.is_error for result in inside)
    assert not any(result.is_error for result in talk_in(place, *calls))


@pytest.mark.slow
@needs_bwrap
def test_paths_of_an_allowed_command_are_readable(place: Field) -> None:  # noqa: F811
    """A path in an allowed command is readable, but a secret is not. A path that was otherwise
    invisible is reported.
    """
    notes = place.root / "home/notes/plain"
    results = talk_in(
        place,
        ("Bash", {"command": f"cat {notes}"}),
        ("Bash", {"command": f"cat {place.root}/home/.ssh/id"}),
        ("Bash", {"command": f"python3 -c \"open('{notes}')\""}),
    )
    assert results[0].content == SECRET
    assert SECRET not in results[1].content
    assert "It ran in the sandbox" in results[2].content


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    name = f"{tmp_path}/temporary/note.txt"
    calls = [
        ("Write", {"path": name, "content": "a note\n"}),
        ("Bash", {"command": f"cat {name}"}),
        ("Glob", {"pattern": "*", "path": f"{tmp_path}/temporary"}),
    ]

    def reply(body: dict[str, Any]) -> Say:
        done = sum(message["role"] == "assistant" for message in body["messages"])
        return Say("", tools=[calls[done]]) if done < len(calls) else Say("Done.")

    with Server(reply) as running:
        yield running
    assert running.rejected == []


@pytest.mark.slow
@needs_bwrap
def test_by_the_command(tmp_path: Path, server: Server) -> None:
    """The session's private folder is only accessible to its owner and remains at the end."""
    place = Place(tmp_path)  # noqa: F811
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**place.server(server.url), "TMPDIR": str(temporary)}
    done = place.run("-p", "go", "--permission-mode", "bypass", env=env)
    assert done.returncode == 0, done.stderr
    said = json.dumps(server.requests[-1])
    assert "a note" in said
    assert not (temporary / "note.txt").exists()
    found = re.search(r"Outside of the sandbox it is (\S+)\.", said)
    assert found
    kept = Path(found[1])
    assert kept.read_text() == "a note\n"
    assert kept.parent.stat().st_mode & 0o077 == 0
    assert f"{temporary}/note.txt" in server.requests[-1]["messages"][-1]["content"][0]["content"]
