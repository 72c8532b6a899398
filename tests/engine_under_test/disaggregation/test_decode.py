"""The decode side: it makes room in turn, takes in what comes, and goes on when everything is there."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from engine_under_test.events import Launched, LetGo, Reserved, Retracted, SetAside, TakenOver
from engine_under_test.messages import Ask, Finale, Over, Parcel
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, UNSHARED, free_pages, hold, let_go
from tests.engine_under_test.disaggregation.sides import ALL_POOLS, LONG, OTHER, SHORT, SIDES, Sides
from tests.engine_under_test.disaggregation.test_prefill import ABORTED_THERE, Stage

TIMEOUT_MS = HYBRID.link_timeout_ms
SILENT = {
    "prefill": f"the decode side has not been heard of for {TIMEOUT_MS} ms",
    "decode": f"the prefill side has not been heard of for {TIMEOUT_MS} ms",
}


def reserved(sides: Sides) -> list[int]:
    """For whom room was made, in order."""
    return [event.request_id for event in sides.heard["decode"].of(Reserved)]


def served(sides: Sides, prompt: Sequence[int]) -> list[int]:
    """The output of a prompt that is served alone."""
    room = sides.submit(prompt)
    sides.run()
    return sides.received["decode"][room].tokens


# --- room


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
def test_of_windowed_pages_those_of_the_tail_alone_are_taken(config, pages):
    """37 tokens, of which the window reads 5: they begin on the page [32, 36), or with a window of 14 at 24."""
    sides = Sides(config)
    sides.submit(LONG)

    sides.step("decode")

    assert sides.heard["decode"].of(Reserved) == [Reserved(1, 0, 37, tuple(pages.items()))]
    taken = {pool.name: pool.num_pages - free_pages(sides.decode.memory)[pool.name] for pool in config.pools}
    assert taken == pages


def test_no_windowed_page_is_needed_below_the_frontier():
    """n = 1000, W = 127, P = 64: the frontier is 832 then."""
    config = replace(
        HYBRID, page_size=64, sliding_window=128, full_pages=20, swa_pages=4, max_context_len=1024, chunk_len=512
    )
    sides = Sides(config)
    sides.submit(list(range(1000)))

    sides.step("decode")

    [record] = sides.decode.scheduler.custody.other_side.records
    assert (record.frontier, free_pages(sides.decode.memory)) == (832, {"full": 4, "swa": 1})


def test_room_is_made_first_come_first_served():
    sides = Sides(HYBRID, decode_config=replace(HYBRID, max_running_requests=1))
    for prompt in (OTHER, LONG, SHORT):
        sides.submit(prompt)

    sides.run()

    assert (reserved(sides), sides.outputs()) == ([1, 2, 3], sides.expected(OTHER, LONG, SHORT))


def test_nobody_overtakes_who_waits_for_room_however_long_that_takes():
    sides = Sides()
    pages = hold(sides.decode.memory, "full", leaving=6)
    sides.submit(LONG)
    sides.submit(SHORT)
    sides.steps(60, ms_per_step=TIMEOUT_MS // 50)
    before = reserved(sides)

    let_go(sides.decode.memory, "full", pages)
    sides.run()

    assert (before, reserved(sides), sides.emptied()) == ([], [1, 2], True)


def test_beside_others_each_keeps_what_it_may_grow_by():
    """20 tokens each: 5 pages, and 4 more for each of two; the pool has 16 pages, then 18."""
    sides = Sides(replace(HYBRID, full_pages=18), decode_config=HYBRID)
    roomier = Sides(replace(HYBRID, full_pages=18))
    for one in (sides, roomier):
        one.submit(LONG[:20])
        one.submit(LONG[::-1][:20])
        one.step("decode")

    assert (reserved(sides), reserved(roomier)) == ([1], [1, 2])


@pytest.mark.parametrize("skip", [0, 1])
def test_where_a_pool_refuses_in_spite_of_its_pages_room_is_made_later(skip):
    sides = Sides()
    longer = LONG + served(sides, LONG) + OTHER
    sides.submit(longer)
    sides.faults.arm("pool.refuses", skip=skip)

    sides.step("decode")
    refused = reserved(sides)
    sides.run()

    assert (refused, reserved(sides)) == ([1], [1, 2])
    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG, longer), True)


def test_the_window_of_a_prefix_that_is_here_needs_no_room_where_a_later_one_is_read():
    """Three pages end what is cached, and three the prompt: of five these alone are needed at once."""
    sides = Sides(replace(HYBRID, sliding_window=10, swa_pages=5))
    longer = [*LONG, *served(sides, LONG), *range(18)]
    before = free_pages(sides.decode.memory)["swa"]

    output = served(sides, longer)

    assert (before, [output], reserved(sides)) == (2, sides.expected(longer), [1, 2])


def test_what_came_without_a_window_before_its_last_page_is_not_kept():
    """[0, 36) could be found again if [31, 36) were here, and [32, 37) is."""
    sides = Sides()
    sides.submit(LONG, max_new_tokens=1)

    sides.run()

    assert free_pages(sides.decode.memory) == {"full": 16, "swa": 12}


# --- what comes


def test_nobody_goes_on_before_everything_is_there():
    sides = Sides()
    sides.taps["prefill"].losing.append(Parcel)
    sides.submit(LONG)

    sides.steps(6)

    assert (sides.heard["decode"].of(TakenOver), sides.heard["decode"].of(Launched)) == ([], [])
    assert [type(message) for message in sides.taps["prefill"].sent].count(Finale) == 1


@pytest.mark.parametrize("num_steps", [2, 3, 4], ids=["while more comes", "with the last", "while it runs"])
def test_what_comes_again_changes_nothing(num_steps):
    """Though it is not the same this time: what has come stays as it is."""
    sides = Sides()
    sides.submit(LONG)
    sides.steps(num_steps)
    for parcel in [message for message in sides.taps["prefill"].sent if isinstance(message, Parcel)]:
        sides.taps["prefill"].send(parcel._replace(pages=torch.zeros_like(parcel.pages)))

    sides.run()

    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG), True)


@pytest.mark.parametrize(
    ("message", "answers"),
    [
        pytest.param(Ask(1, "whatever"), [Over(1)], id="a room that has been left"),
        pytest.param(Finale(1, (4,)), [Over(1)], id="an end of a room that has been left"),
        pytest.param(Ask(2, "whatever"), [], id="a room that was not entered yet"),
    ],
)
def test_of_a_room_that_has_been_left_the_other_side_hears_that_it_is_over(message, answers):
    sides = Sides()
    served(sides, LONG)
    sides.taps["decode"].sent.clear()

    sides.taps["prefill"].send(message)
    sides.step("decode")

    assert (sides.taps["decode"].sent, sides.decode.has_work) == (answers, False)


# --- who gives its pages back


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
def test_who_is_retracted_comes_back_and_says_the_same(config):
    """Three prompts of 9 tokens are let in, and grow to 21."""
    prompts = [OTHER[:9], LONG[:9], LONG[::-1][:9]]
    sides = Sides(replace(config, reserved_decode_tokens=0))
    for prompt in prompts:
        sides.submit(prompt, max_new_tokens=12)

    sides.run()

    retracted, aside = sides.heard["decode"].of(Retracted), sides.heard["decode"].of(SetAside)
    assert [event.request_id for event in aside] == [event.request_id for event in retracted] != []
    assert sum(received.num_retractions for received in sides.received["decode"].values()) == len(retracted)
    assert (sides.outputs(), sides.emptied()) == (sides.expected(*prompts, max_new_tokens=12), True)


@ALL_POOLS
@pytest.mark.parametrize("num_steps", [4, 6, 9])
def test_who_is_set_aside_comes_back_and_nothing_of_it_is_computed_again(config, num_steps):
    sides = Sides(config)
    sides.submit(LONG, max_new_tokens=12)
    sides.steps(num_steps)
    sides.decode.pause()
    sides.decode.flush()
    pages_free = free_pages(sides.decode.memory)

    sides.decode.resume()
    sides.run()

    starts = [start for launched in sides.heard["decode"].of(Launched) for _, start, _ in launched.entries]
    assert pages_free == {pool.name: pool.num_pages for pool in config.pools}
    assert starts == list(range(37, 48))
    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG, max_new_tokens=12), True)


def test_who_is_set_aside_has_room_before_those_who_come():
    sides = Sides(HYBRID, decode_config=replace(HYBRID, max_running_requests=1))
    sides.submit(LONG, max_new_tokens=12)
    sides.submit(OTHER)
    sides.steps(5)
    sides.decode.pause()

    sides.decode.resume()
    sides.run()

    assert reserved(sides) == [1, 1, 2]
    assert sides.heard["decode"].of(SetAside) == [SetAside(1, len(LONG) + 2)]


# --- requests that end early


@pytest.mark.parametrize(
    ("changes", "max_new_tokens", "reason"),
    [
        pytest.param({"full_pages": 9}, 4, "the prompt needs 10 full pages of 9", id="the prompt"),
        pytest.param({}, 28, "65 tokens are more than max_context_len 64", id="the answer"),
    ],
)
def test_what_can_never_fit_is_rejected_and_ends_on_the_other_side(changes, max_new_tokens, reason):
    """The prefill side has room for it, since it computes one token of the answer."""
    sides = Sides(HYBRID, decode_config=replace(HYBRID, **changes))
    sides.submit(LONG, max_new_tokens=max_new_tokens)

    sides.run()

    assert sides.reasons()["decode"] == f"rejected: {reason}"
    assert str(sides.reasons()["prefill"]).startswith("the decode side has ended it")
    assert (sides.heard["prefill"].of(Launched), sides.emptied()) == ([], True)


def test_who_grows_beyond_an_otherwise_empty_pool_ends_with_the_reason():
    sides = Sides(HYBRID, decode_config=replace(HYBRID, full_pages=10))
    sides.submit(LONG, max_new_tokens=12)

    sides.run()

    reason = "out of memory: the pools are too small for one more token"
    assert (sides.reasons(), sides.emptied()) == ({"prefill": "length", "decode": reason}, True)
    assert sides.outputs() == [sides.expected(LONG, max_new_tokens=12)[0][:4]]


# --- silence


def test_who_hears_nothing_of_the_other_side_gives_up_in_time():
    sides = Sides()
    sides.cut()
    sides.submit(LONG)
    sides.steps(1)
    sides.clock.advance(TIMEOUT_MS - 1)
    sides.steps(1)
    before = sides.reasons()

    sides.clock.advance(1)
    sides.steps(1)

    assert (before, sides.reasons()) == (dict.fromkeys(SIDES), SILENT)
    assert (sides.has_work, sides.emptied()) == (False, True)


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_silence_during_a_transfer_leaves_nothing_behind(num_steps):
    """The prompt takes three steps; its record is held when it has been sent into the dark."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode")
    for _ in range(num_steps):
        sides.step("prefill")
        sides.cut()

    sides.run(ms_per_step=1000)

    assert sides.reasons() == {"prefill": "length", "decode": SILENT["decode"]}
    assert sides.emptied()


def test_who_speaks_of_a_request_now_and_then_is_waited_for():
    """Each step takes longer than a third of the time after which a request is given up."""
    sides = Sides(replace(HYBRID, chunk_len=4))
    sides.submit(LONG)

    sides.run(ms_per_step=TIMEOUT_MS // 3 + 1)

    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG), True)


# --- aborts, in each place where a request can be here


def in_its_room(sides: Sides) -> None:
    sides.submit(LONG)
    sides.step("decode")


def while_it_comes(sides: Sides) -> None:
    sides.submit(LONG)
    sides.steps(2)


def whole_and_paused(sides: Sides) -> None:
    while_it_comes(sides)
    sides.decode.pause()
    sides.steps(3)
    sides.decode.resume()


def running(sides: Sides) -> None:
    sides.submit(LONG, max_new_tokens=12)
    sides.steps(6)


def set_aside(sides: Sides) -> None:
    running(sides)
    sides.decode.pause()
    sides.decode.resume()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stage", [in_its_room, while_it_comes])
def test_an_abort_before_everything_is_there_ends_it_on_both_sides(stage: Stage, side):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.reasons(), sides.outputs(), sides.emptied()) == ({**ABORTED_THERE, side: "abort"}, [[]], True)
    assert [event.request_id for event in sides.heard["decode"].of(LetGo)] == [1]


@pytest.mark.parametrize("side", SIDES)
def test_an_abort_of_who_waits_for_room_ends_it_on_both_sides(side):
    sides = Sides()
    pages = hold(sides.decode.memory, "full", leaving=9)
    sides.submit(LONG)
    sides.steps(2)

    sides.engines[side].abort(1)
    sides.run()
    let_go(sides.decode.memory, "full", pages)

    assert (sides.reasons(), reserved(sides), sides.emptied()) == ({**ABORTED_THERE, side: "abort"}, [], True)


@pytest.mark.parametrize(("side", "reason"), [("prefill", "length"), ("decode", "abort")])
@pytest.mark.parametrize("stage", [whole_and_paused, running, set_aside])
def test_an_abort_of_an_answer_ends_it_and_comes_too_late_on_the_other_side(stage: Stage, side, reason):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.reasons(), sides.emptied()) == ({"prefill": "length", "decode": reason}, True)
