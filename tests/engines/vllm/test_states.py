"""Groups of Mamba layers: a state serves later requests with its prefix, and other block sizes fit beside it."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.kit.settings import made
from swarden.invariants.events import Admitted
from swarden.invariants.reference import Expectation

STATES = {"windows": (), "state_groups": 2}
PROMPT = [*range(1, 15)]


def served_twice(engine, changes):
    """The outputs of two equal requests, in turn, the expected ones, and the tokens that each found cached.

    The last are those of the admissions, and those that the clients get.
    """
    target = target_of(engine)
    built = target.build(target.decode({**STATES, **changes}))
    outputs: list[list[int]] = [[], []]
    told = [0, 0]
    for index, output in enumerate(outputs):
        built.submit(Submission(PROMPT, 5, (), 0, 0))
        while built.has_work:
            for one in built.step():
                output += one.token_ids
                told[index] = one.cached_tokens
    cached = [event.start for event in built.log.take() if isinstance(event, Admitted)]
    known = built.reference()
    expected = Expectation(0, len(PROMPT), list(PROMPT))
    while len(expected.tokens) < len(PROMPT) + 5:
        position = len(expected.tokens)
        expected.extend([expected.next_token(position, windows=known.windows, vocabulary=known.vocabulary)])
    return outputs, expected.tokens[len(PROMPT) :], cached, told


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
        ({"state_groups": 1, "block_size": 16}, "chunk_len is 8, want at least the tokens of a block"),
    ],
    ids=["sizes", "multiple", "all-states", "load-within-the-step", "both-roles", "two-way-pushes", "drafts", "chunk"],
)
def test_configuration_that_is_not_driven_is_refused_with_the_setting(changes, message):
    with pytest.raises(InvalidConfig, match=message):
        made(VllmConfig, changes)
