"""Shortening: changed files and facts that do not fit are counted, and nothing else is lost."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction import verify
from ctxagent.agent.compaction.document import FileRow, SummaryDocument, SummaryFact, parse, render
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.merge import merge, with_ledger_facts
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.compaction.summary.shorten import (
    changed_file_rows,
    is_folder_row,
    row_tokens,
    rows_within,
    shortened_to,
)
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Summary, User
from ctxagent.agent.session.ledger import FileFact, Ledger
from ctxagent.tools.base import Context, Output, Params, Tool

from ..support.sessions.conversation import Conversation
from ..support.sessions.history import History
from .test_engine import RECORD, drafted

CODEMOD = [f"src/components/mod{n // 50}/file_{n}.tsx" for n in range(900)]


def fact(path: str, tool: str = "Bash", times: int = 1, ref: int = 5) -> FileFact:
    return FileFact(path, "modified", 3, 1, tool, ref, times)


def files(*facts: FileFact) -> dict[str, FileFact]:
    return {one.path: one for one in facts}


def named(rows: tuple[FileRow, ...]) -> list[str]:
    return [row.path for row in rows if not is_folder_row(row)]


# Changed files


def test_a_hundred_files_stand_by_name_in_a_small_window() -> None:
    paths = [f"src/components/some_module/component_file_{n}.tsx" for n in range(100)]
    assert named(changed_file_rows(files(*map(fact, paths)), 2 * 1_600)) == paths


def test_what_was_worked_on_stays_by_name() -> None:
    own = [fact("app/page.tsx", "Edit"), fact("src/components/new.tsx", "Write")]
    again = [fact("src/components/mod3/file_150.tsx", times=3)]
    facts = files(*map(fact, CODEMOD), *own, *again)
    for room in (400, 1_200, 3_200):
        rows = changed_file_rows(facts, room)
        assert row_tokens(rows) <= room
        assert {one.path for one in (*own, *again)} <= set(named(rows))
        assert named(rows) == [path for path in facts if path in set(named(rows))]
        assert all(path in facts for path in named(rows))
    assert len(named(changed_file_rows(facts, 3_200))) > 3 * len(
        named(changed_file_rows(facts, 400))
    )


def test_among_equal_ranks_the_newest_file_stays() -> None:
    facts = [fact(f"src/file_{n}.py", ref=n) for n in range(200)]
    assert named(changed_file_rows(files(*facts), 1_000))[-1] == "src/file_199.py"
    assert "src/file_0.py" not in named(changed_file_rows(files(*facts), 1_000))


def test_the_deepest_folders_go_together_first_and_count_every_file() -> None:
    deep = [fact(f"lib/a/b{n % 40}/c{n}/x{m}.py", ref=n) for n in range(80) for m in (1, 2)]
    rest = [fact(f"docs/{n}.md", ref=1) for n in range(10)]
    rows = changed_file_rows(files(*deep, *rest), 400)
    told = {row.path: row.change for row in rows if is_folder_row(row)}
    assert row_tokens(rows) <= 400
    assert told["docs/"] == "10 files modified (Recall `files.md` names each)"
    assert all(path.count("/") <= 3 for path in told)
    counted = sum(int(change.split()[0]) for change in told.values())
    assert counted + len(named(rows)) == len(deep) + len(rest)


def test_a_folder_says_what_was_done_to_its_files() -> None:
    rows = [FileRow(f"out/{n}.txt", "created" if n < 40 else "deleted") for n in range(60)]
    *left, row = rows_within(rows, [(-n,) for n in range(60)], 200)
    assert left == rows[: len(left)]
    told = f"{60 - len(left)} files: {40 - len(left)} created, 20 deleted"
    assert row == FileRow("out/", "modified", f"{told} (Recall `files.md` names each)")


def test_folding_again_still_counts_every_file() -> None:
    rows = changed_file_rows(files(*map(fact, CODEMOD), fact("/etc/hosts"), fact("/etc/x/y")), 600)
    assert len(rows) > 2
    least = rows_within(rows, [(0,)] * len(rows), 0)
    assert {row.path: row.change.split(" (")[0] for row in least} == {
        "./": "900 files modified",
        "/": "2 files modified",
    }


def test_a_path_that_nothing_has_room_for_is_counted() -> None:
    (row,) = rows_within([FileRow("x" * 9_000, "created")], [(0,)], 100)
    assert row == FileRow("./", "created", "1 file created (Recall `files.md` names each)")


def test_a_folded_table_survives_writing_reading_and_merging() -> None:
    ledger = Ledger()
    for entry in codemod().entries:
        ledger.add(entry)
    document = with_ledger_facts(SummaryDocument(intent="x"), ledger, 600)
    assert any(map(is_folder_row, document.modified))
    assert parse(render(document)) == document
    assert SummaryDocument.from_json(document.to_json()) == document
    again = merge(document, SummaryDocument(modified=(FileRow("src/", "modified", "all of it"),)))
    assert with_ledger_facts(again, ledger, 600).modified == document.modified
    assert [row.path for row in with_ledger_facts(again, ledger).modified] == [
        *CODEMOD,
        "app/page.tsx",
    ]


def codemod() -> History:
    session = History()
    session.say("Rename the component everywhere.")
    rows = [{"path": path, "action": "modified", "added": 1, "removed": 1} for path in CODEMOD]
    details = {"command": "codemod", "exit_code": 0, "changes": rows}
    session.call("Bash", {}, "ok", details=details)
    session.call("Edit", {}, "ok", details={"path": "app/page.tsx", "added": 1})
    return session


def test_only_files_that_can_stay_are_asked_for() -> None:
    session, ledger = codemod(), Ledger()
    for entry in session.entries:
        ledger.add(entry)
    asked = verify.choose_probes(session.view().items, ledger, None, 600)
    about = [probe.fact for probe in asked if probe.section == "modified"]
    assert about == named(changed_file_rows(ledger.files, 2 * 600))
    assert about[-1] == "app/page.tsx"
    assert 20 < len(about) < 100
    assert any(probe.section == "intent" for probe in asked)


@pytest.mark.slow
def test_checking_a_summary_of_thousands_of_files_takes_no_time() -> None:
    rows = tuple(FileRow(f"src/[id]/mod{n // 50}/file_{n}.tsx", "created") for n in range(6_000))
    asked = [verify.Probe("artifact", "?", row.path, "modified", None, row.action) for row in rows]
    started = time.process_time()
    assert verify.tally_probes(
        asked, render(SummaryDocument()), render(SummaryDocument(modified=rows))
    ).after == {"artifact": 6_000}
    assert time.process_time() - started < 10  # minutes, where each path is a search of its own


# Facts


def fits(tokens: int) -> Callable[[SummaryDocument], bool]:
    return lambda document: estimate(render(document)) <= tokens


@pytest.mark.slow
def test_facts_do_not_crowd_out_the_rest_and_the_older_are_counted() -> None:
    document = SummaryDocument(intent="Mend it.", decisions=("JWT, because Redis is missing",))
    known = "setting_3 must be 00 in all of the regions"
    for n in range(30):
        facts = tuple(f"setting_{n * 9 + m} must be {n}0 in all of the regions" for m in range(9))
        rules = ("Not authorised: git push", f"Not authorised: touch part_{n}")
        new = SummaryDocument(facts=tuple(map(SummaryFact, (*facts, *(rules if n < 4 else ())))))
        document = shortened_to(merge(document, new), 900, lambda fact: fact == known)
        assert estimate(render(document)) <= 900
    assert document.decisions == ("JWT, because Redis is missing",)
    assert SummaryFact(known) in document.facts
    texts = [fact.text for fact in document.facts]
    assert "setting_269 must be 290 in all of the regions" in texts
    assert {"Not authorised: git push", "Not authorised: touch part_3"} <= {*texts}
    count, *rest = texts
    assert document.facts[0].older_count
    assert sum(bool(fact.older_count) for fact in document.facts) == 1
    assert int(count.split()[0]) + len(rest) == 30 * 9 + 1 + 4
    assert all(len(fact) > 20 for fact in rest)


# A session


class Change(Tool[Any]):
    """A command that changes files: the files of `first` at its first call, then one new file per
    call.
    """

    name = "Bash"
    description = "Changes files."
    effect = "none"

    class Params(Params):
        number: int

    def __init__(self, first: list[str], size: int) -> None:
        self.first, self.size = first, size

    async def run(self, params: Any, context: Context) -> Output:
        paths = self.first if params.number == 1 else [f"work/step_{params.number}.py"]
        rows = [{"path": p, "action": "created", "added": 1, "removed": 0} for p in paths]
        details = {"command": f"step {params.number}", "exit_code": 0, "changes": rows}
        return Output(f"output of {params.number}\n" * self.size, details)


def worked(
    project: Path, first: list[str], *, calls: int = 60, window: int = 32_000, **policy: Any
) -> Conversation:
    done = 0

    def answer(request: Request) -> Step:
        nonlocal done
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        if done >= calls:
            return Step(text="It goes on.")
        done += 1
        return Step(text=f"step {done}", tools=[("Bash", {"number": done})])

    project.mkdir()
    talk = Conversation(
        project,
        answer,
        tools=[Change(first, window // 120)],
        window=window,
        policy=replace(DEFAULT, clear_when="off", move_above=None, **policy),
    )
    assert talk.say("Rename it everywhere.").status == "ok"
    return talk


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(("count", "summarizer"), [(900, "model"), (2_000, "mechanical")])
def test_one_command_that_changes_many_files_does_not_end_a_session(
    tmp_path: Path, count: int, summarizer: str
) -> None:
    paths = [f"src/components/some_module/component_file_{n}.tsx" for n in range(count)]
    talk = worked(tmp_path / "project", paths, prepare_at=None, summarizer=summarizer)
    summaries = talk.of(Summary)
    assert len(summaries) >= 2
    for summary in summaries:
        assert summary.tokens_after <= 16_000
        assert summary.probes["tally"]["artifact"]["after"] >= 20
        assert "src/components/some_module/ | created |" in summary.text
        assert "files.md" in summary.files
    kept = talk.agent.context.recall("files.md")
    text = kept.whole() if kept else ""
    assert len(text.split("\n")) >= count
    assert all(f"{path} — created" in text for path in paths)


@pytest.mark.slow
def test_every_file_of_an_ordinary_session_stands_by_name(tmp_path: Path) -> None:
    talk = worked(tmp_path / "project", [f"src/part_{n}/code.py" for n in range(60)])
    last = talk.of(Summary)[-1]
    ledger = Ledger()
    for entry in talk.entries():
        if entry.seq < last.seq:
            ledger.add(entry)
    assert len(ledger.files) > 85
    assert [row["path"] for row in last.document["modified"]] == list(ledger.files)
    words = next(entry.seq for entry in talk.of(User) if entry.source == "person")
    assert last.files == ["conversation.md", "summary.md", f"session-summary-{words}.md"]


@pytest.mark.slow
def test_a_person_may_apply_a_summary_of_their_own_at_any_length(tmp_path: Path) -> None:
    talk = worked(tmp_path / "project", CODEMOD, calls=12, window=200_000)
    rows = tuple(FileRow(path, "created") for path in CODEMOD)
    summary = asyncio.run(
        talk.agent.engine.compact(draft=drafted(SummaryDocument("Mine.", modified=rows)))
    )
    assert [row["path"] for row in summary.document["modified"]] == CODEMOD
