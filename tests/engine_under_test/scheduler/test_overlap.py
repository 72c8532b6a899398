"""Overlap: a step launches before the last result is known; no page is read or freed, and no token sent, too early."""

from dataclasses import replace

import pytest

from engine_under_test.events import (
    Completed,
    Discarded,
    Finished,
    Freed,
    Inserted,
    Late,
    Launched,
    Parked,
    Retracted,
    Slid,
)
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, Serving, hold

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
OVERLAPPED = replace(HYBRID, overlap=True)
TIGHT = replace(FULL_ONLY, overlap=True, new_token_ratio=0.1, new_token_ratio_floor=0.05)
ALL_CONFIGS = pytest.mark.parametrize(
    "config",
    [replace(config, overlap=True) for config in (HYBRID, FULL_ONLY, SWA_ONLY, UNSHARED)],
    ids=["hybrid", "full only", "swa only", "no sharing"],
)


def launches_and_completions(serving: Serving) -> list[str]:
    kept = [event for event in serving.log.events if isinstance(event, Launched | Completed)]
    return [f"{type(event).__name__} {event.launch}" for event in kept]


def test_pass_is_launched_before_the_previous_pass_completes():
    serving = Serving(OVERLAPPED)

    serving.serve(SHORT, max_new_tokens=3)

    assert launches_and_completions(serving) == [
        "Launched 1",
        "Launched 2",
        "Completed 1",
        "Launched 3",
        "Completed 2",
        "Completed 3",
    ]


def test_without_overlap_a_pass_completes_before_the_next_launch():
    serving = Serving()

    serving.serve(SHORT, max_new_tokens=2)

    assert launches_and_completions(serving) == ["Launched 1", "Completed 1", "Launched 2", "Completed 2"]


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


def test_extra_pass_of_a_stopped_request_is_discarded():
    serving = stopped_in_flight()

    serving.run()

    assert (serving.passes[-1], serving.log.of(Discarded)) == (((1, 11, 12),), [Discarded(4, 1)])


def test_discarded_results_are_not_sent_to_the_client():
    serving = stopped_in_flight()

    serving.run()

    assert (serving.tokens(1), serving.reason(1)) == (serving.expected(OTHER[:9], max_new_tokens=3), "stop")


def test_discarded_results_are_not_published():
    serving = stopped_in_flight()

    serving.run()

    assert [inserted.end for inserted in serving.log.of(Inserted)] == [8]


def test_private_pages_and_row_of_request_ended_in_flight_wait_for_its_pass():
    serving = stopped_in_flight()

    assert serving.fenced() == {"full": {4: 1}, "swa": {4: 1}, "rows": {4: 1}}


def test_lock_of_request_ended_in_flight_is_released_with_its_pass():
    serving = stopped_in_flight()

    departing = serving.engine.scheduler.custody.departures.waiting

    assert ([one.launch for one in departing], serving.engine.cache.evictable("full")) == ([4], 0)


def test_fenced_pages_are_free_after_their_pass():
    serving = stopped_in_flight()

    serving.step()

    assert (serving.fenced(), serving.engine.scheduler.custody.departures.waiting) == (
        {"full": {}, "swa": {}, "rows": {}},
        [],
    )


@ALL_CONFIGS
def test_everything_is_free_after_the_last_pass(config):
    serving = stopped_in_flight(config)

    serving.run()

    assert serving.flush_frees_all()


def test_engine_has_work_while_an_orphaned_pass_is_in_flight():
    serving = stopped_in_flight()

    assert (serving.engine.scheduler.active, serving.engine.has_work) == ([], True)


def test_flush_keeps_pages_that_a_pass_in_flight_reads():
    serving = stopped_in_flight()

    serving.engine.flush()

    assert serving.engine.memory.ledgers.anchor.num_free == OVERLAPPED.full_pages - 3


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


def test_request_aborted_with_two_passes_in_flight_waits_for_the_second():
    serving = Serving(OVERLAPPED)
    request = serving.submit(LONG, max_new_tokens=20)
    serving.step()
    serving.faults.arm("forward.late")
    serving.step()

    serving.engine.abort(request)
    waiting = serving.fenced()["rows"]
    serving.step()

    assert (waiting, serving.fenced()["rows"], serving.log.of(Discarded)) == ({2: 1}, {2: 1}, [Discarded(1, 1)])


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


def test_chunks_of_one_prompt_are_in_flight_back_to_back():
    serving = Serving(replace(OVERLAPPED, swa_pages=16))
    serving.submit(LONG)

    serving.step(2)

    assert (serving.passes, launches_and_completions(serving)) == (
        [((1, 0, 16),), ((1, 16, 32),)],
        ["Launched 1", "Launched 2", "Completed 1"],
    )


def test_a_chunk_is_committed_when_its_pass_has_been_processed():
    serving = Serving(replace(OVERLAPPED, swa_pages=16))
    serving.submit(LONG)
    serving.step(2)

    [record] = serving.engine.scheduler.custody.records

    assert (record.protected_len, record.committed_len, record.launched_len, record.last_launch) == (16, 16, 32, 2)


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


def test_window_keeps_pages_that_passes_in_flight_read():
    serving = Serving(replace(UNSHARED, overlap=True))
    serving.submit(LONG)

    serving.step(3)

    assert (serving.passes[-1], [slid.frontier for slid in serving.log.of(Slid)]) == (((1, 32, 40),), [8])


def test_unknown_token_is_left_to_the_forward():
    serving = Serving(OVERLAPPED)
    serving.submit(SHORT)

    serving.step(2)

    batch = serving.engine.scheduler.pipeline.flights[-1].batch
    assert [(entry.tokens, entry.start, entry.end, entry.follows) for entry in batch.entries] == [([], 5, 6, 1)]


def test_duplicates_that_a_pass_in_flight_reads_are_freed_behind_it():
    """Two prompts that are computed at the same time; the second to publish finds its pages in the tree."""
    serving = Serving(replace(OVERLAPPED, chunk_len=32))
    serving.submit(OTHER[:9])
    serving.submit(OTHER[:9])

    serving.step(2)

    duplicates = [freed for freed in serving.log.of(Freed) if freed.cause == "duplicate"]
    assert [(freed.pool, len(freed.units), freed.after) for freed in duplicates] == [("swa", 2, 2), ("full", 2, 2)]


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


def test_retraction_waits_for_passes_in_flight():
    """So the pages of a retracted request can be taken at once."""
    serving = Serving(replace(TIGHT, full_pages=7))
    for prompt in (OTHER[:8], LONG[:8]):
        serving.submit(prompt, max_new_tokens=10)
    retracted = serving.until(Retracted)

    index = serving.log.events.index(retracted)

    passes = [type(event) for event in serving.log.events[:index] if isinstance(event, Launched | Completed)]
    assert (passes.count(Launched), passes[-2:]) == (passes.count(Completed), [Completed, Completed])


def test_retracted_request_is_served_to_its_end():
    serving = Serving(replace(TIGHT, full_pages=7))
    for prompt in (OTHER[:8], LONG[:8]):
        serving.submit(prompt, max_new_tokens=10)

    serving.run()

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
