"""A home directory with settings, and a project with its own settings."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ctxagent.agent.config.load import (
    LoadedSettings,
    load_settings,
)
from ctxagent.agent.errors import ConfigError


@dataclass
class Place:
    """A home with a user file, and a repository with a project file."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def user_file(self) -> Path:
        return self.home / ".config" / "ctxagent" / "agentrc"

    @property
    def project_file(self) -> Path:
        return self.project / ".agentrc"

    def user(self, text: str) -> None:
        self.user_file.write_text(text)

    def theirs(self, text: str) -> None:
        self.project_file.write_text(text)

    def load(self, *flags: str, cwd: Path | None = None, **environ: str) -> LoadedSettings:
        environ = {"HOME": str(self.home), **self.environ, **environ}
        return load_settings(cwd or self.project, environ=environ, flags=flags)

    def fails(self, *flags: str, **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(*flags, **environ)
        assert caught.value.exit_code == 2
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path.resolve())
    (place.project / ".git").mkdir(parents=True)
    place.user_file.parent.mkdir(parents=True)
    return place
