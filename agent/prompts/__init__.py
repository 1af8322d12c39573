"""The texts that the model is given, as Markdown files; `prompt_text` reads one.

A file names tools as `tools.offered` describes. A line is left out if it needs a tool that the
conversation does not offer.
"""

from pathlib import Path

from ...tools.offered import Wording

PROMPTS_FOLDER = Path(__file__).parent


def prompt_text(name: str) -> Wording:
    """Return the text of `NAME.md`, without blank lines around it. Raises FileNotFoundError."""
    text = (PROMPTS_FOLDER / f"{name}.md").read_text("utf-8")
    return Wording(*text.strip().splitlines(keepends=True))
