"""Writes the reference of `ctxagent.api`: every name of every module as its source declares it, and
the first paragraph of its docstring.

`make manual` writes it to `docs/guide/api.md`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ctxagent import api

ROOT = Path(__file__).parents[2]
MODULES = re.findall(r"^\| `(\w+)` \|", api.__doc__ or "", re.MULTILINE)
START = Path(__file__).with_name("api.md.in")
MAX_VALUE_CHARS = 40
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.expr | None


def api_page() -> str:
    """Return the page as Markdown."""
    return START.read_text("utf-8") + "".join(
        f"{line}\n" for name in MODULES for line in section(name)
    )


def section(name: str) -> Iterator[str]:
    """Yield the lines about a module."""
    source = ROOT / "api" / f"{name}.py"
    yield from ("", f"## {name}", "", first_paragraph(ast.get_docstring(parsed(source))), "")
    yield from ("| name | what it is |", "| --- | --- |")
    places = dict(imported(source))
    for each in sorted(places, key=lambda each: (each.isupper(), each.lower())):
        module, there = places[each]
        node = definition(module, there)
        if node is None:
            yield row(each, f"A module. {first_paragraph(docstring_of(module, there))}")
        elif isinstance(node, ast.expr):
            value = ast.unparse(node)
            yield row(each, f"`{value}`" if len(value) <= MAX_VALUE_CHARS else "a constant")
        else:
            yield row(written(each, node), first_paragraph(ast.get_docstring(node)))
            yield from methods(each, node)


def imported(source: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name that a module of the api offers, with the module and name it comes from."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 2:
            for alias in node.names:
                if alias.name != "names_on_demand":
                    yield alias.asname or alias.name, (node.module or "", alias.name)


def definition(module: str, name: str) -> Defined:
    """Return the syntax tree of a name, or of its value; None for a module."""
    for node in ast.walk(parsed(source_of(module))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == name:
                return node
        elif isinstance(node, ast.Assign):
            if any(ast.unparse(target) == name for target in node.targets):
                return node.value
            pairs = zip(node.targets, [node.value], strict=True) if len(node.targets) == 1 else ()
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    for one, given in zip(target.elts, value.elts, strict=True):
                        if ast.unparse(one) == name:
                            return given
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return node.value or node.annotation
        elif isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            inside = module.split(".")[: -node.level] if node.level else []
            if node.level and source_of(place := ".".join([*inside, node.module or ""])).exists():
                return definition(place, name)
    return None


def written(name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function with its arguments, or a class with its fields."""
    if not isinstance(node, ast.ClassDef):
        start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{start}{name}({ast.unparse(node.args)}){result}"
    fields = [
        f"{ast.unparse(each.target)}: {ast.unparse(each.annotation)}"
        for each in node.body
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")
    ]
    return f"{name}({', '.join(fields)})" if fields else name


def methods(name: str, node: ast.AST) -> Iterator[str]:
    """Yield a row for each public method and property of a class, if `node` is one."""
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_":
            if any(ast.unparse(one) == "property" for one in each.decorator_list):
                shown = f"{name}.{each.name}: {ast.unparse(each.returns or ast.Constant(None))}"
            else:
                own = each.args.args
                del own[: bool(own and own[0].arg in ("self", "cls"))]
                shown = written(f"{name}.{each.name}", each)
            yield row(shown, first_paragraph(ast.get_docstring(each)))


def docstring_of(module: str, name: str) -> str | None:
    found = import_module(f"ctxagent.{module}")
    inner = getattr(found, name, None) or import_module(f"ctxagent.{module}.{name}")
    return inner.__doc__ if isinstance(inner, ModuleType) else None


def source_of(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text("utf-8"))


def first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def row(name: str, text: str) -> str:
    """Return a row of a table."""
    return "| `{}` | {} |".format(name.replace("|", "\\|"), text.replace("|", "\\|"))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(api_page(), "utf-8")
