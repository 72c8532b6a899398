"""The prefill side computes invited requests, sends their pages, and holds them until they are acknowledged."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import MAX_HEADER
from swarden.engine_under_test.disaggregation.payload import MOST_PAGES, pieces
from swarden.engine_under_test.messages import Close, Invitation, KeepAlive, PageAck, PageData, TransferEnd
from swarden.engine_under_test.pools.checksums import page_sums
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.invariants.events import HandedOver, Invited, Launched, LetGo, Sent
from tests.engine_under_test.builders import HYBRID, free_pages, hold, release_held
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides

RETRY_MS = HYBRID.link_retry_ms
ABORTED_THERE = {"prefill": "ended by the decode side: abort", "decode": "ended by the prefill side: abort"}
Stage = Callable[[Sides], None]


def invited(sides: Sides, prompt=LONG, *, max_new_tokens: int = 4) -> None:
    """A request with an invitation that the prefill side has not received yet."""
    sides.submit(prompt, max_new_tokens=max_new_tokens)
    sides.step("decode")


def held(sides: Sides, prompt=LONG) -> None:
    """A request whose prompt, of at most three chunks, has been computed and sent."""
    invited(sides, prompt)
    for _ in range(3):
        sides.step("prefill")


def page_ranges(sides: Sides) -> list[tuple[str, int, int]]:
    """Pool, first page index and number of pages of each message with page data."""
    return [(page.pool, page.first, page.num_pages) for page in sides.taps["prefill"].pages()]


def rows_held(sides: Sides) -> int:
    rows = sides.prefill.memory.table.rows
    return rows.capacity - rows.num_free


# --- invitations


def test_request_without_an_invitation_is_not_computed():
    sides = Sides()
    sides.submit(LONG)

    for _ in range(5):
        sides.step("prefill")

    assert (sides.logs["prefill"].of(Launched), rows_held(sides), sides.prefill.has_work) == ([], 0, True)


def test_duplicate_invitation_is_acknowledged_and_ignored():
    sides = Sides()
    invited(sides)
    [invitation] = [message for message in sides.taps["decode"].sent if isinstance(message, Invitation)]
    sides.step("prefill")

    sides.taps["decode"].send(invitation)
    sides.step("prefill")

    assert (sides.taps["prefill"].sent.count(KeepAlive(1)), sides.logs["prefill"].of(Invited)) == (2, [Invited(1, 0)])


@pytest.mark.parametrize(
    ("transfer_id", "kinds"), [pytest.param(1, [Close], id="closed"), pytest.param(2, [], id="not known yet")]
)
def test_invitation_of_a_closed_transfer_is_answered_with_close(transfer_id, kinds):
    sides = Sides()
    sides.submit(LONG)
    sides.run()
    sides.taps["prefill"].sent.clear()

    sides.taps["decode"].send(Invitation(transfer_id, 0, "whatever"))
    sides.step("prefill")

    assert (sides.taps["prefill"].kinds(transfer_id), sides.prefill.has_work) == (kinds, False)


# --- sent pages


def test_full_pages_are_sent_after_each_chunk_and_windowed_pages_at_the_end():
    sides = Sides()
    invited(sides)

    sides.step("prefill")
    after_one_chunk = page_ranges(sides)
    sides.step("prefill", "prefill")

    assert (after_one_chunk, page_ranges(sides)[-1]) == ([("full", 0, 4)], ("swa", 8, 2))


def test_transfer_end_follows_the_pages_with_the_first_token():
    sides = Sides()
    held(sides)
    [[first, *_]] = sides.expected(LONG)

    assert sides.taps["prefill"].sent[-1] == TransferEnd(1, (first,))


def test_page_data_equals_the_content_of_the_pages():
    sides = Sides()
    held(sides)
    memory = sides.prefill.memory

    sent = sides.logs["prefill"].of(Sent)

    assert [(page.pool, page.first, len(page.pages)) for page in sent] == page_ranges(sides)
    for sent_pages, message in zip(sent, sides.taps["prefill"].pages(), strict=True):
        assert message.pages.tolist() == memory.store.kv(sent_pages.pool)[list(sent_pages.pages)].tolist()


@pytest.mark.parametrize("is_on", [True, False])
def test_pages_carry_checksums_if_configured(is_on):
    sides = Sides(replace(HYBRID, checksum_transfers=is_on))
    held(sides)

    for message in sides.taps["prefill"].pages():
        assert message.checksums == (tuple(page_sums(message.pages, 0).tolist()) if is_on else ())


def test_message_has_at_most_the_pages_whose_checksums_fit_its_header():
    memory = KVMemory.for_config(EngineConfig(), None)

    parts = list(pieces(memory, "full", range(5, 5 + 2 * MOST_PAGES + 1), max_bytes=1 << 30))

    assert [len(part) for part in parts] == [MOST_PAGES, MOST_PAGES, 1]
    assert MOST_PAGES * len(f"{-(1 << 63)}, ") < MAX_HEADER // 2


def test_recomputed_pages_are_sent_again():
    sides = Sides()
    invited(sides)
    sides.step("prefill")
    sides.prefill.pause()
    sides.prefill.flush()
    sides.prefill.resume()

    sides.run()

    assert (page_ranges(sides).count(("full", 0, 4)), sides.outputs(), sides.flush_frees_all()) == (
        2,
        sides.expected(LONG),
        True,
    )


# --- held records


def test_record_is_held_until_the_decode_side_closes_the_transfer():
    sides = Sides()
    held(sides)
    at_first = rows_held(sides)
    sides.step("decode")
    before = rows_held(sides)

    sides.step("prefill")

    assert (at_first, before, rows_held(sides)) == (1, 1, 0)
    assert sides.logs["prefill"].of(HandedOver) == [HandedOver(1, 37)]
    assert sides.logs["prefill"].of(LetGo) == [LetGo(1, "handed over")]


def test_held_pages_are_not_evicted():
    sides = Sides()
    held(sides)

    sides.prefill.flush()

    assert free_pages(sides.prefill.memory) == {"full": 16 - 10, "swa": 12 - 3}


def test_waiting_request_is_admitted_when_a_held_record_is_released():
    """The prefill side has pages for one of the requests."""
    sides = Sides(replace(HYBRID, full_pages=11), decode_config=replace(HYBRID, full_pages=32, swa_pages=24))
    prompts = [LONG, LONG[::-1], OTHER]
    for prompt in prompts:
        sides.submit(prompt)

    sides.run()

    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(*prompts), True)


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        pytest.param(Invitation, "decode", id="Invitation"),
        pytest.param(PageData, "prefill", id="PageData"),
        pytest.param(TransferEnd, "prefill", id="TransferEnd"),
        pytest.param(Close, "decode", id="Close"),
    ],
)
def test_lost_message_is_retransmitted_after_the_interval(kind, side):
    sides = Sides()
    sides.taps[side].dropping.append(kind)
    sides.submit(LONG)
    sides.steps(20)
    sides.clock.advance(RETRY_MS - 1)
    sides.steps(5)
    waits = sides.has_work

    sides.clock.advance(1)
    sides.run()

    assert (waits, sides.outputs(), sides.flush_frees_all()) == (True, sides.expected(LONG), True)


def test_only_unacknowledged_pages_are_retransmitted():
    sides = Sides()
    held(sides)
    sides.taps["decode"].receive()
    for pool, first, count in page_ranges(sides)[1:]:
        sides.taps["decode"].send(PageAck(1, pool, first, count))
    sides.taps["prefill"].sent.clear()

    sides.step("prefill")
    sides.clock.advance(RETRY_MS)
    sides.step("prefill")

    assert (sides.taps["prefill"].kinds(), page_ranges(sides)) == ([PageData, TransferEnd], [("full", 0, 4)])


# --- requests that end early


def test_prompt_without_one_free_page_ends_out_of_memory_on_both_sides():
    sides = Sides()
    pages = hold(sides.prefill.memory, "full", leaving=3)
    sides.submit(LONG)

    sides.run()
    release_held(sides.prefill.memory, "full", pages)

    reason = str(sides.reasons()["prefill"])
    assert reason.startswith("out of memory: ")
    assert sides.reasons()["decode"] == f"ended by the prefill side: {reason}"
    assert sides.flush_frees_all()


@pytest.mark.parametrize("side", SIDES)
def test_request_without_an_invitation_times_out_on_both_sides(side):
    configs = {**dict.fromkeys(SIDES, HYBRID), side: replace(HYBRID, request_timeout_ms=1000)}
    sides = Sides(configs["prefill"], decode_config=configs["decode"])
    pages = hold(sides.decode.memory, "full", leaving=2)
    sides.submit(LONG)

    sides.run(ms_per_step=100)
    release_held(sides.decode.memory, "full", pages)

    ended_there = {kind: reason.replace("abort", "timeout") for kind, reason in ABORTED_THERE.items()}
    assert sides.reasons() == {**ended_there, side: "timeout"}
    assert sides.flush_frees_all()


# --- aborts, in each state of a request


def waiting_for_a_batch(sides: Sides) -> None:
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


BEFORE_ITS_END = [not_invited, invited, waiting_for_a_batch, between_two_chunks, in_a_pass]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stage", BEFORE_ITS_END)
def test_prompt_aborted_on_one_side_ends_on_both(stage: Stage, side):
    sides = Sides()
    stage(sides)

    sides.engines[side].abort(1)
    sides.run()

    assert sides.reasons() == {**ABORTED_THERE, side: "abort"}
    assert sides.flush_frees_all()


def test_abort_on_the_decode_side_releases_the_held_record():
    sides = Sides()
    held(sides)

    sides.decode.abort(1)
    sides.step("prefill")

    assert (sides.logs["prefill"].of(LetGo), sides.prefill.has_work) == ([LetGo(1, "abort")], False)
    sides.run()
    assert (sides.reasons(), sides.flush_frees_all()) == ({"prefill": "length", "decode": "abort"}, True)


def test_abort_on_the_prefill_side_does_not_end_a_held_transfer():
    """The request has ended on that side."""
    sides = Sides()
    held(sides)

    sides.prefill.abort(1)
    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"], sides.flush_frees_all()) == (
        sides.expected(LONG),
        "length",
        True,
    )


@pytest.mark.parametrize("side", SIDES)
def test_abort_does_not_affect_other_requests(side):
    sides = Sides()
    between_two_chunks(sides)
    sides.submit(SHORT)
    sides.submit(OTHER)
    sides.steps(1)

    sides.engines[side].abort(1)
    sides.run()

    assert (sides.outputs()[1:], sides.flush_frees_all()) == (sides.expected(SHORT, OTHER), True)


def test_lost_close_is_retransmitted_for_an_invitation():
    sides = Sides()
    sides.taps["prefill"].dropping.append(Close)
    sides.submit(LONG)
    sides.prefill.abort(1)

    sides.run(ms_per_step=50)

    assert (sides.reasons()["prefill"], sides.taps["prefill"].dropping) == ("abort", [])
    assert str(sides.reasons()["decode"]).startswith("ended by the prefill side: ")
    assert sides.flush_frees_all()
