"""Faults at the ports cost time and at most the affected requests, never a page."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import Discarded, Failed, RanOut, Refused
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
OVERLAPPED = replace(HYBRID, overlap=True)
OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])


def two_requests(config, *, steps: int) -> Serving:
    serving = Serving(config)
    for prompt in (OTHER[:9], LONG):
        serving.submit(prompt, max_new_tokens=6)
    serving.step(steps)
    return serving


def outputs(serving: Serving) -> list[list[int]]:
    return [received.tokens for received in serving.received.values()]


def expected_of_two(serving: Serving) -> list[list[int]]:
    return [serving.expected(prompt, max_new_tokens=6) for prompt in (OTHER[:9], LONG)]


# --- a pass is late


@OVERLAP
@ALL_POOLS
@pytest.mark.parametrize("steps", [0, 2, 5])
def test_a_late_pass_loses_nothing(config, overlap, steps):
    serving = two_requests(replace(config, overlap=overlap), steps=steps)
    serving.faults.arm("forward.late", count=3)

    serving.run()

    assert (outputs(serving), serving.log.of(Discarded), serving.flush_frees_all()) == (
        expected_of_two(serving),
        [],
        True,
    )


# --- a pass fails


@OVERLAP
@ALL_POOLS
@pytest.mark.parametrize("skip", [0, 1, 2, 3, 5], ids="launch {}".format)
def test_the_requests_of_a_failed_pass_are_computed_again(config, overlap, skip):
    serving = two_requests(replace(config, overlap=overlap), steps=0)
    serving.faults.arm("forward.fails", skip=skip)

    serving.run()

    assert (outputs(serving), len(serving.log.of(Failed)), serving.flush_frees_all()) == (
        expected_of_two(serving),
        1,
        True,
    )


@OVERLAP
@pytest.mark.parametrize("retries", [0, 1, 4])
def test_a_request_whose_passes_fail_too_often_ends_with_the_reason(retries, overlap):
    serving = Serving(replace(HYBRID, overlap=overlap, max_forward_retries=retries))
    serving.faults.arm("forward.fails", count=9)

    received = serving.serve(SHORT)

    reason = f"forward failed: {retries + 1} times:"
    assert (str(received.reason).partition(" launch")[0], received.tokens) == (reason, [])
    assert serving.flush_frees_all()


def test_client_keeps_tokens_from_before_a_failure():
    serving = Serving(replace(HYBRID, max_forward_retries=0))
    serving.faults.arm("forward.fails", skip=3)

    received = serving.serve(SHORT, max_new_tokens=9)

    assert (received.tokens, received.reason) == (
        serving.expected(SHORT, max_new_tokens=3),
        "forward failed: 1 times: launch 4: the device gave up",
    )


def test_one_failure_counts_once_though_two_passes_are_lost():
    serving = Serving(replace(OVERLAPPED, max_forward_retries=1))
    serving.faults.arm("forward.fails")

    received = serving.serve(SHORT)

    assert received.tokens == serving.expected(SHORT, max_new_tokens=4)


def test_nothing_of_a_failed_pass_is_published():
    serving = Serving(replace(HYBRID, max_forward_retries=0))
    serving.faults.arm("forward.fails")
    serving.serve(OTHER)

    received = serving.serve(OTHER)

    assert (received.cached_tokens, received.tokens) == (0, serving.expected(OTHER, max_new_tokens=4))


# --- there is no memory behind the pages


@pytest.mark.parametrize(
    ("skip", "pool"), [pytest.param(0, "full", id="the first pool"), pytest.param(1, "swa", id="the second pool")]
)
def test_a_refused_take_takes_nothing_in_any_pool(skip, pool):
    serving = Serving()
    serving.faults.arm("pool.refuses", skip=skip)
    serving.submit(SHORT)

    serving.step()

    [free] = [ledger.num_free for ledger in serving.engine.memory.ledgers.ledgers if ledger.name == pool]
    assert (serving.log.of(Refused), serving.log.of(RanOut), serving.flush_frees_all()) == (
        [Refused(pool, request_owner(1), 2, free)],
        [RanOut(1, pool, 2, free)],
        True,
    )


@OVERLAP
@ALL_POOLS
@pytest.mark.parametrize("skip", [0, 1, 2, 4, 7], ids="after {}".format)
def test_refused_requests_are_served_later(config, overlap, skip):
    serving = two_requests(replace(config, overlap=overlap), steps=0)
    serving.faults.arm("pool.refuses", skip=skip, count=3)

    serving.run()

    assert (outputs(serving), serving.flush_frees_all()) == (expected_of_two(serving), True)


def test_a_begun_chunk_that_is_refused_in_flight_waits_for_its_pass():
    serving = Serving(OVERLAPPED)
    serving.submit(LONG)
    serving.step()
    serving.faults.arm("pool.refuses")

    serving.step()

    assert (serving.log.of(RanOut)[0][:2], serving.log.of(Discarded), serving.flush_frees_all()) == (
        (1, "full"),
        [Discarded(1, 1)],
        True,
    )
