"""/checkpoint and /rewind: restoring the conversation, the files, or both."""

import asyncio
import os
import resource
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.app import open_agent
from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.config.settings import PermissionSettings, Settings
from ctxagent.agent.errors import CtxagentError, UsageError
from ctxagent.agent.events import Ask, Emit, Event, Notice, TurnFinished
from ctxagent.agent.features.disk_budget import DiskBudgetFeature
from ctxagent.agent.launch import LaunchOptions, Places, SessionChoice
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.checkpoints import load_checkpoint
from ctxagent.agent.session.entries import Checkpoint, Entry, Note, Summary, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import Project
from ctxagent.agent.ui import commands
from ctxagent.agent.ui.conversation.open_session import ConversationServices
from ctxagent.agent.worktree import RECORD_FOLDER, UNKNOWN, TouchRecord, saved_files, staging

from ..support.server.validator import validate
from ..support.terminal.command_line import CommandLine
from ..support.terminal.seat import ESC, Glass, Seat, drive


def launch(root: Path, model: ScriptedModel, home: Path) -> LaunchOptions:
    return LaunchOptions(
        settings=replace(Settings(), permissions=PermissionSettings(mode="bypass")),
        places=Places(
            cwd=root / "project",
            state=root / "state",
            config_home=root / "config",
            environ={"PATH": os.environ["PATH"], "HOME": str(home)},
        ),
        model=model,
    )


class Opener:
    """A project, and an opener of real sessions in it."""

    def __init__(self, root: Path, *steps: Step, home: Path | None = None) -> None:
        self.cwd = root / "project"
        self.cwd.mkdir()
        self.project = Project(root / "state", self.cwd)
        self.model = ScriptedModel(list(steps), check=validate)
        self._launch = launch(root, self.model, home or root / "home")

    async def __call__(
        self, emit: Emit, ask: Ask, *, resume: str | None = None, fork: bool = False,
        prior: str | None = None, read_only: bool = False,
    ) -> AgentState:  # fmt: skip
        choice = SessionChoice(id=resume, fork=fork, read_only=read_only)
        return await asyncio.to_thread(open_agent, self._launch, choice, emit=emit, ask=ask)

    def services(self) -> ConversationServices:
        project = self.project
        return ConversationServices(
            self, self.cwd, "1.2.3", sessions=project.logs, copy=project.fork
        )


class Desk:
    """A user who runs commands in real sessions."""

    def __init__(self, root: Path, *steps: Step, home: Path | None = None) -> None:
        self._opener = Opener(root, *steps, home=home)
        self.cwd, self.model = self._opener.cwd, self._opener.model
        self.events: list[Event] = []
        self.runner = asyncio.Runner()
        self._start()

    def _start(self, resume: str | None = None) -> None:
        self.line = CommandLine(self._opener.services(), emit=self.events.append, width=110)
        self.screen = self.line.screen
        self.wait(self.line.context.switch_session(resume=resume))

    @property
    def agent(self) -> AgentState:
        return self.line.context.agent

    @property
    def session(self) -> str:
        return self.line.context.session

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def say(self, words: str) -> TurnFinished:
        finished: TurnFinished = self.wait(run_turn(self.agent, words))
        assert finished.status == "ok", finished
        return finished

    def run(self, words: str, *answers: str) -> str:
        """What a command prints, its questions answered."""
        self.screen.answers, self.screen.asked = list(answers), []
        printed: str = self.wait(self.line.run(words))
        assert self.line.waited[-1:] in ([], [""])
        assert self.screen.answers == []
        return printed

    def entries(self, session: str = "") -> list[Entry]:
        folder = self.agent.folder.parent / (session or self.session)
        return read_log(folder / "log.jsonl").entries

    def of(self, kind: type[Any], session: str = "") -> list[Any]:
        return [entry for entry in self.entries(session) if isinstance(entry, kind)]

    def said(self) -> list[str]:
        """What the newest request held, as text."""
        return [
            block.get("text", "")
            for message in self.model.requests[-1].messages
            for block in message["content"]
        ]

    def resume(self) -> None:
        """Leave, and come back in a process of its own as far as the session can tell."""
        session = self.session
        self.wait(self.agent.close())
        self._start(session)


def write(name: str, content: str) -> Step:
    return Step(tools=[("Write", {"path": name, "content": content})])


def bash(command: str, **more: Any) -> Step:
    return Step(tools=[("Bash", {"command": command, **more})])


OK = Step(text="Done.")
STALE = "Before you rely on these files, read them"
Opened = Callable[..., Desk]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Opened]:
    opened: list[Desk] = []

    def open_desk(*steps: Step, **options: Any) -> Desk:
        opened.append(Desk(tmp_path, *steps, **options))
        return opened[0]

    yield open_desk
    for each in opened:
        each.wait(each.agent.close())
        each.runner.close()


THREE = (
    write("a.txt", "one\n"), OK,
    Step(text="Just talk."),
    bash("echo two > a.txt; echo b > b.txt"), OK,
)  # fmt: skip


def three_turns(desk: Opened, *more: Step) -> Desk:
    """Three turns: write a.txt; talk; change a.txt and create b.txt."""
    opened = desk(*THREE, *more)
    for words in ("write a", "what is a?", "now the second"):
        opened.say(words)
    return opened


@pytest.mark.slow
def test_a_manual_checkpoint(desk: Opened) -> None:
    talk = three_turns(desk)
    shown = talk.run("/checkpoint  before the\nrewrite")
    (entry,) = [e for e in talk.of(Checkpoint) if e.path]
    assert (entry.number, entry.trigger) == (4, "by hand: before the rewrite")
    path = talk.agent.folder / entry.path
    assert f"checkpoint 4:{path}" in "".join(shown.split("\n"))
    assert "/rewind 4 returns to it" in shown
    assert "over 10 MB" in shown
    saved = load_checkpoint(talk.agent.folder, 4)
    assert saved.facts.intent == "write a"
    assert saved.facts.model == "scripted"
    assert saved.facts.mode == "bypass"
    assert saved.facts.tokens == talk.agent.model.current_window().tokens > 0
    assert "a.txt" in str(saved.facts.ledger)
    assert "now the second" in str(saved.facts.ledger)
    assert saved.seq == entry.seq - 1
    assert saved.snapshot == entry.snapshot is not None


@pytest.mark.slow
def test_a_checkpoint_goes_on_from_the_newest_summary(desk: Opened) -> None:
    talk = three_turns(desk, OK)
    document = SummaryDocument(intent="Write things", next_steps=("write c",), decisions=("No b.",))
    covers = [1, talk.agent.log.last_seq]
    talk.agent.record(
        Summary(document=document.to_json(), text="So far.", covers=covers, keep_from=covers[1] + 1)
    )
    talk.run("/checkpoint")
    talk.say("and now d")
    talk.run("/checkpoint")
    first, second = (
        load_checkpoint(talk.agent.folder, entry.number).facts
        for entry in talk.of(Checkpoint)
        if entry.path
    )
    assert first.intent == second.intent == "Write things"
    assert first.document["next_steps"] == ["write c"]  # nothing was said since
    assert second.document["next_steps"] == []  # what was said since is answered
    assert "and now d" in str(second.ledger)
    assert next(iter(second.document["decisions"])) == "No b."
    assert "a.txt" in str(first.document["modified"])  # as the ledger has it


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_told(desk: Opened) -> None:
    talk = three_turns(desk)
    (talk.agent.folder / "checkpoints").write_text("in the way")
    with pytest.raises(CtxagentError, match="no checkpoint was taken"):
        talk.run("/checkpoint")
    (notice,) = [event for event in talk.events if isinstance(event, Notice)]
    assert "cannot write the checkpoint" in notice.text
    with pytest.raises(CtxagentError):
        talk.run("/rewind 1 files", "y")
    assert (talk.cwd / "b.txt").exists()


def test_there_is_nothing_to_go_back_to_at_first(desk: Opened) -> None:
    talk = desk()
    assert "nothing to rewind to yet" in talk.run("/rewind")
    assert not talk.agent.log.path.exists()


@pytest.mark.slow
def test_a_checkpoint_before_the_first_turn(desk: Opened) -> None:
    """It saves the current files, and the conversation rewinds to its very beginning."""
    change = Step(tools=[("Bash", {"command": "printf new > b.txt"})])
    talk = desk(change, Step(text="Written."), Step(text="Hello again."))
    (talk.cwd / "b.txt").write_text("old")
    shown = talk.run("/checkpoint as I found it")
    assert "checkpoint 1:" in shown
    assert "/rewind 1 returns to it" in shown
    talk.say("write b.txt")
    assert (talk.cwd / "b.txt").read_text() == "new"
    rows = [" ".join(line.split()) for line in talk.run("/rewind").split("\n") if line.strip()]
    assert rows[1].endswith("with files checkpoint by hand: as I found it, before the first turn")
    talk.run("/rewind 1 both", "y")
    assert (talk.cwd / "b.txt").read_text() == "old"
    talk.say("hello")
    assert talk.said()[-1] == "hello"
    assert not any("write b.txt" in text for text in talk.said())


@pytest.mark.slow
def test_the_points_newest_first(desk: Opened) -> None:
    talk = three_turns(desk, Step(text="Bye."))
    talk.run("/checkpoint half way")
    talk.say("thanks")
    rows = [line.split() for line in talk.run("/rewind").split("\n") if line.strip()]
    # The key, and beside it the number as the row shows it.
    assert [row[:2] for row in rows[:5]] == [[number, number] for number in "54321"]
    lines = [" ".join(row) for row in rows]
    assert len(lines) == 5
    assert lines[0].endswith("unchanged since thanks")
    assert lines[1].endswith("with files checkpoint by hand: half way, after: now the second")
    assert lines[3].endswith("with files what is a?")


@pytest.mark.slow
def test_undo_of_the_last_turn(desk: Opened) -> None:
    talk = three_turns(desk)
    left = talk.session
    assert "nothing has changed" in talk.run("/undo", "n")
    shown = talk.run("/undo", "y")
    assert talk.screen.asked == ["[y]es, rewind the conversation and the files · [n]o · Enter: no"]
    assert "+ one" in shown
    assert f"/resume {left}" in shown
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    assert not (talk.cwd / "b.txt").exists()
    assert talk.screen.given_back == "now the second"
    assert "conversation: 1 turn" in talk.run("/undo", "y")  # which has changed no file
    assert talk.screen.asked == ["[y]es, rewind the conversation · [n]o · Enter: no"]
    assert talk.screen.given_back == "what is a?"
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    talk.run("/undo", "y")
    assert not (talk.cwd / "a.txt").exists()
    with pytest.raises(UsageError, match="no turn to undo"):
        talk.run("/undo")


def test_a_new_file_is_shown_once(desk: Opened) -> None:
    talk = desk(write("new.py", "COST = 490\n"), OK)
    talk.say("add the cost")
    shown = talk.run("/undo", "n")
    assert shown.count("- COST = 490") == 1
    assert shown.count("new.py") == 2  # the heading of the diff, and the list of files


@pytest.mark.slow
def test_both_go_back_and_nothing_is_lost(desk: Opened) -> None:
    talk = three_turns(desk, Step(text="Again."), OK)
    (talk.cwd / "b.txt").write_text("edited by hand\n")
    left, before = talk.session, talk.agent.log.path.read_bytes()
    shown = talk.run("/rewind 3", "b")
    assert "+ one" in shown
    assert "- two" in shown
    assert "files that would be written: a.txt · would be removed: b.txt" in shown
    assert "\nwritten: a.txt · removed: b.txt\n" in shown
    assert f"to undo this: /resume {left}, then /rewind " in shown
    assert "conversation: 1 turn would be left out" in shown
    assert f"/resume {left}" in shown
    assert talk.screen.asked == ["[c]onversation · [f]iles · [b]oth · [n]o · Enter: no"]
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    assert not (talk.cwd / "b.txt").exists()
    assert talk.screen.given_back == "now the second"

    assert talk.session != left
    assert (talk.agent.folder.parent / left / "log.jsonl").read_bytes().startswith(before)
    (note,) = [each for each in talk.of(Note, left) if each.topic == "rewind"]
    assert note.data["point"] == 3
    kept = talk.of(Checkpoint, left)[-1]
    assert (kept.trigger, kept.number, note.data["before"]) == ("before rewind", 4, 4)

    talk.say("another second")
    said = talk.said()
    assert "what is a?" in said
    assert not any("now the second" in text or STALE in text for text in said)

    talk.wait(talk.line.context.switch_session(resume=left))  # the way back from the way back
    talk.run("/rewind 4 files", "y")
    assert (talk.cwd / "b.txt").read_text() == "edited by hand\n"
    assert (talk.cwd / "a.txt").read_text() == "two\n"


@pytest.mark.slow
def test_only_files_go_back_and_the_model_is_told(desk: Opened) -> None:
    edit = ("Edit", {"path": "a.txt", "old": "one", "new": "three"})
    talk = three_turns(desk, Step(tools=[edit]), Step(text="I must read it."))
    session = talk.session
    talk.run("/rewind 3 files", "y")
    assert talk.screen.asked == ["[y]es, restore the files · [n]o · Enter: no"]
    assert talk.session == session
    assert talk.screen.given_back == ""
    assert str(talk.cwd / "a.txt") not in talk.agent.context.seen.digests
    talk.say("go on")
    (told,) = [text for text in talk.said() if STALE in text]
    assert told.split("\n")[1:] == ["- a.txt", "- b.txt"]
    assert "now the second" in talk.said()
    assert (talk.cwd / "a.txt").read_text() == "one\n"  # an edit needs a new look first


@pytest.mark.slow
def test_only_the_conversation_goes_back_and_the_model_is_told(desk: Opened) -> None:
    talk = three_turns(desk, OK)
    shown = talk.run("/rewind 2 conversation", "yes")
    assert "would be written" not in shown  # the files stay
    assert (talk.cwd / "a.txt").read_text() == "two\n"
    assert talk.screen.given_back == "what is a?"
    talk.say("again")
    (told,) = [text for text in talk.said() if STALE in text]
    assert "but not the files" in told
    assert "a.txt" in told


@pytest.mark.slow
def test_a_copy_knows_the_files_of_the_turns_it_has(desk: Opened) -> None:
    talk = three_turns(desk, write("c.txt", "c\n"), OK)
    talk.run("/rewind 3", "c")
    talk.say("write c")
    assert sorted(path.name for path in talk.cwd.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    talk.run("/rewind 2 files", "y")  # as they were after the first turn
    assert [path.name for path in talk.cwd.iterdir()] == ["a.txt"]
    assert (talk.cwd / "a.txt").read_text() == "one\n"


@pytest.mark.slow
def test_an_ignored_file_that_gives_way_can_be_had_back(desk: Opened) -> None:
    talk = desk(
        write("a.txt", "one\n"), OK,
        bash("rm a.txt"), OK,
        bash("echo a.txt > .gitignore; echo mine > a.txt"), OK,
    )  # fmt: skip
    for words in ("write it", "remove it", "ignore it"):
        talk.say(words)
    talk.run("/rewind 2 files", "y")
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    assert talk.run("/rewind").count("before rewind") == 1
    talk.run("/rewind 4 files", "y")
    assert (talk.cwd / "a.txt").read_text() == "mine\n"


@pytest.mark.slow
def test_back_to_the_first_words(desk: Opened) -> None:
    talk = three_turns(desk, OK)
    talk.run("/rewind 1", "b")
    assert list(talk.cwd.iterdir()) == []
    talk.say("start again")
    assert [t for t in talk.said() if t.startswith(("write a", "start again"))] == ["start again"]
    assert "1" in talk.run("/rewind")


@pytest.mark.slow
def test_a_checkpoint_keeps_the_turns_before_it(desk: Opened) -> None:
    talk = three_turns(desk, write("c.txt", "c\n"), OK, OK)
    talk.run("/checkpoint good")
    talk.say("write c")
    shown = talk.run("/rewind 4 both", "y")
    assert "ends at that checkpoint" in shown
    assert talk.screen.given_back == ""
    assert not (talk.cwd / "c.txt").exists()
    assert load_checkpoint(talk.agent.folder, 4).trigger == "by hand: good"
    talk.say("go on")
    assert "now the second" in talk.said()
    talk.run("/checkpoint")
    assert talk.of(Checkpoint)[-1].number == 6  # turns and checkpoints, counted on


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("answer", ["n", "no", "", "what?", "both please"])
def test_what_is_not_a_yes_changes_nothing(desk: Opened, answer: str) -> None:
    talk = three_turns(desk)
    before = talk.agent.log.path.read_bytes()
    assert "nothing has changed" in talk.run("/rewind 1", answer)
    assert "nothing has changed" in talk.run("/rewind 1 both", answer)
    assert talk.agent.log.path.read_bytes() == before
    assert (talk.cwd / "b.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("/rewind 9", "no point 9"),
        ("/rewind x", "no point x"),
        ("/rewind 1 everything", "does not take 'everything'"),
    ],
)
def test_what_rewind_does_not_know(desk: Opened, words: str, why: str) -> None:
    talk = three_turns(desk)
    with pytest.raises(UsageError, match=why):
        talk.run(words)


@pytest.mark.slow
def test_what_cannot_go_back_is_not_offered(desk: Opened) -> None:
    talk = three_turns(desk, Step(text="Bye."))
    talk.run("/checkpoint")
    assert "nothing has changed" in talk.run("/rewind 4")
    assert talk.screen.asked == []
    assert "the files have not changed since" in talk.screen.printed
    assert "has not continued since" in talk.screen.printed
    talk.say("thanks")
    shown = talk.run("/rewind 5", "n")
    assert "this session has not changed files since" in shown
    assert talk.screen.asked == ["[c]onversation · [n]o · Enter: no"]
    with pytest.raises(UsageError, match="has not changed files since"):
        talk.run("/rewind 5 both")


@pytest.mark.slow
def test_in_a_folder_that_is_no_project_files_that_were_edited_go_back(
    desk: Opened, tmp_path: Path
) -> None:
    talk = desk(
        write("a.txt", "one\n"),
        OK,
        Step(tools=[("Edit", {"path": "a.txt", "old_string": "one", "new_string": "two"})]),
        OK,
        home=tmp_path / "project",
    )
    talk.say("write a")
    talk.say("again")
    assert "without the files" in talk.run("/checkpoint")
    assert "is not a project" in " ".join(talk.run("/rewind 2 files", "y").split())
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    talk.run("/rewind 1 both", "y")
    assert not (talk.cwd / "a.txt").exists()
    assert talk.screen.given_back == "write a"


@pytest.mark.slow
def test_without_a_scan_the_files_that_calls_name_go_back(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that cannot be restored are named, and the rewind itself can be undone."""
    monkeypatch.setattr(staging, "MAX_FOLDER_FILES", 0)
    hidden = bash('python3 -c \'open("c.txt", "w").write("c")\'')
    talk = desk(*THREE, hidden, OK, bash("printf 4 > a.txt"), OK)
    (talk.cwd / "z.txt").write_text("one file is too much\n")
    for words in ("write a", "what is a?", "now the second", "write c, unseen", "a again"):
        talk.say(words)
    shown = " ".join(talk.run("/rewind 3", "f").split())
    assert "only files saved before an edit can be restored: there is too much below" in shown
    assert "changed, and not saved: c.txt" in shown
    assert (
        "to files they do not name are not undone: `echo two > a.txt; echo b > b.txt`, `py" in shown
    )
    assert talk.screen.asked == ["[c]onversation · [f]iles · [b]oth · [n]o · Enter: no"]
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    assert not (talk.cwd / "b.txt").exists()
    assert (talk.cwd / "c.txt").read_text() == "c"
    (before,) = [e.number for e in talk.of(Checkpoint) if e.trigger == "before rewind"]
    talk.run(f"/rewind {before} files", "y")
    assert (talk.cwd / "a.txt").read_text() == "4"
    assert (talk.cwd / "b.txt").read_text() == "b\n"
    talk.run("/rewind 3 conversation", "y")  # the copy knows the files that it did not take back
    talk.run("/rewind 1 files", "y")
    assert sorted(path.name for path in talk.cwd.iterdir()) == ["c.txt", "z.txt"]


@pytest.mark.slow
def test_among_files_of_many_batches_an_edit_goes_back(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all files are scanned, unseen changes by commands stay, and a message says so."""
    monkeypatch.setattr(staging, "FIRST_STAGING_S", 0.0)
    monkeypatch.setattr(staging, "BATCH_FILES", 100)
    change = bash("for f in d7/f1 d8/f2; do echo new > $f; done")
    talk = desk(write("a.txt", "one\n"), OK, change, OK)
    for n in range(1_500):
        path = talk.cwd / f"d{n // 10}" / f"f{n % 10}"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    talk.say("write a")
    talk.say("change two")
    shown = " ".join(talk.run("/rewind 1 files", "y").split())
    assert not (talk.cwd / "a.txt").exists()
    assert [(talk.cwd / name).read_text() for name in ("d7/f1", "d8/f2")] == ["new\n", "new\n"]
    assert "files left and continues with the next command" in shown
    assert "by these commands to files they do not name are not undone: `for f in d7" in shown


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, except git's own files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git/" not in str(path.relative_to(folder))
    }


def rewrite(name: str, content: str) -> tuple[Step, Step]:
    """Calls that read and write a file."""
    return Step(tools=[("Read", {"path": name})]), write(name, content)


UNSEEN = (  # calls that bring files into sight which the snapshot before them left out
    rewrite("big.txt", "small\n"),
    (bash("printf small > big.txt"),),
    (*rewrite(".env", "SECRET=2\n"), *rewrite(".gitignore", "*.tmp\n")),
    rewrite(".gitignore", "*.tmp\n"),
    (bash("rm .gitignore; touch data; echo new > data/new.csv"),),
    (bash("rm -rf inner/.git; echo new > inner/new.txt"),),
    (bash("pushd inner; echo new > n.txt; popd; cd inner && echo v > v.txt; cd .."),),
    (bash("cd data; echo new > x.csv; echo v > v.csv; cd ..; rm -r data; echo 2 > .env"),),
)


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("calls", UNSEEN, ids=lambda calls: str(calls[-1].tools[0][1])[:60])
def test_what_the_snapshot_left_out_goes_back_and_forth(
    desk: Opened, calls: tuple[Step, ...]
) -> None:
    talk = desk(*calls, OK)
    files = {".gitignore": "data/\n.env\n", "data/x.csv": "1,2\n", ".env": "SECRET=1\n"}
    if "big.txt" in str(calls):
        files["big.txt"] = ("word " * 199 + "word\n") * 11_000
    for name, text in {**files, "inner/n.txt": "n\n"}.items():
        (talk.cwd / name).parent.mkdir(exist_ok=True)
        (talk.cwd / name).write_text(text)
    for folder in (talk.cwd, talk.cwd / "inner"):
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    was = contents(talk.cwd)
    talk.say("do it")
    done = contents(talk.cwd)
    assert done != was
    talk.run("/rewind 1 files", "y")
    assert contents(talk.cwd) == was
    talk.run("/rewind 2 files", "y")
    assert contents(talk.cwd) == done
    talk.run("/rewind 3 files", "y")
    assert contents(talk.cwd) == was


@pytest.mark.slow
def test_a_large_file_that_no_call_named_is_left_and_named(desk: Opened) -> None:
    hidden = bash('python3 -c \'open("big.bin", "w").write("x")\'')
    talk = desk(hidden, OK, write("a.txt", "a\n"), OK)
    (talk.cwd / "big.bin").write_bytes(bytes(11 << 20))
    talk.say("do it")
    with pytest.raises(UsageError, match=r"but were not saved: big\.bin"):
        talk.run("/rewind 1 files")
    talk.say("and more")
    shown = " ".join(talk.run("/rewind 1 files", "y").split())
    assert "may have existed then and their content was not saved: big.bin" in shown
    assert contents(talk.cwd) == {"big.bin": b"x"}


@pytest.mark.slow
def test_a_file_made_unseen_and_edited_later_is_removed(desk: Opened) -> None:
    talk = desk(bash('python3 -c \'open("new.py", "w")\''), write("new.py", "edited\n"), OK)
    talk.say("do it")
    talk.run("/rewind 1 files", "y")
    assert contents(talk.cwd) == {}
    talk.run("/rewind 2 files", "y")
    assert contents(talk.cwd) == {"new.py": b"edited\n"}


@pytest.mark.slow
def test_what_cannot_be_saved_first_is_not_overwritten(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = desk(*rewrite(".env", "SECRET=2\n"), write("a.txt", "a\n"), OK)
    (talk.cwd / ".gitignore").write_text(".env\n")
    (talk.cwd / ".env").write_text("SECRET=1\n")
    talk.say("do it")
    (talk.cwd / ".env").write_text("a longer secret\n")
    monkeypatch.setattr(saved_files, "MAX_SAVED_BYTES", 10)
    shown = " ".join(talk.run("/rewind 1 files", "y").split())
    assert "their current content could not be saved first: .env" in shown
    assert contents(talk.cwd) == {".gitignore": b".env\n", ".env": b"a longer secret\n"}


@pytest.mark.slow
def test_versions_that_are_no_longer_kept_are_named(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_files, "MAX_SMALL_BYTES", 10)
    turns = [call for n in range(4) for call in (*rewrite("data.bin", f"version {n}\n" * 5), OK)]
    talk = desk(*turns, write("a.txt", "a\n"), OK)
    (talk.cwd / ".gitignore").write_text("*.bin\n")
    (talk.cwd / "data.bin").write_text("the first version\n")
    for number in range(5):
        talk.say(f"do {number}")
    shown = " ".join(talk.run("/rewind 1", "n").split())
    assert "only the newest two versions of a file over 1 MB are): data.bin" in shown
    assert "would be removed: a.txt" in shown
    talk.run("/rewind 3 files", "y")
    assert (talk.cwd / "data.bin").read_text() == "version 1\n" * 5
    talk.run("/fork")  # the copy has hard links to the saved versions
    talk.run("/rewind 4 files", "y")
    assert (talk.cwd / "data.bin").read_text() == "version 2\n" * 5


@pytest.mark.slow
def test_files_that_were_never_saved_are_named_with_the_reason(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure_nothing(feature: DiskBudgetFeature) -> None:
        pass

    monkeypatch.setattr(DiskBudgetFeature, "session_started", measure_nothing)
    monkeypatch.setattr(saved_files, "MAX_SMALL_BYTES", 10)
    talk = desk(*rewrite("data.bin", "the second version\n"), write("a.txt", "a\n"), OK)
    (talk.cwd / ".gitignore").write_text("*.bin\n")
    (talk.cwd / "data.bin").write_text("the first version\n")
    tracker = talk.agent.runner.change_tracker
    assert tracker
    assert tracker.saver
    tracker.saver.files.room.left = 5
    talk.say("do it")
    shown = " ".join(talk.run("/rewind 1 files", "y").split())
    assert "(the state directory has reached its limit, state.max_gb): data.bin" in shown
    assert contents(talk.cwd) == {
        ".gitignore": b"*.bin\n",
        "data.bin": b"the second version\n",
    }


@pytest.mark.slow
def test_what_another_session_changed_stays(desk: Opened, tmp_path: Path) -> None:
    talk = three_turns(desk)
    other = TouchRecord(talk.agent.folder.parents[1] / RECORD_FOLDER, "other")
    call = other.begin([str(talk.cwd / "b.txt")])
    (talk.cwd / "b.txt").write_text("by the other session\n")
    other.record_changes(call, {str(talk.cwd / "b.txt"): UNKNOWN}, ended=True)
    (talk.cwd / "c.txt").write_text("by the person\n")
    shown = " ".join(talk.run("/rewind 3 files", "y").split())
    assert "not restored, because another session changed them since: b.txt" in shown
    assert "program, or a command while it ran): c.txt" in shown
    assert "would be written: a.txt · would be removed: c.txt" in shown
    assert (talk.cwd / "b.txt").read_text() == "by the other session\n"
    assert (talk.cwd / "a.txt").read_text() == "one\n"
    assert not (talk.cwd / "c.txt").exists()
    other.close()


@pytest.mark.slow
def test_files_whose_snapshot_is_gone(desk: Opened) -> None:
    talk = three_turns(desk)
    store = talk.agent.folder.parent.parent / "worktree.git"
    for held in (store / "objects").glob("??/*"):
        held.unlink()
    with pytest.raises(UsageError, match="are gone"):
        talk.run("/rewind 3 files")
    talk.run("/rewind 3", "c")
    assert talk.screen.asked == ["[c]onversation · [n]o · Enter: no"]


@pytest.mark.slow
def test_what_is_in_the_way_leaves_everything_as_it_is(desk: Opened) -> None:
    """An ignored file is never touched, so its folder cannot become a file again."""
    talk = desk(
        bash("echo '*.log' > .gitignore; echo x > x"), OK,
        bash("rm x; mkdir x; echo precious > x/out.log; echo more > .gitignore.bak"), OK,
    )  # fmt: skip
    talk.say("one")
    talk.say("two")
    before = talk.agent.log.path.read_bytes()
    with pytest.raises(UsageError, match=r"x/out\.log is in the way.*Move it elsewhere"):
        talk.run("/rewind 2 files", "y")
    assert "Move it elsewhere, then try again" in talk.run("/rewind 2", "n")
    assert talk.screen.asked == ["[c]onversation · [n]o · Enter: no"]
    assert talk.agent.log.path.read_bytes() == before
    assert (talk.cwd / "x" / "out.log").read_text() == "precious\n"
    assert (talk.cwd / ".gitignore.bak").exists()


@pytest.mark.slow
def test_files_that_did_not_all_go_back_are_told_as_they_are(desk: Opened) -> None:
    """The disk is full halfway: only real changes are recorded, and the rewind can be undone."""
    talk = desk(
        bash("head -c 1000000 /dev/urandom > big; echo one > a.txt; echo z > z.txt"), OK,
        bash("echo small > big; echo two > a.txt; echo zz > z.txt"), OK, OK,
    )  # fmt: skip
    talk.say("one")
    talk.say("two")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(CtxagentError, match="not all files could be restored") as error:
            talk.run("/rewind 2 files", "y")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "written: a.txt, big" in error.value.message
    assert "To undo this: /rewind 3 files" in error.value.hint
    assert (talk.cwd / "z.txt").read_text() == "zz\n"
    (note,) = talk.of(Note)
    assert "not all" in note.text
    assert [Path(row["path"]).name for row in note.data["changes"]] == ["a.txt", "big"]
    assert talk.agent.ledger.files["a.txt"].tool == "/rewind"
    assert talk.agent.ledger.files["z.txt"].tool == "Bash"
    talk.say("go on")
    (told,) = [text for text in talk.said() if STALE in text]
    assert told.split("\n")[1:] == ["- a.txt", "- big", "- z.txt"]
    talk.run("/rewind 3 files", "y")
    assert (talk.cwd / "big").read_text() == "small\n"
    assert (talk.cwd / "a.txt").read_text() == "two\n"


@pytest.mark.slow
def test_what_git_has_cleaned_up_meanwhile_is_kept_before_it_is_overwritten(desk: Opened) -> None:
    talk = desk(
        bash("echo one > a"), OK, bash("echo v1 > f; git add f"), OK, bash("echo z > z"), OK
    )

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=talk.cwd, check=True, capture_output=True)

    git("init", "-q")
    (talk.cwd / "f").write_text("v0\n")
    git("add", "f")
    git("commit", "-qm", "zero")
    for words in ("a", "b", "c"):
        talk.say(words)
    git("reset", "-q")
    git("gc", "-q", "--prune=now")
    talk.run("/rewind 2 files", "y")
    assert (talk.cwd / "f").read_text() == "v0\n"
    talk.run("/rewind 4 files", "y")
    assert (talk.cwd / "f").read_text() == "v1\n"


@pytest.mark.slow
def test_private_files_come_back_private(desk: Opened) -> None:
    talk = desk(
        bash("mkdir -m 700 priv; echo k > priv/k; chmod 600 priv/k"), OK, bash("rm -r priv"), OK
    )
    talk.say("a")
    talk.say("b")
    talk.run("/rewind 2 files", "y")
    assert (talk.cwd / "priv").stat().st_mode & 0o777 == 0o700
    assert (talk.cwd / "priv" / "k").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_jobs_in_the_background_are_warned_of(desk: Opened) -> None:
    talk = desk(bash("sleep 60", run_in_background=True), OK, write("a.txt", "a\n"), OK)
    talk.say("start it")
    talk.say("write a")
    shown = talk.run("/rewind 2", "n")
    assert "is still running: it may write to restored files" in shown


@pytest.mark.slow
def test_a_broken_checkpoint_does_not_stop_the_way_back(desk: Opened) -> None:
    talk = three_turns(desk, write("c.txt", "c\n"), OK)
    talk.run("/checkpoint")
    talk.say("write c")
    (talk.agent.folder / "checkpoints" / "4.json").write_text("{")
    talk.run("/rewind 4 files", "y")
    assert not (talk.cwd / "c.txt").exists()


@pytest.mark.slow
def test_numbers_go_on_over_a_resume(desk: Opened) -> None:
    talk = three_turns(desk)
    talk.run("/checkpoint")
    talk.resume()
    talk.run("/checkpoint")
    assert [e.number for e in talk.of(Checkpoint) if e.path] == [4, 5]
    talk.run("/rewind 3 files", "y")
    assert not (talk.cwd / "b.txt").exists()


@pytest.mark.slow
def test_an_interrupt_comes_too_late_once_files_go_back(desk: Opened) -> None:
    """The command completes whenever it is cancelled after the answer."""
    talk = three_turns(desk)
    found = commands.parse("/rewind 3 both", commands.COMMANDS)
    assert found is not None

    async def cancelled() -> None:
        running = asyncio.ensure_future(found[0].run(talk.line.context, found[1]))
        talk.screen.answers = ["y"]
        while talk.screen.answers:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        await running

    left = talk.session
    talk.wait(cancelled())
    assert talk.session != left
    assert not (talk.cwd / "b.txt").exists()


@pytest.mark.slow
def test_the_persons_repository_is_left_alone(desk: Opened) -> None:
    talk = desk(*THREE)
    env = {"PATH": os.environ["PATH"], "HOME": str(talk.cwd.parent)}
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]

    def git(*arguments: str) -> bytes:
        command = ["git", *who, *arguments]
        return subprocess.run(
            command, cwd=talk.cwd, env=env, check=True, capture_output=True
        ).stdout

    (talk.cwd / "a.txt").write_text("zero\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "zero")

    def state() -> dict[str, bytes]:
        inside = (talk.cwd / ".git").rglob("*")
        return {str(path): path.read_bytes() for path in inside if path.is_file()}

    before = state()
    for words in ("write a", "what is a?", "now the second"):
        talk.say(words)
    talk.run("/rewind 1", "b")
    assert (talk.cwd / "a.txt").read_text() == "zero\n"
    assert state() == before
    assert git("status", "--short") == b""


@pytest.mark.slow
def test_what_went_back_is_told_and_recorded(desk: Opened) -> None:
    talk = three_turns(desk)
    talk.run("/rewind 1 files", "y")
    kinds = [type(entry) for entry in talk.entries()[-4:]]
    assert kinds == [Checkpoint, Note, User, Note]  # the first note: what was saved before it
    assert talk.of(Note)[-1].data["changes"] == [
        {"path": str(talk.cwd / "a.txt"), "action": "deleted"},
        {"path": str(talk.cwd / "b.txt"), "action": "deleted"},
    ]


@pytest.mark.slow
def test_a_rewind_in_the_repl(tmp_path: Path) -> None:
    opener = Opener(tmp_path, write("a.txt", "one\n"), Step(text="Written."), Step(text="Bye."))

    async def act(seat: Seat) -> None:
        seat.say("write a file")
        await seat.until("Written.")
        seat.say("/rewind 1")
        await seat.keys("[c]onversation · [f]iles · [b]oth · [n]o · Enter: no")
        seat.press(ESC)
        await seat.until("interrupted; nothing has changed")
        await seat.until("[b]oth", gone=True)
        assert (opener.cwd / "a.txt").exists()
        seat.say("/rewind 1")
        await seat.until(lambda: any("[b]oth" in line for line in seat.glass.lines()))
        await seat.keys("[b]oth")
        seat.press("b")
        await seat.until("what came later")
        await seat.until(lambda: seat.glass.lines()[-2].startswith("❯ write a file"))
        seat.press(" again\r")
        await seat.until("Bye.")
        sessions.append(seat.repl.conversation.session)

    sessions: list[str] = []
    _, glass = drive(opener, act, glass=Glass(columns=120))  # type: ignore[arg-type]
    assert "- one" in glass.all()
    assert list(opener.cwd.iterdir()) == []
    said = {
        log.parent.name: [e.content for e in read_log(log).entries if isinstance(e, User)]
        for log in opener.project.logs()
    }
    (copy,) = sessions
    assert "write a file again" in said.pop(copy)
    (left,) = said.values()
    assert "write a file" in left
