"""The model that the settings name."""

from collections.abc import Mapping
from pathlib import Path

from ..config.keys import SCRIPTED
from ..config.settings import Settings
from .base import Model
from .catalog import DEFAULT_LIMITS
from .messages.gaps import FILE_NAME
from .shared_wait import SharedWait


def make_model(settings: Settings, environ: Mapping[str, str], state: Path) -> Model:
    """Return the model that the settings name; what is learned of its server is kept in the
    directory `state`. `scripted:FILE` plays the steps of that file. Raises UsageError for a script
    that cannot be read."""
    chosen = settings.model
    if chosen.id.startswith(SCRIPTED):
        from .scripted import ScriptedModel

        window = chosen.context_window or DEFAULT_LIMITS.window
        return ScriptedModel.from_file(Path(chosen.id.removeprefix(SCRIPTED)), window=window)
    from .messages.model import MessagesModel

    return MessagesModel(
        chosen.id,
        base_url=chosen.base_url,
        context_window=chosen.context_window,
        environ=environ,
        learned=state / FILE_NAME,
        shared_wait=SharedWait(chosen.wait_file),
    )
