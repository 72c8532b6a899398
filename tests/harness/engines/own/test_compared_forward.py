"""Comparisons with the model without a cache: correct results, wrong results, and results of finished requests."""

import math

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.ports import (
    Computed,
    ForwardBatch,
    ForwardEntry,
    LogitsSpan,
    PageSpan,
    PoolPages,
    SlotLayout,
)
from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.engines.own.compared_forward import TOLERANCE, ComparedForward
from swarden.harness.engines.own.models import VOCABULARY, tiny_model
from swarden.invariants.events import Compared, Written

PROMPT = [3, 1, 4, 1, 5]
WITHOUT_CACHE = tiny_model("tiny-gemma3", EngineConfig(page_size=4, full_pages=4)).without_cache
LOGITS = WITHOUT_CACHE.logits(PROMPT, 0)
LIKELIEST = int(LOGITS[-1].argmax())
NAN = math.nan


class FixedForward:
    """A forward with given results."""

    model, vocab_size = "fixed", None

    def __init__(self) -> None:
        self.entries: list[ForwardEntry] = []
        self.computed: list[Computed] | None = []

    def layout(self, pool):
        return SlotLayout(torch.float64, (pool.num_pages,))

    def launch(self, batch):
        self.entries = batch.entries

    def collect(self, launch):
        return self.computed


class Comparison:
    """Request 1 has the prompt PROMPT; `noted` are the emitted events."""

    def __init__(self) -> None:
        self.noted: list[tuple[object, ...]] = []
        self.steady = FixedForward()
        self.forward = ComparedForward(self.steady, WITHOUT_CACHE, self.noted.append)
        self.forward.submitted(1, PROMPT)

    def run(
        self, entry: ForwardEntry, logits: torch.Tensor | None, token: int | None, *, launch: int = 1
    ) -> list[Computed] | None:
        """One pass over one entry that begins on page 3 of a pool."""
        pool = PoolPages("full", None, torch.zeros(4, 4), torch.tensor([3, 2]), [PageSpan(0, 0, 2)])
        self.steady.computed = [
            Computed(() if token is None else (token,), None if logits is None else LogitsSpan(entry.start, logits))
        ]
        self.forward.launch(ForwardBatch(launch, 4, [entry], [pool]))
        return self.forward.collect(launch)

    @property
    def compared(self) -> list[Compared]:
        return [one for one in self.noted if isinstance(one, Compared)]


WHOLE = ForwardEntry(1, 0, PROMPT, 0, 5, num_samples=1)
REST = ForwardEntry(1, 0, PROMPT[2:], 2, 5, num_samples=1)


def changed_logits(position: int, by: float) -> torch.Tensor:
    logits = LOGITS.clone()
    logits[position, 7] += by
    return logits


@pytest.mark.parametrize(
    ("entry", "logits", "token", "expected"),
    [
        pytest.param(WHOLE, LOGITS, LIKELIEST, (0, 0.0, LIKELIEST), id="whole-prompt"),
        pytest.param(REST, LOGITS[2:], LIKELIEST, (2, 0.0, LIKELIEST), id="after-a-cached-prefix"),
        pytest.param(WHOLE._replace(num_samples=0), LOGITS, None, (0, 0.0, None), id="chunk"),
        pytest.param(WHOLE, changed_logits(3, 0.5), LIKELIEST, (3, 0.5, LIKELIEST), id="one-position-off"),
        pytest.param(WHOLE, LOGITS, 9, (0, 0.0, LIKELIEST), id="wrong-token"),
    ],
)
def test_comparison_has_the_farthest_position_and_the_likeliest_token(entry, logits, token, expected):
    comparison = Comparison()

    comparison.run(entry, logits, token)

    position, difference, likeliest = expected
    [one] = comparison.compared
    assert one.difference == pytest.approx(difference)
    assert one == Compared(1, 1, entry.start, 5, position, one.difference, TOLERANCE, token, likeliest)


def test_comparison_has_the_first_wrong_position():
    comparison = Comparison()

    comparison.run(WHOLE, changed_logits(1, 0.1) + changed_logits(4, 9.0) - LOGITS, LIKELIEST)

    assert comparison.compared[0].position == 1
    assert comparison.compared[0].difference == pytest.approx(0.1)


def test_nan_is_farther_than_any_number():
    comparison = Comparison()

    comparison.run(WHOLE, changed_logits(2, NAN), LIKELIEST)

    [one] = comparison.compared
    assert (one.position, str(one.difference)) == (2, "nan")


def test_sampled_token_is_appended_to_the_sequence():
    comparison = Comparison()
    comparison.run(WHOLE, LOGITS, LIKELIEST)

    comparison.run(ForwardEntry(1, 0, [], 5, 6, num_samples=1, follows=1), LOGITS[:1], 0)

    expected = WITHOUT_CACHE.logits([*PROMPT, LIKELIEST], 5)
    assert comparison.compared[1].difference == pytest.approx(float((expected - LOGITS[:1]).abs().max()))


def test_position_beyond_sent_and_sampled_tokens_is_wrong():
    comparison = Comparison()

    comparison.run(ForwardEntry(1, 0, [8, 8], 4, 6, num_samples=1), LOGITS[3:], 0)

    assert comparison.compared == [Compared(1, 1, 4, 6, 5, math.inf, TOLERANCE, 0, None)]


def test_finished_request_is_not_compared():
    comparison = Comparison()
    comparison.forward.ended(1)

    comparison.run(WHOLE, LOGITS, LIKELIEST)

    assert comparison.compared == []


def test_written_events_equal_those_of_the_fake_forward():
    comparison = Comparison()

    comparison.run(WHOLE, LOGITS, LIKELIEST)

    assert [one for one in comparison.noted if isinstance(one, Written)] == [Written(1, 1, "full", 0, 5, (3, 2))]


def test_one_of_three_entries_returns_no_logits():
    """Passes that return few logits are run, too."""
    requested = []
    for launch in range(1, 7):
        comparison = Comparison()
        comparison.run(WHOLE, None, LIKELIEST, launch=launch)
        requested.append(comparison.steady.entries[0].sampling.return_logits)

    assert requested == [True, False, True, True, False, True]
    assert comparison.compared == [Compared(6, 1, 0, 5, 0, None, TOLERANCE, LIKELIEST, LIKELIEST)]


@pytest.mark.parametrize("returns_logits", [True, False])
def test_requested_logits_are_returned(returns_logits):
    comparison = Comparison()

    computed = comparison.run(WHOLE._replace(sampling=SamplingParams(return_logits=returns_logits)), LOGITS, LIKELIEST)

    assert comparison.steady.entries[0].sampling.return_logits
    assert [one.logits is not None for one in computed or ()] == [returns_logits]


def test_model_reads_tokens_modulo_its_vocabulary():
    comparison = Comparison()

    comparison.run(WHOLE._replace(tokens=[token + 2 * VOCABULARY for token in PROMPT]), LOGITS, LIKELIEST)

    assert comparison.steady.entries[0].tokens == PROMPT
