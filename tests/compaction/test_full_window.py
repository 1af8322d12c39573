"""The error names the largest parts of the window."""

from dataclasses import replace

import pytest

from ctxagent.agent.compaction.full_window import full_window_error
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context import tokens
from ctxagent.agent.context.view import fold
from ctxagent.agent.context.window import Window
from ctxagent.agent.session.entries import Session, User

TOOLS = [{"name": f"tool{n}", "description": f"does the thing number {n}"} for n in range(20)]
VIEW = fold(
    [
        Session(
            seq=1, id="s", cwd="/p", version="0", model="m", tools=TOOLS,
            system="".join(f"Rule {n}. " for n in range(100)),
        ),
        User(seq=2, content="".join(f"word {n} " for n in range(900))),
        User(seq=3, content="Hi."),
    ]
)  # fmt: skip


def test_the_largest_parts_are_named_by_size() -> None:
    error = full_window_error(VIEW, Window(3_900, 4_000), DEFAULT, ": no")
    message, system = error.message, tokens.estimate(VIEW.system)
    assert message.startswith("the context holds 3,900 of 4,000 tokens and cannot be made to fit: ")
    assert f"the system prompt, {system:,} tokens" in message
    size = tokens.estimate_content(TOOLS)
    assert f"the definitions of 20 tools, {size:,} tokens" in message
    assert message.index("#2 user: word 0") < message.index("the definitions")
    assert "#3" not in message


@pytest.mark.parametrize(
    ("size", "mode", "hint"),
    [
        (3_000, "auto", "--preset small"),
        (3_000, "off", "--preset small"),
        (200_000, "auto", "Start a fresh session"),
        (200_000, "off", "`compact.mode` is off"),
    ],
)
def test_the_hint_names_the_next_step(size: int, mode: str, hint: str) -> None:
    policy = replace(DEFAULT, mode=mode)  # type: ignore[arg-type]
    assert hint in full_window_error(VIEW, Window(size, size), policy, "").hint
