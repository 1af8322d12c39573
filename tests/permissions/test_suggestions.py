"""Suggested rules for a call, descriptions of rules, and wide rules."""

from pathlib import Path

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.permissions import suggestions
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.rules import parse_rule
from ctxagent.tools.base import Params, Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.write import WriteTool


def call(tool: Tool[Params], text: str) -> Params:
    given = {
        "Bash": {"command": text},
        "Read": {"path": text},
        "Edit": {"path": text, "old_string": "a", "new_string": "b"},
        "Write": {"path": text, "content": ""},
    }
    return tool.Params.model_validate(given[tool.name])


def offered(tool: Tool[Params], text: str, cwd: Path, **rules: list[str]) -> tuple[str, ...]:
    approval = Approval(cwd=cwd, **rules)  # type: ignore[arg-type]
    verdict = approval.judge(tool, call(tool, text))
    assert verdict.action == "ask"
    return suggestions.suggest(approval, tool, call(tool, text), verdict.rule, cwd)


@pytest.mark.parametrize(
    ("tool", "text", "rules"),
    [
        (BashTool(), "npm test", ["Bash(npm test:*)", "Bash(npm test)", "Bash"]),
        (
            BashTool(),
            "git push origin main",
            [
                "Bash(git push:*)",
                "Bash(git push origin main)",
                "Bash(git push origin:*)",
                "Bash",
            ],
        ),
        (BashTool(), "pytest", ["Bash(pytest:*)", "Bash(pytest)", "Bash"]),
        (
            BashTool(),
            "pytest tests -q",
            ["Bash(pytest:*)", "Bash(pytest tests -q)", "Bash(pytest tests:*)", "Bash"],
        ),
        (
            BashTool(),
            "npm run lint -- -q",
            ["Bash(npm run lint:*)", "Bash(npm run lint -- -q)", "Bash(npm run:*)", "Bash"],
        ),
        (BashTool(), "rm -rf build", ["Bash(rm -rf build)", "Bash"]),
        (BashTool(), "touch a*", ["Bash(touch:*)", "Bash(touch a\\*)", "Bash"]),
        (
            BashTool(),
            "cd web && npm test",
            ["Bash(npm test:*)", "Bash(cd web && npm test)", "Bash"],
        ),
        (BashTool(), "mkdir a && touch b", ["Bash(mkdir a && touch b)", "Bash"]),
        (BashTool(), "cat <<E | sh\nrm x\nE", []),
        (BashTool(), "touch a\u200bb", []),
        (BashTool(), "touch \u202eb", []),
        (BashTool(), "touch \u3164 x", []),
        (BashTool(), "touch x \u2800", []),
        (BashTool(), "touch x\ufe0f", []),
        (
            BashTool(),
            "touch \u2764\ufe0f",
            ["Bash(touch:*)", "Bash(touch \u2764\ufe0f)", "Bash"],
        ),
        (BashTool(), "tmux new vim", ["Bash(tmux new vim)", "Bash"]),
        (BashTool(), "ksh x", ["Bash(ksh x)", "Bash"]),
        (BashTool(), "make test", ["Bash(make test)", "Bash"]),
        (BashTool(), "git clone a b", ["Bash(git clone a b)", "Bash"]),
        (BashTool(), "ts-node a.ts b", ["Bash(ts-node a.ts:*)", "Bash(ts-node a.ts b)", "Bash"]),
        (BashTool(), "make", ["Bash(make)", "Bash"]),
        (EditTool(), ".git/config", ["Edit(.git/config)", "Edit"]),
        (EditTool(), ".github/workflows/x", ["Edit(.github/workflows/x)", "Edit"]),
        (WriteTool(), "src/.husky/x", ["Edit(src/.husky/x)", "Edit"]),
        (WriteTool(), "/etc/cron.d/x", ["Edit(/etc/cron.d/x)", "Edit"]),
        (EditTool(), "src/a.py", ["Edit(src/a.py)", "Edit(src/**)", "Edit"]),
        (WriteTool(), "new.py", ["Edit(new.py)", "Edit"]),
        (ReadTool(), "/opt/x/y", ["Read(/opt/x/y)", "Read"]),
    ],
)
def test_the_useful_rule_is_offered_first_then_the_others_from_the_narrowest_on(
    tmp_path: Path, tool: Tool[Params], text: str, rules: list[str]
) -> None:
    assert list(offered(tool, text, tmp_path)) == rules


def test_no_rule_is_offered_that_does_not_help(tmp_path: Path) -> None:
    assert offered(BashTool(), "git push", tmp_path, ask=["Bash(git push:*)"]) == ()
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (project / "out").symlink_to(other)
    assert offered(EditTool(), "out/x", project) == ()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("Bash", "every command"),
        ("Bash(npm test:*)", "any `npm test …` command"),
        ("Bash(npm run *)", "any command like `npm run …`"),
        ("Bash(make a\\*)", "exactly this command"),
        ("Edit(src/**)", "changing files below src/"),
        ("Edit(*.md)", "changing files like *.md"),
        ("Edit(a\\*.md)", "changing a*.md"),
        ("Read", "reading any file"),
        ("Task(explore)", "subagents of type explore"),
        ("Job", "any call of Job"),
        ("Bash(", ""),
    ],
)
def test_what_a_rule_means(rule: str, words: str) -> None:
    assert suggestions.describe_rule(rule) == words


WIDE = [
    "Bash", "Bash(*)", "Bash(* x)", "Bash(python:*)", "Bash(python3 -c:*)", "Bash(sudo:*)",
    "Bash(bash:*)", "Bash(env X=1:*)", "Bash(git:*)", "Bash(npm *)", "Bash(uv run:*)",
    "Bash(rm:*)", "Bash(sh)", "Bash(python3)", "Bash(find:*)",
    "Edit", "Edit(**)", "Edit(*)", "Edit(.)", "Edit(../**)",
    "Edit(.git/**)", "Edit(~/**)", "Edit(/etc/**)", "Edit(/**)", "Write", "Read", "Read(~/**)",
    "Read(~/.ssh/**)", "Read(/**)", "Grep",
    "Edit(~/.ssh/**)", "Edit(/etc/cron.d/**)", "Edit(/usr/local/bin/**)", "Edit(~/.local/bin/**)",
    "Edit(~/.config/autostart/**)", "Edit(.github/workflows/**)", "Edit(.husky/**)",
    "Read(/etc/**)", "Read(~/.aws/**)", "Edit(/usr/**)", "Edit(/var/**)", "Edit(/home/**)",
    "Edit(~/.*)", "Edit(~/.bash*)", "Edit(.ctxagent/**)", "Edit(.vscode/**)",
    "Edit(.git/info/**)", "Edit(.git/**/pre-commit)", "Edit(**/.bashrc)", "Edit(.GIT/**)",
    "Edit(?git/**)", "Edit(*rc)", "Edit(**/pre-commit)", "Edit(src/../.husky/**)",
    "Read(../**)", "Read(src/*/../../../**)", "Read(/proc/**)", "Read(~/.gnupg/**)",
    "Read(~/.config/**)", "Read(~/.ssh/id_*)", "Read(~/notes/**)", "Read(/etc)", "Read(..)",
    "Edit(.husky)", "Edit(/nowhere/yet)", "Edit(..)",
    "Bash(tmux new:*)", "Bash(pkexec rm:*)", "Bash(ksh:*)", "Bash(fish:*)", "Bash(tcsh x:*)",
    "Bash(ts-node:*)", "Bash(make:*)", "Bash(make test:*)", "Bash(gmake x:*)", "Bash(just x:*)",
    "Bash(ninja x:*)", "Bash(git clone:*)", "Bash(git hook:*)", "Bash(git difftool:*)",
    "Bash(csh:*)", "Bash(ash:*)", "Bash(su:*)", "Bash(systemd-run:*)", "Bash(nsenter:*)",
    "Bash(setpriv:*)", "Bash(prlimit:*)", "Bash(rlwrap:*)", "Bash(at:*)", "Bash(crontab:*)",
    "Bash(expect:*)", "Bash(socat:*)", "Bash(ansible:*)", "Bash(bundle:*)", "Bash(julia:*)",
    "Bash(ipython:*)", "Bash(tsx:*)",
]  # fmt: skip
NARROW = [
    "Bash(npm test:*)", "Bash(npm test)", "Bash(sudo rm -rf /)", "Bash(git push:*)",
    "Bash(python tools/gen.py:*)", "Bash(npm run *)", "Bash(pytest:*)", "Edit(src/**)",
    "Edit(*.md)", "Edit(**/*.py)", "Edit(/etc/hosts)", "Read(/etc/hosts)", "Edit(src)",
    "Edit(src/*/a/**)", "Read(**)", "Bash(make test)", "Bash(julia a.jl:*)",
    "Task", "Job", "Task(explore)",
]  # fmt: skip


@pytest.mark.parametrize("rule", WIDE)
def test_wide_rules(rule: str, tmp_path: Path) -> None:
    assert suggestions.why_wide(parse_rule(rule), tmp_path)


@pytest.mark.parametrize("rule", NARROW)
def test_rules_that_are_not_wide(rule: str, tmp_path: Path) -> None:
    assert suggestions.why_wide(parse_rule(rule), tmp_path) == ""


def test_a_project_path_matches_in_any_spelling(tmp_path: Path) -> None:
    project = tmp_path / "a*b"
    (project / ".husky").mkdir(parents=True)
    assert suggestions.why_wide(parse_rule(f"Edit({tmp_path}/a\\*b/src/**)"), project) == ""
    assert suggestions.why_wide(parse_rule(f"Edit({tmp_path}/a\\*b/.husky)"), project)
    assert suggestions.why_wide(parse_rule(f"Edit({tmp_path}/a*b/src/**)"), project), (
        "a*b is more than one"
    )


def test_a_rule_for_one_path_is_wide_where_that_is_a_folder(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    approval, tool = Approval(cwd=project), WriteTool()
    params = call(tool, ".husky/pre-commit")  # which is not there yet
    assert (
        suggestions.check_for_call(approval, "Edit(.husky/pre-commit)", tool, params, project) == ""
    )
    assert "it covers .husky" in suggestions.check_for_call(
        approval, "Edit(.husky)", tool, params, project
    )
    other.mkdir()
    assert offered(ReadTool(), str(other), project) == (f"Read({other})", "Read")
    params = call(ReadTool(), str(other))
    assert "outside this project" in suggestions.check_for_call(
        approval, f"Read({other})", ReadTool(), params, project
    )


@pytest.mark.parametrize(
    "rule", ["Bash(touch *\u202e*)", "Bash(touch \u3164*)", "Bash(*\ufe0f*)", "Bash(touch *\n*)"]
)
def test_a_rule_that_cannot_be_read_is_not_taken(rule: str, tmp_path: Path) -> None:
    params = call(BashTool(), "touch \u3164\u202e\ufe0f\n")
    with pytest.raises(UsageError, match="contains invisible characters"):
        suggestions.check_for_call(Approval(cwd=tmp_path), rule, BashTool(), params, tmp_path)


@pytest.mark.parametrize("rule", ["Edit(~\0)", "Read(a\0)", "Edit(~\ud800)"])
def test_a_rule_with_an_impossible_path_is_rejected(rule: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the path in the rule .* is invalid"):
        suggestions.check_for_call(
            Approval(cwd=tmp_path), rule, WriteTool(), call(WriteTool(), "a"), tmp_path
        )


@pytest.mark.parametrize("text", ["a<=<){-\0/[", "cat \0/*", "cat ~\0*", "> ~\0"])
def test_a_command_that_names_what_cannot_be_is_asked_about(text: str, tmp_path: Path) -> None:
    approval, params = Approval(cwd=tmp_path), call(BashTool(), text)
    verdict = approval.judge(BashTool(), params)
    assert verdict.action == "ask"
    assert approval.read_only_view().judge(BashTool(), params).action == "deny"
    approval.allow_for_session(verdict.rule)
    approval.allow_for_session("Bash(~\0)")
    assert suggestions.suggest(approval, BashTool(), params, verdict.rule, tmp_path) == ()


def test_a_rule_is_checked_against_the_call(tmp_path: Path) -> None:
    approval, tool = Approval(cwd=tmp_path), BashTool()
    params = call(tool, "npm test && npm run build")
    for rule in ("Bash(npm test:*)", "Bash(npm", "Bsh(npm test)"):
        with pytest.raises(UsageError):
            suggestions.check_for_call(approval, rule, tool, params, tmp_path)
    approval.allow_for_session("Bash(npm run build)")
    assert suggestions.check_for_call(approval, "Bash(npm test:*)", tool, params, tmp_path) == ""
    assert suggestions.check_for_call(approval, "Bash(npm:*)", tool, params, tmp_path)
    assert approval.rules()["session"] == ["Bash(npm run build)"], "nothing is kept by a check"
    assert approval.revoke("Bash(npm run build)")
    assert not approval.revoke("Bash(npm run build)")
