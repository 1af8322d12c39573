"""Install a plugin from a folder or a git repository, show its contents for review, and remove it.

A new plugin is written to a temporary folder and then renamed to its final place. If the process is
killed before the end, either the old plugin or no plugin is installed.
"""

import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...api.base import CtxagentError, UsageError, conceal, dataclass, service
from ...api.files import make_private_folder, write_private
from ...api.session import (
    DEFAULT_PLACES,
    MANIFEST,
    MAX_NAME_CHARS,
    PLUGINS_FOLDER,
    ROOT_VARIABLE,
    CommandFile,
    Plugin,
    PublishedHook,
    Skill,
    check_bounds,
    check_name,
    commands_of,
    content_digest,
    file_digests,
    hooks_of,
    layout_problems,
    places_of,
    plugins_lock,
    read_manifest,
    read_plugins,
    servers_of,
    subagent_files,
    write_plugins,
)
from ...api.session import skills_in as skills_of
from ...api.text import count_of
from .marketplaces import Marketplace, OfferedPlugin, marketplace_named, offers_in
from .plugin_fetch import FileSource, SourceFile, source_files

MAX_FILES_SHOWN = 30  # files listed in an update


@dataclass(frozen=True, slots=True)
class PluginContents:
    """The parts of a plugin."""

    folder: Path
    commands: Mapping[str, CommandFile]
    skills: Mapping[str, Skill]
    subagents: list[str]  # file names without suffix
    hooks: list[PublishedHook]
    servers: Mapping[str, Any]  # unchanged from the plugin's files
    language_servers: Mapping[str, Any]  # as the add-on that starts them describes each
    problems: list[str]  # skipped parts with the reason

    @property
    def counts(self) -> str:
        """The number of parts of each kind, on one line."""
        counted = (
            (self.commands, "command"), (self.skills, "skill"), (self.subagents, "subagent"),
            (self.hooks, "hook"), (self.servers, "MCP server"),
            (self.language_servers, "language server"),
        )  # fmt: skip
        return ", ".join(count_of(len(each), noun) for each, noun in counted if each) or "nothing"

    def lines(self) -> Iterator[str]:
        """Yield a line for each part. Show commands that start automatically as they will run."""
        for command in self.commands.values():
            rules = self._with_variable(", ".join(command.allowed_tools))
            yield f"command /{command.name}" + (f", allows for its turn: {rules}" if rules else "")
            for text, is_shell in command.parts(""):
                if is_shell:
                    yield f"  runs, by the rules: {self._with_variable(text)}"
        for skill in self.skills.values():
            rules = self._with_variable(", ".join(skill.allowed_tools))
            yield f"skill {skill.name}" + (f", allows for its turn: {rules}" if rules else "")
        yield from (f"subagent {name}" for name in self.subagents)
        for hook in self.hooks:
            of = f" of {hook.matcher}" if hook.matcher not in ("", "*") else ""
            does = "runs" if hook.kind == "command" else "posts to"
            yield f"hook {hook.event}{of}, {does}: {hook.run}"
        for name, values in self.servers.items():
            yield f"MCP server {name}, {_server_line(values)}"
        for name, kind in self.language_servers.items():
            started = self._with_variable(" ".join(kind.commands[0]))
            yield f"language server {name} for {' '.join(kind.languages)}, runs: {started}"
        yield from (f"note: {problem}" for problem in self.problems)

    def _with_variable(self, text: str) -> str:
        """Replace the plugin's current folder by its variable, since the folder can change."""
        return text.replace(str(self.folder), f"${{{ROOT_VARIABLE}}}")


def contents_of(
    plugin: Plugin,
) -> PluginContents:
    """Return the contents of a plugin's folder."""
    commands, problems = commands_of(plugin, plugin.folder, plugin.folder)
    hooks, wrong = hooks_of(plugin)
    problems += wrong
    try:
        servers: Mapping[str, Any] = servers_of(plugin)
    except (OSError, ValueError) as error:
        servers = {}
        why = error.strerror if isinstance(error, OSError) else error
        problems.append(f"no MCP server of the plugin is started: {why}")
    language_servers, wrong = _language_servers_of(plugin)
    skills, unread = skills_of(plugin.folder)
    try:
        problems += [*wrong, *unread, *layout_problems(plugin.folder)]
    except (OSError, ValueError) as error:
        problems.append(str(error))
    return PluginContents(
        folder=plugin.folder,
        commands=commands,
        skills=dict(sorted(skills.items())),
        subagents=sorted(path.stem for path in subagent_files(plugin.folder)),
        hooks=hooks,
        servers=servers,
        language_servers=language_servers,
        problems=[problem.replace(f"{plugin.folder}/", "") for problem in problems],
    )


def _language_servers_of(plugin: Plugin) -> tuple[Mapping[str, Any], list[str]]:
    """Return the language servers of a plugin by name, and a warning for each skipped one."""
    if not places_of(plugin.folder, "lspServers"):
        return {}, []
    try:
        found: tuple[Mapping[str, Any], list[str]] = service("language-servers")(plugin, None)
        return found
    except UsageError as error:
        return {}, [f"no language server of the plugin is started: {error.message}"]


def differences(before: Plugin, after: Plugin) -> Iterator[str]:
    """Yield the lines that an update adds (+) and removes (-), then the files that differ."""
    old, new = ([*contents_of(each).lines()] for each in (before, after))
    yield from (f"- {line.strip()}" for line in old if line not in new)
    yield from (f"+ {line.strip()}" for line in new if line not in old)
    was, now = (file_digests(each.folder) for each in (before, after))
    changed = sorted(path for path in {*was, *now} if was.get(path) != now.get(path))
    marks = {(True, False): "gone", (False, True): "new", (True, True): "changed"}
    for path in changed[:MAX_FILES_SHOWN]:
        yield f"{marks[path in was, path in now]}: {path}"
    if len(changed) > MAX_FILES_SHOWN:
        yield f"and {count_of(len(changed) - MAX_FILES_SHOWN, 'more file')}"


def _server_line(values: Any) -> str:
    """Return how a server is started or reached, with its environment variables and headers."""
    if not isinstance(values, dict):
        return "whose entry is not an object"
    arguments = values.get("args")
    words = [values.get("command"), *(arguments if isinstance(arguments, list) else [])]
    started = " ".join(str(word) for word in words if word is not None)
    line = f"runs: {started}" if started else f"at {conceal(str(values.get('url')))}"
    for key in ("env", "headers"):
        if isinstance(given := values.get(key), dict) and given:
            line += f"; {key}: " + ", ".join(f"{name}={value}" for name, value in given.items())
    return line


class IsMarketplace(UsageError):
    """The source of a plugin is a marketplace and not a plugin."""

    def __init__(self, source: str, offers: Sequence[OfferedPlugin]) -> None:
        super().__init__(
            f"{source} is a marketplace with {count_of(len(offers), 'plugin')}, none was added",
            hint=f"`ctxagent plugin marketplace add {shlex.quote(source)}`, then `ctxagent plugin "
            f"add {offers[0].id}`",
        )
        self.offers = offers


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """The source of a plugin to install or update."""

    source: FileSource
    offer: OfferedPlugin | None = None  # set if it comes from a marketplace


@dataclass(frozen=True, slots=True)
class StagedPlugin:
    """A fetched plugin that is not installed yet."""

    plugin: Plugin  # final except `folder`, which is the temporary folder
    target: Path
    manifest: Mapping[str, Any]
    replaced: Plugin | None  # the installed version of the same source
    name_taken_by: str = ""  # source of another plugin with the same name


def update_request(plugin: Plugin, markets: Mapping[str, Marketplace]) -> InstallRequest:
    """Return the source of an installed plugin's newest content. Raises UsageError."""
    if not plugin.market:
        return InstallRequest(FileSource(plugin.source, plugin.ref, path=plugin.path))
    market = marketplace_named(markets, plugin.market)
    offer = market.offer(plugin.offer)
    return InstallRequest(market.source_of(offer), offer)


@contextmanager
def stage_plugin(
    wanted: InstallRequest, config_home: Path, environ: Mapping[str, str]
) -> Iterator[StagedPlugin]:
    """Yield a fetched plugin. Call `install_staged` within the block to install it. Raises
    UsageError if the source is not a plugin, IsMarketplace, CtxagentError if it cannot be fetched
    or stored, and ConfigError for a broken record.
    """
    source, folder = wanted.source, config_home / PLUGINS_FOLDER
    shown = conceal(source.place)
    with plugins_lock(config_home) as stage:
        if not source.is_url and folder.resolve().is_relative_to(Path(source.place).resolve()):
            raise UsageError(
                f"{shown} contains the folder of the installed plugins",
                hint="Give a folder that contains only the plugin.",
            )
        try:
            content = stage / "content"
            with source_files(source, stage / "repository", environ) as (commit, files):
                _write(files, content)
            if wanted.offer:
                _complete_manifest(content, wanted.offer.entry)
            elif len(offers := offers_in(content)) > 1 or (offers and not _has_parts(content)):
                raise IsMarketplace(shown, offers)
            yield _fetched_plugin(wanted, commit, stage, read_plugins(config_home))
        except ValueError as error:
            raise UsageError(
                f"{shown}: {error}", hint="`ctxagent guide plugins` describes the format."
            ) from None
        except OSError as error:
            why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
            raise CtxagentError(
                f"{shown} was not added: {why}", hint="Check the source and the free disk space."
            ) from None


def install_staged(staged: StagedPlugin, config_home: Path) -> Plugin:
    """Install a fetched plugin, replacing the old version. Raises OSError."""
    target, stage = staged.target, staged.plugin.folder.parent
    if os.path.lexists(target):
        target.rename(stage / "before")
    staged.plugin.folder.rename(target)
    added = replace(
        staged.plugin, folder=target, added=datetime.now(UTC).isoformat(timespec="seconds")
    )
    others = [each for each in read_plugins(config_home) if each.name != added.name]
    write_plugins(config_home, [*others, added])
    return added


def remove_plugin(name: str, config_home: Path) -> None:
    """Remove a plugin. Raises UsageError for an unknown name, CtxagentError if removing fails, and
    ConfigError for a broken record.
    """
    with plugins_lock(config_home):
        plugins, folder = read_plugins(config_home), config_home / PLUGINS_FOLDER / name
        plugin_named(plugins, name)
        try:
            write_plugins(config_home, [each for each in plugins if each.name != name])
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            raise CtxagentError(
                f"{name} was not removed: {error.strerror}",
                hint="Check the permissions of the folder.",
            ) from None


def plugin_named(plugins: Sequence[Plugin], name: str) -> Plugin:
    """Return an installed plugin. Raises UsageError for an unknown name."""
    for each in plugins:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in plugins) or "none"
    raise UsageError(f"there is no plugin {name}", hint=f"There are: {names}")


def _fetched_plugin(
    wanted: InstallRequest, commit: str, stage: Path, plugins: Sequence[Plugin]
) -> StagedPlugin:
    """Return the plugin in a temporary folder. Raises ValueError and OSError."""
    content, source, offer = stage / "content", wanted.source, wanted.offer
    manifest = read_manifest(content)
    kept = source.recorded_place
    name = offer.name if offer else manifest.get("name")
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", _last_parts(kept)[-1])
    name = check_name(str(name))
    if not _has_parts(content):
        more = "".join(f"; {each}" for each in layout_problems(content))
        raise ValueError(
            f"it is not a plugin: it has none of {', '.join(DEFAULT_PLACES.values())}{more}"
        )
    offered = offer.name if offer else ""
    same = [each for each in plugins if (each.source, each.path) == (kept, source.path)]
    # A marketplace may offer two plugins with the same folder.
    before = next((p for p in same if not offered or p.offer in ("", offered)), None)
    taken = {each.name: each.origin for each in plugins}
    owner = offer.market if offer else _last_parts(kept)[-2]
    called = before.name if before else _free_name(name, owner, taken)
    taken_by = "" if before else taken.get(name, "")
    plugin = Plugin(
        called,
        content,
        kept,
        content_digest(content),
        source.ref,
        commit,
        path=source.path,
        market=offer.market if offer else "",
        offer=offered,
    )
    return StagedPlugin(plugin, stage.parent / called, manifest, before, taken_by)


def _last_parts(place: str) -> list[str]:
    """Return the last two parts of a path or URL, such as an owner and a repository."""
    return ["", *re.split(r"[/:]+", place.rstrip("/").removesuffix(".git"))][-2:]


def _free_name(name: str, owner: str, taken: Mapping[str, str]) -> str:
    """Return a name that no other plugin has. If `name` is taken, prefix the owner."""
    owner = re.sub(r"^\W+|[^A-Za-z0-9_.-]", "", owner) or "other"
    prefixed = f"{owner[: MAX_NAME_CHARS // 2]}-{name}"[: MAX_NAME_CHARS - 4]
    names = (name, prefixed, *(f"{prefixed}-{n}" for n in range(2, 1_000)))
    return next(each for each in names if each not in taken)


def _has_parts(content: Path) -> bool:
    return any(places_of(content, key) for key in DEFAULT_PLACES)


def _complete_manifest(content: Path, entry: Mapping[str, Any]) -> None:
    """Add the parts from the marketplace's entry to the manifest of a plugin. For equal keys the
    manifest wins, unless the entry has `strict: false`. Raises ValueError and OSError.
    """
    manifest = read_manifest(content)
    named = {key: entry[key] for key in DEFAULT_PLACES if entry.get(key)}
    is_strict = entry.get("strict") is not False
    whole = {**named, **manifest} if is_strict else {**manifest, **named}
    if whole != manifest:
        path = content / MANIFEST
        make_private_folder(path.parent)
        path.unlink(missing_ok=True)  # it can be a link
        data = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        write_private(path, data.encode())


def _write(files: Iterator[SourceFile], target: Path) -> None:
    """Write the files of a plugin to a new private folder. Raises OSError, and ValueError for too
    many files or bytes, and for a link that leaves the folder.
    """
    make_private_folder(target)
    size, links = 0, dict[Path, str]()
    for count, file in enumerate(files, 1):
        size += len(file.data)
        check_bounds(count, size)
        path = target / file.path
        make_private_folder(path.parent)
        if file.kind == stat.S_IFLNK:
            links[path] = os.fsdecode(file.data)
            continue
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.data)
            if file.is_executable:
                os.fchmod(descriptor, 0o700)
    root = os.path.realpath(target)
    # Links come after all files, so that no file is written through a link.
    for path, leads_to in links.items():
        path.symlink_to(leads_to)
    for path, leads_to in links.items():
        if leads_to.startswith("/") or not Path(os.path.realpath(path)).is_relative_to(root):
            why = "is a link that leads out of the plugin"
            raise ValueError(f"{path.relative_to(target)} {why}")
