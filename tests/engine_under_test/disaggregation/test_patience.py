"""How often a side says again what is not answered: soon what may be lost, seldom what is known to have come."""

from dataclasses import replace

import pytest

from engine_under_test.disaggregation import payload
from engine_under_test.events import LetGo
from engine_under_test.messages import Alive, Ask, Got, Parcel
from engine_under_test.ports import Computed
from fakes.forward import FakeForward
from tests.engine_under_test.builders import HYBRID, SWA_ONLY
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides

RETRY_MS, HALF_MS = HYBRID.link_retry_ms, HYBRID.link_timeout_ms // 2
ONE_ROW = replace(HYBRID, max_running_requests=1)


def after(sides: Sides, ms: int, *who: str) -> list[str]:
    """What the prefill side says of room 2 when so much time has passed."""
    said = sides.taps["prefill"].sent
    said.clear()
    sides.clock.advance(ms)
    sides.step(*(who or SIDES))
    return sides.taps["prefill"].kinds(2)


def in_a_queue() -> Sides:
    """The prefill side has been told that its second request is known on the other side, which has a row for one."""
    sides = Sides(decode_config=ONE_ROW)
    sides.submit(LONG, max_new_tokens=20)
    sides.submit(SHORT)
    sides.steps(2, ms_per_step=1)
    return sides


def in_flight(*, pages_of_a_parcel: int, monkeypatch) -> Sides:
    """A prompt that has been computed and sent in parcels of so many pages, of a token a slot; none has been read."""
    sides = Sides()
    kv = sides.prefill.memory.store.kv("full")
    monkeypatch.setattr(payload, "MOST_BYTES", pages_of_a_parcel * kv[0].nbytes)
    sides.submit(LONG)
    sides.step("decode")
    for _ in range(3):
        sides.step("prefill")
    return sides


def test_what_a_pass_takes_is_not_the_silence_of_the_other_side(monkeypatch):
    sides = Sides()
    collect = FakeForward.collect

    def slowly(forward: FakeForward, launch: int) -> list[Computed]:
        sides.clock.advance(HYBRID.link_timeout_ms)
        return collect(forward, launch)

    monkeypatch.setattr(FakeForward, "collect", slowly)
    sides.submit(LONG[:16])

    sides.step("decode", "prefill", "prefill", "decode", "prefill")

    assert sides.heard["prefill"].of(LetGo) == [LetGo(1, "handed over")]


@pytest.mark.parametrize("config", [HYBRID, SWA_ONLY], ids=["hybrid", "swa only"])
def test_who_is_invited_does_not_fall_silent_during_the_pass_of_another(config, monkeypatch):
    sides = Sides(config)
    collect = FakeForward.collect

    def slowly(forward: FakeForward, launch: int) -> list[Computed]:
        sides.clock.advance(HYBRID.link_timeout_ms + 1000)
        return collect(forward, launch)

    monkeypatch.setattr(FakeForward, "collect", slowly)
    for prompt in (LONG, SHORT, OTHER):
        sides.submit(prompt)

    sides.run()

    assert sides.outputs() == sides.expected(LONG, SHORT, OTHER)


def test_who_is_invited_does_not_fall_silent_while_nobody_steps():
    sides = Sides()
    sides.submit(LONG)
    sides.submit(SHORT)
    sides.steps(1)

    sides.clock.advance(HYBRID.link_timeout_ms + 1000)
    sides.run()

    assert sides.outputs() == sides.expected(LONG, SHORT)


def test_who_lacks_what_the_other_side_takes_for_delivered_waits_no_longer_than_the_time_out():
    """As where this engine replaced one that had it; the other side says for ever that nothing more will come."""
    sides = Sides()
    sides.submit(LONG)
    sides.taps["prefill"].losing += [Parcel] * 5
    sides.step("decode", *["prefill"] * 3)
    for parcel in [message for message in sides.taps["prefill"].sent if isinstance(message, Parcel)]:
        sides.taps["decode"].send(Got(1, parcel.pool, parcel.first, parcel.num_pages))
    sides.step("prefill")

    for _ in range(2 * HYBRID.link_timeout_ms // RETRY_MS):
        sides.steps(1, ms_per_step=RETRY_MS)

    assert sides.reasons()["decode"] == f"what is missing of it has not come for {HYBRID.link_timeout_ms} ms"
    assert sides.emptied()


def test_an_engine_that_begins_anew_has_as_long_as_the_first():
    """What the first said at its end does not count any more: the new one lives, and has not come to it yet."""
    sides = Sides()
    sides.submit(LONG)
    tap = sides.taps["prefill"]
    tap.losing += [Parcel] * 5
    sides.step("decode", *["prefill"] * 3, "decode")

    tap.send(tap.sent[0])
    for _ in range(2 * HYBRID.link_timeout_ms // RETRY_MS):
        tap.send(Alive(1))
        sides.clock.advance(RETRY_MS)
        sides.step("decode")

    assert isinstance(tap.sent[0], Ask)
    assert sides.reasons()["decode"] is None


def test_who_is_not_answered_asks_again_when_it_is_due():
    sides = Sides()
    sides.submit(LONG)

    for _ in range(4):
        sides.clock.advance(RETRY_MS // 2)
        sides.step("prefill")

    assert sides.taps["prefill"].kinds() == ["Ask"] * 3


def test_who_is_known_there_asks_again_half_way_to_the_time_out():
    sides = in_a_queue()

    assert (after(sides, RETRY_MS), after(sides, HALF_MS - 2 * RETRY_MS)) == ([], [])
    assert (after(sides, RETRY_MS), after(sides, 1), after(sides, HALF_MS - RETRY_MS)) == (["Ask"], [], [])


def test_who_was_known_and_is_not_answered_any_more_asks_as_often_as_a_newcomer():
    sides = in_a_queue()
    after(sides, HALF_MS, "prefill")

    assert [after(sides, RETRY_MS, "prefill") for _ in range(3)] == [["Ask"]] * 3


def test_no_pages_are_sent_again_while_they_wait_for_a_slow_reader(monkeypatch):
    sides = in_flight(pages_of_a_parcel=100, monkeypatch=monkeypatch)
    tap = sides.taps["prefill"]
    tap.sent.clear()

    for _ in range(3):
        sides.clock.advance(RETRY_MS)
        sides.step("prefill")
    while_they_wait = tap.kinds()
    sides.taps["decode"].receive()  # and lost there
    sides.clock.advance(RETRY_MS)
    sides.step("prefill")

    assert {*while_they_wait} == {"Finale"}
    assert tap.kinds()[len(while_they_wait) :] == ["Parcel"] * 5 + ["Finale"]


def test_whoever_comes_keeps_nobody_from_asking_again():
    """Something is said in every step, and many wait for one row."""
    sides = Sides(decode_config=ONE_ROW)
    for _ in range(15):
        sides.submit(SHORT, max_new_tokens=20)
        sides.steps(1, ms_per_step=HALF_MS // 8)

    sides.run(ms_per_step=HALF_MS // 8)

    assert {sides.reasons(room)["decode"] for room in range(1, 16)} == {"length"}


def test_many_pages_go_in_several_parcels_and_only_those_that_are_missing_again(monkeypatch):
    sides = in_flight(pages_of_a_parcel=3, monkeypatch=monkeypatch)
    sent = [one for one in sides.taps["prefill"].sent if isinstance(one, Parcel) and one.pool == "full"]
    sides.taps["decode"].receive()  # and lost there, all but one
    sides.taps["prefill"].send(sent[0])
    sides.step("decode", "prefill")
    sides.taps["prefill"].sent.clear()

    sides.clock.advance(RETRY_MS)
    sides.step("prefill")
    again = [one for one in sides.taps["prefill"].sent if isinstance(one, Parcel) and one.pool == "full"]
    sides.run()

    assert [(one.first, one.num_pages) for one in sent] == [(0, 3), (3, 1), (4, 3), (7, 1), (8, 1), (9, 1)]
    assert [(one.first, one.num_pages) for one in again] == [(one.first, one.num_pages) for one in sent[1:]]
    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG), True)


# --- who was busy itself


def test_a_long_pass_is_not_the_silence_of_who_was_not_asked():
    """The last that came was an answer, and a pass began just before it was time to ask again."""
    sides = in_a_queue()
    after(sides, HALF_MS - RETRY_MS)
    sides.clock.advance(HALF_MS + 2 * RETRY_MS)

    sides.steps(2, ms_per_step=1)

    assert sides.reasons(2) == dict.fromkeys(SIDES)


def test_nobody_waits_for_room_longer_than_twice_the_time_out():
    """All that the prefill side says of the end is lost, too; the decode side has no room, and asks nothing."""
    sides = in_a_queue()
    sides.decode.pause()
    sides.cut()

    ended_after = dict.fromkeys(SIDES, 0)
    while None in sides.reasons(2).values():
        sides.clock.advance(HALF_MS // 5)
        sides.steps(1)
        for side, reason in sides.reasons(2).items():
            ended_after[side] += reason is None
    sides.decode.resume()
    sides.run()

    assert ended_after == {"prefill": 9, "decode": 19}  # fifths of half a time-out, and one more
    assert sides.emptied()
