"""Signs in the words of a reply and the arguments of its calls, read with patterns alone.

They tell whether a sentence asks for the task, declares the work done or says what is left, which
words of a text are telling, and what a call is about. The patterns are English; another language
shows no sign.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...session.entries import Block

MAX_TEXT_CHARS = 16_000  # of one text that are read
MAX_ARGUMENT_CHARS = 300  # of one argument of a call
MAX_LINE_CHARS = 160  # of a call, or of a quotation, in one line
MAX_SENTENCE_CHARS = 1_000
MAX_CACHED_TEXTS = 256  # with their terms
STEM_CHARS = 5  # by which "deployment" is known to be about "deploying"

_THING = (
    r"(?:what|which|task|goal|more|context|errors?|files?|code|details|information|stack|logs?"
    r"|project|instructions|requirements?|scope|specifications?|where|how)"
)
ASKS_FOR_TASK = re.compile(
    r"\bwhat (?:would|do|should|can) (?:you like|you want|you need|I) (?:me to |to )?"
    r"(?:do|work on|help)"
    r"|\bhow (?:can|may) I help\b"
    r"|\bwhat (?:is|was|['’]s|exactly is) (?:the|your) (?:task|goal|request|question)\b"
    r"|\b(?:(?:could|can|would) you (?:please |kindly )?|please )"
    r"(?:clarify|tell me|describe|remind me|share|provide|paste|explain|specify|give me"
    r"|let me know)"
    rf" (?:\w+ ){{0,3}}?{_THING}\b"
    r"|\bwhich (?:file|project|task|bug|errors?|function|feature|repository)\b[^?]{0,60}"
    r"\b(?:you|I)\b[^?]{0,40}\?"
    r"|\bI (?:don['’]t|do not|no longer) (?:\w+ )?have (?:\w+ ){0,3}?"
    r"(?:context|information|access to (?:the|our) (?:previous|earlier))"
    r"|\bI(?:['’]m| am) (?:missing|lacking|not sure what)\b",
    re.I,
)
_GO_ON_WITH = r"(?:continue|proceed|go on|go ahead|carry on|move on|keep going|resume|start|begin)"
_ASKS_TO_GO_ON = re.compile(
    rf"\b(?:shall|should|may|can) (?:I|we) (?:now |then )?{_GO_ON_WITH}\b"
    rf"|\b(?:would you like|(?:do )?you want|want) (?:me|us) to (?:now )?{_GO_ON_WITH}\b"
    rf"|\b(?:ready|ok(?:ay)?|all right|fine) (?:for me )?to {_GO_ON_WITH}\b[^.!]*\?"
    rf"|\blet me know (?:if|when|whether)\b[^.?!]{{0,40}}\b{_GO_ON_WITH}\b"
    rf"|\b(?:confirm|approve)\b[^.?!]{{0,60}}\b{_GO_ON_WITH}\b"
    r"|\b(?:a?waiting for|await(?:ing)?) your (?:confirmation|approval|go-ahead|ok)\b",
    re.I,
)
_NEEDS_PERSON = re.compile(
    r"\b(?:delet\w*|drop\w*|push\w*|deploy\w*|publish\w*|releas\w*|overwrit\w*|reset\w*|force"
    r"|merg\w*|production|credentials?|secrets?|passwords?|permissions?|instead)\b",
    re.I,
)  # such a question is for more than to go on
LACKS_CONTEXT = re.compile(
    r"\b(?:context|clarify|remind|missing|not sure what|which|errors?)\b", re.I
)  # the agent does not know something; a courtesy after work has none of these words
POLITE = re.compile(
    r"\b(?:happy|glad|sorry|apologi\w+|thanks?|hello|hi|ready|once you|let me know)\b", re.I
)
COURTESY = re.compile(r"\b(?:next|else)\b", re.I)
INVITES = re.compile(
    r"\b(?:ask|interview|check with|consult) (?:me|us)\b|clarif|\bquestions\b"
    r"|before you (?:start|begin)",
    re.I,
)
_WHOLE = (
    r"(?:tasks?|work|steps|items|todos|implementation|features?|migration|refactoring|project"
    r"|changes)"
)
_ENDED = r"(?:complete|completed|done|finished|implemented|in place)"
_IS = r"(?:is|are|has been|have been)"
DONE = re.compile(
    rf"^\W*(?:all |everything['’]?s? |that['’]?s |we['’]?re |it['’]?s )?(?:is |are )?{_ENDED}\W*$"
    r"|^\W*(?:all )?done[.!:—–-]"
    rf"|\b(?:all|every|everything) (?:\w+ ){{0,6}}?{_IS} (?:\w+ )?{_ENDED}\b"
    rf"|\bthe (?:\w+ ){{0,4}}?{_WHOLE} {_IS} (?:\w+ )?{_ENDED}\b"
    rf"|\bthe (?:\w+ ){{0,6}}?{_IS} (?:now )?(?:fully|completely|successfully) {_ENDED}\b"
    rf"|\b(?:I|we)(?:['’]ve| have) (?:now |successfully )?{_ENDED}"
    rf" (?:all|everything|the (?:\w+ )?{_WHOLE})\b"
    rf"|^\W*{_WHOLE} (?:is |are )?(?:now )?(?:complete|completed|finished|done)\b"
    r"|\bnothing (?:is |more |else |remains )?(?:left |open )?to (?:do|be done)\b",
    re.I,
)
NOT_DONE = re.compile(
    r"\b(?:not|once|when|until|if|before|after|almost|nearly|part(?:ly|ially)?|first|phase|step"
    r"|half|except|will|would|should|to be)\b|n['’]t\b|\?",
    re.I,
)
STILL_OPEN = re.compile(
    r"(?<!\bno )(?<!nothing )\b(?:remain(?:s|ing)|left to (?!do\b)|still|next steps?|not yet"
    r"|pending|blocked|want me to|shall I|should I|would you like me to)\b|\bhaven['’]t\b",
    re.I,
)
WORK = re.compile(
    r"\b(?:add|build|change|complete|configure|convert|create|delete|document|finish|fix|generate"
    r"|implement|improve|install|make|migrate|move|optimi[sz]e|port|refactor|remove|rename|replace"
    r"|rewrite|set up|test|update|write)\b",
    re.I,
)
NO_WORK = re.compile(
    r"^go on with:|\b(?:a?wait|optional(?:ly)?|if|none|ask|confirm|report|summari[sz]e|tell"
    r"|explain|answer|show|discuss|present|decide|consider|review|further instructions)\b",
    re.I,
)

_FENCED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE)
_BREAK = re.compile(r"(?<=[.!?;])\s+|\n+")
_DELIVER = re.compile(
    r"\b(?:(?:create|write|generate|produce|add|save|put)\s+(?:(?:the|an?|new|file|called|named|it"
    r"|to|into|as|in|results?|report|summary)\s+){0,4}"
    r"|(?:write|save|put) [^.;\n]{1,60}? (?:to|into|as) )`?([\w./-]*\w\.[a-z]\w{0,5})\b",
    re.I,
)
# Bounded, so that a long run of letters without a fitting end is not gone through again from each
# letter. No file has a longer name.
_FILE = re.compile(r"(?<![\w.@~-])[\w.@~-]*+/[\w./@~-]+|[\w-]{1,255}+\.[a-z]\w{0,4}\b")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\dA-Za-z_]+")
_BODIES = ("content", "old_string", "new_string", "todos")
_AGAIN = "please yes ok okay continue proceed go on ahead keep going carry resume"
_PLAIN = """
about add after again all also and any are authorised before but can could did does done for found
from get had has have help here home how into its just let like look make may more most must name
need never new next not now off one only open other our out please see set should show some start
step such sure than that the their them then there they this time true unauthorised use very want
was way were what when where which while who will with work would yes you your
"""
_ORDINARY = """
app awk back bash bin branch build bun cargo cat change check checkout code command commit
complete config create curl data date dev diff dir directory dist docker dry echo else end env err
error false fetch file find finish fix folder function git grep head html implement index install
jpg js json lib line list local log main md merge mkdir module modules node npm npx null output
package page path pip pnpm print project pull push pwd py pytest read remove run sed side sort src
stash status std tail task test text tmp toml try ts tsx txt type uniq update user usr uv version
wget whoami write xargs xml yaml yarn yml
"""
_GO_ON = frozenset(_AGAIN.split())
_FUNCTION = frozenset(_PLAIN.split())
_COMMON = _FUNCTION | frozenset(_ORDINARY.split())
_SEARCHED = re.compile(r"\w[\w.-]+\w")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without code and quotes."""
    pieces = _BREAK.split(_FENCED.sub("\n", text[:MAX_TEXT_CHARS]))
    return [piece for each in pieces if (piece := each.strip(" \t-*•#")[:MAX_SENTENCE_CHARS])]


def path_argument(arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("path") or arguments.get("file_path") or "")


def arguments_of(call: Block) -> Mapping[str, Any]:
    arguments = call.get("input")
    return arguments if isinstance(arguments, Mapping) else {}


def terms(text: str) -> frozenset[str]:
    """Return the stems of a text's telling words; camelCase and paths count as several words."""
    return _terms(text[:MAX_TEXT_CHARS])


@lru_cache(MAX_CACHED_TEXTS)
def _terms(text: str) -> frozenset[str]:
    words = {word.lower() for word in _WORD.findall(text)}
    return frozenset(word[:STEM_CHARS] for word in words if len(word) > 2 and not _is_common(word))


def _is_common(word: str) -> bool:
    return any(word.removesuffix(end) in _COMMON for end in ("", "s", "d", "ed", "ing"))


def search_words(text: str, count: int) -> str:
    """Return the first words of a text that are worth a search."""
    words = dict.fromkeys(_SEARCHED.findall(text[:MAX_SENTENCE_CHARS]))
    return " ".join([word for word in words if word.lower() not in _FUNCTION][:count])


def asks_to_go_on(text: str) -> bool:
    """Return whether a reply ends with the question whether to go on, and asks nothing else."""
    asked = [s for s in sentences(text)[-3:] if "?" in s or _ASKS_TO_GO_ON.search(s)]
    return bool(asked) and all(
        _ASKS_TO_GO_ON.search(s) and not _NEEDS_PERSON.search(s) for s in asked
    )


def says_go_on(words: str) -> bool:
    """Return whether the person only says to continue."""
    said = re.findall(r"\w+", words[:MAX_TEXT_CHARS].lower())
    return bool(said) and _GO_ON.issuperset(said)


def deliverables(text: str) -> list[str]:
    """Return the paths of files that a text asks to be written."""
    return [match[1] for s in sentences(text) for match in _DELIVER.finditer(s)]


def paths_in(text: str) -> list[str]:
    return _FILE.findall(text[:MAX_TEXT_CHARS])


def folder_of(path: str) -> str:
    return path.removeprefix("./").rpartition("/")[0]


def call_subject(call: Block) -> str:
    """Return what a call is about: all its arguments but those that it writes."""
    arguments = arguments_of(call).items()
    return "\n".join(
        str(value)[:MAX_ARGUMENT_CHARS] for name, value in arguments if name not in _BODIES
    )


def call_line(call: Block) -> str:
    """Return a call in one line: the tool, and its command or path."""
    arguments = arguments_of(call)
    what = arguments.get("command") or path_argument(arguments) or call_subject(call)
    return fit_line(f"{call.get('name')} {what}", MAX_LINE_CHARS)


def fit_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"


def quote(text: str) -> str:
    return f"“{fit_line(text, MAX_LINE_CHARS)}”"
