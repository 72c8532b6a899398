"""Serving: shares computed by hand, pools that overflow, the clock, and failures."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.traces.mooncake import read_mooncake
from swarden.harness.traces.serve import HISTORY_LEN, Pace, PoolUse, TraceServer, longest, oracle_config, serve
from tests.harness.traces.some_traces import FREES, LEAK, RELEASE, chatty_rows, row, write_trace

CRASH = Mutant("crash", "made up", (Hunk(RELEASE, FREES, "raise ValueError(cause)\n"),), ("ValueError",))

SMALL = EngineConfig(
    page_size=4,
    full_pages=64,
    swa_pages=24,
    sliding_window=16,
    max_running_requests=16,
    max_context_len=512,
    chunk_len=32,
    new_token_ratio_decay_steps=4,
)


def read(tmp_path, rows):
    return read_mooncake(write_trace(tmp_path / "t.jsonl", rows), limit=None, scale=32)


def served_by_oracle(requests, *, check_every=1):
    return serve(requests, oracle_config(requests), Pace(check_every=check_every, sequential=True))


def test_hit_share_of_the_oracle_counts_whole_pages(tmp_path):
    """A page has one block; the last token of a prompt is always computed.

    At the end blocks 0, 1 and 4 and the tail of the last prompt are cached.
    """
    rows = [
        row([0, 1, 2], tail=100),  # 35 tokens, nothing cached
        row([0, 1, 3], tail=480),  # 47, of which blocks 0 and 1
        row([0, 4]),  # 32, of which block 0
        row([0, 4]),  # 32, of which block 0: block 4 has the last token
        row([0, 4, 5], tail=500),  # 48, of which blocks 0 and 4; the tail rounds up to a page and is no block
    ]

    summary = served_by_oracle(read(tmp_path, rows)).summary

    assert (summary.requests, summary.prompt_tokens, summary.output_tokens) == (5, 35 + 47 + 32 + 32 + 48, 5)
    assert summary.hit_share == pytest.approx((32 + 16 + 16 + 32) / 194)
    assert summary.hit_share_beyond_first_block == pytest.approx((16 + 16) / (5 * 16))
    assert (summary.retractions, summary.steps, summary.violations) == (0, 5, 0)
    assert summary.pools == {"full": PoolUse(capacity=3 + 3 + 3 + 3 + 4, peak=4, evicted=0)}


def test_small_pools_evict_and_retract_without_a_violation(tmp_path):
    served = serve(read(tmp_path, chatty_rows(60)), SMALL, Pace(step_ms=100, check_every=1))

    summary = served.summary
    assert (summary.requests, summary.violations, served.failure) == (60, 0, None)
    assert summary.retractions > 0
    assert {name: use.capacity for name, use in summary.pools.items()} == {"full": 64, "swa": 24}
    assert all(0 < use.peak <= use.capacity and (use.evicted or 0) > 0 for use in summary.pools.values())


def test_interval_of_checks_changes_only_the_duration(tmp_path):
    requests = read(tmp_path, chatty_rows(30))

    often, rarely = (serve(requests, SMALL, Pace(check_every=every)).summary for every in (1, 1000))

    assert replace(often, seconds=0.0) == replace(rarely, seconds=0.0)


def test_clock_of_an_idle_engine_jumps_to_the_next_arrival(tmp_path):
    requests = read(tmp_path, [row([0, 1], timestamp=hour * 3_600_000, output_length=96) for hour in range(3)])

    summary = serve(requests, SMALL, Pace(step_ms=10)).summary

    assert summary.steps == 3 * 3  # a prompt of 32 tokens is one chunk, and gives the first of 3 tokens


def test_requests_are_batched_if_steps_take_longer_than_their_intervals(tmp_path):
    requests = read(tmp_path, [row([0, block], timestamp=block, output_length=96) for block in range(1, 4)])

    alone, together = (
        serve(requests, replace(SMALL, chunk_len=None), Pace(step_ms=step_ms)).summary.steps for step_ms in (1, 100)
    )

    assert (alone, together) == (5, 4)


def test_long_trace_keeps_a_bounded_history(tmp_path):
    server = TraceServer(SMALL, Pace(check_every=1), on_end=lambda: None)

    server.serve(read(tmp_path, chatty_rows(60)))

    assert len(server.driver.ops) == HISTORY_LEN
    assert len(server.system.reference.expectations) < 60


def test_request_larger_than_the_pool_is_reported(tmp_path):
    requests = read(tmp_path, [row(list(range(20))), row([0, 1])])

    served = serve(requests, SMALL, Pace())

    assert (served.summary.requests, served.summary.violations) == (2, 0)
    assert served.cut_short == ["rejected: the prompt needs 81 full pages of 64"]


@pytest.mark.parametrize("sequential", [False, True], ids=["by-the-clock", "one-by-one"])
def test_violation_stops_the_serving(tmp_path, sequential):
    with LEAK.planted():
        served = serve(read(tmp_path, chatty_rows(60)), SMALL, Pace(check_every=1, sequential=sequential))

    assert served.failure is not None
    assert "unit_has_one_owner" in {violation.law for violation in served.failure.violations}
    assert served.summary.violations == len(served.failure.violations)
    assert served.summary.requests < 60


def test_engine_error_counts_as_a_violation(tmp_path):
    with CRASH.planted():
        served = serve(read(tmp_path, chatty_rows(60)), SMALL, Pace(check_every=1))

    assert served.failure is not None
    assert isinstance(served.failure.error, ValueError)
    assert served.summary.violations == 1


def test_longest_counts_prompt_and_output_tokens(tmp_path):
    assert longest(read(tmp_path, [row([0], tail=1), row([0, 1, 2], output_length=320)])) == 48 + 10
