"""A request counts its outputs and ends with its last token."""

import pytest

from swarden.engine_under_test.ports import Computed
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.sampling import SamplingParams


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
