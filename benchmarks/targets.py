"""Targets for the figures: bounds for CPU, memory and time, and counts that must hold.

A wrong count is a defect on any machine and makes the exit code 1. A missed bound may be caused by
the machine, so it is only reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """The condition that `figure` of `row` (any if empty) in table `title` is at most `most`."""

    name: str
    title: str
    row: str
    figure: str
    most: float
    count: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    target: Target
    measured: float

    @property
    def met(self) -> bool:
        return self.measured <= self.target.most

    @property
    def broken(self) -> bool:
        return self.target.count and not self.met


COMMAND = "a command"
CONTEXT = "one call, by size of the context"
CONTEXT_KEYS = "a key in /context"
SIDE = "side by side"
TOGETHER = "agents in one process"
FACT = "the fact, index deleted or outdated"
PROBES = "probes of useless summaries"
LONG = "resuming a long session"
PLANTED = "a scan for planted files"
LOST = "recorded sessions with bad summaries"
QUERY = "a query, the index warm"
INDEX = "the index"
UNDO = "undo among many files"
DUE = "a summary is due"
TOOLS = "tools of MCP servers"
PROXY = "a request through the proxy"
LIMITS = "limits"
RECORDED = "presets, recorded sessions"  # the 87 recordings of the guide
SYNTHETIC = "presets, a synthetic recording"
PEERS = "cost relative to other agents"  # the recordings of benchmarks/peers/README.md
FLEET_ROW = "ctxagent fleet"
COMPARED = "two presets compared"
FLEET, MANIFEST, RESUMED = "a fleet that is killed", "a long manifest", "nearly all done"
TARGETS = (
    Target("`--version`, CPU s", "start-up", "--version", "cpu_s", 0.06),
    Target("first paint of the REPL, CPU s", "start-up", "first paint of the REPL", "cpu_s", 0.25),
    Target("`-p` to its first request, CPU s", "start-up", "-p, first request", "cpu_s", 0.5),
    Target("`-p` in a repository, CPU s", "start-up", "-p, first request, in git", "cpu_s", 0.5),
    Target("`-p` with one answer, CPU s", "start-up", "-p, one request", "cpu_s", 0.42),
    Target("a command, CPU ms", COMMAND, "it changes none", "cpu_ms", 19),
    Target("a command that changes a file, CPU ms", COMMAND, "it changes a file", "cpu_ms", 19),
    Target("a read-only command, CPU ms", COMMAND, "it reads", "cpu_ms", 17),
    Target("a command, wall ms", COMMAND, "it changes none", "wall_ms", 35),
    Target("key to screen, p99 ms", "echo", "", "p99_ms", 50),
    Target("key in /context, 3,000 items, CPU ms", CONTEXT_KEYS, "", "p99_ms", 50),
    Target("Esc to the interrupt message, s", "interrupts", "", "max_s", 1.0),
    Target("a call at 60k tokens, CPU ms", CONTEXT, "60,000 tokens", "cpu_ms", 15),
    Target("a call at 180k tokens, CPU ms", CONTEXT, "180,000 tokens", "cpu_ms", 20),
    Target("call, long log / short log", "one call, by length of the log", "", "x_short", 1.2),
    Target("memory at 180k tokens, MB", "memory of a long session", "", "peak_MB", 150),
    Target("memory growth, second half, MB", "memory of a long session", "", "growth_MB", 5),
    Target(
        "requests rejected, 1,000 calls", "memory of a long session", "", "rejected", 0, count=True
    ),
    Target("memory of a command that prints 100 MB", "a whole output", "", "peak_mb", 150),
    Target("lines missing in that output", "a whole output", "", "missing", 0, count=True),
    Target("memory of the largest inputs, MB", LIMITS, "", "mb", 100),
    Target("10,000 calls, second half / first", LIMITS, "", "slowdown", 1.2),
    Target("10,000 calls, second half, MB", LIMITS, "", "second_half_mb", 10),
    Target("a request through the proxy, ms", PROXY, "unchanged, 40 results", "added_ms", 10),
    Target("an edited request, proxy, ms", PROXY, "edited, 40 results", "added_ms", 10),
    Target("memory of the proxy, MB", PROXY, "", "added_MB", 30),
    Target("questions, sandboxed", "questions by mode", "sandboxed", "questions", 10),
    Target("false alarms of loops", "work that repeats calls", "", "alarms", 0, count=True),
    Target(
        "false alarms, recorded sessions",
        "recorded sessions without a loop",
        "",
        "alarms",
        0,
        count=True,
    ),
    Target("loops missed", "loops", "", "missed", 0, count=True),
    Target("messages sent in a new form", "a request from a view", "", "changed", 0, count=True),
    Target("a prepared summary, CPU ms", DUE, "prepared ahead", "apply_cpu_ms", 20),
    Target("a pause for a prepared summary, ms", DUE, "prepared ahead", "pause_ms", 200),
    Target("requests rejected, summaries", DUE, "", "rejected", 0, count=True),
    Target("50 agents, longest turn of the loop, CPU ms", TOGETHER, "", "cpu_ms", 60),
    Target("50 agents, longest turn of the loop, ms", TOGETHER, "", "worst_ms", 100),
    Target("agents that failed, one process", TOGETHER, "", "failed", 0, count=True),
    Target("4 subagents, parallel / serial", "four subagents", SIDE, "x_wall", 0.4),
    Target("requests rejected, subagents", "four subagents", "", "rejected", 0, count=True),
    Target("answers lost, subagents", "four subagents", "", "lost", 0, count=True),
    Target("requests rejected, long run", "a long run", "", "rejected", 0, count=True),
    Target("cost / summaries only, long run", "a long run", "default", "ratio", 0.5, count=True),
    Target("cost / summaries only, synthetic", SYNTHETIC, "default", "ratio", 0.6, count=True),
    Target("the same, `lean`", SYNTHETIC, "lean", "ratio", 0.51, count=True),
    Target("results not restored, synthetic", SYNTHETIC, "", "results_lost", 0, count=True),
    Target("paths lost, synthetic", SYNTHETIC, "", "paths_lost", 0, count=True),
    Target("cost / summaries only, recorded", RECORDED, "default", "ratio", 0.555, count=True),
    Target("the same, recorded, `lean`", RECORDED, "lean", "ratio", 0.485, count=True),
    Target("needed when gone, %", RECORDED, "default", "needed_pct", 1.2, count=True),
    Target("needed when gone, `lean`, %", RECORDED, "lean", "needed_pct", 1.6, count=True),
    Target("error lines lost, recorded", RECORDED, "default", "errors_lost", 1, count=True),
    Target("error lines lost, `lean`", RECORDED, "lean", "errors_lost", 4, count=True),
    Target("facts written when gone", RECORDED, "default", "facts", 720, count=True),
    Target("facts written when gone, `lean`", RECORDED, "lean", "facts", 1_230, count=True),
    Target("paths lost, recorded", RECORDED, "default", "paths_lost", 0, count=True),
    Target("paths lost, recorded, `lean`", RECORDED, "lean", "paths_lost", 5, count=True),
    Target("results not restored, recorded", RECORDED, "", "results_lost", 0, count=True),
    Target("cost / cheapest other agent", PEERS, "ctxagent", "x_cheapest", 0.66, count=True),
    Target("the same, `lean` and others", PEERS, "lean", "x_cheapest", 0.46, count=True),
    Target("the same, worst session", PEERS, "ctxagent", "worst", 0.98, count=True),
    Target("requests rejected, strict windows", "strict windows", "", "rejected", 0, count=True),
    Target("a query, warm index, ms", QUERY, "", "ms", 300),
    Target("a query, no index, s", FACT, "", "s", 3),
    Target("the index, s for 1 MB of text", INDEX, "", "s_per_mb", 0.25),
    Target("the index / the text, size", INDEX, "", "x_of_text", 0.5),
    Target("indexed facts not found", FACT, "", "missed", 0, count=True),
    Target("paths lost with a summary", LOST, "", "paths_missing", 0, count=True),
    Target("messages lost with a summary", LOST, "", "words_missing", 0, count=True),
    Target("rules lost with a summary", LOST, "", "rules_missing", 0, count=True),
    Target("open errors lost with a summary", LOST, "", "errors_missing", 0, count=True),
    Target("decisions lost with a summary", LOST, "", "decisions_missing", 0, count=True),
    Target("results lost with a summary", LOST, "", "results_lost", 0, count=True),
    Target("probes not answered", PROBES, "", "missed", 0.10, count=True),
    Target("probes of artifacts not answered", PROBES, "", "missed_artifacts", 0.05, count=True),
    Target("resume, long log - short log, s", LONG, "", "wall_s", 1.0),
    Target("resume, long log - short log, MB", LONG, "", "peak_MB", 200),
    Target(
        "Read, sandbox required, more ms", "Read of a file", "Read, sandbox required", "more_ms", 1
    ),
    Target("start in the sandbox, wall ms", "a command's start", "bubblewrap", "wall_ms", 17),
    Target("start under Landlock, wall ms", "a command's start", "Landlock alone", "wall_ms", 17),
    Target("undo, first scan in a repository, s", UNDO, "repository", "first_scan_s", 15),
    Target("undo, first scan in a folder, s", UNDO, "folder", "first_scan_s", 60),
    Target("undo, later scan, s", UNDO, "", "later_scan_s", 3),
    Target("undo, snapshot, s", UNDO, "", "snapshot_s", 5),
    Target("a scan for planted files, ms", PLANTED, "later", "wall_ms", 50),
    Target("folders read again, planted", PLANTED, "later", "folders_read", 1, count=True),
    Target("requests rejected, resume", LONG, "", "rejected", 0, count=True),
    Target("tokens of the first request", TOOLS, "no servers", "first_tokens", 2_080, count=True),
    Target("tokens for 120 MCP tools", TOOLS, "the one tool", "more_first", 400, count=True),
    Target("prompts with 120 MCP tools, $", TOOLS, "the one tool", "dollars", 0.65, count=True),
    Target("cache misses, MCP servers", TOOLS, "", "misses", 0, count=True),
    Target("requests rejected, MCP servers", TOOLS, "", "rejected", 0, count=True),
    Target("tasks of a fleet not done", FLEET, "", "not_done", 0, count=True),
    Target("requests a fleet paid twice", FLEET, "", "twice", 0, count=True),
    Target("fleet bill - sum of logs, $", FLEET, "", "bill_off", 1e-6, count=True),
    Target("agents left running", FLEET, "", "left_running", 0, count=True),
    Target("requests an evaluation paid twice", COMPARED, "", "repeated", 0, count=True),
    Target(
        "true rates outside the interval",
        "an evaluation with known rates",
        "",
        "outside",
        0,
        count=True,
    ),
    Target("wall time, fleet / xargs", "a fleet and xargs", FLEET_ROW, "x_wall", 1.1),
    Target("CPU time, fleet / xargs", "a fleet and xargs", FLEET_ROW, "x_cpu", 1.1),
    Target("10,000 tasks, start, CPU s", MANIFEST, "", "start_cpu_s", 2.0),
    Target("10,000 tasks, status, CPU s", MANIFEST, "", "status_cpu_s", 1.0),
    Target("10,000 tasks, status, stat calls", MANIFEST, "", "stat_calls", 1_800, count=True),
    Target("10,000 tasks, resume, CPU s", MANIFEST, RESUMED, "start_cpu_s", 0.8),
    Target(
        "10,000 tasks, resume, stat calls",
        MANIFEST,
        RESUMED,
        "resume_stat_calls",
        3_200,
        count=True,
    ),
    Target("10,000 tasks, live page, CPU s", MANIFEST, "", "page_cpu_s", 1.0),
    Target("10,000 tasks, later page, CPU ms", MANIFEST, "", "next_page_cpu_ms", 30),
    Target("10,000 tasks, memory, MB", MANIFEST, "", "peak_MB", 150),
)


def check_targets(tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[Verdict]:
    """Return a verdict for each target that was measured, with the worst of its rows."""
    return list(_verdicts(tables))


def _verdicts(tables: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[Verdict]:
    for target in TARGETS:
        rows = tables.get(target.title, {})
        found = [
            figures[target.figure]
            for row, figures in rows.items()
            if target.row in ("", row) and target.figure in figures
        ]
        if found:
            yield Verdict(target, max(found))


def table(verdicts: Sequence[Verdict]) -> str:
    """Return a table of targets, bounds, measured values and verdicts, as in
    docs/guide/performance.md.
    """
    lines = [f"| {'target':<36} | at most | measured | met |", "| --- | --- | --- | --- |"]
    for each in verdicts:
        met = "yes" if each.met else "BROKEN" if each.broken else "no"
        name, most = each.target.name, each.target.most
        lines.append(f"| {name:<36} | {most:>7.4g} | {each.measured:>8.3g} | {met:<3} |")
    return "\n".join(lines)
