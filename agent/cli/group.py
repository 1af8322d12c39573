"""Groups of commands, with the commands that add-ons declare for them."""

from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from .options import exits_with_code

if TYPE_CHECKING:
    from ..border.entry_points import EntryPoint


_WHOLE = 10_000  # characters of a description, so that none is cut


class Group(click.Group):
    """A group with the commands that add-ons declare for it. Its help wraps the descriptions of the
    commands, which click cuts to a line.
    """

    @property
    def _prefix(self) -> str:
        """The start of the names of this group's commands."""
        return "" if self.name == "main" else f"{self.name} "

    def list_commands(self, ctx: click.Context) -> list[str]:
        from ..border.entry_points import COMMANDS, entry_points

        added = {
            name.removeprefix(self._prefix)
            for name in entry_points(COMMANDS)
            if name.startswith(self._prefix)
        }
        own = super().list_commands(ctx)
        return sorted({*own, *(name for name in added if " " not in name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            from ..border.entry_points import COMMANDS, entry_point

            if point := entry_point(COMMANDS, f"{self._prefix}{cmd_name}"):
                self.add_command(_command_of(point), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. The error about an unknown one names our equivalent."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            from ..ui.foreign_names import foreign_names

            hint = foreign_names("words").get(f"{self._prefix}{args[0]}")
            hint = hint or f"`ctxagent {self._prefix}--help` lists the commands."
            raise click.UsageError(f"{error.message.rstrip('.')}. {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _command_of(point: "EntryPoint") -> click.Command:
    """Return the command of an add-on. If it cannot be loaded, the command says why."""
    from ...tools.system.foreign_code import foreign_code

    with foreign_code() as problems:
        found = point.load()
        if isinstance(found, click.Command):
            return found
        problems.append(f"{point.value} is no command of click")

    @click.command(
        help=f"Not usable: {problems[0]}", context_settings={"ignore_unknown_options": True}
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @exits_with_code
    def unusable(words: tuple[str, ...]) -> int:
        raise UsageError(
            f"the command {point.name!r} of {point.package} cannot be loaded: {problems[0]}",
            hint="Update or remove the package.",
        )

    return unusable
