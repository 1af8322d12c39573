"""`ctxagent replay --sweep`: find the cheapest settings for recorded sessions, and print the lines
for a settings file.
"""

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...tools.system.plural import count_of
from ..errors import UsageError
from .options import say
from .progress import Progress
from .replay_columns import Columns, extension_layers
from .replay_recordings import LoadedRecordings, load_all

if TYPE_CHECKING:
    from ..compaction.policy import Policy
    from ..replay.results import Sums
    from ..replay.sweep import Axis, SweepResult, Trial

MIN_TEXT_CELLS = 40
DEMOTE_WARNING = (
    "The best settings move results to files at once. A replay cannot know which of these results "
    "the model would have read again: choose a smaller change than shown."
)


def sweep_with(options: dict[str, Any], files: Sequence[str], given: Mapping[str, Any]) -> int:
    """Run a sweep and print its result.

    Raises UsageError, before the replay, for invalid values and for settings without effect here.
    """
    from ..replay.parallel import compare
    from ..replay.sweep import parse_axis, sweep

    axes = [parse_axis(text) for text in given["spans"]]
    columns = Columns(options, given["ask_model"], layers=extension_layers(options))
    if len({each.key for each in axes}) < len(axes):
        raise UsageError("--sweep names a setting twice", hint="Give all its values in one.")
    for each in axes:
        _check(each, columns)
    loaded = load_all(options, files)
    with Progress("trying") as progress:

        def evaluate(values: Mapping[str, str]) -> "Sums":
            return compare(loaded.recordings, [columns.changed(values, "swept")]).total("swept")

        def policy(values: Mapping[str, str]) -> "Policy":
            return columns.changed(values).policy

        bound = None if given["bound"] is None else given["bound"] / 100
        found = sweep(axes, evaluate, bound, policy, progress.show_trial)
    if given["as_json"]:
        say(json.dumps(_document(found, loaded), ensure_ascii=False))
    else:
        terms = columns.changed({})
        say(f"As {terms.model}, with a window of {terms.window:,} tokens.\n")
        _print_sweep(found, found.now.missed if bound is None else bound, len(loaded.recordings))
    return 0


def _check(axis: "Axis", columns: Columns) -> None:
    policies = {columns.changed({axis.key: value}).policy for value in axis.values}
    if len(policies) == 1 < len(axis.values):
        raise UsageError(
            f"--sweep {axis.key}: all these values give the same replay",
            hint="Sweep a setting that changes the replay: `ctxagent config --explain`.",
        )


def _document(found: "SweepResult", loaded: LoadedRecordings) -> dict[str, Any]:
    """Return a sweep as JSON data: the current settings `now` and those `tried`, the index of the
    `best` among these (null if all miss more than the bound), and the lines for .agentrc.

    `now` and `tried` have {"settings", "dollars", "missed", "results", "summaries", "edits",
    "stopped", "within"}.
    """

    def row(tried: "Trial") -> dict[str, Any]:
        sums = tried.sums
        return {
            "settings": dict(tried.values),
            "dollars": round(sums.dollars, 6),
            "missed": sums.missed,
            "results": sums.recovered.whole,
            "summaries": sums.summaries,
            "edits": sums.edits,
            "stopped": sums.stopped,
            "within": tried.within,
        }

    return {
        "v": 1,
        "now": row(found.now),
        "tried": [row(tried) for tried in found.tried],
        "best": None if found.best is None else found.tried.index(found.best),
        "agentrc": _agentrc_lines(found),
        "skipped": loaded.skipped,
        "notes": loaded.notes(),
    }


def _print_sweep(found: "SweepResult", bound: float, sessions: int) -> None:
    for tried in sorted(found.tried, key=lambda tried: tried.sums.dollars):
        mark = "*" if tried is found.best else " " if tried.within else "-"
        what = ", ".join(f"{key}={value}" for key, value in tried.values) or "as now"
        ended = f"  ({tried.sums.stopped} not played to the end)" if tried.sums.stopped else ""
        say(f"{mark} ${tried.sums.dollars:9.2f}  missed {tried.missed:6.2%}  {what}{ended}")
    over = count_of(sessions, "session")
    if found.best is None:
        least = min(found.tried, key=lambda tried: tried.missed)
        _say_wrapped(
            f"None of the settings tried over {over} misses at most {bound:.2%} of the results; "
            f"the lowest share is {least.missed:.2%}. To allow more, raise --bound."
        )
        return
    saved = 1 - found.best.sums.dollars / found.now.sums.dollars if found.now.sums.dollars else 0.0
    verdict = "no tried value is cheaper" if found.best is found.now else _verdict(found, saved)
    _say_wrapped(
        f"{verdict}, over {over}. *: the cheapest; -: misses more than {bound:.2%}, or a session "
        "stopped early."
    )
    if any(key.startswith("demote.") for key, _ in found.best.values):
        _say_wrapped(DEMOTE_WARNING)
    if found.best.values:
        say(f"\nFor .agentrc, then `ctxagent config --trust`:\n\n{_agentrc_lines(found)}")


def _say_wrapped(text: str) -> None:
    """Print an empty line and a paragraph wrapped to the terminal's width."""
    width = max(shutil.get_terminal_size().columns, MIN_TEXT_CELLS)
    say("\n" + textwrap.fill(text, width))


def _verdict(found: "SweepResult", saved: float) -> str:
    """Compare the cost of the best settings with the current ones. The current ones can be cheaper
    if they miss too many results.
    """
    if saved >= 0:
        return f"{saved:.1%} cheaper than now"
    return f"{-saved:.1%} more expensive than now, which misses {found.now.missed:.2%}"


def _agentrc_lines(found: "SweepResult") -> str:
    from ..config.load import flag_value_text
    from ..replay.sweep import settings_lines

    return settings_lines(found.best, flag_value_text) if found.best is not None else ""
