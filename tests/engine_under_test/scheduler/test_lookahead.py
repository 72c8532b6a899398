"""Reservations count the pages of the lookahead, and all of them are freed."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.invariants.events import RanOut, Retracted
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving

LONG, OTHER = list(range(100, 140)), list(range(300, 317))
AHEAD = replace(HYBRID, lookahead_tokens=6)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@ALL_POOLS
def test_lookahead_pages_are_freed(config, overlap):
    serving = Serving(replace(config, lookahead_tokens=6, overlap=overlap))

    received = serving.serve(OTHER, max_new_tokens=9)

    assert (received.tokens, serving.flush_frees_all()) == (serving.expected(OTHER, max_new_tokens=9), True)


@pytest.mark.parametrize(
    ("config", "max_new_tokens", "reason"),
    [
        pytest.param(
            replace(AHEAD, max_context_len=31),
            9,
            "rejected: 32 tokens with the lookahead of 6 are more than max_context_len 31",
            id="a row too short",
        ),
        pytest.param(replace(AHEAD, max_context_len=32), 9, None, id="a row just long enough"),
        pytest.param(
            replace(AHEAD, full_pages=5), 1, "rejected: the prompt needs 6 full pages of 5", id="a pool too small"
        ),
        pytest.param(replace(AHEAD, full_pages=6), 1, None, id="a pool just large enough"),
    ],
)
def test_rejection_at_submit_counts_the_lookahead(config, max_new_tokens, reason):
    serving = Serving(config)
    request = serving.submit(OTHER, max_new_tokens=max_new_tokens)

    outputs = serving.engine.step()

    assert [output.finish_reason for output in outputs if output.finish_reason != "length"] == [reason] * (
        reason is not None
    )
    assert [output[:1] for output in outputs] == [(request,)] * len(outputs)


@pytest.mark.parametrize("lookahead", [1, 4, 9], ids="{} tokens".format)
def test_request_is_served_in_the_smallest_windowed_pool(lookahead):
    pages = 4 - (-lookahead // 4)
    serving = Serving(replace(HYBRID, lookahead_tokens=lookahead, swa_pages=pages))

    received = serving.serve(LONG[:20], max_new_tokens=30)

    assert received.tokens == serving.expected(LONG[:20], max_new_tokens=30)


@pytest.mark.parametrize("lookahead", [1, 4, 9], ids="{} ahead".format)
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@pytest.mark.parametrize("pools", [{"swa_pages": 0, "sliding_window": None}, {"full_pages": 256}], ids=["full", "swa"])
def test_full_output_estimate_prevents_retraction_for_the_lookahead(pools, overlap, lookahead):
    """The pools are too small for all eight requests at once."""
    config = EngineConfig.from_mapping(
        HYBRID.to_mapping()
        | {
            "lookahead_tokens": lookahead,
            "overlap": overlap,
            "full_pages": 32,
            "swa_pages": 16,
            "max_running_requests": 8,
            "new_token_ratio": 1.0,
            "new_token_ratio_floor": 1.0,
        }
        | pools
    )
    serving = Serving(config)
    for first in range(8):
        serving.submit([first, 1, 2, 3], max_new_tokens=28)
        serving.step()

    serving.run()

    assert (serving.log.of(Retracted), serving.log.of(RanOut)) == ([], [])
