"""A transfer sends each page that the decode side needs once, and few other bytes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.messages import Invitation
from swarden.engine_under_test.model.decoder import random_decoder
from swarden.engine_under_test.model.runner import ModelForward, fitted
from swarden.engine_under_test.model.tiny import tiny_spec
from swarden.engine_under_test.pair import InProcessLink, create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY
from tests.engine_under_test.disaggregation.framed import frame_of
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, Sides, Tap

MAX_OVERHEAD = 1.05
PAGE = 128
FULL_PAGE = PAGE * 1 * 2 * 2 * 16 * 8  # bytes: tokens, layers, keys and values, heads, their width, float64
SWA_PAGE = PAGE * 2 * 2 * 2 * 16 * 8
CONFIG = EngineConfig(page_size=PAGE, full_pages=24, max_context_len=1024, max_running_requests=2)
PROMPT = [3 + number % 120 for number in range(700)]


def served(window: int, *prompts: Sequence[int], chunk_len: int | None = 256) -> Tap:
    """The prefill end of the link of a pair with one full layer and two sliding layers, after serving the prompts."""
    decoder = random_decoder(tiny_spec("gemma3", sliding_window=window), 1, torch.float64)
    config = fitted(replace(CONFIG, chunk_len=chunk_len), decoder.spec, source="tiny")
    prefill_end, other = map(Tap, InProcessLink.pair())
    pair = create_pair(
        config, ports=(Ports(ModelForward(decoder), link=prefill_end), Ports(ModelForward(decoder), link=other))
    )
    for prompt in prompts:
        pair.generate([prompt], SamplingParams(2))
    return prefill_end


def num_bytes(prefill_end: Tap, transfer_id: int) -> int:
    return sum(len(frame_of(message)) for message in prefill_end.pages(transfer_id))


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
def test_sent_bytes_are_at_most_5_percent_above_the_needed_pages(window, length, full_pages, swa_pages, chunk_len):
    least = full_pages * FULL_PAGE + swa_pages * SWA_PAGE

    prefill_end = served(window, PROMPT[:length], chunk_len=chunk_len)

    assert least <= num_bytes(prefill_end, 1) <= MAX_OVERHEAD * least


def test_each_needed_page_is_sent_once():
    prefill_end = served(200, PROMPT)
    sent = [
        (message.pool, index)
        for message in prefill_end.pages()
        for index in range(message.first, message.first + message.num_pages)
    ]

    assert sorted(sent) == [("full", index) for index in range(6)] + [("swa", index) for index in (3, 4, 5)]


def test_cached_prefix_is_not_sent_again():
    """The decode side has five pages of the prompt, with the window of the last one."""
    prefill_end = served(200, PROMPT, [*PROMPT[:650], *PROMPT[:50]])
    least = FULL_PAGE + SWA_PAGE

    assert least <= num_bytes(prefill_end, 2) <= MAX_OVERHEAD * least


@pytest.mark.parametrize(
    ("config", "first"),
    [
        pytest.param(HYBRID, 10, id="hybrid"),
        pytest.param(FULL_ONLY, 10, id="full only"),
        pytest.param(SWA_ONLY, 11, id="swa only, the window begins there"),
    ],
)
def test_only_the_new_pages_of_a_conversation_are_sent(config, first):
    """The first turn and its four output tokens, less the last, which was not computed, fill ten pages."""
    sides = Sides(config)
    sides.submit(LONG)
    sides.run()
    longer = [*LONG, *sides.outputs()[0], *OTHER[:9]]
    sides.submit(longer)

    sides.run()

    prefix_lens = [message.prefix_len for message in sides.taps["decode"].sent if isinstance(message, Invitation)]
    assert (prefix_lens, min(message.first for message in sides.taps["prefill"].pages(2))) == ([0, 40], first)
    assert [received.cached_tokens for received in sides.received["decode"].values()] == [0, 40]
    assert (sides.outputs(), sides.flush_frees_all()) == (sides.expected(LONG, longer), True)
