"""Bash syntax: node types of tree-sitter's grammar, quoting, expansions and tests. For text that
the grammar cannot parse, it guesses the commands.
"""

import re
from collections.abc import Iterator

from ...lazy import regex
from .wrappers import name_set

# Words that bash reads as syntax or an assignment, not as the name of a command.
NOT_A_COMMAND_NAME = regex(
    r"\w+\+?=.*|.*[{}].*|!|\(|if|then|elif|else|fi|while|until|for|select|do|done|case|esac|in"
    r"|function|\[\[|\]\]",
    re.DOTALL,
)
# Node types that need no check: only their children are visited.
PASSIVE_NODES = name_set(
    "program list pipeline redirected_statement subshell compound_statement if_statement "
    "elif_clause else_clause while_statement do_group case_statement case_item negated_command "
    "command_substitution process_substitution command_name word string string_content "
    "raw_string ansi_c_string concatenation number simple_expansion variable_name "
    "special_variable_name brace_expression variable_assignments heredoc_start heredoc_content "
    "heredoc_end heredoc_body file_descriptor herestring_redirect test_operator "
    "binary_expression unary_expression parenthesized_expression regex extglob_pattern"
)
# Node types that a word of a command may have.
WORD_NODES = frozenset(
    ("word", "string", "raw_string", "ansi_c_string", "concatenation", "number",
     "simple_expansion", "expansion", "command_substitution", "process_substitution")
)  # fmt: skip

_ESCAPE = regex(
    r"\\(?:x(?P<hex>[\da-fA-F]{1,2})|u(?P<short>[\da-fA-F]{1,4})|U(?P<long>[\da-fA-F]{1,8})"
    r"|(?P<octal>[0-7]{1,3})|(?P<plain>.))",
    re.DOTALL,
)
_ESCAPE_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
# Expansions of a plain variable or of arithmetic with plain numbers.
SIMPLE_EXPANSION = regex(
    r"\$\{#?\w+\}|\$\(\([\d\s+*/%()<>=!&|^~-]*\)\)|\$\[[\d\s+*/%()<>=!&|^~-]*\]"
)
# `[[ x -gt y ]]` and `-v` evaluate their operands, including subscripts.
_EVALUATING_OPERATOR = regex(r"\s-(?:eq|ne|lt|le|gt|ge)\s|[\s!(&|]-[vR]\s")
_QUOTED = regex(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
# `~`, `~/x` and `~name` are home folders; only the shell knows `~+`, `~-` and `~1`.
_FOLDER_OF_THE_SHELL = regex(r"(?:^|[=:])~(?![A-Za-z_/]|$)")

MAX_GUESSED_WORDS = 4_000  # of one command
_COMMAND_SEPARATORS = regex(r"[;&|\n(){}`]+")
_BRACES = regex(r"\{([^{}\s]+)\}")  # {curl,x} is `curl x`
_OPENING_WORDS = frozenset(("!", "do", "then", "else", "if", "while", "time"))


def decode_ansi_c(body: str) -> str | None:
    """Decode the body of `$'…'` as bash does. Return None if only bash can decode it."""
    pieces, end = [], 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()])
        end = match.end()
        code = match["hex"] or match["short"] or match["long"]
        number = int(code, 16) if code else int(match["octal"], 8) if match["octal"] else None
        if number is None:
            meant = _ESCAPE_LETTERS.get(match["plain"])
        else:
            meant = chr(number) if 0 < number < 128 else None
        if meant is None:
            return None
        pieces.append(meant)
    return "".join([*pieces, body[end:]])


def test_evaluates_operands(test: str) -> bool:
    """Return True if a test evaluates its operands as code, or may do so at run time. In `[`, an
    unquoted variable or pattern can expand to operators.
    """
    if _EVALUATING_OPERATOR.search(test):
        return True
    return not test.startswith("[[") and bool(re.search(r"[$*?\[]", _QUOTED.sub("", test[1:])))


def may_name_shell_folder(word: str) -> bool:
    """Return True if a word may start with a folder known only to the running shell (`~+`)."""
    return bool(_FOLDER_OF_THE_SHELL.search(word))


def has_quoted_bracket(word: str) -> bool:
    """Return True if a pattern has a bracket and quotes, so that the bracket may be literal."""
    return "[" in word and bool(re.search(r"""[\\'"]""", word))


def guess_commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words and the source of each possible command in a text."""
    whole = _BRACES.sub(lambda match: match[1].replace(",", " "), text.replace("\\\n", ""))
    seen = set()
    for piece in _COMMAND_SEPARATORS.split(whole):
        if piece in seen:
            continue
        seen.add(piece)
        bare = re.sub(r"""[\\'"]""", "", re.sub(r"""\$(?=['"])""", "", piece))
        words = bare.split(maxsplit=MAX_GUESSED_WORDS)[:MAX_GUESSED_WORDS]
        while words and words[0] in _OPENING_WORDS:
            del words[0]
        if words:
            yield words, piece.strip()
