"""Overlap: a step launches before the last result is known; no page is read or freed, and no token sent, too early."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Completed, Discarded, Finished, Late, Launched, Parked, Retracted
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, Serving, hold

LONG, OTHER = list(range(100, 140)), list(range(300, 317))
OVERLAPPED = replace(HYBRID, overlap=True)
TIGHT = replace(FULL_ONLY, overlap=True, new_token_ratio=0.1, new_token_ratio_floor=0.05)
ALL_CONFIGS = pytest.mark.parametrize(
    "config",
    [replace(config, overlap=True) for config in (HYBRID, FULL_ONLY, SWA_ONLY, UNSHARED)],
    ids=["hybrid", "full only", "swa only", "no sharing"],
)


@pytest.mark.parametrize(
    ("config", "most"), [pytest.param(HYBRID, 1, id="plain"), pytest.param(OVERLAPPED, 2, id="overlapped")]
)
def test_overlap_launches_one_pass_before_the_last_one_completes(config, most):
    serving = Serving(config)
    serving.serve(LONG, max_new_tokens=3)

    kinds = [type(event) for event in serving.log.events if isinstance(event, Launched | Completed)]

    in_flight = [kinds[:end].count(Launched) - kinds[:end].count(Completed) for end in range(len(kinds) + 1)]
    assert max(in_flight) == most


@ALL_CONFIGS
def test_outputs_are_those_without_overlap(config):
    serving = Serving(config)
    prompts = [LONG, OTHER, [*OTHER[:9], 1], LONG[:30]]
    for prompt in prompts:
        serving.submit(prompt, max_new_tokens=9)
        serving.step()

    serving.run()

    assert [received.tokens for received in serving.received.values()] == [
        serving.expected(prompt, max_new_tokens=9) for prompt in prompts
    ]


def stopped_in_flight() -> Serving:
    """Request 1 stops with its third token, and its fourth is in flight."""
    serving = Serving(OVERLAPPED)
    expected = serving.expected(OTHER[:9], max_new_tokens=3)
    serving.submit(OTHER[:9], max_new_tokens=20, stop_token_ids=expected[2:])
    serving.until(Finished)
    return serving


def test_engine_has_work_while_an_orphaned_pass_is_in_flight():
    serving = stopped_in_flight()

    assert (serving.engine.scheduler.active, serving.engine.has_work) == ([], True)


def test_request_timed_out_in_flight_frees_everything_after_its_pass():
    serving = Serving(replace(OVERLAPPED, request_timeout_ms=100))
    request = serving.submit(LONG, max_new_tokens=20)
    serving.step(3)
    serving.clock.advance(100)

    serving.run()

    assert (serving.reason(request), len(serving.log.of(Discarded)), serving.flush_frees_all()) == ("timeout", 1, True)


def test_chunk_alone_waits_for_its_pass_before_it_is_aborted():
    serving = Serving(replace(OVERLAPPED, swa_pages=4))
    request = serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, "swa", leaving=0)

    serving.step()

    assert (serving.log.of(Parked), serving.reason(request)) == ([Parked(1, 0)], None)


def test_long_prompt_is_served_in_the_smallest_windowed_pool():
    serving = Serving(replace(OVERLAPPED, swa_pages=4))

    received = serving.serve(LONG, max_new_tokens=9)

    assert received.tokens == serving.expected(LONG, max_new_tokens=9)


def test_retraction_waits_for_passes_in_flight_and_the_request_is_served_later():
    """No result is discarded, and the pages of the retracted request can be taken at once."""
    serving = Serving(replace(TIGHT, full_pages=7))
    for prompt in (OTHER[:8], LONG[:8]):
        serving.submit(prompt, max_new_tokens=10)

    serving.run()

    assert serving.log.of(Discarded) == []
    assert [(received.tokens, received.num_retractions) for received in serving.received.values()] == [
        (serving.expected(OTHER[:8], max_new_tokens=10), 0),
        (serving.expected(LONG[:8], max_new_tokens=10), 1),
    ]


def test_late_pass_delays_retraction():
    """The need for a retraction is known only after the pass has completed."""
    serving = Serving(replace(TIGHT, full_pages=6))
    for prompt in (OTHER[:8], LONG[:8]):
        serving.submit(prompt, max_new_tokens=10)
    serving.step(5)
    serving.faults.arm("forward.late", count=9)

    serving.step()

    assert (serving.log.of(Retracted), serving.passes[-1], len(serving.log.of(Late))) == (
        [],
        ((1, 11, 12), (2, 11, 12)),
        2,
    )
