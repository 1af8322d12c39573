"""Each error that a user can resolve names the next step."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ctxagent.agent import errors

ROOT = Path(errors.__file__).resolve().parents[1]
RESOLVABLE = (
    errors.UsageError,
    errors.NoSuchSession,
    errors.CompactionFailed,
    errors.NoCredentials,
)
NAMES = {
    name
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, RESOLVABLE)
} | {"CtxagentError"}
WITHOUT = {"interrupted"}  # by the user
FINDINGS = ROOT / "addons" / "fleet" / "findings.py"  # each finding has the right form in its text


def _without_hint(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id not in NAMES or {"hint", None} & {each.arg for each in node.keywords}:
            continue
        if not (isinstance(node.args[0], ast.Constant) and node.args[0].value in WITHOUT):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_each_error_that_a_user_can_resolve_has_a_hint() -> None:
    paths = [path for top in ("agent", "addons", "tools") for path in (ROOT / top).rglob("*.py")]
    assert len(paths) > 100
    found = [each for path in paths if path != FINDINGS for each in _without_hint(path)]
    assert not found, "\n".join(["add hint=…, the next step:", *found])
