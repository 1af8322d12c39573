"""Checks the rules of prose that a machine can check: pages, docstrings, commit subjects."""

import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
MODULES = [*ROOT.glob("agent/**/*.py"), *ROOT.glob("tools/**/*.py")]
MAX_WORDS = 40  # of a sentence, or of a part of it between semicolons or colons
MAX_SUBJECT_CHARS = 72
PLAIN = {  # a pattern, and what to write instead
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"by hand|by your own hand": "manually, yourself",
    r"of (ours|theirs)": "our, their",
    r"the persons?": "the user",
    r"beside": "next to, in addition to",
    r"whoever": "who",
    r"(told|tell|tells) of": "reported, reports",
    r"(tell|tells|told) whether": "return True if, show whether",
    r"gives? way": "is replaced",
}
WORDS = [(re.compile(rf"\b({odd})\b", re.IGNORECASE), plain) for odd, plain in PLAIN.items()]
HEADING = re.compile(r"(To|What|Why|When|Where|Who|How(?! it works)|If|Once|The way|It)\b")
DOCSTRING = re.compile(r'^ *r?"""(.*?)"""', re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```.*?^ *```|^ {4,}[^\n]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|\]\([^)]*\)", re.DOTALL)  # and links
BLOCK = re.compile(r"\n\s*\n|\n(?= *(?:[-*#]|\d+\.) )|\n?(?<!\\)\|")
SUBJECT = re.compile(r"(feat|fix|refactor|test|docs|perf|chore|style)(\([a-z0-9-]+\))?!?: [^A-Z].*")


def texts() -> Iterator[tuple[str, int, str]]:
    """Yield each page and each docstring: its file, the line it begins at, and the text."""
    for path in (*PAGES, *MODULES):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if path.suffix == ".md":
            yield name, 1, text
            continue
        for found in DOCSTRING.finditer(text):
            yield name, text.count("\n", 0, found.start()) + 1, cleandoc(found[1])


def broken_rules(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and the description of each place that breaks a rule."""
    prose = FENCE.sub(lambda code: re.sub("[^\n]", " ", code[0]), text)  # of the same length
    prose = CODE.sub(lambda code: re.sub("[^\n]", "_", code[0]), prose)
    at = 0
    for block in BLOCK.split(prose):
        at = prose.index(block, at)
        title = re.match(r"#+ (.*)", block)
        if title and HEADING.match(title[1]):
            yield at, f"heading {title[1]!r}: name the topic with a noun"
        for sentence in re.split(r"(?<=[.!?:;])\s+", block):
            if len(words := re.findall(r"\S*\w\S*", sentence)) > MAX_WORDS:
                yield at, f"{len(words)} words: {' '.join(words[:9])} …"
        for odd, plain in WORDS:
            for found in odd.finditer(block):
                yield at + found.start(), f"{found[0]!r}: write {plain}"


def odd_subjects() -> Iterator[str]:
    """Yield the newest commit subjects that do not have the form `type(area): imperative`."""
    log = ["git", "log", "--no-merges", "-20", "--format=%s"]
    newest = subprocess.run(log, cwd=ROOT, capture_output=True, text=True).stdout
    for subject in newest.splitlines():
        if not SUBJECT.fullmatch(subject) or len(subject) > MAX_SUBJECT_CHARS:
            yield f"commit subject: {subject}"


if __name__ == "__main__":
    wrong = list(odd_subjects())
    for name, first, text in texts():
        places = broken_rules(text)
        wrong += [f"{name}:{first + text.count(chr(10), 0, at)}: {why}" for at, why in places]
    print("\n".join(wrong) or "Prose: no rule is broken.")
    sys.exit(bool(wrong))
