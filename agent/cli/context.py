"""`ctxagent context`: list the items of a session's context, drop and restore them, and summarise a
part.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..library.launch_parts import check_key
from .compact import load_known_window, open_session
from .group import Group
from .options import WholeNumber, exits_with_code, launch_of, load, log_of, say, say_notices

if TYPE_CHECKING:
    from ..compaction.edits import ContextEditor, EditPlan
    from ..launch import LaunchOptions

    Plan = Callable[[ContextEditor], EditPlan]
    Edit = Callable[[ContextEditor], Coroutine[Any, Any, EditPlan]]

SHOW = "show"


def _ref(value: str) -> int:
    """Parse the number of a log entry, with or without #."""
    number = value.removeprefix("#")
    if not number.isdecimal():
        raise click.BadParameter(f"{value!r} is not a ref, such as 42 or #42.")
    return int(number)


class _ContextGroup(Group):
    """A group that takes the ID of a session in place of a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from ..ui.foreign_names import foreign_names

        is_known = not args or self.get_command(ctx, args[0]) is not None
        if not is_known and f"{self._prefix}{args[0]}" not in foreign_names("words"):
            args = [SHOW, *args]
        return super().resolve_command(ctx, args)


_serve = click.option(
    "--serve", is_flag=True, help="Serve a live page of the context for a browser."
)
_port = click.option(
    "--port",
    type=WholeNumber(0, 65_535),
    default=0,
    metavar="N",
    help="The port of the page on 127.0.0.1; by default a free one.",
)


@click.group(
    cls=_ContextGroup,
    invoke_without_command=True,
    subcommand_metavar="[ID | COMMAND [ARGS]...]",
    epilog="Example: ctxagent context --json",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@_serve
@_port
@click.pass_context
def context(here: click.Context, as_json: bool, serve: bool, port: int) -> None:
    """Show what the context of a session contains, and edit it.

    Without a command, list the items of the session ID, by default the newest one here: tokens,
    price of each call, price so far, age and state. Each edit is one entry of the log, which
    `ctxagent compact --undo` undoes. --serve shows the same in a browser, as it changes.
    """
    command = here.invoked_subcommand or SHOW
    given = {"as_json": as_json, "serve": serve, "port": port}
    wrong = [name for name in ("serve", "port") if given[name] and command != SHOW]
    if wrong:
        raise click.UsageError(f"--{wrong[0]} has no effect with {command}. Leave it out.", here)
    here.default_map = {command: {name: value for name, value in given.items() if value}}
    if here.invoked_subcommand is None:
        here.invoke(show)


@context.command(SHOW, hidden=True)
@click.argument("id", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@_serve
@_port
@click.pass_obj
@exits_with_code
def show(options: dict[str, Any], /, id: str | None, as_json: bool, serve: bool, port: int) -> int:
    """List the items of the context, or serve a page of them."""
    launch = _launch(options)
    if serve and as_json:
        raise UsageError("--serve and --json are two outputs", hint="Leave one out.")
    if port and not serve:
        raise UsageError("--port has no effect without --serve", hint="Leave --port out.")
    if not serve:
        return asyncio.run(_show(launch, id, as_json))
    from .context_page import ServedContext, serve_page

    serve_page(ServedContext(launch, log_of(options, id), port))
    return 0


async def _show(launch: "LaunchOptions", id: str | None, as_json: bool) -> int:
    from ..ui import compaction_report, edit_report

    async with open_session(launch, id, read_only=True) as agent:
        await load_known_window(agent, launch)
        window, items = agent.model.current_window(), agent.edits.items()
        if not as_json:
            say(compaction_report.usage_line(window))
            for line in edit_report.item_lines(items):
                say(line)
            return 0
        document = {
            "session": agent.log.path.parent.name,
            "model": agent.model.id,
            "context": {"tokens": window.tokens, "window": window.size, "level": window.level},
            "items": [item.to_json() for item in items],
        }
    say(json.dumps(document, ensure_ascii=False))
    return 0


_session = click.option(
    "--session", "id", metavar="ID", help="The session; by default the newest one here."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
_json = click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")


@context.command(epilog="Example: ctxagent context drop 42 57 --dry-run")
@click.argument("refs", metavar="REF...", nargs=-1, type=_ref)
@_session
@_dry_run
@_json
@click.pass_obj
@exits_with_code
def drop(options: dict[str, Any], /, refs: tuple[int, ...], **more: Any) -> int:
    """Replace items by a line each with its ref.

    A dropped result keeps its call. A dropped reply takes the results of its calls along. The log
    keeps everything, and the model finds it with Recall.
    """
    return _edit(options, lambda e: e.plan_drop(refs), lambda e: e.drop(refs), **more)


@context.command(epilog="Example: ctxagent context restore 42")
@click.argument("refs", metavar="REF...", nargs=-1, type=_ref)
@_session
@_dry_run
@_json
@click.pass_obj
@exits_with_code
def restore(options: dict[str, Any], /, refs: tuple[int, ...], **more: Any) -> int:
    """Show items whole again that were dropped, cleared, truncated or outlined."""
    return _edit(options, lambda e: e.plan_restore(refs), lambda e: e.restore(refs), **more)


@context.command(epilog="Example: ctxagent context compact --from 12 --to 80 --dry-run")
@click.option("--from", "first", metavar="REF", type=_ref, help="The first item of the part.")
@click.option("--to", "last", metavar="REF", type=_ref, help="The last item of the part.")
@click.option("--before", metavar="REF", type=_ref, help="The first item after the part.")
@click.option(
    "--instructions", metavar="TEXT", default="", help="Tell the model what the summary must keep."
)
@_session
@_dry_run
@_json
@click.pass_obj
@exits_with_code
def compact(
    options: dict[str, Any],
    /,
    first: int | None,
    last: int | None,
    before: int | None,
    instructions: str,
    **more: Any,
) -> int:
    """Let a summary replace a part of the context.

    Without --from, the part is everything up to --to, or everything before --before.
    """
    if (last is None) == (before is None):
        raise UsageError("the part has no end, or two", hint="Give --to or --before.")
    if instructions and more["dry_run"]:
        raise UsageError("--instructions has no effect with --dry-run", hint="Leave one out.")
    return _edit(
        options,
        lambda e: e.plan_compact(first, last, before=before),
        lambda e: e.compact(first, last, instructions, before=before),
        asks_model=True,
        **more,
    )


def _edit(
    options: dict[str, Any],
    plan: "Plan",
    edit: "Edit",
    *,
    id: str | None,
    dry_run: bool,
    as_json: bool,
    asks_model: bool = False,
) -> int:
    launch = _launch(options)
    if asks_model and not dry_run:
        from ..compaction.policy import policy_of

        if policy_of(launch.settings).summarizer != "mechanical":
            log_of(options, id)  # a missing session is reported before a missing key
            check_key(launch)
    return asyncio.run(_run_edit(launch, id, plan, None if dry_run else edit, as_json))


async def _run_edit(
    launch: "LaunchOptions", id: str | None, plan: "Plan", edit: "Edit | None", as_json: bool
) -> int:
    """Show the plan, and carry it out if `edit` is given."""
    async with open_session(launch, id, read_only=edit is None, quiet=as_json) as agent:
        await load_known_window(agent, launch)
        planned = plan(agent.edits)
        if not as_json:
            _say_plan(planned)
        if edit is not None:
            planned = await edit(agent.edits)
        name = agent.log.path.parent.name
        if as_json:
            document = {"session": name, "applied": edit is not None, **planned.to_json()}
            say(json.dumps(document, ensure_ascii=False))
        elif edit is not None:
            tokens = agent.model.current_window().tokens
            say(f"done: the context has {tokens:,} tokens")
            say(f"Undo it: ctxagent compact {name} --undo")
    return 0


def _say_plan(plan: "EditPlan") -> None:
    from ..ui import edit_report

    for line in edit_report.plan_lines(plan):
        say(line)


def _launch(options: dict[str, Any]) -> "LaunchOptions":
    loaded = load(options)
    say_notices(loaded)
    return launch_of(options, loaded)
