"""A command with subcommands, whose help describes each of them in full."""

import click

_WHOLE = 10_000  # characters of a description, so that none is cut


class Group(click.Group):
    """A group whose help wraps the descriptions of its subcommands. Click cuts them to a line."""

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
