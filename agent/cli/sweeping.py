"""`ctxagent replay --sweep`: the settings that cost least on recorded sessions, told with the lines
that a file of settings needs for them."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .columns import Columns
from .options import say
from .progress import Progress
from .recordings import Loaded, load_all

if TYPE_CHECKING:
    from ..compaction.policy import Policy
    from ..replay.outcome import Sums
    from ..replay.sweep import Axis, Found, Tried

UNSEEN = "a replay cannot see what the model would have looked up: take less than is offered here"


def sweep_with(options: dict[str, Any], files: Sequence[str], given: Mapping[str, Any]) -> int:
    """Try, and tell what was found. Raises UsageError, before anything is played, for values that
    no setting takes and for settings that change nothing here."""
    from ..replay.series import compare
    from ..replay.sweep import axis, sweep

    axes, columns = [axis(text) for text in given["spans"]], Columns(options, given["ask_model"])
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
        found = sweep(axes, evaluate, bound, policy, progress.name)
    if given["as_json"]:
        say(json.dumps(_document(found, loaded), ensure_ascii=False))
    else:
        terms = columns.changed({})
        say(f"As {terms.model}, with a window of {terms.window:,} tokens.\n")
        _tell(found, found.now.missed if bound is None else bound, len(loaded.recordings))
    return 0


def _check(axis: "Axis", columns: Columns) -> None:
    policies = {columns.changed({axis.key: value}).policy for value in axis.values}
    if len(policies) == 1 < len(axis.values):
        raise UsageError(
            f"--sweep {axis.key}: with all these values the same is played",
            hint="Sweep a setting whose value matters here: `ctxagent config --explain`.",
        )


def _document(found: "Found", loaded: Loaded) -> dict[str, Any]:
    """The document of a sweep: `now` and `tried` as {"settings", "dollars", "missed", "results",
    "summaries", "edits", "stopped", "within"}, `best` the place of one among `tried`, null where
    none keeps to the bound, and `agentrc` the lines for it."""

    def row(tried: "Tried") -> dict[str, Any]:
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
        "agentrc": _lines(found),
        "skipped": loaded.skipped,
        "notes": loaded.notes(),
    }


def _tell(found: "Found", bound: float, sessions: int) -> None:
    for tried in sorted(found.tried, key=lambda tried: tried.sums.dollars):
        mark = "*" if tried is found.best else " " if tried.within else "-"
        what = ", ".join(f"{key}={value}" for key, value in tried.values) or "as it is"
        ended = f"  ({tried.sums.stopped} not played to the end)" if tried.sums.stopped else ""
        say(f"{mark} ${tried.sums.dollars:9.2f}  missed {tried.missed:6.2%}  {what}{ended}")
    over = f"{sessions} session{'s' * (sessions > 1)}"
    if found.best is None:
        least = min(found.tried, key=lambda tried: tried.missed)
        say(
            f"\nNothing that was tried over {over} keeps what is missed within {bound:.2%}; the "
            f"least is {least.missed:.2%}. --bound allows more."
        )
        return
    saved = 1 - found.best.sums.dollars / found.now.sums.dollars if found.now.sums.dollars else 0.0
    told = "nothing tried is cheaper" if found.best is found.now else _worth(found, saved)
    say(f"\n{told}, over {over}. *: the best; -: missed more than {bound:.2%}, or ended early.")
    if any(key.startswith("demote.") for key, _ in found.best.values):
        say(f"Of results that go to files at once, {UNSEEN}.")
    if found.best.values:
        say(f"For .agentrc:\n\n{_lines(found)}")


def _worth(found: "Found", saved: float) -> str:
    """What the best is worth; it costs more where the settings as they are miss too much."""
    if saved >= 0:
        return f"{saved:.1%} cheaper than as it is"
    return f"{-saved:.1%} dearer than as it is, which misses {found.now.missed:.2%}"


def _lines(found: "Found") -> str:
    from ..config import written
    from ..replay.sweep import lines

    return lines(found.best, written) if found.best is not None else ""
