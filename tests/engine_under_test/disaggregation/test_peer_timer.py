"""Retransmission intervals and the peer timeout."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.messages import KeepAlive, Message, PageAck, PageData, TransferEnd, TransferRequest
from swarden.engine_under_test.ports import Computed
from swarden.fakes.forward import FakeForward
from swarden.invariants.events import LetGo
from tests.engine_under_test.builders import HYBRID, SWA_ONLY
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides

RETRY_MS, HALF_MS = HYBRID.link_retry_ms, HYBRID.link_timeout_ms // 2
ONE_ROW = replace(HYBRID, max_running_requests=1)


def sent_after(sides: Sides, ms: int, *stepping: str) -> list[type[Message]]:
    """The messages of the prefill side about transfer 2 in a step after so much time."""
    sides.taps["prefill"].sent.clear()
    sides.clock.advance(ms)
    sides.step(*(stepping or SIDES))
    return sides.taps["prefill"].kinds(2)


def queued() -> Sides:
    """The decode side has one row, and has acknowledged a second request."""
    sides = Sides(decode_config=ONE_ROW)
    sides.submit(LONG, max_new_tokens=20)
    sides.submit(SHORT)
    sides.steps(2, ms_per_step=1)
    return sides


def in_flight(*, pages_per_message: int) -> Sides:
    """A prompt that has been computed and sent, in messages of so many pages; the decode side has received none."""
    page_bytes = Sides().prefill.memory.store.page_bytes("full")
    sides = Sides(replace(HYBRID, link_frame_bytes=pages_per_message * page_bytes))
    sides.submit(LONG)
    sides.step("decode")
    for _ in range(3):
        sides.step("prefill")
    return sides


def slow_down(sides: Sides, monkeypatch) -> None:
    """Let each pass take longer than the peer timeout."""
    collect = FakeForward.collect

    def slowly(forward: FakeForward, launch: int) -> list[Computed]:
        sides.clock.advance(HYBRID.link_timeout_ms + 1000)
        return collect(forward, launch)

    monkeypatch.setattr(FakeForward, "collect", slowly)


def test_time_of_a_forward_pass_does_not_expire_the_peer(monkeypatch):
    sides = Sides()
    slow_down(sides, monkeypatch)
    sides.submit(LONG[:16])

    sides.step("decode", "prefill", "prefill", "decode", "prefill")

    assert sides.logs["prefill"].of(LetGo) == [LetGo(1, "handed over")]


@pytest.mark.parametrize("config", [HYBRID, SWA_ONLY], ids=["hybrid", "swa only"])
def test_invited_request_does_not_time_out_during_the_pass_of_another(config, monkeypatch):
    sides = Sides(config)
    slow_down(sides, monkeypatch)
    for prompt in (LONG, SHORT, OTHER):
        sides.submit(prompt)

    sides.run()

    assert sides.outputs() == sides.expected(LONG, SHORT, OTHER)


def test_missing_pages_that_were_acknowledged_time_out():
    """The decode engine replaced one that had received them; the prefill side retransmits only the end."""
    sides = Sides()
    sides.submit(LONG)
    sides.taps["prefill"].dropping += [PageData] * 5
    sides.step("decode", *["prefill"] * 3)
    for message in sides.taps["prefill"].pages():
        sides.taps["decode"].send(PageAck(1, message.pool, message.first, message.num_pages))
    sides.step("prefill")

    for _ in range(2 * HYBRID.link_timeout_ms // RETRY_MS):
        sides.steps(1, ms_per_step=RETRY_MS)

    assert sides.reasons()["decode"] == f"no missing page from the prefill side for {HYBRID.link_timeout_ms} ms"
    assert sides.flush_frees_all()


def test_restarted_prefill_engine_has_the_whole_timeout():
    """The end that the first engine sent is discarded, so every message of the new one resets the timeout."""
    sides = Sides()
    sides.submit(LONG)
    tap = sides.taps["prefill"]
    tap.dropping += [PageData] * 5
    sides.step("decode", *["prefill"] * 3, "decode")

    tap.send(tap.sent[0])
    for _ in range(2 * HYBRID.link_timeout_ms // RETRY_MS):
        tap.send(KeepAlive(1))
        sides.clock.advance(RETRY_MS)
        sides.step("decode")

    assert sides.reasons()["decode"] is None


def test_unanswered_request_is_retransmitted_at_every_interval():
    sides = Sides()
    sides.submit(LONG)

    for _ in range(4):
        sides.clock.advance(RETRY_MS // 2)
        sides.step("prefill")

    assert sides.taps["prefill"].kinds() == [TransferRequest] * 3


def test_acknowledged_request_is_retransmitted_every_half_timeout():
    sides = queued()

    sent = [sent_after(sides, ms) for ms in [HALF_MS - RETRY_MS, RETRY_MS] * 2]

    assert sent == [[], [TransferRequest]] * 2


def test_unanswered_retransmission_goes_back_to_the_short_interval():
    sides = queued()
    sent_after(sides, HALF_MS, "prefill")

    assert [sent_after(sides, RETRY_MS, "prefill") for _ in range(3)] == [[TransferRequest]] * 3


def test_pages_are_not_retransmitted_while_the_send_buffer_is_full():
    sides = in_flight(pages_per_message=100)
    tap = sides.taps["prefill"]
    tap.sent.clear()

    for _ in range(3):
        sides.clock.advance(RETRY_MS)
        sides.step("prefill")
    while_full = tap.kinds()
    sides.taps["decode"].receive()  # and drop the pages
    sides.clock.advance(RETRY_MS)
    sides.step("prefill")

    assert {*while_full} == {TransferEnd}
    assert tap.kinds()[len(while_full) :] == [PageData] * 5 + [TransferEnd]


def test_queued_requests_do_not_time_out_while_new_ones_arrive():
    """Fifteen requests share one row, with messages in every step."""
    sides = Sides(decode_config=ONE_ROW)
    for _ in range(15):
        sides.submit(SHORT, max_new_tokens=20)
        sides.steps(1, ms_per_step=HALF_MS // 8)

    sides.run(ms_per_step=HALF_MS // 8)

    assert {sides.reasons(request)["decode"] for request in range(1, 16)} == {"length"}


def test_only_the_missing_messages_of_a_large_chunk_are_retransmitted():
    sides = in_flight(pages_per_message=3)
    sent = [page for page in sides.taps["prefill"].pages() if page.pool == "full"]
    sides.taps["decode"].receive()  # and drop the pages of all messages but one
    sides.taps["prefill"].send(sent[0])
    sides.step("decode", "prefill")
    sides.taps["prefill"].sent.clear()

    sides.clock.advance(RETRY_MS)
    sides.step("prefill")
    retransmitted = [page for page in sides.taps["prefill"].pages() if page.pool == "full"]
    sides.run()

    assert max(page.num_pages for page in sent) == 3
    spans = [(page.first, page.num_pages) for page in sent[1:]]
    assert [(page.first, page.num_pages) for page in retransmitted] == spans
    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(LONG), True)


# --- busy sides


@pytest.mark.parametrize("busy", SIDES)
def test_peer_in_a_long_pass_does_not_time_out(busy):
    """The link of the peer reports that its engine has answered nothing for three timeouts."""
    sides = queued()
    [other] = {*SIDES} - {busy}
    for _ in range(6):
        sides.clock.advance(HALF_MS)
        sides.taps[other].lag_ms += HALF_MS
        sides.step(other)

    sides.step(busy)
    sides.taps[other].lag_ms = RETRY_MS
    sides.run(ms_per_step=1)

    assert sides.outputs() == sides.expected(LONG, max_new_tokens=20) + sides.expected(SHORT)


def test_silent_peer_times_out_although_it_was_in_a_long_pass():
    """This side's link has found the peer silent, and reports no lag any more."""
    sides = Sides()
    sides.submit(LONG)
    sides.taps["decode"].lag_ms = 3 * HYBRID.link_timeout_ms
    sides.step("decode")
    sides.clock.advance(3 * HYBRID.link_timeout_ms)
    sides.step("decode")
    before = sides.reasons()["decode"]

    sides.taps["decode"].lag_ms = 0
    sides.step("decode")

    assert (before, sides.reasons()["decode"]) == (None, f"no message from the prefill side for {3 * 10_000} ms")


def test_peer_without_an_unanswered_message_does_not_time_out():
    """A long pass begins just before the next retransmission."""
    sides = queued()
    sent_after(sides, HALF_MS - RETRY_MS)
    sides.clock.advance(HALF_MS + 2 * RETRY_MS)

    sides.steps(2, ms_per_step=1)

    assert sides.reasons(2) == dict.fromkeys(SIDES)


def test_queued_request_times_out_after_twice_the_timeout():
    """The messages of the prefill side are dropped, its Close too, and the decode side has no free row."""
    sides = queued()
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

    assert ended_after == {"prefill": 9, "decode": 19}  # in fifths of half a timeout
    assert sides.flush_frees_all()
