"""Ask a small real model about recorded sessions: in the whole context, and in ours.

The same questions are asked after five contexts of each session: everything (`whole`), the presets
`default`, `lean` and `v5`, and a summary made without a model (`summary`). In all but the first,
the model may call Recall. `nothing` are the questions alone, to find those that can be guessed.
"""

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import cutting
from asking import AGES, Question, answerable, questions
from chat import Message, ask
from contexts import Context, contexts
from results import Clock, Results, Row, interval

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.errors import CtxagentError
from ctxagent.agent.recordings.recording import Recording
from ctxagent.tests.real.model import QWEN, served
from ctxagent.tests.support.sessions.reading_day import reading_day

WINDOW = 12_288  # tokens, of the server
MAX_TOKENS, MAX_CALLS = 100, 2  # of a reply, and of Recall for a question
NOTHING = "nothing"
NAMES = ("whole", "default", "lean", "v5", "summary")
VARIANTS = (NOTHING, *NAMES)
SESSIONS, TUNING_EVERY = 6, 3  # every third session is for tuning
MIN_QUESTIONS = 26  # of a session
PROMPT = (
    "A question about this conversation: {question}\nAnswer with the exact value only, in one line."
)
ONLY_RECALL = "There is only Recall here. Answer the question."
SAME_AGAIN = "You have this result already. Answer the question now, without a call."


@dataclass(frozen=True)
class Session:
    """A cut session, its questions and its contexts by name."""

    name: str
    asked: Sequence[Question]
    contexts: dict[str, Context]


def recordings(folder: Path | None, *, tuning: bool) -> list[Recording]:
    """Return the cut recordings to report, or those for tuning. Without a folder, they are
    generated.

    The files are taken in the order of a hash of their names. Each project is taken once.
    """
    if folder is None:
        found = [reading_day(seed) for seed in range(SESSIONS)]
    else:
        found = list(_recorded(folder))
    is_tuning = [number % TUNING_EVERY == TUNING_EVERY - 1 for number in range(len(found))]
    return [each for each, its in zip(found, is_tuning, strict=True) if its == tuning]


def _recorded(folder: Path) -> Iterator[Recording]:
    files = [file for file in folder.rglob("*.gz") if file.is_file()]
    projects = set[str]()
    for file in sorted(files, key=lambda each: hashlib.sha256(each.name.encode()).digest()):
        try:
            recording = load_recording(file)
        except CtxagentError:
            continue
        project = Path(recording.cwd or file.name.split("__")[0]).name
        if project in projects:
            continue
        counts = [(len(questions(cut)), -n, cut) for n, cut in enumerate(cutting.cuts(recording))]
        count, _, cut = max(counts, default=(0, 0, recording), key=lambda each: each[:2])
        if count >= MIN_QUESTIONS:
            projects.add(project)
            yield cut
        if len(projects) == SESSIONS:
            return


def sessions(found: Sequence[Recording], folder: Path) -> Iterator[Session]:
    """Yield the sessions of recordings, with files in a folder."""
    for number, recording in enumerate(found):
        made = contexts(recording, folder / str(number))
        asked = answerable(questions(recording), made["whole"].texts)
        yield Session(recording.name, asked, made)


def measure(
    results: Results,
    clock: Clock,
    found: Sequence[Recording],
    names: Sequence[str],
    threads: int,
) -> None:
    """Ask what is not in the results yet, session by session, after the named contexts."""
    with tempfile.TemporaryDirectory(prefix="ctxagent-real-") as folder:
        made = [
            session
            for session in sessions(found, Path(folder))
            if any(_missing(results, session, name) for name in names)
        ]
        if not made:
            return
        with served(QWEN, WINDOW, threads) as url:
            for session in made:
                # By context, because the server keeps the beginning of the prompt in its cache.
                for name in names:
                    for question in _missing(results, session, name):
                        if not clock.has_time():
                            return
                        row = answer(url, session.contexts.get(name), question)
                        results.add(
                            {**_key(session, name, question), **_about(session, name), **row}
                        )
                    _show(results, session, name)


def _missing(results: Results, session: Session, name: str) -> list[Question]:
    return [q for q in session.asked if not results.has(**_key(session, name, q))]


def _key(session: Session, name: str, question: Question) -> Row:
    return {"session": session.name, "context": name, "question": question.id}


def _about(session: Session, name: str) -> Row:
    """Return the size of a context in our estimate, and what was cleared in it."""
    context = session.contexts.get(name)
    return {"size": context.tokens, "acts": context.acts} if context else {"size": 0, "acts": ""}


def _show(results: Results, session: Session, name: str) -> None:
    rows = results.select(session=session.name, context=name)
    right = sum(row["right"] for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    shown = f"{session.name[:40]} {name}: {right} of {len(rows)}, {seconds:.0f} s"
    print(shown, file=sys.stderr, flush=True)


def answer(url: str, context: Context | None, question: Question) -> Row:
    """Ask one question; return the answer, whether it is right, and its cost."""
    prompt = PROMPT.format(question=question.text)
    messages: list[Message] = [*(context.messages if context else ())]
    messages.append({"role": "user", "content": prompt})
    row: Row = {
        "kind": question.kind, "age": question.age, "asked": question.text,
        "answers": list(question.answers), "reply": "", "right": False, "recalled": [],
        "prompt": 0, "prefilled": 0, "written": 0, "seconds": 0.0,
    }  # fmt: skip
    tools = context.tools if context and context.acts else ()  # the whole context needs no Recall
    for turn in range(MAX_CALLS + 1):
        try:
            reply = ask(url, messages, tools=tools, max_tokens=MAX_TOKENS, temperature=0.0)
        except HTTPError as error:
            row["reply"] = f"error: HTTP {error.code}"
            return row
        row["prompt"] = row["prompt"] or reply.prefilled + reply.cached
        row["prefilled"] += reply.prefilled
        row["written"] += reply.written
        row["seconds"] = round(row["seconds"] + reply.seconds, 2)
        row["reply"] = reply.text
        if not reply.calls or context is None or turn == MAX_CALLS:
            break
        messages.append(reply.message())
        for call in reply.calls:
            made = [call["function"]["name"], _arguments(call)]
            told = SAME_AGAIN if made in row["recalled"] else _result(context, *made)
            row["recalled"].append(made)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": told})
    row["right"] = question.is_right(row["reply"])
    return row


def _result(context: Context, name: str, given: dict[str, Any]) -> str:
    return context.recall(given) if name == "Recall" else ONLY_RECALL


def _arguments(call: Message) -> dict[str, Any]:
    try:
        given = json.loads(call["function"]["arguments"])
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def report(results: Results) -> dict[str, list[Row]]:
    """Return the tables by title. Questions that were answered right without a context are left
    out of all tables but the last.
    """
    guessed = {
        (row["session"], row["question"]) for row in results.select(context=NOTHING, right=True)
    }
    rows = [row for row in results.rows if (row["session"], row["question"]) not in guessed]
    asked = [name for name in NAMES if results.select(context=name)]
    by_context = {name: [row for row in rows if row["context"] == name] for name in asked}
    whole = {_same(row): row["right"] for row in by_context.get("whole", ())}
    return {
        "by context": [_by_context(name, its, whole) for name, its in by_context.items()],
        "by kind": list(_rates(by_context, "kind", sorted({row["kind"] for row in rows}))),
        "by age of the fact": list(_rates(by_context, "age", AGES)),
        "sizes of the contexts, tokens": list(_sizes(results, asked)),
        "answered without a context": [_alone(results)],
    }


def _same(row: Row) -> tuple[str, str]:
    return row["session"], row["question"]


def _by_context(name: str, rows: Sequence[Row], whole: dict[tuple[str, str], bool]) -> Row:
    right = sum(row["right"] for row in rows)
    low, high = interval(right, len(rows))
    recalled = [row for row in rows if row["recalled"]]
    pairs = [(whole[_same(row)], row["right"]) for row in rows if _same(row) in whole]
    lost, won = pairs.count((True, False)), pairs.count((False, True))
    return {
        "context": name,
        "questions": len(rows),
        "right": f"{100 * right / len(rows):.0f} %",
        "95 %": f"{100 * low:.0f}–{100 * high:.0f}",
        "only whole right": lost,
        "only this right": won,
        "p": _p(lost, won),
        "with Recall": len(recalled),
        "right with Recall": sum(row["right"] for row in recalled),
        "prompt": sum(row["prompt"] for row in rows) / len(rows),
        "prefilled": sum(row["prefilled"] for row in rows),
        "written": sum(row["written"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "seconds a Recall": sum(row["seconds"] for row in recalled) / max(1, len(recalled)),
    }


def _p(lost: int, won: int) -> float:
    """Return the probability of such a difference by chance (McNemar's exact test)."""
    total = lost + won
    tail = sum(math.comb(total, n) for n in range(min(lost, won) + 1)) / 2**total
    return min(1.0, 2 * tail)


def _rates(by_context: dict[str, list[Row]], column: str, values: Sequence[str]) -> Iterator[Row]:
    for value in values:
        row = {column: value}
        for name, rows in by_context.items():
            rights = [each["right"] for each in rows if each[column] == value]
            row[name] = f"{sum(rights)}/{len(rights)}"
        yield row


def _sizes(results: Results, names: Sequence[str]) -> Iterator[Row]:
    """Yield the first prompt's tokens of each context, as the server counts them."""
    for session in dict.fromkeys(row["session"] for row in results.rows):
        row: Row = {"session": hashlib.sha256(session.encode()).hexdigest()[:8]}
        for name in names:
            found = results.select(session=session, context=name)
            row[name] = f"{found[0]['prompt']:,} ({found[0]['acts'] or '–'})" if found else "–"
        yield row


def _alone(results: Results) -> Row:
    rows = results.select(context=NOTHING)
    right = sum(row["right"] for row in rows)
    return {"context": NOTHING, "questions": len(rows), "right": right}


def plan(found: Sequence[Recording]) -> Iterator[str]:
    """Yield the questions with their answers and the sizes of the contexts. No model is asked."""
    with tempfile.TemporaryDirectory(prefix="ctxagent-real-") as folder:
        for session in sessions(found, Path(folder)):
            yield f"\n### {session.name}: {len(session.asked)} questions\n"
            for name, context in session.contexts.items():
                kept = len(answerable(session.asked, context.texts))
                yield (
                    f"- {name}: about {context.tokens:,} tokens (window {context.window:,}; "
                    f"{context.acts or 'nothing cleared'}), with {kept} of the answers"
                )
            for each in session.asked:
                yield f"- {each.id} ({each.age}): {each.text} → {' | '.join(each.answers)}"
