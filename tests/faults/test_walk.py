"""Some hundred random steps through sessions, each checked; `walk.py` takes thousands."""

from pathlib import Path

import pytest

from .walk import ACTS, walk


@pytest.mark.variants
@pytest.mark.parametrize(("seed", "steps"), [(1, 60), (2, 60), (10, 40)])
def test_what_stands_in_the_context_is_true_after_every_step(
    tmp_path: Path, seed: int, steps: int
) -> None:
    counts = walk(seed, steps, tmp_path)
    assert counts["steps"] == steps
    assert len(counts) > len(ACTS) // 2
