"""How many bytes go over the link: hardly more than the pages that the other side needs, and each of them once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.frames import encode
from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.messages import Invite, Message, Parcel
from engine_under_test.model.decoder import Decoder, random_decoder
from engine_under_test.model.runner import ModelForward, fitted
from engine_under_test.model.tiny import tiny_spec
from engine_under_test.pair import Pair, create_pair
from engine_under_test.ports import Ports
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, Sides

MOST = 1.05
PAGE = 128
FULL_PAGE = PAGE * 1 * 2 * 2 * 16 * 8  # bytes: tokens, layers, keys and values, heads, their width, float64
SWA_PAGE = PAGE * 2 * 2 * 2 * 16 * 8
CONFIG = EngineConfig(page_size=PAGE, full_pages=24, max_context_len=1024, chunk_len=256, max_running_requests=2)
PROMPT = [3 + number % 120 for number in range(700)]


class Counting:
    """One end of another link, which keeps what is sent."""

    def __init__(self, steady: InProcessLink) -> None:
        self.sent: list[Message] = []
        self.receive = steady.receive
        self._steady = steady

    def send(self, message: Message) -> None:
        self.sent.append(message)
        self._steady.send(message)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    @property
    def parcels(self) -> list[Parcel]:
        return [message for message in self.sent if isinstance(message, Parcel)]

    def num_bytes(self, room: int) -> int:
        return sum(len(encode(parcel)) for parcel in self.parcels if parcel.room == room)


def decoder_of(window: int) -> Decoder:
    """A layer that is full, and two that slide."""
    return random_decoder(tiny_spec("gemma3", sliding_window=window), 1, torch.float64)


def counted(window: int, **changes) -> tuple[Pair, Counting]:
    """A pair, and its prefill side's end of the link."""
    decoder = decoder_of(window)
    config = fitted(replace(CONFIG, **changes), decoder.spec, source="tiny")
    counting, other = (Counting(end) for end in InProcessLink.pair())
    ports = (Ports(ModelForward(decoder), link=counting), Ports(ModelForward(decoder), link=other))
    return create_pair(config, ports=ports), counting


def served(window: int, *prompts: Sequence[int], **changes) -> Counting:
    """What was sent of prompts that were served one after the other."""
    pair, counting = counted(window, **changes)
    for prompt in prompts:
        pair.generate([prompt], SamplingParams(2))
    return counting


def test_pages_are_of_at_least_64_kib():
    pair, _ = counted(window=8)
    store = pair.prefill.memory.store
    sizes = [store.kv(pool).select(store.page_dim(pool), 0).nbytes for pool in ("full", "swa")]

    assert sizes == [FULL_PAGE, SWA_PAGE]
    assert min(sizes) >= 64 << 10


@pytest.mark.parametrize("chunk_len", [128, 256, None], ids=["page by page", "two pages", "all at once"])
@pytest.mark.parametrize(
    ("window", "length", "full_pages", "swa_pages"),
    [
        pytest.param(8, 700, 6, 1, id="window on one page"),
        pytest.param(128, 700, 6, 2, id="window as long as a page"),
        pytest.param(200, 700, 6, 3, id="window on three pages"),
        pytest.param(8, 640, 5, 1, id="whole pages"),
        pytest.param(8, 130, 2, 2, id="window across two pages"),
    ],
)
def test_hardly_more_bytes_are_sent_than_pages_are_needed(window, length, full_pages, swa_pages, chunk_len):
    least = full_pages * FULL_PAGE + swa_pages * SWA_PAGE

    counting = served(window, PROMPT[:length], chunk_len=chunk_len)

    assert least <= counting.num_bytes(room=1) <= MOST * least


def test_each_page_is_sent_once():
    counting = served(200, PROMPT)
    sent = [
        (parcel.pool, index)
        for parcel in counting.parcels
        for index in range(parcel.first, parcel.first + parcel.num_pages)
    ]

    assert sorted(sent) == [("full", index) for index in range(6)] + [("swa", index) for index in (3, 4, 5)]


def test_of_a_prompt_whose_beginning_is_there_only_the_rest_is_sent():
    """Five whole pages were served before, with all that a window behind them reads."""
    counting = served(200, PROMPT, [*PROMPT[:650], *PROMPT[:50]])
    least = FULL_PAGE + SWA_PAGE

    assert least <= counting.num_bytes(room=2) <= MOST * least


@pytest.mark.parametrize(
    ("config", "first"),
    [
        pytest.param(HYBRID, 10, id="hybrid"),
        pytest.param(FULL_ONLY, 10, id="full only"),
        pytest.param(SWA_ONLY, 11, id="swa only, the window begins there"),
    ],
)
def test_of_a_conversation_only_what_is_new_is_sent(config, first):
    """The answer of four tokens, of which the last was not computed, ends the first ten pages."""
    sides = Sides(config)
    sides.submit(LONG)
    sides.run()
    longer = [*LONG, *sides.outputs()[0], *OTHER[:9]]
    sides.submit(longer)

    sides.run()

    invites = [message.prefix_len for message in sides.taps["decode"].sent if isinstance(message, Invite)]
    sent = [one for one in sides.taps["prefill"].sent if isinstance(one, Parcel) and one.room == 2]
    assert (invites, min(parcel.first for parcel in sent)) == ([0, 40], first)
    assert [received.cached_tokens for received in sides.received["decode"].values()] == [0, 40]
    assert (sides.outputs(), sides.emptied()) == (sides.expected(LONG, longer), True)
