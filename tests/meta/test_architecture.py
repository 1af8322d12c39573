"""The shape of the code: sizes, names, who may use which library, what starts quickly.

The direction of imports is held by the contracts in pyproject.toml, which `make lint` checks.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("agent", "tools", "api", "addons")  # folders of the package
FILES = sorted([*ROOT.glob("*.py"), *(path for top in TOPS for path in (ROOT / top).rglob("*.py"))])
NAMES = [str(path.relative_to(ROOT)) for path in FILES]

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
# One around each: a turn, code of tools and extensions, the command line, what the proxy adds.
MAX_BROAD_EXCEPTS = 4
MAX_MODULES_BESIDE_ROOMS = 7

# Which modules may import a library: one room, or the modules named.
LIBRARY_USERS = {
    "rich": ("agent.ui", "addons.editors"),
    "prompt_toolkit": ("agent.ui",),
    "anthropic": (
        "agent.models.messages.sdk_transport",
        "agent.models.messages.cloud_transports",
    ),
    "httpx2": (
        "agent.models",
        "agent.extensions.mcp",
        "addons.proxy",
    ),
    "starlette": ("addons.proxy",),
    "uvicorn": ("addons.proxy.serve",),
    "mcp": ("agent.extensions.mcp",),
    "acp": ("addons.editors",),
    "mcp_types": ("agent.extensions.mcp",),
    "anyio": ("agent.extensions.mcp", "addons.proxy.app"),
    "tree_sitter": ("agent.permissions.shell.parser",),
    "tree_sitter_bash": ("agent.permissions.shell.parser",),
    "tiktoken": ("agent.context.tokens",),
    "click": ("agent.cli", "addons"),
    "psutil": ("tools.system.process_table",),
    "jsonschema": ("agent.features.result_schema",),
    "referencing": ("agent.features.result_schema",),
    "jinja2": ("agent.pages.templates",),
    "markupsafe": ("agent.pages", "addons.export", "addons.replay.report"),
    "parsl": ("addons.fleet.parsl_engine",),
}
MIN_LINES_FOR_TEST_FILE = 100
# Modules of so many lines that have no test file of their name yet, by room. `agent/cli`, the
# commands of add-ons and what lies beside the rooms are tested in `tests/e2e`.
WITHOUT_TEST_FILE = {
    "compat": "marketplace_command marketplaces other_settings plugin_command plugin_fetch "
    "plugin_install",
    "compaction": "host",
    "config": "preservation",
    "doctor": "command salvage session setup",
    "editors": "questions server session updates",
    "export": "chart markdown page page_entries",
    "extensions": "connection login plugins servers transport",
    "fleet": "attempt check_command clean command places results_command summary",
    "library": "agent result",
    "models": "base probe",
    "pages": "charts templates",
    "proxy": "command wrap",
    "recordings": "builder tool_names",
    "replay": "codex columns command ctxagent drawings json measures opencode parallel reader "
    "results",
    "security": "bubblewrap planted sandbox_paths",
    "session": "titles",
    "system": "child git_links process_table safe_open",
    "tools": "base download mcp ripgrep web_fetch",
    "ui": (
        "capabilities choose command_context completions context diffs files headless "
        "history hooks input_filter input_queue intent keys markdown_stream memory "
        "open_session pasted picker preserve_report questions screen session "
        "sessions settings status stream_input terminal theme tool_calls transcript "
        "window"
    ),
    "worktree": "garbage object_store restore staging",
}
# Names that say how much without saying of what.
VAGUE_CONSTANTS = re.compile(
    r"_?(MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST|DEEPEST|MANY|FEW|LONG|SHORT|ENOUGH|PATIENCE"
    r"|NAMED|SHOWN|KEPT|LISTED|TOLD|SAID|HELD|LEFT|TAKEN|SHARE|WORTH|NEAR|SOON)"
)


@dataclass(frozen=True)
class Facts:
    """What the rules ask of a module. Its syntax tree takes much more memory."""

    lines: int
    imports: list[str]  # modules; the project's own without `ctxagent`
    functions: list[tuple[str, int]]  # each with its lines
    broad_excepts: list[int]  # by their line
    has_docstring: bool
    defined: list[tuple[str, bool]]  # at its top, each with whether it is a type


@cache
def facts() -> dict[str, Facts]:
    """Read all modules, once."""
    return {name: facts_of(path) for name, path in zip(NAMES, FILES, strict=True)}


def facts_of(path: Path) -> Facts:
    source = path.read_text()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    return Facts(
        lines=source.count("\n"),
        imports=list(imported(path, nodes)),
        functions=[
            (node.name, (node.end_lineno or 0) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ],
        broad_excepts=[
            node.lineno for node in nodes if isinstance(node, ast.ExceptHandler) and is_broad(node)
        ],
        has_docstring=bool(ast.get_docstring(tree)),
        defined=list(defined(tree)),
    )


def module(path: Path) -> str:
    """Return the dotted name of a module of the project, without `ctxagent`."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported(path: Path, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each module that this one imports; the project's own without `ctxagent`."""
    here = module(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = [*base, *([node.module] if node.module else [])]
            for alias in node.names:
                full = [*stem, alias.name]
                known = (ROOT.joinpath(*".".join(full).split("."))).with_suffix(".py").exists()
                yield ".".join(full if known else stem)


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    names = ("Exception", "BaseException")
    return caught is None or (isinstance(caught, ast.Name) and caught.id in names)


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names that a module defines at its top, each with whether it is a type."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, not target.id.strip("_").isupper() and target.id[:1].isupper()


def within(name: str, parts: tuple[str, ...]) -> bool:
    """Tell whether a module is one of these or lies in one of these rooms."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


@pytest.mark.slow
def test_imports_are_relative_and_libraries_have_their_users() -> None:
    absolute, unexpected = [], []
    for path, found in zip(FILES, facts().values(), strict=True):
        name = module(path)
        for other in found.imports:
            top = other.split(".")[0]
            if top == "ctxagent":
                absolute.append(f"{name} imports {other}")
            elif top in LIBRARY_USERS and not within(name, LIBRARY_USERS[top]):
                unexpected.append(f"{name} imports {other}")
    assert absolute == [], "relative imports only"
    assert unexpected == [], "LIBRARY_USERS names others"


@pytest.mark.slow
def test_sizes() -> None:
    large = [
        f"{name} has {found.lines} lines"
        for name, found in facts().items()
        if found.lines > MAX_MODULE_LINES
    ]
    large += [
        f"{name}: {function} has {lines} lines"
        for name, found in facts().items()
        for function, lines in found.functions
        if lines > MAX_FUNCTION_LINES
    ]
    assert large == []


def test_few_modules_stand_beside_the_rooms() -> None:
    own = [path.name for path in (ROOT / "agent").glob("*.py") if path.name != "__init__.py"]
    assert len(own) <= MAX_MODULES_BESIDE_ROOMS, own


@pytest.mark.slow
def test_few_broad_excepts() -> None:
    broad = [f"{name}:{at}" for name, found in facts().items() for at in found.broad_excepts]
    assert len(broad) <= MAX_BROAD_EXCEPTS, broad


@pytest.mark.slow
def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, found in facts().items() if not found.has_docstring] == []


@pytest.mark.slow
def test_one_public_type_has_one_name() -> None:
    types = Counter(
        name for found in facts().values() for name, is_type in found.defined
        if is_type and not name.startswith("_") and len(name) > 1
    )  # fmt: skip
    assert {name for name, times in types.items() if times > 1} == set()


@pytest.mark.slow
def test_constants_are_named_for_their_quantity() -> None:
    vague = [
        f"{file}: {name}"
        for file, found in facts().items()
        for name, _ in found.defined
        if VAGUE_CONSTANTS.fullmatch(name)
    ]
    assert vague == []


def test_each_start_of_python_is_isolated() -> None:
    """Otherwise it would import modules of the project that it is started in."""
    starts = [
        f"{name}: {line.strip()}"
        for name, path in zip(NAMES, FILES, strict=True)
        for line in path.read_text().splitlines()
        if "sys.executable" in line
        and not re.search(r'sys\.executable\)?, "-(I|E", "-P)"|\.parent', line)
    ]
    assert starts == []


# Functions that start programs, and the modules that may use them. Hooks and servers pass the gate
# of `agent/config/start_gate.py`: their starters take a `ClearedStart`.
STARTERS = {
    "Process.start(": {"agent.features.hook_runs"},
    " spawn(": {"agent.extensions.server_process"},
    "ClearedStart(": {"agent.config.start_gate", "agent.security.program_starts"},
    "create_subprocess_exec(": {"agent.ui.input.editor", "agent.ui.commands.session"},
    "subprocess.Popen(": {
        "addons.compat.plugin_fetch", "addons.proxy.wrap", "addons.fleet.results_command",
        "agent.worktree.object_store", "addons.fleet.pool_supervisor", "addons.fleet.steps",
        "addons.fleet.attempt",
    },
    "subprocess.run(": {
        "addons.doctor.setup", "agent.ui.input.pasted", "agent.models.keys",
        "agent.cli.github_action", "agent.worktree.git", "addons.fleet.steps",
        "agent.security.landlock", "agent.security.bubblewrap", "addons.proxy.service",
        "addons.replay.own_history",
    },
    "os.system(": set(), "posix_spawn(": set(),
    "os.exec": {"addons.proxy.wrap", "addons.fleet.parsl_engine"},
}  # fmt: skip


def test_programs_that_settings_name_start_only_through_the_gate() -> None:
    texts = {
        module(path): path.read_text()
        for path in FILES
        if path.relative_to(ROOT).parts[0] in ("agent", "addons")
    }
    found = {
        start: {name for name, text in texts.items() if start in text.replace("await", "")}
        for start in STARTERS
    }
    assert found == STARTERS


def loaded_by(*command: str) -> set[str]:
    """Return the top-level modules in memory when `python -m ctxagent COMMAND` has run."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n@', *{m.split('.')[0] for m in sys.modules}))\n"
        "from ctxagent.agent.cli.main import main\n"
        f"sys.argv = ['ctxagent', *{command!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("@")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(option: str) -> None:
    heavy = {
        "acp", "anthropic", "jinja2", "mcp", "prompt_toolkit", "pydantic", "rich",
        "tiktoken", "tree_sitter",
    }  # fmt: skip
    loaded = loaded_by(option)
    assert "click" in loaded
    assert loaded & heavy == set()


@pytest.mark.slow
def test_importing_the_repl_stays_light() -> None:
    code = (
        "import sys, ctxagent.agent.ui.repl.repl, ctxagent.agent.config.load\n"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "prompt_toolkit" in loaded
    assert loaded & {"acp", "anthropic", "jinja2", "mcp", "pydantic", "tiktoken", "rich"} == set()


@pytest.mark.slow
def test_tools_are_made_without_a_look_for_plugins_of_pydantic() -> None:
    code = (
        "import importlib.metadata as found\n"
        "found.entry_points = lambda **given: exit('read')\n"
        "from ctxagent.tools.base import input_schema\n"
        "from ctxagent.tools.glob import GlobTool\n"
        "print(*input_schema(GlobTool.Params)['properties'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pattern" in done.stdout


@pytest.mark.slow
def test_a_run_of_a_fleet_starts_without_an_event_loop_and_pages() -> None:
    code = (
        "import sys\n"
        "from ctxagent.addons.fleet import check, command, runner\n"
        "from ctxagent.agent.library import launch_parts\n"
        "from ctxagent.agent.security import program_starts\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "http.server", "jinja2", "pydantic"}
    assert not heavy & {*done.stdout.split()}


def test_large_modules_have_a_test_file_of_their_name() -> None:
    """`agent/session/search/index.py` is tested by `tests/session/test_index.py`."""
    missing: dict[str, list[str]] = {}
    for path, found in zip(FILES, facts().values(), strict=True):
        place = path.relative_to(ROOT)
        is_in_room = place.parts[0] in ("agent", "addons") and len(place.parts) > 2
        room = place.parts[1] if is_in_room else ""
        if place.parts[0] == "tools":
            room = "system" if "system" in place.parts else "tools"
        if room in ("", "cli") or found.lines < MIN_LINES_FOR_TEST_FILE:
            continue
        if path.stem != "__init__" and not any(
            (ROOT / "tests" / room).rglob(f"test_{path.stem}.py")
        ):
            missing.setdefault(room, []).append(path.stem)
    known = {room: names.split() for room, names in WITHOUT_TEST_FILE.items()}
    assert {room: sorted(set(names)) for room, names in missing.items()} == known
