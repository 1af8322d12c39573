"""Texts for the model that name only the tools of a conversation."""

from copy import deepcopy

import pytest

from ctxagent.tools.edit import EditTool
from ctxagent.tools.offered import EVERY, FIND_FILE, LIST_DIRECTORY, Offered, Phrase, Wording


def only(*names: str) -> Offered:
    return Offered(lambda: names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("Bash Glob", " List it with Glob, or with ls in Bash."),
        ("Glob", " List it with Glob."),
        ("Bash Read", " List it with ls in Bash."),
        ("Grep", " Grep with pattern='' lists the files in it."),
        ("Read", ""),
    ],
)
def test_the_first_way_with_offered_tools(names: str, expected: str) -> None:
    assert only(*names.split()).say(LIST_DIRECTORY) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("Read Grep Glob Edit", "prefer Read, Grep, Glob and Edit"),
        ("Edit Read", "prefer Read and Edit"),
        ("Glob", "prefer Glob"),
        ("Bash", ""),
    ],
)
def test_a_list_has_the_offered_tools(names: str, expected: str) -> None:
    assert only(*names.split()).say("prefer {Read, Grep, Glob and Edit}") == expected


def test_parts_are_left_out_one_by_one() -> None:
    parts: tuple[Phrase, ...] = ("It ended", "; {Job} reads it", ", or {Read or Grep} {path}", ".")
    assert EVERY.say(*parts, path="f") == "It ended; Job reads it, or Read or Grep f."
    assert only("Grep").say(*parts, path="f") == "It ended, or Grep f."
    assert only().say(*parts) == "It ended."


def test_values_are_never_read_as_tools() -> None:
    told = only("Glob").say(FIND_FILE, file="{Write}", quoted="")
    assert told == " Glob **/{Write} searches for it."
    assert only().say("a {b} {c} {}", b="{c}") == "a {c} {c} {}"


def test_names_are_asked_for_at_each_use() -> None:
    names = ["Bash"]
    offered = Offered(lambda: names)
    assert "Glob" not in offered
    names.append("Glob")
    assert "Glob" in offered


def test_a_schema_names_offered_tools_only() -> None:
    text = Wording("Edits.", (" See {Read}.", " See {Bash}."))
    assert text == "Edits. See Read."
    schema = deepcopy({"name": "Edit", "of": [{"description": text}], "raw": "{Read}"})
    assert only("Bash").rendered(schema) == {
        "name": "Edit", "of": [{"description": "Edits. See Bash."}], "raw": "{Read}",
    }  # fmt: skip
    shown = only("Edit", "Bash").rendered(EditTool().schema())
    assert "Read" not in shown["description"]
    assert EVERY.rendered(EditTool().schema()) == EditTool().schema()
