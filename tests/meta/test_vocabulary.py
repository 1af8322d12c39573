"""What people read uses one word for one thing: those of the table in docs/guide/context.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.compaction.layers.known import LAYERS
from ctxagent.agent.config.settings import OLD_SECTIONS
from ctxagent.agent.session.entries import LAYER_NAMES

ROOT = Path(__file__).parents[2]
ROOMS = ("agent/ui", "agent/cli", "addons/doctor", "addons/export", "addons/replay/report")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TEMPLATES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.j2"))
TERMS = (ROOT / "docs" / "internals" / "terms.md").read_text()
GUIDE = (ROOT / "docs" / "guide" / "context.md").read_text()
# Words of the code, the log and the settings, for which people have plain ones.
BANNED = re.compile(
    r"\b(?:(?:un)?mask\w*|stub\w*|microcompact\w*|demot\w+|cut short"
    r"|offload\w*|(?:un)?compress\w*|summed)\b",
    re.IGNORECASE,
)
# The status report and the event log have the form that a source document gives them.
FORMS = {
    "agent/ui/compaction_report.py": (
        "Monitor, prepare compression (/compact --dry-run shows what it would do)",
        "### Compression History",
        "## Compression Event Log · #",
        "## Compression Metrics · ",
    ),
    "agent/cli/guide_index.py": ("compact summary summarize compress shorten",),
    "agent/ui/commands/command_context.py": ("compression log",),
    "addons/export/page_entries.py": (r"## Offloaded Content Reference\n\*\*File:\*\* (.+)\n",),
}
# Names of the source documents, shown on request and with their presets.
PROTOCOL = re.compile(r"\b(?:GREEN|YELLOW|ORANGE|CRITICAL|TIER_\d|HOOK-CTX)\b")
PRESETS = re.compile(r"\b(?:v5|ctx-001|anchored|ledger)\b")
LOWER_KEY = re.compile(r"\b(?:esc|enter|tab|ctrl-\w|shift-tab|alt-enter)(?::| to )")
PLURAL_BY_HAND = re.compile(r"""\{["']s["'] (?:\*|if) """)


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a module that are more than a name; no docstrings."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and " " in value.strip() and id(node) not in alone:
            yield value


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.slow
def test_texts_have_the_words_that_people_see() -> None:
    odd, lower = [], []
    for path in MODULES:
        name = place(path)
        for text in texts(path):
            if BANNED.search(text) and text not in FORMS.get(name, ()):
                odd.append(f"{name}: {text}")
            if LOWER_KEY.search(text):
                lower.append(f"{name}: {text}")
    assert odd == []
    assert lower == [], "keys are written as Esc"


def test_pages_have_the_words_that_people_see() -> None:
    odd = []
    for path in TEMPLATES:
        shown = re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", "", path.read_text(), flags=re.DOTALL)
        odd += [f"{place(path)}: {word}" for word in BANNED.findall(shown)]
    assert odd == []


def test_names_of_the_source_documents_are_in_one_section_of_the_guide() -> None:
    start = GUIDE.index("### Names of the published protocol")
    section = GUIDE[start : GUIDE.index("\n## ", start)]
    assert len(set(PROTOCOL.findall(section))) > 5
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "guide").glob("*.md")}
    pages["context.md"] = GUIDE.replace(section, "")
    pages["README.md"] = (ROOT / "README.md").read_text()
    found = {name: PROTOCOL.findall(text) for name, text in pages.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_help_explains_presets_without_names_of_documents() -> None:
    manual = (ROOT / "share" / "man" / "man1" / "ctxagent.1").read_text().replace("\\-", "-")
    assert PROTOCOL.findall(manual) + PRESETS.findall(manual) == []


def test_every_word_that_is_let_through_is_there() -> None:
    for name, known in FORMS.items():
        assert set(known) <= set(texts(ROOT / name)), name


@pytest.mark.parametrize("room", ["agent", "tools", "addons"])
def test_the_plural_is_made_in_one_place(room: str) -> None:
    found = [p for p in (ROOT / room).rglob("*.py") if PLURAL_BY_HAND.search(p.read_text())]
    assert [place(path) for path in found] == []


def test_the_guide_has_the_words_of_every_layer() -> None:
    for layer in LAYERS:
        row = rf"^\| .* \| \*\*{re.escape(layer.heading())}\*\* .*\| `{layer.name}`"
        assert re.search(row, GUIDE, re.MULTILINE)


def test_the_page_of_terms_has_the_names_of_every_layer() -> None:
    for layer in LAYER_NAMES:
        row = rf"^\| .* \| {layer.word} \| .* \| `{layer.logged}` \| `{layer.counted}` \|$"
        assert re.search(row, TERMS, re.MULTILINE), layer
    for old, word in OLD_SECTIONS.items():
        assert re.search(rf"^\| {old} \| {word} \| `\[{old}\]`", TERMS, re.MULTILINE), old


def test_a_logged_name_is_in_one_module() -> None:
    """The declared sections of settings are the only other place."""
    names = {layer.logged for layer in LAYER_NAMES} - {layer.word for layer in LAYER_NAMES}
    quoted = re.compile(rf"""["'](?:{"|".join(names)})["']""")
    rooms = ("agent", "tools", "addons", "api")
    modules = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    found = [place(path) for path in modules if quoted.search(path.read_text())]
    assert sorted(found) == ["agent/config/settings.py", "agent/session/entries.py"]


def test_guides_have_no_old_word_for_an_act() -> None:
    old = re.compile(r"\b(?:microcompact\w*|demot\w+|cut short)\b", re.IGNORECASE)
    for path in sorted((ROOT / "docs" / "guide").rglob("*.md")):
        prose = re.sub(r"`[^`]*`", "", path.read_text())
        assert not old.findall(prose), path.name
