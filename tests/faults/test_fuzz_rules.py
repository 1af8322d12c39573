"""Rules and commands of any kind: a rule that forbids never lets more through, one that allows
never less, and bash runs nothing of a command that was allowed but what a rule allows."""

import itertools
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.objections import Verdict
from ctxagent.agent.permissions.rules import exact_command, exact_path, parse_rule
from ctxagent.agent.permissions.shell.parser import parse

from ..permissions.test_approval import judge
from ..permissions.test_parser import REPORT, certain, reported
from ..support.machine import needs, program

SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
fuzz = settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=SLOW)

WEIGHT = {"allow": 0, "ask": 1, "deny": 2}
MODES = st.sampled_from(["ask", "accept-edits", "plan", "bypass"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fuzz") / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("x")
    (root / ".env").write_text("x")
    (root / "out").symlink_to(root.parent)
    return root


# Rules over commands and paths

ODD = st.sampled_from(
    ["\0", "\ud800", "\u202e", "e\u0301", "ｌs", "\\", "'", '"', "$(", "`", "*", "?", "[", "]",
     "{a,b}", "~", "..", "/", "\n", "\r", "\x1b", "<<E\n", "\nE\n", ":*", "(", ")", "#", "$x", "&&",
     "|", ">"]
)  # fmt: skip
PLAIN = st.sampled_from(
    ["ls", "rm", "-rf", "git", "push", "-C", "src", "a.py", ".env", "env", "xargs", "sudo", "echo",
     "cat", "find", ".", "-exec", "timeout", "5", "sh", "-c", "'rm x'", "; rm x", "| sh", "z", "é"]
)  # fmt: skip
COMMANDS = st.lists(PLAIN | PLAIN | ODD, max_size=7).map(" ".join) | st.text(max_size=12)
PATHS = st.lists(PLAIN | ODD, min_size=1, max_size=4).map("/".join) | st.sampled_from(
    [".env", "src/a.py", "src/../.env", "out/project/.env", "/proc/self/cwd/.env", "~root/x", ""]
)
SUBJECTS = st.lists(
    PLAIN | ODD | st.sampled_from(["**", "*", "rm:*", "git push:*"]), min_size=1, max_size=3
)
RULES = st.one_of(
    SUBJECTS.map(" ".join).map("Bash({})".format),
    SUBJECTS.map("/".join).map("Read({})".format),
    SUBJECTS.map("/".join).map("Edit({})".format),
    st.sampled_from(["Bash", "Read", "Edit", "Grep", "Bash(*)", "Bash(rm:*)", "Read(.env)"]),
)


def sound(rule: str) -> bool:
    with suppress(UsageError):
        return str(parse_rule(rule)) == rule.strip()
    return False


@fuzz
@given(
    tool=st.sampled_from(["Bash", "Bash", "Read", "Grep", "Edit", "Write", "Task"]),
    data=st.data(),
    rules=st.lists(RULES.filter(sound), max_size=3),
    more=RULES.filter(sound),
    mode=MODES,
)
def test_a_rule_more_only_ever_does_what_it_is_for(
    project: Path, tool: str, data: st.DataObject, rules: list[str], more: str, mode: PermissionMode
) -> None:
    subject = data.draw(COMMANDS if tool == "Bash" else PATHS)

    def verdict(allow: list[str], ask: list[str], deny: list[str]) -> Verdict:
        return judge(
            Approval(cwd=project, mode=mode, allow=allow, ask=ask, deny=deny), tool, subject
        )

    given = rules[:1], rules[1:2], rules[2:]
    allow, ask, deny = given
    weight = WEIGHT[verdict(*given).action]
    assert WEIGHT[verdict([*allow, more], ask, deny).action] <= weight
    assert WEIGHT[verdict(allow, [*ask, more], deny).action] >= weight
    assert WEIGHT[verdict(allow, ask, [*deny, more]).action] >= weight


@fuzz
@given(tool=st.sampled_from(["Bash", "Bash", "Read", "Write"]), data=st.data())
def test_what_is_offered_can_be_kept_and_lets_no_deny_rule_down(
    project: Path, tool: str, data: st.DataObject
) -> None:
    """The rule that a question offers is one; with it the call is not judged worse, and what is
    denied stays so."""
    subject = data.draw(COMMANDS if tool == "Bash" else PATHS)
    approval = Approval(cwd=project, deny=["Bash(rm:*)", "Read(.env)", "Edit(.env)"])
    verdict = judge(approval, tool, subject)
    if verdict.action == "ask":
        assert sound(verdict.rule)
        wider = approval.with_rule(verdict.rule)
        assert judge(wider, tool, subject).action in ("ask", "allow")
        assert judge(wider, "Bash", "rm x").action == "deny"
        assert judge(wider, "Read", ".env").action == "deny"


@fuzz
@given(st.text(max_size=20) | COMMANDS, PATHS)
def test_what_is_named_exactly_means_only_itself(command: str, path: str) -> None:
    if command.strip(" \t\n"):
        with suppress(UsageError):
            rule = parse_rule(f"Bash({exact_command(command)})")
            assert str(parse_rule(str(rule))) == str(rule)
    with suppress(UsageError):
        assert parse_rule(f"Read({exact_path(path)})").tool == "Read"


# Scripts that bash takes, and what it runs of them

WORDS = [
    "a", "'b c'", '"d e"', "f\\ g", "$'h\\ti'", '""', "$x", '"$x"', "-o", "*.none", "{i,j}", "~",
    "#k", "l#m", "'n'\"o\"p", "q=r", "'$(z3)'", "$(z3 s)", '"$(z3 t)"', "`z4`", "<(z3)", "$((1+2))",
    "\\\n", "${x:-u}", '"${x:-$(z3)}"', "é", "!", "'\n'",
]  # fmt: skip
SIMPLE = st.tuples(
    st.sampled_from(["z1", "z1", "z1", "z2", "'z1'", "z\\1", "x=1 z1", "! z1", "time z1",
                     "command z1"]),
    st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
    st.sampled_from(["", "", "", " >f", " 2>&1", " </dev/null", " &>f", " <<<w", " <<E\n$(z3)\nE\n",
                     " <<'E'\n$(z3)\nE\n", " <<-E\n\tw\n\tE\n"]),
).map(lambda parts: f"{parts[0]} {parts[1]}{parts[2]}")  # fmt: skip
JOINS = [" && ", " || ", "; ", "\n", " | ", " & ", " |& ", " # c; z3\n", " \\\n&& "]


def _around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = st.tuples(inner, st.sampled_from(JOINS), inner).map("".join)
    frames = [
        "({})", "( {} )", "{{ {}; }}", "{{ {}\n}}", "if {}; then z1; fi",
        "if z1; then {}\nelse z1; fi",
        "for i in a b; do {}\ndone", "for i in $(z3); do z1 $i; {}; done", "until z1; do {}\ndone",
        "case a in a) {};; *) z1;; esac", "case $(z3) in *) {}\n;; esac", "echo $({})",
        "z1 `z1`; {}",
        "z1 \"$( {} )\"", "f() {{ {}; }}; f", "eval '{}'", "sh -c '{}'", "[[ -n $({}) ]]",
        "z1 | while read l; do {}\ndone", "env z1; {}", "xargs z1 <f; {}", "trap '{}' EXIT",
        "x=$({}); z1 $x", "export x; {}", "(( 1 )) && {}", "z1 <<E\n$({})\nE\n", "coproc {}",
    ]  # fmt: skip
    return both | st.tuples(st.sampled_from(frames), inner).map(lambda p: p[0].format(p[1]))


NUMBERS = itertools.count()
SCRIPTS = st.recursive(SIMPLE, _around, max_leaves=4)


@needs("bash")
@given(SCRIPTS)
@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=SLOW)
def test_bash_runs_nothing_of_a_sound_script_that_was_not_seen(project: Path, script: str) -> None:
    hold_against_bash(project, script)


def hold_against_bash(project: Path, script: str) -> bool:
    """Have bash run a script whose parts are certain, or that a rule allows, and fail where it runs
    anything else. Return whether it ran."""
    verdict = judge(Approval(cwd=project, allow=["Bash(z1:*)"]), "Bash", script)
    found = parse(script)
    if verdict.action != "allow" and not certain(found):
        return False
    # What a script leaves running writes into its own report, and not into that of the next.
    work, report = project.parent / "work", project.parent / f"report-{next(NUMBERS)}"
    work.mkdir(exist_ok=True)
    report.write_bytes(b"")
    subprocess.run(
        [program("bash") or "", "--norc", "-c", REPORT],
        cwd=work,
        env={"PATH": "/nonexistent", "REPORT": str(report), "COMMAND": script},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=400,
        check=False,
    )
    ran = reported(report)
    report.unlink()
    if verdict.action == "allow":
        # What is run through these counts. `time` is a program, no keyword, behind a pipe.
        through = ("env", "time")
        started = {words[words[0] in through and len(words) > 1] for words in ran}
        assert started <= {"z1"}, script
    if certain(found):
        seen = [part.words for part in found.parts]
        for words in ran:
            assert any(_may_be(words, part) for part in seen), (script, words)
    return True


def _may_be(ran: list[str], part: tuple[object, ...]) -> bool:
    """Whether what bash ran may be that part: word for word, as far as they are known."""
    for place, word in enumerate(part):
        fixed = getattr(word, "fixed", False) and not getattr(word, "glob", False)
        text = getattr(word, "text", "")
        if not fixed or "~" in text:
            return True  # from here on any number of words may stand in its place
        if place >= len(ran) or ran[place] != text:
            return False
    return len(ran) == len(part)
