"""The engine as clients see it: new tokens, the finish reason, and the cached prefix length."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.request import Output
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, SWA_ONLY, Serving, all_pages

PROMPT = list(range(100, 117))


@ALL_POOLS
def test_output_equals_that_of_the_model_without_a_cache(config):
    serving = Serving(config)

    received = serving.serve(PROMPT, max_new_tokens=30)

    assert (received.tokens, received.reason) == (serving.expected(PROMPT, max_new_tokens=30), "length")


def test_each_step_streams_a_token():
    serving = Serving()
    request = serving.submit(PROMPT[:10], max_new_tokens=3)
    expected = serving.expected(PROMPT[:10], max_new_tokens=3)

    outputs = [serving.engine.step() for _ in range(3)]

    assert outputs == [
        [Output(request, (expected[0],), None, 0, 0)],
        [Output(request, (expected[1],), None, 0, 0)],
        [Output(request, (expected[2],), "length", 0, 0)],
    ]


def test_a_stop_token_ends_a_request():
    serving = Serving()
    expected = serving.expected(PROMPT, max_new_tokens=3)
    request = serving.submit(PROMPT, max_new_tokens=9, stop_token_ids=[expected[2]])

    serving.run()

    assert (serving.tokens(request), serving.reason(request)) == (expected, "stop")


def test_request_for_zero_tokens_leaves_its_prompt_cached():
    serving = Serving()

    received = serving.serve(PROMPT, max_new_tokens=0)

    assert (received.tokens, received.reason) == ([], "length")
    assert serving.serve(PROMPT).cached_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        pytest.param(PROMPT, 16, id="the same prompt"),
        pytest.param(PROMPT[:16], 12, id="its last page must be computed"),
        pytest.param([*PROMPT[:9], 1, 2, 3, 4], 8, id="a branch inside a page"),
        pytest.param([1, *PROMPT], 0, id="another prompt"),
    ],
)
def test_served_prompt_is_cached(prompt, cached):
    serving = Serving()
    serving.serve(PROMPT, max_new_tokens=3)

    assert serving.serve(prompt).cached_tokens == cached


REJECTIONS = [
    ("an empty prompt", HYBRID, [], 4, "rejected: the prompt is empty"),
    ("negative max_new_tokens", HYBRID, PROMPT, -1, "rejected: max_new_tokens -1 is below 0"),
    ("a row too short", HYBRID, PROMPT, 48, "rejected: 65 tokens are more than max_context_len 64"),
    (
        "a full pool too small",
        replace(HYBRID, full_pages=4),
        PROMPT[:16],
        0,
        "rejected: the prompt needs 5 full pages of 4",
    ),
]


@pytest.mark.parametrize(
    ("config", "prompt", "max_new_tokens", "reason"),
    [case[1:] for case in REJECTIONS],
    ids=[case[0] for case in REJECTIONS],
)
def test_impossible_request_is_rejected_at_submit(config, prompt, max_new_tokens, reason):
    serving = Serving(config)
    request = serving.submit(prompt, max_new_tokens=max_new_tokens)

    outputs = serving.engine.step()

    assert outputs == [Output(request, (), reason, 0, 0)]


@pytest.mark.parametrize(
    ("config", "prompt_len", "max_new_tokens"),
    [
        pytest.param(HYBRID, 17, 47, id="a row that is just long enough"),
        pytest.param(replace(HYBRID, full_pages=5), 19, 1, id="a full pool that is just large enough"),
        pytest.param(replace(HYBRID, swa_pages=4), 50, 8, id="a prompt longer than the swa pool"),
        pytest.param(replace(SWA_ONLY, swa_pages=4), 50, 8, id="a prompt longer than the only pool, a windowed one"),
    ],
)
def test_request_that_fits_alone_is_served(config, prompt_len, max_new_tokens):
    serving, prompt = Serving(config), list(range(prompt_len))

    received = serving.serve(prompt, max_new_tokens=max_new_tokens)

    assert received.tokens == serving.expected(prompt, max_new_tokens=max_new_tokens)


def test_a_request_that_outgrows_the_pools_ends_with_the_reason():
    serving = Serving(replace(HYBRID, full_pages=4))

    received = serving.serve(PROMPT[:8], max_new_tokens=30)

    assert (received.tokens, received.reason) == (
        serving.expected(PROMPT[:8], max_new_tokens=9),
        "out of memory: no free page for the next token",
    )


ABORTED = [
    pytest.param(0, [], id="while it waits"),
    pytest.param(2, [], id="between its chunks"),
    pytest.param(4, [0, 1], id="while it runs"),
]


@ALL_POOLS
@pytest.mark.parametrize(("steps", "streamed"), ABORTED)
def test_aborted_request_ends_and_frees_everything(config, steps, streamed):
    serving, prompt = Serving(config), list(range(40))
    expected = serving.expected(prompt, max_new_tokens=2)
    request = serving.submit(prompt, max_new_tokens=20)
    serving.step(steps)

    serving.engine.abort(request)
    serving.run()
    serving.engine.flush()

    assert (serving.reason(request), serving.tokens(request), serving.free) == (
        "abort",
        [expected[index] for index in streamed],
        all_pages(config),
    )


@pytest.mark.parametrize("steps", [0, 1], ids=["end not delivered", "end delivered"])
def test_a_second_abort_is_ignored(steps):
    serving = Serving()
    request = serving.submit(PROMPT)
    serving.engine.abort(request)
    serving.step(steps)

    serving.engine.abort(request)

    assert [output.request_id for output in serving.engine.step()] == [request] * (1 - steps)


def test_abort_of_unknown_request_is_ignored():
    serving = Serving()

    serving.engine.abort(17)

    assert serving.engine.has_work is False


@pytest.mark.parametrize("steps", [0, 2, 4], ids=["while it waits", "between its chunks", "while it runs"])
def test_request_over_its_timeout_ends(steps):
    serving, prompt = Serving(replace(HYBRID, request_timeout_ms=100)), list(range(40))
    request = serving.submit(prompt, max_new_tokens=20)
    serving.step(steps)
    serving.clock.advance(100)

    serving.step()
    serving.engine.flush()

    assert (serving.reason(request), serving.free) == ("timeout", all_pages(HYBRID))


TRAFFIC = [
    (list(range(30)), 9),
    (list(range(30)), 5),
    ([*range(13), *range(40, 50)], 12),
    ([*range(8), 60], 20),
    ([61], 3),
    (list(range(20)), 0),
    ([*range(30), *range(10)], 7),
]

POOLS = ["hybrid", "full", "swa", "unshared", "lpm", "fifo", "unchunked", "late slides", "overlap", "mixed", "all"]
LEAST_SWA = {1: 8, 2: 5, 4: 4, 8: 3, 16: 3}  # pages for a window of 6, by page size


@pytest.mark.parametrize("page_size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("pools", POOLS)
def test_mixed_traffic_outputs_are_correct_and_all_pages_are_freed(page_size, pools):
    """The output does not depend on sharing, parking, eviction or retraction."""
    variants: dict[str, dict[str, object]] = {
        "hybrid": {},
        "full": {"swa_pages": 0, "sliding_window": None},
        "swa": {"full_pages": 0},
        "unshared": {"prefix_sharing": False},
        "lpm": {"waiting_order": "lpm"},
        "fifo": {"page_reuse": "fifo"},
        "unchunked": {"chunk_len": None},
        "late slides": {"window_eviction_interval": 7},
        "overlap": {"overlap": True},
        "mixed": {"mixed_batches": True},
        "all": {"overlap": True, "mixed_batches": True, "preemption_threshold": 0},
    }
    small = {"page_size": page_size, "full_pages": 64 // page_size, "swa_pages": LEAST_SWA[page_size]}
    config = EngineConfig.from_mapping(HYBRID.to_mapping() | small | variants[pools])
    serving = Serving(config)
    expected = {}
    for prompt, max_new_tokens in TRAFFIC * 2:
        request = serving.submit(prompt, max_new_tokens=max_new_tokens)
        expected[request] = serving.expected(prompt, max_new_tokens=max_new_tokens)
        serving.step(2)

    serving.run()
    serving.engine.flush()

    assert ({request: received.tokens for request, received in serving.received.items()}, serving.free) == (
        expected,
        all_pages(config),
    )
