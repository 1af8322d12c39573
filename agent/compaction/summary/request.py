"""The request for a summary: where to cut, the question, and whether the answer is usable.

The cut keeps the newest messages verbatim, keeps calls and results together, and keeps the user's
unanswered messages. The question is appended to the session's own prefix (system prompt, tools,
messages), so the call reads the prompt cache. If the prefix no longer fits, the span is summarised
in chunks of plain text. This module changes nothing in the session.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ....tools.offered import EVERY, Offered, Phrase
from ...border.values import without_surrogates
from ...context import tokens
from ...context.items import SUMMARY_SOURCE, THINKING, Item, shown_blocks
from ...context.request import Request, build_request, with_question
from ...context.view import View
from ...context.window import Window
from ...lazy import dataclass, regex
from ...prompts import prompt_text
from ...session.archive import FILES_NAME
from ...session.conversation import CONVERSATION_NAME, block_text
from ...session.entries import Block, Summary
from ..document import SummaryDocument, missing_titles, parse, render
from ..policy import Policy
from ..recall_hints import RECALL, names_each, without_hints

COMPRESSED_MARK = "[Conversation compressed]"
SOURCE_PRECEDENCE = (
    "Where they differ, believe the files on disk first, then the todo list and what this program "
    "recorded of files and commands, then the project's notes, then the log, and this record last."
)
_ARCHIVE = "All of this session is in "
PINNED_HEADING = "\n\n## Pinned"  # begins the last section of a summary
QUESTION_START = "The context of this session is about to be compressed."  # see prompts/summary.md
MAX_SHARE_AFTER = 0.50  # of the window, for the context after a summary
MAX_SHARE_OF_BEFORE = 0.50  # of the context before an automatic summary, for the context after it
_RETRY_TEXT = (
    "\n\nYour last answer to this could not be used: {problem}. Answer again, with every section, "
    "in at most {cap:,} tokens."
)
_STANDING_TEXT = (
    "\n\nThe user's instructions for every record follow. What they ask to keep is a critical "
    "fact, unless it belongs in another section.\n{standing}"
)
SUMMARY_SHARE = 0.05  # of the window, for a summary, within the next two limits
MIN_SUMMARY_CAP_TOKENS = 600
MAX_SUMMARY_CAP_TOKENS = 8_000
MIN_COPIED_WORDS = 4  # of an entry; fewer stand in the question by chance
MAX_PIN_TOKENS = 1_000  # of one pinned item
MAX_CHARS_PER_TOKEN = 16  # characters examined for each token that may be kept
_WORD = regex(r"\w+")
# Parts of the prompt: for a record that is merged with the previous one, and for a separate record.
_SCOPE = {
    "{only_new}": (" Only what is new since the previous record.", ""),
    "{unchanged}": (
        " If there is a previous record above and the scope is the same, write: unchanged",
        "",
    ),
    "{scope}": (
        "Your phase, work in progress and next steps replace those of the previous record. "
        "Everything else is merged with it: there, cover only what is new.",
        "The summary above is replaced too: take over everything in it that still holds, verbatim "
        "where it matters.",
    ),
}
UNANSWERED_SHARE = 0.25  # of the window, for unanswered user messages that are kept
_PIECES_PER_CHUNK = 64  # maximum; the tokens of a piece are estimated together
HEADLINE_SCAN_CHARS = 500  # of an item, examined for its headline


@dataclass(frozen=True, slots=True)
class Cut:
    """The place in the view where a summary ends."""

    evicted: tuple[Item, ...]  # items that the summary replaces
    keep_from: int  # seq of the first item of the tail, which stays
    keep: tuple[int, ...]  # seqs of earlier items that stay
    tokens: int  # of the evicted items, scaled

    @property
    def covers(self) -> list[int]:
        """The first and last seq of the items that no earlier summary covers."""
        new = [item.seq for item in self.evicted if item.source != SUMMARY_SOURCE]
        return [new[0], new[-1]]


def seqs_before_tail(view: View, tail: int) -> set[int]:
    """Return the seqs of the items before the last `tail` tokens."""
    room = float(tail)
    for place in range(len(view.items) - 1, -1, -1):
        room -= view.scaled(view.items[place].size)
        if room < 0:
            return {item.seq for item in view.items[: place + 1]}
    return set()


def find_cut(
    view: View,
    policy: Policy,
    window: Window,
    *,
    keep_messages: int | None = None,
    newest_only: bool = False,
) -> Cut | None:
    """Return the cut for a summary; None if there is nothing new to summarise.

    `keep_messages` overrides the number of messages that stay, for a context that would not fit
    otherwise. With `newest_only`, only the user's last message and the last reply stay.
    """
    items, keep_tokens = view.items, 0
    if keep_messages is None:
        keep_messages = policy.keep_messages
        keep_tokens = min(policy.keep_tokens, int(policy.keep_share * window.size))
    start = _tail_start(items, keep_messages, keep_tokens / view.ratio)
    start = _newest_reply(items) if newest_only else start
    if start is None:
        return None
    words = unanswered_items(items, UNANSWERED_SHARE * window.size / view.ratio)
    if newest_only and not words:
        words = [item for item in items if item.source == "person"][-1:]
    keep = tuple(item.seq for item in words if item.seq < items[start].seq)
    evicted = tuple(i for i in items[:start] if i.seq not in keep)
    said = sum(i.size for i in evicted if i.source == "person")
    if said < max_summary_tokens(window) and not any(i.role == "assistant" for i in evicted):
        return None
    size = view.scaled(sum(i.size for i in evicted))
    return Cut(evicted, items[start].seq, keep, size)


def _tail_start(items: Sequence[Item], messages: int, max_size: float) -> int | None:
    """Return the index of the first item of the tail. The tail has at least `messages` messages,
    and more while they fit into `max_size`. It never begins between a call and its result.
    """
    size, count, start, kept, role = 0, 0, len(items), 0, ""
    begin = 1  # a summary never stays
    for index, item in enumerate(items):
        begin = index + 1 if item.source == SUMMARY_SOURCE else begin
    for index in range(len(items) - 1, begin - 1, -1):
        item = items[index]
        size += item.size
        if kept >= messages and size > max_size:
            break
        count += item.role != role
        role = item.role
        if not any(block.get("type") == "tool_result" for block in item.blocks):
            start, kept = index, count
    return start if start < len(items) else None


def _newest_reply(items: Sequence[Item]) -> int | None:
    """Return the index of the last reply; None if there is none. Its results follow it."""
    places = (place for place in range(len(items) - 1, -1, -1) if items[place].role == "assistant")
    return next(places, None)


def unanswered_items(items: Sequence[Item], max_size: float) -> list[Item]:
    """Return the user's unanswered messages: always the newest, and earlier ones while they fit.
    The summary and the archive have the others.
    """
    found: list[Item] = []
    size = 0
    for item in reversed(items):
        if item.role == "assistant" and item.stop_reason == "end_turn":
            break
        if item.source == "person":
            size += item.size
            if found and size > max_size:
                break
            found.append(item)
    return found[::-1]


def max_summary_tokens(window: Window) -> int:
    """Return the token cap of a summary in this window."""
    wanted = int(window.size * SUMMARY_SHARE)
    return max(MIN_SUMMARY_CAP_TOKENS, min(MAX_SUMMARY_CAP_TOKENS, wanted))


def expected_summary_tokens(
    evicted: Sequence[Item], window: Window, least: int = MIN_SUMMARY_CAP_TOKENS
) -> int:
    """Estimate the tokens of a model's summary of these items."""
    written = max(least, sum(item.size for item in evicted) // 4)
    return min(max_summary_tokens(window), written)


def max_tokens_after(window: Window, *, must_halve: bool = False) -> int:
    """Return the most tokens that the context may have after a summary. With `must_halve`, also
    less than half of the current context.
    """
    share = int(window.size * MAX_SHARE_AFTER)
    return min(share, int((window.tokens - 1) * MAX_SHARE_OF_BEFORE)) if must_halve else share


def tokens_after_summary(view: View, cut: Cut, summary: int) -> int:
    """Return the size of the context, in scaled tokens, with a summary of `summary` tokens."""
    keep_from, keep = cut.keep_from, list(cut.keep)
    empty = Summary(
        document={}, text="", covers=[], keep_from=keep_from, keep=keep, replaces_earlier=True
    )
    return view.scaled(view.size_with(empty) + summary)


def summary_question(
    window: Window,
    instructions: str = "",
    failures: str = "",
    *,
    is_merged: bool = True,
    problem: str = "",
    standing: str = "",
) -> str:
    """Return the question to the model.

    `instructions` are the user's, for this summary only, and `standing` those for every summary.
    `failures` lists the open failures.
    `is_merged` is True if the answer will be merged with the previous record. `problem` is the
    reason why the previous answer was unusable.
    """
    text = prompt_text("summary").replace("{cap}", f"{max_summary_tokens(window):,}")
    for part, (merged, separate) in _SCOPE.items():
        text = text.replace(part, merged if is_merged else separate)
    if failures:
        text += f"\n\n{failures}"
    if standing:
        text += _STANDING_TEXT.format(standing=standing)
    if instructions.strip():
        text += f"\n\nThe user adds, for this record only: {instructions.strip()}"
    if problem:
        text += _RETRY_TEXT.format(problem=problem, cap=max_summary_tokens(window))
    return text


def question_words(window: Window) -> str:
    """Return the words of the question, for `is_copied`."""
    asked = (summary_question(window, is_merged=is_merged) for is_merged in (True, False))
    return " ".join(_WORD.findall("\n".join(asked).lower()))


def is_copied(text: str, asked: str) -> bool:
    """Return True if the words of a text stand in the question in the same order. Small models fill
    the record with the instructions.
    """
    words = _WORD.findall(text.lower())
    return len(words) >= MIN_COPIED_WORDS and f" {' '.join(words)} " in f" {asked} "


def is_summary_question(text: str) -> bool:
    """Return True if a text is a summary question."""
    return text.startswith(QUESTION_START)


def room_for_summary(window: Window, question: str) -> int:
    """Return the tokens left for a summary that is requested at the end of the session's prefix."""
    return window.room - 2 * tokens.estimate(question)


def summary_request(
    view: View, window: Window, question: str, *, model: str, effort: str | None
) -> Request:
    """Return the session's own request with the question appended, to read the same cache."""
    max_tokens = min(2 * max_summary_tokens(window), room_for_summary(window, question))
    request = build_request(view, model=model, max_tokens=max_tokens, effort=effort)
    return with_question(request, question)


def chunk_requests(
    cut: Cut, window: Window, question: str, *, upto: int, model: str, effort: str | None
) -> list[Request]:
    """Return requests with the evicted span as plain text, each of at most half the window. `upto`
    is the newest entry of the view.
    """
    max_tokens = max(max_tokens_after(window) - tokens.estimate(question), 1_000)
    text = transcript(cut.evicted)
    origin = {"upto": upto, "asked": question, "keep_from": cut.keep_from, "keep": list(cut.keep)}
    return [
        Request(
            model=model,
            system=[],
            tools=[],
            messages=_chunk_messages(text[begin:end], question),
            max_tokens=2 * max_summary_tokens(window),
            effort=effort,
            origin={**origin, "span": [begin, end]},
        )
        for begin, end in _chunk_spans(text, max_tokens)
    ]


def rebuild_chunk_messages(
    view: View, question: str, *, keep_from: int, keep: Sequence[int], span: Sequence[int]
) -> list[dict[str, Any]]:
    """Rebuild the messages of a chunk request from the view and its recorded origin."""
    items = view.items[: view.position(keep_from)]
    begin, end = span
    text = transcript([i for i in items if i.seq not in keep])
    return _chunk_messages(text[begin:end], question)


def _chunk_messages(text: str, question: str) -> list[dict[str, Any]]:
    texts = (f"A part of the session:\n\n{text}", question)
    return [
        {
            "role": "user",
            "content": [{"type": "text", "text": without_surrogates(each)} for each in texts],
        }
    ]


def _chunk_spans(text: str, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) of each chunk of a text. No chunk has more than `max_tokens`."""
    begin = end = size = 0
    for piece in _pieces(text, max_tokens):
        piece_tokens = tokens.estimate(piece)
        if end > begin and size + piece_tokens > max_tokens:
            yield begin, end
            begin, size = end, 0
        end += len(piece)
        size += piece_tokens
    if end > begin:
        yield begin, end


def _pieces(text: str, max_tokens: int) -> Iterator[str]:
    """Yield the lines of a text. Short lines are joined, and long lines are split."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + max_tokens // _PIECES_PER_CHUNK) + 1 or len(text)
        # A token has at least one character in this estimate.
        end = min(end, begin + max_tokens)
        yield text[begin:end]
        begin = end


_WHERE: Phrase = (
    "What is missing {place} is found by {Recall}, with words to search for or with a ref (`#12`); "
    "the whole conversation is also in {path}.",
    "What is missing {place} is in {path}; a ref (`#12`) is in the heading of its text.",
)
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


def transcript(items: Sequence[Item]) -> str:
    """Return items as text, with stubs as in the context, so that the cost is limited."""
    texts = (_block_text(item, block) for item in items for block in shown_blocks(item))
    return "\n\n".join(filter(None, texts))


def _block_text(item: Item, block: Block) -> str:
    speaker = "Earlier calls" if item.outline is not None else _SPEAKERS[item.sent_role]
    return block_text(block, speaker, item.seq)


def headline(item: Item) -> str:
    """Return a one-line description of an item."""
    block = next((b for b in item.blocks if b.get("type") not in THINKING), {})
    text = _block_text(item, block).split("\n\n", 1)[-1].lstrip()
    line = " ".join(text[:HEADLINE_SCAN_CHARS].split())
    kind = {"tool_result": "result", "text": item.role}.get(str(block.get("type")), item.role)
    return f"{kind}: {line[:60]}" if line else kind


def summary_text(
    document: SummaryDocument,
    folder: Path,
    pins: Mapping[int, str],
    offered: Offered = EVERY,
    *,
    messages: str = "",
    saved: int | None = None,
) -> str:
    """Return the message that replaces the span: the document, how to recall details, the user's
    `messages`, and pins. `saved` is the number of tokens saved; None leaves it out.
    """
    head = "" if saved is None else f"{archive_head(folder, saved)}\n\n"
    recovery = [text for text in document.recovery if not text.startswith(_ARCHIVE)]
    document = replace(document, recovery=(archive_line(folder), *recovery))
    record = render(document)
    if RECALL not in offered:
        record = without_hints(record, names_each(FILES_NAME))
    return (
        f"{COMPRESSED_MARK}\n"
        "What follows is a record of the work so far in this session, made when the context was "
        "compressed. It is history, not an instruction: go on with what the user asked last. "
        f"{where_to_look(folder, 'here', offered)} {SOURCE_PRECEDENCE}\n\n"
        f"{head}{record}{_as_section(messages)}{pinned_section(pins, offered)}"
    )


def where_to_look(folder: Path, place: str, offered: Offered) -> str:
    """Return where the model finds what is missing in a summary."""
    return offered.say(_WHERE, place=place, path=folder / CONVERSATION_NAME)


def _as_section(section: str) -> str:
    return f"\n\n{section}" if section else ""


def archive_head(folder: Path, saved: int) -> str:
    """Return the line with the session ID, the time and the tokens saved."""
    at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    session = f"**Session ID:** {folder.name} · **Generated:** {at}"
    return f"{session} · **Context Saved:** {saved:,} tokens"


def archive_line(folder: Path) -> str:
    """Return the line that lists the session's archive files."""
    kept = {"offloaded": "results that were moved to files", "checkpoints": "checkpoints"}
    there = [f"{name}/ ({what})" for name, what in kept.items() if (folder / name).is_dir()]
    parts = ", ".join(["conversation.md (the full conversation)", *there])
    return f"{_ARCHIVE}{folder}: {parts}"


def pinned_section(pins: Mapping[int, str], offered: Offered = EVERY) -> str:
    """Return the last section of a summary: the pinned items verbatim; "" without pins."""
    lines = [_pin(ref, text, offered) for ref, text in pins.items()]
    return "\n".join([PINNED_HEADING, *lines]) if pins else ""


def _pin(ref: int, text: str, offered: Offered) -> str:
    if tokens.estimate(text) <= MAX_PIN_TOKENS:
        return f"#{ref}: {text}"
    rest = offered.say(" {Recall} #{ref} for the rest", ref=ref)
    return f"#{ref}: {first_tokens(text, MAX_PIN_TOKENS)} …{rest}"


def first_tokens(text: str, max_tokens: int) -> str:
    """Return the first `max_tokens` tokens of a longer text."""
    lengths = range(1, min(len(text), MAX_CHARS_PER_TOKEN * max_tokens))
    return text[: bisect_right(lengths, max_tokens, key=lambda n: tokens.estimate(text[:n]))]


def why_unusable(text: str, stop_reason: str | None, window: Window) -> str:
    """Return the reason why a model's answer cannot be used as a summary, or ""."""
    if stop_reason == "max_tokens":
        return "it was cut off at its limit"
    if stop_reason not in ("end_turn", "stop_sequence"):
        return f"the model stopped with {stop_reason}"
    if not text.strip():
        return "it is empty"
    if titles := missing_titles(text):
        return f"it lacks {', '.join(titles)}"
    if is_copied(parse(text).intent, question_words(window)):
        return "it repeats the question"
    if tokens.estimate(text) > 2 * max_summary_tokens(window):
        return f"it is longer than its cap of {max_summary_tokens(window):,} tokens"
    return ""
