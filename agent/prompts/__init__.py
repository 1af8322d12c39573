"""The texts that the model is given, as Markdown files; `prompt_text` reads one."""

from importlib import resources


def prompt_text(name: str) -> str:
    """Return the text of `NAME.md` as it is written. Raises FileNotFoundError."""
    return resources.files(__package__).joinpath(f"{name}.md").read_text("utf-8")
