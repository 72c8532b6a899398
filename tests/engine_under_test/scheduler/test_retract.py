"""The order of retraction, and the new-token ratio after a retraction."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.request import Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.preempt import NewTokenRatio, retraction_order
from tests.engine_under_test.builders import FULL_ONLY

CONFIG = replace(FULL_ONLY, new_token_ratio=0.7, new_token_ratio_floor=0.1, new_token_ratio_decay_steps=6)


def request(
    request_id: int, *, prompt_len: int = 4, num_outputs: int = 0, max_new_tokens: int = 100, priority: int = 0
) -> Request:
    tokens = [0] * (prompt_len + num_outputs)
    return Request(request_id, prompt_len, tokens, SamplingParams(max_new_tokens), priority=priority)


@pytest.mark.parametrize(
    ("candidates", "order"),
    [
        pytest.param([request(1, num_outputs=5), request(2, num_outputs=3)], [2, 1], id="fewest outputs first"),
        pytest.param([request(1, prompt_len=4), request(2, prompt_len=9)], [2, 1], id="then the longest prompt"),
        pytest.param([request(1), request(2)], [2, 1], id="then the latest arrival"),
        pytest.param(
            [request(1, priority=1), request(2, num_outputs=9)], [2, 1], id="the lowest priority before all else"
        ),
        pytest.param(
            [request(1, prompt_len=99, num_outputs=1), request(2)], [2, 1], id="outputs count before the prompt"
        ),
    ],
)
def test_retraction_order_follows_priority_outputs_prompt_and_arrival(candidates, order):
    assert [request.id for request in retraction_order(candidates)] == order


@pytest.mark.parametrize(
    ("survivor", "value"),
    [
        pytest.param(request(1, num_outputs=0, max_new_tokens=1000), 0.1, id="never below the floor"),
        pytest.param(request(1, num_outputs=9, max_new_tokens=10), 1.0, id="never above one"),
    ],
)
def test_the_ratio_stays_within_its_limits(survivor, value):
    ratio = NewTokenRatio(CONFIG)

    ratio.learn([survivor])

    assert ratio.value == value


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        pytest.param(1, 0.6, id="one step"),
        pytest.param(6, 0.1, id="all steps"),
        pytest.param(60, 0.1, id="more than all"),
    ],
)
def test_the_ratio_decays_to_its_floor(steps, value):
    ratio = NewTokenRatio(CONFIG)

    for _ in range(steps):
        ratio.decay()

    assert ratio.value == pytest.approx(value)


def test_reset_restores_the_initial_ratio():
    ratio = NewTokenRatio(CONFIG)
    ratio.decay()

    ratio.reset()

    assert ratio.value == 0.7
