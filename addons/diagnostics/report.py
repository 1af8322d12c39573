"""The command /diagnostics."""

from ...api.front_ends import CommandContext
from .feature import DiagnosticsFeature

HEAD = ("language server", "state", "files", "")
MAX_SHOWN = 200


async def show_diagnostics(repl: CommandContext) -> None:
    """Show the language servers, and the errors and warnings of the changed files."""
    feature = repl.agent.features.find(DiagnosticsFeature)
    if feature is None:
        repl.say("language servers are switched off, by features.off or --safe")
        return
    servers = await feature.servers()
    if servers is None:
        repl.say(f"no language server runs here: {feature.refusal}")
        return
    rows: list[tuple[str, str, str, str]] = [
        (each.name, each.state, f"{len(each.documents):,}", each.error or str(each.root))
        for each in servers.running.values()
    ]
    rows += [(name, "absent", "", why) for name, why in servers.absent.items()]
    if not rows:
        repl.say("the agent has not changed a file with a language server yet")
        return
    repl.show_table(rows, HEAD)
    _show_problems(repl, feature)


def _show_problems(repl: CommandContext, feature: DiagnosticsFeature) -> None:
    found = feature.problems()
    if not found:
        repl.say("there are no errors and warnings in the changed files")
    lines = [
        f"{feature.session.context.shown(path)}:{each.shown}"
        if each.is_error
        else f"{feature.session.context.shown(path)}:{each.shown} (warning)"
        for path, each in found
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"and {len(lines) - MAX_SHOWN:,} more"]
    repl.show("\n".join(lines))
