"""Read instruction files as a session in a folder reads them."""

from pathlib import Path

from ctxagent.agent.features.instruction_places import (
    InstructionFile,
    InstructionPlaces,
    InstructionReader,
)


def places(
    cwd: Path, config_home: Path, trust_dir: Path, home: Path | None = None
) -> InstructionPlaces:
    return InstructionPlaces(cwd, config_home, home or config_home / "home", trust_dir)


def instruction_files(
    cwd: Path, config_home: Path, trust_dir: Path, home: Path | None = None
) -> list[InstructionFile]:
    where = places(cwd, config_home, trust_dir, home)
    return InstructionReader(where).read(where.for_all_work())
