"""Checks of required and optional parts of the set-up, each with its result.

Repaired calls in logs are counted by model, to show which repair helps which model.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from ...api.base import ConfigError, NoCredentials, UsageError, conceal, dataclass
from ...api.context import tokens
from ...api.guard import find_bubblewrap, is_file_trusted, landlock, seatbelt
from ...api.models import UNENCRYPTED, address_of, find_key, find_local_servers, unencrypted_host
from ...api.programs import describe_program, isolated_python
from ...api.record import (
    PRUNE,
    WARNING_SHARE,
    Assistant,
    Entry,
    ToolResult,
    all_logs,
    limit_bytes,
    measure_state,
    try_parse_entry,
)
from ...api.session import (
    BUILT_IN,
    TEXT,
    TOOL_NAME,
    HookFiles,
    InstalledPlugins,
    LaunchOptions,
    check_plugins,
    command_files_of,
    configured,
    launch_options,
    named_repair,
    python_extensions,
    skills_of,
    types_of,
)
from ...api.settings import (
    HookSettings,
    LoadedSettings,
    ModelSettings,
    SandboxSettings,
    Settings,
    StateSettings,
    can_be_written,
    config_home,
)
from ...api.text import count_of, format_size
from ...api.tools import find_ripgrep, missing_ripgrep


class Finding(NamedTuple):
    """One checked item and its state."""

    what: str
    found: str
    ok: bool = True  # False if something is broken or prevents the program from working
    note: bool = False  # True if it works, but perhaps not as the user expects


def listed(names: Sequence[str], limit: int) -> str:
    """Return the first `limit` names on one line, and the number of further names."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


MAX_LOGS = 50  # that are read, newest first
MAX_BYTES = 64 << 20  # of all logs that are read
MAX_NAMES = 10  # repairs of one model in a finding
_MARKS = (b'"dialect": {"', b'"repairs": ["')


@dataclass(frozen=True, slots=True)
class _Use:
    model: str
    repair: str
    has_failed: bool


def repair_findings(logs: Iterable[Path]) -> list[Finding]:
    """Return a finding for each model with repaired calls in these logs, newest log first."""
    uses = [use for log in _first(logs) for use in _uses(log)]
    total = Counter((use.model, use.repair) for use in uses)
    failed = Counter((use.model, use.repair) for use in uses if use.has_failed)
    findings = []
    for model in dict.fromkeys(use.model for use in uses):
        rows = [
            f"{repair} ({count_of(count, 'call')}, {failed[model, repair]:,} failed)"
            for (name, repair), count in total.most_common()
            if name == model
        ]
        findings.append(Finding("repaired calls", f"{model}: {listed(rows, MAX_NAMES)}"))
    return findings


def _first(logs: Iterable[Path]) -> Iterator[Path]:
    left = MAX_BYTES
    for log, _ in zip(logs, range(MAX_LOGS), strict=False):
        try:
            left -= log.stat().st_size
        except OSError:
            continue
        if left < 0:
            return
        yield log


def _uses(log: Path) -> Iterator[_Use]:
    """Yield the repairs in a log. Only replies and the lines with a mark are parsed."""
    named, reply = dict[str, tuple[str, str]](), b""
    try:
        lines = log.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        if b'"kind": "assistant"' in line:
            reply = line
        is_result = b'"kind": "tool_result"' in line
        if not (any(mark in line for mark in _MARKS) or (named and is_result)):
            continue
        entry = try_parse_entry(line)
        if isinstance(entry, Assistant):
            named |= {id: (entry.model, repair) for id, repair in _of_reply(entry)}
        elif isinstance(entry, ToolResult):
            model = _model(try_parse_entry(reply))
            if use := named.pop(entry.tool_use_id, None):
                yield _Use(*use, entry.is_error)
            for repair in entry.details.get("repairs", ()):
                yield _Use(model, str(repair), entry.is_error)


def _of_reply(reply: Assistant) -> Iterator[tuple[str, str]]:
    """Yield the ID of each call that the reply has in another form, and the name of its repair."""
    names, form = reply.dialect.get("names"), reply.dialect.get("form")
    for id, name in (names if isinstance(names, dict) else {}).items():
        yield id, named_repair(TOOL_NAME, str(name))
    for block in reply.content if form else ():
        if block.get("type") == "tool_use":
            yield str(block.get("id")), named_repair(TEXT, str(form))


def _model(reply: Entry | None) -> str:
    return reply.model if isinstance(reply, Assistant) else "unknown model"


FETCH_TIMEOUT_S = 60
PROBE_BYTES = 1 << 16  # written to test for free space


def check_setup(loaded: LoadedSettings, state: Path, cwd: Path) -> list[Finding]:
    """Return findings about the required and optional parts of the set-up for work in `cwd`."""
    settings, path = loaded.settings, os.environ.get("PATH")
    git = describe_program("git", path)
    return [
        Finding("Python", sys.version.split()[0]),
        Finding("model", settings.model.id),
        _server(settings.model),
        _credentials(settings.model),
        *_local_servers(),
        _state(state),
        _disk_usage(state, settings.state),
        _sandbox(settings.sandbox, cwd),
        *_questions(settings, cwd),
        *_extensions(loaded, cwd),
        Finding("git", git or "not found: no branch and status for the model"),
        _search(path),
        Finding(
            "tokenizer",
            str(
                tokens.vocabulary_path()
                or "none, so token counts are estimates; --fetch-tokenizer downloads it"
            ),
        ),
        *repair_findings(all_logs(state)),
        Finding("settings", ", ".join(loaded.notices) or "all applied", note=bool(loaded.notices)),
        *(Finding("settings", f"ignored: {each}", ok=False) for each in loaded.problems),
    ]


def _search(path: str | None) -> Finding:
    """Return the ripgrep that searches for Grep, or why there is none."""
    ripgrep = find_ripgrep(path)
    if ripgrep is None:
        return Finding("search", f"the tool Grep is off: {missing_ripgrep(path)}", note=True)
    if ripgrep.copy is None:
        return Finding("search", f"ripgrep: {ripgrep.program}")
    where = "in memory" if ripgrep.copy.descriptor is not None else f"in {ripgrep.copy.path}"
    why = "because commands may write there"
    return Finding("search", f"ripgrep: a copy {where} of {ripgrep.program}, {why}")


def _state(folder: Path) -> Finding:
    """Check that the state directory accepts new files, by writing a temporary one."""
    if not can_be_written(folder):
        return Finding("state", f"{folder} cannot be written", ok=False)
    place = next(each for each in (folder, *folder.parents) if each.is_dir())
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            while file.tell() < PROBE_BYTES:
                file.write(bytes(PROBE_BYTES - file.tell()))
    except OSError as error:
        return Finding("state", f"cannot create files in {folder}: {error.strerror}", ok=False)
    return Finding("state", f"{folder}")


def _disk_usage(folder: Path, settings: StateSettings) -> Finding:
    """Return the size of the state directory, with a note from WARNING_SHARE of the limit."""
    limit, total = limit_bytes(settings), measure_state(folder).total
    if limit is None:
        return Finding("disk", f"{format_size(total)} in the state directory, without a limit")
    found = f"{format_size(total)} of {format_size(limit)} in the state directory (state.max_gb)"
    if total < WARNING_SHARE * limit:
        return Finding("disk", found)
    advice = f"`{PRUNE}` removes old sessions; `ctxagent sessions usage` shows the sizes"
    return Finding("disk", f"{found}, {total / limit:.0%}: {advice}", note=True)


def download_vocabulary() -> Finding:
    """Let tiktoken download its vocabulary, in a process with a timeout of FETCH_TIMEOUT_S."""
    if tokens.vocabulary_path() is None:
        program = "import tiktoken; tiktoken.get_encoding('cl100k_base')"
        try:
            done = subprocess.run(
                [*isolated_python(), "-c", program],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return Finding("tokenizer", f"not downloaded: no answer in {FETCH_TIMEOUT_S} s", False)
        if done.returncode or tokens.vocabulary_path() is None:
            why = done.stderr.strip().splitlines()[-1:] or ["unknown reason"]
            return Finding("tokenizer", f"not downloaded: {why[0][:200]}", False)
    return Finding("tokenizer", f"{tokens.vocabulary_path()}")


def _server(chosen: ModelSettings) -> Finding:
    url = address_of(chosen, os.environ)
    if host := unencrypted_host(url):
        return Finding("server", f"{conceal(url)}: {UNENCRYPTED.format(host=host)}", note=True)
    return Finding("server", conceal(url or "the public API"))


def _local_servers() -> list[Finding]:
    """Return the model servers on this machine that answer."""
    found = asyncio.run(find_local_servers(os.environ))
    return [
        Finding(
            "local models",
            f"{each.provider.name} with {count_of(len(each.models), 'model')}: "
            f"--model {each.provider.name}/{next(iter(each.models), 'NAME')}",
        )
        for each in found
    ]


def _credentials(chosen: ModelSettings) -> Finding:
    """Return the source of the credentials. If there are none, the finding says how to set them."""
    try:
        found = find_key(chosen, os.environ)
        return Finding("credentials", found or "none needed")
    except (NoCredentials, UsageError) as error:
        return Finding("credentials", str(error), ok=False)


def _sandbox(chosen: SandboxSettings, cwd: Path) -> Finding:
    """Return the sandbox for commands, or the reason why there is none."""
    if chosen.mode == "off":
        return Finding("sandbox", "off: commands can do everything that you can")
    network = "with the network if you allow it" if chosen.network else "without a network"
    if isinstance(chosen.network, tuple):
        network = f"with the network by name: {', '.join(chosen.network) or 'you are asked'}"
    if seatbelt.works():
        if isinstance(chosen.network, tuple):
            network = "without a network, because this system cannot limit it by host name"
        return Finding("sandbox", f"{seatbelt.SANDBOX_EXEC}, {network}")
    found = find_bubblewrap(str(cwd.resolve()), chosen.network is True)
    if found.absent:
        alone = chosen.mode == "auto" and landlock.works()
        what = f"Landlock only, which is weaker; {network}" if alone else "none"
        return Finding("sandbox", f"{what}: {found.absent}", chosen.mode == "auto", note=True)
    return Finding("sandbox", f"{found.command[0]}, {network}")


def _questions(settings: Settings, cwd: Path) -> Iterator[Finding]:
    """Yield the advice to let sandboxed commands run without a question, if it would help."""
    permissions = settings.permissions
    asks = permissions.mode in ("ask", "accept-edits") and permissions.sandboxed == "ask"
    if not asks or settings.sandbox.mode == "off":
        return
    if seatbelt.works() or not find_bubblewrap(str(cwd.resolve()), network=False).absent:
        advice = 'permissions.sandboxed = "allow" runs commands without a question if the sandbox '
        yield Finding("questions", f"{advice}confines them to the project, without a network")


def _extensions(loaded: LoadedSettings, cwd: Path) -> Iterator[Finding]:
    """Yield the plugins, commands, skills, hooks and MCP servers, without running any."""
    try:
        for plugin, why in check_plugins(config_home(os.environ), loaded.trust_dir):
            found = f"{plugin.name}: {plugin.pinned_to}, unchanged"
            if why:
                found = f"{plugin.name} {why}, so it is not used: `{plugin.add_command}`"
            yield Finding("plugin", found, note=bool(why))
    except ConfigError as error:
        yield Finding("plugin", " ".join(str(error).split()), False)
    launch = launch_options(loaded, cwd, os.environ)
    found_files, warnings = command_files_of(launch)
    commands = [each for each in found_files.values() if not each.is_built_in]
    if commands or warnings:
        untrusted = sum(not each.is_trusted for each in commands)
        more = f", {untrusted:,} of them not trusted" if untrusted else ""
        yield Finding("commands", f"{count_of(len(commands), 'file')}{more}", note=bool(untrusted))
    for warning in warnings:
        yield Finding("commands", warning, note=True)
    yield from _subagents(launch)
    skills, warnings = skills_of(launch)
    if skills:
        yield Finding("skills", ", ".join(sorted(skills)))
    for warning in warnings:
        yield Finding("skills", warning, note=True)
    own_files = python_extensions.own_files(launch.places.config_home)
    projects = python_extensions.project_files(cwd, launch.places.home)
    if own_files or projects:
        untrusted = sum(not is_file_trusted(each, loaded.trust_dir) for each in projects)
        more = f", {untrusted:,} of them not trusted" if untrusted else ""
        found = f"{count_of(len([*own_files, *projects]), 'file')}{more}"
        yield Finding("extensions", found, note=bool(untrusted))
    if launch.extras.installed and launch.extras.hook_files:
        yield from _hooks(loaded.settings.hooks, launch.extras.hook_files, launch.extras.installed)
    yield from _servers(launch)


def _subagents(launch: LaunchOptions) -> Iterator[Finding]:
    """Yield the subagent types defined in files, and the ignored keys in these files."""
    types, warnings = types_of(launch)
    if found := [each for each in types if each.source != BUILT_IN]:
        yield Finding("subagents", ", ".join(sorted(each.name for each in found)))
    for each in found:
        if each.ignored:
            what = f"{each.source}: ignored, not supported here: {', '.join(each.ignored)}"
            yield Finding("subagents", what, note=True)
    for warning in warnings:
        yield Finding("subagents", warning, note=True)


def _hooks(own: HookSettings, files: HookFiles, installed: InstalledPlugins) -> Iterator[Finding]:
    """Yield the number of hooks per event, and warnings about hooks in files and plugins."""
    counts = {field.name: len(getattr(own, field.name)) for field in fields(own)}
    counts |= Counter(hook.event for hook in (*files.hooks, *installed.hooks))
    if found := ", ".join(f"{number:,} {event}" for event, number in counts.items() if number):
        yield Finding("hooks", found)
    for warning in (*files.warnings, *installed.hook_warnings):
        yield Finding("hooks", warning, note=True)


def _servers(launch: LaunchOptions) -> Iterator[Finding]:
    """Yield the configuration of each MCP server, without starting any."""
    configs, warnings = configured(launch)
    for each in configs:
        missing = each.command and not shutil.which(each.command[0])
        found = f"{each.command[0]} is not found" if missing else each.where
        yield Finding("MCP server", f"{each.name}: {found}", note=bool(missing))
    for warning in warnings:
        yield Finding("MCP server", warning, note=True)
