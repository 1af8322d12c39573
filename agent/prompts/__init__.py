"""The texts that the model is given, as Markdown files; `prompt_text` reads one."""

from pathlib import Path

PROMPTS_FOLDER = Path(__file__).parent


def prompt_text(name: str) -> str:
    """Return the text of `NAME.md` as it is written. Raises FileNotFoundError."""
    return (PROMPTS_FOLDER / f"{name}.md").read_text("utf-8")
