"""The prefill side: it computes who is invited, sends what it computed, and holds it until the other side has it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine_under_test.events import HandedOver, Invited, Launched, LetGo, Refused, Sent
from engine_under_test.messages import Alive, Ask, Finale, Got, Invite, Over, Parcel
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, free_pages, hold, let_go
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides

RETRY_MS = HYBRID.link_retry_ms
ABORTED_THERE = {"prefill": "the decode side has ended it: abort", "decode": "the prefill side has ended it: abort"}
Stage = Callable[[Sides], None]


def invited(sides: Sides, prompt=LONG, *, max_new_tokens: int = 4) -> None:
    """A request for which the decode side has room, and of which the prefill side has not heard that yet."""
    sides.submit(prompt, max_new_tokens=max_new_tokens)
    sides.step("decode")


def held(sides: Sides, prompt=LONG) -> None:
    """A request whose prompt, of three chunks at most, has been computed and sent."""
    invited(sides, prompt)
    for _ in range(3):
        sides.step("prefill")


def parcels(sides: Sides, room: int = 1) -> list[tuple[str, int, int]]:
    """Pool, first page index and number of pages of each parcel that was sent."""
    sent = [one for one in sides.taps["prefill"].sent if isinstance(one, Parcel) and one.room == room]
    return [(one.pool, one.first, one.num_pages) for one in sent]


def rows_held(sides: Sides) -> int:
    rows = sides.prefill.memory.table.rows
    return rows.capacity - rows.num_free


# --- invitations


def test_nothing_is_computed_before_there_is_room_on_the_other_side():
    sides = Sides()
    sides.submit(LONG)

    for _ in range(5):
        sides.step("prefill")

    assert (sides.heard["prefill"].of(Launched), rows_held(sides), sides.prefill.has_work) == ([], 0, True)


def test_who_is_invited_is_computed():
    sides = Sides()
    invited(sides)

    sides.step("prefill")

    assert sides.heard["prefill"].of(Invited) == [Invited(1, 0)]
    assert [launched.entries for launched in sides.heard["prefill"].of(Launched)] == [((1, 0, 16),)]


def test_a_second_invitation_is_answered_and_changes_nothing():
    sides = Sides()
    invited(sides)
    [invite] = [message for message in sides.taps["decode"].sent if isinstance(message, Invite)]
    sides.step("prefill")

    sides.taps["decode"].send(invite)
    sides.step("prefill")

    assert (sides.taps["prefill"].sent.count(Alive(1)), sides.heard["prefill"].of(Invited)) == (2, [Invited(1, 0)])


@pytest.mark.parametrize(
    ("room", "kinds"), [pytest.param(1, ["Over"], id="left"), pytest.param(2, [], id="not entered yet")]
)
def test_who_is_invited_to_a_room_that_has_been_left_says_so(room, kinds):
    sides = Sides()
    sides.submit(LONG)
    sides.run()
    sides.taps["prefill"].sent.clear()

    sides.taps["decode"].send(Invite(room, 0, "whatever"))
    sides.step("prefill")

    assert (sides.taps["prefill"].kinds(room), sides.prefill.has_work) == (kinds, False)


# --- what is sent


@pytest.mark.parametrize(
    ("config", "prompt", "sent"),
    [
        pytest.param(
            HYBRID,
            LONG,
            [[("full", 0, 4)], [("full", 4, 4)], [("full", 8, 1), ("full", 9, 1), ("swa", 8, 2)]],
            id="hybrid",
        ),
        pytest.param(
            HYBRID,
            LONG[:36],
            [[("full", 0, 4)], [("full", 4, 4)], [("full", 8, 1), ("swa", 7, 2)]],
            id="hybrid, whole pages",
        ),
        pytest.param(FULL_ONLY, LONG[:36], [[("full", 0, 4)], [("full", 4, 4)], [("full", 8, 1)]], id="full only"),
        pytest.param(SWA_ONLY, LONG, [[], [], [("swa", 8, 2)]], id="swa only"),
    ],
)
def test_whole_pages_go_out_as_they_are_computed_and_a_window_at_the_end(config, prompt, sent):
    sides = Sides(config)
    invited(sides, prompt)
    after_each_step = []

    for _ in range(3):
        before = len(parcels(sides))
        sides.step("prefill")
        after_each_step.append(parcels(sides)[before:])

    assert after_each_step == sent


def test_the_end_of_a_prompt_is_told_behind_its_pages():
    sides = Sides()
    held(sides)
    [[first, *_]] = sides.expected(LONG)

    assert sides.taps["prefill"].kinds() == ["Ask", "Alive", *["Parcel"] * 5, "Finale"]
    assert sides.taps["prefill"].sent[-1] == Finale(1, (first,))


def test_what_is_sent_is_what_the_pages_hold():
    sides = Sides()
    held(sides)
    memory = sides.prefill.memory

    sent = sides.heard["prefill"].of(Sent)
    came = [message for message in sides.taps["prefill"].sent if isinstance(message, Parcel)]

    assert [(one.pool, one.first, len(one.pages)) for one in sent] == parcels(sides)
    for one, parcel in zip(sent, came, strict=True):
        assert parcel.pages.tolist() == memory.store.kv(one.pool)[list(one.pages)].tolist()


def test_what_is_computed_again_is_sent_again():
    sides = Sides()
    invited(sides)
    sides.step("prefill")
    sides.prefill.pause()
    sides.prefill.flush()
    sides.prefill.resume()

    sides.run()

    assert (parcels(sides).count(("full", 0, 4)), sides.outputs(), sides.emptied()) == (2, sides.expected(LONG), True)


# --- what is held


def test_the_record_is_held_until_the_other_side_has_it():
    sides = Sides()
    held(sides)
    at_first = rows_held(sides)
    sides.step("decode")
    before = rows_held(sides)

    sides.step("prefill")

    assert (at_first, before, rows_held(sides)) == (1, 1, 0)
    assert sides.heard["prefill"].of(HandedOver) == [HandedOver(1, 37)]
    assert sides.heard["prefill"].of(LetGo) == [LetGo(1, "handed over")]


def test_what_is_held_is_not_evicted():
    sides = Sides()
    held(sides)

    sides.prefill.flush()

    assert free_pages(sides.prefill.memory) == {"full": 16 - 10, "swa": 12 - 3}


def test_who_waits_is_admitted_when_what_is_held_is_let_go():
    """The pool of the prefill side has room for one of them."""
    sides = Sides(replace(HYBRID, full_pages=11), decode_config=replace(HYBRID, full_pages=32, swa_pages=24))
    prompts = [LONG, LONG[::-1], OTHER]
    for prompt in prompts:
        sides.submit(prompt)

    sides.run()

    assert (sides.outputs(), sides.emptied()) == (sides.expected(*prompts), True)


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        pytest.param(Invite, "decode", id="Invite"),
        pytest.param(Parcel, "prefill", id="Parcel"),
        pytest.param(Finale, "prefill", id="Finale"),
        pytest.param(Over, "decode", id="Over"),
    ],
)
def test_what_is_lost_is_said_again_as_soon_as_it_is_due(kind, side):
    sides = Sides()
    sides.taps[side].losing.append(kind)
    sides.submit(LONG)
    sides.steps(20)
    sides.clock.advance(RETRY_MS - 1)
    sides.steps(5)
    waits = sides.has_work

    sides.clock.advance(1)
    sides.run()

    assert (waits, sides.outputs(), sides.emptied()) == (True, sides.expected(LONG), True)


def test_only_what_has_not_arrived_is_sent_again():
    sides = Sides()
    held(sides)
    sides.taps["decode"].receive()
    for pool, first, count in parcels(sides)[1:]:
        sides.taps["decode"].send(Got(1, pool, first, count))
    sides.taps["prefill"].sent.clear()

    sides.step("prefill")
    sides.clock.advance(RETRY_MS)
    sides.step("prefill")

    assert (sides.taps["prefill"].kinds(), parcels(sides)) == (["Parcel", "Finale"], [("full", 0, 4)])


# --- requests that end early


def test_what_can_never_fit_is_rejected_and_the_other_side_ends_it_with_the_reason():
    sides = Sides(replace(HYBRID, full_pages=9), decode_config=HYBRID)
    sides.submit(LONG)

    sides.run()

    reason = "rejected: the prompt needs 10 full pages of 9"
    assert sides.reasons() == {"prefill": reason, "decode": f"the prefill side has ended it: {reason}"}
    assert (sides.heard["decode"].of(Launched), sides.emptied()) == ([], True)


def test_a_prompt_for_which_not_one_page_can_be_had_ends_on_both_sides():
    sides = Sides()
    pages = hold(sides.prefill.memory, "full", leaving=3)
    sides.submit(LONG)

    sides.run()
    let_go(sides.prefill.memory, "full", pages)

    reason = "out of memory: not one page can be had for the rest of the prompt"
    assert sides.reasons() == {"prefill": reason, "decode": f"the prefill side has ended it: {reason}"}
    assert sides.emptied()


@pytest.mark.parametrize("side", SIDES)
def test_who_is_not_invited_in_time_times_out_on_both_sides(side):
    configs = {**dict.fromkeys(SIDES, HYBRID), side: replace(HYBRID, request_timeout_ms=1000)}
    sides = Sides(configs["prefill"], decode_config=configs["decode"])
    pages = hold(sides.decode.memory, "full", leaving=2)
    sides.submit(LONG)

    sides.run(ms_per_step=100)
    let_go(sides.decode.memory, "full", pages)

    ended_there = {one: reason.replace("abort", "timeout") for one, reason in ABORTED_THERE.items()}
    assert sides.reasons() == {**ended_there, side: "timeout"}
    assert sides.emptied()


# --- aborts, in each place where a request can be here


def in_the_queue_for_a_batch(sides: Sides) -> None:
    invited(sides)
    sides.prefill.pause()
    sides.step("prefill")
    sides.prefill.resume()


def between_two_chunks(sides: Sides) -> None:
    invited(sides)
    sides.step("prefill")


def in_a_pass(sides: Sides) -> None:
    invited(sides)
    sides.faults.arm("forward.late")
    sides.step("prefill")


def not_invited(sides: Sides) -> None:
    sides.submit(LONG)


BEFORE_ITS_END = [not_invited, invited, in_the_queue_for_a_batch, between_two_chunks, in_a_pass]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stage", BEFORE_ITS_END)
def test_an_abort_on_either_side_ends_a_prompt_on_both(stage: Stage, side):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert sides.reasons() == {**ABORTED_THERE, side: "abort"}
    assert sides.emptied()


def test_an_abort_on_the_decode_side_lets_go_of_what_is_held():
    sides = Sides()
    held(sides)

    sides.decode.abort(1)
    sides.step("prefill")

    assert (sides.heard["prefill"].of(LetGo), sides.prefill.has_work) == ([LetGo(1, "abort")], False)
    sides.run()
    assert (sides.reasons(), sides.emptied()) == ({"prefill": "length", "decode": "abort"}, True)


def test_an_abort_on_the_prefill_side_comes_too_late_for_what_is_held():
    """The prompt is done, and its client has heard that."""
    sides = Sides()
    held(sides)

    sides.prefill.abort(1)
    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"], sides.emptied()) == (sides.expected(LONG), "length", True)


@pytest.mark.parametrize("side", SIDES)
def test_others_go_on_beside_an_abort(side):
    sides = Sides()
    between_two_chunks(sides)
    sides.submit(SHORT)
    sides.submit(OTHER)
    sides.steps(1)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.outputs()[1:], sides.emptied()) == (sides.expected(SHORT, OTHER), True)


def test_an_end_of_which_the_other_side_does_not_hear_is_told_when_it_invites():
    sides = Sides()
    sides.taps["prefill"].losing.append(Over)
    sides.submit(LONG)
    sides.prefill.abort(1)

    sides.run(ms_per_step=50)

    assert (sides.reasons()["prefill"], sides.taps["prefill"].losing) == ("abort", [])
    assert str(sides.reasons()["decode"]).startswith("the prefill side has ended it")
    assert sides.emptied()


def test_a_request_that_comes_late_to_this_side_is_served():
    """The decode side has invited it before it was here."""
    sides = Sides()
    sides.submit(LONG, to=["decode"])
    sides.steps(2)
    sides.submit_late(1, LONG, SamplingParams(4), to="prefill")

    sides.run(ms_per_step=50)

    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG), True)
    assert Ask.__name__ in sides.taps["prefill"].kinds()
    assert sides.heard["prefill"].of(Refused) == []
