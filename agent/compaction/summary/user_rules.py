"""The user's rules in a summary. The model names and lifts rules; the code only checks quotations.

A rule counts if a user message contains its words. The whole sentence is kept verbatim. It stays
until the model names it as lifted and quotes a later user message.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from unicodedata import east_asian_width

from ...context.tokens import estimate
from ...lazy import regex
from ...session.user_messages import LoggedMessage
from ..document import UserRule

RULES_SHARE = 0.10  # of the window, for the texts of rules; older rules keep only their ref
MIN_QUOTE_WIDTH = 4  # columns of a quotation; shorter ones match nearly everywhere
MAX_RULE_CHARS = 1_000  # of a rule

_SENTENCE_END = regex(r"(?<=[.!?])\s+|(?<=[。！？।])|\n+")
_QUOTED = regex(
    r"[\"“”„«「]([^\"“”„«»」]{2,})[\"”“»」]|`([^`]{2,})`|(?<!\w)['‘]([^'’]{2,})['’](?!\w)"
)
_CUT_SHORT = regex(r"\s*(?:…|\.\.\.)\s*$")
_SAME = str.maketrans(dict.fromkeys("‘’‚‛", "'") | dict.fromkeys("“”„‟«»", '"'))
_MARKUP = "`*"  # models may add it to a quotation, or omit it

TextOf = Callable[[LoggedMessage], str]  # returns the whole text of a message


def quotations(text: str) -> list[str]:
    """Return the quoted texts in a text, in order."""
    return [next(filter(None, found)) for found in _QUOTED.findall(text)]


def quoted_sentence(text: str, quoted: str) -> str:
    """Return the sentences of a text that contain the quoted words, verbatim; "" if there are none.
    Case, blanks, backticks and the style of quotation marks are ignored. The quotation may end with
    "…".
    """
    found = _place(text, quoted)
    if found is None:
        return ""
    first, last = found
    ends = [0, *(gap.end() for gap in _SENTENCE_END.finditer(text)), len(text)]
    start = max(end for end in ends if end <= first)
    end = min(end for end in ends if end >= last)
    whole = text[start:end].strip()
    return whole if len(whole) <= MAX_RULE_CHARS else text[first:last][:MAX_RULE_CHARS]


def _place(text: str, quoted: str) -> tuple[int, int] | None:
    """Return the start and end of the quoted words in a text, else None."""
    words = _CUT_SHORT.sub("", quoted).translate(_SAME)
    for mark in _MARKUP:
        words = words.replace(mark, "")
    if sum(1 + (east_asian_width(c) in "WF") for c in words if not c.isspace()) < MIN_QUOTE_WIDTH:
        return None
    pattern = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
    if found := pattern.search(text.translate(_SAME)):
        return found.span()
    if not any(mark in text for mark in _MARKUP):
        return None
    places = [n for n, character in enumerate(text) if character not in _MARKUP]
    found = pattern.search("".join(text[n] for n in places).translate(_SAME))
    return (places[found.start()], places[found.end() - 1] + 1) if found else None


def quoted_rules(
    named: Iterable[UserRule], messages: Sequence[LoggedMessage], text_of: TextOf
) -> tuple[UserRule, ...]:
    """Return the rules that a user message contains, each with the message's ref. If the rule's ref
    is missing or wrong, use the newest message that contains the rule.
    """
    return tuple(
        found for rule in named if rule.text and (found := _found(rule, messages, text_of))
    )


def _found(rule: UserRule, messages: Sequence[LoggedMessage], text_of: TextOf) -> UserRule | None:
    by_age = sorted(messages, key=lambda message: (message.ref == rule.ref, message.ref))
    for words in (rule.text, *sorted(quotations(rule.text), key=len, reverse=True)):
        for message in reversed(by_age):
            if sentence := quoted_sentence(text_of(message), words):
                return UserRule(message.ref, sentence)
    return None


def lifting_quotation(
    claim: str, rule: UserRule, messages: Sequence[LoggedMessage], text_of: TextOf
) -> str:
    """Return the sentence that a claim quotes from a message after the rule; "" if it quotes none.
    The claim's first quotation is the rule itself and is skipped.
    """
    for quoted in quotations(claim)[1:]:
        if quoted_sentence(rule.text, quoted):
            continue  # a later message may repeat the rule
        for message in messages:
            if message.ref <= rule.ref or message.is_attached:
                continue
            if sentence := quoted_sentence(text_of(message), quoted):
                return f"the user (#{message.ref}): {sentence}"
    return ""


def merged_rules(old: Iterable[UserRule], new: Iterable[UserRule]) -> tuple[UserRule, ...]:
    """Return all rules, oldest first. A repeated rule gets the newer ref."""
    merged: dict[str, UserRule] = {}
    for rule in (*old, *new):
        key = " ".join(rule.text.casefold().split()) or f"#{rule.ref}"
        kept = merged.get(key)
        merged[key] = rule if kept is None or kept.ref < rule.ref else kept
    return tuple(sorted(merged.values(), key=lambda rule: rule.ref))


def rules_within(rules: Sequence[UserRule], room: int) -> tuple[UserRule, ...]:
    """Return the rules, with the texts of the newest that fit in `room` tokens. Older rules have
    only their ref, without repetitions.
    """
    kept: list[UserRule] = []
    for rule in reversed(rules):
        room -= estimate(f'#{rule.ref}: "{rule.text}"') + 4
        if room < 0 or not rule.text:
            break
        kept.insert(0, rule)
    older = dict.fromkeys(UserRule(rule.ref, "") for rule in rules[: len(rules) - len(kept)])
    return (*older, *kept)


def rule_lines(rules: Iterable[UserRule]) -> Iterator[str]:
    """Yield a plain line for each rule, for use among facts."""
    for rule in rules:
        yield f'The user (#{rule.ref}): "{rule.text}"' if rule.text else f"Recall #{rule.ref}"
