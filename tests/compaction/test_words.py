"""Analysis of texts in any language, without a vocabulary."""

import pytest

from ctxagent.agent.compaction.words import (
    ends_with_question,
    fit_line,
    folder_of,
    is_brief,
    only_asks,
    paths_in,
    quote,
    search_words,
    terms,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("deploy the deployment", {"deplo"}), ("a few short words", {"short", "words"}),
        ("", set()),
        ("src/api.py", {"src", "api"}), ("api", set()), ("the API", {"api"}),
        ("parseHTTPHeader", {"parse", "http", "heade"}),
        ("foo_bar.baz", {"foo", "bar"}), ("Straße", {"stras"}), ("развёртывание", {"развё"}),
        ("数据库", {"数据", "据库"}),
        ("数", {"数"}), ("数据base", {"数据"}), ("database.", {"datab"}), ("x1 y2", set()),
        ("error:", {"error"}),
        ("git@host:repo", {"git", "host", "repo"}), ("'quoted'(text)", {"quote"}), ("a.py", set()),
        ("utils.py", {"utils"}),
    ],
)  # fmt: skip
def test_terms(text: str, found: set[str]) -> None:
    assert terms(text) == found


def test_terms_of_shorter_words_and_of_a_long_text() -> None:
    assert terms("a few words", least=3) == {"few", "words"}
    assert terms("words " + " " * 16_000 + "later") == {"words"}


def test_words_worth_a_search() -> None:
    assert search_words("fix the parser in src/api.py and fix the parser now", 2) == "parser api.py"
    assert search_words("fix it", 3) == ""


@pytest.mark.parametrize(
    "text",
    ["Which one?", "Which one? ", "**Which one?**", "Which:\n- a\n- b\nOr c?",
    "Which one?\n1. a\n2) b", "どれ？",
     "أيهما؟", "Ποιο από τα δύο;", "Really?)", "I see.\nWhich?", "`x`?", "Which?\n| a | b |",
     "Which?\n• a\n\n* b", "“So?”"],
)  # fmt: skip
def test_texts_that_end_with_a_question(text: str) -> None:
    assert ends_with_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Yes.",
        "Which one? This one.",
        "for (;;) x;",
        "a;\n",
        "Why?\nBecause.",
        "- a\n- b",
        "?!",
    ],
)
def test_texts_that_do_not(text: str) -> None:
    assert not ends_with_question(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Which one?", True), ("I can do both. Which one of the two shall it be?", True),
        ("A long account of it all that goes on for a while. Why?", False),
        ("What about `x`?", False), ("What about src/a.py?", False), ("Is it done? Yes.", False),
        ("x" * 250 + "?", False), ("", False),
        ("Which one? Or the other one?", True),
        ("It is done and it works and all is well. Go on?", False), ("哪一个？", True),
    ],
)  # fmt: skip
def test_texts_that_only_ask(text: str, asks: bool) -> None:
    assert only_asks(text) is asks


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("yes", True), ("go on please", True), ("go on with it", False), ("", True),
        ("is it?", False), ("继续吧", True), ("请继续做完所有的工作", False),
        ("1 2 3 4 5", True), ("ok, do that", True), ("ok, do that now", False),
    ],
)  # fmt: skip
def test_brief_messages(text: str, brief: bool) -> None:
    assert is_brief(text) is brief


def test_paths() -> None:
    text = "See src/a.py, ./b/c and README.md; not e.g. this, mail me@x.org/y or 3.5"
    assert paths_in(text)[:3] == ["src/a.py", "./b/c", "README.md"]
    assert paths_in("nothing here") == []
    assert [folder_of(path) for path in ("./src/a.py", "src/b/c", "a.py")] == ["src", "src/b", ""]


def test_quotations_fit_in_a_line() -> None:
    assert fit_line("a\n b  c", 10) == "a b c"
    assert fit_line("abcdefghij", 10) == "abcdefghij"
    assert fit_line("abcdefghijk", 10) == "abcdefgh …"
    assert fit_line("abcdefg hijk", 10) == "abcdefg …"
    assert quote("a\nb") == "“a b”"
    assert len(quote("x" * 500)) == 162
