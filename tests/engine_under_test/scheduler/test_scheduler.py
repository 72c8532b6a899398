"""The scheduler: which requests a step computes, and which are retracted when pages are short."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Admitted, RanOut, Retracted
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, EventLog, Serving, all_pages, hold, release_held

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))


def test_a_long_prompt_is_computed_in_chunks():
    serving = Serving()

    serving.serve(LONG, max_new_tokens=2)

    assert serving.passes == [((1, 0, 16),), ((1, 16, 32),), ((1, 32, 40),), ((1, 40, 41),)]


def test_prefill_goes_before_decode():
    serving = Serving()
    serving.submit(OTHER[:8], max_new_tokens=9)
    serving.step(2)
    serving.submit(SHORT)

    serving.step(2)

    assert serving.passes[2:] == [((2, 0, 5),), ((1, 9, 10), (2, 5, 6))]


TIGHT = replace(FULL_ONLY, full_pages=7, new_token_ratio=0.1, new_token_ratio_floor=0.05)


def two_that_outgrow_the_pool(*, second_after: int = 0, first_len: int = 8) -> Serving:
    serving = Serving(TIGHT)
    serving.submit(OTHER[:first_len], max_new_tokens=10)
    serving.step(second_after)
    serving.submit(LONG[:8], max_new_tokens=10)
    return serving


@pytest.mark.parametrize(
    ("second_after", "first_len", "retracted", "missing"),
    [
        pytest.param(2, 8, 2, 1, id="fewest outputs"),
        pytest.param(0, 12, 1, 2, id="equal outputs: longest prompt"),
        pytest.param(0, 8, 2, 1, id="equal prompts: latest arrival"),
    ],
)
def test_one_request_is_retracted_when_pages_run_out_and_served_later(second_after, first_len, retracted, missing):
    serving = two_that_outgrow_the_pool(second_after=second_after, first_len=first_len)
    event = serving.until(Retracted)

    serving.run()

    assert (event.request_id, event.need) == (retracted, (("full", missing),))
    assert serving.received[retracted].num_retractions == 1
    assert [received.tokens for received in serving.received.values()] == [
        serving.expected(prompt, max_new_tokens=10) for prompt in (OTHER[:first_len], LONG[:8])
    ]


class PageTaker(EventLog):
    """Another owner that takes all free pages when the first reservation is made."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.notice = self.take_pages
        self.serving: Serving | None = None

    def take_pages(self, event) -> None:
        self.events.append(event)
        if isinstance(event, Admitted) and self.serving is not None:
            self.held = hold(self.serving.engine.memory, "full", leaving=1)
            self.serving = None


def test_request_refused_a_reserved_page_is_requeued_and_served():
    taker = PageTaker()
    serving = taker.serving = Serving(log=taker)
    serving.submit(SHORT)
    serving.step()
    ran_out = taker.of(RanOut)
    release_held(serving.engine.memory, "full", taker.held)
    free, num_rows = serving.free, serving.engine.memory.table.rows.num_free

    serving.run()

    assert (ran_out, free, num_rows) == ([RanOut(1, "full", 2, 1)], all_pages(HYBRID), 4)
    assert serving.tokens(1) == serving.expected(SHORT, max_new_tokens=4)
