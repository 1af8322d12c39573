"""The measures of one run or several, the format of their figures, and the terminal table.

The table and the page have the same figures. Rounding never flatters: a share reads 100% only if
nothing is missing. The table has one column per setting, one row per measure over all recordings,
then one row with the cost of each recording.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ....api.base import dataclass, regex
from ....api.pages import NO_FIGURE, format_dollars, format_percent, format_ratio, format_tokens
from ....api.pages import clean_text as clean
from ....api.text import count_of, one_line
from ..results import Comparison, ReplayRun, Sums


def anonymized(comparison: Comparison) -> Comparison:
    """Return the comparison without content from the sessions: recordings are numbered, and missed
    results are named by their entry only.
    """
    rows = (
        tuple(_anonymized(run, f"session {number}") for run in row)
        for number, row in enumerate(comparison.runs, 1)
    )
    return replace(comparison, runs=tuple(rows))


def _anonymized(run: ReplayRun, name: str) -> ReplayRun:
    needs = tuple(replace(need, what=f"result #{need.ref}") for need in run.needs)
    lost = tuple(replace(fact, text="") for fact in run.lost)
    stopped = "it could not continue" if run.stopped else ""  # the reason may name files
    return replace(run, name=name, needs=needs, lost=lost, stopped=stopped)


_FILE_EXTENSION = regex(r"(?<=.)(\.(jsonl?|traj))?(\.gz)?$")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one setting, over one recording or several."""

    label: str
    sums: Sums
    asked: int  # missed results that were asked for again
    used: int  # missed results whose text was used
    ratio: float | None  # dollars relative to the first setting


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of figure."""

    name: str
    meaning: str
    value: Callable[[Figures], str]


def figures_by_setting(labels: Sequence[str], runs: Sequence[ReplayRun]) -> list[Figures]:
    """Return the figures of each setting that has runs, in the order of `labels`."""
    found = {label: [run for run in runs if run.label == label] for label in labels}
    sums = {label: sum((run.sums for run in under), Sums()) for label, under in found.items()}
    first = sums[labels[0]].dollars if labels else 0.0
    return [
        Figures(
            label,
            sums[label],
            sum(need.how == "asked again" for run in under for need in run.needs),
            sum(need.how == "used" for run in under for need in run.needs),
            sums[label].dollars / first if first else None,
        )
        for label, under in found.items()
        if under
    ]


def total_figures(comparison: Comparison) -> list[Figures]:
    """Return the figures of each setting over all recordings."""
    return figures_by_setting(comparison.labels, [run for row in comparison.runs for run in row])


def without_extension(name: str) -> str:
    """Return the name of a recording without the extensions of its format."""
    return _FILE_EXTENSION.sub("", name)


COST_MEASURES = (
    Measure("Calls of the model", "The calls that write a summary are included.",
            lambda f: f"{f.sums.calls:,}{'!' if f.sums.stopped else ''}"),
    Measure("Largest context", "Tokens of the largest prompt.",
            lambda f: format_tokens(f.sums.peak)),
    Measure("Mean context", "Tokens of a prompt, over all calls.",
            lambda f: format_tokens(f.sums.mean)),
    Measure("Tokens sent", "All prompts together.",
            lambda f: format_tokens(f.sums.sent)),
    Measure("Read from the cache", "The share of the tokens sent that came from it.",
            lambda f: format_percent(f.sums.cached)),
    Measure("Cost in dollars",
            "At the model's prices, with the prompt cache, and with reading missed results again.",
            lambda f: format_dollars(f.sums.dollars)),
    Measure("Relative cost", "Dollars relative to the first setting.",
            lambda f: format_ratio(f.ratio)),
)  # fmt: skip
KEPT_MEASURES = (
    Measure("Edits of history",
            "Times that older results were cleared or inputs truncated.",
            lambda f: f"{f.sums.edits:,}"),
    Measure("Stubs", "Results that were cleared and inputs that were truncated.",
            lambda f: f"{f.sums.stubs:,}"),
    Measure("Summaries", "Times that a summary replaced the earlier context.",
            lambda f: f"{f.sums.summaries:,}"),
    Measure("Needed when gone, asked again",
            "Results that the session asked for again after they had left the context.",
            lambda f: f"{f.asked:,}"),
    Measure("Needed when gone, used",
            "Results whose text the session used after it had left the context.",
            lambda f: f"{f.used:,}"),
    Measure("Cost of missed results", "Dollars for getting them again, included in the cost above.",
            lambda f: format_dollars(f.sums.missed_usd)),
    Measure("Facts written when gone",
            "Names, paths, places in files, values and words of errors that the session wrote "
            "after they had left the context.",
            lambda f: f"{f.sums.lost:,}"),
    Measure("Paths kept",
            "The share of the session's paths that the last context still has.",
            lambda f: format_percent(f.sums.paths.value)),
    Measure("Error lines kept",
            "The share of the session's error lines that the last context still has.",
            lambda f: format_percent(f.sums.errors.value)),
    Measure("Recovered exactly",
            "The share of all results whose text comes back by its ref, byte for byte.",
            lambda f: format_percent(f.sums.recovered.value)),
)  # fmt: skip
THINKING_MEASURES = (
    Measure("Thinking dropped",
            "Thinking tokens that edits drop, if the model binds thinking to earlier context.",
            lambda f: format_tokens(f.sums.thinking.dropped)),
    Measure("Saved by dropping it", "Dollars for not sending it again; not part of the cost.",
            lambda f: format_dollars(f.sums.thinking.saved_usd)),
    Measure("Cost of repeating it",
            "Dollars if the model repeats all of it, which is unknown. Not part of the cost.",
            lambda f: format_dollars(f.sums.thinking.again_usd)),
)  # fmt: skip


SUBAGENT_MEASURES = (
    Measure("Read again after a subagent",
            "The share of the files read by subagents that the agent read later itself.",
            lambda f: format_percent(f.sums.explored.value)),
)  # fmt: skip
PAUSE_MEASURES = (
    Measure("Pauses that outlast the cache",
            "Times that the user returned after the prompt cache had expired, of all pauses.",
            lambda f: f"{f.sums.pauses_away:,} of {f.sums.pauses:,}"),
    Measure("Summaries after them",
            "Summaries from the log then, by compact.while_away. Nothing is prepared, so nothing "
            "is in vain.",
            lambda f: f"{f.sums.pauses_used:,}"),
    Measure("Cost of the calls after them", "Dollars of the first call after each such pause.",
            lambda f: format_dollars(f.sums.pauses_usd)),
)  # fmt: skip


def further_measures(figures: Sequence[Figures]) -> tuple[Measure, ...]:
    """Return the measures of subagents, of pauses that outlast the cache, and of dropped thinking,
    if any recording has them.
    """
    explored = any(each.sums.explored.whole for each in figures)
    pauses = any(each.sums.pauses_away for each in figures)
    thinking = any(each.sums.thinking.tokens for each in figures)
    return SUBAGENT_MEASURES * explored + PAUSE_MEASURES * pauses + THINKING_MEASURES * thinking


def headline(comparison: Comparison) -> str:
    """Return the main result as a sentence: the cheapest setting's cost relative to the first."""
    sums = total_figures(comparison)
    if not sums:
        return "No recording was played."
    first, best = sums[0], _cheapest(sums)
    over, cost = count_of(len(comparison.runs), "session"), f"${format_dollars(best.sums.dollars)}"
    if best is first:
        return f"{best.label} costs {cost} over {over}."
    sentence = (
        f"{best.label} costs {format_ratio(best.ratio)} of {first.label} over {over}: {cost} "
        f"instead of ${format_dollars(first.sums.dollars)}."
    )
    stopped = first.sums.stopped or best.sums.stopped
    return f"{sentence} Not comparable: some sessions stopped early." if stopped else sentence


def drawbacks_sentence(comparison: Comparison) -> str:
    """Return the drawbacks of the cheapest setting and the sessions not played to the end; ""
    without recordings.
    """
    sums = total_figures(comparison)
    if not sums:
        return ""
    best = _cheapest(sums).sums
    lost = best.recovered.whole - best.recovered.part
    saved = sums[0].sums.summaries - best.summaries
    again = f"{count_of(best.missed, 'result')} needed when gone"
    sentence = (
        f"Largest context {format_tokens(best.peak)}; {again}; {count_of(lost, 'result')} lost."
    )
    if saved > 0 and best.stubs:
        sentence += (
            f" Clearing freed enough room to save {count_of(saved, 'summary', 'summaries')}."
        )
    stopped = [
        f"{count_of(each.sums.stopped, 'session')} of {each.label}"
        for each in sums
        if each.sums.stopped
    ]
    return sentence + (f" Not played to the end: {', '.join(stopped)}." if stopped else "")


def model_sentence(comparison: Comparison) -> str:
    """Return a sentence with the model and window of the replay; "" without recordings."""
    played = next((run for row in comparison.runs for run in row), None)
    return f"As {played.model}, with a window of {format_tokens(played.window)}." if played else ""


def _cheapest(sums: Sequence[Figures]) -> Figures:
    """Return the cheapest setting after the first, or the first if there is no other."""
    others = [each for each in sums[1:] if each.ratio is not None]
    return min(others, key=lambda each: each.sums.dollars, default=sums[0])


MAX_NAME_CHARS, MAX_LABEL_CHARS = 40, 16

Row = tuple[str, ...]


def comparison_table(comparison: Comparison) -> tuple[Row, list[Row]]:
    """Return the header row and the body rows; both empty if nothing was played."""
    totals = total_figures(comparison)
    if not totals:
        return (), []
    measures = (*COST_MEASURES, *KEPT_MEASURES, *further_measures(totals))
    rows: list[Row] = [(each.name, *map(each.value, totals)) for each in measures]
    if len(comparison.runs) > 1:
        rows += _costs(comparison)
    return ("", *_heads(comparison)), rows


def long_labels(comparison: Comparison) -> list[str]:
    """Return one line for each setting shown as a number in the header row."""
    pairs = zip(_heads(comparison), comparison.labels, strict=True)
    return [f"{head} {clean(label)}" for head, label in pairs if head != clean(label)]


def _heads(comparison: Comparison) -> list[str]:
    return [
        label if len(label) <= MAX_LABEL_CHARS else f"[{number}]"
        for number, label in enumerate(map(clean, comparison.labels), 1)
    ]


def _costs(comparison: Comparison) -> Iterator[Row]:
    for runs in filter(None, comparison.runs):
        spent = {
            each.label: format_dollars(each.sums.dollars)
            for each in figures_by_setting(comparison.labels, runs)
        }
        name = one_line(clean(without_extension(runs[0].name)), MAX_NAME_CHARS) or "(no name)"
        yield (f"{name}: dollars", *(spent.get(label, NO_FIGURE) for label in comparison.labels))


def stopped_notes(comparison: Comparison) -> list[str]:
    """Return one line for each recording that was not played to the end."""
    return [
        clean(f"! {run.name}, {run.label}: stopped after {len(run.priced):,} calls: {run.stopped}")
        for row in comparison.runs
        for run in row
        if run.stopped
    ]
