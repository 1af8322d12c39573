"""Guess the legacy encoding of a text, with a measure of certainty.

Each encoding in use is tried on a bounded sample. The decoded text gets a cost in bits: how
unlikely its characters and their order are in the most suitable language. An encoding is certain
if every other reading of the sample is `CERTAIN_BITS` less likely. The frequencies of letters come
from charset-normalizer; docs/internals/decisions/encodings.md says why its own verdict is not used.
"""

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise

from ...agent.lazy import dataclass, regex

SAMPLE_BYTES = 1_000
PIECE_BYTES = 300  # of one line
CONTEXT_BYTES = 12  # before the first byte that is not ASCII
CERTAIN_BITS = 9.0
FIRST_BYTES = 100  # of the sample, which show the hopeless encodings
HOPELESS_BITS = 40.0

# Encodings in use, with the bits that each costs before any evidence. Encodings with equal costs
# and equal readings are decided by their order.
_PRIOR_BITS = {
    "cp1252": 0, "cp1251": 0, "gbk": 0, "cp932": 0, "euc_kr": 0, "cp950": 1, "cp949": 1,
    "gb18030": 1, "euc_jp": 1, "cp1250": 1, "cp1253": 1, "cp1254": 1, "cp1255": 1, "cp1256": 1,
    "cp874": 1, "iso8859-2": 2, "iso8859-7": 2, "cp1257": 2, "koi8-r": 3, "koi8-u": 4,
    "cp866": 3, "cp1258": 3, "iso8859-15": 4, "iso8859-5": 5, "cp850": 5, "cp437": 5,
    "cp852": 6, "mac-roman": 6, "mac-cyrillic": 7,
}  # fmt: skip

_ASCII_BITS = 5.0
_FIRST_LETTER_BITS, _BITS_PER_RANK = 3.25, 0.16  # an alphabet: each letter 0.9 of the one before
_RARE_LETTER_BITS = 9.0  # of the language's script, but not among its frequent letters
_ACCENTED_BITS = 8.0
_FOREIGN_LETTER_BITS = 13.0
_BROKEN_BITS = 32.0  # control characters, unassigned and private ones
_SYLLABIC = {"CJK": 6.0, "HANGUL": 5.0, "HIRAGANA": 4.5, "KATAKANA": 6.0}
_BITS_PER_SYLLABLE = 0.04
# Characters in the first level of a standard, in the other levels, and in none.
_COMMON_BITS, _HANGUL_BITS, _UNCOMMON_BITS, _ODD_BITS = 12.5, 11.5, 17.0, 20.0
# The standard that an encoding extends, and the first and last lead byte of its first level.
_LEVELS = {
    **dict.fromkeys(("cp932", "euc_jp"), ("euc_jp", 0xB0, 0xCF, _COMMON_BITS)),
    **dict.fromkeys(("euc_kr", "cp949"), ("euc_kr", 0xB0, 0xC8, _HANGUL_BITS)),
    "cp950": ("big5", 0xA4, 0xC6, _COMMON_BITS),
}
_JAPANESE = frozenset(("CJK", "HIRAGANA", "KATAKANA"))
# The scripts that a multi-byte encoding is used for. It has the letters of others as wide symbols.
_SCRIPTS = {
    **dict.fromkeys(("cp932", "euc_jp"), _JAPANESE),
    **dict.fromkeys(("euc_kr", "cp949"), frozenset(("CJK", "HANGUL"))),
    **dict.fromkeys(("gbk", "gb18030", "cp950"), frozenset(("CJK",))),
}
_PUNCTUATION_BITS, _SYMBOL_BITS, _LINE_BITS = 9.0, 13.0, 11.0
_TYPOGRAPHIC = frozenset(
    "“”‘’„‚–—…«»‹›°§©®µ·•€£№¿¡ªº½×™ 、。，；：？！（）「」『』《》【】・ー\u00a0\u3000"
)
_VOWELS = frozenset("аеёиоуыэюяіїєαεηιουωάέήίόύώ")

# The letters of languages written in Latin that ASCII lacks. Lists of frequent letters omit some.
_ACCENTED = {
    "French": "àâçèéêëîïôùûüœæÿ", "Portuguese": "àáâãçéêíóôõú", "Spanish": "áéíñóúü",
    "German": "äöüß", "Italian": "àèéìòù", "Dutch": "éëïóöü", "English": "éèêïöñç",
    "Swedish": "åäöé", "Danish": "æøåé", "Norwegian": "æøåéòô", "Finnish": "äöåšž",
    "Estonian": "äöõüšž", "Polish": "ąćęłńóśźż", "Czech": "áčďéěíňóřšťúůýž",
    "Slovak": "áäčďéíľĺňóôŕšťúýž", "Hungarian": "áéíóöőúüű", "Slovene": "čšž", "Croatian": "čćđšž",
    "Romanian": "ăâîșțşţ", "Turkish": "çğıöşüâîû", "Lithuanian": "ąčęėįšųūž",
    "Vietnamese": "àáâãèéêìíòóôõùúýăđĩũơư\u0300\u0301\u0303\u0309\u0323",
}  # fmt: skip

# What the order of two characters costs.
_CASE_BITS, _SCRIPT_BITS, _SYMBOL_BESIDE_LETTER_BITS, _TWO_ACCENTS_BITS = 9.0, 10.0, 5.0, 4.0
_CAPITAL_BITS, _NEXT_CAPITAL_BITS, _CLUSTER_BITS = 2.0, 1.5, 1.5

_HIGH = regex(rb"[\x80-\xff]")


@dataclass(frozen=True, slots=True)
class Guess:
    """The most likely encoding. `bits` is how much less likely the next other reading is."""

    encoding: str
    bits: float

    @property
    def is_certain(self) -> bool:
        return self.bits >= CERTAIN_BITS


def guess(data: bytes, *, whole: bool = True) -> Guess:
    """Return the most likely legacy encoding of a text that is not UTF-8. An encoding that cannot
    decode the whole text is left out. The encoding is "" if there is none. Unless the text is
    `whole`, its last character may be cut.
    """
    sample = sample_of(data)
    found = _best(data, _costs(sample), whole)
    return found if found.encoding else _best(data, _costs_of(sample, _PRIOR_BITS), whole)


def _best(data: bytes, costs: Mapping[str, tuple[float, str]], whole: bool) -> Guess:
    best, best_cost, best_text = "", 0.0, ""
    for encoding, (cost, text) in sorted(costs.items(), key=lambda found: found[1][0]):
        if (best and text == best_text) or not decodes(data, encoding, whole=whole):
            continue
        if best:
            return Guess(best, cost - best_cost)
        best, best_cost, best_text = encoding, cost, text
    return Guess(best, HOPELESS_BITS if best else 0.0)


def excess(data: bytes, encoding: str) -> float:
    """Return by how many bits this encoding is less likely than the best one."""
    sample = sample_of(data)
    text = _decoded(sample, encoding)
    if text is None:
        return float("inf")
    least = min((cost for cost, _ in _costs_of(sample, _PRIOR_BITS).values()), default=0.0)
    return _cost(text, encoding) - least


def decodes(data: bytes, encoding: str, *, whole: bool = True) -> bool:
    """Return True if an encoding decodes all bytes."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def sample_of(data: bytes) -> bytes:
    """Return lines from their first byte that is not ASCII: half of the sample from the beginning,
    and half lines with bytes that the sample lacks, since encodings may differ only in those.
    """
    pieces: list[bytes] = []
    seen: set[int] = set()
    place = size = 0
    wanted = _HIGH
    while size < SAMPLE_BYTES and (found := wanted.search(data, place)):
        line = data.rfind(b"\n", place, found.start()) + 1 or place
        first = _HIGH.search(data, line) or found
        start = max(line, first.start() - CONTEXT_BYTES)
        end = data.find(b"\n", found.start())
        place = len(data) if end < 0 else end
        pieces.append(data[start : min(place, start + PIECE_BYTES)])
        size += len(pieces[-1])
        seen.update(found.group(), *pieces[-1:])
        if 2 * size >= SAMPLE_BYTES:
            unseen = bytes(each for each in range(0x80, 0x100) if each not in seen)
            wanted = re.compile(b"[%b]" % unseen if unseen else b"(?!)")
    return b"\n".join(pieces)


def _decoded(data: bytes, encoding: str) -> str | None:
    """Decode lines whose last character may be cut. Return None if a line is not valid."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        pass
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        return "\n".join(decoder().decode(line) for line in data.split(b"\n"))
    except UnicodeDecodeError:
        return None


def _costs(sample: bytes) -> dict[str, tuple[float, str]]:
    """Return the cost and the text of each encoding that decodes the sample and that its beginning
    does not make hopeless.
    """
    costs = _costs_of(sample[:FIRST_BYTES], _PRIOR_BITS)
    least = min((cost for cost, _ in costs.values()), default=0.0)
    kept = [each for each, (cost, _) in costs.items() if cost - least <= HOPELESS_BITS]
    if len(kept) == 1 or len(sample) <= FIRST_BYTES:
        return {each: costs[each] for each in kept}
    return _costs_of(sample, kept)


def _costs_of(sample: bytes, encodings: Iterable[str]) -> dict[str, tuple[float, str]]:
    costs = dict[str, tuple[float, str]]()
    known = dict[tuple[str, object], float]()  # many encodings have the same reading
    for encoding in encodings:
        if (text := _decoded(sample, encoding)) is not None:
            key = text, _SCRIPTS.get(encoding)
            if key not in known:
                known[key] = _cost(text, encoding)
            costs[encoding] = known[key] + _PRIOR_BITS[encoding], text
    return costs


def _cost(text: str, encoding: str) -> float:
    """Return how unlikely a text in an encoding is, in bits."""
    counts = Counter(text)
    ascii_bits = _ASCII_BITS * sum(n for c, n in counts.items() if c < "\x80")
    others = [(c.lower()[0], n, _class_of(c)[0]) for c, n in counts.items() if c >= "\x80"]
    unlisted = {c: _unlisted_bits(c, encoding) for c, _, _ in others}
    foreign = _FOREIGN_LETTER_BITS - _RARE_LETTER_BITS
    own = _SCRIPTS.get(encoding)
    odd = sum(n for _, n, script in others if own and script and script not in own)
    letters = min(
        sum(
            n * language.get(c, unlisted[c] + foreign * bool(script and script not in language))
            for c, n, script in others
        )
        for language in _languages_of(frozenset(script for _, _, script in others if script))
    )
    classes = [_class_of(c) for c in f"\n{text}\n"]
    pairs = Counter(pairwise(classes))
    letters += _SCRIPT_BITS * odd
    return ascii_bits + letters + sum(n * _pair_bits(*pair) for pair, n in pairs.items())


@cache
def _languages_of(scripts: frozenset[str]) -> tuple[dict[str, float], ...]:
    """Return the languages that have one of the scripts, and a language without letters."""
    return ({}, *(each for each in _languages() if not scripts.isdisjoint(each)))


@cache
def _languages() -> tuple[dict[str, float], ...]:
    """Return the cost of each frequent letter of each language, and 0 for each of its scripts."""
    from charset_normalizer.constant import FREQUENCIES  # not needed for UTF-8

    languages = {
        name: dict.fromkeys(letters, _ACCENTED_BITS) for name, letters in _ACCENTED.items()
    }
    for name, letters in FREQUENCIES.items():
        language = languages.setdefault(name.rstrip("—"), {})
        for rank, letter in enumerate(letters):
            script = _class_of(letter)[0]
            language[script] = 0.0
            first = _SYLLABIC.get(script)
            bits = _BITS_PER_SYLLABLE if first else _BITS_PER_RANK
            language[letter] = (first or _FIRST_LETTER_BITS) + bits * rank
    return tuple(languages.values())


@cache
def _unlisted_bits(character: str, encoding: str) -> float:
    """Return the cost of a character that is not among the frequent letters of a language."""
    script, kind = _class_of(character)
    if script in ("CJK", "HANGUL"):
        return _level_bits(character, encoding)
    if kind == "broken":
        return _BROKEN_BITS
    if character in _TYPOGRAPHIC:
        return _PUNCTUATION_BITS
    if "\u2500" <= character < "\u25a0":
        return _LINE_BITS
    if unicodedata.name(character, "").startswith("HALFWIDTH"):
        return _FOREIGN_LETTER_BITS
    if script == "LATIN":
        return _FOREIGN_LETTER_BITS
    return _RARE_LETTER_BITS if script else _SYMBOL_BITS


def _level_bits(character: str, encoding: str) -> float:
    """Return the cost of a Chinese character or a Korean syllable by the level of its standard."""
    standard, first, last, bits = _LEVELS.get(encoding, ("gb2312", 0xB0, 0xD7, _COMMON_BITS))
    encoded = character.encode(standard, "ignore")
    if not encoded:
        return _ODD_BITS
    return bits if first <= encoded[0] <= last else _UNCOMMON_BITS


@cache
def _class_of(character: str) -> tuple[str, str]:
    """Return the script of a letter and its kind. The script of other characters is ""."""
    category = unicodedata.category(character)
    if category in ("Cc", "Cn", "Co", "Cf", "Cs") and character not in "\t\n\r\f\x1b":
        return "", "broken"
    if category[0] in "LM":
        name = unicodedata.name(character, "").removeprefix("HALFWIDTH ")
        script = name.partition(" ")[0].partition("-")[0]
        kind = {"Lu": "upper", "Ll": "lower"}.get(category, "letter")
        if kind == "lower" and character in _VOWELS:
            kind = "vowel"
        return ("LATIN" if character in "ªº" else script), kind + "!" * (character >= "\x80")
    return "", "symbol" if category[0] == "S" and character >= "\x80" else "other"


@cache
def _pair_bits(one: tuple[str, str], two: tuple[str, str]) -> float:
    """Return the cost of one character after another in the same word."""
    (script, kind), (script2, kind2) = one, two
    if not (kind.endswith("!") or kind2.endswith("!") or "symbol" in (kind, kind2)):
        return 0.0
    bits = 0.0
    kind, kind2 = kind.rstrip("!"), kind2.rstrip("!")
    if script and script2:
        if script != script2:
            return 0.0 if {script, script2} <= _JAPANESE else _SCRIPT_BITS
        if script == "LATIN" and one[1].endswith("!") and two[1].endswith("!"):
            bits += _TWO_ACCENTS_BITS
        if kind2 == "upper":
            bits += _NEXT_CAPITAL_BITS if kind == "upper" else _CASE_BITS
        if (kind == "vowel") == (kind2 == "vowel") and script in ("CYRILLIC", "GREEK"):
            bits += _CLUSTER_BITS
    elif kind2 == "upper" and two[1].endswith("!"):
        bits += _CAPITAL_BITS
    elif "symbol" in (kind, kind2) and (script or script2):
        bits += _SYMBOL_BESIDE_LETTER_BITS
    return bits
