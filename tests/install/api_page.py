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
            yield from contents(each, source_of(f"{module}.{there}"))
        elif isinstance(node, ast.expr):
            value = ast.unparse(node)
            is_short = len(value) <= MAX_VALUE_CHARS or is_type(node)
            yield row(each, f"`{value}`" if is_short else "a constant")
        else:
            yield from rows(each, node)


def rows(name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the row of a function, or those of a class."""
    yield row(written(name, node), first_paragraph(ast.get_docstring(node)))
    yield from methods(name, node)


def contents(name: str, source: Path) -> Iterator[str]:
    """Yield the rows of the public classes and functions of a module that is offered as a whole."""
    for node in parsed(source).body:
        is_part = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_part and node.name[0] != "_":
            yield from rows(f"{name}.{node.name}", node)


def is_type(node: ast.expr) -> bool:
    """Return True for a union of types, and for a type with arguments."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return is_type(node.left) and is_type(node.right)
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


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
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for one, given in zip(target.elts, node.value.elts, strict=True):
                        if ast.unparse(one) == name:
                            return given
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return node.value or node.annotation
        elif isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            levels = node.level - source_of(module).match("__init__.py")
            inside = module.split(".")[: -levels or None]
            if node.level and source_of(place := ".".join([*inside, node.module or ""])).exists():
                return definition(place, name)
    return None


def written(name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function with its arguments, or a class with its fields."""
    if not isinstance(node, ast.ClassDef):
        start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{start}{name}({arguments(node, is_method='.' in name)}){result}"
    made = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
    if isinstance(made, ast.FunctionDef):
        return f"{name}({arguments(made)})"
    fields = [
        f"{ast.unparse(each.target)}: {ast.unparse(each.annotation)}{default_of(each)}"
        for each in node.body
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")
    ]
    return f"{name}({', '.join(fields)})" if fields else name


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool = True) -> str:
    """Return the arguments of a function; those of a method without its object."""
    text = ast.unparse(node.args)
    return text.partition(", ")[2] if is_method and re.match(r"(self|cls)\b", text) else text


def default_of(field: ast.AnnAssign) -> str:
    """Return the default of a field of a data class, "" if it has none."""
    value = field.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        given = {each.arg: ast.unparse(each.value) for each in value.keywords}
        made = given.get("default_factory", "").partition("[")[0]
        text = given.get("default") or (made.startswith("lambda") and "…") or (made and f"{made}()")
        return f"={text}" if text else ""
    return f"={ast.unparse(value)}" if value else ""


def methods(name: str, node: ast.AST) -> Iterator[str]:
    """Yield a row for each public method and property of a class, if `node` is one."""
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_":
            if any(ast.unparse(one) == "property" for one in each.decorator_list):
                shown = f"{name}.{each.name}: {ast.unparse(each.returns or ast.Constant(None))}"
            else:
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
