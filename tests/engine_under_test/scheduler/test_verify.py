"""The number of accepted draft tokens."""

import pytest

from swarden.engine_under_test.scheduler.speculation import num_accepted


@pytest.mark.parametrize(
    ("drafts", "sampled", "accepted"),
    [
        pytest.param([], [5], 0, id="no drafts"),
        pytest.param([5, 6], [5, 6, 7], 2, id="all"),
        pytest.param([5, 6], [5, 9, 7], 1, id="only the first"),
        pytest.param([5, 6], [9, 6, 7], 0, id="none behind a wrong draft"),
    ],
)
def test_drafts_are_accepted_up_to_the_first_mismatch(drafts, sampled, accepted):
    assert num_accepted(drafts, sampled) == accepted
