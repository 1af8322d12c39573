r"""The properties of characters that `\p{…}` names, and POSIX classes.

Python knows the categories. The scripts and the properties of emoji come from a file that was made
with ripgrep (`unicode_sets.txt`).
"""

import re
import unicodedata
from collections.abc import Callable

from .char_sets import BLANK, SPACE, CharSet, Ranges, is_pcre_word, joined
from .pattern_parts import PatternError

POSIX = {
    "alnum": "azAZ09", "alpha": "azAZ", "ascii": "\0\x7f", "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f", "digit": "09", "graph": "!~", "lower": "az", "print": " ~",
    "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "word": "azAZ09__", "xdigit": "09afAF",
}  # fmt: skip
_LONG_CATEGORIES = {
    "letter": "L", "casedletter": "LC", "uppercaseletter": "Lu", "lowercaseletter": "Ll",
    "titlecaseletter": "Lt", "modifierletter": "Lm", "otherletter": "Lo", "mark": "M",
    "combiningmark": "M", "nonspacingmark": "Mn", "spacingmark": "Mc", "enclosingmark": "Me",
    "number": "N", "decimalnumber": "Nd", "digit": "Nd", "letternumber": "Nl", "othernumber": "No",
    "punctuation": "P", "punct": "P", "connectorpunctuation": "Pc", "dashpunctuation": "Pd",
    "openpunctuation": "Ps", "closepunctuation": "Pe", "initialpunctuation": "Pi",
    "finalpunctuation": "Pf", "otherpunctuation": "Po", "symbol": "S", "mathsymbol": "Sm",
    "currencysymbol": "Sc", "modifiersymbol": "Sk", "othersymbol": "So", "separator": "Z",
    "spaceseparator": "Zs", "lineseparator": "Zl", "paragraphseparator": "Zp", "other": "C",
    "control": "Cc", "cntrl": "Cc", "format": "Cf", "surrogate": "Cs", "privateuse": "Co",
    "unassigned": "Cn",
}  # fmt: skip
_CATEGORIES = (
    "L", "LC", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp",
    "C", "Cc", "Cf", "Co", "Cn",
)  # fmt: skip
_SHORT_CATEGORIES = {name.lower(): name for name in _CATEGORIES}
_BINARY: dict[str, Callable[[str], bool]] = {
    "lowercase": str.islower, "lower": str.islower, "uppercase": str.isupper,
    "upper": str.isupper, "xidstart": lambda c: c != "_" and c.isidentifier(),
    "xids": lambda c: c != "_" and c.isidentifier(),
    "xidcontinue": lambda c: f"a{c}".isidentifier(), "xidc": lambda c: f"a{c}".isidentifier(),
}  # fmt: skip


class Properties:
    """Sets of characters by name. `table` is the text of `unicode_sets.txt`: lines with the names
    of a set, a colon, and hexadecimal ranges.
    """

    def __init__(self, table: str) -> None:
        self._table = table

    def rust(self, name: str) -> CharSet:
        """Return a set by a name in Rust's syntax. Raises PatternError."""
        kind, sign, value = re.fullmatch(r"([^=:!]*)(!=|=|:|)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
        if sign and _loose(kind) not in ("gc", "generalcategory", "sc", "script"):
            raise PatternError(f"unknown property {name!r}")
        found = self._named(_loose(value or kind), with_long_names=True, name=name)
        found.negated = sign == "!="
        return found

    def pcre(self, name: str) -> CharSet:
        """Return a set by a name in PCRE2's syntax. Raises PatternError."""
        kind, sign, value = re.fullmatch(r"([^=:]*)([=:]?)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
        if sign and _loose(kind) not in ("sc", "script", "scx", "scriptextensions"):
            raise PatternError(f"unknown property {name!r}")
        key = _loose(value or kind)
        if key == "xan":
            return _of_categories("L", "N")
        if key in ("xps", "xsp"):
            return CharSet(SPACE)
        if key == "xwd":
            return CharSet(native={r"\w": is_pcre_word})
        key = "lc" if key == "l&" else key
        return self._named(key, with_long_names=False, name=name)

    def pcre_posix(self, name: str) -> CharSet:
        """Return a POSIX class, which PCRE2 defines by properties. Raises PatternError."""
        if name not in POSIX:
            raise PatternError(f"unknown POSIX class name {name!r}")
        categories = {
            "alpha": "L", "lower": "Ll", "upper": "Lu", "alnum": "L N", "cntrl": "Cc",
            "graph": "L M N P S Cf Co", "print": "L M N P S Cf Co Zs",
        }  # fmt: skip
        if name in categories:
            return _of_categories(*categories[name].split())
        if name == "punct":
            ascii = posix_ranges("punct")
            return CharSet(ascii, tests=[lambda c: unicodedata.category(c)[0] == "P"])
        if name == "digit":
            return CharSet(native={r"\d": str.isdecimal})
        if name == "word":
            return CharSet(native={r"\w": is_pcre_word})
        return CharSet({"space": SPACE, "blank": BLANK}.get(name) or posix_ranges(name))

    def _named(self, key: str, *, with_long_names: bool, name: str) -> CharSet:
        category = _SHORT_CATEGORIES.get(key)
        if category is None and with_long_names:
            category = _LONG_CATEGORIES.get(key)
        if category == "LC":
            return _of_categories("Lu", "Ll", "Lt")
        if category:
            return _of_categories(category)
        if key in _BINARY:
            return CharSet(tests=[_BINARY[key]])
        if key in ("any", "ascii"):
            return CharSet([(0, 0x7F if key == "ascii" else 0x10FFFF)])
        if key in ("whitespace", "space", "wspace"):
            return CharSet(SPACE)
        return CharSet(self._from_table(key, name))

    def _from_table(self, key: str, name: str) -> Ranges:
        for line in self._table.splitlines():
            names, _, written = line.partition(":")
            if key in names.split():
                ends = [each.split("-") for each in written.split()]
                return joined((int(each[0], 16), int(each[-1], 16)) for each in ends)
        raise PatternError(f"unknown property {name!r}")


def posix_ranges(name: str) -> Ranges:
    """Return the ranges of a POSIX class in ASCII."""
    ends = POSIX[name]
    return joined((ord(a), ord(b)) for a, b in zip(ends[::2], ends[1::2], strict=True))


def _of_categories(*names: str) -> CharSet:
    return CharSet(tests=[lambda c: unicodedata.category(c).startswith(names)])


def _loose(name: str) -> str:
    """Return a name without what Unicode lets people leave out (UAX #44, 5.9.3)."""
    key = re.sub(r"[\s_-]", "", name).lower()
    return key.removeprefix("is") if len(key) > 3 else key
