"""The decode side reserves pages in order, receives the prompt, and runs the request when all of it has arrived."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.messages import Close, PageData, TransferEnd, TransferRequest
from swarden.invariants.events import Launched, LetGo, Reserved, Retracted, SetAside, TakenOver
from tests.engine_under_test.builders import (
    ALL_POOLS,
    FULL_ONLY,
    HYBRID,
    SWA_ONLY,
    UNSHARED,
    free_pages,
    hold,
    release_held,
)
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides
from tests.engine_under_test.disaggregation.test_prefill import ABORTED_THERE, Stage

TIMEOUT_MS = HYBRID.link_timeout_ms
TIMED_OUT = {
    "prefill": f"no message from the decode side for {TIMEOUT_MS} ms",
    "decode": f"no message from the prefill side for {TIMEOUT_MS} ms",
}


def reserved(sides: Sides) -> list[int]:
    """The requests for which pages were reserved, in order."""
    return [event.request_id for event in sides.logs["decode"].of(Reserved)]


def served(sides: Sides, prompt: Sequence[int]) -> list[int]:
    """The output of a prompt, which is served before this returns."""
    request = sides.submit(prompt)
    sides.run()
    return sides.received["decode"][request].tokens


# --- reservations


@pytest.mark.parametrize(
    ("config", "pages"),
    [
        pytest.param(HYBRID, {"full": 10, "swa": 2}, id="hybrid"),
        pytest.param(FULL_ONLY, {"full": 10}, id="full only"),
        pytest.param(SWA_ONLY, {"swa": 2}, id="swa only"),
        pytest.param(replace(HYBRID, page_size=16), {"full": 3, "swa": 1}, id="large pages"),
        pytest.param(replace(HYBRID, sliding_window=14), {"full": 10, "swa": 4}, id="a longer window"),
    ],
)
def test_only_the_tail_of_windowed_pages_is_reserved(config, pages):
    """Of 37 tokens the window reads 5, from the page [32, 36) on; a window of 14 reads from 24 on."""
    sides = Sides(config)
    sides.submit(LONG)

    sides.step("decode")

    assert sides.logs["decode"].of(Reserved) == [Reserved(1, 0, 37, tuple(pages.items()))]
    taken = {pool.name: pool.num_pages - free_pages(sides.decode.memory)[pool.name] for pool in config.pools}
    assert taken == pages


def test_small_request_does_not_overtake_one_that_waits_for_pages():
    sides = Sides()
    pages = hold(sides.decode.memory, "full", leaving=6)
    sides.submit(LONG)
    sides.submit(SHORT)
    sides.steps(60, ms_per_step=TIMEOUT_MS // 50)
    before = reserved(sides)

    release_held(sides.decode.memory, "full", pages)
    sides.run()

    assert (before, reserved(sides), sides.flush_frees_all()) == ([], [1, 2], True)


@pytest.mark.parametrize(("full_pages", "accepted"), [(17, [1]), (18, [1, 2])])
def test_second_reservation_leaves_each_request_its_reserve(full_pages, accepted):
    """20 tokens each: 5 pages, and a reserve of 4 for each of the two."""
    sides = Sides(replace(HYBRID, full_pages=full_pages))
    sides.submit(LONG[:20])
    sides.submit(LONG[::-1][:20])

    sides.step("decode")

    assert reserved(sides) == accepted


@pytest.mark.parametrize("skip", [0, 1])
def test_refused_reservation_is_retried(skip):
    sides = Sides()
    longer = LONG + served(sides, LONG) + OTHER
    sides.submit(longer)
    sides.faults.arm("pool.refuses", skip=skip)

    sides.step("decode")
    refused = reserved(sides)
    sides.run()

    assert (refused, reserved(sides)) == ([1], [1, 2])
    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(LONG, longer), True)


def test_window_of_a_cached_prefix_is_not_locked_when_a_later_one_is_read():
    """The cached prefix and the prompt end with three windowed pages each, and the pool has five."""
    sides = Sides(replace(HYBRID, sliding_window=10, swa_pages=5))
    longer = [*LONG, *served(sides, LONG), *range(18)]
    before = free_pages(sides.decode.memory)["swa"]

    output = served(sides, longer)

    assert (before, [output], reserved(sides)) == (2, sides.expected(longer), [1, 2])


def test_prefix_without_its_whole_window_is_not_cached():
    """A match of [0, 36) would read the window [31, 36), and only [32, 37) has arrived."""
    sides = Sides()
    sides.submit(LONG, max_new_tokens=1)

    sides.run()

    assert free_pages(sides.decode.memory) == {"full": 16, "swa": 12}


# --- arriving pages


def test_request_with_missing_pages_does_not_run():
    sides = Sides()
    sides.taps["prefill"].dropping.append(PageData)
    sides.submit(LONG)

    sides.steps(6)

    assert (sides.logs["decode"].of(TakenOver), sides.logs["decode"].of(Launched)) == ([], [])
    assert sides.taps["prefill"].kinds().count(TransferEnd) == 1


@pytest.mark.parametrize("num_steps", [2, 3, 4], ids=["while more comes", "with the last", "while it runs"])
def test_retransmitted_pages_do_not_overwrite_earlier_ones(num_steps):
    sides = Sides()
    sides.submit(LONG)
    sides.steps(num_steps)
    for message in sides.taps["prefill"].pages():
        sides.taps["prefill"].send(message._replace(pages=torch.zeros_like(message.pages)))

    sides.run()

    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(LONG), True)


@pytest.mark.parametrize(
    ("message", "answers"),
    [
        pytest.param(TransferRequest(1, "whatever"), [Close(1)], id="request of a closed transfer"),
        pytest.param(TransferEnd(1, (4,)), [Close(1)], id="end of a closed transfer"),
        pytest.param(TransferRequest(2, "whatever"), [], id="request of an unknown transfer"),
    ],
)
def test_message_about_a_closed_transfer_is_answered_with_close(message, answers):
    sides = Sides()
    served(sides, LONG)
    sides.taps["decode"].sent.clear()

    sides.taps["prefill"].send(message)
    sides.step("decode")

    assert (sides.taps["decode"].sent, sides.decode.has_work) == (answers, False)


# --- retraction and swap


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(replace(HYBRID, full_pages=12), id="hybrid, full pages are short"),
        pytest.param(replace(HYBRID, swa_pages=6), id="hybrid, swa pages are short"),
        pytest.param(replace(FULL_ONLY, full_pages=12), id="full only"),
        pytest.param(replace(SWA_ONLY, swa_pages=6), id="swa only"),
        pytest.param(replace(UNSHARED, full_pages=12), id="no sharing"),
    ],
)
def test_retracted_request_is_restored_with_the_same_output(config):
    """Three prompts of 9 tokens are admitted, and grow to 21."""
    prompts = [OTHER[:9], LONG[:9], LONG[::-1][:9]]
    sides = Sides(replace(config, reserved_decode_tokens=0))
    for prompt in prompts:
        sides.submit(prompt, max_new_tokens=12)

    sides.run()

    retracted, swapped_out = sides.logs["decode"].of(Retracted), sides.logs["decode"].of(SetAside)
    assert [event.request_id for event in swapped_out] == [event.request_id for event in retracted] != []
    assert sum(received.num_retractions for received in sides.received["decode"].values()) == len(retracted)
    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(*prompts, max_new_tokens=12), True)


@ALL_POOLS
@pytest.mark.parametrize("num_steps", [4, 6, 9])
def test_swapped_out_request_is_restored_without_recomputation(config, num_steps):
    sides = Sides(config)
    sides.submit(LONG, max_new_tokens=12)
    sides.steps(num_steps)
    sides.decode.pause()
    sides.decode.flush()
    pages_free = free_pages(sides.decode.memory)

    sides.decode.resume()
    sides.run()

    starts = [start for launched in sides.logs["decode"].of(Launched) for _, start, _ in launched.entries]
    assert pages_free == {pool.name: pool.num_pages for pool in config.pools}
    assert starts == list(range(37, 48))
    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(LONG, max_new_tokens=12), True)


# --- requests that end early


@pytest.mark.parametrize(
    ("changes", "max_new_tokens", "reason"),
    [
        pytest.param({"full_pages": 9}, 4, "the prompt needs 10 full pages of 9", id="the prompt"),
        pytest.param({}, 28, "65 tokens are more than max_context_len 64", id="the answer"),
    ],
)
def test_request_that_never_fits_is_rejected_on_both_sides(changes, max_new_tokens, reason):
    """The request would fit on the prefill side, which computes only one output token."""
    sides = Sides(HYBRID, decode_config=replace(HYBRID, **changes))
    sides.submit(LONG, max_new_tokens=max_new_tokens)

    sides.run()

    assert sides.reasons()["decode"] == f"rejected: {reason}"
    assert str(sides.reasons()["prefill"]).startswith("ended by the decode side: ")
    assert (sides.logs["prefill"].of(Launched), sides.flush_frees_all()) == ([], True)


def test_request_that_outgrows_the_pool_alone_ends_out_of_memory():
    sides = Sides(HYBRID, decode_config=replace(HYBRID, full_pages=10))
    sides.submit(LONG, max_new_tokens=12)

    sides.run()

    assert str(sides.reasons()["decode"]).startswith("out of memory: ")
    assert (sides.reasons()["prefill"], sides.flush_frees_all()) == ("length", True)
    assert sides.outputs() == [sides.expected(LONG, max_new_tokens=12)[0][:4]]


# --- peer timeout


def test_request_ends_on_both_sides_when_the_peer_times_out():
    sides = Sides()
    sides.cut()
    sides.submit(LONG)
    sides.steps(1)
    sides.clock.advance(TIMEOUT_MS - 1)
    sides.steps(1)
    before = sides.reasons()

    sides.clock.advance(1)
    sides.steps(1)

    assert (before, sides.reasons()) == (dict.fromkeys(SIDES), TIMED_OUT)
    assert (sides.has_work, sides.flush_frees_all()) == (False, True)


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_peer_timeout_during_a_transfer_frees_every_page(num_steps):
    """The prompt takes three steps, then the prefill side holds its record."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode")
    for _ in range(num_steps):
        sides.step("prefill")
        sides.cut()

    sides.run(ms_per_step=1000)

    assert sides.reasons() == {"prefill": "length", "decode": TIMED_OUT["decode"]}
    assert sides.flush_frees_all()


# --- aborts, in each state of a request


def reserved_only(sides: Sides) -> None:
    sides.submit(LONG)
    sides.step("decode")


def while_pages_arrive(sides: Sides) -> None:
    sides.submit(LONG)
    sides.steps(2)


def complete_and_paused(sides: Sides) -> None:
    while_pages_arrive(sides)
    sides.decode.pause()
    sides.steps(3)
    sides.decode.resume()


def running(sides: Sides) -> None:
    sides.submit(LONG, max_new_tokens=12)
    sides.steps(6)


def swapped_out(sides: Sides) -> None:
    running(sides)
    sides.decode.pause()
    sides.decode.resume()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stage", [reserved_only, while_pages_arrive])
def test_request_aborted_during_its_transfer_ends_on_both_sides(stage: Stage, side):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.reasons(), sides.outputs(), sides.flush_frees_all()) == ({**ABORTED_THERE, side: "abort"}, [[]], True)
    assert [event.request_id for event in sides.logs["decode"].of(LetGo)] == [1]


@pytest.mark.parametrize("side", SIDES)
def test_request_aborted_while_it_waits_for_pages_ends_on_both_sides(side):
    sides = Sides()
    pages = hold(sides.decode.memory, "full", leaving=9)
    sides.submit(LONG)
    sides.steps(2)

    sides.engines[side].abort(1)
    sides.run()
    release_held(sides.decode.memory, "full", pages)

    assert (sides.reasons(), reserved(sides), sides.flush_frees_all()) == ({**ABORTED_THERE, side: "abort"}, [], True)


@pytest.mark.parametrize(("side", "reason"), [("prefill", "length"), ("decode", "abort")])
@pytest.mark.parametrize("stage", [complete_and_paused, running, swapped_out])
def test_abort_after_the_transfer_ends_only_the_decode_side(stage: Stage, side, reason):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.reasons(), sides.flush_frees_all()) == ({"prefill": "length", "decode": reason}, True)
