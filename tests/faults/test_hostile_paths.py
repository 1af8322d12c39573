"""Path rules hold however a file is spelled or reached, for each tool that names files; and what a
deny rule keeps is neither found nor listed by a search."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.agent.events import Answer, Question
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.session.entries import ToolResult
from ctxagent.tools.base import Context
from ctxagent.tools.file_access import Place, opened
from ctxagent.tools.glob import GlobParams, GlobTool
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.offered import EVERY

from ..permissions.test_approval import judge
from ..support.command import Place as Command
from ..support.server.loopback import Say, Server
from ..support.sessions.conversation import Conversation
from ..worktree.test_snapshots import git

DENY = ["Read(secret/**)", "Read(.env)", "Edit(secret/**)", "Edit(.env)", "Read(*.pem)"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for folder in ("src", "secret/deep", "pub"):
        (root / folder).mkdir(parents=True)
    for file in ("secret/key", "secret/deep/key", ".env", "src/.env", "src/a.pem"):
        (root / file).write_text("KEY=hidden\n")
    (root / "src" / "app.py").write_text("KEY=shown\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "data").write_text("KEY=outside\n")
    (root / "src" / "to-key").symlink_to("../secret/key")
    (root / "src" / "to-secret").symlink_to("../secret")
    (root / "src" / "twice").symlink_to("to-key")
    (root / "src" / "round").symlink_to("round")
    (root / "src" / "out").symlink_to(tmp_path / "outside")
    (root / "secret" / "public").symlink_to("../src/app.py")
    return root


SPELLINGS = [
    "secret/key", "./secret/key", "src/../secret/key", "src/../secret/./deep/../key", "secret//key",
    "secret/key/", "secret/key/.", "secret", "secret/", "secret/nothing-there", "src/to-key",
    "src/twice", "src/to-secret/key", "src/to-secret/deep/../key", "/proc/self/cwd/secret/key",
    "/proc/thread-self/cwd/src/to-key", "/proc/self/root{root}/secret/key", "{root}/secret/key",
    "/proc/self/root/proc/self/cwd/.env", "{root}/../project/.env", "{root}/./src/.env", ".env",
    "src/.env", "src/none/../.env", "src/a.pem", "//{root}/secret/key", "secret/public",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "bypass"])
def test_a_denied_file_by_any_spelling(project: Path, mode: Any) -> None:
    approval = Approval(cwd=project, mode=mode, allow=["Read", "Edit", "Grep", "Glob"], deny=DENY)
    reached = [
        (tool, spelling)
        for spelling in SPELLINGS
        for tool in ("Read", "Grep", "Glob", "Edit", "Write")
        if judge(approval, tool, spelling.format(root=project)).action != "deny"
        and not (spelling.endswith("pem") and tool in ("Edit", "Write"))
    ]
    assert reached == []


ASKED = [
    "src/out/data", "src/out", "../outside/data", "/etc/passwd", "~/x", "~root/x", "..", "/",
    "/proc/self/environ", "/proc/1/root/etc/passwd", "/dev/fd/0", "/proc/self/fd/0", "a\0b",
    "src/" + "../" * 40 + "etc/passwd", "\udcff/../../x",
]  # fmt: skip


def test_what_leads_out_is_asked_about(project: Path) -> None:
    approval = Approval(cwd=project, allow=["Edit(**)", "Read(**)"], deny=DENY)
    for path in ASKED:
        for tool in ("Read", "Grep", "Glob", "Edit", "Write"):
            assert judge(approval, tool, path).action == "ask", (tool, path)
    assert judge(approval, "Read", "x" * 5_000).action == "allow"  # there can be no such file
    assert judge(approval, "Read", "src/round").action == "allow"
    assert judge(approval, "Read", "src/app.py").action == "allow"


def test_commands_that_read_more_than_they_name(project: Path) -> None:
    approval = Approval(cwd=project, deny=["Read(.env)"])
    (project / "two").mkdir()
    (project / "two" / "out").symlink_to(project.parent / "outside" / "data")
    asked = [
        "diff -N pub src", "diff -N pub two", "diff pub/none two", "diff pub two*",
        "diff --from-file=src pub/none", "git diff --no-index pub src", "git diff --no-index a .",
        "git log -p --submodule=diff", "git diff --submod", "wc --files0-from=list",
        "du --files0=l", "find -files0-from list", "file -f list", "file --files-from=list",
    ]  # fmt: skip
    for command in asked:
        assert judge(approval, "Bash", command).action == "ask", command
    for command in ("diff src/app.py pub/x", "git diff pub", "wc -l pub/*", "du -sh src"):
        assert judge(approval, "Bash", command).action == "allow", command
    ruled = Approval(cwd=project, allow=["Bash(git log:*)", "Bash(wc:*)", "Bash(find:*)"])
    for command in ("git log -p --submodule=diff", "wc --files0-from=l", "find -files0-from l"):
        assert judge(ruled, "Bash", command).action == "ask", command


def test_what_is_kept_and_committed(project: Path) -> None:
    approval = Approval(cwd=project, deny=["Read(.env)"])
    shows = [
        "git show", "git log -p", 'git log -p -- "*env"', "git log -p --full-diff -- src/app.py",
        "git cat-file --batch-all-objects --batch", "git diff --cached", "git diff HEAD -- src",
        "git status -v", "git stash show -p", "git grep KEY HEAD", "git show 3f7b60f -- src/app.py",
        "git log -Lx:y", 'git diff -- ":/"', "git show 'HEAD@{10:00}'", "git show 'HEAD^{/a|:}'",
        "git show 'HEAD@{0 seconds:src/app.py}'", "git show 3F7B60F -- src/app.py",
        "git diff list", "git diff list --", "git show :/a", "git diff HEAD:src src/app.py",
        "git show HEAD:src -- src/app.py",
    ]  # fmt: skip
    others = [
        "git log --oneline -5", "git log --stat --author=x", "git status", "git diff --stat HEAD",
        "git diff src/app.py", "git log -p -- src/app.py pub", "git show HEAD:src/app.py",
        "git blame src/app.py", "git cat-file -t HEAD", "git ls-files", "git stash list",
        "git show :src/app.py", "git show :0:src/app.py", "git cat-file blob HEAD:./src/app.py",
    ]  # fmt: skip
    git(project, "init", "-q")
    git(project, "add", "src/app.py")
    for command in ("git show", "git log -p", "git diff --cached", *others):
        assert judge(approval, "Bash", command).action == "allow", command
    git(project, "add", "src/.env")
    for command in shows:
        assert judge(approval, "Bash", command).action == "ask", command
    for command in others:
        assert judge(approval, "Bash", command).action == "allow", command
    for command in ("git show HEAD:src/.env", "git blame src/.env", "git diff -- src/.env"):
        assert judge(approval, "Bash", command).action == "deny", command


def test_paths_in_commits_count_from_the_top(project: Path) -> None:
    (project / "src" / "secret").mkdir()
    (project / "src" / "secret" / "k").write_text("KEY")
    git(project, "init", "-q")
    git(project, "add", "src/secret/k", "src/app.py")
    rules = ["Read(secret/**)"]
    approval = Approval(cwd=project / "src", deny=rules, allow=["Bash(git show:*)"])
    for path in ("src/secret/k", "./secret/k", "../src/secret/k", "src/../src/secret/k"):
        assert judge(approval, "Bash", f"git show HEAD:{path}").action == "deny", path
        assert judge(approval, "Bash", f"git show :0:{path}").action == "deny", path
        assert judge(approval, "Bash", f"git show HEAD:{path} -- app.py").action == "deny", path
    asking = Approval(cwd=project / "src", deny=rules)
    assert judge(asking, "Bash", "git show HEAD:src").action == "ask"
    assert judge(asking, "Bash", "git show HEAD:./app.py").action == "allow"
    assert judge(asking, "Bash", "git show HEAD:src/app.py").action == "allow"


def test_capitals_count(project: Path) -> None:
    """On Linux another case is another file; where it is the same, the link check sees it."""
    approval = Approval(cwd=project, deny=DENY)
    assert judge(approval, "Read", "SECRET/key").action == "allow"


def test_a_pattern_does_not_reach_what_runs_by_itself(project: Path) -> None:
    approval = Approval(cwd=project, mode="accept-edits", allow=["Edit(**)", "Edit(src/**)"])
    for path in (".git/hooks/x", "src/.git/config", "src/.GIT/config", ".agentrc", ".ctxagent/x"):
        assert judge(approval, "Write", path).action == "ask", path
    approval.allow_for_session("Edit(src/.git/**)")
    assert judge(approval, "Write", "src/.git/config").action == "allow"
    assert judge(approval, "Write", ".git/config").action == "ask"


def test_what_the_agent_and_the_person_have_run_later(tmp_path: Path) -> None:
    home = Path.home()
    for cwd in (home, home.parent):
        there = Approval(cwd=cwd, mode="accept-edits", allow=["Edit(**)"])
        for path in (".config/git/config", ".local/bin/git", "bin/git", "BIN/git", ".xprofile"):
            assert judge(there, "Write", str(home / path)).action == "ask", path
        assert judge(there, "Write", str(home / "notes/.x")).action == "allow"
        there.allow_for_session("Edit(~/.config/git/**)")
        assert judge(there, "Write", str(home / ".config/git/config")).action == "allow"
    own, link = tmp_path / "cfg" / "agent", tmp_path / "link"
    own.mkdir(parents=True)
    link.symlink_to(own)
    near = Approval(cwd=tmp_path, mode="accept-edits", allow=["Edit(**)"], own=[own])
    for path in ("cfg/agent/agentrc", "CFG/agent/agentrc", "link/agents/x.md"):
        assert judge(near, "Write", path).action == "ask", path
    assert judge(near, "Write", "cfg/other").action == "allow"
    near.allow_for_session("Edit(cfg/agent/**)")
    assert judge(near, "Write", "cfg/agent/agentrc").action == "allow"


def test_a_session_does_not_write_its_own_settings(tmp_path: Path) -> None:
    place = Command(tmp_path)
    file = place.project / "cfg" / "mine"
    file.parent.mkdir()
    file.write_text("")
    writes = [("Write", {"path": path, "content": "x"}) for path in ("cfg/mine", "cfg/other")]
    with Server([Say(tools=writes), Say("Done.")]) as server:
        env = {**place.server(server.url), "CTXAGENT_CONFIG": str(file)}
        done = place.run("-p", "go", "--permission-mode", "accept-edits", env=env)
    assert done.returncode == 3, done.stderr
    assert file.read_text() == ""
    assert (file.parent / "other").exists()


def test_grep_does_not_find_what_is_kept(project: Path) -> None:
    """Not by text, name or number; and no answer tells whether there is something."""
    approval = Approval(cwd=project, mode="bypass", deny=DENY)
    env = {"PATH": os.environ["PATH"]}
    context = Context(cwd=project, env=env, is_denied=approval.denies_reading)
    for mode in ("content", "files", "count"):
        for path in (".", "src", "src/../"):
            params = GrepParams(pattern="KEY=", path=path, output_mode=mode, glob=None)
            output = asyncio.run(GrepTool().run(params, context))
            assert "app.py" in output.text
            assert not any(word in output.text for word in ("hidden", ".env", "pem", "secret"))
    answers = [
        asyncio.run(GrepTool().run(GrepParams(pattern=pattern), context)).text
        for pattern in ("KEY=hidden", "KEY=hiddex")
    ]
    assert answers[0].replace("hidden", "hiddex") == answers[1]


def test_glob_does_not_list_what_is_kept(project: Path) -> None:
    approval = Approval(cwd=project, mode="bypass", deny=DENY)
    env = {"PATH": os.environ["PATH"]}
    context = Context(cwd=project, env=env, is_denied=approval.denies_reading)
    for pattern in ("**", "**/.env", "*.pem", "src/*", "secret/**", "**/key"):
        listed = asyncio.run(GlobTool().run(GlobParams(pattern=pattern), context)).text.split("\n")
        found = {line for line in listed if not line.startswith(("[", "No files"))}
        assert found <= {"src/app.py", "src/out", "src/round"}, pattern


def test_a_search_says_nothing_of_what_is_kept_in_a_session(project: Path) -> None:
    talk = Conversation(
        project,
        [Step(tools=[("Grep", {"pattern": "KEY", "output_mode": "content"}),
                     ("Glob", {"pattern": "**"}),
                     ("Read", {"path": "src/to-key"})]), Step(text="Done.")],
        deny=DENY,
    )  # fmt: skip
    talk.say("Look.")
    texts = [str(each.content) for each in talk.of(ToolResult)]
    assert len(texts) == 3
    assert any("KEY=shown" in text for text in texts)
    assert not any("hidden" in text or "secret/key" in text for text in texts)
    assert any("Not allowed: reading src/to-key" in text for text in texts)


@pytest.mark.parametrize("tool", ["Read", "Write"])
def test_a_link_made_while_a_person_thinks(project: Path, tool: str) -> None:
    """What was asked about and what would be opened are the same file, or nothing is."""
    link = project / "src" / ("out" if tool == "Read" else "new")
    path = "src/out/data" if tool == "Read" else "src/new"
    given = {"path": path} if tool == "Read" else {"path": path, "content": "x"}

    async def swap(question: Question) -> Answer:
        link.unlink(missing_ok=True)
        link.symlink_to("/etc" if tool == "Read" else project.parent / "outside" / "data")
        return Answer(True)

    steps = [Step(tools=[(tool, given)]), Step(text="Done.")]
    talk = Conversation(project, steps, mode="ask", ask=swap)
    talk.say("Go on.")
    (result,) = talk.of(ToolResult)
    assert result.is_error
    assert "since it was asked about" in str(result.content)
    assert (project.parent / "outside" / "data").read_text() == "KEY=outside\n"


def test_a_link_made_between_looking_and_opening(project: Path) -> None:
    place = Place("src/app.py", project / "src" / "app.py", EVERY)
    with opened(place) as file:
        assert file.read() == b"KEY=shown\n"
    place.path.unlink()
    place.path.symlink_to(project / ".env")
    with pytest.raises(ToolError, match="leads elsewhere"), opened(place):
        pass
    folder = Place("pub/key", project / "pub" / "key", EVERY)
    (project / "pub").rmdir()
    (project / "pub").symlink_to("secret")
    with pytest.raises(ToolError, match="leads elsewhere"), opened(folder):
        pass
