"""Faults at the ports cost time and at most the affected requests, never a page."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import Completed, Discarded, Failed, Late, RanOut, Refused
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


def test_late_pass_stays_in_flight_and_is_collected_again():
    serving = Serving()
    serving.faults.arm("forward.late", count=2)
    serving.submit(SHORT, max_new_tokens=1)

    serving.step(3)

    assert (serving.log.of(Late), serving.log.of(Completed), serving.reason(1)) == (
        [Late(1), Late(1)],
        [Completed(1)],
        "length",
    )


@OVERLAP
def test_late_pass_does_not_exceed_the_pipeline_depth(overlap):
    serving = two_requests(replace(HYBRID, overlap=overlap), steps=0)
    serving.faults.arm("forward.late", count=9)

    serving.step(5)

    assert len(serving.passes) == serving.config.most_launches


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


def test_request_aborted_during_a_late_pass_frees_everything_after_the_pass():
    serving = Serving()
    serving.faults.arm("forward.late", count=2)
    request = serving.submit(SHORT)
    serving.step()
    serving.engine.abort(request)
    serving.step()
    waiting = serving.fenced()

    serving.step()

    assert (waiting, serving.reason(request), serving.flush_frees_all()) == (
        {"full": {1: 2}, "swa": {1: 2}, "rows": {1: 1}},
        "abort",
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


def test_failed_pass_completes_and_reports_the_reason():
    serving = Serving()
    serving.faults.arm("forward.fails")
    serving.submit(SHORT)

    serving.step()

    reported = [event for event in serving.log.events if isinstance(event, Failed | Completed)]
    assert reported == [Failed(1, "launch 1: the device gave up"), Completed(1)]


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


def test_requests_in_the_pass_behind_a_failed_pass_run_on():
    """Request 2 was not in the pass that failed."""
    serving = Serving(replace(OVERLAPPED, max_forward_retries=0))
    first = serving.submit(SHORT)
    serving.step()
    second = serving.submit(OTHER[:9])
    serving.faults.arm("forward.fails")

    serving.run()

    assert (serving.reason(first), serving.tokens(second)) == (
        "forward failed: 1 times: launch 1: the device gave up",
        serving.expected(OTHER[:9], max_new_tokens=4),
    )


def test_nothing_of_a_failed_pass_is_published():
    serving = Serving(replace(HYBRID, max_forward_retries=0))
    serving.faults.arm("forward.fails")
    serving.serve(OTHER)

    received = serving.serve(OTHER)

    assert (received.cached_tokens, received.tokens) == (0, serving.expected(OTHER, max_new_tokens=4))


def test_failure_of_a_pass_from_before_a_pause_does_not_count():
    serving = Serving(replace(OVERLAPPED, max_forward_retries=0))
    serving.submit(OTHER[:9])
    serving.step()
    serving.engine.pause()
    serving.engine.resume()
    serving.faults.arm("forward.fails")

    serving.run()

    assert (len(serving.log.of(Failed)), serving.tokens(1)) == (1, serving.expected(OTHER[:9], max_new_tokens=4))


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


def test_request_refused_memory_waits_and_other_requests_run():
    serving = Serving()
    for prompt in (SHORT, OTHER[:8]):
        serving.submit(prompt, max_new_tokens=2)
    serving.faults.arm("pool.refuses")

    serving.step()

    assert (serving.passes, [request.id for request in serving.engine.scheduler.waiting]) == ([((2, 0, 8),)], [1])


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
