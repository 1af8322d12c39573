"""`ctxagent rules` and `ctxagent preserve`: what a compaction keeps, and whether it is there. They
need no model and no session."""

from typing import TYPE_CHECKING, Any

import click

from ..errors import SessionError
from .options import cwd_of, guarded, load, project_of, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..config import Loaded
    from ..record.entries import Entry


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def rules(options: dict[str, Any], as_json: bool) -> None:
    """What every compaction keeps, and what it may take."""

    def run() -> int:
        from ..compose import policy_of
        from ..ui import preserved

        loaded = load(options)
        origins = {key: origin.source for key, origin in loaded.origins.items()}
        tell = preserved.rules_json if as_json else preserved.rules
        say(tell(policy_of(loaded.settings).rules, origins))
        return 0

    guarded(run)


@click.command()
@click.argument("section", default="")
@click.option("--create", is_flag=True, help="Write what is missing at the end of the notes file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_obj
def preserve(options: dict[str, Any], section: str, create: bool, as_json: bool) -> None:
    """Check that what every compaction keeps is there: all of it, or one SECTION.

    Ends with exit code 1 when a section is missing.
    """

    def run() -> int:
        from ..compaction.preserve import missing
        from ..compose import policy_of
        from ..record.ledger import Ledger
        from ..ui import preserved

        loaded, ledger = load(options), Ledger()
        for entry in _newest(options, loaded):
            ledger.add(entry)
        found = preserved.check(
            cwd_of(options),
            policy_of(loaded.settings).rules,
            ledger,
            ledger.phase,
            section,
            create=create,
        )
        say(preserved.sections_json(found) if as_json else preserved.sections(found))
        return 1 if missing(found) else 0

    guarded(run)


def _newest(options: dict[str, Any], loaded: "Loaded") -> "Iterable[Entry]":
    """The entries of the newest session here; none when there is no session."""
    from ..record.log import Entries

    try:
        return Entries(project_of(options, loaded).newest())
    except SessionError:
        return ()
