"""Calls in the text of a reply. No example of a call runs, whatever is around it."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.loop.dialects import DialectReader, written_calls
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Usage

from ..support.sessions.conversation import Conversation

TWO = """\
I read both.
<tool_call>
{"name": "Read", "arguments": {"path": "a"}}
</tool_call>
<tool_call>
{"name": "Read", "parameters": "{\\"path\\": \\"b\\"}"}
</tool_call>
"""
NESTED = """\
<function=Write>
<parameter=path>
notes.md
</parameter>
<parameter=content>
Write `</parameter>` and </function> there:
```xml
<parameter=x></parameter>.
```
</parameter>
</function>"""


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (TWO, [("Read", {"path": "a"}), ("Read", {"path": "b"})]),
        (
            NESTED,
            [
                (
                    "Write",
                    {
                        "path": "notes.md",
                        "content": "Write `</parameter>` and </function> there:\n```xml\n"
                        "<parameter=x></parameter>.\n```",
                    },
                )
            ],
        ),
        ('<function=Read>{"path": "a"}</function>', [("Read", {"path": "a"})]),
        ('{"name": "Bash", "arguments": {"command": "a\nb"}}', [("Bash", {"command": "a\nb"})]),
        ("<invoke name=\"Todo\">\n</invoke>", [("Todo", {})]),
        ('```\n{"name": "A", "arguments": {}}\n```\n\n~~~\n{"name": "B", "arguments": {}}',
         [("A", {}), ("B", {})]),
        ('<|python_tag|>{"name": "A", "parameters": {}}<|eom_id|>', [("A", {})]),
        ('[TOOL_CALLS][{"name": "A", "arguments": {}}, {"name": "B", "arguments": {}}]</s>',
         [("A", {}), ("B", {})]),
        ('[TOOL_CALLS]A[ARGS]{"x": "1"}[TOOL_CALLS]B[ARGS]{}', [("A", {"x": "1"}), ("B", {})]),
        ('<|tool_calls_section_begin|><|tool_call_begin|>functions.A:0'
         '<|tool_call_argument_begin|>{"x": "1"}<|tool_call_end|><|tool_calls_section_end|>',
         [("functions.A", {"x": "1"})]),
        ('<tool_call>{"name": "A", "arguments": {}}</tool_call><|im_end|>', [("A", {})]),
        ('```json\n{"name": "A", "arguments": {}}\n```\n<|im_end|>\n', [("A", {})]),
        ('{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "A", "arguments": '
         '"{}"}}]}', [("A", {})]),
        ('{"type": "tool_use", "id": "1", "name": "A", "input": {"x": "1"}}', [("A", {"x": "1"})]),
        ('{"tool": "A", "parameters": {}}', [("A", {})]),
    ],
)  # fmt: skip
def test_the_parts_of_a_call_are_read(text: str, calls: list[tuple[str, dict[str, str]]]) -> None:
    found = written_calls(text)
    assert found is not None
    assert [(call.name, call.arguments) for call in found.calls] == calls
    assert found.is_last
    assert found.is_alone is (text != TWO)
    assert all(call.text in text for call in found.calls)


@pytest.mark.parametrize(
    "part", ['{"a": [', "<function=a>", "[[", "<tool_call>{", "```\n", "[TOOL_CALLS]A[ARGS]{", "<|"]
)
def test_a_long_text_of_openings_is_read_in_bounded_time(part: str) -> None:
    """A search that starts again at each line would take minutes."""
    text = f"{part}\n" * 20_000
    assert not getattr(written_calls(text), "calls", ())


SENTENCES = (
    "The model writes a call like this one.", "Servers read it with a template.",
    "# Tool calls", "- The arguments are an object.", "1. Parse the reply.", "It looks so:",
    "| form | model |\n| --- | --- |\n| tags | some |", "Then run `make test`.", "> Quoted words.",
    "<details>\n<summary>More</summary>\n\nText\n</details>", "$ ls -l", "{not JSON}", "",
)  # fmt: skip
OTHER_CODE = ("print('x')", '{"name": "app", "version": "1.0"}', "<a>\n  <b/>\n</a>", "ls -la")
WORDS = ("python", "json", "xml", "", "text", "tool_call", "md", "jsonc title=a.json")


def example(dice: random.Random) -> str:
    """Return a valid call of Bash in a random form."""
    command = dice.choice(("ls", "touch made", "echo '```'", "cat <<E\n<tool_call>\nE", "é ”x”"))
    given = {"command": command}
    call = json.dumps({"name": "Bash", "arguments": given}, indent=dice.choice((None, 2)))
    return dice.choice(
        (
            call,
            f"[{call}]",
            f"<tool_call>\n{call}\n</tool_call>",
            f"<function=Bash>\n<parameter=command>\n{command}\n</parameter>\n</function>",
            f'<invoke name="Bash">\n<parameter name="command">{command}</parameter>\n</invoke>',
            f"[TOOL_CALLS][{call}]",
            f"[TOOL_CALLS]Bash[ARGS]{json.dumps(given)}</s>",
            f"<|python_tag|>{call}",
        )
    )


def fenced(dice: random.Random, code: str) -> str:
    """Return code in a fence that is longer than each fence in the code, or in a list item."""
    mark = dice.choice(("````", "~~~~", "`````"))
    block = f"{mark}{dice.choice(WORDS)}\n{code}\n{mark}"
    indent = dice.choice(("", "", "   ", "      "))
    lines = "\n".join(indent + line for line in block.split("\n"))
    return f"- item\n\n{lines}" if indent else lines


def replies(number: int) -> Iterator[str]:
    """Yield replies with one or more examples that are plainly no calls, always the same ones."""
    dice = random.Random(56)  # no secrets
    for _ in range(number):
        parts = []
        for _ in range(dice.randint(1, 5)):
            parts += dice.choices(SENTENCES, k=dice.randint(0, 3))
            kind = dice.randrange(5)
            if kind == 0:
                parts.append(fenced(dice, dice.choice(OTHER_CODE)))
            elif kind == 1:
                call = example(dice).replace("\n", " ").replace("`", "")
                parts.append(f"Write ``{call}`` there.")
            elif kind == 2:
                parts.append(
                    "\n\n" + "\n".join(f"    {line}" for line in example(dice).split("\n"))
                )
            else:
                parts.append(fenced(dice, example(dice)))
        at_end = dice.random() < 0.3
        parts = ["For example:", *parts] if at_end else [*parts, "That is all."]
        yield dice.choice(("\n", "\n\n")).join(parts)


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_example_of_a_call_runs(project: Path, number: int) -> None:
    talk = Conversation(project, [Step(text="ok")])
    talk.say("hello")
    for text in replies(number):
        reader = DialectReader(talk.agent, takes_json=True)
        reply = Reply([{"type": "text", "text": text}], "end_turn", Usage(), "m")
        assert reader.read(reply) is reply, text


def test_the_same_calls_outside_of_an_example_run(project: Path) -> None:
    """Without this, the test above could pass because the examples are not readable."""
    talk = Conversation(project, [Step(text="ok")])
    talk.say("hello")
    dice = random.Random(1)  # no secrets
    for _ in range(100):
        reply = Reply([{"type": "text", "text": example(dice)}], "end_turn", Usage(), "m")
        found = DialectReader(talk.agent, takes_json=True).read(reply)
        assert [block["type"] for block in found.content] == ["tool_use"], reply
