"""Split a shell command into the simple commands that it runs.

`parse` uses tree-sitter's bash grammar. It lists every simple command in pipelines, substitutions,
here-documents, loops and functions, and the commands that wrappers such as `sudo` or `sh -c` start.
Every command that bash would run is among the parts, or `doubt` gives the reason why that is not
certain. A text that the grammar and bash may parse differently is doubtful. For text that the
grammar cannot parse, the commands are guessed. Pure: runs nothing and reads no file.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from ...lazy import dataclass, regex
from .wrappers import HARMLESS_VARIABLE, InnerCommands, find_inner_commands, is_shell, name_set

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

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


MAX_PARSED_BYTES = 30_000  # longer commands are not parsed but doubtful
MAX_SCRIPT_DEPTH = 4  # levels of `sh -c "sh -c …"`
MAX_WRAPPER_DEPTH = 16  # levels of `sudo env nice …`
MAX_PARSED_WORDS = 100_000  # in all commands of a text; beyond this it is doubtful
MAX_ROUNDS = 20  # rounds of a loop that are judged one by one
MAX_NODE_DEPTH = 200  # levels of nested syntax

_LOOP_NAME = regex(r"[a-z][a-z0-9_]{0,15}")
_LOOP_VARIABLE = regex(r'"\$\{?([a-z][a-z0-9_]{0,15})\}?"|\$\{?([a-z][a-z0-9_]{0,15})\}?')
_FOLDER_CHANGERS = frozenset(("cd", "pushd", "popd"))
_PLAIN = regex(r"[\w./+@%:,-]+")
_SUBSTITUTION = regex(r"\$\((?!\()(.*)\)", re.DOTALL)
_GLUED_CONTINUATION = regex(r"(?<![ \t])\\\n|\\[ \t]\\\n")
_BEFORE_COMMENT = regex(r"(?:^|[\n;&|(]|[^\\][ \t])\Z")
_UNCERTAIN = "it cannot be parsed with certainty"
_SEPARATORS = (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"(", b")")
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str  # as the command receives it, without quotes; the source if not `fixed`
    fixed: bool = True  # the shell expands nothing in it
    glob: bool = False  # it has an unquoted * ? or [
    split: bool = False  # the shell splits matching names at blanks
    whole: bool = True  # it remains one word when the shell expands it
    # The command of a `$(…)` that is the whole word, else "".
    command: str = ""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command."""

    words: tuple[Word, ...]
    source: str
    doubt: str = ""  # why a prefix rule cannot allow it
    # As harmless as its inner command, which is also in the list of parts (`timeout 5 …`).
    wrapper: bool = False
    # As harmless as its inner command with the file names that it passes on (`xargs wc -l`).
    passes_names: bool = False

    @property
    def name(self) -> str:
        return self.words[0].text


@dataclass(frozen=True, slots=True)
class Script:
    """A whole command: its parts in order, and the files that redirections read and write."""

    text: str
    parts: tuple[SimpleCommand, ...] = ()
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    doubt: str = ""  # why the list of parts may be incomplete
    folder_changes: tuple[SimpleCommand, ...] = ()  # the parts that change the shell's folder


@lru_cache(maxsize=64)
def parse(text: str) -> Script:
    """Return the parts of a command. Accepts any text and never raises. The cost depends only on
    the length of the text.
    """
    return _Reader(text, 0, _ParseCost()).script()


@dataclass(slots=True)
class _ParseCost:
    """The cost so far of parsing one command, including the scripts that it passes to shells."""

    words: int = 0
    script_bytes: int = 0
    added: set[tuple[Word, ...]] = field(default_factory=set)  # inner commands of wrappers

    def allows(self, words: int = 0, script_bytes: int = 0) -> bool:
        """Add to the cost. Return True if it is still within the limits."""
        self.words += words
        self.script_bytes += script_bytes
        return self.words <= MAX_PARSED_WORDS and self.script_bytes <= MAX_PARSED_BYTES


@cache
def _bash_parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@dataclass(slots=True)
class _Reader:
    """One pass over one command."""

    text: str
    depth: int
    cost: _ParseCost
    parts: list[SimpleCommand] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    input_texts: list[str] = field(default_factory=list)  # texts of here-documents and here-strings
    source: bytes = b""

    def script(self) -> Script:
        self.source = self.text.encode("utf-8", "replace")
        depths = accumulate({"(": 1, ")": -1}.get(character, 0) for character in self.text)
        # The grammar is slow for long or deeply nested text.
        if len(self.source) > MAX_PARSED_BYTES or max(depths, default=0) > MAX_NODE_DEPTH:
            self.doubts.append(_UNCERTAIN)
        else:
            self._check_text()
            self._walk()
        if any(is_shell(part.name) for part in self.parts) and self.depth < MAX_SCRIPT_DEPTH:
            self._add_input_commands()
        if _UNCERTAIN in self.doubts:
            self._guess()
        doubt = next(iter(self.doubts), "")
        return Script(
            self.text, tuple(self.parts), tuple(self.reads), tuple(self.writes), doubt,
            tuple(part for part in self.parts if part.name in _FOLDER_CHANGERS),
        )  # fmt: skip

    def _check_text(self) -> None:
        """Mark the text as doubtful if the grammar and bash read some of its characters
        differently.
        """
        odd = any(not c.isprintable() and c not in "\t\n" for c in self.text)
        odd = odd or any(c.isspace() and c not in " \t\n" for c in self.text)
        if odd or "\\`" in self.text or _GLUED_CONTINUATION.search(self.text):
            self.doubts.append(_UNCERTAIN)

    def _walk(self) -> None:
        # To bash, characters beyond ASCII are letters; the grammar's scanner crashes on some.
        shadow = re.sub(rb"[^\t\n -~]", b"x", self.source)
        root = _bash_parser().parse(shadow).root_node
        stack = [(root, 0)]
        while stack:
            node, level = stack.pop()
            token = not node.is_named and node.type != "\n"
            if node.is_error or node.is_missing or (token and self.slice(node) != node.type):
                self.doubts.append(_UNCERTAIN)
            elif visit := _VISITS.get(node.type):
                visit(self, node)
            elif node.is_named and node.type not in PASSIVE_NODES:
                self.doubts.append(f"it uses {node.type.replace('_', ' ')}")
            self._check_gaps(node, whole=not level)
            if level < MAX_NODE_DEPTH:
                stack.extend((child, level + 1) for child in reversed(node.children))
            elif node.children:
                self.doubts.append(_UNCERTAIN)

    def _check_gaps(self, node: "Node", *, whole: bool) -> None:
        """Mark a node as doubtful if the grammar skipped more than blanks between its children."""
        children = node.children
        if node.type == "string" or not (children or whole):
            return
        commands = node.type in ("command", "negated_command")
        ends = [0 if whole else node.start_byte, *(child.end_byte for child in children)]
        starts = [*(child.start_byte for child in children), node.end_byte]
        if whole:
            starts[-1] = len(self.source)
        for place, (end, start) in enumerate(zip(ends, starts, strict=True)):
            gap = self.source[end:start].replace(b"\\\n", b" ")
            skipped = b"\\" in gap or (commands and b"\n" in gap)
            glued = commands and not gap and 0 < place < len(children)
            if skipped or glued or (gap and node.type == "concatenation"):
                self.doubts.append(_UNCERTAIN)

    def _add_input_commands(self) -> None:
        """Add the commands that a shell may receive as its input from here-documents, here-strings
        and echo.
        """
        echoed = [p for p in self.parts if p.name in ("echo", "printf")]
        texts = [*self.input_texts, *(" ".join(word.text for word in p.words[1:]) for p in echoed)]
        texts += [word.text for part in echoed for word in part.words[1:] if " " in word.text]
        for text in texts:
            script = self._script_within(text)
            for part in script.parts if script else ():
                doubt = part.doubt or "a shell may run it from its input"
                self.parts.append(replace(part, doubt=doubt, wrapper=False))

    def _script_within(self, text: str) -> Script | None:
        """Parse a script that is passed to a shell. If the scripts are too long, add a doubt and
        return None.
        """
        if self.cost.allows(script_bytes=len(text.encode("utf-8", "replace"))):
            return _Reader(text, self.depth + 1, self.cost).script()
        self.doubts.append(_UNCERTAIN)
        return None

    def _guess(self) -> None:
        """Guess the commands in a text that cannot be parsed with certainty, for deny rules."""
        for words, source in guess_commands(self.text):
            self.add([Word(text) for text in words], source, _UNCERTAIN)

    def slice(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def add(self, words: Sequence[Word], source: str, doubt: str = "", level: int = 0) -> None:
        """Add one simple command and the commands that it starts."""
        if not words[0].fixed or words[0].glob:
            doubt = doubt or "the name of a command is known only at run time"
        if NOT_A_COMMAND_NAME.fullmatch(words[0].text):
            self.doubts.append(_UNCERTAIN)
        inner = find_inner_commands([word.text for word in words])
        wrapper = inner.transparent and not doubt
        passes_names = inner.passes_names and not doubt
        self.parts.append(
            SimpleCommand(tuple(words), source, doubt or inner.doubt, wrapper, passes_names)
        )
        if not self.cost.allows(words=len(words) * max(1, len(inner.spans))):
            self.doubts.append(_UNCERTAIN)
        elif level < MAX_WRAPPER_DEPTH:
            self._add_inner(words, inner, level + 1)
        else:
            self.doubts.append("it nests commands too deeply")

    def _add_inner(self, words: Sequence[Word], inner: InnerCommands, level: int) -> None:
        for start, stop in inner.spans:
            within = tuple(words[start:stop])
            if within and within not in self.cost.added:
                self.cost.added.add(within)
                self.add(within, " ".join(word.text for word in within), level=level)
        if inner.script and self.depth < MAX_SCRIPT_DEPTH:
            script = self._script_within(inner.script)
            self.parts += script.parts if script else ()
            self.reads += script.reads if script else ()
            self.writes += script.writes if script else ()

    def command(self, node: "Node") -> None:
        """Add a simple command with its assignments. Redirections are visited separately."""
        doubt = ""
        arguments = []
        for child in node.children:
            if child.type == "variable_assignment":
                doubt = doubt or self._assignment_doubt(child)
            elif child.type not in _REDIRECTS:
                arguments.append(child)
        arguments += self._stray(node)
        source = " ".join(self.slice(child) for child in arguments)
        for words in self._in_each_round(arguments):
            self.add(words, source, doubt)

    def _in_each_round(self, arguments: "Sequence[Node]") -> Iterator[list[Word]]:
        """Yield the words of a command once. For a command that uses the variable of a loop over
        known words, yield them once per round with the variable's value.
        """
        words = [self.word(child) for child in arguments]
        rounds = {n: found for n, child in enumerate(arguments) if (found := self._rounds(child))}
        values = next(iter(rounds.values()), [])
        if not words or not values or any(other != values for other in rounds.values()):
            yield from [words] if words else []
            return
        for value in values:
            yield [value if n in rounds else word for n, word in enumerate(words)]

    def _rounds(self, node: "Node") -> list[Word]:
        """Return the values of a loop variable. Return [] if the node is not a loop variable or its
        values are not certain.
        """
        found = _LOOP_VARIABLE.fullmatch(self.slice(node))
        if found is None:
            return []
        quoted, name = bool(found[1]), found[1] or found[2]
        loop = node.parent
        while loop is not None:
            variable = loop.child_by_field_name("variable")
            if loop.type == "for_statement" and variable and self.slice(variable) == name:
                break
            loop = loop.parent
        if loop is None or re.search(rf"\b{name}(?:\+|\[.*\])?=", self.text):
            return []
        values = [self.word(child) for child in loop.children_by_field_name("value")]
        known = len(values) <= MAX_ROUNDS and all(
            word.fixed and (quoted or word.glob or _PLAIN.fullmatch(word.text)) for word in values
        )
        return [replace(word, split=word.glob and not quoted) for word in values] if known else []

    def _stray(self, node: "Node") -> "Iterator[Node]":
        """Yield arguments that the grammar attaches to a redirection: `git > out status`."""
        statement = node.parent
        if statement is not None and statement.type == "negated_command":
            statement = statement.parent
        if statement is None or statement.type != "redirected_statement":
            return
        for redirect in statement.children:
            if redirect.type == "file_redirect":
                yield from redirect.children_by_field_name("destination")[1:]
            elif redirect.type == "heredoc_redirect":
                yield from (c for c in redirect.children if c.type in WORD_NODES)
                for nested in redirect.children:
                    if nested.type == "file_redirect":
                        yield from nested.children_by_field_name("destination")[1:]

    def _assignment_doubt(self, node: "Node") -> str:
        name, sign, value = self.slice(node).partition("=")
        fixed = all(self.word(child).fixed for child in node.children[2:])
        if sign and fixed and "$" not in value and HARMLESS_VARIABLE.fullmatch(name):
            return ""
        return f"it sets {name or 'a variable'}"

    def assignment(self, node: "Node") -> None:
        """Mark a separate assignment as doubtful, since it affects later commands, unless no
        program or shell could use the variable.
        """
        if node.parent is not None and node.parent.type != "command":
            name, sign, value = self.slice(node).partition("=")
            if not (sign and _LOOP_NAME.fullmatch(name)) or "proxy" in name:
                self.doubts.append(f"it sets {name}")
            elif "/" in value and re.search(r"[*?[]", value):
                self.doubts.append(f"it sets {name} to a pattern for paths")

    def declaration(self, node: "Node") -> None:
        words = [Word(text) for text in self.slice(node).split()]
        self.add(words, self.slice(node), "it changes the shell's variables")

    def function(self, node: "Node") -> None:
        self.doubts.append("it defines a function")

    def loop(self, node: "Node") -> None:
        variable = node.child_by_field_name("variable")
        if variable is None or not _LOOP_NAME.fullmatch(self.slice(variable)):
            self.doubts.append("its loop sets a variable that programs may read")

    def test(self, node: "Node") -> None:
        text = self.slice(node)
        if test_evaluates_operands(text):
            self.doubts.append("its test evaluates its operands")
        if "\n" in text and not text.startswith("[["):
            self.doubts.append(_UNCERTAIN)

    def expansion(self, node: "Node") -> None:
        if not SIMPLE_EXPANSION.fullmatch(self.slice(node)):
            self.doubts.append("it evaluates an expression with a variable")

    def compound(self, node: "Node") -> None:
        text = self.slice(node)
        if text.startswith("(("):
            self.doubts.append("it evaluates an expression with a variable")
        elif not text[1:2].isspace():
            self.doubts.append(_UNCERTAIN)

    def comment(self, node: "Node") -> None:
        before = self.source[max(0, node.start_byte - 2) : node.start_byte]
        if not _BEFORE_COMMENT.search(before.decode("utf-8", "replace")):
            self.doubts.append(_UNCERTAIN)

    def plain(self, node: "Node") -> None:
        if re.search(r"\s", re.sub(r"\\.", "", self.slice(node), flags=re.DOTALL)):
            self.doubts.append(_UNCERTAIN)

    def redirect(self, node: "Node") -> None:
        operator = next((c.type for c in node.children if not c.is_named), "")
        targets = node.children_by_field_name("destination")
        self._check_descriptor(node)
        if targets[1:]:  # arguments, or a separate command
            self.doubts.append("words follow a redirection")
            self.add([self.word(each) for each in targets[1:]], self.slice(node))
        if not targets or (operator.endswith("&") and self.slice(targets[0]).isdigit()):
            return
        if operator not in ("<", ">", ">>", "&>", "&>>", ">|", ">&", "<&"):
            self.doubts.append(_UNCERTAIN)
        target = self.word(targets[0])
        if ">" not in operator:
            self.reads.append(target)
        elif target.text not in _HARMLESS_TARGETS or not target.fixed:
            self.writes.append(target)

    def _check_descriptor(self, node: "Node") -> None:
        """Mark a file descriptor as doubtful unless bash reads it as one: digits right before a
        redirection.
        """
        before = self.source[node.start_byte - 1 : node.start_byte]
        for child in node.children:
            if child.type == "file_descriptor" and not (
                self.slice(child).isdigit() and before in _SEPARATORS
            ):
                self.doubts.append(_UNCERTAIN)

    def heredoc(self, node: "Node") -> None:
        """Check a here-document. Unlike bash, the grammar accepts an indented delimiter as the end.
        Bash may also run commands in an unquoted body that the grammar does not see.
        """
        self._check_descriptor(node)
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
        self.input_texts.append(self.slice(body) if body else "")
        if start is None or end is None:
            self.doubts.append(_UNCERTAIN)
            return
        opening, text = self.slice(start), self.slice(body) if body else ""
        quoted = re.fullmatch(r"""(['"])(\w+)\1|\\(\w+)""", opening)
        name = (quoted[2] or quoted[3]) if quoted else opening
        line = self.source[self.source.rfind(b"\n", 0, end.start_byte) + 1 :].partition(b"\n")[0]
        last = line.decode("utf-8", "replace")
        if "<<-" in parts:
            last = last.lstrip("\t")
        early = any(each.strip() == name for each in text.split("\n"))
        if not re.fullmatch(r"\w+", name) or last != name or early:
            self.doubts.append(_UNCERTAIN)
        elif not quoted and re.search(r"[`\\]|\$[({\[]", text):
            self.doubts.append("its here-document is expanded at run time")

    def herestring(self, node: "Node") -> None:
        self._check_descriptor(node)
        self.input_texts += [
            self.word(child).text for child in node.children if child.type in WORD_NODES
        ]

    def word(self, node: "Node") -> Word:
        """Return the value of one word. A word that is not understood is not `fixed`."""
        raw = self.slice(node)
        if node.type in ("command_name", "concatenation"):
            return self._joined(node, raw)
        if node.type == "raw_string":
            return Word(raw[1:-1])
        if node.type == "ansi_c_string":
            text = decode_ansi_c(raw[2:-1])
            return Word(raw, fixed=False, whole=False) if text is None else Word(text)
        if node.type == "string":
            literal = re.sub(r'\\([$`"\\])|\\\n', r"\1", raw[1:-1])
            plain = re.sub(r"\\.", "", raw, flags=re.DOTALL)
            many = "$@" in raw or "[@]" in raw
            fixed = not re.search(r"[$`]", plain)
            return Word(literal) if fixed else Word(raw, fixed=False, whole=not many)
        if node.type in ("word", "number") or not node.is_named:
            bare = re.sub(r"\\.", "", raw, flags=re.DOTALL)
            glob = bool(re.search(r"[*?\[]", bare))
            fixed = not (re.search(r"""[$`'"]""", bare) or may_name_shell_folder(raw))
            fixed = fixed and not (glob and has_quoted_bracket(raw))
            text = re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL)
            return Word(text if fixed else raw, fixed, glob, whole=fixed and not glob)
        inner = _SUBSTITUTION.fullmatch(raw) if node.type == "command_substitution" else None
        return Word(raw, fixed=False, whole=False, command=inner[1] if inner else "")

    def _joined(self, node: "Node", raw: str) -> Word:
        pieces = [self.word(child) for child in node.children]
        outside = "".join(self.slice(c) for c in node.children if c.type == "word")
        braces = "{" in outside and re.search(r",|\.\.", outside)
        text = "".join(piece.text for piece in pieces)
        glob = any(piece.glob for piece in pieces)
        fixed = all(piece.fixed for piece in pieces) and not braces
        fixed = fixed and not (glob and has_quoted_bracket(raw))
        whole = all(piece.whole for piece in pieces) and not braces
        return Word(text if fixed else raw, fixed, glob, whole=whole)


_VISITS: dict[str, Callable[[_Reader, "Node"], None]] = {
    "command": _Reader.command,
    "variable_assignment": _Reader.assignment,
    "declaration_command": _Reader.declaration,
    "unset_command": _Reader.declaration,
    "function_definition": _Reader.function,
    "for_statement": _Reader.loop,
    "test_command": _Reader.test,
    "expansion": _Reader.expansion,
    "arithmetic_expansion": _Reader.expansion,
    "compound_statement": _Reader.compound,
    "comment": _Reader.comment,
    "word": _Reader.plain,
    "file_redirect": _Reader.redirect,
    "heredoc_redirect": _Reader.heredoc,
    "herestring_redirect": _Reader.herestring,
}
