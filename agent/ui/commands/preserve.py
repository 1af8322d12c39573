"""/rules and /preserve: the content that every compaction keeps, and missing sections."""

from ...errors import UsageError
from . import completions
from .command_context import CommandContext
from .registry import command


@command("what every compaction keeps, and what it may remove", anytime=True, group="context")
async def _rules(repl: CommandContext, argument: str) -> None:
    from .. import preserve_report

    if argument:
        raise UsageError(f"/rules does not take {argument!r}", hint="/preserve checks a section.")
    settings = repl.services.settings
    origins = settings.loaded.origins if settings else {}
    repl.show_lines(preserve_report.rules(repl.agent.handle.policy.rules, origins))


@command(
    "check the kept sections; --create adds missing ones",
    argument="[SECTION] [--create]",
    complete=completions.preserved,
    group="context",
)
async def _preserve(repl: CommandContext, argument: str) -> None:
    from .. import preserve_report

    words = argument.split()
    names = [word for word in words if word != "--create"]
    if len(names) > 1 or any(name.startswith("--") for name in names):
        raise UsageError(f"/preserve does not take {argument!r}", hint="/rules lists the sections.")
    section, create = "".join(names), "--create" in words
    rules, ledger = repl.agent.handle.policy.rules, repl.agent.ledger
    found = preserve_report.check(
        repl.services.cwd, rules, ledger, ledger.phase, section, create=create
    )
    repl.show_lines(preserve_report.sections(found))
