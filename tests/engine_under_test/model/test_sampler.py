"""The sampler takes the likeliest token, or a random one with the right probability."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarden.engine_under_test.model.runner import sample, uniform
from swarden.engine_under_test.sampling import SamplingParams

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64))
DRAWS = [index / 1000 for index in range(1000)]


def shares(sampling: SamplingParams, logits: torch.Tensor = LOGITS) -> dict[int, float]:
    """The frequency of each token over evenly spread random numbers."""
    tokens = [int(sample(logits, sampling, draw=draw)) for draw in DRAWS]
    return {token: tokens.count(token) / len(DRAWS) for token in sorted(set(tokens))}


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        pytest.param(SamplingParams(temperature=1), {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}, id="temperature 1"),
        pytest.param(SamplingParams(temperature=1, top_k=2), {1: 0.571, 3: 0.429}, id="top_k 2"),
        pytest.param(SamplingParams(temperature=1, top_p=0.5), {1: 0.571, 3: 0.429}, id="top_p of a half"),
        pytest.param(SamplingParams(temperature=1, top_p=0.39), {1: 1.0}, id="top_p below the likeliest"),
        pytest.param(SamplingParams(temperature=1, top_p=0.01), {1: 1.0}, id="top_p near 0"),
        pytest.param(SamplingParams(temperature=0.5), {0: 0.033, 1: 0.533, 2: 0.134, 3: 0.3}, id="temperature 0.5"),
        pytest.param(SamplingParams(temperature=1, top_k=3, top_p=0.6), {1: 0.571, 3: 0.429}, id="top_k and top_p"),
        pytest.param(SamplingParams(), {1: 1.0}, id="greedy"),
        pytest.param(SamplingParams(temperature=1, top_k=1), {1: 1.0}, id="top_k 1"),
    ],
)
def test_tokens_are_sampled_with_their_probabilities(sampling, expected):
    assert shares(sampling) == pytest.approx(expected, abs=0.002)


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.01, 5),
    st.floats(0.001, 1),
    st.none() | st.integers(1, 30),
)
def test_sampled_token_is_among_the_top_k(logits, draw, temperature, top_p, top_k):
    sampling = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)

    token = int(sample(torch.tensor(logits, dtype=torch.float64), sampling, draw=draw))

    assert sum(other > logits[token] for other in logits) < (top_k or len(logits))


def test_equally_likely_tokens_are_ordered_by_id():
    assert shares(SamplingParams(temperature=1, top_k=2), torch.zeros(4)) == {0: 0.5, 1: 0.5}


def test_random_number_is_the_same_on_any_machine():
    assert [round(uniform(7, position), 12) for position in (1, 2, 11)] == [
        0.301061758154,
        0.06543647347,
        0.254512857415,
    ]


def test_random_numbers_are_spread_evenly():
    draws = [uniform(seed, position) for seed in range(40) for position in range(100)]

    counts = [sum(low / 10 <= draw < (low + 1) / 10 for draw in draws) for low in range(10)]

    assert min(counts) > 330
    assert len(set(draws)) == len(draws)
