"""Priorities: the order of admission, and preemption for a request of higher priority."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.request import Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.preempt import Yield, victims
from swarden.invariants.events import Discarded, Preempted
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, Serving, hold, release_held

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
ONE_ROW = replace(HYBRID, max_running_requests=1, preemption_threshold=0)


def yield_of(request_id: int, priority: int = 0, **own: int) -> Yield:
    return Yield(Request(request_id, 1, [1], SamplingParams(9), priority=priority), own, {"full": 1})


def ids(requests) -> list[int]:
    return [request.id for request in requests]


@pytest.mark.parametrize(
    ("lacking", "yields", "chosen"),
    [
        pytest.param({}, [yield_of(1, full=3)], [], id="nothing is lacking"),
        pytest.param({"full": 1}, [], [], id="no candidates"),
        pytest.param({"full": 4}, [yield_of(1, full=3)], [1], id="own pages and estimated growth"),
        pytest.param({"full": 5}, [yield_of(1, full=3)], [], id="all candidates are not enough"),
        pytest.param({"full": 4, "swa": 1}, [yield_of(1, full=3)], [], id="not enough in the second pool"),
        pytest.param({"full": 2}, [yield_of(1, full=1), yield_of(2, full=1)], [2], id="the latest at equal priority"),
        pytest.param({"full": 2}, [yield_of(1, 0, full=1), yield_of(2, 1, full=1)], [1], id="the lowest priority"),
        pytest.param({"full": 4}, [yield_of(1, full=1), yield_of(2, full=1)], [2, 1], id="two victims"),
        pytest.param({"full": 6}, [yield_of(1, full=9), yield_of(2, full=1)], [1], id="no unneeded victim"),
        pytest.param({"rows": 1}, [yield_of(1, rows=1), yield_of(2, rows=1)], [2], id="a row"),
        pytest.param(
            {"full": 5, "swa": 1},
            [yield_of(1, full=4), yield_of(2, full=1, swa=1), yield_of(3, full=1)],
            [2, 1],
            id="one for each pool",
        ),
    ],
)
def test_fewest_sufficient_victims_of_lowest_priority_are_chosen(lacking, yields, chosen):
    assert ids(victims(lacking, yields)) == chosen


def test_waiting_request_of_highest_priority_is_admitted_first():
    serving = Serving(replace(HYBRID, max_running_requests=1))
    for first, priority in ((10, 0), (20, 2), (30, 1), (40, 2)):
        serving.submit([first], priority=priority, max_new_tokens=1)

    serving.run()

    assert [entries[0][0] for entries in serving.passes] == [2, 4, 3, 1]


def rivals(config=ONE_ROW, *, running: int = 0, waiting: int) -> Serving:
    """Request 1 has two output tokens when the other request arrives."""
    serving = Serving(config)
    serving.submit(SHORT, priority=running, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=waiting, max_new_tokens=3)
    serving.step()
    return serving


def test_running_request_yields_to_higher_priority_and_is_served_later():
    serving = rivals(waiting=1)
    preempted, computed = serving.log.of(Preempted), serving.passes[-1]

    serving.run()

    assert (preempted, computed) == ([Preempted(1, 2, 2)], ((2, 0, 9),))
    assert (serving.tokens(1), serving.received[1].num_retractions, serving.tokens(2)) == (
        serving.expected(SHORT, max_new_tokens=9),
        1,
        serving.expected(OTHER[:9], max_new_tokens=3),
    )


@pytest.mark.parametrize(
    ("threshold", "running", "waiting", "preempted"),
    [
        pytest.param(None, 0, 9, [], id="preemption is off"),
        pytest.param(0, 0, 0, [], id="equal priority"),
        pytest.param(0, 1, 0, [], id="lower priority"),
        pytest.param(0, 0, 1, [1], id="higher priority"),
        pytest.param(2, 0, 2, [], id="exactly the threshold"),
        pytest.param(2, 0, 3, [1], id="more than the threshold"),
        pytest.param(2, -1, 2, [1], id="more than the threshold above one below zero"),
    ],
)
def test_preemption_needs_a_priority_above_the_threshold(threshold, running, waiting, preempted):
    serving = rivals(replace(ONE_ROW, preemption_threshold=threshold), running=running, waiting=waiting)

    assert [event.request_id for event in serving.log.of(Preempted)] == preempted


def test_no_preemption_when_both_requests_fit():
    serving = rivals(replace(ONE_ROW, max_running_requests=2), waiting=1)

    assert (serving.log.of(Preempted), serving.passes[-1]) == ([], ((2, 0, 9),))


FULL_ESTIMATE = replace(
    FULL_ONLY, full_pages=12, preemption_threshold=0, new_token_ratio=1.0, new_token_ratio_floor=1.0
)


def three_of_two_pages(*priorities: int) -> Serving:
    """Three requests that have two pages each and will grow to four run in twelve pages."""
    serving = Serving(FULL_ESTIMATE)
    for first, priority in zip((10, 20, 30), priorities, strict=True):
        serving.submit([first, *range(6)], priority=priority, max_new_tokens=9)
    serving.step(2)
    return serving


@pytest.mark.parametrize(
    ("priorities", "prompt_len", "preempted"),
    [
        pytest.param((0, 0, 0), 12, [3], id="the latest at equal priority"),
        pytest.param((0, 2, 1), 12, [1], id="the lowest priority"),
        pytest.param((0, 0, 0), 20, [3, 2], id="two for a longer prompt"),
        pytest.param((1, 0, 1), 20, [2, 3], id="two, the lowest priority first"),
        pytest.param((5, 5, 5), 20, [], id="equal priority"),
    ],
)
def test_preemption_frees_the_pages_of_the_waiting_request(priorities, prompt_len, preempted):
    serving = three_of_two_pages(*priorities)
    serving.submit(list(range(500, 500 + prompt_len)), priority=5, max_new_tokens=5)

    serving.step()

    assert [event.request_id for event in serving.log.of(Preempted)] == preempted


@pytest.mark.parametrize(
    ("prompt", "preempted"),
    [
        pytest.param([*range(500, 531)], [1], id="pages that only the victim protects"),
        pytest.param([*LONG[:32], *range(500, 512)], [], id="pages that the waiting request matches"),
    ],
)
def test_pages_protected_only_by_a_victim_count_as_freed(prompt, preempted):
    """Request 1 reads eight of ten pages; then a request of higher priority arrives, which needs more than two."""
    serving = Serving(replace(FULL_ONLY, full_pages=10, chunk_len=None, preemption_threshold=0))
    serving.submit(LONG[:32], max_new_tokens=8)
    serving.step(2)
    serving.submit(prompt, priority=1, max_new_tokens=2)

    serving.step()

    assert [event.request_id for event in serving.log.of(Preempted)] == preempted


def test_no_preemption_when_victims_free_too_little():
    """Another owner holds pages that the request of higher priority would need even if it ran alone."""
    serving = three_of_two_pages(0, 0, 0)
    held = hold(serving.engine.memory, "full", leaving=0)
    request = serving.submit(LONG, priority=5)
    serving.step()
    preempted = serving.log.of(Preempted)

    release_held(serving.engine.memory, "full", held)
    serving.run()

    assert (preempted, serving.reason(request)) == ([], "length")


def test_no_useless_preemption_when_a_mixed_batch_frees_budget():
    """Fewer running requests leave a longer chunk, which takes more windowed pages."""
    config = replace(HYBRID, page_size=1, full_pages=256, swa_pages=20, sliding_window=3, max_running_requests=8)
    serving = Serving(replace(config, mixed_batches=True, preemption_threshold=0))
    for first in range(3):
        serving.submit([first, 2, 3], max_new_tokens=30)
        serving.step()
    serving.step(2)
    request = serving.submit(LONG, priority=3, max_new_tokens=5)

    serving.step()

    assert ([event.by for event in serving.log.of(Preempted)], serving.passes[-1][0][:2]) == (
        [request] * 2,
        (request, 0),
    )


def test_no_preemption_while_a_prompt_is_chunked():
    serving = Serving(replace(HYBRID, preemption_threshold=0))
    serving.submit(LONG)
    serving.step()
    serving.submit(SHORT, priority=9)

    serving.step()

    assert (serving.log.of(Preempted), serving.passes[-1]) == ([], ((1, 16, 32),))


def test_preemption_waits_for_passes_in_flight():
    serving = Serving(replace(ONE_ROW, overlap=True))
    serving.submit(SHORT, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=1, max_new_tokens=3)

    serving.step()

    assert (serving.log.of(Preempted), serving.passes[-1], serving.log.of(Discarded)) == (
        [Preempted(1, 2, 2)],
        ((2, 0, 9),),
        [],
    )


def test_a_preemption_waits_for_a_late_pass():
    serving = Serving(replace(ONE_ROW, overlap=True))
    serving.submit(SHORT, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=1, max_new_tokens=3)
    serving.faults.arm("forward.late", count=2)
    serving.step()
    before = serving.log.of(Preempted)

    serving.step(2)

    assert (before, [event.request_id for event in serving.log.of(Preempted)]) == ([], [1])


def test_useless_preemption_does_not_stop_overlap():
    """A useless preemption does not wait for passes in flight."""
    serving = Serving(replace(FULL_ESTIMATE, overlap=True))
    for first in (10, 20):
        serving.submit([first, *range(6)], max_new_tokens=9)
    serving.step(2)
    hold(serving.engine.memory, "full", leaving=3)
    serving.submit(LONG, priority=5)

    serving.step()

    assert (serving.log.of(Preempted), len(serving.engine.scheduler.pipeline)) == ([], 1)


def test_request_whose_last_token_is_in_flight_is_not_preempted():
    """A request that ends with the pass in flight frees its pages without a preemption."""
    serving = Serving(replace(ONE_ROW, overlap=True))
    serving.submit(SHORT, max_new_tokens=2)
    serving.step(2)
    serving.submit(OTHER[:9], priority=1, max_new_tokens=3)

    serving.run()

    assert (serving.log.of(Preempted), [serving.received[request].num_retractions for request in (1, 2)]) == (
        [],
        [0, 0],
    )
