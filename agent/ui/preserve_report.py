"""Reports on the content that a compaction keeps or may remove, and on missing sections: plain text
for users, JSON for programs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..compaction import preserve
from ..compaction.preserve import PreservedSection, missing_sections
from ..config import preservation
from ..config.preservation import COMPACTABLE_CATEGORIES, KEPT_CATEGORIES, PreserveRules
from ..errors import UsageError
from ..session.ledger import Ledger

MAX_SECTION_LINES = 3
MAX_LINE_CHARS = 100
SETTINGS_PREFIX = "preserve."
CREATE_COMMAND = "ctxagent preserve {} --create"


def rules(rules: PreserveRules, origins: Mapping[str, str]) -> str:
    """Return the rules in force, with their effect and their source (`origins`, by key)."""
    lines = [f"always kept{_from(origins, 'always')}"]
    for name, category in KEPT_CATEGORIES.items():
        off = "" if name in rules.always else "off: "
        lines.append(f"  {name:<20}  {off}{_where(name, rules)}{category.help}; {category.how}")
    lines += ["", f"may be cleared{_from(origins, 'compactable')}"]
    for name, removable in COMPACTABLE_CATEGORIES.items():
        off = "" if name in rules.compactable else "off: "
        lines.append(f"  {name:<20}  {off}{removable.how}")
        lines.append(f"  {'':<20}  {removable.when}; in its place: {removable.replacement}")
    then = "prevents a compaction" if rules.strict else "is reported before a compaction"
    lines += ["", f"a missing section {then}{_from(origins, 'strict')}"]
    return "\n".join(lines)


def rules_json(rules: PreserveRules, origins: Mapping[str, str]) -> str:
    document = {
        "always": [
            {"name": name, "kept": name in rules.always, "what": category.help, "how": category.how}
            for name, category in KEPT_CATEGORIES.items()
        ],
        "compactable": [
            {"name": name, "compactable": name in rules.compactable, **asdict(removable)}
            for name, removable in COMPACTABLE_CATEGORIES.items()
        ],
        "strict": rules.strict,
        "notes": rules.notes,
        "run_state": rules.run_state,
        "origins": {
            key.removeprefix(SETTINGS_PREFIX): source
            for key, source in origins.items()
            if key.startswith(SETTINGS_PREFIX)
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def check(
    cwd: Path,
    rules: PreserveRules,
    ledger: Ledger,
    phase: str,
    name: str = "",
    *,
    create: bool = False,
) -> list[PreservedSection]:
    """Return the section of one category, by any of its names, or the sections of all kept
    categories. `create` writes missing sections first. A named category, or one to be created,
    counts as expected. Raises UsageError for an unknown category.
    """
    name = preservation.canonical_category(name)
    if name and name not in KEPT_CATEGORIES:
        import difflib

        parts = {part: full for full in preservation.ALWAYS for part in (*full.split("_"), full)}
        near = difflib.get_close_matches(name, parts, 1)
        hint = (
            f"Did you mean {parts[near[0]]}?"
            if near
            else f"One of {', '.join(preservation.ALWAYS)}."
        )
        raise UsageError(f"there is no category {name!r}", hint=hint)
    always, expected = (name,) if name else rules.always, bool(name) or create or rules.expected
    rules = replace(rules, always=always, expected=expected)
    found = preserve.preserved_sections(cwd, rules, ledger, phase)
    if not create:
        return found
    for gone in [name] if name else [section.name for section in missing_sections(found)]:
        preserve.create_section(cwd, rules, gone)
    return preserve.preserved_sections(cwd, rules, ledger, phase)


def sections(found: Sequence[PreservedSection]) -> str:
    """Describe each category: whether it was found, where, its beginning, how to create it."""
    lines = [*_how_to_start(found)]
    for section in found:
        state = "ok" if section.found else "MISSING" if section.critical else "none"
        place, problem = section.where, section.problem
        if problem:
            place = problem if place in problem else f"{place}: {problem}"
        lines.append(f"{state:<8} {section.name:<20}  {place}")
        text = [line for line in section.text.split("\n") if line.strip()]
        lines += [f"{'':<30} {line[:MAX_LINE_CHARS]}" for line in text[:MAX_SECTION_LINES]]
        if len(text) > MAX_SECTION_LINES:
            lines.append(f"{'':<30} … {len(text) - MAX_SECTION_LINES:,} more lines")
    gone = missing_sections(found)
    lines += [f"Create it: {CREATE_COMMAND.format(section.name)}" for section in gone]
    return "\n".join(lines)


def _how_to_start(found: Sequence[PreservedSection]) -> list[str]:
    """Return lines that explain the notes file, if there is none and none is required."""
    free = [s for s in found if KEPT_CATEGORIES[s.name].heading and not (s.found or s.critical)]
    if not free:
        return []
    names = " and ".join(f'"{KEPT_CATEGORIES[section.name].heading}"' for section in free)
    return [
        f"Text under {names} in {free[0].where} is kept word for word in every "
        "compaction. This project has no such file; it is optional.",
        "Start one: /preserve --create, or `ctxagent preserve --create`",
        "",
    ]


def sections_json(found: Sequence[PreservedSection]) -> str:
    document: dict[str, Any] = {
        "sections": [asdict(section) for section in found],
        "missing": [section.name for section in missing_sections(found)],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _from(origins: Mapping[str, str], key: str) -> str:
    source = origins.get(SETTINGS_PREFIX + key, "default")
    return "" if source == "default" else f" (from {source})"


def _where(name: str, rules: PreserveRules) -> str:
    if KEPT_CATEGORIES[name].heading:
        return f'"{KEPT_CATEGORIES[name].heading}" in {rules.notes}: '
    return f"{rules.run_state}: " if name == "run_state" else ""
