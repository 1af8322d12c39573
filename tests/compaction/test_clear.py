"""Microcompact: which results are due, which are kept, and their stubs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.layers.break_even import DueMask
from ctxagent.agent.compaction.layers.clear import (
    KEPT_IN,
    MAX_ERROR_LINE_CHARS,
    MAX_LAST_LINE_CHARS,
    oldest_clearable,
    plan,
    plan_all,
    stub,
)
from ctxagent.agent.compaction.layers.later_calls import Fate
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.config.preservation import COMPACTABLE, DEFAULT_PRESERVE_RULES
from ctxagent.agent.context.items import shown_blocks
from ctxagent.agent.session.archive import RECALLED
from ctxagent.tools.system.phrasing import shorten

from ..support.sessions.history import History, called, words

V5 = PRESETS["v5"]
BIG = words(1_200)


def due(history: History, policy: Any = DEFAULT) -> list[int]:
    """The seqs of the results that are cleared now."""
    return [each.seq for each in plan(history.view(), policy)]


def targets_of(clearing: list[DueMask]) -> list[dict[str, Any]]:
    return [dict(each.target) for each in clearing]


def bash(history: History, command: str, content: str = BIG, **fields: Any) -> int:
    return history.call("Bash", {"command": command}, content, **fields)


def read(history: History, path: str, first: int = 1, last: int = 900, **given: Any) -> int:
    details = {"path": f"/project/{path}", "lines": [first, last]}
    return history.call("Read", {"path": path, **given}, BIG, details=details)


def edit(history: History, path: str, **fields: Any) -> int:
    given = {"path": path, "old_string": "a", "new_string": "b"}
    return history.call("Edit", given, "Edited.", details={"path": f"/project/{path}"}, **fields)


def stubbed(history: History, seq: int, *, tokens: int = 12_431, folder: str = "") -> str:
    (result,) = [r for r in history.view().results() if r.item.seq == seq]
    return stub(result, folder).text(tokens)


# What is due


def test_nothing_is_due_in_a_young_session() -> None:
    history = History()
    assert plan(history.view(), DEFAULT) == []
    for n in range(3):
        bash(history, f"make {n}")
    history.reply({"type": "text", "text": "Done."})
    assert plan(history.view(), DEFAULT) == []


def test_all_but_the_newest_three_are_due() -> None:
    history = History()
    results = [bash(history, f"make {n}") for n in range(6)]
    assert due(history) == due(history, V5) == results[:3]
    assert due(history, replace(DEFAULT, clear_keep=0)) == results[:5], "the last is not sent yet"
    assert due(history, replace(V5, clear_keep=0)) == results[:5]


def test_a_text_that_was_given_back_is_kept_until_its_price_is_paid() -> None:
    history = History()
    back = history.call("Read", {"path": "x.md"}, BIG, details={RECALLED: ["x.md"]})
    other = history.call("Read", {"path": "y.md"}, BIG)
    for n in range(4):
        bash(history, f"make {n}")
    chances = {each.seq: each.need_chance for each in plan(history.view(), DEFAULT)}
    assert chances[back] == 1.0
    assert chances[other] < 1.0


def test_a_large_kept_text_names_the_pages() -> None:
    history = History()
    details = {KEPT_IN: "offloaded/result_3.md", "characters": 400_000}
    seq = bash(history, "make", details=details)
    told = "400,000 characters: `recall` with offset=0, 30000, …, 390000]"
    assert stubbed(history, seq, folder="/s/a1").endswith(f"/s/a1/offloaded/result_3.md · {told}")


def test_only_large_results_of_the_four_tools() -> None:
    history = History()
    large = [
        history.call("Bash", {"command": "ls"}, BIG),
        history.call("Read", {"path": "a.py"}, BIG),
        history.call("Grep", {"pattern": "x"}, BIG),
        history.call("Glob", {"pattern": "*"}, BIG),
    ]
    history.call("Todo", {"todos": []}, BIG)
    small = bash(history, "small", words(990))
    for n in range(3):
        bash(history, f"tail {n}", "ok")
    assert due(history, V5) == large
    assert due(history) == [*large, small]
    assert due(history, replace(DEFAULT, clear_tools=("Grep",), clear_keep=0)) == large[2:3]


def test_recalled_results_are_cleared_and_their_stub_names_the_query() -> None:
    history = History()
    recalled = history.call("Recall", {"query": "MAX_UPLOAD"}, BIG)
    for number in range(3):
        bash(history, f"make {number}")
    history.reply({"type": "text", "text": "ok"})
    assert due(history) == [recalled]
    assert "MAX_UPLOAD" in stubbed(history, recalled)


def test_the_threshold_is_the_policys() -> None:
    history = History()
    history.call("Bash", {"command": "x"}, words(992))  # with its frame of 8 tokens
    over = history.call("Bash", {"command": "y"}, words(993))
    for n in range(3):
        bash(history, f"tail {n}", "ok")
    assert due(history, V5) == [over]


@pytest.mark.parametrize("policy", [DEFAULT, V5])
def test_unanswered_results_stay(policy: Any) -> None:
    history = History()
    uses = [called(f"p{n}", "Bash", {"command": f"make {n}"}) for n in range(5)]
    history.reply(*uses)
    results = [history.answer(use["id"], BIG) for use in uses]
    assert due(history, policy) == []
    history.reply()  # interrupted before the first word
    history.say("go on")
    assert due(history, policy) == []
    history.reply({"type": "text", "text": " "})
    assert due(history, policy) == []
    history.reply({"type": "text", "text": "I see."})
    assert due(history, policy) == results[:2]


def test_a_stub_that_is_not_smaller_is_left() -> None:
    history = History()
    bash(history, "true", "ok")
    history.reply({"type": "text", "text": "Done."})
    assert due(history, replace(DEFAULT, clear_keep=0, clear_above=0)) == []


def test_images_are_cleared_too() -> None:
    history = History()
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    image = history.call("Read", {"path": "a.png"}, [{"type": "image", "source": source}])
    for n in range(3):
        bash(history, f"tail {n}", "ok")
    clearing = plan(history.view(), DEFAULT)
    history.mask("microcompact", targets_of(clearing))
    assert due(history) == []
    assert history.view().items[1].blocks[0]["content"][0]["type"] == "image", "kept in the log"
    assert [each.seq for each in clearing] == [image]
    assert '[Read "a.png" · done · 1,608 tokens compacted' in str(history.request())


def test_a_stub_is_never_cleared_again() -> None:
    history = History()
    bash(history, "make")
    history.reply({"type": "text", "text": "Done."})
    everything = replace(DEFAULT, clear_keep=0, clear_above=0)
    clearing = plan(history.view(), everything)
    history.mask("microcompact", targets_of(clearing))
    assert plan(history.view(), everything) == []
    assert plan_all(history.view(), answered_only=False) == []
    assert oldest_clearable(history.view(), everything) is None


# Superseded results give their place to older ones


def test_a_file_read_again_gives_its_place() -> None:
    history = History()
    results = [bash(history, f"make {n}") for n in range(3)]
    old = read(history, "a.py")
    new = read(history, "a.py")
    last = bash(history, "make again")
    assert due(history) == [*results[:2], old]
    assert due(history, V5) == results, "the newest three, literally"
    assert {new, last} & set(due(history)) == set()


def test_a_page_stands_beside_another_of_the_same_file() -> None:
    history = History()
    oldest = bash(history, "ls")
    read(history, "a.py", 100, 200, offset=100, limit=101)
    read(history, "a.py", 150, 300, offset=150, limit=151)
    bash(history, "make")
    assert due(history) == [oldest]


def test_a_page_gives_its_place_when_all_of_it_was_read_again() -> None:
    history = History()
    bash(history, "ls")
    page = read(history, "a.py", 100, 200, offset=100, limit=101)
    read(history, "a.py", 1, 200)
    bash(history, "make")
    assert due(history) == [page]


def test_a_page_stands_where_less_was_read_again() -> None:
    history = History()
    oldest = bash(history, "ls")
    read(history, "a.py", 100, 200, offset=100, limit=101)
    read(history, "a.py", 1, 199, limit=199)
    bash(history, "make")
    assert due(history) == [oldest]


def test_a_file_changed_since_gives_its_place() -> None:
    history = History()
    first = bash(history, "make")
    stale, other = read(history, "a.py"), read(history, "b.py")
    edit(history, "a.py")
    edit(history, "b.py", is_error=True)
    last = bash(history, "make test")
    history.reply({"type": "text", "text": "Done."})
    assert due(history) == [stale]
    assert {first, other, last} & set(due(history)) == set(), "the failed edit changed nothing"


def test_a_command_run_again_gives_its_place() -> None:
    history = History()
    first = bash(history, "make")
    failed = {"is_error": True, "details": {"exit_code": 1}}
    runs = [bash(history, "pytest -q", **failed) for _ in range(2)]
    grep = history.call("Grep", {"pattern": "x", "path": "src"}, BIG)
    history.call("Bash", {"command": "pytest -q", "description": "again"}, BIG, **failed)
    assert due(history) == runs
    assert {first, grep} & set(due(history)) == set()


def test_a_call_that_was_not_done_supersedes_nothing() -> None:
    history = History()
    oldest, first = bash(history, "ls"), bash(history, "make")
    bash(history, "pytest -q")
    bash(history, "make", "Not allowed.", is_error=True, details={"denied": True})
    assert due(history) == [oldest]
    bash(history, "make", "Nothing to be done.")
    assert due(history) == [first], "now its place goes to the older one"


def test_another_question_supersedes_nothing() -> None:
    history = History()
    oldest = bash(history, "ls")
    history.call("Grep", {"pattern": "x", "path": "src"}, BIG)
    history.call("Grep", {"pattern": "x", "path": "tests"}, BIG)
    history.call("Grep", {"pattern": "x"}, BIG)
    assert due(history) == [oldest]


def test_superseded_results_stay_where_no_other_wants_the_place() -> None:
    history = History()
    for _ in range(3):
        bash(history, "pytest -q")
    history.reply({"type": "text", "text": "Done."})
    assert due(history) == []


# The plan as a whole


def test_what_a_clearing_saves() -> None:
    history = History()
    history.say("go")
    for n in range(5):
        bash(history, f"make {n}")
    before = history.view()
    clearing = plan(before, DEFAULT)
    history.mask("microcompact", targets_of(clearing))
    assert len(clearing) == 2
    assert sum(each.saved for each in clearing) == before.size - history.view().size > 2_000


def test_figures_are_in_real_tokens() -> None:
    history = History()
    bash(history, "make")
    for n in range(3):
        bash(history, f"tail {n}", "ok")
    (guess,) = plan(history.view(), DEFAULT)
    history.reply({"type": "text", "text": "."}, usage={"input": 3 * history.view().size})
    view = history.view()
    (real,) = plan(view, DEFAULT)
    assert view.ratio > 1.5
    assert abs(real.saved - view.ratio * guess.saved) <= view.ratio * 2
    assert f"{round(1_208 * view.ratio):,} tokens compacted" in real.target["stub"]


def test_the_last_resort_masks_everything() -> None:
    history = History()
    todo = history.call("Todo", {"todos": []}, BIG)
    small = bash(history, "ls", words(100))
    bash(history, "true", "ok")
    unsent = bash(history, "make")
    targets = plan_all(history.view(), answered_only=True)
    assert [t["seq"] for t in targets] == [todo, small]
    history.mask("microcompact", targets := plan_all(history.view(), answered_only=False))
    assert [t["seq"] for t in targets] == [todo, small, unsent]
    assert plan_all(history.view(), answered_only=False) == []
    assert history.request()


def test_items_before_the_oldest_clearable_result_are_stable() -> None:
    history = History()
    assert oldest_clearable(history.view(), DEFAULT) is None
    bash(history, "ls", "small")
    results = [bash(history, f"make {n}") for n in range(5)]
    assert oldest_clearable(history.view(), DEFAULT) == results[0]
    assert oldest_clearable(history.view(), replace(DEFAULT, clear_when="off")) is None
    clearing = plan(history.view(), DEFAULT)
    history.mask("microcompact", targets_of(clearing))
    assert oldest_clearable(history.view(), DEFAULT) == results[2]


# Stubs


def test_a_stub_says_what_was_run_and_where_it_is() -> None:
    history = History()
    failed = {"is_error": True, "details": {"exit_code": 1}}
    seq = bash(history, "pytest -q", **failed)
    expected = f'[Bash "pytest -q" · done, exit 1 · 12,431 tokens compacted · full text: #{seq}]'
    assert stubbed(history, seq) == expected


def test_a_stub_names_the_main_argument_and_the_outcome() -> None:
    history = History()
    read = history.call("Read", {"path": "a.py", "offset": 3}, BIG)
    grep = history.call("Grep", {"path": "src", "pattern": "x+"}, "bad", is_error=True)
    todo = history.call("Todo", {"todos": []}, BIG)
    late = {"is_error": True, "details": {"exit_code": -9, "timed_out": True}}
    slow = bash(history, "sleep 999", **late)
    shot = bash(history, "kill $$", is_error=True, details={"exit_code": -15})
    assert stubbed(history, read).startswith('[Read "a.py" · done · ')
    assert stubbed(history, grep).startswith('[Grep "x+" · failed · ')
    assert stubbed(history, todo).startswith("[Todo · done · ")
    assert stubbed(history, slow).startswith('[Bash "sleep 999" · failed, timed out · ')
    assert stubbed(history, shot).startswith('[Bash "kill $$" · failed, exit -15 · ')


def test_a_stub_names_the_file_of_an_offloaded_result() -> None:
    history = History()
    seq = bash(history, "make", offloaded="offloaded/1_Bash_3.md")
    inside = f"full text: #{seq}, or offloaded/1_Bash_3.md]"
    assert stubbed(history, seq).endswith(inside)
    whole = f"full text: #{seq}, or /state/s1/offloaded/1_Bash_3.md]"
    assert stubbed(history, seq, folder="/state/s1").endswith(whole)


def test_the_stub_of_an_offloaded_failure_keeps_lines_of_the_program() -> None:
    history = History()
    failed = [f"src/part{n}.c:{n}: error: " + "x" * 100 for n in range(4)]
    shown = "\n".join(f"> {line}" for line in (words(400), *failed, "done"))
    text = f"## Offloaded Content Reference\n{shown}\n\n*Full content: Read this file.*"
    details = {"command": "make", "exit_code": 2}
    bash(history, "make", text, offloaded="offloaded/1.md", is_error=True, details=details)
    (result,) = history.view().results()
    told = stub(result, fate=Fate(age=9)).text(400).split("\n")[1:]
    assert told == [*(line[:MAX_ERROR_LINE_CHARS] for line in failed), "done"]


def test_the_stub_of_a_command_that_succeeded_keeps_its_last_line() -> None:
    history = History()
    text = f"{words(400)}\n\t3 files changed, 8 insertions(+)\n\n"
    bash(history, "git diff --stat", text, details={"exit_code": 0})
    bash(history, "make", words(400) + "\n" + "x" * 100, details={"exit_code": 0})
    history.call("Read", {"path": "a.py"}, text)
    told = [stub(each, fate=Fate(age=9)).text(400).split("\n") for each in history.view().results()]
    assert [lines[1:] for lines in told] == [
        ["3 files changed, 8 insertions(+)"],
        [shorten("x" * 100, MAX_LAST_LINE_CHARS)],
        [],
    ]


def test_a_stub_for_the_model_of_another_agent_names_session_and_file() -> None:
    history = History()
    kept = {KEPT_IN: "offloaded/result_3.md", "exit_code": 0}
    seq = bash(history, "make", details=kept)
    whole = f"full text: s1#{seq}, or /state/s1/offloaded/result_3.md]"
    assert whole in stubbed(history, seq, folder="/state/s1")


def test_a_stub_is_one_short_clean_line() -> None:
    history = History()
    seq = bash(history, "cat <<'E'\n\tone\r\n\x1b[31m two \ud800\u2028" + "x" * 500 + "\nE")
    line = stubbed(history, seq)
    assert line.startswith("[Bash \"cat <<'E' one \ufffd[31m two \ufffd xxx")
    assert len(line.split('"')[1]) == 80
    assert line.splitlines() == [line]
    assert line.encode()


# For any honest session

commands = st.sampled_from(["make", "pytest -q", "ls"])
paths = st.sampled_from(["a.py", "b.py"])
asked = st.one_of(
    st.tuples(st.just("Bash"), st.fixed_dictionaries({"command": commands})),
    st.tuples(st.just("Read"), st.fixed_dictionaries({"path": paths})),
    st.tuples(st.just("Grep"), st.fixed_dictionaries({"pattern": commands, "path": paths})),
    st.tuples(st.just("Write"), st.fixed_dictionaries({"path": paths, "content": commands})),
    st.tuples(st.just("Todo"), st.just({"todos": []})),
)
answers = st.fixed_dictionaries(
    {
        "content": st.sampled_from(["ok", words(900), BIG, words(2_000), ""]),
        "is_error": st.booleans(),
        "details": st.sampled_from([{}, {"exit_code": 1}, {"path": "a.py", "lines": [1, 50]}]),
    }
)
thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
messages = st.lists(st.tuples(asked, answers), max_size=4)
sessions = st.lists(messages, min_size=1, max_size=8)
STRICTER = replace(
    DEFAULT_PRESERVE_RULES, compactable=("thinking_blocks", "debug_output", "redundant_reads")
)
policies = st.sampled_from(
    [
        DEFAULT,
        V5,
        replace(DEFAULT, clear_keep=1),
        replace(PRESETS["ledger"], clear_keep=1),
        replace(DEFAULT, clear_keep=1, rules=STRICTER),
    ]
)


def play(history: History, message: list[tuple[Any, Any]]) -> None:
    """One message of calls with their results, within a turn. Without calls, the turn ends."""
    uses = [called(f"c{len(history.entries)}_{n}", *a) for n, (a, _) in enumerate(message)]
    history.reply(thought, *(uses or [{"type": "text", "text": "Done."}]))
    for use, (_, answer) in zip(uses, message, strict=True):
        history.answer(use["id"], **answer)
    if not uses:
        history.say("Go on.")


def structure(history: History) -> list[Any]:
    """The calls and their results, without the contents."""
    blocks = [block for item in history.view().items for block in shown_blocks(item)]
    return [
        {name: value for name, value in block.items() if name != "content"}
        for block in blocks
        if block["type"] != "thinking"
    ]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(sessions, policies)
def test_clearing_before_every_call(session: list[list[tuple[Any, Any]]], policy: Any) -> None:
    history = History()
    history.say("go")
    cleared: list[int] = []
    for message in session:
        play(history, message)
        before, shape = history.view(), structure(history)
        clearing = plan(before, policy)
        assert clearing == plan(history.view(), policy)
        if not clearing:
            continue
        cleared += [each.seq for each in clearing]
        history.mask("microcompact", targets_of(clearing))
        after = history.view()
        assert plan(after, policy) == []
        assert structure(history) == shape
        assert 0 < sum(each.saved for each in clearing) <= before.size - after.size
        history.request()
    assert len(cleared) == len(set(cleared)), "what was cleared is never cleared again"


# What the rules let go


def permit(*categories: str, **fields: Any) -> Any:
    rules = replace(DEFAULT_PRESERVE_RULES, compactable=("thinking_blocks", *categories))
    return replace(DEFAULT, rules=rules, clear_keep=0, **fields)


def worked(history: History) -> dict[str, int]:
    """A session with one result of every kind of fate."""
    failed = {"is_error": True, "details": {"exit_code": 1}}
    seqs = {
        "solved": bash(history, "pytest -q", **failed),
        "failing": bash(history, "make", **failed),
        "stale": read(history, "a.py"),
        "valid": read(history, "b.py"),
        "search": history.call("Grep", {"pattern": "x"}, BIG),
    }
    edit(history, "a.py")
    bash(history, "pytest -q", "ok", details={"exit_code": 0})
    bash(history, "make", "no", **failed)
    history.reply({"type": "text", "text": "Done."})
    return seqs


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ((), ()),
        (("debug_output",), ("solved",)),
        (("redundant_reads",), ("stale",)),
        (("intermediate_outputs",), ("solved", "failing", "search")),
        (("debug_output", "redundant_reads"), ("solved", "stale")),
        (("tool_results",), ("solved", "failing", "stale", "valid", "search")),
    ],
)
def test_only_what_a_listed_category_fits_is_cleared(
    listed: tuple[str, ...], names: tuple[str, ...]
) -> None:
    history = History()
    seqs = worked(history)
    assert due(history, permit(*listed)) == [seqs[name] for name in names]
    assert plan_all(history.view(), answered_only=True), (
        "what fits in no other way goes all the same"
    )


def test_other_tools_go_as_tool_results_alone() -> None:
    history = History()
    todo = history.call("Todo", {"todos": []}, BIG)
    history.reply({"type": "text", "text": "Done."})
    assert due(history, permit(*COMPACTABLE[1:], clear_tools=("Todo",))) == []
    assert due(history, permit("tool_results", clear_tools=("Todo",))) == [todo]


def test_results_that_no_rule_allows_to_clear_are_stable() -> None:
    history = History()
    seqs = worked(history)
    assert oldest_clearable(history.view(), permit()) is None
    assert oldest_clearable(history.view(), permit("redundant_reads")) == seqs["stale"]


def test_a_command_that_was_never_solved_is_no_debug_output() -> None:
    history = History()
    bash(history, "pytest -q", is_error=True, details={"exit_code": 1})
    bash(history, "pytest -q", details={"exit_code": None})  # it runs in the background
    bash(history, "make", details={"exit_code": 0})
    for command in ("make", "pytest -x"):
        bash(history, command, "ok", details={"exit_code": 0})
    history.reply({"type": "text", "text": "Done."})
    assert due(history, permit("debug_output")) == []


# Reads in the ledger preset


def stubs(history: History, policy: Any) -> list[str]:
    return [each.target["stub"] for each in plan(history.view(), policy)]


def test_a_superseded_read_leaves_path_and_lines() -> None:
    history = History()
    page = read(history, "src/a.py", 100, 200, offset=100)
    other = read(history, "src/b.py")
    changed = edit(history, "src/a.py")
    newest = read(history, "src/a.py", 1, 400)
    bash(history, "make", "ok")
    history.reply({"type": "text", "text": "Done."})
    ledger = replace(PRESETS["ledger"], clear_keep=1)
    first, second, *_ = stubs(history, ledger)
    assert first == f"[Read src/a.py lines 100-200 · superseded by #{newest} · full text: #{page}]"
    assert second == f'[Read "src/b.py" · done · 1,208 tokens compacted · full text: #{other}]'
    assert changed < newest
    plain = stubs(history, replace(DEFAULT, clear_keep=1))
    assert plain[0].startswith('[Read "src/a.py" · done · ')


def test_a_changed_file_names_the_newest_change() -> None:
    history = History()
    read(history, "a.py", 1, 50)
    edit(history, "a.py")
    last = edit(history, "a.py")
    edit(history, "a.py", is_error=True)
    history.reply({"type": "text", "text": "Done."})
    (line,) = stubs(history, replace(PRESETS["ledger"], clear_keep=0))
    assert line.startswith(f"[Read a.py lines 1-50 · superseded by #{last} · ")


def test_a_superseded_read_without_lines_has_a_normal_stub() -> None:
    history = History()
    for _ in range(2):
        history.call("Read", {"path": "a.png"}, BIG)
    history.reply({"type": "text", "text": "Done."})
    lines = stubs(history, replace(PRESETS["ledger"], clear_keep=1))
    assert lines[0].startswith('[Read "a.png" · done · ')
