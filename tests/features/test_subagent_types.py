"""Types of subagents in untrusted files, and subagents found by ID."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.config.trust import MAX_TRUSTED_BYTES, trust
from ctxagent.agent.errors import ConfigError
from ctxagent.agent.features.subagent_types import (
    AgentType,
    load_types,
    parse_other_agent_type,
    parse_type,
    project_files,
)
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.store import Project

from ..support.command import Place
from ..support.server.loopback import Say, Server
from .test_subagents import Talk, task

HEAD = "---\nname: {}\ndescription: writes docs\n---\nWrite.\n"
BOUND = 400  # seconds; nothing is measured with it


class Types:
    """A project in a repository, the user's own folder, and the types loaded from both."""

    def __init__(self, root: Path) -> None:
        self.root, self.project, self.state = root, root / "project", root / "state"
        self.own, self.foreign = root / "config" / "agents", self.project / ".ctxagent" / "agents"
        for folder in (self.own, self.foreign, self.project / ".git"):
            folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> tuple[list[str], list[str]]:
        types, warnings = load_types(
            self.project, config_home=self.root / "config", home=self.root,
            trust_dir=self.state, tools=["Read", "Grep"],
        )  # fmt: skip
        return [each.name for each in types if each.source != "built in"], warnings


def put(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a loop":
        path.symlink_to(path.name)
    elif kind == "without end":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.symlink_to(kind)


WHY_LEFT_OUT = {
    "/dev/stdin": "out of the project",
    "/dev/zero": "out of the project",
    "a pipe": "not a regular file",
    "a folder": "not a regular file",
    "a loop": "symbolic links",
    "without end": f"larger than {MAX_TRUSTED_BYTES:,} bytes",
}


@pytest.fixture
def endless() -> Iterator[int]:
    """Return an input without end."""
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


@pytest.mark.slow
def test_no_file_of_the_project_keeps_the_program_from_starting(
    tmp_path: Path, endless: int
) -> None:
    place = Place(tmp_path)
    for number, kind in enumerate(WHY_LEFT_OUT):
        put(place.project / ".ctxagent" / "agents" / f"x{number}.md", kind)
    with Server([Say("Hello.")]) as server:
        done = place.run("-p", "go", env=place.server(server.url), stdin=endless)
    assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
    for number, why in enumerate(WHY_LEFT_OUT.values()):
        (line,) = (line for line in done.stderr.splitlines() if f"x{number}.md: " in line)
        assert "this subagent is left out: " in line
        assert why in line


@pytest.mark.slow
@pytest.mark.parametrize("kind", WHY_LEFT_OUT)
def test_such_a_file_is_not_trusted(tmp_path: Path, kind: str, endless: int) -> None:
    place = Place(tmp_path)
    put(place.project / ".ctxagent" / "agents" / "x.md", kind)
    trusting = place.run("config", "--trust", stdin=endless)
    assert trusting.returncode == 2
    assert "trusted with its current content" not in trusting.stderr
    assert "Traceback" not in trusting.stderr


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["/dev/zero", "a pipe", "without end"])
def test_an_odd_file_of_the_user_does_not_block(tmp_path: Path, kind: str) -> None:
    """In a separate process, to detect a reader that blocks."""
    types = Types(tmp_path)
    put(types.own / "x.md", kind)
    (types.own / "y.md").write_text(HEAD.format("y"))
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.features.test_subagent_types import Types\n"
        "print(Types(Path(sys.argv[1])).load())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=BOUND,
    )  # fmt: skip
    assert done.stdout.startswith("(['y'], ["), done.stderr
    assert "x.md: this subagent is left out: it is " in done.stdout


def test_only_regular_files_can_be_trusted(tmp_path: Path) -> None:
    put(tmp_path / "x.md", "a pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        trust(tmp_path / "x.md", tmp_path / "state")


def test_a_link_stays_in_the_project_or_is_left_out(tmp_path: Path) -> None:
    types = Types(tmp_path)
    (tmp_path / "outside.md").write_text(HEAD.format("outside"))
    (types.project / "docs.md").write_text(HEAD.format("docs"))
    (types.foreign / "a.md").symlink_to(tmp_path / "outside.md")
    (types.foreign / "b.md").symlink_to(types.project / "docs.md")
    (types.own / "c.md").symlink_to(tmp_path / "outside.md")
    for path in types.foreign.iterdir():
        trust(path, types.state)
    names, warnings = types.load()
    assert names == ["outside", "docs"], "the person's own files may be links to anywhere"
    assert [w.partition(":")[0] for w in warnings] == [str(types.foreign / "a.md")]
    assert "leads out of the project" in warnings[0]
    assert project_files(types.project, tmp_path) == [types.foreign / "b.md"]


def test_a_folder_of_types_that_is_a_link_out_of_the_project(tmp_path: Path) -> None:
    types = Types(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.md").write_text(HEAD.format("a"))
    types.foreign.rmdir()
    types.foreign.symlink_to(tmp_path / "elsewhere")
    names, warnings = types.load()
    assert names == []
    assert "leads out of the project" in warnings[0]


def described(*lines: str) -> AgentType:
    text = "\n".join(["---", "name: x", *lines, "---", "Do."])
    return parse_type(text, "f", ["Read", "Grep"])


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["description: d", "tools:"], "tools is empty"),
        (["description: d", "tools: []"], "tools is empty"),
        (["description: d", 'tools: ""'], "tools is empty"),
        (
            ["description: d", "colour: blue"],
            "'colour' is not one of name, description, tools, model",
        ),
        (["description: d", "tools:", "- Read", "- Fly"], "unknown tools: Fly; known: Read, Grep"),
        (["description: d", "tools: {Read: Grep}"], "unknown tools: {"),
        (["description: d", "- Read"], "its front matter is not YAML"),
        (["description: d", "description: e"], "description is given twice"),
        (["description: d", "tools: Read", "tools: Grep"], "tools is given twice"),
        (["description: " + "d" * 501], "description has 501 characters"),
    ],
)
def test_front_matter_that_could_be_misread_is_an_error(lines: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        described(*lines)


def test_front_matter_as_it_is_meant() -> None:
    assert described("description: d").tools is None
    for tools in ("Read, Grep", "[Read, Grep]", '"Read, Grep"', '["Read", "Grep"]', "Read Grep"):
        assert described("description: d", f"tools: {tools}").tools == ("Read", "Grep")
    for lines in (["tools:", "- Read", "- Grep"], ["tools:", "  - Read", "  - Grep"]):
        assert described("description: d", *lines).tools == ("Read", "Grep")
    for begins, description in ((">", "gone on"), ("|-", "gone on"), ("and", "and gone on")):
        found = described(f"description: {begins}", "  gone", "  on", "tools: Read")
        assert (found.description, found.tools) == (description, ("Read",))
    assert described("description: " + "d" * 500).description == "d" * 500
    assert described("", "# no", "description: a > b - c", "model:").description == "a > b - c"


@pytest.mark.slow
def test_the_name_of_a_file_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    folder = place.project / ".ctxagent" / "agents"
    folder.mkdir(parents=True)
    (folder / "\x1b[2J\x1b]0;own\x07\u202ex.md").write_text(HEAD.format("x"))
    with Server([Say("Hello.")]) as server:
        done = place.run("-p", "go", env=place.server(server.url))
    assert "x.md is not trusted" in done.stderr
    assert not {"\x1b", "\x07", "\u202e"} & {*done.stderr}


@pytest.mark.slow
def test_after_a_fork_an_id_means_the_subagent_that_changed_last(tmp_path: Path) -> None:
    talk = Talk(
        tmp_path,
        [Step(tools=[task("t", "ask: t")]), Step(text="Done.")],
        lambda talk, prompt, number: Step(text="Found."),
    )
    talk.say("go")
    agent = talk.agents()["t"]
    project = Project(talk.launch.places.state, talk.launch.places.cwd)
    first = talk.agent.folder / agent.log
    copies = [project.fork(talk.agent.log.path).parent / agent.log for _ in range(2)]
    newer = copies[1].stat().st_mtime_ns + 1_000_000_000
    os.utime(copies[1].parents[2] / "log.jsonl", ns=(newer, newer))
    for id in (agent.id, agent.id[:-2]):
        assert project.find_log(id) == copies[1], (
            "all as they were copied: that of the newest session"
        )
    changed = newer + 1_000_000_000
    os.utime(first, ns=(changed, changed))
    assert project.find_log(agent.id) == first
    named = f"{copies[0].parents[2].name}/agents/{agent.id}"
    assert project.find_log(named) == copies[0]
    place = Place(tmp_path)
    shown = place.run("sessions", "show", agent.id)
    assert (shown.returncode, "several" in shown.stderr) == (0, False), shown.stderr


@pytest.mark.parametrize(
    ("head", "tools", "model"),
    [
        ("color: blue\nmodel: inherit", None, None),
        ("tools: Read, NotebookRead\nmodel: haiku", ("Read",), "haiku"),
        ("tools: [Grep, Bash(git:*)]", ("Grep",), None),  # never more than it names
        ("tools: '*'\ndisallowedTools: Bash, Edit", ("Read", "Grep"), None),
    ],
)
def test_a_type_for_another_agent(
    head: str, tools: tuple[str, ...] | None, model: str | None
) -> None:
    words = "and wide " * 100
    text = f"---\nname: far\ndescription: |\n  Looks: far\n  {words}\n{head}\n---\nLook."
    found = parse_other_agent_type(text, "f", ["Read", "Grep", "Bash", "Edit", "Task"])
    assert (found.name, found.tools, found.model, found.prompt) == ("far", tools, model, "Look.")
    assert found.description.startswith("Looks: far and wide ")
    assert len(found.description) == 500


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("name: far\ndescription: d\ntools: Fly", "none of the known tools: Read"),
        ("name: far/off\ndescription: d", "name is 'far/off'"),
        ("name: far", "no description"),
    ],
)
def test_a_broken_type_for_another_agent(head: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_other_agent_type(f"---\n{head}\n---\nLook.", "f", ["Read"])


def test_types_for_another_agent_in_the_home_and_a_project(tmp_path: Path) -> None:
    types = Types(tmp_path)
    text = "---\nname: {}\ndescription: d\ncolor: blue\ntools: Read, LS\n---\nLook."
    files = {
        tmp_path / ".claude/agents/mine.md": "mine",
        types.project / ".claude/agents/deep/theirs.md": "theirs-" + "x" * 73,
        types.project / ".claude/agents/other.md": "other",
    }
    for path, name in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name))
    names, warnings = types.load()
    assert names == ["mine"]
    assert len(warnings) == 2  # one for each folder
    assert "1 subagent not trusted, so left out" in warnings[0]
    for path in project_files(types.project, tmp_path):
        trust(path, types.state)
    names, warnings = types.load()
    assert (sorted(names), warnings) == (sorted(files.values()), [])


def test_what_is_ignored_in_a_file_for_another_agent() -> None:
    text = "---\nname: far\ndescription: d\ncolor: blue\ntools: Read, LS\n---\nLook."
    assert parse_other_agent_type(text, "f", ["Read"]).ignored == ("color", "tool LS")
