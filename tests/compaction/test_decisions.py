"""Decisions between alternatives, and calls that bring in another alternative."""

import pytest

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.drift.detector import Drift, DriftDetector
from ctxagent.agent.compaction.drift.scope import adds_something, alternatives_in, brought_in
from ctxagent.agent.session.entries import Block

from ..support.sessions.history import called
from .test_detector import bash, edit, folded, indicators, run, session, told, write

DECISION = "Use JWT, not Redis, because Redis was missing."


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (DECISION, ("redis",)),
        ("JWT statt Redis, wegen der Kosten", ("redis", "kosten")),
        ("使用 SQLite 而不是 Postgres", ("postgres",)),
        ("Chose `requests` over `urllib`", ("urllib",)),
        ("Use JWT. Then write the tests.", None),
        ("Use React, Vite, Tailwind, Zod and Jest", None),
        ("use tabs", None),
    ],
)
def test_the_names_of_a_decision(text: str, names: tuple[str, ...] | None) -> None:
    assert [each.names for each in alternatives_in([text])] == ([] if names is None else [names])


def made(name: str, **given: str) -> Block:
    return called("t", name, given)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (made("Bash", command="pip install -U 'redis>=5'"), "redis"),
        (made("Bash", command="cd app && python -m pip install redis==5.0"), "redis"),
        (made("Bash", command="npm i --save-dev @types/redis"), "redis"),
        (made("Bash", command="go get github.com/redis/go-redis/v9"), "redis"),
        (made("Write", path="a.py", content="import os\nimport redis.asyncio\n"), "redis"),
        (made("Write", path="a.ts", content="import { createClient } from 'redis'\n"), "redis"),
        (made("Edit", path="package.json", old_string="{}", new_string='{"redis": "5"}'), "redis"),
        (made("Edit", path="src/redis_store.py", old_string="a", new_string="b"), "redis"),
    ],
)
def test_what_a_call_brings_in(call: Block, name: str) -> None:
    assert name in brought_in(call)


@pytest.mark.parametrize(
    "call",
    [
        made("Bash", command="grep -r redis src"),
        made("Bash", command="git worktree add --base origin/redis wiki"),
        made("Write", path="a.ts", content="import { redis } from './store'\n"),
        made("Write", path="notes.md", content="from redis to JWT\n"),
        made("Edit", path="a.py", old_string="import redis", new_string="import redis\nx = 1"),
        made("Read", path="redis.py"),
    ],
)
def test_what_brings_nothing_in(call: Block) -> None:
    assert "redis" not in brought_in(call)


def test_commands_that_add_something() -> None:
    assert adds_something(["npm", "create", "astro", "my-blog"])
    assert not adds_something(["ls", "add"][:1])


def watching(*words: str, earlier: str = "") -> DriftDetector:
    history = session("Fix the login in src/auth/session.py with JWT, and add tests.", *words)
    if earlier:
        run(history, earlier)
    document = SummaryDocument(intent="Fix the login with JWT.", decisions=(DECISION,))
    return DriftDetector(document, folded(history))


def test_the_alternative_that_was_not_taken_is_reported_once() -> None:
    replies = [bash("pip install redis"), write("src/auth/store.py", "import redis\n")]
    drifts: list[Drift] = told(watching(), *replies)
    assert indicators(drifts) == ["contradiction"]
    assert drifts[0].severity == "LOW"
    assert "“redis”" in drifts[0].detection
    assert indicators(told(watching(), replies[1])) == ["contradiction"]


def test_what_was_chosen_asked_for_or_used_before_is_not_reported() -> None:
    install = bash("pip install redis")
    assert told(watching(), bash("pip install jwt"), bash("pip install pyjwt")) == []
    assert told(watching("Try Redis after all."), install) == []
    assert told(watching(earlier="redis-cli ping"), install) == []
    watch = watching()
    watch.add_message("Then add Redis to src/auth.")
    assert told(watch, install) == []


def test_a_file_of_the_session_is_known() -> None:
    history = session()
    edit(history, "src/redis.py")
    watch = DriftDetector(SummaryDocument(decisions=(DECISION,)), folded(history))
    assert told(watch, bash("pip install redis")) == []
