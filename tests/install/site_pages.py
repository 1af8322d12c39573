"""The hooks of mkdocs.yml: pages that are made from the program, and links out of `docs`.

A page may link to any file of the repository. A file outside `docs` becomes a page of the site.
The README is the first page.
"""

import ast
import html
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import ctxagent
from ctxagent.agent import errors, events
from ctxagent.agent.cli.guide_index import PAGE_BOOSTS, GuideIndex, GuideSection, build_index
from ctxagent.agent.config.keys import loosens_never, value_text
from ctxagent.agent.config.settings import KEYS
from ctxagent.agent.extensions.command import GROUPS
from ctxagent.agent.library.result import STATUS_CODES
from ctxagent.agent.permissions.objections import ANSWERS, TABLE
from ctxagent.agent.ui.commands import COMMANDS
from ctxagent.agent.ui.foreign_names import foreign_names
from ctxagent.tests.install.command_help import CommandHelp, subcommands, whole_command

ROOT = Path(ctxagent.__file__).resolve().parent
DOCS = ROOT / "docs"
API = ROOT / "build" / "api" / "ctxagent"
LOG = get_plugin_logger("site")
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
LANGUAGES = {".py": "python", ".example": "toml", ".toml": "toml"}
REFERENCE_OF = {
    "agent/events.py": "reference/events.md",
    "agent/library/agent.py": "reference/library.md",
}
ERROR = re.compile(r"^\W*(\w+) +(\d) +(.+)$", re.MULTILINE)
SEARCH_BOOSTS = {"guide": 1.0, "reference": 0.5}  # by folder: users come before developers
OTHER_BOOST = 0.2
TAG = re.compile(r"<[^>]+>")
OBJECTIONS_HEAD = "| objection | lifted by | in `plan` |\n"
OBJECTIONS = re.compile(re.escape(OBJECTIONS_HEAD) + r"(?:\|.*\n)+")
KEY_TABLE = re.compile(r"\| key \| default \| what it does \|\n(?:\|.*\n)+")


class Progress:
    """The share of the work that is done, printed in tenths: the build takes minutes."""

    def begin(self, steps: int) -> None:
        self.steps, self.done = steps, 0

    def step(self) -> None:
        self.done += 1
        tenths = 10 * self.done // self.steps
        if tenths > 10 * (self.done - 1) // self.steps:
            LOG.info(f"{tenths}0 % of the pages")


progress = Progress()


def on_startup(**_: object) -> None:
    """Give mkdocstrings a copy of the modules that programs use: it reads a whole package."""
    shutil.rmtree(API, ignore_errors=True)
    for place in set(ctxagent._PLACES.values()):
        path = Path(*place.split("."))
        names = [path.with_suffix(".py"), *(each / "__init__.py" for each in path.parents)]
        for name in names:
            if (ROOT / name).is_file():
                (API / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, API / name)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and each file outside `docs` that a page links to."""
    for name, make in REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    waiting = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
    seen = set(waiting)
    for page in waiting:
        if not page.is_relative_to(DOCS):
            files.append(File.generated(config, site_path(page), content=page_text(page)))
        if page.suffix == ".md":
            linked = {target for _, target in links(page) if _is_added(target)} - seen
            waiting += sorted(linked)
            seen |= linked
    progress.begin(2 * len(files.documentation_pages()))  # each is read, and then written
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page of `docs` with its links as the site has them."""
    progress.step()
    folder = page.file.src_uri.partition("/")[0]
    page.meta["search"] = {"exclude": folder == "sources"}
    source = DOCS / page.file.src_uri
    if not source.is_file() or page.file.generated_by:
        return markdown
    if page.file.src_uri == "guide/settings.md":  # the generated page says more about each key
        markdown = KEY_TABLE.sub("[The reference](../reference/settings.md) has them.\n", markdown)
    if page.file.src_uri == "guide/security.md":
        markdown = OBJECTIONS.sub(lambda _: objections_table(), markdown)
    return with_site_links(markdown, source)


def on_page_context(*_: object, **__: object) -> None:
    """Count a page that is written."""
    progress.step()


def on_post_build(config: MkDocsConfig) -> None:
    """Rank the sections as `ctxagent guide` does: add its index, and replace the worker."""
    site = Path(config.site_dir)
    path = site / "search" / "search_index.json"
    found = json.loads(path.read_text("utf-8"))
    found["config"]["index"] = site_index(found["docs"]).to_json()
    path.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")), "utf-8")
    (worker,) = site.glob("assets/javascripts/workers/search.*.min.js")
    worker.write_text((DOCS / "search.js").read_text("utf-8"), "utf-8")


def site_index(docs: Sequence[Mapping[str, str]]) -> GuideIndex:
    """Return the index of the sections in the search index of MkDocs, in the same order."""
    titles = {each["location"]: each["title"] for each in docs}
    return build_index([_section(each, titles) for each in docs])


def _section(doc: Mapping[str, str], titles: Mapping[str, str]) -> GuideSection:
    page = doc["location"].partition("#")[0]
    folder, _, name = page.rpartition("/")
    boost = SEARCH_BOOSTS.get(folder, OTHER_BOOST)
    boost *= PAGE_BOOSTS.get(name.removesuffix(".html"), 1)
    texts = (titles.get(page, ""), doc["title"], doc["text"])
    above, title, text = (html.unescape(TAG.sub(" ", each)) for each in texts)
    return GuideSection(doc["location"], above, title, text, boost)


def objections_table() -> str:
    """Return the table of the objections to a call, and what lifts each."""
    rows = [f"{OBJECTIONS_HEAD}| --- | --- | --- |\n"]
    for row in TABLE.values():
        lifted = ", ".join(name for name in ANSWERS if name in row.lifted_by) or "nothing"
        in_plan = "refused" if row.plan_refuses else "as in `ask`"
        rows.append(f"| {row.meaning.removesuffix('.')} | {lifted} | {in_plan} |\n")
    return "".join(rows)


def site_path(path: Path) -> str:
    """Return the path in the site of a file of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if name in REFERENCE_OF:
        return REFERENCE_OF[name]
    if name == "README.md":
        return "index.md"
    return name if path.suffix == ".md" else f"sources/{name.lstrip('.')}.md"


def page_text(path: Path) -> str:
    """Return a file outside `docs` as a page."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return with_site_links(text, path)
    name = path.relative_to(ROOT)
    return f"# `{name}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def with_site_links(text: str, source: Path) -> str:
    """Return the text of a file with its links as the site has them."""
    folder = PurePosixPath(site_path(source)).parent

    def moved(found: re.Match[str]) -> str:
        target = _target(source, found[2])
        if not target.is_file():
            return found[0]  # the check of links reports it
        return f"{found[1]}{os.path.relpath(site_path(target), folder)}{found[3]}"

    return LINK.sub(moved, text)


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """Yield each link of a page to a file: as it is written, and the file."""
    for found in LINK.finditer(page.read_text("utf-8")):
        yield found[2], _target(page, found[2])


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def _is_added(target: Path) -> bool:
    if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT):
        return False
    return target.is_file() and target.relative_to(ROOT).as_posix() not in REFERENCE_OF


def command_line_page() -> str:
    whole = whole_command()
    parts = ["# Command line\n", f"    {whole.path} {whole.usage}\n", whole.text, *_options(whole)]
    for command in subcommands():
        usage = f"    {command.path} {command.usage}".rstrip()
        parts += [f"\n## `{command.path}`\n", f"{usage}\n", _paragraphs(command.text)]
        parts += [*_options(command), f"\nExample: `{command.example}`"]
    return "\n".join(parts) + "\n"


def _options(command: CommandHelp) -> list[str]:
    return [
        f"\n`{option.names}{option.value and ' '}{option.value}`\n:   {_cell(option.text)}"
        for option in command.options
    ]


def slash_commands_page() -> str:
    parts = ["# Slash commands\n", "Type these in the terminal. `/help` lists them there.\n"]
    for group in GROUPS:
        rows = [
            f"\n`/{each.name}{each.argument and ' '}{each.argument}`\n:   {_cell(each.help)}"
            for each in COMMANDS.values()
            if each.group == group
        ]
        parts += [f"\n## {group.capitalize()}", *rows] if rows else []
    rows = [
        (f"`/{name}`", f"`{stands_for}`") for name, stands_for in foreign_names("aliases").items()
    ]
    parts += ["\n## Aliases from other agents\n", *_table(("alias", "command"), rows)]
    return "\n".join(parts) + "\n"


def settings_page() -> str:
    parts = [
        "# Every setting\n",
        "[Settings](../guide/settings.md) explains files, precedence and presets. A project file"
        " needs your trust to set a key that gives the agent more freedom.\n",
    ]
    for section, keys in groupby(KEYS.values(), lambda key: key.name.partition(".")[0]):
        parts.append(f"\n## `[{section}]`\n")
        for key in keys:
            parts += [
                f"### `{key.name}`\n",
                f"{key.help}\n",
                f"- Default: `{value_text(key, key.default)}`",
                f"- Value: {_cell(key.value_type.wanted)}",
                f"- Variable: `{key.env}`",
            ]
            if key.adds:
                parts.append("- The lists of several files are joined.")
            if key.loosens is not loosens_never:
                parts.append("- In a project file it may need your trust.")
            parts.append("")
    return "\n".join(parts) + "\n"


def events_page() -> str:
    tree = ast.parse(Path(events.__file__).read_text("utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = Path(events.__file__).read_text("utf-8").splitlines()
    parts = [
        "# Events\n",
        "Each line of `--output-format stream-json` is one of these events; `type` is its name. A"
        " program gets them as objects of `ctxagent.events`.\n",
    ]
    for name in [each.__name__ for each in get_args(events.Event)]:
        node = classes[name]
        rows = [
            (f"`{field.target.id}`", f"`{ast.unparse(field.annotation)}`", _comment(field, lines))
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        ]
        parts += [f"\n## `{name}`\n", f"{ast.get_docstring(node) or ''}\n"]
        parts += _table(("field", "type", "meaning"), rows) if rows else []
    return "\n".join(parts) + "\n"


def _comment(field: ast.AnnAssign, lines: Sequence[str]) -> str:
    """Return the comment behind a field, or the lines of comment above it."""
    behind = lines[field.lineno - 1][field.end_col_offset or 0 :].strip()
    if behind.startswith("#"):
        return _cell(behind.lstrip("# "))
    above = list[str]()
    for line in reversed(lines[: field.lineno - 1]):
        if not line.strip().startswith("#"):
            break
        above.insert(0, line.strip().lstrip("# "))
    return _cell(" ".join(above))


def exit_codes_page() -> str:
    codes = "\n".join(f"| `{status}` | {code} |" for status, code in STATUS_CODES.items())
    rows = [
        (f"`{name}`", str(getattr(errors, name).exit_code), _cell(text))
        for name, _, text in ERROR.findall(errors.__doc__ or "")
    ]
    return "\n".join(
        [
            "# Exit codes\n",
            "[Scripts](../guide/headless.md) has the meaning of each code of `ctxagent -p`. The"
            " other commands use the same codes.\n",
            "## Status of a run\n",
            "| status | exit code |\n| --- | --- |",
            codes,
            "| `error` | the exit code of the error |\n",
            "## Errors\n",
            "`error.type` in the result of a run is one of these classes.\n",
            *_table(("error", "exit code", "when"), rows),
            "",
        ]
    )


def library_page() -> str:
    """Return the page that mkdocstrings fills: the names that `from ctxagent import` has."""
    parts = [
        "# Library\n",
        "[The guide](../guide/library.md) shows how to use these names. Import them with"
        " `from ctxagent import Agent`.\n",
    ]
    for name, place in ctxagent._PLACES.items():
        if not name.startswith("__"):
            parts.append(f"::: ctxagent.{place}.{name}\n")
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip())) + "\n"


REFERENCE: dict[str, Callable[[], str]] = {
    "command-line": command_line_page,
    "slash-commands": slash_commands_page,
    "settings": settings_page,
    "events": events_page,
    "exit-codes": exit_codes_page,
    "library": library_page,
}
