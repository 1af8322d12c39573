"""Extensions with the real command: each example of the guide, and extensions that fail."""

import inspect
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.loop.ladder import MAX_FEATURE_RETRIES

from ..compaction.test_engine import RECORD
from ..support.command import AS_MODULE, Place
from ..support.server.loopback import Body, Fail, Say, Server, Step, flat
from ..support.sessions.setup import long_text
from ..support.terminal.screen import Terminal
from .test_engine_http import asks_for_a_record

GUIDE = Path(__file__).parents[2] / "docs/guide/extensions.md"
EXAMPLES = {
    found[1]: found[0]
    for found in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", GUIDE.read_text(), re.DOTALL)
}
MAX_EXAMPLE_LINES = 30
COUNT = Say(tools=[("count_words", {"path": "a.txt"})])
DELETE = Say(tools=[("Bash", {"command": "rm -rf build"})])
READS: list[Step] = [Say(tools=[("Read", {"path": f"{n}.txt"})]) for n in range(6)]
DONE = Say("Done.")
CLEARED = re.compile(r"\[cleared; Recall #\d+ returns it\]")
VETO = "nothing is deleted here; move it to trash/"
BYPASS = ("--permission-mode", "bypass")
RAISES = """from ctxagent.api.extension import Feature


class Broken{event}(Feature):
    {word}def {event}(self, *given, **more):
        raise ValueError("broken on purpose")
"""
EVENTS = {
    name: "async " if inspect.iscoroutinefunction(method) else ""
    for name, method in vars(Feature).items()
    if inspect.isfunction(method) and not name.startswith("_") and name != "setting"
}
IN_SUMMARIES = ("before_summary", "reinserted", "after_summary")
IN_THE_TERMINAL = (*IN_SUMMARIES, "status", "commands")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (place.project / "a.txt").write_text("one two three\n")
    for n in range(6):
        (place.project / f"{n}.txt").write_text(f"line of {n}\n" * 60)
    (place.project / "build").mkdir()
    return place


def own(place: Place, name: str, text: str = "") -> Path:
    """Save an extension of the user: an example of the guide, or `text`."""
    return saved(place.root / "home" / ".config" / "ctxagent", name, text)


def of_project(place: Place, name: str, text: str = "") -> Path:
    return saved(place.project / ".ctxagent", name, text)


def saved(folder: Path, name: str, text: str) -> Path:
    path = folder / "extensions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or EXAMPLES[name])
    return path


def told(body: Body) -> str:
    return json.dumps([block for _, block in flat(body)])


def results(body: Body) -> list[str]:
    """The texts of the results in a request."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def names(body: Body) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


def task(place: Place, steps: Sequence[Step], *more: str) -> tuple[Any, Server]:
    """Run a task with these replies of the model."""
    with Server(steps) as server:
        done = place.run("-p", "go", *more, env=place.server(server.url))
    assert server.rejected == []
    return done, server


def answered(place: Place, steps: Sequence[Step], *more: str) -> tuple[str, Server]:
    """Run a task to its end, and return what was said on stderr."""
    done, server = task(place, steps, *more)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Done.\n"
    return " ".join(done.stderr.split()), server


def subagent(steps: Sequence[Step]) -> list[Step]:
    """Replies of a parent whose subagent gets `steps`."""
    given = {"description": "look", "prompt": "look", "type": "general"}
    return [Say(tools=[("Task", given)]), *steps, DONE, DONE]


def says(terminal: Terminal, words: str) -> None:
    """Wait for a text, however it is wrapped."""
    terminal.see(lambda text: words in " ".join(text.split()))


def left(terminal: Terminal) -> None:
    terminal.press("ctrl-d")
    assert terminal.leave() == 0


def test_the_examples_are_short_and_complete() -> None:
    assert set(EXAMPLES) == {
        "words.py", "review.py", "guard.py", "forget.py", "listings.py", "shout.py",
        "say.py",
    }  # fmt: skip
    assert GUIDE.read_text().count("```python\n") == len(EXAMPLES)
    for name, text in EXAMPLES.items():
        assert len(text.splitlines()) < MAX_EXAMPLE_LINES, name


def test_tool_veto_and_layer_in_a_task(place: Place) -> None:
    for name in ("words.py", "guard.py", "forget.py"):
        own(place, name)
    _, server = answered(place, [COUNT, DELETE, *READS, DONE], *BYPASS)
    last = server.requests[-1]
    assert "3 words" in results(server.requests[1])[0]
    assert VETO in results(server.requests[2])[1]
    assert (place.project / "build").exists()
    assert len([each for each in results(last) if CLEARED.search(each)]) >= 3
    assert "line of 5" in results(last)[-1]


def test_tool_veto_and_layer_in_a_subagent(place: Place) -> None:
    for name in ("words.py", "guard.py", "forget.py"):
        own(place, name)
    steps = subagent([COUNT, DELETE, *READS])
    _, server = answered(place, steps, *BYPASS)
    child = server.requests[-2]
    assert "3 words" in results(server.requests[2])[0]
    assert VETO in results(server.requests[3])[1]
    assert (place.project / "build").exists()
    assert len([each for each in results(child) if CLEARED.search(each)]) >= 3


def test_tool_veto_and_layer_in_the_terminal(place: Place) -> None:
    for name in ("words.py", "guard.py", "forget.py"):
        own(place, name)
    with Server([COUNT, DELETE, *READS, DONE]) as server:
        env = place.server(server.url)
        terminal = Terminal(*BYPASS, cwd=place.project, env=env)
        terminal.see("% full")
        terminal.type("go\r")
        says(terminal, "3 words")
        says(terminal, VETO)
        says(terminal, "results forgotten (a layer of an extension)")
        says(terminal, "Done.")
        for command, told in (
            ("/context report", "compaction saved times forgotten"),
            ("/context status", "forgotten: "),
            ("/uncompact", "results forgotten"),
        ):
            terminal.type(f"{command}\r")
            says(terminal, told)
        left(terminal)
    assert server.rejected == []
    assert len([each for each in results(server.requests[-1]) if CLEARED.search(each)]) >= 3


@pytest.fixture
def changed(place: Place) -> Place:
    """A place with a commit, and an extension with a command that shows what changed since."""
    own(place, "review.py")
    for command in (
        ["init", "-q"], ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first"],
    ):  # fmt: skip
        subprocess.run(["git", *command], cwd=place.project, check=True)
    return place


def test_a_command_in_a_task(changed: Place) -> None:
    with Server([DONE]) as server:
        env = changed.server(server.url)
        shown = changed.run("-p", "/review-since", env=env)
        assert (shown.returncode, shown.stdout) == (0, "nothing has changed\n"), shown.stderr
        assert server.requests == []
        (changed.project / "a.txt").write_text("four\n")
        assert changed.run("-p", "/review-since HEAD", env=env).stdout == "Done.\n"
        assert "Review this diff:" in told(server.requests[0])
        failed = changed.run("-p", "/review-since nothing", env=env)
    assert failed.returncode == 1
    assert "git diff failed with exit code 128" in failed.stderr
    assert server.rejected == []


def test_a_command_in_the_terminal(changed: Place) -> None:
    with Server([DONE]) as server:
        terminal = Terminal(cwd=changed.project, env=changed.server(server.url))
        terminal.see("% full")
        terminal.type("/review-since\r")
        says(terminal, "nothing has changed")
        terminal.type("/help since\r")
        says(terminal, "review the changes since a commit · extension")
        terminal.see("files and work:")
        (changed.project / "a.txt").write_text("four\n")
        terminal.type("/review-since HEAD\r")
        says(terminal, "Done.")
        left(terminal)
    assert "Review this diff:" in told(server.requests[0])
    assert server.rejected == []


def test_a_model_of_an_extension_needs_no_key(place: Place) -> None:
    own(place, "shout.py")
    done = place.run("-p", "hello", "--model", "shout:small")
    assert (done.returncode, done.stdout) == (0, "HELLO\n"), done.stderr
    unknown = place.run("-p", "hello", "--model", "whisper:small")
    assert unknown.returncode != 0


def test_a_project_s_file_runs_only_after_it_was_trusted(place: Place) -> None:
    of_project(place, "words.py")
    said, server = answered(place, [DONE])
    assert "not trusted" in said
    assert "ctxagent config --trust" in said
    assert "count_words" not in names(server.requests[0])
    assert place.run("config", "--trust").returncode == 0
    said, server = answered(place, [COUNT, DONE])
    assert said == ""
    assert "3 words" in results(server.requests[1])[0]
    of_project(place, "words.py", EXAMPLES["words.py"] + "\n")
    said, server = answered(place, [DONE])
    assert "not trusted" in said


MARKS = "from pathlib import Path\n\nPath({path!r}).write_text('it ran')\n"


@pytest.mark.full
def test_no_command_runs_what_is_not_trusted(place: Place) -> None:
    mark = place.root / "mark"
    of_project(place, "evil.py", MARKS.format(path=str(mark)))
    packaged(place.project, MARKS.format(path=str(mark)))
    (place.root / "steps.json").write_text(json.dumps({"steps": [{"text": "Done."}]}))
    manifest = place.project / "tasks.jsonl"
    model = {"model.id": f"scripted:{place.root / 'steps.json'}"}
    work = {"id": "a", "prompt": "go", "settings": model, "dir": ".", "worktree": False}
    manifest.write_text(json.dumps(work) + "\n")
    answered(place, [DONE], "--allow", "no_tool_yet")
    (log,) = place.logs()
    for rule in ((), ("--deny", "no_tool_yet")):
        for command in (
            ("doctor",), ("extensions", "list"), ("config",), ("sessions", "list"), ("mcp", "list"),
            ("replay", str(log)), ("compact", "--dry-run"), ("acp",), ("log",),
            ("fleet", "run", "--yes", str(manifest)), ("--safe", "-p", "go"),
        ):  # fmt: skip
            env = place.environ({"PYTHONPATH": str(place.project)})
            done = place.run(*rule, *command, env=env, stdin="")
            assert not mark.exists(), command
            assert "fleet" not in command or done.returncode == 0, done.stderr
    place.run("config", "--trust")
    assert not mark.exists()
    place.run("extensions", "list")
    assert mark.exists()  # it would have been noticed


def test_a_safe_start_runs_no_extension(place: Place) -> None:
    own(place, "words.py")
    mark = place.root / "mark"
    own(place, "marks.py", MARKS.format(path=str(mark)))
    done, server = task(place, [DONE], "--safe", "--deny", "count_words")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert "count_words" not in names(server.requests[0])
    assert not mark.exists()


def test_a_reload_takes_the_file_as_it_is_now(place: Place) -> None:
    path = own(place, "words.py")
    after = Say(tools=[("count_letters", {"path": "a.txt"})])
    with Server([COUNT, DONE, after, Say("Over."), Say("End.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type("go\r")
        says(terminal, "Done.")
        letters = EXAMPLES["words.py"].replace("count_words", "count_letters")
        path.write_text(letters.replace("len(text.split())", "len(text)"))
        terminal.type("/reload\r")
        says(terminal, "loaded: words")
        says(terminal, "the prompt cache starts again")
        terminal.type("again\r")
        says(terminal, "Over.")
        path.write_text("def broken(:\n")
        terminal.type("/reload\r")
        says(terminal, "SyntaxError")
        says(terminal, "loaded: no extension")
        terminal.type("end\r")
        says(terminal, "End.")
        left(terminal)
    assert server.rejected == []
    assert "count_letters" in names(server.requests[2])
    assert "count_words" not in names(server.requests[2])
    assert "14 words" in results(server.requests[3])[1]
    assert "count_letters" not in names(server.requests[-1])


def test_a_reload_brings_back_what_was_switched_off(place: Place) -> None:
    fails = "\n\n    async def turn_started(self, turn):\n        raise ValueError('broken')\n"
    path = own(place, "words.py", EXAMPLES["words.py"] + fails)
    with Server([DONE, COUNT, Say("Over.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type("go\r")
        says(terminal, "ValueError: broken (words.py, line ")
        says(terminal, "Done.")
        path.write_text(EXAMPLES["words.py"].replace(" words", " counted words"))
        terminal.type("/reload\r")
        says(terminal, "loaded: words")
        terminal.type("again\r")
        says(terminal, "Over.")
        left(terminal)
    assert "is left out" not in terminal.text()
    assert "3 counted words" in results(server.requests[-1])[0]
    assert server.rejected == []


@pytest.mark.parametrize(
    "event", sorted(EVENTS.keys() - {*IN_THE_TERMINAL, "before_question", "request_refused"})
)
def test_failing_extension_is_named_and_the_task_is_done(place: Place, event: str) -> None:
    own(place, "broken.py", RAISES.format(event=event, word=EVENTS[event]))
    reads: list[Step] = [Say(tools=[("Read", {"path": "a.txt"})]), DONE]
    said, server = answered(place, reads)
    assert f"the extension broken failed in {event} and is switched off" in said
    assert said.count("ValueError: broken on purpose (broken.py, line 6)") == 1
    assert "one two three" in results(server.requests[-1])[0]


def test_extension_that_fails_in_before_question(place: Place) -> None:
    own(place, "broken.py", RAISES.format(event="before_question", word="async "))
    done, server = task(place, [Say(tools=[("Bash", {"command": "touch made"})]), DONE])
    assert done.returncode == 3
    assert "the extension broken failed in before_question and is switched off" in done.stderr
    assert "nobody can be asked in this run" in results(server.requests[-1])[0]


def test_extension_that_fails_in_request_refused(place: Place) -> None:
    own(place, "broken.py", RAISES.format(event="request_refused", word="async "))
    with Server(lambda body: Fail(400, "no such thing"), lenient=True) as server:
        done = place.run("-p", "go", env=place.server(server.url))
    assert done.returncode != 0
    assert "the extension broken failed in request_refused" in done.stderr
    assert "no such thing" in done.stderr


ALWAYS_AGAIN = """\
from ctxagent.api.extension import Feature

class Again(Feature):
    name = "again"

    async def request_refused(self, refusal):
        return True
"""


def test_extension_that_always_asks_for_a_retry_is_stopped(place: Place) -> None:
    own(place, "again.py", ALWAYS_AGAIN)
    with Server(lambda body: Fail(400, "no such thing"), lenient=True) as server:
        done = place.run("-p", "go", env=place.server(server.url))
    assert done.returncode != 0
    assert "no such thing" in done.stderr
    assert MAX_FEATURE_RETRIES < len(server.requests) < MAX_FEATURE_RETRIES + 10


def test_several_in_one_file_that_raise_in_the_terminal(place: Place) -> None:
    texts = [RAISES.format(event=name, word=EVENTS[name]) for name in IN_THE_TERMINAL]
    own(place, "broken.py", "\n\n".join(texts))

    def answer(body: Body) -> Step:
        is_first = len(body["messages"]) == 1
        return Say(RECORD if asks_for_a_record(body) else long_text(5_000 * is_first) + "Done.")

    with Server(answer) as server:
        little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
        terminal = Terminal(*little, cwd=place.project, env=place.server(server.url))
        says(terminal, "the extension broken failed in status")
        terminal.type("go\r")
        says(terminal, "Done.")
        terminal.type("and on\r")
        terminal.see(lambda text: text.count("Done.") == 2)
        terminal.type("/compact\r")
        for event in ("commands", *IN_SUMMARIES):
            says(terminal, f"the extension broken failed in {event}")
        terminal.type("once more\r")
        terminal.see(lambda text: text.count("Done.") == 3)
        left(terminal)
    assert server.rejected == []


BAD_FILES = {
    "syntax": ("def broken(:\n", "SyntaxError: invalid syntax (bad.py, line 1)"),
    "exit": ("import sys\n\nsys.exit(3)\n", "SystemExit: 3 (bad.py, line 3)"),
    "own error": (
        "from ctxagent.api.extension import CtxagentError\n\nraise CtxagentError('no')\n",
        "CtxagentError: no (bad.py, line 3)",
    ),
    "base": ("class Odd(BaseException): pass\n\nraise Odd('odd')\n", "Odd: odd (bad.py, line 3)"),
    "no class": ("x = 1\n", "it has no class that subclasses Feature"),
    "no docstring": (
        "from ctxagent.api.extension import Feature, tool\nclass F(Feature):\n    @tool()\n"
        "    def f(self): ...\n",
        "the function f has no docstring",
    ),
    "no parentheses": (
        "from ctxagent.api.extension import Feature, tool\nclass F(Feature):\n    @tool\n"
        "    def f(self):\n        'F.'\n",
        "write @tool(EFFECT)",
    ),
    "in init": (
        "from ctxagent.api.extension import CtxagentError, Feature\nclass F(Feature):\n"
        "    def __init__(self, handle): raise CtxagentError('init')\n",
        "the extension bad is left out: CtxagentError: init (bad.py, line 3)",
    ),
    "not UTF-8": ("x = '\udcff'\n", "SyntaxError"),
    "huge": ("#" * 100_001, "it is larger than 100,000 bytes"),
    "a method": (
        "from ctxagent.api.extension import Feature\nclass F(Feature):\n"
        "    def layers(self): return []\n",
        "layers must be a list of subclasses of Layer, not a method",
    ),
    "layers": (
        "from ctxagent.api.extension import Feature\nclass F(Feature):\n    layers = ('F',)\n",
        "'F' in layers must be a subclass of Layer",
    ),
    "providers": (
        "from ctxagent.api.extension import Feature\nclass F(Feature):\n    providers = 5\n",
        "AttributeError",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_cannot_be_used_is_named_and_the_task_is_done(place: Place, kind: str) -> None:
    text, expected = BAD_FILES[kind]
    own(place, "words.py")
    own(place, "bad.py", "-").write_bytes(text.encode(errors="surrogateescape"))
    said, server = answered(place, [COUNT, DONE])
    assert "bad" in said
    assert expected in said
    assert "3 words" in results(server.requests[1])[0]


def test_a_tool_that_exits_is_a_failed_call(place: Place) -> None:
    text = EXAMPLES["words.py"].replace("text = (", "raise SystemExit(3)\n        text = (")
    own(place, "words.py", text)
    _, server = answered(place, [COUNT, DONE])
    assert results(server.requests[1]) == ["SystemExit: 3 (words.py, line 9)"]


@pytest.mark.parametrize("with_subagent", [False, True])
def test_a_tool_with_a_taken_name_is_left_out(place: Place, with_subagent: bool) -> None:
    own(place, "words.py", EXAMPLES["words.py"].replace("count_words", "Read"))
    read: list[Step] = [Say(tools=[("Read", {"path": "a.txt"})])]
    steps = subagent(read) if with_subagent else [*read, DONE]
    said, server = answered(place, steps)
    assert said.count("the tool Read of an extension is left out: the name is taken") == 1
    assert all(names(body).count("Read") == 1 for body in server.requests)
    body = server.requests[2 if with_subagent else 1]
    assert "one two three" in results(body)[0]


def test_a_reload_keeps_a_built_in_tool_of_the_same_name(place: Place) -> None:
    own(place, "words.py", EXAMPLES["words.py"].replace("count_words", "Read"))
    with Server([Say(tools=[("Read", {"path": "a.txt"})]), DONE]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("% full")
        terminal.type("/reload\r")
        says(terminal, "loaded: words")
        terminal.type("go\r")
        says(terminal, "Done.")
        left(terminal)
    assert "one two three" in results(server.requests[1])[0]


def test_a_command_with_a_taken_name_is_left_out(changed: Place) -> None:
    text = EXAMPLES["review.py"].replace("def review_since", "def help")
    own(changed, "review.py", text)
    with Server([]) as server:
        terminal = Terminal(cwd=changed.project, env=changed.server(server.url))
        terminal.see("% full")
        terminal.type("/help compact\r")
        says(terminal, "the command /help of an extension is ignored")
        says(terminal, "/compact")
        left(terminal)


def test_extensions_list(place: Place) -> None:
    empty = place.run("extensions", "list")
    assert (empty.returncode, empty.stdout) == (0, "")
    own(place, "words.py")
    own(place, "shout.py")
    good = place.run("extensions", "list")
    assert good.returncode == 0
    assert "tool count_words" in good.stdout
    assert "provider shout" in good.stdout
    of_project(place, "guard.py", "print('loud')\n" + EXAMPLES["guard.py"])
    bad = place.run("extensions", "list", "--json")
    assert bad.returncode == 1
    rows = {row["name"]: row for row in json.loads(bad.stdout)}
    assert rows["words"]["adds"] == ["tool count_words"]
    assert "not trusted" in rows["guard"]["problem"]
    place.run("config", "--trust")
    trusted = place.run("extensions", "list", "--json")
    assert trusted.returncode == 0
    assert [row["adds"] for row in json.loads(trusted.stdout)][-1] == ["before_tool"]
    assert "loud" in trusted.stderr


def test_rules_name_the_tool_of_an_extension(place: Place) -> None:
    own(place, "words.py", EXAMPLES["words.py"].replace('@tool("read")', "@tool()"))
    done, server = task(place, [COUNT, DONE])
    assert done.returncode == 3
    assert "nobody can be asked" in results(server.requests[1])[0]
    _, server = answered(place, [COUNT, DONE], "--allow", "count_words")
    assert "3 words" in results(server.requests[1])[0]
    settings = place.root / "home" / ".config" / "ctxagent" / "agentrc"
    settings.write_text('[permissions]\ndeny = ["count_words"]\n')
    done, server = task(place, [COUNT, DONE], "--allow", "count_words")
    assert "Not allowed" in results(server.requests[1])[0]
    misspelt = place.run("-p", "go", "--deny", "count_word")
    assert misspelt.returncode == 2
    assert "names no tool" in misspelt.stderr


def test_a_rule_for_a_tool_that_is_left_out_stops_nothing(place: Place) -> None:
    of_project(place, "words.py")
    said, _ = answered(place, [DONE], "--deny", "count_words")
    assert "not trusted" in said
    done = place.run("-c", "permissions.deny=count_words", "config", "--trust")
    assert done.returncode == 0, done.stderr
    _, server = answered(place, [COUNT, DONE], "--deny", "count_words")
    assert "Not allowed" in results(server.requests[1])[0]


def test_a_setting_of_an_extension(place: Place) -> None:
    text = EXAMPLES["words.py"].replace("Feature, tool", "Feature, Setting, one_of, tool")
    setting = 'Setting("words", "What is counted.", one_of(("words", "mots")))'
    declared = f'    settings = {{"unit": {setting}}}\n\n    @tool'
    text = text.replace("    @tool", declared).replace(" words", " {self.setting('unit')}")
    own(place, "words.py", f"{text}\n\nclass Other(Feature):\n    pass\n")
    _, server = answered(place, [COUNT, DONE])
    assert results(server.requests[1]) == ["3 words"]
    _, server = answered(place, [COUNT, DONE], "-c", "extensions.words.unit=mots")
    assert results(server.requests[1]) == ["3 mots"]
    for wrong in ("units=mots", "unit=lines"):
        said, server = answered(place, [DONE], "-c", f"extensions.words.{wrong}")
        assert "the extension words is left out" in said
        assert "count_words" not in names(server.requests[0])


def packaged(folder: Path, text: str, point: str = "extensions]\nwords = words_package") -> Path:
    """Install a package with an entry point in a folder, as pip does."""
    (folder / "words_package.py").write_text(text)
    about = folder / "words_package-1.2.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: words-package\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[ctxagent.{point}\n")
    return folder


def test_an_installed_package(place: Place) -> None:
    folder = place.root / "packages"
    folder.mkdir()
    packaged(folder, EXAMPLES["words.py"])
    env = place.environ({"PYTHONPATH": str(folder)})
    listed = place.run("extensions", "list", env=env, command=AS_MODULE)
    assert listed.stdout == "words  words-package 1.2\n    tool count_words\n"
    with Server([COUNT, DONE]) as server:
        env = place.server(server.url) | {"PYTHONPATH": str(folder)}
        done = place.run("-p", "go", env=env, command=AS_MODULE)
    assert done.stdout == "Done.\n", done.stderr
    assert "3 words" in results(server.requests[1])[0]


def test_rules_name_the_tool_of_an_installed_feature(place: Place) -> None:
    folder = place.root / "packages"
    folder.mkdir()
    feature = "features]\nwords = words_package:Words"
    packaged(folder, EXAMPLES["words.py"], feature)

    def task(*arguments: str) -> tuple[str, str]:
        with Server([COUNT, DONE]) as server:
            env = place.server(server.url) | {"PYTHONPATH": str(folder)}
            done = place.run("-p", "go", *arguments, env=env, command=AS_MODULE)
        assert done.returncode == 0, done.stderr
        return results(server.requests[1])[0], done.stderr

    assert "3 words" in task()[0]
    assert "Not allowed" in task("--deny", "count_words")[0]
    for left_out in (["--safe"], ["-c", "features.off=['words']"]):
        assert "There is no tool" in task("--deny", "count_words", *left_out)[0]
    packaged(folder, "import walrus\n", feature)
    assert "'words' of words-package 1.2 is left out" in task("--deny", "count_words")[1]


ADD_ON = """from ctxagent.api.extension import Feature, command


class Hello(Feature):
    name = "hello"

    @command("Greet")
    def hi(self, text):
        return "hello"

    def message_received(self, message):
        raise ValueError("broken on purpose")
"""


def test_an_installed_feature_that_fails_is_switched_off(place: Place) -> None:
    folder = place.root / "packages"
    folder.mkdir()
    packaged(folder, ADD_ON, "features]\nhello = words_package:Hello")
    with Server([DONE]) as server:
        env = place.server(server.url) | {"PYTHONPATH": str(folder)}
        done = place.run("-p", "go", env=env, command=AS_MODULE)
        assert done.stdout == "Done.\n", done.stderr
        said = "the add-on hello failed in message_received and is switched off for this session"
        assert said in done.stderr
        done = place.run("-p", "/hi", env=env, command=AS_MODULE)
        assert done.stdout == "hello\n", done.stderr
        done = place.run("--safe", "-p", "/hi", env=env, command=AS_MODULE)
        assert "there is no command /hi" in done.stderr


FORMAT = """from ctxagent.api.extension import Feature, TranscriptBuilder


class Reader:
    @staticmethod
    def recognizes(row):
        return "spoken" in row

    @staticmethod
    def read(rows):
        builder = TranscriptBuilder()
        for row in rows:
            builder.add_words(row["spoken"])
        return builder


class Spoken(Feature):
    recording_formats = {"spoken": Reader}
"""


def test_a_recording_format(place: Place) -> None:
    own(place, "spoken.py", FORMAT)
    recording = place.root / "talk.jsonl"
    recording.write_text('{"spoken": "hello"}\n')
    done = place.run("replay", str(recording), "--json")
    assert done.returncode == 0, done.stderr
    assert "talk.jsonl" in done.stdout


def test_the_status_line(place: Place) -> None:
    text = "    def status(self):\n        return 'three words'\n"
    own(place, "line.py", f"from ctxagent.api.extension import Feature\nclass F(Feature):\n{text}")
    wrong = text.replace("'three words'", "5")
    own(
        place, "wrong.py", f"from ctxagent.api.extension import Feature\nclass F(Feature):\n{wrong}"
    )
    with Server([]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        says(terminal, "three words")
        says(terminal, "the extension wrong failed in status and is switched off")
        left(terminal)
