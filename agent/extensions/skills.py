"""Skills: folders with a `SKILL.md` whose text tells the model how to do certain work.

The format is https://agentskills.io/specification: front matter with `name` and `description`, the
text below it, and any other files in the folder. Skills for other agents work here. The name of the
folder is the name of the skill, as the specification requires.

A project's skill is used only after the user has trusted the content of its `SKILL.md`. Its other
files are treated like any file of the project.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ...tools.system.phrasing import count_of
from ...tools.system.unicode import clean, reveal_invisible
from ..config.trust import folders_within_project, is_trusted, read_untrusted
from ..lazy import dataclass, regex
from .front_matter import list_value, split_front_matter, text_value
from .plugins import free_name, places_of

SKILL_FILE = "SKILL.md"
SKILLS_FOLDER = "skills"
PROJECT_FOLDERS = (".ctxagent", ".agents", ".claude")  # for equal names the first wins
MAX_SKILLS = 500  # per folder
MAX_SKILL_BYTES = 1_000_000  # of a SKILL.md
MAX_DESCRIPTION_CHARS = 1_024

_NAME = regex(r"[A-Za-z0-9][\w-]{0,79}", re.ASCII)
_FOLDER_VARIABLE = regex(r"\$\{(?:CLAUDE_)?(SKILL_DIR|PLUGIN_ROOT)\}")
_CONTROLS = {n: "\ufffd" for n in [*range(32), 127] if n not in (9, 10, 13)}


@dataclass(frozen=True)
class Skill:
    """A skill from a `SKILL.md`."""

    name: str
    description: str  # on one line
    body: str
    path: Path  # its SKILL.md
    allowed_tools: tuple[str, ...] = ()  # permission rules for the turn that loads the skill
    for_model: bool = True  # False: only the user can load it
    for_user: bool = True  # False: only the model can load it
    plugin: str = ""  # name of its plugin

    @property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def digest(self) -> str:
        """A digest of the text, to detect changes."""
        return hashlib.sha256(self.body.encode(errors="replace")).hexdigest()[:16]

    @property
    def line(self) -> str:
        """The line for a list of skills."""
        return f"- {self.name}: {self.description}"


def load_skills(
    cwd: Path, *, config_home: Path, home: Path, trust_dir: Path, plugins: Sequence[Path] = ()
) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills for `cwd` by name, and a warning for each skipped skill.

    For equal names the project's skill wins over the user's. A plugin's skill is called PLUGIN:NAME
    if its name is taken. `plugins` are folders. Blocking: reads all files.
    """
    found: dict[str, Skill] = {}
    warnings: list[str] = []
    folders: list[tuple[Path, Path | None]] = [
        *project_skill_folders(cwd, home),
        *((folder, None) for folder in own_skill_folders(config_home, home)),
    ]
    for folder, root in folders:
        here, wrong = _skills_in(folder, folder.parent, root, trust_dir)
        found, warnings = {**here, **found}, warnings + wrong
    for plugin in plugins:
        here, wrong = skills_of(plugin)
        for name, skill in here.items():
            free = free_name(name, plugin.name, found)
            found[free] = replace(skill, name=free, plugin=plugin.name)
        warnings += wrong
    return found, warnings


def skills_of(plugin: Path) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills of a plugin's folder by name, and a warning for each skipped skill."""
    found, warnings = dict[str, Skill](), list[str]()
    for folder in places_of(plugin, "skills"):
        here, wrong = _skills_in(folder, plugin)
        found, warnings = {**here, **found}, warnings + wrong
    return found, warnings


def _skills_in(
    folder: Path, owner: Path, root: Path | None = None, trust_dir: Path = Path()
) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills of a folder by name, and a warning for each skipped skill. `root` is the
    project folder that links must not leave, None for trusted skills.
    """
    found, warnings, untrusted = dict[str, Skill](), list[str](), 0
    for path in _files(folder):
        try:
            if root and not Path(os.path.realpath(path)).is_relative_to(root):
                raise ValueError("it is a link that leads out of the project")
            data = read_untrusted(path, MAX_SKILL_BYTES)
            if root and not is_trusted(path, data, trust_dir):
                untrusted += 1
                continue
            found[path.parent.name] = _read(path, data, owner)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.append(f"{path}: this skill is left out: {why}")
    if untrusted:
        warnings.append(
            f"{folder}: {count_of(untrusted, 'skill')} not trusted, so left out. Read the "
            "files, then accept them with `ctxagent config --trust`."
        )
    return found, warnings


def own_skill_folders(config_home: Path, home: Path) -> list[Path]:
    """Return the folders for the user's skills, whether they exist or not."""
    return [owner / SKILLS_FOLDER for owner in (config_home, home / ".agents", home / ".claude")]


def readable_folders(config_home: Path, home: Path) -> list[Path]:
    """Return the folders for the user's skills, and the targets of links in them."""
    folders = own_skill_folders(config_home, home)
    linked = (path.parent for folder in folders for path in _files(folder))
    real = (Path(os.path.realpath(folder)) for folder in linked if folder.is_symlink())
    return [*folders, *(folder for folder in real if not home.resolve().is_relative_to(folder))]


def project_skill_folders(cwd: Path, home: Path) -> list[tuple[Path, Path]]:
    """Return (folder with skills, project root) for the project, the nearest folder first. Links
    must not leave the project root.
    """
    home = home.resolve()
    way = folders_within_project(cwd.resolve(), home)
    if way[-1] == home and len(way) > 1:
        way = way[:-1]  # the home folder is not part of the project
    root = way[-1]
    named = (base / name / SKILLS_FOLDER for base in way for name in PROJECT_FOLDERS)
    own = [home / name / SKILLS_FOLDER for name in PROJECT_FOLDERS]
    return [(folder, root) for folder in named if folder.is_dir() and folder not in own]


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the `SKILL.md` files of the project, without links that leave the project."""
    return [
        path
        for folder, root in project_skill_folders(cwd, home)
        for path in _files(folder)
        if Path(os.path.realpath(path)).is_relative_to(root)
    ]


def _files(folder: Path) -> Iterator[Path]:
    """Yield the `SKILL.md` files in the subfolders of a folder, sorted by name. If the folder
    itself is a skill, yield only its `SKILL.md`.
    """
    if (folder / SKILL_FILE).is_file():
        yield folder / SKILL_FILE
        return
    try:
        folders = sorted(folder.iterdir())
    except OSError:
        return
    found = (each / SKILL_FILE for each in folders if not each.name.startswith("."))
    yield from [path for path in found if path.is_file()][:MAX_SKILLS]


def _read(path: Path, data: bytes, owner: Path) -> Skill:
    """Return the skill in a file. `owner` is the plugin's root, or the folder that contains the
    skills. Raises ValueError with the reason.
    """
    values, body = split_front_matter(data.decode("utf-8", "replace"), lenient=True)
    name = path.parent.name
    if not _NAME.fullmatch(name):
        raise ValueError("the name of its folder must be up to 80 letters, digits, - and _")
    description = " ".join(reveal_invisible(clean(text_value(values, "description"))).split())
    if not description:
        raise ValueError("its front matter has no description")
    if not body:
        raise ValueError("there is no text below its front matter")
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
        for_user=text_value(values, "user-invocable").lower() != "false",
    )
