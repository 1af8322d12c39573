"""Run other vendors' agents against a scripted model, directly or through a proxy.

    .venv/bin/python benchmarks/clients/run.py --client claude=PATH --client codex=PATH
    .venv/bin/python benchmarks/clients/run.py --client claude=PATH --proxy

README.md describes the installation, the scenarios and the figures.
"""

import argparse
import datetime
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "peers"), str(HERE.parent / "protocols")]

from agents import environ  # noqa: E402
from clients import CLAUDE_MODEL, CLIENTS, OPENAI_MODEL, Client, InTerminal  # noqa: E402
from compare import table, version_of  # noqa: E402
from proxies import wrapped  # noqa: E402
from replies import (  # noqa: E402
    Command,
    NewContent,
    Page,
    Reply,
    Subagent,
    Wait,
    of_command,
    of_commands,
    of_recording,
)
from script import OF_CLIENT, OURS, QUESTION, SERVERS, Capture, Model  # noqa: E402
from scripted import RECALL  # noqa: E402
from servers import Relay, relay  # noqa: E402

from ctxagent.addons.replay.formats import load_recording  # noqa: E402
from ctxagent.agent.models.catalog import cache_terms, cost  # noqa: E402
from ctxagent.agent.session.entries import Usage  # noqa: E402
from ctxagent.tests.support.command import COMMAND  # noqa: E402
from ctxagent.tests.support.server.loopback import Body, Fail, Say, Server  # noqa: E402
from ctxagent.tests.support.terminal import tmux  # noqa: E402

OUR_PROXY = f"{COMMAND} proxy --port {{port}} --upstream {{upstream}}"
TASK = "Run the commands, one after another."
OTHER = " Another way."
EDIT = "note.txt\n<<<<<<< SEARCH\n=======\nWritten.\n>>>>>>> REPLACE\n"
NOTE = "Written.\n"
TERMINAL_TURNS, TERMINAL_CALLS = 4, 4  # turns in a terminal, commands per turn
SUBTASK, SUB_DONE = "Look into the second part.", "The second part is done."
SUB_CALLS, BOUND_CALLS = 8, 48
AGAIN_CALLS, AGAIN_NEEDS = 60, 4
RESUMED_CALLS = 24  # in each of two processes
MIN_AGE = 12  # of an output that is needed again, in commands
LARGE = 20  # each 20th command prints twice as much
OVERLOADED = {"messages": 529, "responses": 503, "chat": 503, "gemini": 503}  # statuses
WAYS = ("file", "recall", "call")  # to get an older output
FOUND_S = 60.0  # timeout until a proxy listens
Figures = dict[str, float | str]


@dataclass
class Run:
    """One client in its own home, with the server that it uses."""

    client: Client
    command: str
    folder: Path
    options: argparse.Namespace
    model: Model
    server: Server
    relay: Relay | None = None
    env: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)  # of `ctxagent wrap`
    other_model: tuple[str, str] | None = None  # the client's model, and the one to use instead
    wrong: list[str] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def start(self, arguments: Sequence[str]) -> bool:
        """Run the client to its end; return True if its exit code is 0."""
        if self.other_model:
            arguments = [each.replace(*self.other_model) for each in arguments]
        try:
            done = subprocess.run(
                [self.command, *self.flags, *arguments], env=self.env, cwd=self.project, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=self.options.limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self.wrong.append(f"it ran for more than {self.options.limit:.0f} s")
            return False
        if done.returncode != 0:
            self.wrong += done.stdout.splitlines()[-5:]
        return done.returncode == 0


def parts(count: int, calls: int, size: int) -> list[Reply]:
    """Return `count` turns of `calls` commands each."""
    turns: list[Reply] = []
    for number in range(1, count + 1):
        turns += [*of_commands(calls, size), Reply(f"Part {number} is done.", [])]
    return turns


def long(client: Client, folder: Path, options: argparse.Namespace) -> list[Reply]:
    """Return commands, of which some print twice as much, or the replies of a recorded session.
    Some replies need an older output.
    """
    if options.recording is None:
        every, bytes = options.needs, options.bytes
        large = min(2 * bytes, client.largest_output or 2 * bytes)
        replies = [
            of_command(number, options.calls, large if number % LARGE == 0 else bytes)
            for number in range(1, options.calls + 1)
        ]
        first = LARGE + MIN_AGE
        for count, number in enumerate(range(first, len(replies), every) if every else ()):
            large_one = LARGE * ((number - MIN_AGE) // LARGE) - 1
            needed = number // 3 if count % 2 else large_one
            replies[number] = replace(replies[number], needs=[needed])
        return [*replies, Reply("Part 1 is done.", [])]
    files = folder / "recorded"
    files.mkdir()
    replies = of_recording(load_recording(options.recording), files)
    return [*replies, Reply("The recording is at its end.", [])]


def again(client: Client, folder: Path, options: argparse.Namespace) -> list[Reply]:
    """Return commands with replies that often need an older output."""
    often = {**vars(options), "calls": AGAIN_CALLS, "needs": AGAIN_NEEDS, "recording": None}
    return long(client, folder, argparse.Namespace(**often))


def task(client: Client, folder: Path, options: argparse.Namespace) -> list[Reply]:
    """Return a command, then a write and a read of a file."""
    if not client.has_tools:
        return [Reply(EDIT, [])]
    note = folder / "project" / "note.txt"
    replies = [*of_commands(1, 500)]
    if client.has_files:
        replies.append(Reply("A file:", [NewContent(note, NOTE)]))
        replies.append(Reply("What is in it?", [Page(note, NOTE, 1)]))
    else:
        command = f"printf 'Written.\\n' > {note} && cat {note}"
        replies.append(Reply("A file:", [Command(command, NOTE)]))
    return [*replies, Reply("The task is done.", [])]


def do_task(run: Run) -> Figures:
    ended = run.start(run.client.task(TASK))
    note = run.project / "note.txt"
    return {"done": float(ended and note.exists() and note.read_text() == NOTE)}


def do_long(run: Run) -> Figures:
    ended = run.start(run.client.task(TASK))
    return {"done": float(ended and run.model.said == len(run.model.replies))}


def do_start(run: Run) -> Figures:
    """Start the client several times; count the starts whose first request offers `recall`."""
    done = offered = 0
    for _ in range(run.options.starts):
        before = len(run.server.requests)
        done += run.start(run.client.task(TASK))
        offered += offers_recall(run.server.requests[before:])
    return {
        "done": float(done == run.options.starts),
        "starts": run.options.starts,
        "  with recall in the first request": offered,
    }


def offers_recall(requests: Sequence[Body]) -> bool:
    """Return True if the first request with tools has a tool `recall`."""
    first = next((one for one in requests if one.get("tools")), {"tools": []})
    return any(RECALL.fullmatch(tool["name"].lower()) for tool in first["tools"])


def do_resume(run: Run) -> Figures:
    first = run.start(run.client.task(TASK))
    before = len(run.server.requests)
    second = run.start(run.client.again("Go on with the next ones."))
    later = [
        one
        for one in run.server.requests[before:]
        if any(is_continued(old, one) for old in run.server.requests[:before])
    ]
    goes_on = any("Part 1 is done." in json.dumps(one) for one in run.server.requests[before:])
    ended = first and second and run.model.said == len(run.model.replies)
    return {
        "done": float(ended and goes_on),
        "requests that continue the first": len(later),
    }


def do_subagent(run: Run) -> Figures:
    ended = run.start(run.client.task(TASK))
    subagent = run.model.subagents[SUBTASK]
    reported = SUB_DONE in json.dumps(run.server.requests[-1])
    return {"done": float(ended and reported and subagent.said == len(subagent.replies))}


def with_subagent(run: Run) -> None:
    replies = [*of_commands(SUB_CALLS, run.options.bytes), Reply(SUB_DONE, [])]
    subagent = Model(
        replies, run.options.window, clock=run.model.clock, has_marks=run.model.has_marks
    )
    run.model.subagents = {SUBTASK: subagent}


def subagent_replies(client: Client, folder: Path, options: argparse.Namespace) -> list[Reply]:
    started = Reply("A subagent:", [Subagent(SUBTASK, SUB_DONE)])
    waits = [Reply("I wait for it.", [Wait(SUB_DONE)])] if client.waits else []
    return [started, *waits, Reply("The subagent has reported.", [])]


def with_faults(run: Run) -> None:
    """Let the server be overloaded once, and break the stream of a reply once."""
    cut = Say("I begin to say", fault="cut")
    run.model.faults = {2: Fail(OVERLOADED[run.client.protocol], "Overloaded"), 5: cut}


def with_thinking(run: Run) -> None:
    """Use a model whose thinking is bound to the text before it."""
    run.model.thinks = run.server.bound = True
    run.other_model = run.client.bound


def do_terminal(run: Run) -> Figures:
    """Play two turns, rewind to before the second, then play a turn, a compaction and one more
    turn.
    """
    terminal = run.client.terminal
    assert terminal is not None
    figures: Figures = {"done": 0.0, "rewound": 0.0, "compacted": 0.0}
    with tmux.pane(
        *run.flags, *terminal.arguments, cwd=run.project, env={**run.env, "TERM": "xterm-256color"},
        columns=120, rows=40, command=run.command,
    ) as pane:  # fmt: skip
        try:
            _in_terminal(run, pane, terminal, figures)
        except AssertionError as error:
            run.wrong += [line for line in str(error).splitlines() if line.strip()][:40]
    return figures


def _in_terminal(run: Run, pane: tmux.Pane, terminal: InTerminal, figures: Figures) -> None:
    def turn(words: str, number: int) -> None:
        _press(pane, (f"={words}", "Enter"))
        pane.see(f"Part {number} is done.")
        pane.rest()

    pane.see(terminal.ready)
    pane.still()
    turn(TASK, 1)
    turn("Go on.", 2)
    _press(pane, terminal.rewind)
    before = len(run.server.requests)
    turn(OTHER, 3)
    figures["rewound"] = float(_is_rewound(run.server.requests, before))
    asked = run.model.asides[OF_CLIENT]
    _press(pane, terminal.compact)
    pane.see(lambda _: run.model.asides[OF_CLIENT] > asked)
    pane.still()
    figures["compacted"] = run.model.asides[OF_CLIENT] - asked
    turn("And on.", 4)
    figures["done"] = 1.0


def _press(pane: tmux.Pane, steps: Sequence[str]) -> None:
    for step in steps:
        if step.startswith("="):
            pane.type(step[1:])
        else:
            for key in step.split():
                pane.key(key)
                time.sleep(0.1)  # keys of one step must arrive separately
        pane.rest()


def _is_rewound(requests: Sequence[Body], place: int) -> bool:
    """Return True if the history of the request with OTHER is cut out of an older request."""
    one = next(r for r in requests[place:] if OTHER.strip() in json.dumps(r["messages"][-1]))
    history = plain(one)[:-1]
    return any(
        plain(old)[: len(history)] == history and len(plain(old)) > len(history) + 1
        for old in requests[:place]
    )


def is_continued(old: Body, new: Body) -> bool:
    """Return True if a request begins with all messages of an older one."""
    history = plain(old)
    return len(plain(new)) > len(history) and plain(new)[: len(history)] == history


def plain(body: Body) -> list[Any]:
    """Return the messages without cache marks."""
    return [
        [message["role"], [{k: v for k, v in b.items() if k != "cache_control"} for b in content]]
        for message in body["messages"]
        for content in [message["content"]]
    ]


@dataclass(frozen=True)
class Scenario:
    does: Callable[[Run], Figures]
    replies: Callable[[Client, Path, argparse.Namespace], list[Reply]]
    why_not: Callable[[Client], str] = lambda client: ""
    prepare: Callable[[Run], None] = lambda run: None


def _without_tools(client: Client) -> str:
    return "" if client.has_tools else "it has no tools"


SCENARIOS = {
    "task": Scenario(do_task, task),
    "start": Scenario(do_start, lambda c, f, o: parts(o.starts, 0, o.bytes), _without_tools),
    "long": Scenario(do_long, long, _without_tools),
    "again": Scenario(do_long, again, _without_tools),
    "resume": Scenario(do_resume, lambda c, f, o: parts(2, RESUMED_CALLS, o.bytes), _without_tools),
    "terminal": Scenario(
        do_terminal,
        lambda c, f, o: parts(TERMINAL_TURNS, TERMINAL_CALLS, o.bytes),
        lambda client: "" if client.terminal else "there is no script for its terminal",
    ),
    "subagent": Scenario(
        do_subagent, subagent_replies,
        lambda client: "" if client.has_subagents else "it has no subagents",
        with_subagent,
    ),
    "faults": Scenario(
        do_long, lambda c, f, o: parts(1, SUB_CALLS, o.bytes), _without_tools, with_faults
    ),
    "bound": Scenario(
        do_long, lambda c, f, o: parts(1, BOUND_CALLS, o.bytes),
        lambda client: "" if client.bound else "it is played with no model with bound thinking",
        with_thinking,
    ),
}  # fmt: skip


@contextmanager
def proxied(words: str, server: Server, folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Start a proxy and yield its address. In the command, {port} is the port to listen on; {url}
    and {upstream} are the address of the server.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kind = server.protocol if server.protocol in ("messages", "gemini") else "openai"
    base = f"{server.url}/v1" if kind == "openai" else server.url
    given = {"port": str(port), "url": base, "upstream": f"{kind}={base}"}
    command = [word.format(**given) for word in shlex.split(words)]
    with (folder / "proxy.txt").open("w") as out, subprocess.Popen(
        command, env=dict(env), cwd=folder / "project", stdin=subprocess.DEVNULL, stdout=out,
        stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            until = time.monotonic() + FOUND_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"no proxy: {(folder / 'proxy.txt').read_text()}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def play(client: Client, command: str, name: str, options: argparse.Namespace) -> Figures:
    """Play one scenario with one client."""
    scenario = SCENARIOS[name]
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        ).resolve()
        home, project = folder / "home", folder / "project"
        for place in (home / "tmp", project):
            place.mkdir(parents=True)
        options = argparse.Namespace(**vars(options))
        options.window = client.window or options.window
        options.bytes = min(options.bytes, client.largest_output or options.bytes)
        replies = scenario.replies(client, folder, options)
        model = Model(
            replies, options.window, clock=lambda: (0.0, 0.0), has_tools=client.has_tools,
            has_marks=client.protocol == "messages",
        )  # fmt: skip
        server = stack.enter_context(SERVERS[client.protocol](model))
        if options.capture is not None:
            options.capture.mkdir(parents=True, exist_ok=True)
            server.capture = Capture(options.capture / f"{client.name}-{name}.jsonl")
        run = Run(client, command, folder, options, model, server)
        run.env = {**environ(home), "PATH": os.environ["PATH"]}
        url = server.url
        if options.proxy is not None:
            url = stack.enter_context(proxied(options.proxy, server, folder, run.env))
            run.relay = stack.enter_context(relay(url, "none"))
            url = run.relay.url
        run.env |= client.configure(home, project, url, options.window)
        if options.proxy == OUR_PROXY:
            run.flags, more = wrapped(client.name, url, run.env, project)
            run.env |= more
        scenario.prepare(run)
        started = time.perf_counter()
        figures = {"version": version_of(command, run.env, project), **scenario.does(run)}
        figures["wall, s"] = time.perf_counter() - started
        figures |= counts(run)
    for line in [*run.wrong, *sorted({message for message, _ in server.rejected})]:
        print(f"{client.name}, {name}: {line}", file=sys.stderr)
    return figures


def counts(run: Run) -> Figures:
    model, server = run.model, run.server
    priced = CLAUDE_MODEL if run.client.protocol == "messages" else f"openai/{OPENAI_MODEL}"
    thousand = Usage(input=1_000, cache_read=0, cache_creation=0, output=0)
    tokens = model.bill.relative(cache_terms(priced))
    figures: Figures = {
        "calls asked for": model.asked,
        "outputs that came back whole": model.whole,
        "older outputs asked for": model.again,
        **{f"  {way}, came back": f"{model.returned[way]}/{model.wanted[way]}" for way in WAYS},
        "requests": len(server.requests),
        "  side questions": model.asides[QUESTION],
        "  summaries of the client": model.asides[OF_CLIENT],
        "  summaries of the proxy": model.asides[OURS],
        "  refused by a rule": len(server.rejected),
        "  refused as too long": model.too_long,
        "first prompt, tokens": model.first,
        "largest prompt, tokens": model.peak,
        "prompts in sum, tokens": model.bill.prompt,
        "  read from a cache, share": model.bill.read / max(1, model.bill.prompt),
        "prompts, dollars": tokens * (cost(priced, thousand) or 0.0) / 1_000,
    }
    if run.relay is not None:
        sent = [one for one in run.relay.exchanges if one.protocol == run.client.protocol]
        figures["recall in the first request"] = float(offers_recall(run.server.requests))
        figures["bodies of the client"] = len(sent)
        figures["  that came on as they were"] = sum(o.digest in server.digests for o in sent)
        refused = sum(one.status >= 400 for one in sent)
        figures["  that were refused"] = refused
        figures["  that failed"] = max(0, refused - model.too_long - model.overloads)
    return figures


def _client(words: str) -> tuple[str, str]:
    name, _, command = words.partition("=")
    if name not in CLIENTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(CLIENTS)}")
    return name, command or name


def asked(given: Sequence[str] | None = None) -> argparse.Namespace:
    words = argparse.ArgumentParser(description="agents of others, directly or through a proxy")
    words.add_argument(
        "--client", action="append", type=_client, metavar="NAME[=PATH]",
        help=f"{', '.join(CLIENTS)}; without a path, the command of that name; repeatable",
    )  # fmt: skip
    words.add_argument("--scenario", action="append", choices=SCENARIOS, help="repeatable")
    words.add_argument("--calls", type=int, default=300, help="commands of the long session")
    words.add_argument("--starts", type=int, default=5, help="starts of the client in `start`")
    words.add_argument(
        "--needs", type=int, default=30, metavar="N",
        help="each N-th reply of the long session needs an older output; 0: none",
    )  # fmt: skip
    words.add_argument("--bytes", type=int, default=12_000, help="approximate output of each")
    words.add_argument(
        "--recording", type=Path, metavar="FILE",
        help="play the calls of a recorded session in the long session, instead of commands",
    )  # fmt: skip
    words.add_argument("--window", type=int, default=200_000, help="of the model, in tokens")
    words.add_argument("--limit", type=float, default=1_800.0, help="seconds for each start")
    words.add_argument(
        "--proxy", nargs="?", const=OUR_PROXY, metavar="COMMAND",
        help="use a proxy; COMMAND starts it and can contain {port}, {url} and {upstream}; the "
        "default is ctxagent's",
    )  # fmt: skip
    words.add_argument(
        "--capture", type=Path, metavar="FOLDER", help="write all request bodies to FOLDER"
    )
    return words.parse_args(given)


def main() -> None:
    options = asked()
    through = "directly"
    if options.proxy is not None:
        through = f"through {Path(shlex.split(options.proxy)[0]).name}"
    for name in options.scenario or SCENARIOS:
        rows: dict[str, Figures] = {}
        for client_name, command in options.client or [(each, each) for each in CLIENTS]:
            client, found = CLIENTS[client_name], shutil.which(command)
            why_not = SCENARIOS[name].why_not(client)
            if name == "long" and options.recording and not client.has_files:
                why_not = "it has no tools that read and write files"
            if found is None:
                why_not = f"there is no command {command}"
            if found is None or why_not:
                print(f"{client_name}, {name}: skipped, {why_not}", file=sys.stderr)
                continue
            rows[client_name] = play(client, str(Path(found).absolute()), name, options)
        title = f"{name}, {through}, in a window of {options.window:,} tokens; "
        calls = f"{options.calls} calls of {options.bytes:,} bytes"
        title += f"{options.recording.name if options.recording else calls}; "
        title += str(datetime.date.today())
        print(title, table(rows), json.dumps({"benchmark": title, "rows": rows}), sep="\n")


if __name__ == "__main__":
    main()
