"""A message that breaks a rule closes the connection, and nothing else ends."""

from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.disaggregation.rules import why_end_is_wrong
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.messages import (
    Close,
    Invitation,
    Message,
    PageAck,
    PageData,
    TransferEnd,
    TransferRequest,
)
from tests.engine_under_test.builders import HYBRID
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, SHORT, SIDES, Sides

TERMS = "of no matter"


def pages(count: int = 1, *, slots: int = 4, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros((count, slots), dtype=dtype)


def terms_of(sides: Sides) -> str:
    sent = [message for message in sides.taps["prefill"].sent if isinstance(message, TransferRequest)]
    [request] = [message for message in sent if message.transfer_id == 1]
    return request.terms


TO_DECODE: dict[str, Message] = {
    "10**18 pages": PageData(1, "full", 0, 10**18, pages()),
    "more pages than the prompt has": PageData(1, "full", 0, 11, pages(11)),
    "pages after the prompt": PageData(1, "full", 10, 1, pages()),
    "a negative page": PageData(1, "full", -1, 1, pages()),
    "no page": PageData(1, "full", 3, 0, pages(0)),
    "a negative number of pages": PageData(1, "full", 3, -1, pages()),
    "pages before the window": PageData(1, "swa", 0, 1, pages()),
    "an unknown pool": PageData(1, "host full", 0, 1, pages()),
    "a wrong shape": PageData(1, "full", 0, 1, pages(slots=3)),
    "fewer pages than announced": PageData(1, "full", 0, 2, pages(1)),
    "one dimension more": PageData(1, "full", 0, 1, pages()[None]),
    "a checksum for two pages": PageData(1, "full", 0, 2, pages(2), (7,)),
    "another dtype": PageData(1, "full", 0, 1, pages(dtype=torch.float64)),
    "too many tokens": TransferEnd(1, (7,) * 1000),
    "no token": TransferEnd(1, ()),
    "an invitation": Invitation(1, 0, TERMS),
    "an acknowledgement": PageAck(1, "full", 0, 1),
    "an invitation for another": Invitation(77, 0, TERMS),
}
TO_PREFILL: dict[str, Message] = {
    "a negative prefix": Invitation(1, -4096, ""),
    "a prefix as long as the prompt": Invitation(1, 40, ""),
    "a prefix of 10**18": Invitation(1, 10**18, ""),
    "a prefix within a page": Invitation(1, 6, ""),
    "an acknowledgement of 10**18 pages": PageAck(1, "full", 0, 10**18),
    "an acknowledgement of negative pages": PageAck(1, "full", -4, 2),
    "an acknowledgement in an unknown pool": PageAck(1, "x" * 60_000, 0, 1),
    "pages": PageData(1, "full", 0, 1, pages()),
    "an end": TransferEnd(1, (7,)),
    "a request": TransferRequest(1, TERMS),
}


@pytest.mark.parametrize("num_steps", range(4))
@pytest.mark.parametrize(
    ("receiver", "message"),
    [pytest.param("decode", message, id=f"to decode: {name}") for name, message in TO_DECODE.items()]
    + [pytest.param("prefill", message, id=f"to prefill: {name}") for name, message in TO_PREFILL.items()],
)
def test_message_that_breaks_a_rule_closes_the_connection_and_ends_nothing(receiver, message, num_steps):
    """The message comes in each step of the transfer; the messages that the connection loses are retransmitted."""
    sides = Sides()
    for prompt in (LONG, SHORT, OTHER):
        sides.submit(prompt)
    sides.step("decode")
    sides.steps(num_steps)
    [sender] = {*SIDES} - {receiver}
    if isinstance(message, Invitation) and not message.terms:
        message = message._replace(terms=terms_of(sides))
    is_open = any(request.transfer_id == 1 for request in sides.engines[receiver].scheduler.custody.other_side.requests)
    sides.taps[sender].send(message)

    sides.run(ms_per_step=50)

    rejected = sides.taps[receiver].rejected
    assert len(rejected) == 1 or (not rejected and not is_open)
    assert all(len(detail) < 200 for detail in rejected)
    assert sides.outputs() == sides.expected(LONG, SHORT, OTHER)
    assert sides.flush_frees_all()


def test_rest_of_the_messages_is_dropped_with_the_connection():
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode")
    sides.taps["prefill"].send(PageData(1, "full", 0, 10**18, pages()))
    sides.taps["prefill"].send(Close(1, "it would end the request"))

    sides.run(ms_per_step=50)

    assert (len(sides.taps["decode"].rejected), sides.outputs()) == (1, sides.expected(LONG))


def test_token_outside_the_vocabulary_is_against_the_rules():
    assert why_end_is_wrong(TransferEnd(1, (63,)), num_tokens=1, vocab_size=64) is None
    assert why_end_is_wrong(TransferEnd(1, (64,)), num_tokens=1, vocab_size=64) == "tokens (64,); the vocabulary has 64"
    assert why_end_is_wrong(TransferEnd(1, (-1,)), num_tokens=1, vocab_size=64) is not None


@pytest.mark.parametrize("index", [0, 9])
def test_pages_of_a_prefix_are_tolerated_and_not_written(index):
    """The peer may answer an engine that this one has replaced, and that did not have the prefix of ten pages."""
    sides = Sides()
    sides.submit(LONG)
    sides.run()
    longer = [*LONG, *sides.outputs()[0], *OTHER[:9]]
    sides.submit(longer)
    sides.step("decode")
    sides.taps["prefill"].send(PageData(2, "full", index, 1, pages()))

    sides.run()

    assert (sides.taps["decode"].rejected, sides.outputs()) == ([], sides.expected(LONG, longer))


@pytest.mark.parametrize("side", SIDES)
def test_page_that_is_larger_than_a_frame_raises(side):
    """A page of the full pool has four tags of eight bytes."""
    small = replace(HYBRID, link_frame_bytes=31)
    configs = {role: small if role == side else HYBRID for role in SIDES}

    with pytest.raises(ConfigError, match=r"^link_frame_bytes: 31; want at least 32, a page of pool full$"):
        Sides(configs["prefill"], decode_config=configs["decode"])
