"""Guesses of legacy encodings: short texts are uncertain rather than wrong."""

import pytest

from ctxagent.tools.encoding.likelihood import excess, guess

from .test_encodings import FRENCH, SAMPLES


@pytest.mark.parametrize(
    ("encoding", "text"), [each[:2] for each in SAMPLES if "utf" not in each[0]]
)
def test_short_texts_are_uncertain_and_not_wrong(encoding: str, text: str) -> None:
    for word in (word.encode(encoding) for word in text.split() if not word.isascii()):
        found = guess(word)
        assert not found.is_certain or word.decode(found.encoding) == word.decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "text"), [each[:2] for each in SAMPLES if "utf" not in each[0]]
)
def test_two_lines_are_certain(encoding: str, text: str) -> None:
    data = text.encode(encoding)
    found = guess(data)
    assert found.is_certain
    assert data.decode(found.encoding) == text
    assert excess(data, found.encoding) <= 2


def test_every_byte_counts_if_the_sample_is_the_beginning() -> None:
    data = FRENCH.encode("cp1252") * 100
    assert guess(data).encoding == "cp1252"
    # cp1252 has no character 0x81.
    assert guess(data + b"\x81").encoding != "cp1252"


def test_a_cut_character_is_no_evidence() -> None:
    data = "// 这个函数返回两个数的和\n".encode("gbk")[:-2]
    assert guess(data, whole=False).encoding == "gbk"
    assert guess(data, whole=True).encoding != "gbk"


def test_rare_bytes_count_wherever_they_are() -> None:
    common = "// proszę o pomoc, będzie góra\n" * 500
    rare = common + "// źródło łąki, świeżość, ćma\n"
    for encoding in ("cp1250", "iso8859-2"):  # they differ only in the letters of the last line
        found = guess(rare.encode(encoding))
        assert rare.encode(encoding).decode(found.encoding) == rare
