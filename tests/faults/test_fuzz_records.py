"""Records and settings with anything in them: a damaged log goes on, with all of it that is whole;
summaries of any text are merged and made to fit; settings are read, or what is wrong is named with
its line, and a project that nobody has trusted loosens nothing."""

import json
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import SummaryDocument, missing_titles, parse, render
from ctxagent.agent.compaction.recovery import recover_session
from ctxagent.agent.compaction.summary.merge import merge
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.config.load import (
    explain_settings,
    keys_needing_trust,
    load_settings,
    rules_in_file,
)
from ctxagent.agent.config.settings import KEYS, values_by_key
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import ConfigError
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.pages.export import EXPORT_FORMATS, export
from ctxagent.agent.permissions.rules import parse_rule
from ctxagent.agent.session.entries import Entry, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.search.index import SearchIndex

from ..compaction.test_merge import SHARDS
from ..doctor.test_repair import damaged, damages
from ..support.sessions.conversation import Conversation

ROOT = Path(__file__).parents[2]
fuzz = settings(max_examples=80, derandomize=True, deadline=None)


# A log that something happened to


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of three turns with calls, a failed one and a long result among them."""
    project = tmp_path_factory.mktemp("sound") / "project"
    project.mkdir()
    (project / "long").write_text("a line of it\n" * 4_000)
    steps = [
        Step(text="I look.", tools=[("Read", {"path": "long"}), ("Read", {"path": "gone"})]),
        Step(tools=[("Write", {"path": "é", "content": "one\ud83d"}), ("Bash", {"command": "ls"})]),
        Step(text="Done."), Step(tools=[("Todo", {"items": []})]), Step(text="That too."),
        Step(text="And that."),
    ]  # fmt: skip
    talk = Conversation(project, steps)
    for words in ("Begin.", "Go on \ud800.", "And the rest."):
        assert talk.say(words).status == "ok"
    return talk.agent.log.path.read_bytes()


@settings(max_examples=40, derandomize=True, deadline=None)
@given(damages())
def test_a_damaged_log_goes_on_with_all_that_is_whole(
    sound: bytes, done: list[tuple[str, int, bytes]]
) -> None:
    data = sound
    for how, where, what in done:
        data = damaged(data, how, where, what)
    with TemporaryDirectory() as folder:
        path = Path(folder, "project-state", "sessions", "s", "log.jsonl")
        path.parent.mkdir(parents=True)
        Path(folder, "project").mkdir()
        path.write_bytes(data)
        before = read_log(path)
        assert all("log.jsonl:" in warning for warning in before.warnings)
        for format in EXPORT_FORMATS:
            export(path, format).encode()
        SearchIndex(path.parent.parent.parent).search("line", patience=None)
        recover_session(before.entries, 2) if before.entries else None
        talk = Conversation(Path(folder, "project"), [Step(text="Here again.")])
        finished = talk.say("Still there?")
        after = talk.entries()
        talk.agent.log.close()
        assert (finished.status, finished.text) == ("ok", "Here again.")
        assert _bare(after[: len(before.entries)]) == _bare(before.entries)
        assert any(isinstance(e, User) and e.content == "Still there?" for e in after)
        assert talk.agent.view.items == fold(after).items


def _bare(entries: list[Entry]) -> list[str]:
    return [repr(entry) for entry in entries]


# Summaries

SAID = st.lists(
    st.sampled_from([*SHARDS, "## Session Intent\n", "## Files Modified\n", "## Key Decisions\n",
                     "## Current State\n", "## Error Context\n", "Resolved: ", "- **Done:**\n",
                     "\ud800", "\0", "\u202e", "unchanged\n", "x" * 300, "#12", "&#56789;"]),
    max_size=40,
).map("".join)  # fmt: skip


@fuzz
@given(SAID, SAID, st.sampled_from([200, 1_000]))
@example("## Session Intent\n\ud800", "## Session Intent\nunchanged", 200)
def test_what_models_say_is_merged_and_made_to_fit(old: str, new: str, room: int) -> None:
    merged = merge(parse(old), parse(new))
    for document in (merged, shortened_to(merged, room)):
        text = render(document)
        assert parse(text) == document
        assert SummaryDocument.from_json(json.loads(json.dumps(document.to_json()))) == document
        assert bool(document.intent.strip()) == (missing_titles(text)[:1] != ["Session Intent"])


# Settings

EXAMPLE = (ROOT / ".agentrc.example").read_text()
LINES = [line.removeprefix("# ") for line in EXAMPLE.splitlines() if " = " in line]
VALUES = [
    '"off"', '"auto"', '"93%"', '"every-call"', "true", "false", "0", "-1", "5", "50_000", "0.5",
    "1e9", "[]", '["x"]', '"\\u0000"', "{}", "nan", '"bypass"', '"plan"', '["Bash"]', '["Read"]',
    '"~/x"', '["Bash(ls:*)", "Read(~/**)"]', "9" * 5_000, "1979-05-27", '"é"', '"""', "'", '"/"',
    '"scripted:x"', '"require"', '"claude-x"', '"high"', '"safe"', '"http://x"', "[1]",
    '["~/x", "/x"]',
]  # fmt: skip
BYTES = [b"\xff", b"\0", b"[", b"]", b"=", b'"', b"\n", b"\r", b"#", b"\xef\xbb\xbf", b".", b" "]


def fits(name: str, value: str) -> bool:
    with suppress(ValueError):
        KEYS[name].value_type.read(tomllib.loads(f"x = {value}")["x"])
        return True
    return False


VALID = [(name, value) for name in sorted(KEYS) for value in VALUES if fits(name, value)]
SETS = st.sampled_from(VALID)
ANY = st.tuples(st.sampled_from(sorted(KEYS)), st.sampled_from(VALUES))
DAMAGE = st.none() | st.tuples(st.integers(0, 2_000), st.sampled_from(BYTES))
MOST_SOUND = st.sampled_from([True, True, True, False])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A settings file, mostly a sound one."""
    sound = draw(MOST_SOUND)
    keys = dict(draw(st.lists(SETS if sound else SETS | ANY, max_size=5)))
    sections = dict.fromkeys(name.partition(".")[0] for name in keys)
    lines = []
    for section in sections:
        inside = [name for name in keys if name.partition(".")[0] == section]
        lines += [f"[{section}]", *(f"{n.partition('.')[2]} = {keys[n]}" for n in inside)]
    data = "\n".join(lines).encode()
    if not sound and (damage := draw(DAMAGE)):
        place = damage[0] % (len(data) + 1)
        data = data[:place] + damage[1] + data[place:]
    return data


@fuzz
@given(
    documents(),
    documents(),
    st.lists(SETS, max_size=2) | st.lists(ANY, max_size=2),
)
def test_settings_are_read_or_the_place_is_named(
    user: bytes, project: bytes, typed: list[tuple[str, str]]
) -> None:
    with TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        (work / ".git").mkdir(parents=True)
        mine, theirs = home / "agentrc", work / ".agentrc"
        mine.write_bytes(user)
        environ = {"HOME": str(home), "CTXAGENT_CONFIG": str(mine)}
        environ |= {KEYS[name].env: value.strip('"') for name, value in typed[:1]}
        flags = [f"{name}={value.strip(chr(34))}" for name, value in typed[1:]]
        try:
            alone = load_settings(work, environ=environ, flags=flags, check_rule=parse_rule)
            theirs.write_bytes(project)
            with suppress(ConfigError):
                keys_needing_trust(theirs, project)
                rules_in_file(theirs, project)
            both = load_settings(work, environ=environ, flags=flags, check_rule=parse_rule)
        except ConfigError as error:
            _check_place(error, {mine: user, theirs: project})
            return
        assert len(explain_settings(both)) == len(KEYS)
        without, with_it = values_by_key(alone.settings), values_by_key(both.settings)
        for name, key in KEYS.items():
            same = with_it[name] == without[name]
            assert same or not key.loosens(with_it[name], without[name]), name


def _check_place(error: ConfigError, files: dict[Path, bytes]) -> None:
    str(error).encode()
    file, _, line = error.where.rpartition(":")
    if Path(file) in files:
        assert 1 <= int(line) <= max(1, len(files[Path(file)].splitlines()) + 1)
    else:
        assert re.fullmatch(r"-c|CTXAGENT_\w+|ANTHROPIC_\w+", error.where)


@fuzz
@given(
    st.dictionaries(
        st.sampled_from([*(key.env for key in KEYS.values()), "CTXAGENT_", "CTXAGENT_MODEL_ID_"]),
        st.text(max_size=8) | st.sampled_from(VALUES),
        max_size=2,
    ),
    st.lists(st.text(max_size=12) | st.sampled_from([*LINES, *KEYS, "=", "model.id="]), max_size=2),
)
def test_variables_and_flags_of_any_text(environ: dict[str, str], flags: list[str]) -> None:
    with TemporaryDirectory() as folder, suppress(ConfigError):
        assert explain_settings(
            load_settings(Path(folder), environ={"HOME": folder, **environ}, flags=flags)
        )
