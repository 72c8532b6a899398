"""Overlap: a step launches before the last result is known; no page is read or freed, and no token sent, too early."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Completed, Discarded, Finished, Inserted, Late, Launched, Parked, Retracted
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, Serving, hold

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
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


def test_a_client_gets_each_token_a_step_later():
    serving = Serving(OVERLAPPED)
    request = serving.submit(SHORT, max_new_tokens=3)
    lengths = []

    for _ in range(4):
        serving.step()
        lengths.append(len(serving.tokens(request)))

    assert lengths == [0, 1, 2, 3]


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


@ALL_CONFIGS
@pytest.mark.parametrize("max_new_tokens", [0, 1, 2])
def test_request_that_ends_by_length_has_no_extra_pass(config, max_new_tokens):
    serving = Serving(config)

    received = serving.serve(SHORT, max_new_tokens=max_new_tokens)

    assert (len(received.tokens), len(serving.passes), serving.log.of(Discarded)) == (
        max_new_tokens,
        max(1, max_new_tokens),
        [],
    )


def stopped_in_flight(config=OVERLAPPED) -> Serving:
    """Request 1 stops with its third token, and its fourth is in flight."""
    serving = Serving(config)
    expected = serving.expected(OTHER[:9], max_new_tokens=3)
    serving.submit(OTHER[:9], max_new_tokens=20, stop_token_ids=expected[2:])
    serving.until(Finished)
    return serving


@ALL_CONFIGS
def test_extra_pass_of_a_stopped_request_is_not_sent_or_published(config):
    serving = stopped_in_flight(config)

    serving.run()

    assert serving.log.of(Discarded) == [Discarded(4, 1)]
    assert (serving.tokens(1), serving.reason(1)) == (serving.expected(OTHER[:9], max_new_tokens=3), "stop")
    assert [inserted.end for inserted in serving.log.of(Inserted)] == [8] * config.prefix_sharing
    assert serving.flush_frees_all()


def test_pages_row_and_lock_of_request_ended_in_flight_wait_for_its_pass():
    """A flush frees none of them."""
    serving = stopped_in_flight()
    serving.engine.flush()
    before = (serving.fenced(), serving.engine.cache.evictable("full"), serving.free["full"])

    serving.step()

    assert before == ({"full": {4: 1}, "swa": {4: 1}, "rows": {4: 1}}, 0, OVERLAPPED.full_pages - 3)
    assert (serving.fenced(), serving.engine.cache.evictable("full")) == ({"full": {}, "swa": {}, "rows": {}}, 2)


def test_engine_has_work_while_an_orphaned_pass_is_in_flight():
    serving = stopped_in_flight()

    assert (serving.engine.scheduler.active, serving.engine.has_work) == ([], True)


@ALL_CONFIGS
@pytest.mark.parametrize("steps", [1, 2, 4, 5], ids=["first chunk", "two chunks", "input and first token", "decodes"])
def test_request_aborted_in_flight_frees_everything_after_its_passes(config, steps):
    serving = Serving(config)
    request = serving.submit(LONG, max_new_tokens=20)
    serving.step(steps)
    serving.engine.abort(request)
    is_fenced = any(serving.fenced()["rows"].values())

    serving.run()

    assert (is_fenced, serving.reason(request), serving.flush_frees_all()) == (True, "abort", True)


def test_request_timed_out_in_flight_frees_everything_after_its_pass():
    serving = Serving(replace(OVERLAPPED, request_timeout_ms=100))
    request = serving.submit(LONG, max_new_tokens=20)
    serving.step(3)
    serving.clock.advance(100)

    serving.run()

    assert (serving.reason(request), len(serving.log.of(Discarded)), serving.flush_frees_all()) == ("timeout", 1, True)


def test_abort_in_flight_leaves_other_requests_of_the_pass_running():
    serving = Serving(OVERLAPPED)
    first, second = serving.submit(SHORT, max_new_tokens=9), serving.submit(OTHER[:9], max_new_tokens=9)
    serving.step(3)

    serving.engine.abort(first)
    serving.run()

    assert (serving.tokens(second), serving.log.of(Discarded)) == (
        serving.expected(OTHER[:9], max_new_tokens=9),
        [Discarded(3, first)],
    )


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


def test_stale_result_is_ignored_for_a_requeued_request():
    serving = Serving(OVERLAPPED)
    request = serving.submit(OTHER[:9])
    serving.step()
    serving.engine.pause()
    serving.engine.resume()

    serving.run()

    assert (serving.log.of(Discarded), serving.tokens(request)) == (
        [Discarded(1, request)],
        serving.expected(OTHER[:9], max_new_tokens=4),
    )


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


def test_request_finishing_in_flight_frees_pages_instead_of_a_retraction():
    """Both need a page for their next token; one stops with the token that is in flight."""
    serving = Serving(replace(TIGHT, full_pages=6))
    expected = serving.expected(OTHER[:8], max_new_tokens=5)
    first = serving.submit(OTHER[:8], max_new_tokens=20, stop_token_ids=expected[4:])
    second = serving.submit(LONG[:8], max_new_tokens=8)

    serving.run()

    assert ([serving.received[request].num_retractions for request in (first, second)], serving.reason(first)) == (
        [0, 0],
        "stop",
    )
