"""The sampler: the likeliest token, or a draw that only seed and position decide, in the right proportions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_under_test.model.sampler import sample, uniform
from engine_under_test.sampling import SamplingParams

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64))
DRAWS = [index / 1000 for index in range(1000)]


def shares(sampling: SamplingParams, logits: torch.Tensor = LOGITS) -> dict[int, float]:
    """How often each token comes when draws are spread evenly."""
    tokens = [int(sample(logits, sampling, draw=draw)) for draw in DRAWS]
    return {token: tokens.count(token) / len(DRAWS) for token in sorted(set(tokens))}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        pytest.param(SamplingParams(temperature=1), {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}, id="as likely as they are"),
        pytest.param(SamplingParams(temperature=1, top_k=2), {1: 0.571, 3: 0.429}, id="the two likeliest"),
        pytest.param(SamplingParams(temperature=1, top_p=0.5), {1: 0.571, 3: 0.429}, id="up to half"),
        pytest.param(SamplingParams(temperature=1, top_p=0.39), {1: 1.0}, id="the likeliest has the share alone"),
        pytest.param(SamplingParams(temperature=1, top_p=0.01), {1: 1.0}, id="one at least"),
        pytest.param(SamplingParams(temperature=0.5), {0: 0.033, 1: 0.533, 2: 0.134, 3: 0.3}, id="colder"),
        pytest.param(SamplingParams(temperature=1, top_k=3, top_p=0.6), {1: 0.571, 3: 0.429}, id="both"),
        pytest.param(SamplingParams(), {1: 1.0}, id="greedy"),
        pytest.param(SamplingParams(temperature=1, top_k=1), {1: 1.0}, id="the likeliest alone"),
    ],
)
def test_tokens_come_in_their_proportions(sampling, expected):
    assert shares(sampling) == pytest.approx(expected, abs=0.002)


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.01, 5),
    st.floats(0.001, 1),
    st.none() | st.integers(1, 30),
)
def test_whatever_is_drawn_is_among_the_likeliest(logits, draw, temperature, top_p, top_k):
    sampling = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)

    token = int(sample(torch.tensor(logits, dtype=torch.float64), sampling, draw=draw))

    assert sum(other > logits[token] for other in logits) < (top_k or len(logits))


def test_equals_come_by_their_ids():
    assert shares(SamplingParams(temperature=1, top_k=2), torch.zeros(4)) == {0: 0.5, 1: 0.5}


def test_a_draw_is_the_same_anywhere():
    assert [round(uniform(7, position), 12) for position in (1, 2, 11)] == [
        0.301061758154,
        0.06543647347,
        0.254512857415,
    ]


def test_draws_are_spread_evenly_over_positions_and_seeds():
    draws = [uniform(seed, position) for seed in range(40) for position in range(100)]

    counts = [sum(low / 10 <= draw < (low + 1) / 10 for draw in draws) for low in range(10)]

    assert min(counts) > 330
    assert len(set(draws)) == len(draws)
