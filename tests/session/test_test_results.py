"""Each pattern for the output of tests is looked for wherever it can match."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.session import test_results as results

SIGNS = {
    sign.pattern.pattern: sign
    for sign in (
        *results._FAILED_LINES,
        *results._FAILED_SHORT_LINES,
        *results._PASSED_LINES,
        results._FAILED_JEST_LINES,
        results._DOT_WITH_SUITE,
        results._IS_JEST,
        results._STILL_FAILING,
        results._LEFT_OUT,
        results._SUCCESS,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SIGNS)
def test_what_a_pattern_matches_has_a_text_of_its_sign(pattern: str) -> None:
    sign = SIGNS[pattern]

    # Hypothesis cannot make atomic groups, which only say how to match.
    @settings(max_examples=50)
    @given(st.from_regex(pattern.replace("(?>", "(?:")))
    def holds(text: str) -> None:
        if sign.pattern.search(text):
            assert sign.is_in(text)

    holds()
