"""Every kind of objection meets every kind of rule, every mode and every kind of sandbox. The table
of objections says what must come out, and each of its entries decides at least one of these cases.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.permissions import approval as approval_module
from ctxagent.agent.permissions import objections as table_module
from ctxagent.agent.permissions import path_judge
from ctxagent.agent.permissions.approval import MAX_COMMAND_BYTES, Approval
from ctxagent.agent.permissions.objections import TABLE, Objection, ObjectionKind, Verdict
from ctxagent.tests.install.site_pages import DOCS, objections_table
from ctxagent.tests.permissions.test_approval import EFFECTS, Box, Fake, Subject

MODES: tuple[PermissionMode, ...] = ("ask", "plan", "accept-edits", "sandboxed", "bypass")
MODES_WITH_SANDBOX = (*((mode, False) for mode in MODES), ("ask", True))
RULES = ("none", "covering", "session", "exact", "every", "ask", "deny", "host")
SANDBOXES = {
    "bubblewrap": {},
    "Landlock": {"unasked_absent": "only Landlock works."},
    "none": {"absent": "nothing works.", "unasked_absent": "nothing works."},
}
ROWS = dict(TABLE)  # as the product has them, while a test changes the table


@dataclass
class Sample:
    """A call that raises an objection, and the rules that raise and cover it."""

    tool: str
    subject: str
    covering: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    path: str = "/usr/bin:/bin"
    is_required: bool = False  # the sandbox
    looks: bool = False  # a subagent that only looks makes the call
    is_of_sandbox: bool = False  # raised only if the sandbox would have to answer
    needs_kernel: bool = False  # raised only where the kernel confines read-only commands


def _bash(command: str, *covering: str, **rules: Any) -> Sample:
    return Sample("Bash", command, covering, **rules)


SAMPLES: dict[ObjectionKind, tuple[Sample, ...]] = {
    "denied": (_bash("rm x", "Bash(rm:*)", deny=("Bash(rm:*)",)),),
    "impossible": (_bash("a" * (MAX_COMMAND_BYTES + 1)),),
    "bounds": (Sample("Read", "../outside/data", ("Read",), is_required=True),),
    "looks": (_bash("touch x", "Bash(touch:*)", looks=True),),
    "ask-rule": (_bash("git push", "Bash(git push:*)", ask=("Bash(git push:*)",)),),
    "rule-may-match": (_bash("mytool $x", "Bash(mytool:*)", deny=("Bash(mytool push:*)",)),),
    "denied-files": (_bash("grep -rn KEY .", "Bash(grep:*)", deny=("Read(.env)",)),),
    "asked-files": (_bash("grep -rn KEY .", "Bash(grep:*)", ask=("Read(.env)",)),),
    "git-content": (_bash("git -C plain show", "Bash(git:*)", deny=("Read(plain/kept)",)),),
    "git-programs": (_bash("cd hooked && git tag v1", "Bash(git:*)"),),
    "git-outside": (_bash("cd linked && git add f", "Bash(git:*)"),),
    "unclear": (_bash("eval ls", "Bash(eval:*)"),),
    "unclear-rules": (_bash("x() { touch y; }; x", "Bash(x:*)", deny=("Bash(shred:*)",)),),
    "unclear-file": (_bash("cat */*/*/x", "Bash(cat:*)"), _bash("touch x > $f")),
    "links": (_bash("grep -R KEY src", "Bash(grep -R:*)"),),
    "names": (
        _bash("wc -l $(ls); touch x", "Bash(wc -l $(ls))", "Bash(touch:*)", needs_kernel=True),
        _bash("ls | xargs wc -l; touch x", needs_kernel=True),
    ),
    "program": (_bash("ls", "Bash(ls:*)", path="PROJECT/bin:/usr/bin:/bin"),),
    "option": (
        _bash("git log --output=x", allow=("Bash(git log:*)",)),
        _bash("sort -o a b; touch x", allow=("Bash(sort:*)",)),
    ),
    "change": (_bash("touch x", "Bash(touch:*)"), _bash("(cd src); touch x")),
    "outside": (
        _bash("cat ../outside/data", "Read(../outside/**)"),
        _bash("touch x < /etc/hosts", "Bash(touch:*)", "Read(/etc/**)"),
    ),
    "edit": (
        Sample("Edit", "src/app.py", ("Edit(src/**)",)),
        _bash("touch x > src/new", "Bash(touch:*)", "Edit(src/**)"),
    ),
    "path-folder": (
        Sample("Write", "bin/x", ("Edit(bin/**)",), path="PROJECT/bin:/usr/bin"),
        _bash("touch x > bin/x", "Edit(bin/**)", path="PROJECT/bin:/usr/bin"),
    ),
    "protected": (
        Sample("Edit", ".agentrc", ("Edit(.agentrc)",)),
        _bash("touch x > .agentrc", "Edit(.agentrc)"),
        _bash("touch x > .vimrc"),  # a link to a file that is not protected
    ),
    "search": (Sample("Grep", ".", ("Grep",), ask=("Read(.env)",)),),
    "call": (Sample("Task", "x", ("Task",)),),
    "page": (Sample("WebFetch", "host.org", ("WebFetch(host.org)",)),),
    "network-host": (Sample("Network", "host.org", ("Network(host.org)",)),),
    "beyond-sandbox": (_bash("curl x", "Bash(curl:*)", is_of_sandbox=True),),
    "history": (_bash("git stash clear", "Bash(git stash clear:*)", is_of_sandbox=True),),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which each sample raises its objection."""
    root = tmp_path_factory.mktemp("objections") / "project"
    for file in ("src/app.py", ".env", "bin/ls", "../outside/data"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("KEY=1")
    (root / "bin/ls").chmod(0o755)
    (root / ".vimrc").symlink_to("src/app.py")
    for name in ("plain", "hooked", "linked"):
        subprocess.run(["git", "init", "-q", str(root / name)], check=True)
        (root / name / "kept").write_text("KEY=1")
    subprocess.run(["git", "-C", str(root / "plain"), "add", "kept"], check=True)
    hook = root / "hooked/.git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    borrowed = root / "linked/.git/objects/info/alternates"
    borrowed.parent.mkdir(exist_ok=True)
    borrowed.write_text(str(root.parent / "outside"))
    return root


def test_every_kind_has_a_row_and_a_sample() -> None:
    assert set(get_args(ObjectionKind)) == set(TABLE) == set(SAMPLES)


@dataclass
class Case:
    """A sample with one kind of rule, one mode and one kind of sandbox."""

    sample: Sample
    rule: str
    mode: PermissionMode
    is_sandboxed: bool  # `permissions.sandboxed`
    sandbox: str

    def judge(self, project: Path) -> Verdict:
        sample, added = self.sample, self._added()
        approval = Approval(
            cwd=project,
            mode=self.mode,
            sandboxed=self.is_sandboxed,
            allow=[*sample.allow, *(added if self.rule != "session" else ())],
            ask=[*sample.ask, *([sample.tool] if self.rule == "ask" else [])],
            deny=[*sample.deny, *([sample.tool] if self.rule == "deny" else [])],
            given=[sample.tool] if self.rule == "host" else [],
            path=sample.path.replace("PROJECT", str(project)),
        )
        for rule in added if self.rule == "session" else ():
            approval.allow_for_session(rule)
        fields = {**SANDBOXES[self.sandbox], "required": sample.is_required}
        approval.sandbox = Box(project, **fields)  # type: ignore[assignment]
        approval.kernel_confines_read_only = lambda: self.sandbox != "none"
        view = approval.read_only_view() if sample.looks else approval
        tool = Fake(sample.tool, EFFECTS.get(sample.tool, "run"))
        return view.judge(tool, Subject(text=sample.subject))

    def _added(self) -> Sequence[str]:
        if self.rule in ("covering", "session"):
            return self.sample.covering
        if self.rule == "exact" and len(self.sample.subject) < MAX_COMMAND_BYTES:
            return [f"{self.sample.tool}({self.sample.subject.replace('*', chr(92) + '*')})"]
        return [self.sample.tool] if self.rule == "every" else []

    def expected(self, raised: Sequence[Objection]) -> tuple[str, bool]:
        """Return the action that the table states for these objections, and whether only the
        sandbox allows the call.
        """
        confines = self.mode == "sandboxed" or self.is_sandboxed
        confines &= self.sample.tool == "Bash"
        confines &= self.sandbox == "bubblewrap"
        stages = [set(), {"sandbox"}] if confines else [set()]
        stages += [{"bypass"}] if self.mode == "bypass" else []
        left = [*raised]
        for stage in stages:
            left = [
                each for each in raised if not ROWS[each.kind].lifted_by & self._to(each, stage)
            ]
            left += [each for each in raised if self._refuses(each) and each not in left]
            if not left:
                return "allow", "sandbox" in stage
        rows = [ROWS[each.kind] for each in left]
        denies = any("user" not in row.lifted_by for row in rows) or self.mode == "bypass"
        return "deny" if denies or any(map(self._refuses, left)) else "ask", False

    def _refuses(self, objection: Objection) -> bool:
        return self.mode == "plan" and ROWS[objection.kind].plan_refuses

    def _to(self, objection: Objection, given: set[str]) -> set[str]:
        """Return the answers to one objection in this case."""
        is_command = self.sample.tool == "Bash" and self.rule in ("exact", "every")
        given = {*given, self.rule} if is_command or self.rule == "host" else {*given}
        if objection.covered_by:
            given |= {"rule"} if self.sandbox == "none" else {"rule", "hiding"}
        return given | ({"edits"} if self.mode in ("accept-edits", "sandboxed") else set())


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[Objection]:
    """The objections of the newest decision; the test empties it."""
    found: list[Objection] = []
    decide: Callable[..., Verdict] = table_module.decide

    def noting(objections: Sequence[Objection], *rest: Any) -> Verdict:
        found.extend(each for each in objections if each not in found)
        return decide(objections, *rest)

    for module in (approval_module, path_judge):
        monkeypatch.setattr(module, "decide", noting)
    return found


def cases(kind: ObjectionKind) -> Iterator[Case]:
    every = product(SAMPLES[kind], RULES, MODES_WITH_SANDBOX, SANDBOXES)
    for sample, rule, (mode, is_sandboxed), sandbox in every:
        yield Case(sample, rule, mode, is_sandboxed, sandbox)


@pytest.mark.parametrize("kind", get_args(ObjectionKind))
def test_the_table_decides(kind: ObjectionKind, project: Path, raised: list[Objection]) -> None:
    seen = 0
    for case in cases(kind):
        sample = case.sample
        raised.clear()
        verdict = case.judge(project)
        assert (verdict.action, verdict.confined) == case.expected(raised), (case, raised)
        is_raised = any(each.kind == kind for each in raised)
        seen += is_raised
        skipped = sample.is_of_sandbox or (sample.needs_kernel and case.sandbox == "none")
        covered = kind == "option" and case.rule in ("exact", "every")  # a rule covers it
        assert is_raised or skipped or covered, case
    assert seen


ENTRIES = [(kind, answer) for kind, row in TABLE.items() for answer in sorted(row.lifted_by)]


@pytest.mark.parametrize(("kind", "answer"), ENTRIES)
def test_each_entry_of_the_table_decides_a_case(
    kind: ObjectionKind, answer: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = replace(TABLE[kind], lifted_by=TABLE[kind].lifted_by - {answer})
    for case in cases(kind):
        monkeypatch.setitem(TABLE, kind, ROWS[kind])  # type: ignore[arg-type]
        before = case.judge(project)
        monkeypatch.setitem(TABLE, kind, fewer)  # type: ignore[arg-type]
        after = case.judge(project)
        if before.action != after.action:
            return
    pytest.fail(f"no case needs {answer} for {kind}")


@pytest.mark.parametrize("kind", [kind for kind, row in TABLE.items() if row.lifted_by])
def test_plan_mode_refuses_what_the_table_says(
    kind: ObjectionKind, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(TABLE[kind], plan_refuses=not TABLE[kind].plan_refuses)
    if SAMPLES[kind][0].is_of_sandbox:  # plan mode has no command without a question
        return
    monkeypatch.setitem(TABLE, kind, other)  # type: ignore[arg-type]
    alone = Objection(kind, "why", "Rule")
    verdict = table_module.decide([alone], table_module.Answers("plan"), "it", "")
    assert verdict.action == ("deny" if other.plan_refuses else "ask")


def test_the_guide_has_the_table() -> None:
    assert objections_table() in (DOCS / "guide/security.md").read_text("utf-8")
