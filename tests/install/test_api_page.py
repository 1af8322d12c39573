"""The reference of the api is what the sources say."""

from pathlib import Path

import pytest

from ctxagent import api
from ctxagent.tests.install import api_page

PAGE = api_page.ROOT / "docs/guide/api.md"


@pytest.mark.slow
def test_the_page_is_what_the_sources_say() -> None:
    assert PAGE.read_text("utf-8") == api_page.api_page(), "run `make manual`"


def test_it_has_every_module() -> None:
    modules = {path.stem for path in Path(api.__file__).parent.glob("*.py")} - {"__init__"}
    assert {*api_page.MODULES} == modules


def test_it_lists_fields_and_methods() -> None:
    rows = [row for row in api_page.section("extension") if row.startswith("| `")]
    assert any(row.startswith("| `ToolCall(id: str,") for row in rows)
    assert any(row.startswith("| `async Feature.before_call() -> None` | Act ") for row in rows)


def test_it_lists_defaults_and_the_parts_of_modules() -> None:
    rows = list(api_page.section("session"))
    assert any(row.startswith("| `Agent(cwd: 'str \\| Path'='.', *, model: ") for row in rows)
    assert any(row.startswith("| `events.Notice(level: ") for row in rows)
    assert any("agent: str=''" in row for row in rows if row.startswith("| `events.Notice("))
    assert not [row for row in rows if row.endswith("A module.  |")]
