"""Front matter in files for other agents."""

import pytest

from ctxagent.agent.extensions.front_matter import list_value, split_front_matter, text_value


def test_values_and_text() -> None:
    values, body = split_front_matter(
        "\ufeff---\nname: one\ndescription: >\n  two\n  lines\ntools: [Read, Grep]\n---\n\nBody.\n"
    )
    assert text_value(values, "name") == "one"
    assert text_value(values, "description") == "two lines"
    assert list_value(values, "tools") == ("Read", "Grep")
    assert body == "Body."


@pytest.mark.parametrize("text", ["Body.", "", "--\nBody.", "----\nx\n----"])
def test_a_file_without_front_matter_is_all_text(text: str) -> None:
    assert split_front_matter(text) == ({}, text)


@pytest.mark.parametrize(
    "value",
    ["Look at this: well", "it's a: b", "a `b`: c # d", "@who: what", "100%: done"],
)
def test_a_value_with_a_colon_needs_no_quotes(value: str) -> None:
    values, _ = split_front_matter(f"---\ndescription: {value}\nname: x\n---\nBody.")
    assert text_value(values, "description") == value
    assert text_value(values, "name") == "x"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("a: [", "is not YAML"),
        ("a: &x [1, 2]\nb: *x", "a value refers to another one"),
        (f"a: {'[' * 9_000}{']' * 9_000}", "nested too deeply"),
        ("- a", "is not a list of keys"),
        ("a: 1\nb: 2\na: 3", "a is given twice"),
        ("a: b: c\na: d", "a is given twice"),
        ("x: " + "a" * 30_000, "more than"),
    ],
)
def test_invalid_front_matter_is_refused(head: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split_front_matter(f"---\n{head}\n---\nBody.")
    with pytest.raises(ValueError, match="does not end"):
        split_front_matter("---\na: b\nBody.")


def test_commas_in_parentheses_do_not_split() -> None:
    values, _ = split_front_matter("---\nallowed-tools: Bash(a,b:*), Read\n---\n")
    assert list_value(values, "allowed-tools") == ("Bash(a,b:*)", "Read")
