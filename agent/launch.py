"""What a conversation is started with. Light, so that the command line can fill it in before
anything heavy is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from .model.base import Model

SCRIPTED = "scripted:"  # an id of a model that begins so names a file of steps


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of this run: model calls and dollars, None for none."""

    calls: int | None = None
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which session to open: a new one, the newest here, or one by id; or a copy of it. With
    `read_only` it is only looked at, and may be open elsewhere."""

    newest: bool = False
    id: str | None = None
    fork: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a conversation needs to start. `model` overrides the one the settings name; `prior`
    is what a new session is told of another one (S2 "Integration with Orchestrator"). `trust` is
    the folder that says which files of the project are trusted, `state` where it is None."""

    settings: Settings
    state: Path
    config_home: Path
    cwd: Path
    environ: Mapping[str, str]
    append_prompt: str = ""
    prior: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    model: "Model | None" = None
    trust: Path | None = None

    @property
    def is_scripted(self) -> bool:
        """Whether nobody is asked over the network."""
        return self.settings.model.id.startswith(SCRIPTED)
