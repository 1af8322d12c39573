"""The shape of the code: who may import whom, how large things may get, what starts quickly."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    [*ROOT.glob("*.py"), *(ROOT / "agent").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
)
NAMES = [str(path.relative_to(ROOT)) for path in FILES]

# What each part may import of the project; a part is a module or a package.
CORE = {"agent.errors", "agent.events", "agent.record", "agent.context"}
MAY = {
    "__init__": set(),
    "__main__": {"agent.cli"},
    "agent": set(),
    "agent.errors": set(),
    "agent.events": set(),
    "agent.record.entries": set(),
    "tools.base": set(),
    "tools": {"tools"},
    "agent.record": {"agent.errors", "tools.programs"},
    "agent.changes": {"agent.record", "agent.shell", "tools.base"},
    "agent.context": {"agent.record", "agent.errors"},
    "agent.compaction": CORE,
    "agent.model": {"agent.context", "agent.record.entries", "agent.errors", "agent.events"},
    "agent.shapes": {"agent.errors"},
    "agent.keys": {"agent.shapes", "agent.errors"},
    "agent.settings": {"agent.compaction.categories", "agent.keys", "agent.shapes"},
    "agent.toml": {"agent.errors"},
    "agent.trust": {"agent.errors", "agent.record.lock"},
    "agent.config": {
        "agent.keys", "agent.settings", "agent.shapes", "agent.toml", "agent.trust",
        "agent.errors",
    },
    "agent.shell": set(),
    "agent.unseen": set(),
    "agent.places": {"agent.shell"},
    "agent.rules": {"agent.shell", "agent.errors"},
    "agent.verdicts": {"agent.rules"},
    "agent.arrival": {"agent.errors", "agent.record.entries"},
    "agent.unbroken": set(),
    "agent.approval": {
        "agent.places", "agent.rules", "agent.shell", "agent.verdicts", "tools.base",
    },
    "agent.prompt": {"agent.record", "tools.environment"},
    "agent.recall": {"agent.record", "tools.base"},
    "agent.recovery": {"agent.compaction", "agent.context", "agent.errors", "agent.record"},
    "agent.hooks": {"agent.errors", "tools.base", "tools.process"},
    "agent.redaction": {
        "agent.record.entries", "tools.base", "tools.environment", "tools.redacted",
    },
    "agent.confinement": {
        "agent.config", "agent.errors", "agent.launch", "agent.settings", "tools.gitplace",
        "tools.programs", "tools.sandbox",
    },
    "agent.launch": {"agent.settings", "agent.model.base"},
    "agent.standing": {"agent.compaction", "agent.context", "agent.record"},
    "agent.resumption": {"agent.context", "agent.errors", "agent.record", "agent.standing"},
    "agent.spending": {"agent.launch", "agent.errors"},
    "agent.bill": {"agent.record", "agent.model.base"},
    "agent.agents": {"agent.trust", "tools.base"},
    "agent.subagent": {
        *CORE, "agent.agents", "agent.compaction", "agent.launch", "agent.loop", "agent.spending",
        "agent.unbroken", "tools.base",
    },
    "agent.aftermath": {*CORE, "agent.changes", "tools.base", "tools.leftovers"},
    "agent.alignment": {*CORE, "agent.compaction"},
    "agent.replies": {
        "agent.context", "agent.errors", "agent.events", "agent.model.base", "agent.model.body",
        "agent.record.entries",
    },
    "agent.grants": {
        "agent.approval", "agent.errors", "agent.places", "agent.rules", "agent.shell",
        "agent.unseen", "tools.base",
    },
    "agent.keeping": {
        "agent.config", "agent.errors", "agent.record.lock", "agent.rules", "agent.toml",
        "agent.trust",
    },
    "agent.execution": {
        *CORE, "agent.approval", "agent.changes", "agent.compaction", "agent.grants", "agent.hooks",
        "tools.base", "tools.leftovers",
    },
    "agent.loop": {
        *CORE, "agent.agents", "agent.alignment", "agent.approval", "agent.arrival",
        "agent.changes", "agent.compaction", "agent.execution", "agent.hooks",
        "agent.model.base", "agent.replies", "agent.resumption", "agent.spending", "agent.unbroken",
        "tools.base", "tools.job",
    },
    "agent.manual": {*CORE, "agent.loop", "tools.base", "tools.bash"},
    "agent.occasions": {*CORE, "agent.hooks", "agent.launch", "agent.loop", "tools.base"},
    "agent.compose": {
        *CORE, "agent.aftermath", "agent.agents", "agent.approval", "agent.changes",
        "agent.compaction", "agent.occasions", "agent.confinement", "agent.launch", "agent.loop",
        "agent.subagent", "agent.model", "agent.prompt", "agent.recall", "agent.redaction",
        "agent.resumption", "agent.settings", "agent.shapes", "agent.spending", "agent.standing",
        "tools",
    },
    "agent.replay": {*CORE, "agent.compaction", "agent.model.base", "agent.model.body"},
    "agent.replay.formats": {*CORE, "agent.replay.recording"},
    "agent.replay.report": {"agent.record.export", "agent.replay.outcome"},
    "agent.doctor": {*CORE, "agent.config", "agent.settings", "tools.programs", "tools.sandbox"},
    # Front ends know events, and the conversation they are handed for their commands.
    "agent.ui": {
        *CORE, "agent.approval", "agent.bill", "agent.compaction", "agent.grants",
        "agent.keeping", "agent.loop", "agent.manual", "agent.recovery", "agent.redaction",
        "agent.settings", "agent.unseen", "tools.listing", "tools.capture",
        "tools.programs",
    },
    "agent.demo": {
        "agent.compaction.summarize", "agent.compose", "agent.confinement", "agent.context.wire",
        "agent.events", "agent.launch", "agent.loop", "agent.model.scripted", "agent.settings",
        "agent.ui.backing", "agent.ui.repl",
    },
    "agent.cli": {"agent"},
}  # fmt: skip
OWNERS = {
    "rich": ("agent.ui",),
    "prompt_toolkit": ("agent.ui",),
    "anthropic": ("agent.model.anthropic", "agent.model.sdk"),
    "httpx2": ("agent.model.anthropic",),
    "git": (
        "agent.record.gitprogram",
        "agent.record.snapshot",
        "agent.record.worktree.store",
    ),
    "tree_sitter": ("agent.shell.syntax",),
    "tree_sitter_bash": ("agent.shell.syntax",),
    "tiktoken": ("agent.context.tokens",),
    "click": ("agent.cli",),
}


def test_no_circles() -> None:
    """Modules that import each other, those only for types included."""
    arrows = {module(p): {o for o in imported(p) if o != module(p)} for p in FILES}
    left = dict(arrows)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def module(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Every module this one imports, as an absolute name; the project's own without `ctxagent`."""
    here = module(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = [*base, *([node.module] if node.module else [])]
            for alias in node.names:
                full = [*stem, alias.name]
                known = (ROOT.joinpath(*".".join(full).split("."))).with_suffix(".py").exists()
                yield ".".join(full if known else stem)


def part(name: str) -> str:
    """The most specific row of MAY that a module belongs to; each has one."""
    pieces = name.split(".")
    for length in range(len(pieces), 0, -1):
        if ".".join(pieces[:length]) in MAY:
            return ".".join(pieces[:length])
    raise AssertionError(f"{name} has no row in MAY")


def within(name: str, parts: set[str] | tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in parts)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_direction_of_imports(path: Path) -> None:
    name = module(path)
    row = part(name)
    for other in imported(path):
        if other.split(".")[0] in ("agent", "tools"):
            allowed = MAY[row] | {row}
            assert within(other, allowed), f"{name} imports {other}"
        top = other.split(".")[0]
        if top in OWNERS:
            assert within(name, OWNERS[top]), f"{name} imports {other}"
        assert top != "ctxagent", f"{name}: relative imports only"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_sizes(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") < 400, f"{path.name} has {source.count(chr(10))} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= 60, f"{path.name}: {node.name} has {lines} lines"


def test_at_most_three_broad_excepts() -> None:
    broad = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
        )
    ]
    assert len(broad) <= 3, broad


def test_every_module_says_what_it_is_for() -> None:
    silent = [name for path, name in zip(FILES, NAMES, strict=True)
              if not ast.get_docstring(ast.parse(path.read_text()))]  # fmt: skip
    assert silent == []


def loaded_by(*command: str) -> set[str]:
    """Top-level modules in memory when `python -m ctxagent COMMAND` has run."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('\\n@', *{m.split('.')[0] for m in sys.modules}))\n"
        "from ctxagent.agent.cli import main\n"
        f"sys.argv = ['ctxagent', *{command!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("@")[2].split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(option: str) -> None:
    heavy = {"anthropic", "rich", "prompt_toolkit", "git", "pydantic", "tiktoken", "tree_sitter"}
    loaded = loaded_by(option)
    assert "click" in loaded
    assert loaded & heavy == set()


def test_importing_the_repl_stays_light() -> None:
    code = (
        "import sys, ctxagent.agent.ui.repl, ctxagent.agent.config\n"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "prompt_toolkit" in loaded
    assert loaded & {"anthropic", "git", "pydantic", "tiktoken", "rich"} == set()
