"""Groups of Mamba layers: a state serves later requests with its prefix, and other block sizes fit beside it."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Submission
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.kit.settings import made
from tests.engines.vllm.some_requests import PROMPT, core_of, finish, starts, wanted

STATES = {"windows": (), "state_groups": 2}


def served_twice(engine, changes):
    """The outputs of two equal requests, in turn, the expected one, and the tokens that each found cached.

    The last are those of the admissions, and those that the clients get.
    """
    built = core_of(engine, {**STATES, **changes})
    streamed = []
    for _ in range(2):
        built.submit(Submission(PROMPT, 5, (), 0, 0))
        streamed.append(finish(built))
    outputs = [[token for answer in answers for token in answer.token_ids] for answers in streamed]
    told = [answers[-1].cached_tokens for answers in streamed]
    return outputs, wanted(built, PROMPT, 5), starts(built.log.take()), told


@pytest.mark.parametrize(
    ("changes", "cached_len"),
    [
        ({}, 12),
        ({"asynchronous": True}, 12),
        ({"windows": (5,), "window_block_sizes": (8,)}, 8),
        ({"draft_len": 3}, 12),
        ({"prefix_caching": False}, 0),
    ],
    ids=["align", "asynchronous", "beside-blocks-of-another-size", "drafts", "without-a-prefix-cache"],
)
def test_equal_request_continues_from_the_cached_state_with_the_same_output(release, on_release, changes, cached_len):
    outputs, expected, cached, told = on_release(release, served_twice, f"vllm=={release}", changes)

    assert outputs == [expected, expected]
    assert cached == told == [0, cached_len]


def test_states_of_all_blocks_serve_a_later_request_in_the_release_that_keeps_them(on_release):
    outputs, expected, cached, told = on_release(
        "0.20.2", served_twice, "vllm==0.20.2", {"all_states": True, "num_blocks": 200}
    )

    assert outputs == [expected, expected]
    assert cached == told == [0, 12]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window_block_sizes": (8, 8)}, "window_block_sizes has 2 entries, want one per window"),
        ({"window_block_sizes": (6,)}, r"window_block_sizes is \[6\], want multiples of block_size"),
        ({"all_states": True}, "all_states is true without state_groups, want false"),
        ({"state_groups": 1, "external_len": 8}, "and state_groups, want true, or prefix_caching false"),
        ({"has_both_roles": True}, 'has_both_roles is true with role "both", want false'),
        (
            {"role": "decode", "has_both_roles": True, "two_way": True, "push": True},
            "push is true with two_way true, want false",
        ),
        ({"state_groups": 1, "draft_len": 4}, "draft_len is 4, want less than block_size with state_groups"),
    ],
    ids=["sizes", "multiple", "all-states", "load-within-the-step", "both-roles", "two-way-pushes", "drafts"],
)
def test_configuration_that_is_not_driven_is_refused_with_the_setting(changes, message):
    with pytest.raises(InvalidConfig, match=message):
        made(VllmConfig, changes)
