"""Skills with the real command: listed, loaded, and kept verbatim in every case."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from ..support.command import Place
from ..support.keeper import LIMITS, Keeper, kill_in_a_turn, of_turns, texts, told
from ..support.server.loopback import Say, Server
from ..support.server.wires import Wire, over_each_wire
from ..support.sessions.killed import write_killed
from ..support.terminal.screen import Terminal

WALRUS = "\n".join(f"Step {n}: feed the walrus {n * 37} herrings, never {n}." for n in range(30))
HERON = "\n".join(f"Rule {n}: a heron is watched for {n * 13} minutes." for n in range(25))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def write(folder: Path, name: str, body: str, **values: str) -> Path:
    """Write a skill below a folder that has `skills/`, and return its folder."""
    home = folder / "skills" / name
    home.mkdir(parents=True, exist_ok=True)
    given = {"name": name, "description": f"How to care for a {name}: all of it", **values}
    head = "\n".join(f"{key.replace('_', '-')}: {value}" for key, value in given.items())
    (home / "SKILL.md").write_text(f"---\n{head}\n---\n{body}\n")
    return home


def own(place: Place) -> Path:
    return place.root / "home" / ".config" / "ctxagent"


def use(name: str | None = None) -> Say:
    return Say(tools=[("Skill", {"name": name} if name else {})])


def ran(
    place: Place, steps: list[Say], *arguments: str, task: str = "go", code: int = 0,
    wire: Wire = Server,
) -> tuple[Server, "subprocess.CompletedProcess[str]"]:  # fmt: skip
    with wire(steps) as server:
        done = place.run("-p", task, *arguments, env=place.environ(server.variables))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    return server, done


def test_model_loads_a_skill(place: Place) -> None:
    folder = write(own(place), "walrus", f"See ${{CLAUDE_SKILL_DIR}}/food.md.\n{WALRUS}")
    (folder / "food.md").write_text("herrings\n")
    read = Say(tools=[("Read", {"path": str(folder / "food.md")})])
    steps = [use("walrus"), read, use("walrus"), use(), use("gnu"), Say("Done.")]
    server, done = ran(place, steps)
    first, last = server.requests[0], told(server.requests[-1])
    assert "- walrus: How to care for a walrus: all of it" in told(first)
    assert WALRUS not in told(first)
    assert last.count(WALRUS) == 1
    assert f"See {folder}/food.md." in last
    assert "1\therrings" in last, "its folder is read without a question"
    assert "The skill walrus stands in the context already, as #" in last
    assert "There is no skill 'gnu'." in last
    assert last.count("- walrus: How to care") == 2, "in the first list, and in the one asked for"
    assert "Skill" in {tool["name"] for tool in first["tools"]}
    assert "denied" not in done.stderr


def test_no_tool_without_skills(place: Place) -> None:
    server, _ = ran(place, [Say("Done.")])
    assert "Skill" not in {tool["name"] for tool in server.requests[0]["tools"]}


def test_user_loads_a_skill(place: Place) -> None:
    body = f"Say $ARGUMENTS.\n{WALRUS}"
    write(own(place), "walrus", body, disable_model_invocation="true",
          allowed_tools="Bash(touch fed)")  # fmt: skip
    touch = Say(tools=[("Bash", {"command": "touch fed"})])
    steps = [touch, use("walrus"), Say("Done.")]
    server, _ = ran(place, steps, task="/walrus twice a $1 day")
    first = told(server.requests[0])
    assert "/walrus twice a $1 day" in first
    assert first.count(body) == 1
    assert "$ARGUMENTS in it stands for what the user wrote behind /walrus" in first
    assert "- walrus:" not in first, "the model cannot load it, so it is not told of it"
    assert "is for people: the user loads it with /walrus" in told(server.requests[-1])
    assert (place.project / "fed").exists()


def test_skills_of_a_project_need_trust(place: Place) -> None:
    for name, place_of in (("walrus", ".claude"), ("heron", ".agents"), ("gnu", ".ctxagent")):
        write(place.project / place_of, name, WALRUS.replace("walrus", name))
    (place.project / ".claude" / "skills" / "away").symlink_to(place.root)
    (place.root / "SKILL.md").write_text("---\nname: away\ndescription: d\n---\nx\n")
    server, done = ran(place, [Say("No.")])
    assert "1 skill not trusted, so left out" in done.stderr
    assert "ctxagent config --trust" in done.stderr
    assert "it is a link that leads out of the project" in done.stderr
    assert "walrus" not in told(server.requests[0])
    assert place.run("config", "--trust", env=place.environ()).returncode == 0
    server, _ = ran(place, [use("heron"), Say("No.")])
    said = told(server.requests[-1])
    assert all(f"- {name}: How" in said for name in ("walrus", "heron", "gnu"))
    assert "feed the heron 37 herrings" in said
    path = place.project / ".agents" / "skills" / "heron" / "SKILL.md"
    path.write_text(path.read_text() + "One more.\n")
    server, done = ran(place, [Say("No.")])
    assert "1 skill not trusted" in done.stderr
    assert "heron" not in told(server.requests[0])


def test_files_for_other_agents(place: Place) -> None:
    """A BOM, an unquoted colon, a name that differs from the folder's, a broken file, a file of 2
    MB.
    """
    folder = write(own(place), "odd", "Feed it.")
    path = folder / "SKILL.md"
    path.write_text(
        "\ufeff---\nname: Else\ndescription: use when: it is \u200bodd\n---\nFeed it.\n"
    )
    write(own(place), "empty", "")
    write(own(place), "large", "x" * 2_000_000)
    bad = write(own(place), "bad", "x") / "SKILL.md"
    bad.write_text("---\nname: bad\n---\nx\n")
    (write(own(place), "pipe", "x") / "SKILL.md").unlink()
    os.mkfifo(own(place) / "skills" / "pipe" / "SKILL.md")
    server, done = ran(place, [use("odd"), Say("No.")])
    assert "- odd: use when: it is" in told(server.requests[0])
    assert "\u200b" not in told(server.requests[0])
    assert "Feed it." in told(server.requests[-1])
    left_out = "SKILL.md: this skill is left out: "
    found = " ".join(place.run("doctor", env=place.server(server.url)).stdout.split())
    assert "skills: odd" in found
    for told_of in (done.stderr, found):
        assert f"empty/{left_out}there is no text" in told_of
        assert f"large/{left_out}it is larger than" in told_of
        assert f"bad/{left_out}its front matter has no description" in told_of


def test_the_list_is_bounded_and_the_one_used_last_comes_first(place: Place) -> None:
    for number in range(60):
        write(own(place), f"skill-{number:02}", "x", description="word " * 60)
    window = ("--context-window", "30000")
    server, _ = ran(place, [use("skill-59"), Say("No.")], *window)
    first = told(server.requests[0])
    shown = first.count("\n- skill-")
    assert 0 < shown < 12
    assert f"{60 - shown} skills, used longest ago, not shown here" in first
    assert "- skill-59" not in first
    server, _ = ran(place, [Say("No.")], *window)
    assert told(server.requests[0]).index("- skill-59") < told(server.requests[0]).index(
        "- skill-00"
    )


def test_skill_left_out_after_a_summary_is_reported_and_can_be_loaded_again(place: Place) -> None:
    """Five skills need more room than all skills may take. The first is left out, and returns when
    it is loaded again.
    """
    bodies = {}
    for name in "abcde":
        bodies[name] = "\n".join(f"Step {n} of {name}: do number {n * 37}." for n in range(100))
        write(own(place), name, bodies[name])
    keeper = Keeper()
    together = Say(tools=[("Skill", {"name": name}) for name in bodies])
    keeper.queue, keeper.until = [together], 2
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", *LIMITS, env=env)
        assert done.returncode == 0, done.stderr
        last = told(server.requests[-1])
        assert bodies["a"] not in last
        assert bodies["e"] in last
        assert "the skill a is cut after the summary" in done.stderr
        keeper.queue = [use("a")]
        done = place.run("-p", "again", *LIMITS, "--continue", env=env)
        assert done.returncode == 0, done.stderr
        assert told(server.requests[-1]).count(bodies["a"]) == 1
        keeper.until = keeper.summaries + 2
        done = place.run("-p", "on", *LIMITS, "--continue", env=env)
        assert done.returncode == 0, done.stderr
    assert told(server.requests[-1]).count(bodies["a"]) == 1, "the one loaded last stays"
    assert server.rejected == []


def test_a_text_that_was_changed_and_changed_back(place: Place) -> None:
    write(own(place), "walrus", WALRUS)
    ran(place, [use("walrus"), Say("One.")])
    write(own(place), "walrus", HERON)
    ran(place, [use("walrus"), Say("Two.")], "--continue")
    write(own(place), "walrus", WALRUS)
    ran(place, [use("walrus"), Say("Three.")], "--continue")
    keeper = Keeper()
    keeper.until = 2
    with Server(keeper, window=24_000) as server:
        done = place.run("-p", "on", *LIMITS, "--continue", env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    last = told(server.requests[-1])
    assert (last.count(WALRUS), last.count(HERON)) == (1, 0)


def test_a_linked_one_is_read_and_a_denied_one_not_offered(place: Place) -> None:
    real = write(place.root / "dotfiles", "walrus", "Read ${SKILL_DIR}/food.md.")
    (real / "food.md").write_text("herrings\n")
    (own(place) / "skills").mkdir(parents=True)
    (own(place) / "skills" / "walrus").symlink_to(real)
    write(own(place), "heron", HERON)
    read = Say(tools=[("Read", {"path": str(own(place) / "skills/walrus/food.md")})])
    steps = [use("/walrus"), read, use("herron"), Say("Done.")]
    server, _ = ran(place, steps, "--deny", "Skill(heron)")
    said = told(server.requests[-1])
    assert "1\therrings" in said
    assert "- heron:" not in said
    assert "There is no skill 'herron'" in said


def test_messages_that_load_no_skill(place: Place) -> None:
    write(own(place), "etc", WALRUS)
    for words in ("/ etc", "/etc/passwd is odd", "see /etc"):
        server, _ = ran(place, [Say("No.")], task=words)
        assert WALRUS not in told(server.requests[-1])


def test_invalid_skills_are_reported_once(place: Place) -> None:
    write(own(place), "empty", "")
    with Server([Say("One."), Say("Two.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        for words, answer in (("go", "One."), ("on", "Two.")):
            terminal.type(f"{words}\r")
            terminal.see(answer)
            terminal.rest()
        terminal.type("/help full\r")
        terminal.see("/unfold")
        terminal.rest()
        told_of = terminal.text().count("this skill is left out")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert told_of == 1


def test_only_changes_of_the_list_are_sent_again(place: Place) -> None:
    for name in ("walrus", "heron", "gnu"):
        write(own(place), name, WALRUS)
    ran(place, [Say("No.")])
    write(own(place), "heron", HERON, description="Another one")
    (own(place) / "skills" / "gnu" / "SKILL.md").unlink()
    write(own(place), "crane", HERON)
    server, _ = ran(place, [Say("No.")], "--continue")
    said = told(server.requests[0])
    assert said.count("- walrus:") == 1
    assert "Skills that are new or have changed:\n- crane: How to care" in said
    assert "- heron: Another one" in said
    assert "Skills that are no longer there: gnu." in said
    server, _ = ran(place, [Say("No.")], "--continue")
    assert told(server.requests[0]).startswith(said[:200])
    assert told(server.requests[0]).count("no longer there") == 1


@pytest.mark.variants
@over_each_wire
def test_large_skill_is_cut_with_a_note_and_recalled(place: Place, wire: Wire) -> None:
    body = "\n".join(f"Line {n} of a long story about a walrus." for n in range(2_000))
    write(own(place), "walrus", f"{body}\nThe end of the walrus.")
    window = ("--context-window", "30000")
    server, done = ran(place, [use("walrus"), Say("No.")], *window, wire=wire)
    said = told(server.requests[-1])
    assert "Line 20 of a long story" in said
    assert "Line 900 of" not in said
    ref = said.partition("more characters of this skill; Recall #")[2].partition(" ")[0]
    assert ref.isdecimal()
    assert "the skill walrus is cut" in done.stderr
    recall = Say(tools=[("Recall", {"ref": f"#{ref}", "offset": len(body) - 1_000})])
    window = ("--context-window", "200000")
    server, _ = ran(place, [recall, Say("No.")], "--continue", *window, wire=wire)
    assert "The end of the walrus." in told(server.requests[-1])


def counts(server: Server, body: str, start: int = 0) -> list[int]:
    """Return how often a text is in each request, from the first request that has it."""
    found = [told(each).count(body) for each in of_turns(server.requests[start:])]
    return found[next((n for n, count in enumerate(found) if count), len(found)) :]


@pytest.mark.full
def test_eight_summaries_with_kills_resumes_a_copy_and_a_rewind(place: Place) -> None:
    """Every request after the loading has both skills exactly once."""
    write(own(place), "walrus", WALRUS)
    write(own(place), "heron", HERON)
    keeper = Keeper()
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)

        def go_on(words: str, summaries: int, *arguments: str) -> None:
            keeper.until = keeper.summaries + summaries
            done = place.run("-p", words, *LIMITS, *arguments, env=env)
            assert done.returncode == 0, done.stderr

        keeper.queue = [use("heron")]
        go_on("/walrus feed it", 2)
        session = place.logs()[0].parent.name
        kill_in_a_turn(place, env, keeper)
        go_on("go on", 1, "--resume", session)
        kill_in_a_turn(place, env, keeper)
        go_on("go on", 1, "--resume", session)
        start = len(server.requests)
        go_on("go on in a copy", 1, "--resume", session, "--fork")
        assert all(count == 1 for count in counts(server, WALRUS, start))
        terminal = Terminal("--resume", session, *LIMITS, cwd=place.project, env=env)
        terminal.see("❯")
        keeper.until = keeper.summaries + 1
        terminal.type("and on\r")
        terminal.see("All done.")
        terminal.rest()
        terminal.type("/compact\r")
        terminal.see("/compact --show asks first")
        terminal.rest()
        terminal.type("/uncompact\r")
        terminal.see("undone: ")
        terminal.rest()
        terminal.type("/rewind 4\r")
        terminal.keys("[c]onversation")
        terminal.type("c")
        terminal.see("this is a copy")
        terminal.rest()
        keeper.until, start = keeper.summaries + 1, len(server.requests)
        terminal.type("\x15the other way\r")
        terminal.see(lambda text: "All done." in text.partition("the other way")[2])
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
        assert set(counts(server, WALRUS, start)) == {1}
        go_on("to the end", 1, "--continue")
    assert server.rejected == []
    assert keeper.summaries >= 8
    assert set(counts(server, WALRUS)) == {1}
    assert set(counts(server, HERON)) == {1}
    assert not any(
        "skill walrus follows" in text for body in server.requests for text in texts(body)
    )


@pytest.mark.full
def test_killed_between_a_summary_and_the_skill_after_it(place: Place) -> None:
    """A kill at that moment leaves a log that ends with the summary."""
    write(own(place), "walrus", WALRUS)
    keeper = Keeper()
    keeper.queue, keeper.until = [use("walrus")], 1
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", *LIMITS, env=env)
        assert done.returncode == 0, done.stderr
        (log,) = place.logs()
        lines = log.read_bytes().splitlines(keepends=True)
        (summary,) = [n for n, line in enumerate(lines) if json.loads(line)["kind"] == "summary"]
        for behind in range(1, 4):
            write_killed(log, lines[: summary + behind])
            for cache in log.parent.glob("resume.*"):
                cache.unlink()
            start = len(server.requests)
            done = place.run("-p", "go on", *LIMITS, "--continue", env=env)
            assert done.returncode == 0, done.stderr
            assert set(counts(server, WALRUS, start)) == {1}
            assert told(server.requests[-1]).count("- walrus: How to care") == 1
    assert server.rejected == []


def test_killed_between_a_call_and_the_text(place: Place) -> None:
    write(own(place), "walrus", WALRUS)
    ran(place, [use("walrus"), Say("Done.")])
    (log,) = place.logs()
    lines = log.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    write_killed(log, lines[: kinds.index("tool_result") + 1])
    server, _ = ran(place, [Say("Done.")], "--continue")
    assert counts(server, WALRUS) == [1]
    server, _ = ran(place, [Say("Done.")], "--continue")
    assert counts(server, WALRUS) == [1]


def test_subagent_loads_its_own_skills(place: Place) -> None:
    write(own(place), "walrus", WALRUS)
    task = {"type": "general", "description": "Feed", "prompt": "Feed the walrus."}
    steps = [Say(tools=[("Task", task)]), use("walrus"), Say("Fed."), Say("Done.")]
    server, _ = ran(place, steps)
    assert [told(body).count(WALRUS) for body in server.requests] == [0, 0, 1, 0]


def test_in_the_repl(place: Place) -> None:
    write(own(place), "walrus", WALRUS)
    with Server([Say("Fed."), Say("Fed again.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("/walr")
        terminal.see("How to care for a walrus")
        terminal.type("us twice\r")
        terminal.see("Fed.")
        terminal.rest()
        terminal.type("/walrus once more\r")
        terminal.see("Fed again.")
        terminal.rest()
        terminal.type("/context report\r")
        terminal.see("skills")
        terminal.type("/help walrus\r")
        terminal.see("/walrus [WORDS]")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert server.rejected == []
    said = told(server.requests[-1])
    assert said.count(WALRUS) == 1
    assert "/walrus twice" in said
    assert "The user calls the skill walrus again, which stands above as #" in said
