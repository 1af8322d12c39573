"""Check what the context of a played recording must still contain, whatever its summaries say.

survivors(played)  # {"paths": Share(12, 12), "rules": …, "errors": …}
"""

import re

from ctxagent.addons.replay.results import Share
from ctxagent.agent.session.entries import Entry, User
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import content_text

from .recording import Played

MAX_WORDS_CHARS = 1_500  # of a user message; longer messages are assumed to be pasted
MAX_RULE_CHARS = 200
BEGINNING_CHARS = 50  # beginning of a user message that a summary quotes

_SENTENCE = re.compile(r"(?<=[.!])\s+|\n+")
_RULE = re.compile(r"(?:please )?(?:never|do not|don['’]t|under no circumstances)\b", re.I)
_ROW = re.compile(r"^\| `?([^`|\n]+?)`? \| (created|modified|deleted) \|", re.M)
_LIST_MARK = re.compile(r"(?:[-*•]|\d+[.)])\s+")


def survivors(played: Played) -> dict[str, Share]:
    """Return the share of each kind of fact that the last context contains."""
    entries, ledger = read_log(played.log).entries, Ledger()
    for entry in entries:
        ledger.add(entry)
    rows = dict(_ROW.findall(played.context))
    files = ledger.files.values()
    named = [f for f in files if rows.get(f.path, f.action) == f.action and _has(played, f.path)]
    words = [
        row for row in (*ledger.typed_messages[:1], *ledger.typed_messages[-1:]) if row[1].strip()
    ]
    heard = [1 for ref, text in words if _refers(played, ref) or _has(played, _beginning(text))]
    errors = ledger.unresolved()
    open_ones = [  # two commands may fail with one error
        fact for fact in errors
        if _refers(played, fact.ref) or _has(played, _beginning("".join(fact.errors[-1:])))
    ]  # fmt: skip
    rules = _rules(entries)
    return {
        "paths": Share(len(named), len(files)),
        "words": Share(len(heard), len(words)),
        "rules": Share(sum(_has(played, rule) for rule in rules), len(rules)),
        "errors": Share(len(open_ones), len(errors)),
    }


def lost(played: Played) -> list[str]:
    """Return the missing rules, for diagnosis."""
    said = _rules(read_log(played.log).entries)
    return [text for text in said if not _has(played, text)]


def _has(played: Played, text: str) -> bool:
    return _plain(text) in _plain(played.context)


def _refers(played: Played, ref: int) -> bool:
    """Return True if an entry is in the context, or its ref is."""
    named = re.search(rf"#{ref}\b", played.context)
    return played.view.position(ref) is not None or named is not None


def _beginning(text: str) -> str:
    return text.strip()[:BEGINNING_CHARS].rpartition(" ")[0]


def _rules(entries: list[Entry]) -> list[str]:
    """Return what the user forbids in short messages, as plain imperatives."""
    found: dict[str, None] = {}
    for entry in entries:
        text = content_text(entry.content) if isinstance(entry, User) else ""
        pasted = len(text) > MAX_WORDS_CHARS or text.lstrip().startswith("<")
        for line in () if pasted else _SENTENCE.split(text):
            sentence = _LIST_MARK.sub("", line.strip(), count=1)
            short = len(sentence) <= MAX_RULE_CHARS and not sentence.endswith(("?", ":"))
            if short and _RULE.match(sentence):
                found.setdefault(sentence)
    return list(found)


def _plain(text: str) -> str:
    """Return a text normalized for comparison: without emphasis, with single blanks."""
    return " ".join(re.sub(r"[*`]", "", text).replace("\\|", "|").split()).casefold()
