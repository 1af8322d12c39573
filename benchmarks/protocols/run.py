"""Run one task over each protocol, with the real command and third-party servers.

    .venv/bin/python benchmarks/protocols/run.py FOLDER [NAME...]

installs aimock (npm) and LiteLLM's proxy (PyPI) into FOLDER and plays the task with each of them,
or only with the given NAMEs (see ROUTES). If `make .real/.installed` has installed llama.cpp with a
small model, a shorter task is played with it.

The task: 50 tool calls, one of which reads an image; summaries; a kill -9 in the middle;
`--continue`; one question over another protocol, and one over the first again, all in one session.
The exit code is 1 if a run fails, a server refuses a request, `ctxagent replay` cannot rebuild a
request byte for byte, or the log has other bytes than were sent.
"""

import argparse
import base64
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import servers
from servers import KEY, MODEL, Relay

from ctxagent.agent.compaction.summary.request import QUESTION_START
from ctxagent.agent.session.entries import Usage
from ctxagent.tests.e2e.test_images import png
from ctxagent.tests.real.run import PYTHON as LLAMA_PYTHON
from ctxagent.tests.real.run import served as served_by_llama
from ctxagent.tests.support.command import Place, comes

CALLS, SUMMARIES, WINDOW = 50, 3, 30_000
IMAGE, PIXELS = "picture.png", png(400, 300)
IMAGE_BYTES = base64.b64encode(PIXELS).decode()
SUMMARY = """## Session Intent
Count to the end.
## Key Decisions
1. One number after another.
## Current State
Phase: running
- Done: the first numbers
## Next Steps
1. Count on.
"""
SCRIPT = {"calls": CALLS, "image": IMAGE, "question": QUESTION_START, "summary": SUMMARY}
COMMON = ("--allow", "Bash", "-c", "clear.when=off", "-c", "sandbox.mode=off")
KEYS = dict.fromkeys(
    ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "OPENROUTER_API_KEY",
     "LITELLM_API_KEY", "LLAMA_API_KEY"), KEY,
)  # fmt: skip
RUN_S = 900.0  # time limit of one run
MAX_TURNS_CODE = 4  # exit code if the small model reaches --max-turns


class Route(NamedTuple):
    """The connection to one server over one protocol."""

    server: str
    protocol: str
    model: str  # as in --model
    variable: str = ""  # variable with the address; "" if it is in `providers.toml`
    end: str = ""  # suffix of the address

    @property
    def name(self) -> str:
        return f"{self.server}/{self.protocol}"


MESSAGES, RESPONSES, CHAT = "messages", "responses", "chat"
OWN_PROVIDER = "elsewhere"  # a row of the user's providers.toml
AIMOCK = (
    Route("aimock", MESSAGES, MODEL, "ANTHROPIC_BASE_URL"),
    Route("aimock", RESPONSES, f"azure/{MODEL}", "AZURE_OPENAI_ENDPOINT"),
    Route("aimock", CHAT, f"openai/{MODEL}", "OPENAI_BASE_URL", "/v1"),
)
# The configured type of the server behind LiteLLM: it uses Responses for OpenAI, chat for vLLM.
LITELLM_PROVIDERS = {"LiteLLM to OpenAI": "openai", "LiteLLM to vLLM": "hosted_vllm"}
ROUTES = (
    *AIMOCK,
    Route("aimock as OpenRouter", CHAT, f"{OWN_PROVIDER}/{MODEL}", end="/api/v1"),
    *(
        route
        for server in LITELLM_PROVIDERS
        for route in (
            Route(server, MESSAGES, MODEL, "ANTHROPIC_BASE_URL"),
            Route(server, RESPONSES, f"{OWN_PROVIDER}/{MODEL}", end="/v1"),
            Route(server, CHAT, f"litellm/{MODEL}", "LITELLM_BASE_URL", "/v1"),
        )
    ),
    Route("llama.cpp", MESSAGES, "smollm2", "ANTHROPIC_BASE_URL"),
    Route("llama.cpp", RESPONSES, f"{OWN_PROVIDER}/smollm2", end="/v1"),
    Route("llama.cpp", CHAT, "llamacpp/smollm2", "LLAMACPP_BASE_URL", "/v1"),
)


def other(route: Route) -> Route:
    """Return an aimock route over the next protocol."""
    protocols = [each.protocol for each in AIMOCK]
    return AIMOCK[(protocols.index(route.protocol) + 1) % len(AIMOCK)]


@dataclass
class Desk:
    """One session, with the relays for its requests."""

    place: Place
    route: Route
    relay: Relay  # relay to the route's server
    other_relay: Relay
    options: Sequence[str]
    codes: Sequence[int] = (0,)  # expected exit codes
    wrong: list[str] = field(default_factory=list)

    def start(self, *words: str, model: str = "") -> "subprocess.Popen[Any]":
        model = model or self.route.model
        pipe = subprocess.PIPE
        return self.place.start(
            "--model", model, *self.options, *words, env=self._environ(), stdout=pipe, stderr=pipe
        )

    def run(self, *words: str, model: str = "") -> str:
        """Run the command to its end; return its output."""
        with self.start(*words, model=model) as process:
            try:
                out, err = process.communicate(timeout=RUN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
        self.check(f"{' '.join(words)}: exit code {process.returncode}: {err[-600:]}",
                   process.returncode in self.codes)  # fmt: skip
        return str(out)

    def inspect(self, *words: str) -> str:
        """Run a command that needs no server; return its output."""
        done = self.place.run(*words)
        self.check(f"{' '.join(words)}: {done.stdout[-300:]}{done.stderr[-300:]}",
                   done.returncode == 0)  # fmt: skip
        return str(done.stdout)

    def kill_when(self, due: Callable[[], bool], *words: str) -> None:
        """Start the command, and kill it as soon as `due` returns True."""
        with self.start(*words) as process:
            if not comes(lambda: due() or process.poll() is not None, RUN_S) or process.returncode:
                self.wrong.append(f"{' '.join(words)}: it ended before it could be killed")
            process.send_signal(signal.SIGKILL)
            process.communicate()

    def check(self, what: str, holds: object) -> None:
        if not holds:
            self.wrong.append(what)

    def _environ(self) -> dict[str, str]:
        addresses, providers = {}, ""
        for route, relay in ((other(self.route), self.other_relay), (self.route, self.relay)):
            address = relay.url + route.end
            if route.variable:
                addresses[route.variable] = address
            else:
                providers = f'[{OWN_PROVIDER}]\nprotocol = "{route.protocol}"\n'
                providers += f'address = "{address}"\nkeys = ["LITELLM_API_KEY"]\n'
        file = self.place.root / "home" / ".config" / "ctxagent" / "providers.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(providers)
        return self.place.environ({**KEYS, **addresses})


def play_script(desk: Desk, said: Sequence[str]) -> None:
    """Play the whole task; aimock's model follows the script."""
    there = other(desk.route).model
    (desk.place.project / IMAGE).write_bytes(PIXELS)
    desk.kill_when(lambda: said.count("call") >= CALLS // 2, "-p", "Count to the end")
    desk.run("-p", "go on", "--continue")
    desk.check("the task did not finish", said.count("call") == CALLS)
    desk.check("an answer over another protocol", _answered(desk, "and here?", there))
    desk.check("an answer over the first protocol again", _answered(desk, "and back?"))
    compactions = sum(entry["kind"] == "summary" for entry in desk.place.entries())
    desk.check(f"{compactions} compactions, not {SUMMARIES}", compactions >= SUMMARIES)
    exchanges = [*desk.relay.exchanges, *desk.other_relay.exchanges]
    desk.check("no request had the image", any(each.images for each in exchanges))


def _answered(desk: Desk, question: str, model: str = "") -> bool:
    return "All is counted." in desk.run("-p", question, "--continue", model=model)


def play_short(desk: Desk, said: Sequence[str]) -> None:
    """Play a short task for a small model with unpredictable replies."""
    answered = len(said)
    desk.kill_when(lambda: bool(desk.relay.exchanges), "-p", "List the files.")
    desk.run("-p", "Go on.", "--continue")
    desk.run("-p", "And here?", "--continue", model=other(desk.route).model)
    desk.check("no answer over another protocol", len(said) > answered)
    desk.run("-p", "And back?", "--continue")


class Row(NamedTuple):
    """The results of one session."""

    name: str
    other: str
    requests: int
    refused: int
    rebuilt: str
    calls: int
    compactions: int
    usage: Usage
    learned: str
    seconds: float
    wrong: list[str]


def row_of(desk: Desk, began: float) -> Row:
    """Check the session, its log and its requests on the wire; return the results."""
    seconds = time.monotonic() - began
    exchanges = [*desk.relay.exchanges, *desk.other_relay.exchanges]
    refused = [each for each in exchanges if each.status >= 400]
    desk.wrong += [f"refused, {each.status}: {each.answer[:300]!r}" for each in refused]
    entries = desk.place.entries()
    replies = [entry for entry in entries if entry["kind"] == "assistant"]
    sent = {each.digest for each in exchanges}
    strange = [reply for reply in replies if reply["request"].get("sha256") not in sent]
    desk.check(f"{len(strange)} requests in the log have other bytes than were sent", not strange)
    (log,) = desk.place.logs()
    told = desk.inspect("replay", log.parent.name, "--json")
    equal = json.loads(told)["requests"]["equal"] if told else 0
    rebuilt = f"{equal} of {len(replies)}"
    desk.check(f"{rebuilt} requests rebuilt", replies and equal == len(replies))
    desk.inspect("doctor", log.parent.name)
    file = desk.place.state / "servers.json"
    kinds = [entry["kind"] for entry in entries]
    return Row(
        desk.route.name, other(desk.route).protocol, len(exchanges), len(refused), rebuilt,
        kinds.count("tool_result"), kinds.count("summary"),
        sum((Usage(**reply["usage"]) for reply in replies), Usage()),
        _learned(json.loads(file.read_text())) if file.exists() else "nothing",
        seconds, desk.wrong,
    )  # fmt: skip


def _learned(rows: dict[str, Any]) -> str:
    """Return the gaps of servers stored in the state directory, without addresses."""
    found = [(key.rpartition(" ")[2], row) for key, row in rows.items()]
    kept = [f"{model}: {', '.join(row.get('gaps', ()))}" for model, row in found if row.get("gaps")]
    return "; ".join(kept) or "nothing"


@contextmanager
def desk_at(route: Route, folder: Path, scratch: Path) -> Iterator[tuple[Desk, list[str]]]:
    """Start the servers of a route. Yield the desk, and the growing list of aimock's replies."""
    with ExitStack() as stack:
        mock, said = stack.enter_context(servers.mock(folder, SCRIPT))
        options, codes = ["--context-window", str(WINDOW), *COMMON], [0]
        target = mock
        if provider := LITELLM_PROVIDERS.get(route.server):
            target = stack.enter_context(servers.litellm(folder, mock, provider))
        elif route.server == "llama.cpp":
            target = stack.enter_context(served_by_llama(2))
            options = ["--preset", "small", "--max-tokens", "30", "--max-turns", "2", *COMMON]
            codes = [0, MAX_TURNS_CODE]
        relay = stack.enter_context(servers.relay(target, IMAGE_BYTES))
        beside = stack.enter_context(servers.relay(mock, IMAGE_BYTES))
        yield Desk(Place(scratch), route, relay, beside, options, codes), said


def play(route: Route, folder: Path) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="ctxagent-protocols-") as scratch,
        desk_at(route, folder, Path(scratch)) as (desk, said),
    ):
        began = time.monotonic()
        (play_short if route.server == "llama.cpp" else play_script)(desk, said)
        return row_of(desk, began)


HEAD = (
    f"{'server/protocol':<28}{'changed to':<11}{'requests':>9}{'refused':>8}{'rebuilt':>11}"
    f"{'calls':>6}{'summaries':>10}{'input':>11}{'cached':>11}{'output':>8}{'s':>5}  learned"
)


def lines(row: Row) -> Iterator[str]:
    """Yield the table line of a row, then its problems."""
    told = row.usage.input + row.usage.cache_read + row.usage.cache_creation
    yield (
        f"{row.name:<28}{row.other:<11}{row.requests:>9}{row.refused:>8}{row.rebuilt:>11}"
        f"{row.calls:>6}{row.compactions:>10}{told:>11,}{row.usage.cache_read:>11,}"
        f"{row.usage.output:>8,}{row.seconds:>5.0f}  {row.learned}"
    )
    yield from (f"  WRONG: {each}" for each in row.wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the servers are installed")
    parser.add_argument("name", nargs="*", help="SERVER/PROTOCOL, by default all")
    given = parser.parse_args()
    folder, names = given.folder.resolve(), [name.lower() for name in given.name]
    if unknown := set(names) - {route.name.lower() for route in ROUTES}:
        parser.error(f"unknown: {', '.join(unknown)}")
    routes = [route for route in ROUTES if not names or route.name.lower() in names]
    if not LLAMA_PYTHON.exists():
        print("llama.cpp is skipped; install it with: make .real/.installed", file=sys.stderr)
        routes = [route for route in routes if route.server != "llama.cpp"]
    servers.install(folder)
    print(", ".join(servers.versions(folder)), HEAD, sep="\n", flush=True)
    failed = not routes
    for route in routes:
        row = play(route, folder)
        print("\n".join(lines(row)), flush=True)
        failed = failed or bool(row.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
