"""Reservations and rejections count the pages of the lookahead, and all of them are freed."""

from dataclasses import replace

import pytest

from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving

OTHER = list(range(300, 317))
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
