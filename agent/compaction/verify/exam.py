"""Ask a model the probes with only the summary as context, and grade its answers in six dimensions.

`exam_request` builds the request, and `grade` reads the answers without a model. An answer is right
if it contains the fact. It is unanswered if it is missing or says "unknown", or if the fact is
missing from a list. Otherwise it is wrong.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from ...border.values import without_surrogates
from ...context.request import Request
from ...lazy import dataclass, regex
from ...prompts import prompt_text
from .probes import Probe, is_answered

Outcome = Literal["right", "wrong", "unanswered"]

MAX_POINTS = 5.0  # of a dimension
TARGET_POINTS = {
    "accuracy": 4.0,
    "context awareness": 4.0,
    "artifact trail": 3.5,
    "completeness": 3.5,
    "continuity": 4.0,
    "instruction following": 4.0,
}
STATE_SECTIONS = ("errors", "in_progress", "next_steps")  # sections about the current state

_LINE = regex(r"(\d{1,4}): *(.*)")
_UNKNOWN = regex(r"\W*unknown\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ExamScore:
    """The points of one dimension."""

    dimension: str
    points: float | None  # None without probes for it
    target: float

    @property
    def met(self) -> bool | None:
        return None if self.points is None else self.points >= self.target


@dataclass(frozen=True, slots=True)
class ExamReport:
    """The scores of all dimensions, and the number of probes by outcome."""

    scores: tuple[ExamScore, ...]
    outcomes: Mapping[Outcome, int]

    @property
    def met(self) -> bool:
        """True if every measured dimension meets its target."""
        return all(score.met is not False for score in self.scores)

    def table(self) -> str:
        """Return the report as plain text, one line for each dimension."""
        rows = [("dimension", "points", "target", "met")]
        words = {True: "yes", False: "no", None: "not asked"}
        for score in self.scores:
            points = "-" if score.points is None else f"{score.points:.1f}"
            rows.append((score.dimension, points, f"{score.target:.1f}", words[score.met]))
        lines = [f"{a:<22}{b:>6}{c:>8}  {d}" for a, b, c, d in rows]
        counted = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        return "\n".join([*lines, f"answers: {counted}"])

    def to_json(self) -> dict[str, Any]:
        scores = {
            s.dimension: {"points": s.points, "target": s.target, "met": s.met} for s in self.scores
        }
        return {"scores": scores, "outcomes": dict(self.outcomes), "met": self.met}


def exam_request(
    document_text: str,
    probes: Sequence[Probe],
    *,
    model: str,
    effort: str | None,
    max_tokens: int,
) -> Request:
    """Return a request that asks each question once, with the summary as the only source."""
    asked = "\n".join(f"{number}: {text}" for number, text in enumerate(_questions(probes), 1))
    prompt = prompt_text("probe")
    texts = (f"The record:\n\n{document_text}", f"{prompt}\n\nThe questions:\n\n{asked}")
    content = [{"type": "text", "text": without_surrogates(text)} for text in texts]
    return Request(
        model=model,
        system=[],
        tools=[],
        messages=[{"role": "user", "content": content}],
        max_tokens=max_tokens,
        effort=effort,
    )


def grade(answers_text: str, probes: Sequence[Probe]) -> ExamReport:
    """Return the report on the answers to an `exam_request`. The points of each dimension are 5
    times a share.

    - Accuracy: right answers among all given answers.
    - Context awareness: right answers about open errors, work in progress and next steps.
    - Artifact trail: right answers about files.
    - Completeness: right answers among all probes.
    - Continuity: right answers about next steps and decisions.
    - Instruction following: the mean of two shares. One is the right answers about the user's
      constraints, the other the lines in the required form (one numbered line for each question).
    """
    answers, form = _read(answers_text, len(_questions(probes)))
    outcomes = _outcomes(probes, answers)

    def share(which: Callable[[Probe], bool]) -> float | None:
        found = [end for probe, end in zip(probes, outcomes, strict=True) if which(probe)]
        return found.count("right") / len(found) if found else None

    right, wrong = outcomes.count("right"), outcomes.count("wrong")
    obeyed = share(lambda p: p.is_constraint)
    shares = {
        "accuracy": (right / (right + wrong) if right + wrong else 0.0) if probes else None,
        "context awareness": share(lambda p: p.section in STATE_SECTIONS),
        "artifact trail": share(lambda p: p.kind == "artifact"),
        "completeness": share(lambda p: True),
        "continuity": share(
            lambda p: p.kind in ("continuation", "decision") and not p.is_constraint
        ),
        "instruction following": form if obeyed is None or form is None else (obeyed + form) / 2,
    }
    scores = (
        ExamScore(name, None if (s := shares[name]) is None else MAX_POINTS * s, target)
        for name, target in TARGET_POINTS.items()
    )
    counts = {outcome: outcomes.count(outcome) for outcome in get_args(Outcome)}
    return ExamReport(tuple(scores), counts)


def _questions(probes: Sequence[Probe]) -> list[str]:
    return list(dict.fromkeys(probe.question for probe in probes))


def _read(text: str, count: int) -> tuple[dict[int, str], float | None]:
    """Return the answers by number, and the share of lines in the required form; None if there are
    no questions.
    """
    answers: dict[int, str] = {}
    stray = 0
    for line in filter(str.strip, text.split("\n")):
        match = _LINE.fullmatch(line.strip())
        number = int(match[1]) if match else 0
        if match and 0 < number <= count and number not in answers:
            answers[number] = match[2]
        else:
            stray += 1
    return answers, len(answers) / (count + stray) if count else None


def _outcomes(probes: Sequence[Probe], answers: Mapping[int, str]) -> list[Outcome]:
    """Return the outcome of each probe, in the order of the probes."""
    numbers = {question: n for n, question in enumerate(_questions(probes), 1)}
    questions = [probe.question for probe in probes]
    found: list[Outcome] = []
    for probe in probes:
        answer = answers.get(numbers[probe.question], "")
        if is_answered(probe, answer):
            found.append("right")
        elif not answer or _UNKNOWN.fullmatch(answer) or questions.count(probe.question) > 1:
            found.append("unanswered")
        else:
            found.append("wrong")
    return found
