"""Recall: its requests to the context, and its output of texts, images and passages."""

import asyncio
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from ctxagent.agent.errors import ToolError
from ctxagent.agent.session.search.query import best_parts
from ctxagent.tools import recall as module
from ctxagent.tools.base import Context, Findings, Output, Passage
from ctxagent.tools.recall import MAX_CHARS, RecallParams, RecallTool, full_ref
from ctxagent.tools.system.kept_text import KeptText


class Records:
    """The records of a session: texts and images by ref, and one answer to every search."""

    def __init__(self, folder: Path | None = None, **texts: str) -> None:
        self.asked: list[Any] = []
        self.texts = {f"#{name.removeprefix('n')}": text for name, text in texts.items()}
        self.images: dict[str, list[bytes]] = {}
        self.findings = Findings([], "this session, 1.0 kB")
        self.context = Context(
            Path("/"),
            session_dir=folder,
            recall=self._recall,
            recall_images=lambda ref: self.images.get(str(ref), ()),
            search=self._search,
        )

    def _recall(self, ref: int | str) -> KeptText | None:
        self.asked.append(ref)
        return KeptText(self.texts[str(ref)]) if ref in self.texts else None

    def _search(self, query: str, scope: str) -> Findings:
        self.asked.append((query, scope))
        return self.findings

    def run(self, **given: Any) -> Output:
        return asyncio.run(RecallTool().run(RecallParams(**given), self.context))


def png(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(data, "PNG")
    return data.getvalue()


def test_a_query_with_an_invented_ref_is_searched_everywhere() -> None:
    records = Records()
    found = records.run(query="a port", ref="145")
    assert found.text.startswith(
        "[There is no #145 with text; searched everything.]\nNothing found"
    )
    assert records.asked == ["#145", ("a port", "session")]


@pytest.mark.parametrize("given", [{}, {"query": ""}])
def test_it_takes_words_or_a_ref(given: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="a query or a ref"):
        Records(n1="text").run(**given)


@pytest.mark.parametrize(
    "given",
    [{"limit": 0}, {"limit": MAX_CHARS + 1}, {"offset": -1}, {"scope": "all"}, {"other": 1}],
)
def test_its_arguments_have_bounds(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RecallParams(ref="#1", **given)
    assert (RecallParams().limit, RecallParams().offset) == (MAX_CHARS, 0)


@pytest.mark.parametrize(
    ("ref", "session", "full"),
    [
        ("#42", None, "#42"),
        (" 42 ", None, "#42"),
        ("42", "one", "one#42"),
        ("#42", "one", "one#42"),
        ("two#42", "one", "two#42"),
        ("offloaded/a.txt", "one", "offloaded/a.txt"),
        ("#42", "", "#42"),
    ],
)
def test_a_ref_gets_the_session_that_it_lacks(ref: str, session: str | None, full: str) -> None:
    assert full_ref(ref, session) == full
    records = Records()
    with pytest.raises(ToolError, match=rf"There is no {full} with text. A query finds"):
        records.run(ref=ref, session=session)
    assert records.asked == [full]
    assert RecallTool().title(RecallParams(ref=ref, session=session)) == full


def test_the_title_of_a_search_is_its_words_on_one_line() -> None:
    assert RecallTool().title(RecallParams(query=" the\n port  ")) == "the port"


def test_a_text_is_given_whole_or_in_parts() -> None:
    records = Records(n1="0123456789", n2="")
    assert records.run(ref=1) == Output(
        "0123456789", details={"recalled": ["#1"], "characters": 10}
    )
    assert records.run(ref=1, offset=3, limit=4).text == (
        "3456\n[7 of 10 characters; go on with offset=7]"
    )
    assert records.run(ref=1, offset=6, limit=4).text == "6789"
    assert records.run(ref=1, offset=9).text == "9"
    with pytest.raises(ToolError, match="#1 has 10 characters; the offset is past them"):
        records.run(ref=1, offset=10)
    assert records.run(ref=2, offset=5).text == "[empty]"


def test_large_figures_are_written_with_commas() -> None:
    records = Records(n1="x" * 40_000)
    assert records.run(ref=1).text.endswith(
        "\n[30,000 of 40,000 characters; go on with offset=30000]"
    )
    with pytest.raises(ToolError, match="has 40,000 characters"):
        records.run(ref=1, offset=40_000)


def test_an_image_is_shown_and_comes_before_the_text_of_its_entry() -> None:
    records = Records(n1="[image]", n2="[image]")
    records.images = {"#1": [png(64, 48)], "#2": [b"\x89PNG\r\n\x1a\n broken"]}
    output = records.run(ref=1)
    assert output.text.startswith("[the image of #1: PNG, 64 x 48 pixels")
    assert output.blocks
    assert [block["type"] for block in output.blocks] == ["text", "image"]
    assert output.details["recalled"] == ["#1"]
    assert output.details["width"] == 64
    assert records.run(ref=2).text == "[image]"  # it cannot be shown
    records.images = {"#2": [b"no image"]}
    assert records.run(ref=2).text == "[image]"


def test_images_of_a_text_come_behind_its_beginning() -> None:
    text = "[nb.ipynb: notebook, 1 cell]\n\n## Cell 1\nplot()\n[image 1]\n" + "x" * 100
    records = Records(n1=text)
    records.images = {"#1": [png(64, 48), png(8, 8)]}
    output = records.run(ref=1, limit=60)
    assert output.blocks
    assert [block["type"] for block in output.blocks] == ["text", "text", "image", "text", "image"]
    assert output.blocks[0]["text"] == output.text
    assert output.text.startswith(f"{text[:60]}\n[60 of ")
    assert output.blocks[1]["text"].startswith("[image 1 of #1: PNG, 64 x 48 pixels")
    assert records.run(ref=1, offset=60).blocks is None


@pytest.mark.parametrize(
    ("given", "scope"),
    [
        ({}, "session"),
        ({"scope": "project"}, "project"),
        ({"session": "one"}, "one"),
        ({"session": "one", "scope": "project"}, "one"),
    ],
)
def test_a_search_has_a_scope(given: dict[str, Any], scope: str) -> None:
    records = Records()
    records.run(query="a port", **given)
    assert records.asked == [("a port", scope)]


def test_passages_say_where_they_are_and_how_to_read_on() -> None:
    records = Records()
    near, far = module.CHARS_BEFORE_EXCERPT, module.CHARS_BEFORE_EXCERPT + 1
    records.findings = Findings(
        [
            Passage("#7", "result of Bash", "2026-01-01", "the port", near),
            Passage("one#9", "reply", "2026-01-02", "a port", far),
        ],
        "this session, 2.0 kB",
    )
    output = records.run(query="port")
    assert output.text == (
        "The best of what was found, in order. Searched: this session, 2.0 kB.\n\n"
        '#7 · result of Bash · 2026-01-01\nthe port\n(whole: {"ref": "#7"})\n\n'
        'one#9 · reply · 2026-01-02\na port\n(whole: {"ref": "one#9", "offset": 1})'
    )
    assert output.details == {"recalled": ["#7", "one#9"]}


def test_a_list_of_passages_is_bounded() -> None:
    records = Records()
    records.findings = Findings([Passage("#1", "reply", "", "x" * 20_000)] * 2, "")
    assert len(records.run(query="x").text) == MAX_CHARS


def test_nothing_found_says_where_it_was_looked_and_what_to_try(tmp_path: Path) -> None:
    unrecorded = Records().run(query="a 'b'")
    assert unrecorded.text == (
        "Nothing found for \"a 'b'\". Searched: this session, 1.0 kB. Try other words or "
        "scope=project, or Grep conversation.md for a part of a word."
    )
    assert unrecorded.details == {"recalled": []}
    recorded = Records(tmp_path)
    assert f"Grep {tmp_path / 'log.jsonl'} for" in recorded.run(query="x").text
    (tmp_path / "conversation.md").touch()
    assert f"Grep {tmp_path / 'conversation.md'} for" in recorded.run(query="x").text
    shown = module.MAX_QUERY_CHARS_SHOWN
    assert f"{'x' * shown!r}. Searched" in recorded.run(query="x" * 9_000).text


def test_words_and_a_ref_give_the_parts_of_its_text() -> None:
    lines = [f"line {number} of the build\n" for number in range(2_000)]
    lines[1_500] = "error: the port 8123 is in use\n"
    records = Records(n7="".join(lines))
    records.context.find_parts = lambda text, query: best_parts(text, query.split(), 6)
    output = records.run(query="port in use", ref="#7")
    assert "the port 8123 is in use" in output.text
    offset = int(re.findall(r"from offset=(\d+)", output.text)[0])
    assert "the port 8123" in records.run(ref="#7", offset=offset, limit=900).text
    assert len(output.text) < 6_000


def test_a_query_that_does_not_fit_its_ref_is_searched_everywhere() -> None:
    records = Records(n7="the port 8123 is in use\n")
    records.context.find_parts = lambda text, query: best_parts(text, query.split(), 6)
    told = "[#7 does not have all these words; searched everything.]\n"
    assert records.run(query="unicorn", ref="7").text.startswith(f"{told}Nothing found")
    # The parts are shown if nothing else is found, or if only a short word is missing.
    assert "8123" in records.run(query="port unicorn", ref="7").text
    assert "8123" in records.run(query="the port of", ref="7").text
    records.findings = Findings([Passage("#9", "result", "2026-01-02", "a unicorn")], "")
    found = records.run(query="port unicorn", ref="7")
    assert found.text.startswith(told)
    assert "a unicorn" in found.text
    assert found.details == {"recalled": ["#9"]}
    assert "8123" in records.run(query="the port of", ref="7").text
