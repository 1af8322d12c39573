"""/diagnostics: errors and warnings in changed files, and the language servers."""

from typing import TYPE_CHECKING

from .command_context import CommandContext
from .registry import command

if TYPE_CHECKING:
    from ...features.diagnostics import DiagnosticsFeature

HEAD = ("language server", "state", "files", "")
MAX_SHOWN = 200


@command("the errors and warnings of changed files", anytime=True, group="files and work")
async def _diagnostics(repl: CommandContext, argument: str) -> None:
    from ...features.diagnostics import DiagnosticsFeature

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


def _show_problems(repl: CommandContext, feature: "DiagnosticsFeature") -> None:
    found = feature.problems()
    if not found:
        repl.say("there are no errors and warnings in the changed files")
    lines = [
        f"{feature.handle.context.shown(path)}:{each.shown}"
        if each.is_error
        else f"{feature.handle.context.shown(path)}:{each.shown} (warning)"
        for path, each in found
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"and {len(lines) - MAX_SHOWN:,} more"]
    repl.show("\n".join(lines))
