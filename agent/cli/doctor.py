"""`ctxagent doctor`: looks at the set-up or at one session, and repairs one."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..ui.visible import clean
from .options import cwd_of, guarded, load, project_of, say

if TYPE_CHECKING:
    from ..config import Loaded
    from ..doctor import Finding


@click.command()
@click.argument("id", required=False)
@click.option("--repair", "mend", is_flag=True, help="Mend session ID; the log as it was is kept.")
@click.option("--fetch-tokenizer", is_flag=True, help="Download tiktoken's vocabulary (1.7 MB).")
@click.option("--json", "as_json", is_flag=True, help="One document, for programs.")
@click.pass_obj
def doctor(
    options: dict[str, Any], id: str | None, mend: bool, fetch_tokenizer: bool, as_json: bool
) -> None:
    """Check the set-up, or one session; say what is wrong and what a repair would do.

    The exit code is 1 when something is.
    """

    def run() -> int:
        from ..confinement import choose_programs
        from ..doctor import check_session, fetch, repair

        if fetch_tokenizer and (id or mend):
            raise UsageError("--fetch-tokenizer takes no session")
        if mend and id is None:
            raise UsageError("--repair needs a session", hint="`ctxagent sessions list` has them.")
        loaded = load(options)
        choose_programs(loaded.settings.sandbox, cwd_of(options), os.environ)
        project = project_of(options, loaded)
        done: list[str] | None = None
        if id is not None:
            log = project.find(id)
            done = repair(log) if mend else None
            findings = check_session(log)
        elif fetch_tokenizer:
            findings = [fetch()]
        else:
            findings = look_over(loaded, project.state)
        whole = all(finding.ok for finding in findings)
        if as_json:
            told = [finding._asdict() for finding in findings]
            document = {"ok": whole, "findings": told, "repaired": done}
            say(json.dumps(document, ensure_ascii=False))
        else:
            _tell(findings, done)
            if id is not None and not whole and not mend:
                say(f"`ctxagent doctor {id} --repair` mends what can be mended.", err=True)
        return 0 if whole else 1

    guarded(run)


def _tell(findings: "list[Finding]", done: list[str] | None) -> None:
    for told in ["there is nothing to repair"] if done == [] else done or []:
        say(f"done  {clean(told)}")
    for verdict, what, found in map(row_of, findings):
        say(f"{verdict:<4}  {clean(what)}: {clean(found)}")


def row_of(finding: "Finding") -> tuple[str, str, str]:
    return "ok" if finding.ok else "FAIL", finding.what, finding.found


def look_over(loaded: "Loaded", state: Path) -> "list[Finding]":
    """What is found of the set-up, and of what the terminal can do."""
    from ..doctor import Finding, check_setup
    from ..ui.screen.capabilities import of_process, rows

    ui = loaded.settings.ui
    seen = rows(of_process(ui), shutil.get_terminal_size(), ui.theme)
    return [*check_setup(loaded, state), *(Finding(*each) for each in seen)]
