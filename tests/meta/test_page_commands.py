"""What the commands of README.md and the guide name is there. `tests/install` runs them."""

import re
import subprocess
from pathlib import Path

import click
import pytest

from ctxagent.agent.errors import UsageError

from ..support.pages.checks import Call, call_of, forms, problems
from ..support.pages.commands import CODE, PAGES, ROOT, PageCommand, commands_of, files_of

PAGE = """\
# A page

`ctxagent log` and `git log`. `ctxagent replay` needs a recording. Run `make docs` first.
This needs a key:

    export KEY=1
    ctxagent -p "hi" \\
        --verbose
    cat > a.json <<'END'
    {"a b": 1}
    END

| a | b |
| --- | --- |
| `make soak` | it takes two hours |

Save this file as `~/a.md`:

```markdown
ctxagent is not run here
```

    ctxagent doctor   # a comment
    ctxagent acp      # in an editor; needs Zed 1.2

```text
ctxagent 0.2.0
```

Output:

    [3 lines]
    ctxagent log
"""


# Also pages for developers, whose commands no test runs.
ALL_PAGES = (
    *PAGES,
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md")),
    *sorted(
        page
        for folder in ("benchmarks", "docs/internals")
        for page in ROOT.glob(f"{folder}/**/*.md")
    ),
)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_names_what_there_is(page: Path) -> None:
    text = page.read_text("utf-8")
    wrong = [
        f"{command.place}: {problem}"
        for command in commands_of(page)
        for form in forms(command.text)
        for problem in problems(form, text)
    ]
    assert wrong == []


def test_git_has_the_commands_that_the_pages_name() -> None:
    listed = subprocess.run(
        ["git", "--list-cmds=main,others"], capture_output=True, text=True, check=True
    ).stdout.split()
    named = {
        found[1]
        for page in PAGES
        for code in CODE.findall(page.read_text("utf-8"))
        if (found := re.match(r"git (?:-C \w+ )?([a-z][\w-]*)", code))
    }
    assert len(named) > 10
    assert named - {*listed, "lfs"} == set()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


def test_the_commands_of_a_page_and_what_they_need(page: Path) -> None:
    def command(line: int, text: str, in_block: bool, needs: str = "") -> PageCommand:
        return PageCommand("page.md", line, text, in_block, needs)

    assert commands_of(page) == [
        command(3, "ctxagent log", False),
        command(3, "ctxagent replay", False, "a recording"),
        command(3, "make docs", False),
        command(6, "export KEY=1", True, "a key"),
        command(7, 'ctxagent -p "hi" \\\n    --verbose', True, "a key"),
        command(9, "cat > a.json <<'END'\n{\"a b\": 1}\nEND", True, "a key"),
        command(15, "make soak", False, "two hours"),
        command(23, "ctxagent doctor", True),
        command(24, "ctxagent acp", True, "Zed 1.2"),
    ]
    assert list(files_of(page)) == [("~/a.md", "ctxagent is not run here\n")]


def test_a_block_that_bash_cannot_read_is_an_error(page: Path) -> None:
    page.write_text("    ctxagent log (all of it)\n")
    with pytest.raises(ValueError, match="not shell"):
        commands_of(page)


def test_the_forms_of_a_command() -> None:
    assert forms("ctxagent compact [ID] --all FILE…") == [
        "ctxagent compact --all FILE", "ctxagent compact ID --all FILE",
    ]  # fmt: skip
    assert forms("ctxagent --from ID[:N]") == ["ctxagent --from ID", "ctxagent --from ID:N"]
    assert forms("pip install 'ctxagent[otel]'") == ["pip install 'ctxagent[otel]'"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ctxagent --fast", "No such option"),
        ("ctxagent demo --quick", "No such option"),
        ("ls | xargs ctxagent -p hi --cwdd x", "No such option"),
        ("ctxagent fleets run a.jsonl", "there is no command fleets"),
        ("ctxagent fleet go", "No such command 'go'"),
        ("ctxagent log --stats=1", "does not take a value"),
        ("make benchmark", "the Makefile has no benchmark"),
        ("make bench LENGTH=quick", "the Makefile has no LENGTH"),
        ("python benchmarks/all.py", "benchmarks/all.py needs the development tools"),
        (".venv/bin/python benchmarks/every.py", "there is no benchmarks/every.py"),
        (".venv/bin/python benchmarks/all.py --length", "benchmarks/all.py has no --length"),
        (".venv/bin/nosuch", ".venv/bin/nosuch is not installed"),
    ],
)
def test_a_command_that_cannot_work_is_found(text: str, problem: str) -> None:
    (found,) = problems(text, "First, run `make .venv`.")
    assert problem in found


def test_a_page_says_where_the_development_tools_come_from() -> None:
    (found,) = problems(".venv/bin/pytest tests/meta/test_docs.py", "")
    assert "make .venv" in found


def test_how_the_command_line_reads_a_call() -> None:
    assert call_of(["ls"]) is None
    assert call_of(["ctxagent", "-r"]) == Call((), in_terminal=True)
    assert call_of(["ctxagent", "do it now"]) == Call((), in_terminal=True, has_message=True)
    assert call_of(["ctxagent", "--", "log"]) == Call((), in_terminal=True, has_message=True)
    assert call_of(["ctxagent", "-p", "explain"]) == Call(())
    assert call_of(["ctxagent", "-p"]) == Call((), complete=False)
    assert call_of(["ctxagent", "fleet", "run"]) == Call(("fleet", "run"), complete=False)
    assert call_of(["ctxagent", "-c", "a=b", "log"]) == Call(("log",))
    assert call_of(["ctxagent", "mcp", "add", "x", "--", "npx"]) == Call(("mcp", "add"))
    with pytest.raises((UsageError, click.UsageError)):
        call_of(["ctxagent", "lgo"])
