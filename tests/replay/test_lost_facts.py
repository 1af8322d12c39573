"""Facts that a reply writes although the context no longer contains them."""

import pytest

from ctxagent.addons.replay.lost_facts import FactDetector, LostFact

TRACE = 'Traceback:\n  File "/srv/app/load.py", line 214, in parse\nValueError: bad header in row 7'


def found(
    shown: str, written: str, *, context: str = "", gone: bool = True, is_result: bool = True
) -> list[tuple[str, str]]:
    detector = FactDetector()
    detector.add(3, shown, is_result=is_result)
    facts = list(detector.find(9, written, lambda ref: gone, lambda: context))
    assert all(isinstance(fact, LostFact) and (fact.number, fact.ref) == (9, 3) for fact in facts)
    return [(fact.kind, fact.text) for fact in facts]


@pytest.mark.parametrize(
    ("shown", "written", "fact"),
    [
        ("def load_settings(path):", "I call load_settings there.", ("name", "load_settings")),
        ("class ReplayHost:", "`ReplayHost` has it", ("name", "ReplayHost")),
        ("src/app/main.py | 4 ++", "Edit src/app/main.py", ("path", "src/app/main.py")),
        ("main.py:120: def go", "See main.py:120.", ("place", "main.py:120")),
        (TRACE, "It fails in load.py:214", ("place", "load.py:214")),
        ("commit 4f0c1d9e2a", "git show 4f0c1d9e2a", ("value", "4f0c1d9e2a")),
        ("listening on 48211", "curl localhost:48211", ("value", "48211")),
        ("mypy 1.14.2", "pin it to 1.14.2", ("value", "1.14.2")),
        (TRACE, "ValueError: bad header in row 7", ("error", "ValueError: bad header in row")),
    ],
)  # fmt: skip
def test_facts_only_in_removed_entries_are_lost(
    shown: str, written: str, fact: tuple[str, str]
) -> None:
    assert fact in found(shown, written)
    assert found(shown, written, gone=False) == []
    assert found(shown, written, context=f"a stub: {shown}") == []
    assert found("something else", written) == []


def test_common_words_are_not_facts() -> None:
    text = "The file was read and it has 12 lines; see src or the docs, e.g. 3.11"
    assert found(text, text) == [("value", "3.11")]


def test_words_of_an_error_count_once_for_its_line_and_only_in_results() -> None:
    line = "error: cannot find the module that was named in the file"
    assert [kind for kind, _ in found(line, f"It said: {line}")] == ["error"]
    assert found(line, f"It said: {line}", is_result=False) == []


def test_a_fact_is_counted_once_until_it_is_gone_again() -> None:
    detector, gone = FactDetector(), {1}
    detector.add(1, "load_settings")

    def find(number: int) -> list[int]:
        facts = detector.find(number, "load_settings", gone.__contains__, lambda: "")
        return [fact.ref for fact in facts]

    assert find(2) == [1]
    detector.add(5, "load_settings")  # the reply that wrote it
    assert find(3) == []
    gone.add(5)
    assert find(4) == [5]
