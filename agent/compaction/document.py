"""The summary document as a value and as Markdown: `render` writes it, `parse` reads it.

`parse` is the inverse of `render` for every document. It also accepts the variants that models
write: other heading levels, bold titles, other bullets, other titles, missing sections, and text
around the document. Text that looks like markup is escaped as a character reference (`&#35;`),
which is valid Markdown.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import zip_longest
from typing import Any

from ...tools.system.phrasing import count_of
from ..lazy import dataclass, regex
from ..session.ledger import FileAction
from .recall_hints import FINDS_THEM
from .sections import (
    LABEL,
    LABELS,
    STATE_LABELS,
    TITLES,
    UNKNOWN,
    TitledSection,
    code_lines,
    fence_mark,
    opens_section,
    sections,
)

EMPTY_SECTION = "None."
DENIED = "Not authorised: "  # begins a fact about a denied call
NOTE = "the model's note"  # marks a fact without a source
_TEXT_LISTS = (
    "decisions", "done", "in_progress", "blocked", "errors", "next_steps", "recovery",
)  # fmt: skip
REQUIRED_SECTIONS = ("intent", "decisions", "state", "next_steps")
_ACTIONS: dict[str, FileAction] = {
    "created": "created", "added": "created", "new": "created",
    "modified": "modified",
    "deleted": "deleted", "removed": "deleted",
}  # fmt: skip

_REFERENCE = regex(r"&#(\d{1,7});")
_NOTHING = regex(
    r"\W*(?:none|n/?a|nothing|no blockers)(?: yet| so far| special| new| to report)?\W*",
    re.IGNORECASE,
)
_BULLET = regex(r"( *)(?:[-*+]|\d{1,9}[.)])(?: +|$)")
_SEPARATOR = regex(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
_STATUS = "Status"
_PIPE = regex(r"(?<!\\)\|")
_PLAIN_PATH = regex(r"[\w./@+~-]+")
_QUOTED_PATH = regex(r"`([^`]*)`.*")
_PATH = regex(r"(?:`([^`]*)`|(\S+?)):?(?:\s+[—–-]+)?(?:\s+(.*))?", re.DOTALL)
_RULE_ITEM = regex(r"(?:#(\d{1,9})\b:?\s*)?(.*)", re.DOTALL)
_ANY_REF = regex(r"#(\d{1,9})\b")
_QUOTE_PAIRS = ('""', "“”", "„“", "«»", "「」", "``", "''")
_OLD_RULE = regex(r"The person ruled \(#(\d{1,9})\): (.*)", re.DOTALL)
_OLDER_FACTS = regex(rf"(\d+) older facts{FINDS_THEM}")
_FACT = regex(
    rf"(?P<text>.*)[ \n]\[(?:#(?P<ref>\d{{1,9}})"
    rf"|{NOTE}(?:, (?P<age>\d{{1,4}}) summar(?:y|ies) ago)?)\]",
    re.DOTALL,
)
_VERB = regex(r"\(?(created|modified|deleted)\b\)?(?:\s*[:,—–-]+\s*|\s*$)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileRow:
    path: str
    action: FileAction
    change: str = ""
    status: str = ""  # from records only: "complete", "partial", or changed on disk


@dataclass(frozen=True, slots=True)
class ReadRow:
    path: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class UserRule:
    """A user's sentence that a summary quotes as a rule."""

    ref: int  # of its message; 0 if unknown
    text: str  # verbatim; "" in a rendered summary without room for it


@dataclass(frozen=True, slots=True)
class SummaryFact:
    """A statement of a summary, with its source."""

    text: str
    ref: int = 0  # of the entry that the model quoted for it; 0 if no quotation was found
    age: int = 0  # of a fact without a source: summaries by a model since it was stated

    @property
    def is_recorded(self) -> bool:
        """True for a line of this program: a denied call, or the number of dropped facts."""
        return self.text.startswith(DENIED) or bool(_OLDER_FACTS.fullmatch(self.text))

    @property
    def is_note(self) -> bool:
        """True if only the model says so."""
        return not (self.ref or self.is_recorded)

    @property
    def older_count(self) -> int:
        """The number of dropped facts that this line counts; 0 for other lines."""
        found = _OLDER_FACTS.fullmatch(self.text)
        return int(found[1]) if found else 0


def older_facts(count: int) -> SummaryFact:
    """Return the line that counts dropped facts."""
    return SummaryFact(f"{count} older facts{FINDS_THEM}")


@dataclass(frozen=True, slots=True)
class SummaryDocument:
    """A summary by section. Texts may have several lines. Items of tuples are never empty."""

    intent: str = ""
    rules: tuple[UserRule, ...] = ()
    modified: tuple[FileRow, ...] = ()
    read: tuple[ReadRow, ...] = ()
    decisions: tuple[str, ...] = ()
    phase: str = ""
    done: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    facts: tuple[SummaryFact, ...] = ()
    errors: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    recovery: tuple[str, ...] = ()
    other: tuple[SummaryFact, ...] = ()  # sections with titles of the model's own

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SummaryDocument":
        """Read the output of `to_json`; sections may be missing. Raises ValueError for a wrong
        shape.
        """
        names = [f.name for f in fields(cls) if f.name in data]
        document = cls(**{name: _from_json(name, data[name]) for name in names})
        return document if "rules" in data else _with_old_rules(document)


_ROWS: dict[str, type[FileRow | ReadRow | UserRule | SummaryFact]] = {
    "modified": FileRow, "read": ReadRow, "rules": UserRule, "facts": SummaryFact,
    "other": SummaryFact,
}  # fmt: skip


def _with_old_rules(document: SummaryDocument) -> SummaryDocument:
    """Move rules that an older version stored as facts to the rules section."""
    found = [_OLD_RULE.fullmatch(fact.text) for fact in document.facts]
    return replace(
        document,
        rules=tuple(UserRule(int(rule[1]), rule[2]) for rule in found if rule),
        facts=tuple(t for t, rule in zip(document.facts, found, strict=True) if rule is None),
    )


def _from_json(name: str, value: Any) -> Any:
    if name in ("facts", "other") and isinstance(value, list):  # texts in older logs
        value = [asdict(SummaryFact(each)) if isinstance(each, str) else each for each in value]
    row = _ROWS.get(name)
    if name in ("intent", "phase"):
        if isinstance(value, str):
            return value
    elif isinstance(value, list):
        if row and all(_is_row(v, row) for v in value):
            return tuple(row(**v) for v in value)
        if not row and all(isinstance(v, str) for v in value):
            return tuple(value)
    raise ValueError(f"summary.{name} has the wrong type for its section")


def _is_row(value: Any, row: type[FileRow | ReadRow | UserRule | SummaryFact]) -> bool:
    types = {f.name: f.type for f in fields(row)}
    names = set(types)
    texts = isinstance(value, dict) and all(
        isinstance(v, int if types.get(name) is int else str) for name, v in value.items()
    )
    return texts and names - {"status"} <= value.keys() <= names  # older logs have no status


def render(document: SummaryDocument, *, filled: bool = False) -> str:
    """Return the document as Markdown with all sections in order. Empty sections say "None."; with
    `filled` they are left out.
    """
    body = {
        "intent": _intent(document.intent),
        "rules": _list(map(_rule_text, document.rules), numbered=True),
        "modified": _table(document.modified),
        "read": _list(_read_text(row) for row in document.read),
        "decisions": _list(map(_escape, document.decisions), numbered=True),
        "state": "" if filled and not _has_state(document) else _state(document),
        "facts": _list(map(_escaped_fact, document.facts), numbered=True),
        "errors": _list(map(_escape, document.errors)),
        "next_steps": _list(map(_escape, document.next_steps), numbered=True),
        "recovery": _list(map(_escape, document.recovery)),
        "other": _list(_escape(note.text) for note in document.other),
    }
    shown = {name: t for name, t in body.items() if t or not (filled or name == "other")}
    return "\n\n".join(
        f"## {TITLES[name]}\n{text or EMPTY_SECTION}" for name, text in shown.items()
    )


def parse(text: str) -> SummaryDocument:
    """Read the document in a text. Text before the first section is ignored."""
    all_sections = sections(text)
    found = _lines_by_name(all_sections)
    state = _state_lines(found["state"])
    lists: dict[str, Any] = {name: _texts((found | state)[name]) for name in _TEXT_LISTS}
    notes = (*_texts(found["other"]), *filter(None, map(_other_text, all_sections)))
    return SummaryDocument(
        intent=_text(found["intent"]),
        rules=tuple(filter(None, map(_rule, _texts(found["rules"])))),
        modified=tuple(_file_rows(found["modified"])),
        read=tuple(ReadRow(*_path_and_rest(item)) for item in _items(found["read"])),
        phase=_text([_dedent(line, 2) for line in state["phase"]]),
        facts=tuple(map(_fact, _texts(found["facts"]))),
        other=tuple(map(SummaryFact, notes)),
        **lists,
    )


def superseded_lines(text: str) -> tuple[str, ...]:
    """Return the lines that mark entries of an earlier document as no longer true."""
    return _texts(_lines_by_name(sections(text))["superseded"])


def missing_titles(text: str) -> list[str]:
    """Return the titles of the required sections that are missing or empty. The intent must not be
    "None."; other sections may be. A section may consist of sections with deeper titles.
    """
    all_sections = sections(text)
    filled = {
        section.name
        for section, after in zip_longest(all_sections, all_sections[1:])
        if section.is_filled
        or (after and after.name == UNKNOWN and after.level > section.level and after.is_filled)
    }
    if _NOTHING.fullmatch("\n".join(_lines_by_name(all_sections)["intent"]).strip()):
        filled.discard("intent")
    return [TITLES[name] for name in REQUIRED_SECTIONS if name not in filled]


# Writing


def fact_text(fact: SummaryFact) -> str:
    """Return a fact with its mark: the ref of its source, or that it is the model's note."""
    return f"{fact.text}{_fact_mark(fact)}"


def _escaped_fact(fact: SummaryFact) -> str:
    return f"{_escape(fact.text)}{_fact_mark(fact)}"


def _fact_mark(fact: SummaryFact) -> str:
    if fact.is_recorded:
        return ""
    age = f", {count_of(fact.age, 'summary', 'summaries')} ago" if fact.age else ""
    gap = "\n" if "\n" in fact.text else " "  # the last line may be a fence
    return f"{gap}[#{fact.ref}]" if fact.ref else f"{gap}[{NOTE}{age}]"


def _escape(text: str) -> str:
    """Escape a text so that stripping blanks or matching "none" does not change it."""
    text = _REFERENCE.sub(lambda found: f"&#38;{found[0][1:]}", text).replace("\r", "&#13;")
    if text and (text[0].isspace() or _NOTHING.fullmatch(text)):
        text = _character_reference(text[0]) + text[1:]
    if text and text[-1].isspace():
        text = text[:-1] + _character_reference(text[-1])
    return _escape_lines(text)


def _escape_lines(text: str, *, all_of_them: bool = False) -> str:
    """Escape the lines that change how a text is read: headings after the first line, which also
    count when they are indented, and code fences, unpaired or `all_of_them`.
    """
    lines = text.split("\n")
    code = {} if all_of_them else code_lines(lines)
    for place, line in enumerate(lines):
        if place not in code and (mark := fence_mark(line)):
            lines[place] = line.replace(mark, _character_reference(mark[0]) + mark[1:], 1)
        elif place and place not in code and opens_section(f"  {line}"):
            lines[place] = line.replace("#", _character_reference("#"), 1)
    return "\n".join(lines)


def _character_reference(character: str) -> str:
    return f"&#{ord(character)};"


def _intent(text: str) -> str:
    lines = _escape(text).split("\n")
    for place, line in enumerate(lines):
        if opens_section(line):
            lines[place] = _character_reference(line[0]) + line[1:]
    return "\n".join(lines)


def _list(items: Iterable[str], *, numbered: bool = False, indent: str = "") -> str:
    out = []
    for number, item in enumerate(items, 1):
        mark = f"{indent}{number}. " if numbered else f"{indent}- "
        out.append(mark + _indent_continuation(item, " " * len(mark)))
    return "\n".join(out)


def _indent_continuation(text: str, indent: str) -> str:
    return re.sub(r"\n(?!\n|$)", f"\n{indent}", text)


def _has_state(document: SummaryDocument) -> bool:
    return any((document.phase, document.done, document.in_progress, document.blocked))


def _state(document: SummaryDocument) -> str:
    phase = _escape_lines(_escape(document.phase), all_of_them=True)
    lines = [f"- **{STATE_LABELS['phase']}:** {_indent_continuation(phase, '  ') or EMPTY_SECTION}"]
    for name in ("done", "in_progress", "blocked"):
        texts = map(_escape, getattr(document, name))
        items = _list(texts, numbered=name == "blocked", indent="  ")
        lines.append(
            f"- **{STATE_LABELS[name]}:**{f'{chr(10)}{items}' if items else f' {EMPTY_SECTION}'}"
        )
    return "\n".join(lines)


def _table(rows: Sequence[FileRow]) -> str:
    if not rows:
        return ""
    head, line = "| File | Action | What Changed |", "| --- | --- | --- |"
    if not any(row.status for row in rows):
        return "\n".join([head, line, *map(row_line, rows)])
    lines = (f"{row_line(row)} {_cell(_escape(row.status))} |" for row in rows)
    return "\n".join([f"{head} {_STATUS} |", f"{line} --- |", *lines])


def row_line(row: FileRow) -> str:
    """Return the table row of a changed file, without its status."""
    change = _escape(row.change).replace("\n", "&#10;")
    return f"| {_cell(_path(row.path))} | {row.action} | {_cell(change)} |"


def _cell(text: str) -> str:
    return text.replace("\\|", "&#92;|").replace("|", "\\|")


def _path(path: str) -> str:
    """Return the path. Wrap it in backticks unless it is a single plain word."""
    if _PLAIN_PATH.fullmatch(path) and not _NOTHING.fullmatch(path):
        return path
    text = (
        _escape(path)
        .replace("`", _character_reference("`"))
        .replace("\n", _character_reference("\n"))
    )
    return f"`{text}`"


def _rule_text(rule: UserRule) -> str:
    return _escape(f'#{rule.ref}: "{rule.text}"') if rule.text else f"#{rule.ref}"


def _rule(item: str) -> UserRule | None:
    """Parse a rule item, without its quotation marks. For an item in another form, use all of it as
    the text and the first ref in it.
    """
    found = _RULE_ITEM.fullmatch(item)
    assert found is not None  # the pattern matches any text
    ref, text = int(found[1] or 0), found[2]
    if not ref and (named := _ANY_REF.search(text)):
        ref = int(named[1])
    if len(text) > 1 and text[0] + text[-1] in _QUOTE_PAIRS:
        text = text[1:-1]
    return UserRule(ref, text) if ref or text else None


def _fact(item: str) -> SummaryFact:
    found = _FACT.fullmatch(item)
    return (
        SummaryFact(found["text"], int(found["ref"] or 0), int(found["age"] or 0))
        if found
        else SummaryFact(item)
    )


def _read_text(row: ReadRow) -> str:
    why = _escape_lines(_escape(row.why), all_of_them=True)
    return f"{_path(row.path)} — {why}" if why else _path(row.path)


# Reading


def _decode(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = int(found[1])
        return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else found[0]

    return _REFERENCE.sub(character, text)


def _lines_by_name(found: Iterable[TitledSection]) -> defaultdict[str, list[str]]:
    """Return the lines of the known sections. Sections with the same title are joined."""
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for section in found:
        if section.name != UNKNOWN:
            lines[section.name] += section.lines
    return lines


def _other_text(section: TitledSection) -> str:
    """Return a section with an unknown title as one text; "" for other sections."""
    body = "" if section.name != UNKNOWN else _text(section.lines)
    return f"{_decode(section.title)}\n{body}".strip() if body else ""


def _text(lines: Sequence[str]) -> str:
    text = "\n".join(lines).strip()
    return "" if _NOTHING.fullmatch(text) else _decode(text)


def _texts(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_decode, _items(lines)))


def _items(lines: Sequence[str]) -> list[str]:
    """Return the items of a list; character references are not decoded. Nested bullets and indented
    lines belong to the item above. Each paragraph is a separate item.
    """
    items: list[list[str]] = []
    base: int | None = None
    width, blank = 0, True
    code = code_lines(lines)
    for place, line in enumerate(lines):
        in_code = code.get(place, False)
        bullet = None if in_code else _BULLET.match(line)
        if bullet and (base is None or len(bullet[1]) < base + 2):
            base = len(bullet[1]) if base is None else base
            width, blank = bullet.end(), False
            items.append([line[width:]])
        elif not line:
            blank = True
            if items:
                items[-1].append("")
        elif place not in code and fence_mark(line):
            blank = False  # an unpaired fence
        elif not items or (blank and not in_code and not line[0].isspace()):
            width, blank = 2, False
            items.append([line])
        else:
            blank = False
            items[-1].append(_dedent(line, width))
    texts = ("\n".join(item).strip() for item in items)
    return [text for text in texts if text and not _NOTHING.fullmatch(text)]


def _dedent(line: str, width: int) -> str:
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


def _state_lines(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of each part of the state. Lines without a label are work in progress."""
    found: dict[str, list[str]] = {name: [] for name in STATE_LABELS}
    part = found["in_progress"]
    for line in lines:
        label = LABEL.fullmatch(line)
        if label is None:
            part.append(line)
            continue
        part = found[LABELS[label[1].lower()]]
        if label[2]:
            part.append(label[2])
    return found


def _file_rows(lines: Sequence[str]) -> Iterator[FileRow]:
    table = [line.strip() for line in lines if line.lstrip().startswith("|")]
    if not table:
        for item in _items(lines):
            path, change = _path_and_rest(item)
            verb = _VERB.match(change)
            rest = change[verb.end() :].lstrip() if verb else change
            reads_on = verb is not None and verb[0][-1:].isalpha()  # "created the …"
            yield FileRow(
                path,
                _ACTIONS[verb[1].lower()] if verb else "modified",
                change if reads_on and rest else rest,
            )
        return
    headed = len(table) > 1 and _SEPARATOR.fullmatch(table[1]) is not None
    titles = [cell.lower() for cell in _cells(table[0])] if headed else []
    at = titles.index("path") if "path" in titles else 0
    for line in table[2:] if headed else table:
        cells = _cells(line)
        name = cells.pop(at) if at < len(cells) else ""
        if not name:
            continue
        # A table of artifacts has name, path and status, and no column for the action.
        action = "created" if at else cells.pop(0).lower() if cells else ""
        status = cells.pop() if titles[-1:] == [_STATUS.lower()] and not at and cells else ""
        change = " | ".join(cells)
        quoted = _QUOTED_PATH.fullmatch(name)
        yield FileRow(
            _decode(quoted[1] if quoted else name),
            _ACTIONS.get(action, "modified"),
            "" if _NOTHING.fullmatch(change) else _decode(change),
            _decode(status),
        )


def _cells(line: str) -> list[str]:
    inner = re.sub(r"^\||(?<!\\)\|$", "", line)
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(inner)]


def _path_and_rest(text: str) -> tuple[str, str]:
    match = _PATH.fullmatch(text)
    assert match is not None  # an item has at least one non-blank character
    path, rest = match[1] if match[1] is not None else match[2], match[3] or ""
    return _decode(path), _decode(rest)
