"""The timed host tier exists and is idle; its cost is not tested."""

import pytest

from swarden.harness.bench.idle_host import measure
from swarden.harness.bench.load import ConstantLoad

SMALL = ConstantLoad(running=2, shared_len=32, own_len=32, max_new_tokens=40)


def test_both_engines_are_timed():
    cost = measure(pairs=1, pages=2048, load=SMALL)

    assert min(cost.with_us, cost.without_us) > 0
    assert cost.ratio > 0


def test_tier_with_copies_is_refused():
    with pytest.raises(AssertionError, match="idle"):
        measure(pairs=1, pages=64, load=SMALL)
