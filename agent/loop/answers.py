"""Check that the final reply of a turn is an answer.

A reply that copies a text of the program is no answer. The model is asked once for an answer. Small
models often describe a change instead of making it. If nobody can tell them so, they are asked once
for a call when a turn would end without any.

After a notice about repeated calls (`features.loops`), a reply is an answer only if one of this is
true:

- Another call has succeeded since the notice.
- The repeated calls have succeeded, and the reply is more than a copy of the user's message or of
  the model's own earlier text. The results were already there.
- The reply names something from the results, such as the text of an error.

Otherwise the turn ends with a limit, because nobody knows whether the task was done.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..compaction.summary.request import first_tokens
from ..context.items import Item
from ..context.tokens import estimate
from ..errors import LimitReached
from ..events import Notice
from ..lazy import dataclass, regex
from ..models.base import Reply, text_of
from .agent import AgentState
from .stuck import REPEATS, describe_calls

ASK_FOR_ANSWER = """\
[This is a notice of the program. Your reply repeats a text of the program, so it is no answer. \
Answer the user's message in your own words. If you cannot, say what is missing.]"""

# Small models answer with the words of a notice. Therefore it is short, and the task follows.
ASK_FOR_CALL = """\
[This is a notice of the program. Your reply made no call, so nothing was read, run or changed \
yet. Start with a call. The task:]

{task}"""
MAX_TASK_TOKENS = 1_000  # of the user's message, in this notice

COPIED_SHARE = 0.8  # of the words of a reply, in runs that another text has
COPIED_RUN_WORDS = 4
MIN_COPIED_WORDS = 5  # a shorter reply may have the words of another text by chance
REPORTED_RUN_WORDS = 3  # in a row, from a result
_WORD = regex(r"\w+")
# No ordinary word: with a digit, an underscore, a dot, a slash or an inner capital.
_NAME = regex(r"(?<!\w)(?=\w*(?:[\d_]|[./]\w)|\w+[A-Z])[\w./-]+\w")

_NO_ANSWER = "the model repeated a text of the program instead of an answer"
_AFTER_LOOP = "the model ended its turn without an answer after it had repeated itself: {calls}"
_CHECK = "the model answered right after it had repeated itself: {calls}. Check the answer."
_HINT = "Its last reply is in the log. Say what to do next, or choose another model."


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Repeated calls, without another successful call since the notice about them."""

    calls: str  # on one line
    results: Sequence[str]  # their texts
    failed: bool  # at least one of them


class AnswerCheck:
    """Checks the final replies of one turn."""

    def __init__(self, agent: AgentState) -> None:
        self._agent = agent
        self._is_asked = False

    def notice(self, reply: Reply) -> str | None:
        """Return a request to the model if the reply copies a text of the program, or if a small
        model made no call. Return None if not, or if the model was asked before.
        """
        if self._is_asked:
            return None
        told = None
        if self._copies_program(text_of(reply.content)):
            told = ASK_FOR_ANSWER
        elif self._agent.policy.brief and self._agent.ask is None and not self._has_calls():
            told = ASK_FOR_CALL.format(task=self._task())
        self._is_asked = told is not None
        return told

    def check(self, reply: Reply) -> None:
        """Raise LimitReached if the final reply of the turn is no answer. Warn the user if it is
        one right after repeated calls.
        """
        if self._agent.denials.unasked():  # reported instead, with another exit code
            return
        text = text_of(reply.content)
        if self._copies_program(text):
            raise LimitReached(_NO_ANSWER, limit="loop", hint=_HINT)
        repeated = self._repeated_calls()
        if repeated is None:
            return
        is_new = not _is_copy(text, [*self._earlier_texts()])
        if (is_new and not repeated.failed) or self._reports(text, repeated.results):
            self._agent.emit(Notice("warning", _CHECK.format(calls=repeated.calls)))
            return
        raise LimitReached(_AFTER_LOOP.format(calls=repeated.calls), limit="loop", hint=_HINT)

    def _turn(self) -> Iterator[Item]:
        """Yield the items since the user's newest message, newest first, without the last reply."""
        for item in islice(reversed(self._agent.view.items), 1, None):
            if item.source == "person":
                return
            yield item

    def _has_calls(self) -> bool:
        return any(b.get("type") == "tool_use" for item in self._turn() for b in item.blocks)

    def _copies_program(self, text: str) -> bool:
        """Return True for a copy of a notice or a stub. The task in a notice is the user's."""
        facts, task = self._agent.view.facts, self._task()
        notices = (
            text_of(item.blocks).replace(task, "")
            for item in self._turn()
            # Other details belong to texts from elsewhere, such as the report of a subagent.
            if item.source == "notice" and facts(item)[0].keys() <= {REPEATS}
        )
        stubs = (stub for item in self._agent.view.items for stub in item.stubs.values())
        if _is_copy(text.replace(task, ""), notices):
            return True
        return text.lstrip().startswith("[") and _is_copy(text, stubs)

    def _repeated_calls(self) -> _Repeated | None:
        """Return the calls of the newest notice about a repetition. None if there is none in this
        turn, or if another call has succeeded since.
        """
        view = self._agent.view
        later = list[dict[str, Any]]()  # successful results
        for item in self._turn():
            told = view.facts(item)[0].get(REPEATS)
            if item.source == "notice" and isinstance(told, dict):
                break
            later += [each for each in _results(item) if not each.get("is_error")]
        else:
            return None
        calls = [view.calls[id] for id in told.get("calls", ()) if id in view.calls]
        ids = {call.id for call in calls}
        results = [each for item in view.items for each in _results(item, ids)]
        succeeded = {each["tool_use_id"] for each in results if not each.get("is_error")}
        known = [_key(view.calls[id]) for id in succeeded]
        if not results or any(_key(view.calls[each["tool_use_id"]]) not in known for each in later):
            return None
        return _Repeated(
            describe_calls(calls, told.get("times", 0)),
            [_result_text(each) for each in results],
            failed=len(succeeded) < len(results),
        )

    def _earlier_texts(self) -> Iterator[str]:
        """Yield the user's newest message and the texts of the model since then."""
        yield from (text_of(item.blocks) for item in self._turn() if item.role == "assistant")
        yield self._message()

    def _message(self) -> str:
        items = reversed(self._agent.view.items)
        return next((text_of(item.blocks) for item in items if item.source == "person"), "")

    def _task(self) -> str:
        message = self._message()
        is_short = estimate(message) <= MAX_TASK_TOKENS
        return message if is_short else first_tokens(message, MAX_TASK_TOKENS)

    def _reports(self, text: str, results: Iterable[str]) -> bool:
        """Return True if a reply names something that only the results have."""
        known = [self._message()]
        for item in self._turn():
            known += [text_of(item.blocks)] if item.source == "notice" else []
            known += [json.dumps(b["input"]) for b in item.blocks if b.get("type") == "tool_use"]
        names, runs = _names(known), _runs_of(known, REPORTED_RUN_WORDS)
        return bool(
            (_names(results) - names) & _names([text])
            or (_runs_of(results, REPORTED_RUN_WORDS) - runs) & _runs_of([text], REPORTED_RUN_WORDS)
        )


def _key(call: Any) -> tuple[str, str]:
    return call.name, json.dumps(call.input, sort_keys=True)


def _results(item: Item, ids: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return the results in an item; with `ids`, those of these calls."""
    return [
        block
        for block in item.blocks
        if block.get("type") == "tool_result" and (ids is None or block["tool_use_id"] in ids)
    ]


def _result_text(block: dict[str, Any]) -> str:
    content = block.get("content")
    return content if isinstance(content, str) else text_of(content or [])


def _is_copy(text: str, others: Iterable[str]) -> bool:
    """Return True if most words of a text are in runs that one of the other texts has."""
    words = _words(text)
    if len(words) < MIN_COPIED_WORDS:
        return False
    for other in others:
        known = _runs(_words(other), COPIED_RUN_WORDS)
        copied = set[int]()
        for start in range(len(words) - COPIED_RUN_WORDS + 1):
            if tuple(words[start : start + COPIED_RUN_WORDS]) in known:
                copied.update(range(start, start + COPIED_RUN_WORDS))
        if len(copied) >= COPIED_SHARE * len(words):
            return True
    return False


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _runs(words: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def _runs_of(texts: Iterable[str], length: int) -> set[tuple[str, ...]]:
    return {run for text in texts for run in _runs(_words(text), length)}


def _names(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _NAME.findall(text)}
