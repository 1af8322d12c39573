"""The text that models put around a document is removed."""

import pytest

from ctxagent.agent.compaction.sections import code_lines, fence_mark, unwrapped_lines

DOCUMENT = "## Goal\nWork\n\n## Facts\n- one"


def unwrapped(text: str) -> str:
    return "\n".join(unwrapped_lines(text, lambda line: line.startswith("## ")))


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENT,
        f"<summary>\n{DOCUMENT}\n</summary>",
        f"<thinking>hm\n## Goal\nno</thinking>\n{DOCUMENT}",
        f"<analysis>a</analysis><summary>\n{DOCUMENT}\n</summary>",
        f"```markdown\n{DOCUMENT}\n```",
        f"Here it is:\n```\n{DOCUMENT}\n```\nDone.",
        f"<summary>\n```md\n{DOCUMENT}\n```\n</summary>",
        f"{DOCUMENT}\n\nLet me know if it is right.",
        f"{DOCUMENT}\n\nI'll go on now.",
        f"{DOCUMENT}\n</summary>\n\n",
        f"```\n{DOCUMENT}",
        f"~~~\n{DOCUMENT}\n~~~",
        f"<a>x</a>\n<Summary>\n\n{DOCUMENT}\n</Summary>\nBye",
        DOCUMENT.replace("\n", "\r\n"),
        f"<THOUGHT>x</THOUGHT>{DOCUMENT}",
        f"{DOCUMENT}\n\nEnd of summary.",
        f"```\ncode\n```\n\n````\n{DOCUMENT}\n````",
    ],
)
def test_the_document_inside(text: str) -> None:
    assert unwrapped(text).strip().removeprefix("```\ncode\n```\n\n") == DOCUMENT


@pytest.mark.parametrize(
    "text",
    [
        f"{DOCUMENT}\n\nA paragraph of the document.", f"{DOCUMENT}\n\n- Let me know",
        "## Goal\nWork\n\nI'll go on.", f"{DOCUMENT}\nI'll go on",
        "## Goal\n```\n## no\n```\nx", "## Goal\n<b>x</b>", "## Goal\n```\nopen",
    ],
)  # fmt: skip
def test_what_belongs_to_the_document_stays(text: str) -> None:
    assert unwrapped(text) == text


def test_a_block_of_code_in_a_fenced_document() -> None:
    inner = "## Goal\n```py\nx\n```\n## Facts\n- one"
    assert unwrapped(f"```md\n{inner}\n```\nBye") == inner


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\n```\nb\n```\nc", {1: False, 2: True, 3: True}), ("```\nb", {}),
        ("```py\nb\n````\nc", {0: False, 1: True, 2: True}),
        ("````\n```\n````", {0: False, 1: True, 2: True}),
        ("- ```\n  b\n  ```", {0: False, 1: True, 2: True}),
        ("~~~\n```\n~~~", {0: False, 1: True, 2: True}),
        ("```\na\n```\n```\nb\n```", {0: False, 1: True, 2: True, 3: False, 4: True, 5: True}),
        ("``` a`b\n```", {}), ("", {}),
        ("```\na\n``` b\n```", {0: False, 1: True, 2: True, 3: True}),
    ],
)  # fmt: skip
def test_blocks_of_code(text: str, found: dict[int, bool]) -> None:
    assert code_lines(text.split("\n")) == found


@pytest.mark.parametrize(
    ("line", "mark"),
    [("```", "```"), ("  ~~~~ py", "~~~~"), ("1. ```js", "```"), ("* - ```", "```"), ("``", ""),
    ("a ```", ""), ("```a`", ""), ("1) ~~~", "~~~")],
)  # fmt: skip
def test_fences(line: str, mark: str) -> None:
    assert fence_mark(line) == mark
