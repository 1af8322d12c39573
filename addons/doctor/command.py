"""`ctxagent doctor`: check the set-up or one session, and repair a session."""

import asyncio
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...api.base import NoSuchSession, UsageError
from ...api.cli import (
    cwd_of,
    exits_with_code,
    load,
    project_of,
    say,
    single_action,
    warn_of_problems,
)
from ...api.text import clean

if TYPE_CHECKING:
    from ...api.models import ServerModel
    from ...api.record import Project
    from ...api.settings import LoadedSettings
    from .setup import Finding


@click.command(epilog="Example: ctxagent doctor --network")
@click.argument("id", required=False)
@click.option("--repair", "repairs", is_flag=True, help="Repair the session; the old log is kept.")
@click.option("--fetch-tokenizer", is_flag=True, help="Download tiktoken's vocabulary (1.7 MB).")
@click.option(
    "--server",
    "tests_server",
    is_flag=True,
    help="Test what the model's server accepts, with 10 requests.",
)
@click.option(
    "--network",
    "tests_network",
    is_flag=True,
    help="Test proxy, certificates, the model's server and a small request.",
)
@click.option(
    "--template", metavar="NAME", help="Print the path of a chat template for a local server."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def doctor(
    options: dict[str, Any],
    id: str | None,
    repairs: bool,
    fetch_tokenizer: bool,
    tests_server: bool,
    tests_network: bool,
    template: str | None,
    as_json: bool,
) -> int:
    """Check the installation or one session, and suggest repairs.

    The exit code is 1 if a check fails.
    """
    from ...api.guard import distrust_writable_folders
    from .session import check_session, repair
    from .setup import download_vocabulary

    actions = {
        "--fetch-tokenizer": fetch_tokenizer,
        "--server": tests_server,
        "--network": tests_network,
        "--template": template is not None,
    }
    given = {name[2:].replace("-", "_"): is_given for name, is_given in actions.items()}
    single_action({**given, "repair": repairs})
    if id and (chosen := [name for name, is_given in actions.items() if is_given]):
        raise UsageError(f"{chosen[0]} does not take a session", hint="Leave out the ID.")
    if repairs and id is None:
        raise UsageError("--repair needs a session", hint="`ctxagent sessions list` lists them.")
    if template is not None:
        return _show_template(template, as_json=as_json)
    loaded = load(options, skip_invalid=True)
    project = project_of(options, loaded)
    distrust_writable_folders(loaded.settings.sandbox, cwd_of(options), os.environ, project.state)
    done: list[str] | None = None
    if id is not None:
        log = _find_log(project, id)
        done = repair(log) if repairs else None
        findings = check_session(log)
    elif fetch_tokenizer:
        findings = [download_vocabulary()]
    elif tests_server:
        findings = asyncio.run(_test_server(loaded, project.state))
    elif tests_network:
        findings = asyncio.run(_test_network(loaded, project.state))
    else:
        findings = check_all(loaded, project)
    if id is not None or tests_server or tests_network:
        warn_of_problems(loaded)
    return _report(findings, done, id, repairs=repairs, as_json=as_json)


def _report(
    findings: "list[Finding]",
    done: list[str] | None,
    id: str | None,
    *,
    repairs: bool,
    as_json: bool,
) -> int:
    """Print the findings and the repairs, and return the exit code."""
    whole = all(finding.ok for finding in findings)
    if as_json:
        rows = [finding._asdict() for finding in findings]
        document = {"ok": whole, "findings": rows, "repaired": done}
        say(json.dumps(document, ensure_ascii=False))
    else:
        for line in ["there is nothing to repair"] if done == [] else done or []:
            say(f"done  {clean(line)}")
        for verdict, what, found in map(row_of, findings):
            say(f"{verdict:<4}  {clean(what)}: " + clean(found).replace("\n", "\n      "))
        if id is not None and not whole and not repairs:
            say(f"`ctxagent doctor {id} --repair` repairs what can be repaired.", err=True)
    return 0 if whole else 1


def _show_template(name: str, *, as_json: bool) -> int:
    """Print the path of a chat template and return the exit code. Raises UsageError."""
    from ...api.models import template_path

    path = str(template_path(name))
    say(json.dumps({"template": path}) if as_json else path)
    return 0


def _find_log(project: "Project", id: str) -> Path:
    """Return the log of a session. The log may be missing if the session's folder has a copy.
    Raises NoSuchSession.
    """
    from ...api.record import CONVERSATION_NAME

    try:
        return project.find_log(id)
    except NoSuchSession:
        with suppress(UsageError):  # not an ID
            log = project.log_for_task(id)
            if log.with_name(CONVERSATION_NAME).is_file():
                return log
        raise


async def _test_network(loaded: "LoadedSettings", state: Path) -> "list[Finding]":
    """Return the state of each link to the model's server. Raises UsageError for a scripted
    model.
    """
    from .network import check_network

    model = _server_model(loaded, state)
    try:
        return await check_network(model)
    finally:
        await model.close()


def _server_model(loaded: "LoadedSettings", state: Path) -> "ServerModel":
    """Return the model of the settings. Raises UsageError for a scripted model."""
    from ...api.models import ServerModel, make_model

    model = make_model(loaded.settings, os.environ, state)
    if not isinstance(model, ServerModel):
        raise UsageError(
            f"{model.id} is scripted and has no server",
            hint="Name a model of a provider: ctxagent --model PROVIDER/NAME doctor --server.",
        )
    return model


async def _test_server(loaded: "LoadedSettings", state: Path) -> "list[Finding]":
    """Return what the model's server accepts. Raises UsageError for a scripted model."""
    from ...api.models import check_server
    from .setup import Finding

    model = _server_model(loaded, state)
    try:
        return [Finding(*answer) async for answer in check_server(model)]
    finally:
        await model.close()


def check_rows(loaded: "LoadedSettings", project: "Project") -> list[tuple[str, str, str]]:
    """Return the findings about the installation, each as verdict, subject and result."""
    return [row_of(each) for each in check_all(loaded, project)]


def row_of(finding: "Finding") -> tuple[str, str, str]:
    """Return a finding as verdict, subject and result."""
    verdict = "FAIL" if not finding.ok else "note" if finding.note else "ok"
    return verdict, finding.what, finding.found


def check_all(loaded: "LoadedSettings", project: "Project") -> "list[Finding]":
    """Check the set-up and the terminal."""
    from ...api.front_ends import detect_for_process, report_rows
    from .setup import Finding, check_setup

    ui = loaded.settings.ui
    seen = report_rows(detect_for_process(ui), shutil.get_terminal_size(), ui.theme)
    return [*check_setup(loaded, project.state, project.cwd), *(Finding(*each) for each in seen)]
