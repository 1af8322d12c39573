"""Skills: folders with a `SKILL.md` whose text tells the model how certain work is done.

The format is that of https://agentskills.io/specification: front matter with `name` and
`description`, the text below it, and any files next to it. Files that were written for other agents
work here. The folder's name is the skill's, as the specification asks for.

A project's skill counts once the user has trusted the content of its `SKILL.md`. The files next to
it are read and run like any other file of the project.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from ...tools.system.plural import count_of
from ...tools.system.unicode import clean, reveal_invisible
from ..config.trust import folders_within_project, is_trusted, read_untrusted
from ..lazy import dataclass, regex
from .front_matter import list_value, split_front_matter, text_value

SKILL_FILE = "SKILL.md"
SKILLS_FOLDER = "skills"
PROJECT_FOLDERS = (".ctxagent", ".agents", ".claude")  # the first of a name counts
MAX_SKILLS = 500  # of one folder
MAX_SKILL_BYTES = 1_000_000  # of a SKILL.md
MAX_DESCRIPTION_CHARS = 1_024

_NAME = regex(r"[A-Za-z0-9][\w-]{0,63}", re.ASCII)
_FOLDER_VARIABLE = regex(r"\$\{(?:CLAUDE_)?(SKILL_DIR|PLUGIN_ROOT)\}")
_CONTROLS = {n: "\ufffd" for n in [*range(32), 127] if n not in (9, 10, 13)}


@dataclass(frozen=True)
class Skill:
    """A skill as its file describes it."""

    name: str
    description: str  # on one line
    body: str
    path: Path  # of its SKILL.md
    allowed_tools: tuple[str, ...] = ()  # permission rules for the turn in which it is loaded
    for_model: bool = True  # False: only a person loads it
    for_person: bool = True  # False: only the model loads it

    @property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def digest(self) -> str:
        """What tells one text of a skill from another."""
        return hashlib.sha256(self.body.encode(errors="replace")).hexdigest()[:16]

    @property
    def line(self) -> str:
        """The skill in a list."""
        return f"- {self.name}: {self.description}"


def load_skills(
    cwd: Path, *, config_home: Path, home: Path, trust_dir: Path, plugins: Sequence[Path] = ()
) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills for work in `cwd` by name, and a warning for each that was left out.

    Of two with one name the project's counts, then the user's, then that of a plugin; `plugins`
    are the folders of these. Blocking: each call reads all files.
    """
    found: dict[str, Skill] = {}
    warnings: list[str] = []
    others = [(folder, None) for folder in own_skill_folders(config_home, home, plugins)]
    for folder, root in [*project_skill_folders(cwd, home), *others]:
        here: dict[str, Skill] = {}
        untrusted = 0
        for path in _files(folder):
            try:
                if root and not Path(os.path.realpath(path)).is_relative_to(root):
                    raise ValueError("it is a link that leads out of the project")
                data = read_untrusted(path, MAX_SKILL_BYTES)
                if root and not is_trusted(path, data, trust_dir):
                    untrusted += 1
                    continue
                here[path.parent.name] = _read(path, data, folder.parent)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                warnings.append(f"{path}: this skill is left out: {why}")
        if untrusted:
            warnings.append(
                f"{folder}: {count_of(untrusted, 'skill')} not trusted, so left out. Read the "
                "files, then accept them with `ctxagent config --trust`."
            )
        found = {**here, **found}
    return found, warnings


def own_skill_folders(config_home: Path, home: Path, plugins: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of the user's skills, whether they are there or not."""
    owners = [config_home, home / ".agents", home / ".claude", *plugins]
    return [owner / SKILLS_FOLDER for owner in owners]


def readable_folders(config_home: Path, home: Path, plugins: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of the user's skills, and where links among these lead."""
    folders = own_skill_folders(config_home, home, plugins)
    linked = (path.parent for folder in folders for path in _files(folder))
    real = (Path(os.path.realpath(folder)) for folder in linked if folder.is_symlink())
    return [*folders, *(folder for folder in real if not home.resolve().is_relative_to(folder))]


def project_skill_folders(cwd: Path, home: Path) -> list[tuple[Path, Path]]:
    """Return the folders of the project's skills, the nearest first, each with the folder that its
    files may not lead out of."""
    home = home.resolve()
    way = folders_within_project(cwd.resolve(), home)
    if way[-1] == home and len(way) > 1:
        way = way[:-1]  # the person's own are no project's
    root = way[-1]
    named = (base / name / SKILLS_FOLDER for base in way for name in PROJECT_FOLDERS)
    own = [home / name / SKILLS_FOLDER for name in PROJECT_FOLDERS]
    return [(folder, root) for folder in named if folder.is_dir() and folder not in own]


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the `SKILL.md` files of the project, without links out of it."""
    return [
        path
        for folder, root in project_skill_folders(cwd, home)
        for path in _files(folder)
        if Path(os.path.realpath(path)).is_relative_to(root)
    ]


def _files(folder: Path) -> Iterator[Path]:
    """Yield the `SKILL.md` of each folder in a folder of skills, sorted by name."""
    try:
        folders = sorted(folder.iterdir())
    except OSError:
        return
    found = (each / SKILL_FILE for each in folders if not each.name.startswith("."))
    yield from [path for path in found if path.is_file()][:MAX_SKILLS]


def _read(path: Path, data: bytes, owner: Path) -> Skill:
    """Return the skill in a file; `owner` is the folder that has the skills, a plugin's root for
    one. Raises ValueError, saying what is wrong with it."""
    values, body = split_front_matter(data.decode("utf-8", "replace"))
    name = path.parent.name
    if not _NAME.fullmatch(name):
        raise ValueError("its folder's name is not made of up to 64 letters, digits, - and _")
    description = " ".join(reveal_invisible(clean(text_value(values, "description"))).split())
    if not description:
        raise ValueError("its front matter has no description")
    if not body:
        raise ValueError("it says nothing below its front matter")
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION_CHARS],
        body=_FOLDER_VARIABLE.sub(
            lambda found: str(owner if found[1] == "PLUGIN_ROOT" else path.parent),
            body.translate(_CONTROLS),
        ),
        path=path,
        allowed_tools=list_value(values, "allowed-tools"),
        for_model=text_value(values, "disable-model-invocation").lower() != "true",
        for_person=text_value(values, "user-invocable").lower() != "false",
    )
