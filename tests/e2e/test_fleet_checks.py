"""`ctxagent fleet` before the start and after the end: `check`, the canary, and `clean`."""

import json
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ctxagent.agent.loop.resume import resume_session

from ..support.fleet import BYPASS, Fleet, git
from ..support.server.loopback import Body, Fail, Say, Server, Step

WRITES = {"steps": [
    {"text": "", "tools": [{"name": "Write", "input": {"path": "made.txt", "content": "new"}}]},
    {"text": "Written."},
]}  # fmt: skip
TASKS = 25  # more than so many tasks have a canary


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


def writes(body: Body) -> Step:
    """Reply with a call that writes a file, then with an answer."""
    if body["messages"][-1]["role"] == "user" and len(body["messages"]) > 2:
        return Say("Done.")
    return Say("", tools=[("Write", {"path": "made.txt", "content": "new\n"})])


def branches(fleet: Fleet) -> tuple[str, str]:
    """Return the branches and the worktrees of the repository."""
    repository = fleet.place.project / "r0"
    listed = git(repository, "worktree", "list", "--porcelain")
    return git(repository, "branch", "--list"), listed


def test_all_mistakes_of_a_manifest_are_found_at_once_before_any_call(fleet: Fleet) -> None:
    project = fleet.place.project
    (project / "plain").mkdir()
    git(project, "init", "-q", "empty")
    good = {"prompt": "go", "dir": "r0"}
    lines = [
        {"id": "a", **good},
        {"id": "a", **good, "cores": 0, "promt": "x"},
        {"id": "b", **good, "time_limit": "60"},
        {"id": "c", "prompt": "go", "dir": "plain"},
        {"id": "d", "prompt": "go", "dir": "empty"},
        {"id": "e", "prompt": "go", "dir": "r00"},
        {"id": "f", "prompt": "go", "git": "r0", "commit": "mian"},
        {"id": "g", "prompt": "go", "git": "nowhere"},
        {"id": "h", "prompt": "Read @red.me and @read.me, then @app.route(x) of @types/node.",
         "dir": "r0"},
        {"defaults": {"dir": "r0"}},
        {"id": "i", "dir": "r0", "env": ["NOT_SET"]},
        {"id": "j", **good, "git": "r0"},
        {"id": "k", **good, "commit": "main"},
        {"id": "l", "prompt": "go"},
        {"id": "m", **good, "settings": {"model.idd": "x"}},
        {"id": "n", **good, "matrix": {"preset": 3, "model": ["a b"]}},
        {"id": "../o", **good},
    ]  # fmt: skip
    fleet.write(lines)
    text = "\n{\n" + '  "id": "p",\n  "prompt": "go",\n  "dir": "r0"\n}\n{"id": "q"\n'
    path = project / "tasks.jsonl"
    path.write_text(path.read_text() + text)
    expected = [
        '2: line 1 has the same id a. Give another, such as "a-2".',
        '2: cores must be a whole number above 0. Write "cores": 2.',
        "2: unknown key promt. Did you mean prompt?",
        '3: time_limit must be a number above 0. Write "time_limit": 60.',
        f"4: {project}/plain is not a git repository. Make it one and commit, or",
        f"5: {project}/empty has no commit. Make a commit there.",
        f"6: there is no directory {project}/r00. Did you mean r0?",
        f"7: {project}/r0 has no commit mian. It has main.",
        "8: there is no repository nowhere. Give a URL, or a path relative to the manifest.",
        f"9: there is no file red.me for @red.me in {project}/r0. Did you mean @read.me?",
        "10: defaults must be on the first line. Move it there, on its own line.",
        '11: prompt is missing. Write "prompt": "Fix the parser.".',
        "11: the variable NOT_SET is not set. export NOT_SET=…",
        "12: give dir or git, not both.",
        '13: commit needs git. Write "git": "r0", "commit": "main" without dir.',
        "14: no working directory: give dir, git or image.",
        "15: settings: no setting is called 'model.idd'",
        "16: matrix.preset must be an object of names and values, or a list.",
        '16: matrix.model: \'a b\' is not a valid name. Write {"good": "a b"}.',
        "17: id must be a name.",
        "19: an object over 5 lines. Write each object on one line",
        "24: invalid JSON at column 11: Expecting ',' delimiter.",
    ]
    with Server([]) as server:
        env = fleet.place.server(server.url)
        for words in (("check",), ("run",)):
            done = fleet.call(*words, env=env)
            assert done.returncode == 2
            told = done.stderr.splitlines()
            assert told[0] == f"ctxagent: {len(expected)} mistakes in tasks.jsonl:"
            assert len(told) == len(expected) + 1
            for start in expected:
                assert any(line.startswith(f"tasks.jsonl:{start}") for line in told), start
        assert server.requests == []
    assert not fleet.folder.ledger.exists()
    array = fleet.place.project / "tasks.jsonl"
    array.write_text(json.dumps([{"id": "a", **good}, {"id": "b", **good}], indent=1))
    done = fleet.call("check", *fleet.scripted(WRITES))
    assert (done.returncode, done.stderr.count("tasks.jsonl:")) == (2, 1)
    assert "tasks.jsonl:1: an array of 2 tasks" in done.stderr
    assert '{"id": "a", "prompt": "go", "dir": "r0"}' in done.stderr


def test_a_run_that_would_be_denied_is_refused_unless_it_is_wanted(fleet: Fleet) -> None:
    fleet.tasks(TASKS)
    with Server(writes) as server:
        env = fleet.place.server(server.url)
        refused = fleet.place.run("fleet", "run", "tasks.jsonl", env=env)
        assert (refused.returncode, server.requests) == (2, [])
        assert 'tasks.jsonl:1 and 24 more: in mode "ask" every edit is denied' in refused.stderr
        assert "--permission-mode accept-edits" in refused.stderr
        for reads in (("--permission-mode", "plan"), ("--deny", "Edit", "--deny", "Write")):
            checked = fleet.place.run(*reads, "fleet", "check", "tasks.jsonl", env=env)
            assert checked.returncode == 0, checked.stderr
        stopped = fleet.place.run("fleet", "run", "tasks.jsonl", "--yes", env=env)
        assert stopped.returncode == 4
        assert len(fleet.logs()) == 3
        assert "ctxagent: denied: Write" in stopped.stderr
        assert "all 3 first tasks failed for this cause, so 22 more tasks did not" in stopped.stderr
        assert "  3 tasks denied: Write" in stopped.stdout
        (command,) = (line.strip() for line in stopped.stdout.splitlines() if "retry" in line)
        retry, again = (shlex.split(part)[1:] for part in command.split(" && "))
        assert "accept-edits" in again
        assert fleet.place.run(*retry, env=env).returncode == 0
        assert fleet.place.run(*again, env=env).returncode == 0
    assert fleet.status()["done"] == TASKS


def test_a_score_with_a_typing_error_costs_nothing(fleet: Fleet) -> None:
    fleet.tasks(TASKS, score="pyhton3 --version")
    with Server(writes) as server:
        env = fleet.place.server(server.url)
        done = fleet.call("run", env=env)
        assert (done.returncode, server.requests) == (2, [])
    assert "the score ends with exit code 127 on an untouched place" in done.stderr
    assert "Did you mean python3?" in done.stderr
    assert sorted(path.name for path in fleet.place.project.iterdir()) == ["r0", "tasks.jsonl"]
    fleet.tasks(1, score="exit 3")
    checked = fleet.call("check", *fleet.scripted(WRITES))
    assert checked.returncode == 0
    assert "note: tasks.jsonl:1: the score ends with exit code 3" in checked.stdout


def test_a_wrong_model_stops_the_run_after_three_tasks(fleet: Fleet) -> None:
    fleet.tasks(TASKS)
    missing = Fail(404, "model: claude-sonet-5", kind="not_found_error")
    with Server(lambda body: missing) as server:
        env = fleet.place.server(server.url)
        done = fleet.call("run", "-c", "model.id=claude-sonet-5", env=env)
    assert done.returncode == 4, done.stderr
    status = fleet.status()
    assert (status["failed"], status["waiting"], status["calls"]) == (3, 22, 0)
    assert "all 3 first tasks failed for this cause" in done.stderr
    assert "choose a model that the server has, then: ctxagent fleet retry" in done.stdout
    assert "--model MODEL fleet run tasks.jsonl" in done.stdout


def test_the_check_names_changes_that_tasks_do_not_see_and_the_cost(fleet: Fleet) -> None:
    fleet.tasks(2)
    (fleet.place.project / "r0" / "read.me").write_text("changed\n")
    env = fleet.place.environ({"ANTHROPIC_API_KEY": "k"})
    told = fleet.call("check", env=env)
    assert told.returncode == 0, told.stderr
    assert "r0 has uncommitted changes, which tasks do not see: read.me" in told.stdout
    assert "note: expected cost of 2 tasks: $0.0" in told.stdout
    assert told.stdout.endswith("2 tasks: no mistakes\n")
    document = json.loads(fleet.call("check", "--json", env=env).stdout)
    assert (document["tasks"], document["ok"]) == (2, True)
    assert [each["level"] for each in document["findings"]] == ["note"]
    assert 0 < document["estimate"]["cost_usd"] < 0.1


def test_failures_are_grouped_by_cause(fleet: Fleet) -> None:
    lines = [{"id": f"t{n}", "prompt": f"Task {n}.", "dir": "r0"} for n in range(4)]
    lines[3]["score"] = {"command": "exit 5", "sandbox": False}  # type: ignore[assignment]
    fleet.write(lines)

    def reply(body: Body) -> Step:
        return Say("Done.") if "Task 3." in json.dumps(body) else Fail(400, "no such field")

    with Server(reply) as server:
        done = fleet.call("run", env=fleet.place.server(server.url))
    assert done.returncode == 1
    first, command, second, then = done.stdout.split("failures by cause:\n")[1].splitlines()
    assert first.startswith("  3 tasks rejected: ")
    assert first.endswith("(t0, t1, t2)")
    assert command.startswith("    choose a model that the server has, then: ctxagent fleet retry")
    assert second.startswith("  1 task score: the score ended with exit code 5")
    assert "no agent runs again, then: ctxagent fleet retry tasks.jsonl --failed-by score" in then
    causes = json.loads(fleet.call("status", "--json").stdout)["causes"]
    assert [(each["kind"], len(each["tasks"])) for each in causes] == [
        ("rejected", 3),
        ("score", 1),
    ]


def test_a_limit_of_calls_has_the_option_that_raises_it(fleet: Fleet) -> None:
    fleet.tasks(1)
    run = (*BYPASS, "--max-turns", "1", "fleet", "run", "tasks.jsonl", *fleet.scripted(WRITES))
    assert fleet.place.run(*run).returncode == 1
    (cause,) = json.loads(fleet.call("status", "--json").stdout)["causes"]
    assert cause["kind"] == "limit"
    assert "--max-turns 2 fleet run" in cause["command"]


def test_clean_removes_what_is_collected_and_keeps_the_rest(fleet: Fleet, tmp_path: Path) -> None:
    before, options, out = branches(fleet), fleet.scripted(WRITES), str(tmp_path / "out")
    fleet.tasks(3, score="echo x > cache; test -f made.txt")
    assert fleet.call("run", *options).returncode == 0
    nothing = {"steps": [{"text": "Nothing to do."}]}
    fleet.write([
        *({"id": f"t{n}", "prompt": f"Task {n}.", "dir": "r0"} for n in range(3)),
        {"id": "same", "prompt": "go", "dir": "r0"},
        {"id": "clone", "prompt": "go", "git": "r0"},
    ])  # fmt: skip
    assert fleet.call("run", *fleet.scripted(nothing)).returncode == 0
    (patch,) = fleet.place.project.glob("tasks.fleet/tasks/t2/*/patch.diff")
    moved = patch.rename(tmp_path / "patch.diff")
    kept = fleet.call("clean")
    moved.rename(patch)
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout.splitlines() == [
        "removed: 1 worktree with branches, 1 clone",
        "  stay    t0, t1, t2: its changes are not collected",
        "          ctxagent fleet collect tasks.jsonl DIR, then clean again",
    ]
    assert fleet.call("collect", out).returncode == 0
    place = Path(json.loads(fleet.call("show", "t1", "--json").stdout)["place"])
    (place / "mine.txt").write_text("later work\n")
    tried = json.loads(fleet.call("clean", "--dry-run", "--json").stdout)
    assert [each["id"] for each in tried["removed"]] == ["t0", "t2"]
    assert len(branches(fleet)[0].splitlines()) == 4
    fleet.call("clean")
    assert place.exists()
    assert (
        git(fleet.place.project / "r0", "branch", "--list")
        .splitlines()[0]
        .startswith("+ ctxagent/t1-")
    )
    (place / "mine.txt").unlink()
    (log,) = (log for log in fleet.logs() if log.parent.name.endswith(place.name[-6:]))
    opened, _, _ = resume_session(log)
    with closing(opened):
        stays = "  stay    t1: its session is open in another process"
        assert stays in fleet.call("clean").stdout.splitlines()
    assert "removed: 1 worktree" in fleet.call("clean").stdout
    assert branches(fleet) == before
    assert not (fleet.place.project / "r0-worktrees").exists()
    assert fleet.call("clean").stdout == "removed: 0 worktrees with branches, 0 clones\n"
    assert fleet.status()["done"] == 5


def test_clean_keeps_the_places_of_unfinished_tasks(fleet: Fleet, tmp_path: Path) -> None:
    fleet.tasks(1)
    ends = fleet.scripted({"steps": WRITES["steps"][:1]})
    assert fleet.call("run", *ends).returncode == 1
    fleet.call("collect", str(tmp_path / "out"))
    assert "t0: `fleet retry` continues the task there; --all" in fleet.call("clean").stdout
    fleet.call("retry")
    assert "  stay    t0: the next run continues the task" in fleet.call("clean", "--all").stdout
    assert fleet.call("run", *ends).returncode == 1
    fleet.call("collect", str(tmp_path / "out"))
    assert "removed: 1 worktree" in fleet.call("clean", "--all").stdout


def test_clean_keeps_work_that_no_patch_contains(fleet: Fleet, tmp_path: Path) -> None:
    made = "mkdir library; cd library; git init -q; echo work > made.txt; git add .; "
    command = f"{made} git -c user.name=a -c user.email=a@example.com commit -q -m work"
    nests = [{"text": "", "tools": [{"name": "Bash", "input": {"command": command}}]}]
    tasks: list[dict[str, str]] = [{"id": "nested", "prompt": "go", "dir": "r0"}]
    fleet.write(tasks)
    script = {"steps": [*nests, *WRITES["steps"]]}
    assert fleet.call("run", *fleet.scripted(script)).returncode == 0
    ids = ("branch", "stash")
    fleet.write([*tasks, *({"id": id, "prompt": "go", "git": "r0"} for id in ids)])
    assert fleet.call("run", *fleet.scripted(WRITES)).returncode == 0
    for id in ids:
        (place,) = fleet.place.project.glob(f"tasks.fleet/**/{id}/**/place")
        if id == "stash":
            git(place, "stash", "--include-untracked")
            continue
        git(place, "checkout", "-q", "-b", "later")
        git(place, "add", ".")
        git(place, "commit", "-q", "-m", "later")
        git(place, "checkout", "-q", "--detach", "HEAD~")
    fleet.call("collect", str(tmp_path / "out"))
    assert fleet.call("clean").stdout.splitlines() == [
        "removed: 0 worktrees with branches, 0 clones",
        "  stay    nested: it contains a repository, whose files are not in the patch",
        "  stay    branch, stash: it has commits that are not checked out",
    ]


@pytest.mark.full
def test_a_hundred_worktrees_are_cleaned(fleet: Fleet, tmp_path: Path) -> None:
    before = branches(fleet)
    fleet.tasks(100)
    assert fleet.call("run", *fleet.scripted(WRITES), "--jobs", "8").returncode == 0
    assert fleet.call("collect", str(tmp_path / "out")).returncode == 0
    assert "removed: 100 worktrees with branches" in fleet.call("clean").stdout
    assert branches(fleet) == before
