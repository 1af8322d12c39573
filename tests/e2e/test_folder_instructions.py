"""Instruction files of folders, imports, rules and files of other agents, with the real command:
the context has each text once, when it applies.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctxagent.agent.context import tokens

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.server.loopback import Step as Reply
from ..support.sessions.killed import write_killed
from ..support.terminal.screen import Terminal
from .test_compact import KEEP_LITTLE, RECORD
from .test_instruction_files import asked, told

PACKAGES = tuple(f"packages/p{n}" for n in range(10))
NESTED = ("packages", *PACKAGES, "packages/p0/deep")  # folders with instructions of their own
IMPORTS = ("docs/style", "packages/p1/notes", "docs/shared")
WINDOW = 200_000


def rule(name: str) -> str:
    """Return the text of a file in the monorepo. The name in it occurs in no other text."""
    return f"Obey the rule <{name}>."


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A monorepo with twelve nested instruction files and three imported ones."""
    place = Place(tmp_path)
    root = place.project
    (root / ".git").mkdir()
    for folder in NESTED:
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "x.py").write_text("x = 1\n")
        name = "CLAUDE.md" if folder.endswith("p5") else "AGENTS.md"
        (root / folder / name).write_text(f"{rule(folder)}\n")
    (root / "docs").mkdir()
    for name in IMPORTS:
        (root / f"{name}.md").write_text(f"{rule(name)}\n")
    (root / "AGENTS.md").write_text(f"{rule('root')}\nSee @docs/style.md.\n")
    for folder, name in (
        ("p1", "notes.md"),
        ("p2", "../../docs/shared.md"),
        ("p3", "../../docs/shared.md"),
    ):
        path = root / "packages" / folder / "AGENTS.md"
        path.write_text(f"{path.read_text()}@{name}\n`@missing.md`\n```\n@missing.md\n```\n")
    return place


def counts(body: Body, *names: str) -> list[int]:
    text = told(body)
    return [text.count(rule(name)) for name in names]


def standing(body: Body) -> set[str]:
    """Return the rules in a request. Each is there once."""
    found = re.findall(r"Obey the rule <([^>]+)>", told(body))
    assert len(found) == len(set(found))
    return set(found)


def reads(*folders: str) -> Say:
    return Say(tools=[("Read", {"path": f"{folder}/x.py"}) for folder in folders])


def test_each_file_is_sent_once_when_its_folder_is_used(place: Place) -> None:
    steps = [reads(folder) for folder in (*PACKAGES, *reversed(PACKAGES), "packages/p0/deep")]
    with Server([*steps, Say("Done.")]) as server:
        asked(place, server, words="go")
    known = {"root", "docs/style"}
    for place_in_turn, body in enumerate(server.requests):
        assert standing(body) == known
        if place_in_turn < len(PACKAGES):
            known |= {"packages", PACKAGES[place_in_turn]}
            known |= {1: {"packages/p1/notes"}, 2: {"docs/shared"}}.get(place_in_turn, set())
        elif place_in_turn == 2 * len(PACKAGES):
            known.add("packages/p0/deep")
    assert known == {"root", *NESTED, *IMPORTS}
    text = told(server.requests[-1])
    folder = place.project / "packages" / "p1"
    assert (
        f"Instructions from {folder}/AGENTS.md, for work in its folder:\n\n{rule('packages/p1')}"
        in text
    )
    assert f"Instructions from {folder}/notes.md, which {folder}/AGENTS.md imports, for" in text
    assert text.index(rule("packages/p1/notes")) < text.index(rule("packages/p1"))
    entries = [e for e in place.entries() if e.get("source") == "instructions"]
    assert len(entries) == 1 + len(NESTED) + len(IMPORTS)
    assert sum(tokens.estimate(e["content"]) for e in entries) < WINDOW / 10


def test_commands_attachments_and_edits_count_too(place: Place) -> None:
    steps = [
        Say(tools=[("Bash", {"command": "cat packages/p2/x.py"})]),
        Say(tools=[("Bash", {"command": "cd packages/p3 && head -1 x.py"})]),
        Say(tools=[("Write", {"path": "packages/p4/new.py", "content": "x"})]),
        Say(
            tools=[
                ("Grep", {"pattern": "x", "path": "packages/p6"}),
                ("Bash", {"command": "ls packages/p7"}),
            ]
        ),
        Say(tools=[("Read", {"path": "packages/p8/none.py"})]),
        Say("Done."),
    ]
    with Server(steps) as server:
        asked(place, server, "--permission-mode", "bypass", words="look at @packages/p0/x.py")
    known = {"root", "docs/style", "packages", "packages/p0"}
    for body, more in zip(
        server.requests,
        (set(), {"packages/p2", "docs/shared"}, {"packages/p3"}, {"packages/p4"}, set(), set()),
        strict=True,
    ):
        known |= more
        assert standing(body) == known


def test_files_over_the_budget_are_named(place: Place) -> None:
    large, huge = place.project / "packages/p1/AGENTS.md", place.project / "packages/p2/AGENTS.md"
    large.write_text(f"{rule('packages/p1')}\n" + "Sort the imports of each module. " * 400)
    huge.write_text(f"{rule('packages/p2')}\n" + "Sort the imports of each module. " * 900)
    window = 40_000
    with Server([reads("packages/p1", "packages/p2"), Say("Done.")]) as server:
        seen = asked(place, server, "-c", f"model.context_window={window}", words="go")
    entries = [e for e in place.entries() if e.get("source") == "instructions"]
    assert sum(tokens.estimate(e["content"]) for e in entries) <= window / 10
    assert told(server.requests[-1]).count("[cut here: the rest is over the budget for") == 1
    assert re.search(rf"{huge}: [\d,]+ of its tokens are left out, since instruction files", seen)
    assert f"{large}: " not in seen
    assert standing(server.requests[-1]) >= {"packages/p1", "packages/p2"}


def test_right_instructions_after_a_summary_a_kill_and_a_resume(place: Place) -> None:
    pid = list[int]()

    def script() -> Iterator[Reply | Callable[[], Reply]]:
        yield reads(*PACKAGES[:4])
        yield Say("Done.")
        yield Say(RECORD)
        yield Say("Nothing to do.")
        yield reads("packages/p1")
        yield kill
        yield Say("Going on.")
        yield Say("Going on.")

    def kill() -> Reply:
        os.kill(pid[0], signal.SIGKILL)
        return Say("unheard")

    steps = script()

    def answer(body: Body) -> Reply:
        step = next(steps)
        return step() if callable(step) else step

    always, first = {"root", "docs/style"}, {"packages", "packages/p1", "packages/p1/notes"}
    with Server(answer) as server:
        env = place.server(server.url)
        assert place.run("-p", "read", env=env).returncode == 0
        assert standing(server.requests[-1]) >= {*always, *PACKAGES[:4]}
        done = place.run(*KEEP_LITTLE, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        assert place.run("--continue", "-p", "go on", env=env).returncode == 0
        assert standing(server.requests[-1]) == always
        with place.start("--continue", "-p", "read p1", env=env) as process:
            pid.append(process.pid)
            process.wait()
        assert process.returncode == -signal.SIGKILL
        assert standing(server.requests[-1]) == always | first
        (log,) = place.logs()
        lines = log.read_bytes().splitlines(keepends=True)
        for killed_at in (
            len(lines),
            max(n for n, line in enumerate(lines) if b'"tool_result"' in line) + 1,
        ):
            write_killed(log, lines[:killed_at])
            assert place.run("--continue", "-p", "go on", env=env).returncode == 0
            assert standing(server.requests[-1]) == always | first
    assert server.rejected == []


def test_subagent_gets_instructions_for_its_own_work(place: Place) -> None:
    def answer(body: Body) -> Reply:
        text = told(body)
        if "You are a subagent" in text:
            return Say("Seen.") if "x = 1" in str(body) else reads("packages/p4")
        task = {"description": "look", "prompt": "read p4", "type": "explore"}
        return Say("Done.") if "Seen." in str(body) else Say(tools=[("Task", task)])

    with Server(answer) as server:
        asked(place, server, words="go")
    known = [standing(body) for body in server.requests]
    always = {"root", "docs/style"}
    assert known == [always, always, always | {"packages", "packages/p4"}, always]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_places_of_other_agents_and_their_order(place: Place) -> None:
    home, root = place.root / "home", place.project
    write(home / ".claude/CLAUDE.md", f"{rule('home')}\n@~/.claude/more.md")
    write(home / ".claude/more.md", rule("more"))
    write(home / ".claude/rules/mine.md", rule("mine"))
    write(home / ".codex/AGENTS.md", rule("codex"))
    write(home / ".config/ctxagent/AGENTS.md", rule("own"))
    write(root / ".claude/CLAUDE.md", rule("claude"))
    write(root / "CLAUDE.md", rule("root"))
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    write(root / ".claude/rules/b/always.md", f"---\ntitle: x\n---\n{rule('always')}")
    write(
        root / ".claude/rules/python.md", f"---\npaths:\n  - **/*.{{py,pyi}}\n---\n{rule('python')}"
    )
    write(root / ".claude/rules/web.md", f'---\npaths: "web/**"\n---\n{rule("web")}')
    write(root / "CLAUDE.local.md", rule("local"))
    with Server([reads("packages/p6"), Say("Done.")]) as server:
        asked(place, server, words="go")
    first = re.findall(r"Obey the rule <([^>]+)>", told(server.requests[0]))
    assert first == ["more", "home", "mine", "own", "root", "claude", "always", "local"]
    later = standing(server.requests[1]) - {*first}
    assert later == {"python", "packages", "packages/p6"}
    assert "python.md, for files that match **/*.py, **/*.pyi:" in told(server.requests[1])


def test_codex_file_is_used_if_there_is_no_other(place: Place) -> None:
    write(place.root / "home/.codex/AGENTS.md", rule("codex"))
    with Server([Say("Done.")]) as server:
        asked(place, server, words="go")
    assert "codex" in standing(server.requests[0])


def test_imports_stay_in_the_project_and_are_named_once(place: Place) -> None:
    root, home = place.project, place.root / "home"
    write(home / "secret.txt", "s3cret")
    write(home / ".claude/.credentials.json", "s3cret")
    write(home / ".claude/mine.md", rule("mine"))
    (root / "docs/link.md").symlink_to(home / "secret.txt")
    names = ("~/secret.txt", "docs/link.md", "~/.claude/.credentials.json", "docs/none.md")
    write(root / "docs/style.md", f"{rule('docs/style')} @../AGENTS.md @types/node")
    chain = [f"docs/c{n}.md" for n in range(1, 7)]
    for name, following in zip(chain, [*chain[1:], "docs/none.md"], strict=True):
        write(root / name, f"{rule(name)} @{Path(following).name}")
    lines = "\n".join(
        f"- @{name}" for name in (*names, "~/.claude/mine.md", chain[0], "docs/style.md")
    )
    write(root / "AGENTS.md", f"{rule('root')}\n{lines}\n")
    with Server([Say("One."), Say("Two.")]) as server:
        seen = asked(place, server, words="go")
        asked(place, server, "--continue")
    assert standing(server.requests[-1]) == {"root", "docs/style", "mine", *chain[:5]}
    text = told(server.requests[-1])
    assert "s3cret" not in text
    for name in names[:3]:
        assert text.count(f"[@{name} is not imported: it is outside of the project]") == 1
        assert seen.count(f"@{name} is not imported: it is outside of the project") == 1
    assert text.count("[@docs/none.md is not imported: there is no such file]") == 1
    assert text.count("[@c6.md is not imported: it is more than 5 imports away]") == 1
    assert "types/node is not" not in text
    assert seen.count(f"imports {root}/AGENTS.md, which imports it: given once") == 1


def test_changes_are_told_once(place: Place) -> None:
    path, notes = (place.project / "packages/p1" / name for name in ("AGENTS.md", "notes.md"))
    with Server([reads("packages/p1"), *[Say("Done.")] * 4]) as server:
        asked(place, server, words="go")
        notes.write_text(f"{rule('new notes')}\n")
        asked(place, server, "--continue")
        path.write_text("Nothing more.\n")
        seen = asked(place, server, "--continue")
        asked(place, server, "--continue")
    text = told(server.requests[-1])
    assert counts(server.requests[-1], "new notes", "packages/p1/notes") == [1, 1]
    heading = f"Instructions from {notes}, which {path} imports, for work in its folder"
    assert text.count(f"{heading}, which has changed.") == 1
    assert text.count(f"{notes} is not imported any more") == 1
    assert f"{path} has changed" in seen


def test_added_directories_have_instructions(place: Place) -> None:
    library = place.root / "library"
    write(library / "AGENTS.md", rule("library"))
    write(library / "in/AGENTS.md", rule("in"))
    write(library / "in/x.py", "x = 1\n")
    (place.root / "home/elsewhere").mkdir()
    write(place.root / "elsewhere/AGENTS.md", rule("elsewhere"))
    write(place.root / "elsewhere/x.py", "x = 1\n")
    steps = [reads(f"{library}/in", f"{place.root}/elsewhere"), Say("Done."), Say("Done.")]
    with Server(steps) as server:
        asked(place, server, "--add-dir", str(library), "--permission-mode", "bypass", words="go")
        asked(place, server, "--continue")
    always = {"root", "docs/style", "library"}
    assert standing(server.requests[0]) == always
    assert standing(server.requests[1]) == standing(server.requests[2]) == always | {"in"}
    assert f"{library}/AGENTS.md, for work in its folder:" in told(server.requests[0])


def test_a_nested_file_that_others_may_write_waits_for_trust(place: Place) -> None:
    folder = place.project / "packages/p6"
    (folder / "AGENTS.md").chmod(0o666)
    with Server([reads("packages/p6"), Say("Done."), Say("Done.")]) as server:
        seen = asked(place, server, words="go")
        assert "packages/p6" not in standing(server.requests[-1])
        assert f"{folder}/AGENTS.md is ignored: everyone may write to" in seen
        assert place.run("config", "--trust", cwd=folder).returncode == 0
        asked(place, server, "--continue")
    assert "packages/p6" in standing(server.requests[-1])


def test_packages_of_third_parties_give_no_instructions(place: Place) -> None:
    write(place.project / "node_modules/evil/AGENTS.md", rule("evil"))
    write(place.project / "node_modules/evil/x.py", "x = 1\n")
    with Server([reads("node_modules/evil"), Say("Done.")]) as server:
        asked(place, server, words="go")
    assert standing(server.requests[-1]) == {"root", "docs/style"}


def test_context_and_memory_list_them_in_their_order(place: Place) -> None:
    write(place.project / ".claude/rules/web.md", f"---\npaths: web/**\n---\n{rule('web')}")
    editor = place.root / "editor"
    editor.write_text(f"#!/bin/sh\necho '{rule('edited')}' >> \"$1\"\n")
    editor.chmod(0o755)
    with Server([reads("packages/p6"), Say("One."), Say("Two.")]) as server:
        env = {**place.server(server.url), "EDITOR": str(editor), "VISUAL": ""}
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("look\r")
        terminal.see("One.")
        terminal.rest()
        terminal.type("/context report\r")
        terminal.see("next compaction")
        terminal.rest()
        order = ("docs/style.md", "AGENTS.md", "packages/AGENTS.md", "packages/p6/AGENTS.md")
        listed = terminal.text().partition("instruction files: ")[2]
        assert re.findall(r"^ +(\S+\.md) +\d+", listed, re.MULTILINE) == [*order]
        terminal.type("/memory\r")
        terminal.see("not in the context: ")
        terminal.type("p6")
        terminal.see("❯ packages/p6/AGENTS.md")
        terminal.type("\r")
        terminal.see(lambda text: "is saved" in " ".join(text.split()))  # on one row or two
        terminal.type("go on\r")
        terminal.see("Two.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert told(server.requests[-1]).count(rule("edited")) == 1
