"""A random walk: all that can happen to a session, in any order, checked after every step.

    python -m ctxagent.tests.faults.walk --steps 20000 --seed 1

The real engine, agent, tools and log, in one process; the model is scripted and checks each request
as strictly as the API, thinking included. A kill is an exception in the middle of a turn, or the
loss of all that the process had, sometimes with a torn last line; the next step opens the session
anew. Each walk of STEPS_OF_ONE steps is a session with a seed of its own. The first fault ends the
walk, and what is printed plays it again.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.addons.replay.player import scratch_folder
from ctxagent.agent.compaction.history import last_acts, user_wrote_since
from ctxagent.agent.compaction.policy import PRESETS, Policy
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.errors import (
    CompactionFailed,
    LimitReached,
    ModelError,
    ModelUnavailable,
    PromptTooLong,
    RecordError,
    RequestRejected,
)
from ctxagent.agent.events import Accepted, Compacted, Delta, Event, TextDelta, ToolOutput
from ctxagent.agent.loop import user_commands
from ctxagent.agent.loop.resume import read_cache, write_cache
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Abilities, Reply
from ctxagent.agent.models.catalog import Limits
from ctxagent.agent.models.gaps import ServerGaps
from ctxagent.agent.models.messages.body import GAPS, WIRE, betas, body
from ctxagent.agent.models.messages.model import abilities_of
from ctxagent.agent.models.providers import endpoint_of
from ctxagent.agent.models.wire import encode
from ctxagent.agent.session.checkpoints import rewind_points
from ctxagent.agent.session.entries import (
    Entry,
    Mask,
    Pin,
    Revert,
    Session,
    Summary,
    Usage,
)
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import parse_entry
from ctxagent.agent.session.store import Project, full_text
from ctxagent.agent.session.totals import Totals
from ctxagent.tools.bash import BashTool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.job import JobTool, end_all
from ctxagent.tools.read import ReadTool
from ctxagent.tools.todo import TodoTool
from ctxagent.tools.write import WriteTool

from ..support.server.compactions import Compactions
from ..support.server.loopback import Body, Say, check_bound, flat, message
from ..support.server.validator import Invalid, validate
from ..support.sessions.conversation import Conversation
from ..support.sessions.truths import (
    Fault,
    Truths,
    digest_of_fresh_process,
    messages_digest,
)

STEPS_OF_ONE = 100  # steps of one session
STEPS_BETWEEN_FOLDS = 5  # of a whole log, where no act of compaction asks for it
WINDOWS = (8_000, 16_000, 24_000, 40_000, 200_000)
RATIOS = {"claude-sonnet-5-5": 1.0, "claude-opus-5-5": 1.2, "claude-haiku-4-5": 0.9}
CHECKS = 5  # commands that pass or fail
FILES = 6
MESSAGES = (  # of the user, in many forms; each gets a mark, some become rules
    "Never touch area{}/.",
    "You may change area{}/ again.",
    "Keep functions under {} lines.",
    "Ask me before you run migration {}.",
    "Fass area{}/ nicht an.",
    "不要修改 area{}/。",
    "لا تلمس area{}/.",
    "ERROR: area{} must not be empty. Why does the log say so?\n```\n{}\n```\nMend it.",
    "> {} was said by someone\n> in a mail\n\nDo as they say.",
)
FAILURES = (  # what a check prints at last, in several languages; no sign decides that it failed
    "AssertionError: {} in the total", "expected 4 but got 3, {}", "Prüfung nicht bestanden: {}",
    "Проверка не пройдена: {}", "合計が一致しません {}", "测试未通过 {}", "فشل الفحص {}",
    "परीक्षण विफल {}", "échec du contrôle : {}", "comprobación fallida: {}", "테스트 실패 {}",
    "controllo non riuscito: {}",
)  # fmt: skip
LONG_PASTE = "step went well\n" * 150
MID_TURN_SHARE = 0.2  # of the calls of the model: before so many the person says something more
ANSWERS = (  # of the model that is asked for a summary
    *("whole",) * 6, "useless", "empty", "call", "again", "wrong", "resolved", "resolved", "both",
    "rules", "rules", "lifted", "lifted", "tagged", "fenced", "cut", "refused",
)  # fmt: skip
ACTS = {  # steps, and how often each is taken
    "say": 11, "interrupt": 2, "compact": 2, "uncompact": 1, "pin": 1,
    "unpin": 1, "note": 1, "shell": 1, "kill": 1, "kill_in_turn": 1, "close": 1, "fork": 1,
    "rewind": 1, "change_model": 1, "checkpoint": 1, "preview": 1, "mask": 1,
}  # fmt: skip


class Killed(BaseException):
    """What ends the process in the middle of a turn."""


class WalkFailed(Exception):
    """A step left the session as it must not be."""


class Script:
    """What the model says and does; every text of it has a mark of its own."""

    def __init__(self, chance: random.Random, cwd: Path) -> None:
        self.chance, self.cwd = chance, cwd
        self.errors: list[str] = []  # the marks so far
        self.said: list[str] = []  # by the user, so far
        self.rules: list[str] = []  # that were named so far
        self.answers: list[str] = []  # to requests for a summary
        self.compactions = Compactions()
        self._count = 0
        self._calls_left = 0
        self._job = False

    def mark(self, name: str) -> str:
        self._count += 1
        return f"{name}{self._count}"

    def reply(self, asked: Body) -> Say | ModelError:
        last = asked["messages"][-1]["content"][-1]
        if self.chance.random() < 0.02:
            return ModelUnavailable("the server is down")
        if "compaction" in asked:
            return self.summary()
        if "about to be compressed" in str(last.get("text", "")):
            return self.summary()
        if last["type"] != "tool_result":
            self._calls_left = self.chance.randrange(6)
        thinking = self.chance.choice(("", "", "Hm.", "Let me think. " * 20))
        text = self.chance.choice(("", *(f"Part {self.mark('reply')} goes on.",) * 4))
        if self.chance.random() < 0.3:
            text += f" We decided to use lib{self.mark('v')} instead of the library before."
        tools = list(self._calls()) if self._calls_left > 0 else []
        self._calls_left -= 1
        stop = self.chance.choice((*(None,) * 40, "max_tokens", "refusal"))
        if not tools and not text:
            text = self.chance.choice(("", f"Done: {self.mark('reply')}."))
        return Say(text, thinking, tools, stop_reason=stop)

    def summary(self) -> Say:
        kind, chance = self.chance.choice(ANSWERS), self.chance
        step, error = self.mark("step"), chance.choice(self.errors or ["error0"])
        text = (
            f"## Session Intent\n{chance.choice(('unchanged', 'Have all parts done.'))}\n"
            f"## Key Decisions\n1. lib{step} was chosen because it is fast.\n"
            f"## Current State\nPhase: parts\n- Done: what came before {step}\n"
            f"- In progress: the part of {step}\n- Blocked: None.\n"
            f"## Critical Facts\n- The number is {chance.randrange(1_000)}.\n"
            f"## Error Context\nNone.\n## Next Steps\n1. Do {step}.\n"
        )
        line = f"the {error} is coming"
        if kind in ("resolved", "both"):
            said = f"- Resolved: {line}" + (f"\n- Open: {line}" if kind == "both" else "")
            text = text.replace("## Error Context\nNone.", f"## Error Context\n{said}")
        elif kind in ("rules", "lifted"):
            text += self._rule_sections(kind)
        elif kind == "wrong":
            wrong = f"- area{chance.randrange(9)}/ may be changed.\n- There is no {error}.\n"
            text = text.replace("## Critical Facts\n", f"## Critical Facts\n{wrong}")
        elif kind == "useless":
            text = "## Session Intent\nSomething.\n## Key Decisions\nNone.\n## Current State\n"
            text += "Phase: on\n## Next Steps\nNone.\n"
        elif kind == "again":
            text = chance.choice(self.answers or [text])
        elif kind == "tagged":
            text = f"<summary>\n{text}</summary>"
        elif kind == "fenced":
            text = f"```markdown\n{text}```"
        self.answers.append(text)
        if kind == "empty":
            return Say("")
        if kind == "call":
            return Say(tools=[("Bash", {"command": "true"})])
        stop = {"cut": "max_tokens", "refused": "refusal"}.get(kind)
        return Say(text[: len(text) // 2] if kind == "cut" else text, stop_reason=stop)

    def _rule_sections(self, kind: str) -> str:
        """Return sections that name rules, true and invented, or that lift one."""
        chance = self.chance
        quoted = [chance.choice(self.said) for _ in range(2) if self.said]
        quoted = [chance.choice(text.split("\n")) for text in quoted] + ["Nobody said this."]
        if kind == "rules" or not self.rules:
            self.rules += quoted
            return "## User Rules\n" + "".join(f'- "{text}"\n' for text in quoted)
        rule, number = chance.choice(self.rules), chance.randrange(1, 5)
        claim = f'Rule {number} "{rule}": the user said "{chance.choice(quoted)}"'
        return f"## No Longer True\n- {claim}\n"

    def _calls(self) -> Iterator[tuple[str, Body]]:
        if self._job:
            self._job = False
            yield "Job", {"action": "wait"}
            return
        kinds = ("run", "run", "run", "job", "read", "write", "edit", "todo", "wrong", "list")
        for kind in dict.fromkeys(self.chance.choices(kinds, k=self.chance.choice((1, 1, 2, 3)))):
            name = f"file{self.chance.randrange(FILES)}.txt"
            if kind in ("run", "job"):
                self._job = kind == "job"
                yield "Bash", {"command": self._check(), "run_in_background": self._job}
            elif kind == "read":
                yield "Read", {"path": name}
            elif kind == "write":
                yield "Write", {"path": name, "content": "a line\n" * self.chance.randrange(400)}
            elif kind == "edit":
                yield "Edit", {"path": name, "old_string": "a line\n", "new_string": "b\n"}
            elif kind == "todo":
                yield "Todo", {"todos": list(self._todos())}
            elif kind == "list":
                yield "Bash", {"command": "ls"}
            else:
                yield "Bash", self.chance.choice(({}, {"command": 1}))

    def _check(self) -> str:
        """Write a script that passes or fails, and return the command that runs it."""
        number, size = self.chance.randrange(CHECKS), self.chance.choice((2, 10, 30, 120))
        lines = [f"echo {self.mark('output')} of the check"]
        error = self.mark("error") if self.chance.random() < 0.5 else ""
        lines.append(f"for n in $(seq {size}); do echo row $n was looked at; done")
        if error:
            self.errors.append(error)
            lines.insert(1, f"echo the {error} is coming")  # in the preview of a long output, too
            lines.append(f"echo {self.chance.choice(FAILURES).format(error)}; exit 1")
        path = self.cwd / f"check{number}.sh"
        path.write_text("\n".join(lines))
        return f". ./{path.name}"

    def _todos(self) -> Iterator[Body]:
        for _ in range(self.chance.randrange(1, 4)):
            status = self.chance.choice(("pending", "in_progress", "completed"))
            yield {"content": f"Finish {self.mark('todo')}", "status": status}


class StrictModel:
    """Says what the script says; refuses what the API would refuse. See `models.base.Model`."""

    def __init__(self, script: Script, id: str, window: int) -> None:
        self.script, self.id, self.window = script, id, window
        self.gaps = ServerGaps(None, "", id, GAPS)
        self.rejected: list[str] = []
        self.requests = 0
        self._sizes: dict[str, int] = {}

    @property
    def abilities(self) -> Abilities:
        return abilities_of(self.id, endpoint_of(self.id, None, {}), self.gaps)

    def assumed_limits(self) -> Limits:
        return Limits(self.window, 8_000, "setting")

    async def limits(self) -> Limits:
        return self.assumed_limits()

    async def close(self) -> None:
        pass

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        encoded = encode(body(request))
        asked = json.loads(encoded)
        self.requests += 1
        blocks = self.script.compactions
        told = blocks.told([*flat(asked)])
        try:
            validate(asked)
            blocks.check(asked, {"anthropic-beta": ",".join(betas(request, asked))})
            check_bound(asked, told)
        except Invalid as error:
            self.rejected.append(str(error))
            raise RequestRejected(str(error)) from error
        prompt = self._prompt(asked)
        if prompt > self.window:
            raise PromptTooLong("prompt is too long", tokens=prompt, maximum=self.window)
        said = self.script.reply(asked)
        if isinstance(said, ModelError):
            raise said
        usage = Usage(cache_read=prompt // 2, cache_creation=prompt - prompt // 2)
        yield Accepted(usage.to_json(), WIRE.sent_of(request, encoded, ()))
        await asyncio.sleep(0)
        whole = message(said, asked, f"msg_{self.script.mark('')}", {}, told=told)
        if "compaction" in asked:
            whole = blocks.answer(said.text if not said.tools else "", asked, told, whole)
        for part in said.text.partition(" "):
            if part:
                yield TextDelta(part)
                await asyncio.sleep(0)
        if self.script.chance.random() < 0.02:
            raise ModelUnavailable("the connection broke")
        output = Usage(output=max(1, tokens.estimate_content(whole["content"])))
        sent = WIRE.sent_of(request, encoded, ())
        yield Reply(
            whole["content"], whole["stop_reason"], usage + output, self.id, whole["id"], {}, sent
        )

    def _prompt(self, asked: Body) -> int:
        blocks = [*asked.get("system", []), *asked.get("tools", [])]
        blocks += (block for message in asked["messages"] for block in message["content"])
        encoded = [json.dumps({**block, "cache_control": None}) for block in blocks]
        for text, block in zip(encoded, blocks, strict=True):
            if text not in self._sizes:  # to count is most of the work
                self._sizes[text] = tokens.estimate_block(block)
        return round(RATIOS[self.id] * sum(self._sizes[text] for text in encoded))


class Talk(Conversation):
    """A conversation that is opened again and again, each time with settings of its own."""

    def __init__(self, cwd: Path, session: str, model: StrictModel, policy: Policy) -> None:
        tools = [BashTool(), JobTool(), ReadTool(), WriteTool(), EditTool(), TodoTool()]
        super().__init__(cwd, tools=tools, model=model, policy=policy, session=session)

    def _session(self) -> Session:
        made, view = super()._session(), self.agent.view
        system = None if view.system == made.system else made.system
        tools = None if view.tools == made.tools else made.tools
        return replace(made, model=self.model.id, system=system, tools=tools)


class Walk:
    """One session, in a folder of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.cwd = folder, folder / "project"
        self.cwd.mkdir()
        self.chance = random.Random(seed)
        self.script = Script(self.chance, self.cwd)
        self.counts: Counter[str] = Counter()
        self._copies = 0
        self._begin()

    async def run(self, steps: int) -> None:
        """Take so many steps. Raises WalkFailed, with the number of the step."""
        for step in range(1, steps + 1):
            act = self.chance.choices(list(ACTS), list(ACTS.values()))[0]
            self.counts[act] += 1
            try:
                with suppress(CompactionFailed, LimitReached):
                    await getattr(self, f"_{act}")()
            except Exception as error:
                raise WalkFailed(f"step {step}, {act}: {error!r}") from error
            if faults := list(self.faults()):
                raise WalkFailed(f"step {step}, {act}: " + "\n  ".join(map(str, faults)))
        log, live = self.talk.agent.log.path, messages_digest(self.talk.agent.view)
        await self._abandon()
        if log.exists() and digest_of_fresh_process(log) != live:
            raise WalkFailed(f"step {steps}: a fresh process has another view")
        self.counts["steps"] += steps

    def faults(self) -> Iterator[Fault]:
        """Yield what is not as it must be."""
        for reason in self.talk.model.rejected:
            yield Fault("rejected", reason)
        entries, path = self._entries, self.talk.agent.log.path
        if not path.exists():
            return
        known = len(entries)
        entries += self._new_entries(path)
        acts = any(isinstance(e, Mask | Summary | Revert) for e in entries[known:])
        if acts or not known or self.counts.total() % STEPS_BETWEEN_FOLDS == 0:
            yield from self._differences(entries)
        for event in self.talk.seen(Compacted):
            if event.refs < 1:
                yield Fault("span", event.detail)
        self.talk.events.clear()
        yield from Truths(entries, path.parent).faults(self.talk.agent.view)

    def _new_entries(self, path: Path) -> list[Entry]:
        """Read what the log has got since it was read last."""
        with path.open("rb") as file:
            file.seek(self._read_to)
            lines = file.readlines()
        self._read_to += sum(map(len, lines))
        return [parse_entry(line) for line in lines]

    def _differences(self, entries: Sequence[Entry]) -> Iterator[Fault]:
        """Yield where what is known is not what the log says."""
        agent, ledger, totals = self.talk.agent, Ledger(), Totals()
        for entry in entries:
            ledger.add(entry)
            totals.add(entry)
        folded = fold(entries)
        if agent.view != folded:
            names = [n for n in View.__slots__ if getattr(agent.view, n) != getattr(folded, n)]
            yield Fault("views", f"in {', '.join(names)}")
        if agent.ledger.to_json() != ledger.to_json():
            yield Fault("views", "in the ledger")
        if agent.totals != totals:
            yield Fault("views", "in the totals")

    # Opening and leaving

    def _begin(self, model: StrictModel | None = None) -> None:
        """Open the newest copy of the session, as a process does that has just begun."""
        chance = self.chance
        model = model or StrictModel(self.script, next(iter(RATIOS)), chance.choice(WINDOWS))
        policy = replace(
            chance.choice(list(PRESETS.values())),
            keep_tokens=chance.choice((0, 500, 4_000)),
            clear_above=chance.choice((100, 1_000)),
            move_above=chance.choice((500, 3_000, 10_000)),
            summarizer=chance.choice(("model", "model", "api", "mechanical")),
        )
        self.talk = Talk(self.cwd, f"s{self._copies:03}", model, policy)
        self._entries: list[Entry] = []  # of the log, as far as it was read
        self._read_to = 0

    async def _abandon(self, size: int | None = None, torn: bytes = b"") -> None:
        """Lose all that the process has; of the log `size` bytes stay, and a torn line."""
        agent = self.talk.agent
        path, kept = agent.log.path, {}
        if path.exists():
            size = path.stat().st_size if size is None else size
            kept = {p: p.read_bytes() for p in path.parent.glob("*.md")}
        agent.log.close()
        await end_all(agent.context.jobs)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if path.exists():
            os.truncate(path, size or 0)
            with path.open("ab") as file:
                file.write(torn)
            for name, data in kept.items():
                name.write_bytes(data)

    async def _go_on_in_copy(self, upto: int | None = None) -> None:
        """Go on in a copy of the session, or of its first entries; the files stay as they are."""
        agent = self.talk.agent
        cache = read_cache(agent.log.path)
        copy = Project(self.folder, self.cwd).fork(agent.log.path, upto)
        if upto is None:
            write_cache(copy, cache)
        self._copies += 1
        copy.parent.rename(agent.folder.with_name(f"s{self._copies:03}"))  # as a seed says
        await agent.close_except_model()
        self._begin(self.talk.model)

    # Steps

    def _message(self) -> str:
        """Return the next message of the user: short, long, with a paste, in some language."""
        chance = self.chance
        words = chance.choice(("Do the next part.", *MESSAGES))
        filled = words.replace("{}", str(chance.randrange(9)), 1)
        filled = filled.replace("{}", chance.choice((LONG_PASTE, "short")))
        go_on = chance.choice(("Go on. " * 50, "", "", ""))
        said = f"{filled} This is {self.script.mark('word')}. {go_on}".strip()
        self.script.said.append(said)
        return said

    async def _say(self) -> None:
        await run_turn(self.talk.agent, self._message(), self._mid_turn)

    def _mid_turn(self) -> str | None:
        """Return what the person says in the middle of a turn, now and then."""
        if self.chance.random() > MID_TURN_SHARE:
            return None
        self.counts["mid_turn"] += 1
        return self._message()

    async def _interrupt(self) -> None:
        talk, left = self.talk, self.chance.randint(1, 30)
        turn = asyncio.ensure_future(self._say())

        def emit(event: Event) -> None:
            nonlocal left
            talk.events.append(event)
            left -= not isinstance(event, ToolOutput)  # which comes when a process likes
            if not left:
                asyncio.get_running_loop().call_soon(turn.cancel)

        talk.agent.emit = emit
        await turn
        talk.agent.emit = talk.events.append

    async def _kill_in_turn(self) -> None:
        talk, left = self.talk, self.chance.randint(1, 30)
        sizes: list[int] = []

        def emit(event: Event) -> None:
            nonlocal left
            left -= not isinstance(event, ToolOutput)
            if left == 0:
                left = -1
                sizes.append(talk.agent.log.path.stat().st_size)
                raise Killed

        talk.agent.emit = emit
        with suppress(Killed, RecordError):
            await self._say()
        await self._abandon(sizes[0] if sizes else None)
        self._begin()

    async def _kill(self) -> None:
        await self._abandon(torn=self.chance.choice((b"", b'{"v": 1, "seq": 9')))
        self._begin()

    async def _close(self) -> None:
        await self.talk.agent.close_except_model()
        self._begin()

    async def _compact(self) -> None:
        await self.talk.agent.engine.compact(self.chance.choice(("", "", "Keep the schema.")))

    async def _uncompact(self) -> None:
        entries = self.talk.agent.log.entries()
        last = last_acts(entries)
        if last and user_wrote_since(entries, last[-1].seq):
            if self.chance.random() < 0.7:
                return  # or the walk would be where it was again and again
            await self._go_on_in_copy(last[-1].seq)
        self.talk.agent.engine.uncompact(self.talk.agent.log.entries())

    async def _pin(self) -> None:
        agent = self.talk.agent
        ref = self.chance.randint(1, max(1, agent.log.last_seq))
        text = full_text(agent.log.path, ref)
        if text and len(agent.ledger.pins) < 3:
            agent.record(Pin(ref=ref, text=text[:200]))

    async def _unpin(self) -> None:
        if pins := list(self.talk.agent.ledger.pins):
            user_commands.unpin(self.talk.agent, self.chance.choice(pins))

    async def _note(self) -> None:
        if len(self.talk.agent.ledger.pins) < 3:
            await user_commands.pin_note(self.talk.agent, f"Note {self.script.mark('n')} well.")

    async def _shell(self) -> None:
        command = self.chance.choice(("true", "false", "seq 400"))
        await user_commands.run_shell_command(self.talk.agent, command)

    async def _fork(self) -> None:
        if self.talk.agent.log.last_seq:
            await self._go_on_in_copy()

    async def _rewind(self) -> None:
        points = [p for p in rewind_points(self.talk.agent.log.entries())[:4] if p.seq]
        if points:
            await self._go_on_in_copy(self.chance.choice(points).seq)

    async def _change_model(self) -> None:
        agent = self.talk.agent
        model = StrictModel(
            self.script, self.chance.choice(list(RATIOS)), self.chance.choice(WINDOWS)
        )
        self.talk.model = model
        self.talk.use(model)
        if agent.log.last_seq:
            made = Session(id="s", cwd=str(self.cwd), version="0", model=model.id)
            agent.record(made)

    async def _checkpoint(self) -> None:
        if self.talk.agent.log.last_seq:
            await self.talk.agent.engine.host.take_checkpoint("by hand")

    async def _preview(self) -> None:
        self.talk.agent.engine.preview()

    async def _mask(self) -> None:
        await self.talk.agent.engine.force_fit()


class _AtOnce(ThreadPoolExecutor):
    """Does the work of threads at once, so that a seed decides all."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def walk(seed: int, steps: int, folder: Path) -> Counter[str]:
    """Take one walk, and return what was done. Raises WalkFailed."""

    async def whole() -> Counter[str]:
        asyncio.get_running_loop().set_default_executor(_AtOnce(1))
        going = Walk(folder, seed)
        await going.run(steps)
        return going.counts

    return asyncio.run(whole())


def main() -> int:
    parser = argparse.ArgumentParser(prog="walk", description="Take random steps, check each.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts, began, seed = Counter[str](), time.monotonic(), given.seed
    while counts["steps"] < given.steps:
        steps = min(STEPS_OF_ONE, given.steps - counts["steps"])
        try:
            with scratch_folder() as folder:
                counts += walk(seed, steps, folder)
        except WalkFailed as error:
            print(f"seed {seed}, {error}", flush=True)
            print(f"again: python -m ctxagent.tests.faults.walk --seed {seed} --steps {steps}")
            return 1
        seed += 1
    for name, count in sorted(counts.items()):
        print(f"{name:<22} {count:>7,}")
    print(f"{'seconds':<22} {time.monotonic() - began:>7,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
