"""Outputs are equal over both links, and few bytes are sent; the speed is not tested."""

from dataclasses import replace

import pytest

from swarden.harness.bench import disaggregation
from swarden.harness.bench.disaggregation import LinkCost, figures, measure, text
from swarden.harness.bench.generation import made


@pytest.fixture(scope="module")
def small() -> LinkCost:
    with made("tiny") as directory:
        return measure("tiny", directory, rounds=1)


def test_outputs_are_equal_over_both_links(small):
    assert small.equal_outputs == disaggregation.REQUESTS
    assert min(small.over_tcp, small.within) > 0


def test_sent_bytes_are_close_to_the_minimum(small):
    assert 1 < small.bytes_ratio < 1.05


def test_figures_name_the_checkpoint(small):
    slow = replace(small, over_tcp=30.0, within=40.0, bytes_sent=102.0, least_bytes=100.0)

    assert figures([slow]) == {
        "tcp_ratio": {"tiny": 0.75},
        "sent_bytes_ratio": {"tiny": 1.02},
        "tcp_tokens_per_second": {"tiny": [30.0, 40.0]},
    }
    assert "tiny: 0.75 (30 / 40 prompt tokens a second of CPU); 1.0200 of the least bytes" in text([slow])
