"""Quality: a model is asked the probes with the summary alone, and S2's six dimensions are graded.

`exam` makes the one request, `grade` reads the answers. Grading asks no model: an answer is right
if it holds the fact, unanswered if there is none or it says "unknown", else wrong; what a list
leaves out counts as unanswered. Each dimension has 0 to 5 points, and S2's target.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from ...context.wire import Request, scrub
from .probe import Probe, answered

Outcome = Literal["right", "wrong", "unanswered"]

BEST = 5.0
TARGETS = {  # S2 "Quality Metrics"
    "accuracy": 4.0,
    "context awareness": 4.0,
    "artifact trail": 3.5,
    "completeness": 3.5,
    "continuity": 4.0,
    "instruction following": 4.0,
}
STATE = ("errors", "in_progress", "next_steps")  # sections that say how things stand

_LINE = re.compile(r"(\d{1,4}): *(.*)")
_UNKNOWN = re.compile(r"\W*unknown\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Score:
    """Points of one dimension, 0 to 5; None when nothing was asked that tells."""

    dimension: str
    points: float | None
    target: float

    @property
    def met(self) -> bool | None:
        return None if self.points is None else self.points >= self.target


@dataclass(frozen=True, slots=True)
class Report:
    """The six scores, and how many probes had which outcome."""

    scores: tuple[Score, ...]
    outcomes: Mapping[Outcome, int]

    @property
    def met(self) -> bool:
        """Whether every dimension that was measured meets its target."""
        return all(score.met is not False for score in self.scores)

    def table(self) -> str:
        """The report as plain text, a line for each dimension."""
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


def exam(
    document_text: str,
    probes: Sequence[Probe],
    *,
    model: str,
    effort: str | None,
    max_tokens: int,
) -> Request:
    """One request that puts the questions, each once, with the summary as all there is to know."""
    asked = "\n".join(f"{number}: {text}" for number, text in enumerate(_questions(probes), 1))
    texts = (f"The record:\n\n{document_text}", f"{_prompt()}\n\nThe questions:\n\n{asked}")
    content = [{"type": "text", "text": scrub(text)} for text in texts]
    return Request(
        model=model,
        system=[],
        tools=[],
        messages=[{"role": "user", "content": content}],
        max_tokens=max_tokens,
        effort=effort,
    )


def grade(answers_text: str, probes: Sequence[Probe]) -> Report:
    """The dimensions, from the answers to `exam`; each is 5 times a share.

    Accuracy: right answers among those given. Context awareness: right ones among probes of how
    things stand (open errors, work in progress, next steps). Artifact trail: among those of files.
    Completeness: among all. Continuity: among those of what comes next and of decisions.
    Instruction following: half of it the right ones among the person's constraints, half of it the
    answers in the form that was demanded (one numbered line for each question and nothing else).
    """
    answers, form = _read(answers_text, len(_questions(probes)))
    outcomes = _outcomes(probes, answers)

    def share(which: Callable[[Probe], bool]) -> float | None:
        found = [end for probe, end in zip(probes, outcomes, strict=True) if which(probe)]
        return found.count("right") / len(found) if found else None

    right, wrong = outcomes.count("right"), outcomes.count("wrong")
    obeyed = share(_is_constraint)
    shares = {
        "accuracy": (right / (right + wrong) if right + wrong else 0.0) if probes else None,
        "context awareness": share(lambda p: p.section in STATE),
        "artifact trail": share(lambda p: p.kind == "artifact"),
        "completeness": share(lambda p: True),
        "continuity": share(
            lambda p: p.kind in ("continuation", "decision") and not _is_constraint(p)
        ),
        "instruction following": form if obeyed is None or form is None else (obeyed + form) / 2,
    }
    scores = (
        Score(name, None if (s := shares[name]) is None else BEST * s, target)
        for name, target in TARGETS.items()
    )
    ends: tuple[Outcome, ...] = ("right", "wrong", "unanswered")
    return Report(tuple(scores), {end: outcomes.count(end) for end in ends})


def _prompt() -> str:
    package = __package__.rsplit(".", 2)[0]
    return resources.files(package).joinpath("prompts/probe.md").read_text("utf-8").strip()


def _questions(probes: Sequence[Probe]) -> list[str]:
    return list(dict.fromkeys(probe.question for probe in probes))


def _read(text: str, count: int) -> tuple[dict[int, str], float | None]:
    """The answers by number, and the share of them in the demanded form; None when none was."""
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
    """What became of each probe, in their order."""
    numbers = {question: n for n, question in enumerate(_questions(probes), 1)}
    sharing = [probe.question for probe in probes]
    found: list[Outcome] = []
    for probe in probes:
        answer = answers.get(numbers[probe.question], "")
        if answered(probe, answer):
            found.append("right")
        elif not answer or _UNKNOWN.fullmatch(answer) or sharing.count(probe.question) > 1:
            found.append("unanswered")
        else:
            found.append("wrong")
    return found


def _is_constraint(probe: Probe) -> bool:
    return probe.kind == "decision" and probe.section == "facts"
