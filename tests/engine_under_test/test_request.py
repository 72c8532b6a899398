"""A request counts its outputs, ends with its last token, and sends each token once."""

import pytest

from engine_under_test.ports import Computed
from engine_under_test.request import Output, Request
from engine_under_test.sampling import SamplingParams


def a_request(**fields):
    return Request(1, 3, [5, 6, 7], SamplingParams(**{"max_new_tokens": 2} | fields))


@pytest.mark.parametrize(
    ("sampled", "reason"),
    [
        pytest.param([8], None, id="tokens left"),
        pytest.param([8, 9], "length", id="max_new_tokens reached"),
        pytest.param([40], "stop", id="a stop token"),
        pytest.param([8, 40], "stop", id="a stop token as the last"),
    ],
)
def test_a_request_ends_with_its_last_token(sampled, reason):
    request = a_request(stop_token_ids=frozenset({40}))

    for token in sampled:
        request.receive(Computed([token]))

    assert (request.finish_reason, request.num_outputs) == (reason, len(sampled))


def test_a_token_is_sent_once():
    request = a_request()
    request.receive(Computed([8]))
    first = request.send()
    request.receive(Computed([9]))

    second = request.send()

    assert (first, second) == (Output(1, (8,), None, 0, 0), Output(1, (9,), "length", 0, 0))
