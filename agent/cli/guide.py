"""`ctxagent guide`: print the pages of the guide."""

from pathlib import Path

import click

from .options import ends_process, say

_FOLDER = Path(__file__).parents[2] / "docs" / "guide"
_PAGES = tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


@click.command()
@click.argument("page", required=False, type=click.Choice(_PAGES), metavar="PAGE")
@ends_process
def guide(page: str | None) -> int:
    """Print a PAGE of the guide. Without PAGE, list the pages."""
    if page is not None:
        say((_FOLDER / f"{page}.md").read_text(encoding="utf-8"), nl=False)
        return 0
    for name in _PAGES:
        with (_FOLDER / f"{name}.md").open(encoding="utf-8") as file:
            say(f"{name:<16} {file.readline().removeprefix('# ').strip()}")
    say("\n`ctxagent guide PAGE` prints one.", err=True)
    return 0
