"""Free room, the size at which a summary comes and the size of an item have the same value wherever
they are shown.
"""

import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, summary_due_at
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.events import CallStarted, Compacted, Event
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Mask, Summary

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk
from ..support.terminal.screen import Terminal
from .test_images import png

FACTOR = 1.3  # what the server counts for each token that is estimated
ITEM = re.compile(r"^ *(#\d+) +([\d,]+)  ", re.MULTILINE)
RECORD = (
    "## Session Intent\nCount.\n\n## Key Decisions\n1. Count.\n\n"
    "## Current State\nPhase: counting\n\n## Next Steps\n1. Count on.\n"
)


def counted(block: Body) -> int:
    return ceil(FACTOR * tokens.estimate_block(block))


def line(text: str, start: str) -> str:
    """Return the last line that begins with this text."""
    return text[text.rindex(start) :].partition("\n")[0].rstrip()


def usage(text: str) -> str:
    return str(re.findall(r"[\d,]+ of [\d,]+ tokens · \d+% full · [\d,]+ free", text)[-1])


def items(text: str) -> dict[str, str]:
    return dict(ITEM.findall(text))


@pytest.mark.variants
@pytest.mark.parametrize("size", [20_000, 200_000])
def test_every_place_shows_the_same_numbers(tmp_path: Path, size: int) -> None:
    place = Place(tmp_path)
    (place.project / "big.txt").write_text("the quick brown fox\n" * 500)
    (place.project / "shot.png").write_bytes(png(640, 400))
    steps = [
        Say("I look.", thinking="hm " * 400, tools=[("Read", {"path": "big.txt"})]),
        Say(tools=[("Read", {"path": "shot.png"}), ("Bash", {"command": "seq 900"})]),
        Say("All is seen. " * 40),
        Say("Still so."),
    ]
    window = ("-c", f"model.context_window={size}", "-c", "compact.keep_tokens=2000")
    with Server(steps, size_of=counted) as server:
        terminal = Terminal(
            "--permission-mode", "bypass", *window, cwd=place.project,
            env=place.server(server.url), columns=200, rows=60,
        )  # fmt: skip
        terminal.see("❯")
        terminal.type("what is there?\r")
        terminal.see("All is seen.")
        terminal.type("/context report\r")
        terminal.see("it comes at")
        terminal.rest()
        context = terminal.text()
        terminal.type("/compact --dry-run\r")
        terminal.see("replaced by the summary")
        terminal.rest()
        plan = terminal.text().rpartition("/compact --dry-run")[2]
        status = terminal.screen.display[-1]
        terminal.type("/quit\r")
        assert terminal.leave() == 0
        command = place.run(*window, "compact", "--dry-run").stdout
        goes_on = ("--continue", "-p", "and now?", "--output-format", "json")
        done = place.run(*window, *goes_on, env=place.server(server.url))
        later = place.run(*window, "compact", "--dry-run").stdout
    assert server.rejected == []

    said = usage(context)
    assert said == usage(plan) == usage(command)
    used, _, share, free = re.findall(r"[\d,]+%?", said)
    assert f"{share} full" in status
    used, free = (int(number.replace(",", "")) for number in (used, free))
    assert re.search(rf"^  \. +free +{free:,} ", context, re.MULTILINE)
    reserve = int(re.findall(r"estimation errors +([\d,]+)", context)[0].replace(",", ""))
    assert used + free + reserve == size
    comes = line(context, "it comes at")
    assert comes == line(plan, "it comes at") == line(command, "it comes at")
    assert line(context, "next compaction:") == line(command, "next compaction:")
    assert items(context).items() <= items(plan).items() | items(command).items()
    assert items(plan).items() <= items(command).items()
    assert len(items(context)) >= 6
    image = [row for row in command.split("\n") if "Read" not in row and "image" in row]
    assert ITEM.search(image[0]), "an image is an item like others"
    total = sum(int(number.replace(",", "")) for number in items(command).values())
    fixed = int(re.findall(r"the tools stay: ([\d,]+)", command)[0].replace(",", ""))
    assert total + fixed == pytest.approx(used, abs=len(items(command)))
    told = json.loads(done.stdout)["context"]
    assert told["window"] == size
    assert f"{told['tokens']:,} of {size:,} tokens · " in later
    assert f"{told['free']:,} free" in later
    assert f"it comes at {told['summary_at']:,} tokens" in later


def test_in_a_small_window_a_summary_comes_when_predicted(tmp_path: Path) -> None:
    def choose(request: Request) -> Step:
        first, last = (str(request.messages[n]["content"]) for n in (0, -1))
        if "about to be compressed" in last:
            return Step(text=RECORD)
        if "[Conversation compressed]" in first:
            return Step(text="Done.")
        return Step(tools=[("Bash", {"command": "seq 300"})])

    policy = replace(DEFAULT, clear_when="off", keep_tokens=500, prepare_at=None)
    talk = Conversation(tmp_path, model=ScriptedModel(choose, window=8_000), policy=policy)
    sent: list[bool] = []  # whether a summary was due when a request was sent
    acts: list[tuple[int, int]] = []  # tokens after an act, as told and as they are

    def emit(event: Event) -> None:
        window = talk.agent.model.current_window()
        if isinstance(event, CallStarted):
            sent.append(window.tokens >= (summary_due_at(policy, window) or 0))
        elif isinstance(event, Compacted):
            acts.append((event.tokens_after, window.tokens))

    talk.agent.emit = emit
    assert talk.say("go on").text == "Done."
    (summary,) = talk.of(Summary)
    told = " ".join(CommandDesk(talk).run("/context").split())
    assert "it comes at 6,817 tokens (85%), " in told
    assert "(the last 1,183 are reserved for the reply and for estimation errors; new text" in told
    assert 6_500 < summary.tokens_before < 7_200
    assert len(sent) > 3
    assert not any(sent[:-1])
    assert acts[-1] == (summary.tokens_after, summary.tokens_after)
    assert all(told == now for told, now in acts)


def test_stub_and_receipt_have_the_size_of_context(tmp_path: Path) -> None:
    class Counting(ScriptedModel):
        def _prompt_tokens(self, request: Request) -> int:
            return ceil(FACTOR * super()._prompt_tokens(request))

    steps = [Step(tools=[("Bash", {"command": f"seq {n} 1900"})]) for n in range(4)]
    steps += [Step(thinking="hm " * 300, text="Seen."), Step(text="On.")]
    talk = Conversation(tmp_path, model=Counting(steps))
    talk.say("count")
    before = items(CommandDesk(talk).run("/context"))
    acts: list[tuple[int, int]] = []  # tokens after an act, as told and as they are

    def emit(event: Event) -> None:
        if isinstance(event, Compacted):
            acts.append((event.tokens_after, talk.agent.model.current_window().tokens))

    talk.agent.emit = emit
    talk.agent.engine.policy = replace(DEFAULT, clear_when="every-call", clear_keep=1)
    talk.agent.engine.__post_init__()
    talk.say("go on")
    (mask,) = talk.of(Mask)
    assert len(mask.targets) == 3
    for target in mask.targets:
        (size,) = re.findall(r" ([\d,]+) tokens compacted", target["stub"])
        assert size == before[f"#{target['seq']}"]
    assert acts == [(mask.tokens_after, mask.tokens_after)]
