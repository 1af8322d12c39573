"""`ctxagent rules` and `ctxagent preserve`: the sections that every compaction keeps, and their
state. They need no model and no session.
"""

from typing import TYPE_CHECKING, Any

import click

from ..errors import SessionError
from .options import cwd_of, exits_with_code, load, project_of, say, say_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..config.load import LoadedSettings
    from ..session.entries import Entry


@click.command(epilog="Example: ctxagent rules")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def rules(options: dict[str, Any], as_json: bool) -> int:
    """Show what every compaction keeps and what it may remove."""
    from ..compaction.policy import policy_of
    from ..ui import preserve_report

    loaded = load(options)
    in_force = policy_of(loaded.settings).rules, loaded.origins
    if as_json:
        say(preserve_report.rules_json(*in_force))
    else:
        say_lines(preserve_report.rules(*in_force))
    return 0


@click.command(epilog="Example: ctxagent preserve --create")
@click.argument("section", default="")
@click.option("--create", is_flag=True, help="Add missing sections at the end of the notes file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
@exits_with_code
def preserve(options: dict[str, Any], section: str, create: bool, as_json: bool) -> int:
    """Check the sections that every compaction keeps, or one SECTION.

    The exit code is 1 if a section is missing.
    """
    from ..compaction.policy import policy_of
    from ..compaction.preserve import missing_sections
    from ..session.ledger import Ledger
    from ..ui import preserve_report

    loaded, ledger = load(options), Ledger()
    rules = policy_of(loaded.settings).rules
    for entry in _newest_entries(options, loaded):
        ledger.add(entry)
    found = preserve_report.check(
        cwd_of(options), rules, ledger, ledger.phase, section, create=create
    )
    if as_json:
        say(preserve_report.sections_json(found))
    else:
        say_lines(preserve_report.sections(found))
    return 1 if missing_sections(found) else 0


def _newest_entries(options: dict[str, Any], loaded: "LoadedSettings") -> "Iterable[Entry]":
    """Return the entries of the newest session here, or () without a session."""
    from ..session.log import Entries

    try:
        return Entries(project_of(options, loaded).newest_log())
    except SessionError:
        return ()
