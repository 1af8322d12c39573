"""Attachments of a message: files named with `@`, and piped input."""

import asyncio
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.events import Notice, TurnFinished
from ctxagent.agent.features.attachments import MAX_MENTIONS
from ctxagent.agent.features.mentions import MAX_NAMED_BYTES
from ctxagent.agent.launch import AttachedData
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.messages.model import HINTS
from ctxagent.agent.models.refusals import classify_answer
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Mask, User

from ..e2e.test_images import png
from ..loop.test_turn import bare
from ..support.documents import cell, notebook, pdf, picture
from ..support.sessions.conversation import Conversation


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (folder / "my notes (old).txt").write_text("a note\n")
    (folder / "odd:3").write_text("odd\n")
    return folder


def say(talk: Conversation, words: str, *piped: AttachedData, typed: bool = True) -> TurnFinished:
    return asyncio.run(run_turn(talk.agent, words, attached=piped, verbatim=not typed))


def sent(talk: Conversation) -> list[dict[str, Any]]:
    """Return the blocks of the last message sent."""
    request = talk.model.requests[-1]  # type: ignore[attr-defined]
    blocks: list[dict[str, Any]] = request.messages[-1]["content"]
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def notices(talk: Conversation, level: str) -> list[str]:
    return [e.text for e in talk.events if isinstance(e, Notice) and e.level == level]


@pytest.mark.parametrize(
    ("words", "warned", "told"),
    [
        ("look at @nosuch.py and @src/app.py", ["nosuch.py"], []),
        (
            'see @nosuch.py:3-4, @./a/b/c and @"my notes.txt".',
            ["nosuch.py", "./a/b/c", "my notes.txt"],
            [],
        ),
        ("look at @cal", [], ["cal"]),
        ("what is '@nosuch.py', `@app.x` or “@b.py”?", [], []),
        ("ask me@example.com about @app.get('/') and @docs:file:///a/b.md", [], []),
        ("@dataclass\nclass A: ...\n@pytest.mark.slow", [], []),
    ],
)
def test_names_of_nothing_are_told(
    project: Path, words: str, warned: list[str], told: list[str]
) -> None:
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, words)
    for level, names in (("warning", warned), ("info", told)):
        said = [text for text in notices(talk, level) if "there is no such file" in text]
        assert [text.partition(":")[0] for text in said] == [f"@{name}" for name in names]


def test_files_directories_and_lines_are_brought_in(project: Path) -> None:
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, 'see @src/app.py:2-3, @src, @"my notes (old).txt" and me@x.org')
    words, *attached = [block["text"] for block in sent(talk)]
    assert words == 'see @src/app.py:2-3, @src, @"my notes (old).txt" and me@x.org'
    assert attached == [
        "[The user attached the file src/app.py:2-3:]\n2\ttwo = 2\n3\tthree = 3",
        "[The user attached the directory src:]\nsrc/app.py",
        "[The user attached the file my notes (old).txt:]\n1\ta note",
    ]
    assert talk.agent.ledger.typed_messages == [
        (2, words)
    ]  # a file's content is not what the person said
    assert list(talk.agent.ledger.read) == ["src/app.py", "my notes (old).txt"]
    assert notices(talk, "info") == [
        "attached src/app.py:2-3", "attached src", "attached my notes (old).txt",
    ]  # fmt: skip


def test_a_file_that_was_attached_counts_as_read(project: Path) -> None:
    overwrite = ("Write", {"path": "src/app.py", "content": "new\n"})
    talk = Conversation(project, [Step(tools=[overwrite]), Step(text="Written.")])
    say(talk, "overwrite @src/app.py")
    assert (project / "src" / "app.py").read_text() == "new\n"
    assert list(talk.agent.ledger.files) == ["src/app.py"]
    assert list(talk.agent.ledger.read) == []


@pytest.mark.slow
def test_requests_stay_prefixes_also_over_a_resume(project: Path) -> None:
    (project / "a.png").write_bytes(png(8, 8))
    steps = [Step(text=f"step {n}") for n in range(2)]
    first = Conversation(project, steps)
    say(first, "see @src/app.py", AttachedData(b"piped\n"))
    say(first, "and @a.png")
    requests = list(first.model.requests)  # type: ignore[attr-defined]
    fresh = fold(first.entries())
    assert build_messages(fresh.items) == build_messages(first.agent.view.items)
    assert fresh.size == first.agent.view.size
    first.agent.log.close()
    second = Conversation(project, [*steps, Step(text="again")])
    say(second, "go on")
    requests += second.model.requests  # type: ignore[attr-defined]
    for before, after in itertools.pairwise(bare(request.messages) for request in requests):
        assert after[: len(before)] == before


def test_a_large_file_comes_as_a_reference(project: Path) -> None:
    (project / "big.log").write_text("".join(f"{n} of the lines of a log\n" for n in range(20_000)))
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "read @big.log")
    text = sent(talk)[1]["text"]
    head, *lines = text.split("\n")
    size = (project / "big.log").stat().st_size
    assert head == (
        f"[The user attached the file big.log: {size:,} bytes, 20,000 lines, too large to be given "
        "whole. It begins with the lines below; Read it with offset and limit, or Grep it.]"
    )
    assert lines[0] == "1\t0 of the lines of a log"
    assert DEFAULT.preview_chars / 2 < len("\n".join(lines)) <= DEFAULT.preview_chars
    assert notices(talk, "info") == ["attached big.log, as a reference because it is large"]


@pytest.mark.slow
def test_an_image_is_an_image_and_a_broken_one_a_sentence(project: Path) -> None:
    (project / "whole.png").write_bytes(png(8, 8))
    (project / "cut.png").write_bytes(png(8, 8)[:40])
    (project / "wide.png").write_bytes(png(9_000, 8))
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "compare @whole.png @cut.png @wide.png", AttachedData(png(16, 16)))
    kinds = [block["type"] for block in sent(talk)]
    assert kinds == ["text", "text", "image", "text", "image", "text", "text", "image"]
    assert "standard input: PNG, 16 x 16" in sent(talk)[1]["text"]
    assert "it is cut off" in sent(talk)[5]["text"]
    assert "9000 x 8 pixels" in sent(talk)[6]["text"]
    assert "shown at 2000 x 2" in sent(talk)[6]["text"]
    assert [text.split(":")[0] for text in notices(talk, "warning")] == ["@cut.png"]


@pytest.mark.slow
def test_refused_and_too_many_images_go(project: Path) -> None:
    """The limits for images in results apply to attached images too."""
    said = "messages.0.content.13.image.source.base64.data: Could not process image"
    refusal = classify_answer(400, said, model="m", headers={}, hints=HINTS)
    for n in range(MAX_MENTIONS):
        (project / f"{n}.png").write_bytes(png(8, 8 + n))
    named = " ".join(f"@{n}.png" for n in range(MAX_MENTIONS))
    talk = Conversation(
        project, [Step(text="20."), Step(error=refusal), Step(text="One more."), Step(text="Ok.")]
    )
    say(talk, f"see {named}")
    assert [block["type"] for block in sent(talk)].count("image") == MAX_MENTIONS
    say(talk, "and @0.png")
    stubs = [[target["stub"] for target in mask.targets] for mask in talk.of(Mask)]
    bounded, refused = stubs
    assert bounded[0].startswith('[Read "0.png" · image left out: at most 20 images')
    assert refused == [
        '[Read "11.png" · image left out: the server refused the request with it · #14]'
    ]
    assert [block["type"] for block in sent(talk)].count("image") == 1  # the newest


def test_an_old_attachment_is_cleared_like_an_old_result(project: Path) -> None:
    (project / "long.txt").write_text("some words of a line\n" * 600)
    policy = replace(DEFAULT, clear_when="every-call", clear_keep=0)
    talk = Conversation(project, [Step(text="Seen."), Step(text="Yes.")], policy=policy)
    say(talk, "read @long.txt")
    say(talk, "and now?")
    first = talk.model.requests[-1].messages[0]["content"]  # type: ignore[attr-defined]
    assert first[1]["text"].startswith('[Read "long.txt" · done · ')
    assert "full text: #3" in first[1]["text"]
    whole = talk.agent.context.recall(3)
    assert whole is not None
    assert whole.whole().count("some words of a line") == 600
    fresh = fold(talk.entries())
    assert build_messages(fresh.items) == build_messages(talk.agent.view.items)


def test_deny_rules_hold_and_nothing_else_asks(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("password\n")
    (tmp_path / "outside.txt").write_text("mine\n")
    talk = Conversation(project, [Step(text="Seen.")], mode="ask", deny=["Read(.env)"])
    say(talk, f"see @.env and @{tmp_path}/outside.txt and @.")
    secret, outside, listing = [block["text"] for block in sent(talk)[1:]]
    assert "Read(.env)" in secret
    assert "password" not in str(sent(talk))
    assert outside.endswith("1\tmine")
    assert "my notes (old).txt" in listing
    assert ".env\n" not in listing
    assert len(notices(talk, "warning")) == 1


def test_a_task_that_nobody_typed_names_no_file_outside(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("mine\n")
    talk = Conversation(project, [Step(text="Seen.")], mode="ask")
    say(talk, "see @src/app.py and @../outside.txt", typed=False)
    assert len(sent(talk)) == 2
    assert notices(talk, "warning") == [
        "@../outside.txt: not attached; reading ../outside.txt: outside the project"
    ]


def test_a_small_model_gets_the_short_files_that_the_message_names(
    project: Path, tmp_path: Path
) -> None:
    """Without `@`: small models change files that they have not read."""
    (tmp_path / "outside.txt").write_text("mine\n")
    (project / "long.txt").write_text("x" * (MAX_NAMED_BYTES + 1))
    (project / "secret.txt").write_text("hidden\n")
    words = (
        "Change two in src/app.py, as in src and long.txt. Leave ../outside.txt, secret.txt, "
        f"{tmp_path}/outside.txt, odd:3 and nothing.py as they are. Thanks for src/app.py."
    )
    for policy, paths in ((PRESETS["small"], ["src/app.py"]), (DEFAULT, [])):
        talk = Conversation(
            project, [Step(tools=[("Bash", {"command": "true"})]), Step(text="Seen.")],
            policy=policy, deny=["Read(secret.txt)"], session=str(policy.brief),
        )  # fmt: skip
        say(talk, words)
        attached = [str(each.content) for each in talk.of(User) if each.source == "attachment"]
        assert [text.split(":]")[0] for text in attached] == [
            f"[The user attached the file {path}" for path in paths
        ]
        assert not notices(talk, "warning")


def test_what_is_no_file_is_said_to_be_none(project: Path) -> None:
    os.mkfifo(project / "pipe")
    (project / "data.gz").write_bytes(b"\x1f\x8b\0\0\0")
    (project / "empty").write_text("")
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "see @pipe @data.gz @empty @src/app.py:99")
    texts = [block["text"] for block in sent(talk)[1:]]
    for text, part in zip(texts, ("a FIFO", "gzip data", "[empty file]", "3 lines"), strict=True):
        assert part in text


def test_only_so_many(project: Path) -> None:
    for n in range(MAX_MENTIONS + 2):
        (project / f"{n}.txt").write_text(f"{n}\n")
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, " ".join(f"@{n}.txt" for n in range(MAX_MENTIONS + 2)))
    assert len(sent(talk)) == 1 + MAX_MENTIONS
    assert notices(talk, "warning") == [
        f"@{MAX_MENTIONS}.txt and 1 more: not attached; at most {MAX_MENTIONS} per message"
    ]


def test_piped_input(project: Path) -> None:
    talk = Conversation(project, [Step(text="Seen.")] * 4)
    say(talk, "review", AttachedData("first\nzweite Zeile: ß\n".encode() * 20 + b"\xff\n"))
    assert sent(talk)[1]["text"].startswith("[The user attached standard input, 41 lines, ")
    assert sent(talk)[1]["text"].endswith("zweite Zeile: ß\n\ufffd\n")
    long = b"".join(b"line %d of a build\n" % n for n in range(20_000))
    say(talk, "review", AttachedData(long, "only the first 16 MiB were read"))
    text = sent(talk)[1]["text"]
    assert "bytes, cut: only the first 16 MiB were read:]\n" in text
    assert "> line 0 of a build" in text
    assert "> line 19999 of a build" in text
    (file,) = talk.agent.ledger.offloaded
    assert (talk.agent.folder / file).read_bytes() == long
    assert str(talk.agent.folder / file) in text
    say(talk, "review", AttachedData(b"\x1f\x8b\0\0"))
    assert "binary, not text: gzip data, 4 bytes" in sent(talk)[1]["text"]
    assert len([e for e in talk.of(User) if e.source == "attachment"]) == 3


def test_an_interrupt_keeps_the_words(project: Path) -> None:
    talk = Conversation(project, [Step(text="Seen.")])

    async def run() -> TurnFinished:
        turn = asyncio.ensure_future(run_turn(talk.agent, "see @src/app.py"))
        await asyncio.sleep(0)
        turn.cancel()
        return await turn

    assert asyncio.run(run()).status == "interrupted"
    assert talk.of(User)[0].content == "see @src/app.py"


def test_files_named_in_the_middle_of_a_turn(project: Path) -> None:
    look = ("Read", {"path": "my notes (old).txt"})
    talk = Conversation(project, [Step(tools=[look]), Step(text="Seen.")])
    later = iter([None, "see @src/app.py too", None])
    asyncio.run(run_turn(talk.agent, "go", lambda: next(later)))
    *_, result, words, attached = sent(talk)
    assert result["type"] == "tool_result"
    assert words["text"] == "see @src/app.py too"
    assert attached["text"].startswith("[The user attached the file src/app.py:]\n1\tone = 1")


def test_pages_of_a_pdf_and_cells_of_a_notebook_are_brought_in(project: Path) -> None:
    (project / "a.pdf").write_bytes(pdf("Walrus", "Herring", "Squid"))
    (project / "b.ipynb").write_text(notebook(cell("code", "x = 1"), cell("code", "y = 2")))
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "see @a.pdf:2-2 and @b.ipynb:2")
    _, first, second = [block["text"] for block in sent(talk)]
    assert first.startswith("[The user attached the file a.pdf:2-2:]\n[a.pdf: PDF, 3 pages]")
    assert "Herring" in first
    assert "Walrus" not in first
    assert "Squid" not in first
    assert second.startswith("[The user attached the file b.ipynb:2-2:]\n[b.ipynb: notebook")
    assert "y = 2" in second
    assert "x = 1" not in second


def test_a_large_pdf_is_brought_in_by_its_beginning(project: Path) -> None:
    (project / "a.pdf").write_bytes(pdf(*["walrus " * 3_000] * 4))
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "see @a.pdf")
    _, text = [block["text"] for block in sent(talk)]
    assert "4 pages, too large to be given whole" in text
    assert "Read it with offset and limit.]" in text
    assert len(text) < 10_000


def test_images_of_a_notebook_come_behind_its_text(project: Path) -> None:
    (project / "b.ipynb").write_text(notebook(cell("code", "plot()", picture(png(64, 48)))))
    talk = Conversation(project, [Step(text="Seen.")])
    say(talk, "see @b.ipynb")
    _, text, image = sent(talk)
    assert "plot()\n### output\n[image 1]" in text["text"]
    assert image["type"] == "image"
    assert notices(talk, "info") == ["attached b.ipynb"]
