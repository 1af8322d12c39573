"""The documentation names only what there is."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ctxagent.agent.ui.commands import COMMANDS

ROOT = Path(__file__).parents[2]
SEEDS = (ROOT / "docs" / "internals" / "seeds.md").read_text()
QUOTED = sorted(set(re.findall(r"`([^`]+)`", SEEDS)))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])
# `agent/loop/turn.py:run_turn`, `test_engine.py:test_pins`, or a file alone.
PLACES = sorted(
    {
        (str(page.relative_to(ROOT)), place)
        for page in PAGES
        for place in re.findall(
            r"`((?:(?:agent|tools|tests|benchmarks)/[\w/]+\.\w+|test_\w+\.py)(?::\w+)?)`",
            page.read_text(),
        )
    }
)
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in SEEDS.splitlines()
    if re.match(r"\| (?!demand|---)", line) and line.count(" | ") == 4
]


@cache
def names(path: Path) -> set[str]:
    """Return what a module defines: functions, classes, their methods, and constants."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.slow
def test_what_a_page_names_is_there() -> None:
    tests, wrong = list(ROOT.glob("tests/**/test_*.py")), []
    for page, place in PLACES:
        name, _, inside = place.partition(":")
        is_test = name.startswith("test_")
        found = [path for path in tests if path.name == name] if is_test else [ROOT / name]
        if not any(path.exists() for path in found):
            wrong.append(f"{page} names {name}")
        elif inside and not any(inside in names(path) for path in found):
            wrong.append(f"{page} names {inside} in {name}")
    assert wrong == []


def test_every_link_leads_somewhere() -> None:
    wrong = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert wrong == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "internals" / "decisions"
    listed = re.findall(r"\]\(([\w.-]+)\)", (folder / "README.md").read_text())
    assert sorted(listed) == sorted(
        page.name for page in folder.glob("*.md") if page.name != "README.md"
    )


def test_each_demand_has_its_code_and_its_test() -> None:
    assert len(ROWS) > 100
    for demand, where, held, shown, otherwise in ROWS:
        if where == "–":
            assert held == shown == "–", demand
            assert otherwise, demand
        else:
            assert re.search(r"test_\w+\.py|^as there$", held), demand
            assert shown.startswith("`"), demand


def test_the_gates_rules_and_phases_of_the_documents_are_all_there() -> None:
    demands = " ".join(row[0] for row in ROWS)
    for number in range(1, 6):
        assert f"HOOK-CTX-00{number}" in demands
    assert len(re.findall(r"(?:^|\s)[+-][a-z]+-[a-z-]+", demands)) == 9  # S1 "Rules"


@pytest.mark.parametrize("words", [q for q in QUOTED if re.match(r"/[a-z]+", q)])
def test_every_command_that_is_named_exists(words: str) -> None:
    assert words.split()[0].removeprefix("/") in COMMANDS


def test_the_readme_is_short_and_begins_with_what_matters() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    start = "\n".join(lines[:40])
    parts = (
        "pictures/film.svg)", "scripted", "uvx --from . ctxagent demo", "pip install",
        "ctxagent replay ", "No public model was asked", "benchmarks/real",
    )  # fmt: skip
    places = [start.index(part) for part in parts]
    assert places == sorted(places)


def test_no_page_promises_a_context_without_end() -> None:
    promise = re.compile(r"(?:never|not) runs? out|infinite|unlimited context", re.I)
    pages = [ROOT / name for name in ("README.md", "pyproject.toml", "mkdocs.yml", "__init__.py")]
    pages += [*(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "share" / "man").rglob("*.1")]
    found = {page.name: promise.findall(page.read_text()) for page in pages}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_modules_that_the_makefile_runs_are_there() -> None:
    for module in re.findall(r"-m ctxagent\.([\w.]+)", (ROOT / "Makefile").read_text()):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
