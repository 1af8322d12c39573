"""What a compaction keeps and may take, and whether what it keeps is there: for people who ask,
as plain text, and for programs as JSON. No terminal is needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..compaction import preserve
from ..compaction.categories import ALWAYS, KEPT, TAKEN, Rules, canonical
from ..compaction.preserve import Section, missing
from ..errors import UsageError
from ..record.ledger import Ledger

FIRST_LINES = 3  # of a section that are shown
LONGEST = 100  # characters of each
SECTION = "preserve."  # of the settings
CREATE = "ctxagent preserve {} --create"


def rules(rules: Rules, origins: Mapping[str, str]) -> str:
    """The rules in force, what each means here, and where they are from: `origins` by key."""
    lines = [f"always kept{_from(origins, 'always')}"]
    for name, kept in KEPT.items():
        off = "" if name in rules.always else "not on the list: "
        lines.append(f"  {name:<20} {off}{_where(name, rules)}{kept.help}; {kept.how}")
    lines += ["", f"may go{_from(origins, 'compactable')}"]
    for name, taken in TAKEN.items():
        off = "" if name in rules.compactable else "not on the list: "
        lines.append(f"  {name:<20} {off}{taken.how}")
        lines.append(f"  {'':<20} {taken.when}; in its place: {taken.replacement}")
    told = "prevents a compaction" if rules.strict else "is told before a compaction"
    lines += ["", f"a section that is missing {told}{_from(origins, 'strict')}"]
    return "\n".join(lines)


def rules_json(rules: Rules, origins: Mapping[str, str]) -> str:
    document = {
        "always": [
            {"name": name, "kept": name in rules.always, "what": kept.help, "how": kept.how}
            for name, kept in KEPT.items()
        ],
        "compactable": [
            {"name": name, "compactable": name in rules.compactable, **asdict(taken)}
            for name, taken in TAKEN.items()
        ],
        "strict": rules.strict,
        "notes": rules.notes,
        "run_state": rules.run_state,
        "origins": {
            key.removeprefix(SECTION): source
            for key, source in origins.items()
            if key.startswith(SECTION)
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def check(
    cwd: Path, rules: Rules, ledger: Ledger, phase: str, name: str = "", *, create: bool = False
) -> list[Section]:
    """What there is of one category, by any of its names, or of all that are kept. Who asks expects
    the sections, also where there is no notes file. With `create` the missing ones are written
    first. Raises UsageError for a name that is none."""
    name = canonical(name)
    if name and name not in KEPT:
        import difflib

        parts = {part: full for full in ALWAYS for part in (*full.split("_"), full)}
        near = difflib.get_close_matches(name, parts, 1)
        hint = f"Did you mean {parts[near[0]]}?" if near else f"One of {', '.join(ALWAYS)}."
        raise UsageError(f"there is no category {name!r}", hint=hint)
    rules = replace(rules, always=(name,) if name else rules.always, expected=True)
    found = preserve.sections(cwd, rules, ledger, phase)
    if not create:
        return found
    for gone in [name] if name else [section.name for section in missing(found)]:
        preserve.create(cwd, rules, gone)
    return preserve.sections(cwd, rules, ledger, phase)


def sections(found: Sequence[Section]) -> str:
    """Each category: whether it is there, where, how it begins, and what creates it."""
    lines = []
    for section in found:
        state = "ok" if section.found else "MISSING" if section.critical else "none"
        problem = f": {section.problem}" if section.problem else ""
        lines.append(f"{state:<8} {section.name:<20} {section.where}{problem}")
        text = [line for line in section.text.split("\n") if line.strip()]
        lines += [f"{'':<29} {line[:LONGEST]}" for line in text[:FIRST_LINES]]
        if len(text) > FIRST_LINES:
            lines.append(f"{'':<29} … {len(text) - FIRST_LINES:,} more lines")
    gone = missing(found)
    lines += [f"Create it: {CREATE.format(section.name)}" for section in gone]
    return "\n".join(lines)


def sections_json(found: Sequence[Section]) -> str:
    document: dict[str, Any] = {
        "sections": [asdict(section) for section in found],
        "missing": [section.name for section in missing(found)],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _from(origins: Mapping[str, str], key: str) -> str:
    source = origins.get(SECTION + key, "default")
    return "" if source == "default" else f" (from {source})"


def _where(name: str, rules: Rules) -> str:
    if KEPT[name].heading:
        return f'"{KEPT[name].heading}" in {rules.notes}: '
    return f"{rules.run_state}: " if name == "run_state" else ""
