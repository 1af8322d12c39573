"""Read of notebooks: cells, outputs, images, and files that are not notebooks."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.tools.base import Context
from ctxagent.tools.file_access import MAX_FILE_BYTES
from ctxagent.tools.notebook import MAX_CHARS, MAX_IMAGES

from ..e2e.test_images import png
from ..support.documents import cell, notebook, picture, stream
from .test_read import read, refusal


def write(folder: Path, *cells: dict[str, Any]) -> None:
    (folder / "a.ipynb").write_text(notebook(*cells))


def test_cells_have_numbers_kinds_source_and_outputs(tmp_path: Path) -> None:
    result = {"output_type": "execute_result", "data": {"text/plain": ["42"]}}
    write(
        tmp_path,
        cell("markdown", "# Walrus\nHerrings"),
        cell("code", "print(1)\n6 * 7", stream("1\n"), result, run=3),
        cell("raw", "left"),
    )
    context = Context(cwd=tmp_path)
    output = read(tmp_path, "a.ipynb", context)
    assert output.text == (
        "[a.ipynb: notebook (python), 3 cells; Edit and Grep see it as JSON]\n\n"
        "## Cell 1 · markdown\n# Walrus\nHerrings\n\n"
        "## Cell 2 · code · run 3\nprint(1)\n6 * 7\n### stdout\n1\n### output\n42\n\n"
        "## Cell 3 · raw\nleft"
    )
    assert output.details["cells"] == 3
    assert tmp_path / "a.ipynb" in context.seen  # so it may be edited as text
    assert output.blocks is None


def test_offset_and_limit_count_cells(tmp_path: Path) -> None:
    write(tmp_path, *(cell("code", f"x = {n}") for n in range(1, 10)))
    text = read(tmp_path, "a.ipynb", offset=4, limit=2).text
    assert "## Cell 4 · code\nx = 4\n\n## Cell 5 · code\nx = 5" in text
    assert "x = 3" not in text
    assert text.endswith("[cells 4-5 of 9; go on with offset=6]")
    assert refusal(tmp_path, "a.ipynb", offset=10) == (
        "a.ipynb has 9 cells; offset=10 is past its end."
    )


def test_an_error_is_shown_without_its_colours(tmp_path: Path) -> None:
    error = {
        "output_type": "error", "ename": "KeyError", "evalue": "'walrus'",
        "traceback": ["\x1b[0;31mKeyError\x1b[0m", "  at herring", "KeyError: 'walrus'"],
    }  # fmt: skip
    write(tmp_path, cell("code", "d['walrus']", error))
    assert "### error\nKeyError\n  at herring\nKeyError: 'walrus'" in read(tmp_path, "a.ipynb").text
    error["traceback"] = []
    write(tmp_path, cell("code", "d['walrus']", error))
    assert "### error\nKeyError: 'walrus'" in read(tmp_path, "a.ipynb").text


def test_a_progress_bar_is_shown_in_its_last_state(tmp_path: Path) -> None:
    write(tmp_path, cell("code", "go()", stream("\r10 %\r50 %\r100 %\n")))
    assert "### stdout\n100 %" in read(tmp_path, "a.ipynb").text


def test_images_of_outputs_are_images(tmp_path: Path) -> None:
    write(tmp_path, cell("code", "plot()", picture(png(64, 48))), cell("code", "y", stream("z")))
    output = read(tmp_path, "a.ipynb")
    assert "plot()\n### output\n[image 1]\n\n## Cell 2" in output.text
    assert "<Figure>" not in output.text
    assert output.blocks is not None
    assert [block["type"] for block in output.blocks] == ["text", "text", "image"]
    assert output.blocks[0]["text"] == output.text
    assert output.blocks[1]["text"].startswith("[image 1: PNG, 64 x 48 pixels")
    assert base64.b64decode(output.blocks[2]["source"]["data"]) == png(64, 48)


def test_images_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, *(cell("code", "p()", picture(png(8, 8))) for _ in range(MAX_IMAGES + 1)))
    output = read(tmp_path, "a.ipynb")
    assert sum(block["type"] == "image" for block in output.blocks or ()) == MAX_IMAGES
    assert (
        f"[image/png: not shown here; Read with offset={MAX_IMAGES + 1} and limit=1 shows it]"
        in output.text
    )


def test_an_image_that_cannot_be_shown_is_a_sentence(tmp_path: Path) -> None:
    write(
        tmp_path,
        cell("code", "a", picture(b"\x89PNG\r\n\x1a\n broken")),
        cell("code", "b", picture(b"no image")),
        cell("code", "c", {"output_type": "display_data", "data": {"image/png": "abc"}}),
    )
    output = read(tmp_path, "a.ipynb")
    assert output.blocks is None
    assert "[image 1, an image (PNG" in output.text
    assert "[image 2 is of no known format]" in output.text
    assert "[image/png: it is garbled]" in output.text


def test_a_huge_output_is_cut_and_one_cell_shows_more(tmp_path: Path) -> None:
    write(tmp_path, cell("code", "a", stream("x" * 10_000)), cell("code", "b"))
    text = read(tmp_path, "a.ipynb").text
    assert "[6,000 characters are left out; Read with offset=1 and limit=1 shows more]" in text
    assert "## Cell 2" in text
    assert "x" * 10_000 in read(tmp_path, "a.ipynb", limit=1).text
    write(tmp_path, cell("code", "a", stream("x" * 3_000_000)))
    text = read(tmp_path, "a.ipynb", limit=1).text
    assert len(text) < MAX_CHARS + 1_000
    assert "cells[0] of the file has them: use jq or python3 in Bash" in text


def test_an_answer_is_bounded_and_ends_at_a_cell(tmp_path: Path) -> None:
    write(tmp_path, *(cell("code", "x" * 9_000) for _ in range(20)))
    text = read(tmp_path, "a.ipynb").text
    assert len(text) < MAX_CHARS + 1_000
    assert text.endswith("[cells 1-4 of 20; go on with offset=5]")


def test_another_kind_of_output_is_named(tmp_path: Path) -> None:
    output = {"output_type": "display_data", "data": {"application/vnd.plotly": {"a": 1}}}
    write(tmp_path, cell("code", "a", output))
    assert "[application/vnd.plotly, 8 characters: not shown]" in read(tmp_path, "a.ipynb").text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"cells": [', "its JSON is broken: Expecting value"),
        ("[1, 2]", "its JSON has no list of cells"),
        ('{"worksheets": []}', "its JSON has no list of cells"),
        ("[" * 100_000, "its JSON is nested too deeply"),
    ],
)
def test_what_is_no_notebook_is_read_as_text(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    shown = read(tmp_path, "a.ipynb").text
    assert shown.startswith(f"1\t{text[:10]}")
    assert f"[not shown as a notebook: {why}" in shown


def test_a_notebook_that_is_too_large_says_why_it_is_text(tmp_path: Path) -> None:
    write(tmp_path, cell("code", "a", stream("x" * MAX_FILE_BYTES)))
    assert "[not shown as a notebook: it is too large]" in read(tmp_path, "a.ipynb").text


@pytest.mark.parametrize(
    "cells",
    [
        [], [None, 1, "x"], [{"cell_type": 7, "source": {"a": 1}, "outputs": "none"}],
        [{"cell_type": "code", "source": [1], "outputs": [None, {"data": []}, {"traceback": 1}]}],
        [{"cell_type": "code", "outputs": [{"output_type": "error", "traceback": 7}]}],
        [{"cell_type": "code", "outputs": [{"data": {"image/png": 7}}]}],
    ],
)  # fmt: skip
def test_a_garbled_notebook_shows_what_it_has(tmp_path: Path, cells: list[Any]) -> None:
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert read(tmp_path, "a.ipynb").text.startswith("[a.ipynb: notebook, ")
