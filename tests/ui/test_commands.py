import asyncio
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import build_request
from ctxagent.agent.errors import CompactionFailed, CtxagentError, UsageError
from ctxagent.agent.events import Compacted
from ctxagent.agent.extensions.command import Prompt, command
from ctxagent.agent.loop.interface import Feature
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, Mask, Pin, Summary, Unpin, User
from ctxagent.agent.ui import commands
from ctxagent.agent.ui.commands import completions

from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk


@pytest.fixture
def desk(tmp_path: Path) -> CommandDesk:
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "big.txt").write_text("word " * 3_000)
    steps = [Step(tools=[("Read", {"path": "big.txt"})]), Step(text="It is full of words.")]
    talk = Conversation(cwd, steps, mode="ask", allow=["Bash(make:*)"])
    talk.say("what is in big.txt?")
    return CommandDesk(talk)


def test_words_are_told_from_commands() -> None:
    assert commands.parse("what is /help?", commands.COMMANDS) is None
    assert commands.parse("/usr/bin/env is what?", commands.COMMANDS) is None
    found = commands.parse("/resume  abc ", commands.COMMANDS)
    assert found is not None
    assert (found[0].name, found[1]) == ("resume", "abc")
    short = commands.parse("/perm plan", commands.COMMANDS)
    assert short is not None
    assert short[0].name == "permissions"


@pytest.mark.parametrize("words", ["recover the deleted file", "recover it from git please"])
def test_a_sentence_that_begins_with_a_command_is_for_the_model(words: str) -> None:
    assert commands.parse(words, commands.COMMANDS) is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("/hlep", "/help"),
        ("/share", "/export FILE.html"),
        ("/shrae", "/help lists"),  # no command has a name near it
        ("/qiut", "/quit"),
        ("/co", "/compact, /context, /copy, /cost"),
        ("/xyzzy", "/help lists"),
        ("/", "/help"),
    ],
)
def test_an_unknown_command_names_the_nearest(words: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        commands.parse(words, commands.COMMANDS)
    assert hint in error.value.hint


def test_names_of_other_agents_are_aliases() -> None:
    found = commands.parse("/usage", commands.COMMANDS)
    assert found is not None
    assert (found[0].name, found[1]) == ("cost", "")
    found = commands.parse("/config hooks", commands.COMMANDS)
    assert found is not None
    assert (found[0].name, found[1]) == ("settings", "hooks")


def test_a_command_of_the_user_comes_before_the_names_of_other_agents() -> None:
    for name in ("share", "usage"):
        own = commands.Command(name, "Of my own.", None)
        assert commands.parse(f"/{name} src", {name: own}) == (own, "src")


def test_a_command_of_a_plugin_may_be_named_with_it() -> None:
    own = commands.Command("hello", "", None)
    more = {
        "hello": own,
        "kit:hello": commands.Command("kit:hello", "", None, plugin="kit"),
        "bye": commands.Command("bye", "", None, plugin="kit"),
    }
    for words, name in {
        "/hello x": "hello",
        "/kit:hello x": "kit:hello",
        "/kit:b x": "bye",
    }.items():
        assert commands.parse(words, more) == (more[name], "x")
    for words in ("/other:bye", "/:bye", "/kit:"):
        with pytest.raises(UsageError):
            commands.parse(words, more)


def test_commands_of_extensions_have_what_the_built_in_ones_have(desk: CommandDesk) -> None:
    class Mine(Feature):
        async def folders(self) -> list[tuple[str, str]]:
            return [("src", "the code")]

        async def broken(self) -> list[tuple[str, str]]:
            raise ValueError

        @command("count lines", anytime=True, complete=folders, group="context")
        async def lines(self, argument: str) -> str:
            return f"counted in {argument}"

        @command("count words", complete=broken)
        def words(self, argument: str) -> Prompt:
            return Prompt(f"count the words in {argument}")

    desk.agent.features.add(Mine(desk.agent), guarded=True)
    context = desk.line.context
    assert asyncio.run(commands.completions_for(context, "/lines")) == [("src", "the code")]
    assert asyncio.run(commands.completions_for(context, "/words")) == ()
    known = commands.all_commands(context)
    assert (known["lines"].anytime, known["lines"].group) == (True, "context")
    assert (known["words"].anytime, known["words"].group) == (False, "your own")
    assert "count lines · extension" in desk.run("/help lines")
    assert desk.run("/lines src").strip() == "counted in src"
    assert desk.run("/words src") == ""
    assert desk.line.sent == ["count the words in src"]


def test_context_names_the_largest_item(desk: CommandDesk) -> None:
    shown = desk.run("/context").split("\n")
    window = desk.agent.model.current_window()
    assert shown[0].startswith(f"{window.tokens:,} of 200,000 tokens")
    assert "% full" in shown[0]
    heading = next(n for n, line in enumerate(shown) if line.split() == ["largest", "tokens"])
    assert shown[heading + 1].split()[0] == "#4"
    assert shown[heading + 1].endswith("result: Read big.txt")
    assert shown[heading + 2].endswith("call: Read big.txt")


def test_status_has_the_session_on_one_screen(desk: CommandDesk) -> None:
    asyncio.run(desk.line.run("/rename Big words"))
    shown = desk.run("/status")
    assert f"{desk.session} · Big words" in shown
    assert re.search(r"model +scripted · effort model default", shown)
    assert re.search(r"window +[\d,]+ of 200,000 tokens", shown)
    assert re.search(r"mode +ask", shown)
    assert "0 jobs, 0 subagents" in shown


def test_copy_takes_the_last_answer_or_its_last_code_block(desk: CommandDesk) -> None:
    with pytest.raises(UsageError, match="no code block to copy"):
        desk.run("/copy code")
    assert "the last answer, 20 characters" in desk.run("/copy")
    assert desk.screen.copied == "It is full of words."
    code = "One:\n\n```sh\nmake a\n```\n\n~~~\nmake b\n\x1b[2J``` c\n~~~\n"
    for text in (code, "No code here."):
        said = Assistant(
            content=[{"type": "text", "text": text}],
            usage={},
            stop_reason="end_turn",
            model="scripted",
        )
        desk.agent.record(said)
    desk.run("/copy code")
    assert desk.screen.copied == "make b\n\ufffd[2J``` c\n"
    with pytest.raises(UsageError, match="does not take 'all'"):
        desk.run("/copy all")


def test_cost(desk: CommandDesk) -> None:
    shown = desk.run("/cost")
    assert "the model's price is not known" in shown
    assert f"{desk.agent.totals.all.usage.input:,}" in shown
    assert "2 to the model, 1 to tools" in shown


def test_permissions(desk: CommandDesk) -> None:
    assert "Bash(make:*)" in (shown := desk.run("/permissions"))
    assert "To add a rule:" in shown
    assert "plan" in desk.run("/permissions plan")
    assert desk.agent.approval.mode == "plan"
    with pytest.raises(UsageError, match="no mode 'yolo'"):
        desk.run("/permissions yolo")
    assert "Bash(make:*)" in desk.run("/permissions forget")
    offered = [
        text
        for text, _ in asyncio.run(completions.completions_for(desk.line.context, "/permissions"))
    ]
    assert offered[-2:] == ["forget", "forget Bash(make:*)"]
    assert "forgotten: Bash(make:*)" in desk.run("/permissions forget Bash(make:*)")
    assert "make" not in desk.run("/permissions")
    with pytest.raises(UsageError, match="no rule to forget"):
        desk.run("/permissions forget")
    with pytest.raises(UsageError, match=r"there is no rule Bash\(make:\*\)"):
        desk.run("/permissions forget Bash(make:*)")


def test_effort_and_model(desk: CommandDesk) -> None:
    assert "high" in desk.run("/effort high")
    assert desk.agent.model.effort == "high"
    with pytest.raises(UsageError, match="no effort 'most'"):
        desk.run("/effort most")
    assert "window 200,000 tokens" in desk.run("/model other")
    assert desk.model == "other"


def test_a_model_that_is_not_known_is_told_and_used(desk: CommandDesk) -> None:
    told = " ".join(desk.run("/model claude-sonet-5-5").split())
    assert "claude-sonet-5-5 is not a known model" in told
    assert "did you mean claude-sonnet-5-5?" in told
    assert desk.model == "claude-sonet-5-5"
    assert "did you mean" not in desk.run("/model my-own-llama")
    for known in ("claude-sonnet-5-5", "claude-sonnet-5-5-20261101", "scripted:steps.json"):
        assert "known here" not in desk.run(f"/model {known}")


def test_cd_in_a_user_command_warns_about_its_scope(desk: CommandDesk) -> None:
    (desk.cwd / "src").mkdir()
    assert "cd applies to one command only" in desk.run("!cd src")
    assert desk.run("!cd src && pwd") == ""


def test_set_aside_renames_what_commands_planted(tmp_path: Path) -> None:
    """A single path is renamed without an argument; of several paths, those that are named."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    plant = "mkdir -p {0} && echo x > {0}/.envrc"
    commands = [plant.format("a"), plant.format("b"), plant.format("c")]
    steps = [Step(tools=[("Bash", {"command": command})]) for command in commands]
    desk = CommandDesk(Conversation(cwd, [*steps, Step(text="Done.")]))
    assert "no command has created" in desk.run("/set-aside")
    asyncio.run(run_turn(desk.agent, "go"))
    assert "name a path" in desk.run("/set-aside")
    assert "renamed to" in desk.run("/set-aside b/.envrc")
    with pytest.raises(UsageError, match="no command has created"):
        desk.run("/set-aside b/.envrc")
    shown = desk.run("/set-aside all").replace("\n", "")  # long paths are wrapped
    assert shown.count(".envrc.set-aside-") == 2
    assert not [*cwd.glob("*/.envrc")]
    assert len([*cwd.glob("*/.envrc.set-aside-*")]) == 3


def test_unpin_asks_which(desk: CommandDesk) -> None:
    with pytest.raises(UsageError, match="name the entry: /unpin REF"):
        desk.run("/unpin")


def test_todo_and_tools_and_config(desk: CommandDesk) -> None:
    assert "the todo list is empty" in desk.run("/todo")
    desk.agent.context.todos[:] = [{"content": "write it", "status": "in_progress"}]
    assert "▸ write it" in desk.run("/todo")
    shown = desk.run("/tools")
    assert all(tool.name in shown for tool in desk.agent.tools)
    desk.screen.paints = False
    assert desk.run("/config model.id").split() == ["model.id", '"scripted:x"', "-c"]


def test_the_log_in_lines(desk: CommandDesk) -> None:
    lines = desk.run("/log").split("\n")
    assert lines[1].split()[:3] == ["#2", "user", "what"]
    assert "[Read]" in lines[2]
    assert str(desk.agent.log.path) in "".join(lines[6:])


@pytest.mark.slow
def test_export(desk: CommandDesk) -> None:
    shown = desk.run("/export out.md")
    assert str(desk.cwd / "out.md") in shown.replace("\n", "")
    assert "It is full of words." in (desk.cwd / "out.md").read_text()
    with pytest.raises(UsageError, match="exists"):
        desk.run("/export out.md")
    desk.run("/export out.json")
    desk.run("/export out.html")
    assert "writing out.html" in desk.waited
    assert json.loads((desk.cwd / "out.json").read_text())[1]["kind"] == "user"
    with pytest.raises(CtxagentError, match="cannot write"):
        desk.run("/export missing/out.md")


def test_going_to_other_sessions(desk: CommandDesk, tmp_path: Path) -> None:
    shown = desk.run("/sessions")
    assert "what is in big.txt?" in shown
    assert "here" in shown
    other = tmp_path / "other" / "log.jsonl"
    other.parent.mkdir()
    other.write_bytes(desk.agent.log.path.read_bytes())
    desk.logs = [desk.agent.log.path, other]
    (listed,) = desk.run("/resume").splitlines()
    assert listed.startswith("other ")
    assert listed.endswith(" what is in big.txt?")
    with pytest.raises(UsageError, match="you are already in"):
        desk.run("/resume 1")
    desk.screen.picked = "other"
    desk.run("/resume")
    desk.run("/resume 2")
    desk.run("/resume oth")
    desk.run("/fork")
    desk.run("/clear --keep")
    assert desk.opened == [
        {"resume": "other"},
        {"resume": "other"},
        {"resume": "oth"},
        {"resume": desk.session, "fork": True},
        {"prior": "Intent: what is in big.txt?\nNewest words: #2: what is in big.txt?"},
    ]


def test_a_fresh_session_says_what_it_has_of_the_one_before(desk: CommandDesk) -> None:
    left = desk.session
    desk.agent.context.todos[:] = [{"content": "write it", "status": "in_progress"}]
    desk.agent.approval.allow_for_session("Bash(touch:*)")
    desk.agent.model.effort = "high"
    told = " ".join(desk.run("/clear --keep").split())
    assert f"new session · /resume {left} returns to the last one · not carried over: " in told
    assert "1 turn, 1 todo, 1 session rule" in told
    assert told.endswith("Ctrl-O shows the hand-over")
    assert "Intent: what is in big.txt?" in desk.run("/unfold")
    for words in ("/clear", "/new"):
        told = desk.run(words)
        assert desk.opened[-1] == {"prior": ""}
        assert "where the other stood" not in told
        assert "the hand-over" not in told
        assert f"/resume {left}" in told
    with pytest.raises(UsageError, match="does not take 'most'") as error:
        desk.run("/clear most")
    assert "/clear --keep hands over the state" in error.value.hint


def test_a_title_is_offered_to_be_changed(desk: CommandDesk) -> None:
    offered = completions.completions_for(desk.line.context, "/rename")
    assert asyncio.run(offered) == [("what is in big.txt?", "the first message")]
    assert "is now called: Big words" in desk.run("/rename  Big   words")
    assert desk.screen.window == "Big words"
    offered = completions.completions_for(desk.line.context, "/ren")
    assert asyncio.run(offered)[0] == ("Big words", "its title now")
    with pytest.raises(UsageError, match="the title is empty"):
        desk.run("/rename")


def test_the_models_in_a_list(desk: CommandDesk) -> None:
    shown = desk.run("/model").splitlines()
    assert shown[0].split() == ["scripted", "now", "scripted"]  # in use, and in no table
    claude, prices = "claude-sonnet-5-5", ["$2/10/0.1", "1M", "anthropic"]
    assert shown[1].split() == [claude, *prices, "needs", "a", "key", claude]
    assert shown[2].split() == ["ollama/qwen3", "free", "32k", "ollama", "ollama/qwen3"]
    assert shown[3].split()[0] == "scripted"
    assert desk.model == ""
    desk.screen.picked = "claude-sonnet-5-5"
    desk.run("/model")
    assert desk.model == "claude-sonnet-5-5"


def test_login_shows_what_can_be_used(desk: CommandDesk) -> None:
    shown = desk.run("/login")
    assert "ready" in shown
    assert "runs here, 1 model" in shown
    assert "/model PROVIDER/NAME" in shown


def test_init_sends_its_prompt_as_a_user_message(desk: CommandDesk) -> None:
    desk.run("/init")
    desk.run("/init Mind the generated files.")
    plain, with_words = desk.line.sent
    assert plain.startswith("Write AGENTS.md in the root of this project")
    assert commands.parse(plain, commands.COMMANDS) is None
    assert with_words == f"{plain}\n\nMind the generated files."


@pytest.mark.slow
def test_diff_runs_nothing_of_the_repository(desk: CommandDesk) -> None:
    with pytest.raises(CtxagentError, match="git diff"):
        desk.run("/diff")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=desk.cwd, check=True)
    assert desk.run("/diff").split("\n")[:2] == ["no commits yet; the files are:", "big.txt"]
    subprocess.run([*git, "add", "."], cwd=desk.cwd, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=desk.cwd, check=True)
    spy = desk.cwd.parent / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {desk.cwd.parent}/ran\n")
    spy.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager"):
        subprocess.run([*git, "config", key, str(spy)], cwd=desk.cwd, check=True)
    assert "nothing has changed" in desk.run("/diff")
    (desk.cwd / "big.txt").write_text("less")
    assert "big.txt" in desk.run("/diff")
    (desk.cwd / "new.txt").write_text("x")
    assert "new.txt (new)" in desk.run("/diff")
    assert not (desk.cwd.parent / "ran").exists()


@pytest.mark.slow
def test_diff_runs_no_filter_and_nothing_of_a_repository_inside(desk: CommandDesk) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-C"]
        subprocess.run(["git", *who, str(desk.cwd), *arguments], check=True, capture_output=True)

    inner, mark = desk.cwd / "inner", desk.cwd.parent / "ran"
    (desk.cwd / ".gitattributes").write_text("big.txt filter=evil\n")
    git("init", "-q")
    git("init", "-q", "inner")
    git("-C", "inner", "commit", "-q", "--allow-empty", "-m", "one")
    git("add", ".")
    git("commit", "-qm", "one")
    (inner / "new").write_text("x")
    git("-C", "inner", "add", ".")
    git("-C", "inner", "commit", "-qm", "two")
    text = (desk.cwd / "big.txt").read_text()
    (desk.cwd / "big.txt").write_text(text[:-2] + "!\n")  # as long as it was
    for key in ("filter.evil.clean", "filter.evil.process"):
        git("config", key, f"touch {mark}; cat")
    git("config", "diff.submodule", "diff")
    git("-C", "inner", "config", "diff.external", f"touch {mark}; true")
    shown = desk.run("/diff")
    assert "big.txt" in shown
    assert "inner" in shown
    assert "big.txt" in desk.run("/diff big.txt")
    assert not mark.exists()


@pytest.mark.slow
def test_diff_shows_each_file_folded_and_one_whole(desk: CommandDesk) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (desk.cwd / "other.txt").write_text("as it was\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], cwd=desk.cwd, check=True)
    subprocess.run([*git, "config", "color.ui", "always"], cwd=desk.cwd, check=True)
    (desk.cwd / "big.txt").write_text("".join(f"line {n}\n" for n in range(300)))
    (desk.cwd / "other.txt").write_text("as it is\n")
    shown = desk.run("/diff")
    assert "2 files changed" in shown
    assert "1 - as it was\n  1 + as it is\n" in shown
    assert re.search(r"… \+\d+ lines \(/diff PATH\)", shown)
    assert "+ line 299" not in shown
    assert "300 + line 299" in desk.run("/diff big.txt")
    (desk.cwd / "other.txt").write_text("as it was\n")
    assert "other.txt: nothing has changed" in desk.run("/diff other.txt")


@pytest.mark.slow
@pytest.mark.parametrize("has_commits", [True, False])
def test_diff_of_what_is_new_of_folders_and_of_nothing(
    desk: CommandDesk, has_commits: bool
) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (desk.cwd / "src").mkdir()
    (desk.cwd / "src/old.py").write_text("as it was\n")
    (desk.cwd / ".gitignore").write_text("build/\n")
    subprocess.run([*git, "init", "-q"], cwd=desk.cwd, check=True)
    if has_commits:
        subprocess.run([*git, "add", "."], cwd=desk.cwd, check=True)
        subprocess.run([*git, "commit", "-qm", "one"], cwd=desk.cwd, check=True)
    (desk.cwd / "src/old.py").write_text("as it is\n")
    (desk.cwd / "src/neü.py").write_text("brand new\n")
    (desk.cwd / "src/empty").touch()
    (desk.cwd / "build").mkdir()
    (desk.cwd / "build/x").touch()
    shown = desk.run("/diff src/neü.py")
    assert "src/neü.py" in shown
    assert "1 + brand new" in shown
    for folder in ("src", "./src/"):
        shown = desk.run(f"/diff {folder}")
        assert "1 + brand new" in shown
        assert "1 + as it is" in shown
        assert ("1 - as it was" in shown) == has_commits
        assert "src/empty" in shown
    assert "git ignores it" in desk.run("/diff build")
    with pytest.raises(CtxagentError, match=r"there is no src/none\.txt"):
        desk.run("/diff src/none.txt")


def compactable(tmp_path: Path, *more: Step) -> tuple[Conversation, CommandDesk]:
    """A conversation of two turns that can be compacted except for its last message."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    (cwd / "big.txt").write_text("".join(f"{n} words in this line\n" for n in range(600)))
    steps = [
        Step(tools=[("Read", {"path": "big.txt"})]),
        Step(text="It is full of words."),
        Step(text="About 3,000."),
        *more,
    ]
    policy = replace(DEFAULT, keep_tokens=0, keep_messages=1, clear_when="off")
    talk = Conversation(cwd, steps, policy=policy)
    talk.say("what is in big.txt?")
    talk.say("how many?")
    return talk, CommandDesk(talk)


def record(intent: str) -> str:
    return (
        f"## Session Intent\n{intent}\n\n## Key Decisions\n1. Estimate, do not count.\n\n"
        "## Current State\nPhase: reading\n\n## Next Steps\n1. Wait for the person.\n"
    )


def request_of(talk: Conversation) -> object:
    """The next request."""
    return body(build_request(talk.agent.view, model="scripted", max_tokens=1_000, effort=None))


@pytest.mark.parametrize(
    ("words", "name", "argument"),
    [
        ("compress", "compact", ""),
        (" Context Status ", "context", "--levels"),
        ("compression log", "log", "compaction --levels"),
        ("Show session intent", "intent", ""),
    ],
)
def test_words_that_are_a_command_when_alone(words: str, name: str, argument: str) -> None:
    found = commands.parse(words, commands.COMMANDS)
    assert found is not None
    assert (found[0].name, found[1]) == (name, argument)
    assert commands.parse(f"{words} of the logs", commands.COMMANDS) is None


def test_compact_steers_the_summary_and_nothing_after_it(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")), Step(text="Yes."))
    desk.run("/compact keep the number, drop the rest")
    asked, *_ = reversed(talk.model.requests)  # type: ignore[attr-defined]
    assert "keep the number, drop the rest" in str(asked.messages[-1])
    (event,) = talk.seen(Compacted)
    assert (event.layer, event.trigger) == ("summary", "manual")
    assert event.tokens_after < event.tokens_before
    talk.say("go on")
    sent = str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert "[Conversation compressed]" in sent
    assert "Know big.txt." in sent
    assert "drop the rest" not in sent
    assert desk.waited[0] == "writing a summary"


def test_a_dry_run_asks_nobody_and_writes_nothing(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path)
    before = talk.agent.log.path.read_bytes()
    shown = desk.run("/compact --dry-run")
    assert "replaced by the summary" in shown
    assert "#4" in shown
    assert talk.agent.log.path.read_bytes() == before
    assert len(talk.model.requests) == 3  # type: ignore[attr-defined]


def test_a_summary_that_is_shown_and_declined_changes_nothing(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    before = request_of(talk)
    desk.screen.answers = ["what?", "no, thanks"]
    shown = desk.run("/compact --show mind the number")
    assert "Know big.txt." in shown
    assert "nothing has changed" in shown
    assert "mind the number" in str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert talk.of(Summary) == []
    assert request_of(talk) == before


def test_a_summary_that_is_shown_and_taken_is_the_one_applied(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    desk.screen.answers = ["y"]
    desk.run("/compact --show")
    (applied,) = talk.seen(Compacted)
    assert "summary written by the model" in applied.detail
    (summary,) = talk.of(Summary)
    assert summary.document["intent"] == "Know big.txt.\nwhat is in big.txt?"
    assert len(talk.model.requests) == 4  # type: ignore[attr-defined]


def test_a_summary_can_be_edited_first(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    desk.screen.edited = record("Know every word.")
    desk.screen.answers = ["e", "y"]
    shown = desk.run("/compact --show")
    assert shown.index("Know big.txt.") < shown.index("Know every word.")
    (summary,) = talk.of(Summary)
    assert summary.document["intent"] == "Know every word."


def test_an_unchanged_edit_keeps_the_draft(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    whole, shown = "All of this session is in", []

    async def unchanged(text: str, *_: object) -> str:
        shown.append(text)
        return f"{text}\n"

    desk.screen.edit = unchanged
    desk.screen.answers = ["e", "y"]
    told = desk.run("/compact --show")
    assert whole not in shown[0]
    assert told.count(whole) == 2
    assert talk.of(Summary)[0].document["intent"] == "Know big.txt.\nwhat is in big.txt?"


@pytest.mark.parametrize(
    ("edited", "told"), [("", "there is no editor"), (" \n", "the text is empty")]
)
def test_a_draft_outlives_a_failed_edit(tmp_path: Path, edited: str, told: str) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    desk.screen.edited, desk.screen.answers = edited, ["edit", "yes"]
    assert told in desk.run("/compact --show")
    (summary,) = talk.of(Summary)
    assert summary.document["intent"] == "Know big.txt.\nwhat is in big.txt?"


@pytest.mark.parametrize("argument", ["--dry-run --show", "--apply", "--dryrun"])
def test_compact_knows_its_options(desk: CommandDesk, argument: str) -> None:
    with pytest.raises(UsageError, match="does not take"):
        desk.run(f"/compact {argument}")


def test_uncompact_restores_the_request(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    before, tokens = request_of(talk), talk.agent.model.current_window().tokens
    desk.run("/compact")
    assert request_of(talk) != before
    assert f"has {tokens:,} tokens again" in desk.run("/uncompact")
    assert request_of(talk) == before
    with pytest.raises(CompactionFailed):
        desk.run("/uncompact")


@pytest.mark.slow
def test_what_compaction_did_can_be_seen(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    shown = desk.run("/context")
    assert "next compaction: " in shown
    assert "summarised" in shown
    assert "prompts came from it" in shown
    desk.run("/compact")
    (summary,) = talk.of(Summary)
    saved = summary.tokens_before - summary.tokens_after
    assert f"{saved:,}" in desk.run("/context")
    status = desk.run("/context --levels")
    assert "  Context Status Report" in status.split("\n")
    assert f"  • Summarisations performed: 1 ({saved:,} tokens saved)" in status.split("\n")
    log = desk.run("/log compaction --levels")
    assert "  Event Type: TIER_3" in log.split("\n")
    assert "  Event Type: summary" in desk.run("/log compaction").split("\n")
    for shown in (status, log, desk.run("/log stats")):
        assert not re.search(r"\*\*|##|\|-|---\|", shown)
    assert f"{summary.tokens_before:,} → {summary.tokens_after:,} tokens" in desk.run("/log")
    assert "Know big.txt." in desk.run(f"/log #{summary.seq}")
    assert '"kind": "user"' in desk.run("/log 2")
    gone = desk.run(f"/log {summary.covers[0]}")
    assert f"replaced by the summary #{summary.seq} (manual)" in gone.splitlines()[-1]
    with pytest.raises(UsageError, match="no entry 99"):
        desk.run("/log 99")
    (talk.agent.folder / "offloaded").mkdir(exist_ok=True)
    (talk.agent.folder / "offloaded" / "a.md").write_text("LINE IN THE MIDDLE\n")
    moved = talk.agent.record(User(content="its beginning", offloaded="offloaded/a.md"))
    assert "LINE IN THE MIDDLE" in desk.run(f"/log {moved.seq}")
    targets = [{"seq": moved.seq, "tool_use_id": "a", "stub": "[cleared: 9 lines]"}]
    mask = Mask(layer="demote", targets=targets, tokens_before=9, tokens_after=1, trigger="size")
    shown = desk.run(f"/log #{talk.agent.record(mask).seq}").splitlines()
    assert f"  #{moved.seq}: [cleared: 9 lines]" in shown
    assert not [line for line in shown if "{" in line]


def test_context_of_a_session_without_anything_to_compact(tmp_path: Path) -> None:
    desk = CommandDesk(Conversation(tmp_path))
    assert "next compaction: there is nothing to summarise yet" in desk.run("/context")
    with pytest.raises(UsageError, match="does not take"):
        desk.run("/context all")


def test_context_says_why_the_cache_was_missed_last(desk: CommandDesk) -> None:
    assert "last cache miss" not in desk.run("/context")
    for cached in (0, 100):
        usage = {"input": 0, "cache_read": cached, "cache_creation": 5_000, "output": 1}
        desk.agent.record(Assistant(content=[], usage=usage, stop_reason="end_turn", model="m"))
    assert "last cache miss: the server had dropped it from its cache" in desk.run("/context")


@pytest.mark.slow
def test_pins_of_entries_and_of_words(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    assert "nothing is pinned" in desk.run("/pin")
    assert "pinned as #2: what is in big.txt?" in desk.run("/pin #2")
    assert ": mind the number" in desk.run("/pin mind the number")
    entry, words = talk.of(Pin)
    assert (entry.ref, entry.text) == (2, "what is in big.txt?")
    assert (words.ref, words.text) == (words.seq - 1, "mind the number")
    listed = desk.run("/pin").split("\n")
    assert [line.split()[0] for line in listed[:2]] == ["#2", f"#{words.ref}"]
    pinned = desk.agent.context.recall(words.ref or 0)
    assert pinned is not None
    assert "mind the number" in pinned.whole()
    desk.run("/compact")
    (summary,) = talk.of(Summary)
    assert summary.text.endswith(
        f"\n\n## Pinned\n#2: what is in big.txt?\n#{words.ref}: mind the number"
    )
    assert "#2 is no longer pinned" in desk.run("/unpin 2")
    assert talk.of(Unpin)[0].ref == 2
    assert "big.txt" not in desk.run("/pin")


@pytest.mark.parametrize("words", ["/pin #99", "/unpin 2", "/unpin", "/unpin some words"])
def test_what_cannot_be_pinned_or_unpinned(desk: CommandDesk, words: str) -> None:
    before = desk.agent.log.last_seq
    with pytest.raises(UsageError, match=r"no entry #99|is not pinned|name the entry"):
        desk.run(words)
    assert desk.agent.log.last_seq == before


@pytest.mark.slow
def test_pins_may_not_fill_the_window(desk: CommandDesk) -> None:
    def pin_on() -> None:
        for n in range(40):
            desk.run(f"/pin {n} " + "words to keep " * 250)

    with pytest.raises(UsageError, match="a tenth of the context window"):
        pin_on()
    assert len(desk.agent.ledger.pins) > 5


def test_an_edited_summary_leaves_the_pins_alone(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    desk.run("/pin mind the number")
    desk.screen.edited = record("Know every word.") + "\n## Pinned\n#1: a thing nobody pinned\n"
    desk.screen.answers = ["e", "y"]
    shown = desk.run("/compact --show")
    assert ": mind the number" in shown
    (summary,) = talk.of(Summary)
    assert summary.text.endswith(": mind the number")
    assert "nobody pinned" not in summary.text


def test_quit(desk: CommandDesk) -> None:
    desk.run("/quit")
    assert desk.screen.left
