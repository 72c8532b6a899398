"""The two sides of a transfer disagree: on the prompt, or after one engine was replaced."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.messages import Close, Invitation, PageData, TransferRequest
from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import LetGo
from tests.engine_under_test.builders import HYBRID
from tests.engine_under_test.disaggregation.sides import LONG, SIDES, Sides


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens"),
    [
        pytest.param(LONG[:-3], 4, id="a shorter prompt"),
        pytest.param([*LONG, 0], 4, id="a longer prompt"),
        pytest.param(LONG[::-1], 4, id="another prompt"),
        pytest.param(LONG, 0, id="no new token"),
    ],
)
@pytest.mark.parametrize("first", SIDES)
def test_transfer_with_two_different_requests_ends_before_any_pass(prompt, max_new_tokens, first):
    sides = Sides()
    sides.submit_late(1, prompt, SamplingParams(max_new_tokens), to="prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")
    sides.step(first)

    sides.run(ms_per_step=1)

    assert all(reason and "the sides differ: " in reason for reason in sides.reasons().values())
    assert (len(sides.taps["prefill"].pages()), sides.flush_frees_all()) == (0, True)


@pytest.mark.parametrize(("small", "other"), [SIDES, SIDES[::-1]])
def test_rejection_reason_reaches_the_side_that_submits_later(small, other):
    configs = {small: replace(HYBRID, full_pages=9), other: HYBRID}
    sides = Sides(configs["prefill"], decode_config=configs["decode"])
    sides.submit_late(1, LONG, SamplingParams(4), to=small)
    sides.step(*SIDES)
    sides.submit_late(1, LONG, SamplingParams(4), to=other)

    sides.run()

    reason = "rejected: the prompt needs 10 full pages of 9"
    assert sides.reasons()[other] == f"ended by the {small} side: {reason}"


def test_late_request_on_the_prefill_side_is_invited_at_once():
    """The decode side has reserved pages before the prefill side has the request."""
    sides = Sides()
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")
    sides.step("decode")
    sides.step("prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="prefill")

    sides.step("decode")

    assert [type(message) for message in sides.taps["decode"].sent].count(Invitation) == 2
    sides.run()
    assert sides.outputs() == sides.expected(LONG)


@pytest.mark.parametrize("num_steps", [1, 3], ids=["between two chunks", "while it is held"])
def test_second_invitation_with_another_prefix_ends_the_request(num_steps):
    """The decode engine was replaced by one that has another prefix of the prompt."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode")
    sides.taps["prefill"].dropping += [PageData] * 5
    [invitation] = [message for message in sides.taps["decode"].sent if isinstance(message, Invitation)]
    for _ in range(num_steps):
        sides.step("prefill")

    sides.taps["decode"].send(invitation._replace(prefix_len=16))
    sides.run()

    reason = "the decode side was restarted, with 16 tokens of the prompt"
    assert (sides.reasons()["decode"], sides.flush_frees_all()) == (f"ended by the prefill side: {reason}", True)


def test_unfinished_request_ends_when_the_decode_side_has_the_whole_prompt():
    """An earlier prefill engine, which has been replaced, had sent it."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode", "prefill")

    sides.taps["decode"].send(Close(1))
    sides.step("prefill")

    assert str(sides.reasons()["prefill"]).startswith("ended by the decode side: ")


def test_lost_close_is_retransmitted_with_its_reason():
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode", *["prefill"] * 3)
    sides.taps["decode"].dropping.append(Close)
    sides.decode.abort(1)
    sides.step("decode")

    sides.clock.advance(HYBRID.link_retry_ms)
    sides.step("prefill", "decode", "prefill")

    assert sides.logs["prefill"].of(LetGo) == [LetGo(1, "abort")]


@pytest.mark.parametrize("num_steps", [0, 1, 3], ids=["uninvited", "between two chunks", "while it is held"])
def test_engine_that_skips_the_transfers_of_its_predecessor_frees_them_in_the_peer(num_steps):
    """The decode engine was replaced, and the new one never gets the request."""
    sides = Sides()
    sides.submit(LONG, to=["prefill"])
    if num_steps:
        [request] = [message for message in sides.taps["prefill"].sent if isinstance(message, TransferRequest)]
        sides.taps["decode"].send(Invitation(1, 0, request.terms))
    for _ in range(num_steps):
        sides.step("prefill")
    before = len(sides.prefill.scheduler.custody.other_side.records)

    sides.decode.skip_transfers(1)
    began_ms = sides.clock.now_ms()
    sides.run(ms_per_step=HYBRID.link_retry_ms)

    assert (before, sides.flush_frees_all()) == (num_steps == 3, True)
    assert sides.clock.now_ms() - began_ms < HYBRID.link_timeout_ms // 2
