"""An invalid configuration raises an error with the field, the value and the remedy."""

from typing import Any

import pytest

from swarden.engine_under_test.config import EngineConfig, PoolSpec
from swarden.engine_under_test.errors import ConfigError

WINDOWED: dict[str, Any] = {"swa_pages": 8, "sliding_window": 6}
REFUSALS: list[tuple[dict[str, Any], str]] = [  # the fields, and the beginning of the message
    ({"page_size": 3}, "page_size: 3 is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ({"page_size": 4.0}, "page_size: 4.0 is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ({"page_size": True}, "page_size: True is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ({"page_reuse": "random"}, "page_reuse: 'random' is not one of lifo, fifo"),
    ({"waiting_order": "sjf"}, "waiting_order: 'sjf' is not one of fcfs, lpm"),
    ({"prefix_sharing": 1}, "prefix_sharing: 1 is not true or false"),
    ({"link_retry_ms": 300, "link_timeout_ms": 300}, "link_timeout_ms: 300 with link_retry_ms 300"),
    ({"overlap": 1}, "overlap: 1 is not true or false"),
    ({"mixed_batches": "yes"}, "mixed_batches: 'yes' is not true or false"),
    ({"draft_tokens": 3, "lookahead_tokens": 2}, "draft_tokens: 3 with lookahead_tokens 2"),
    (WINDOWED | {"page_size": 4, "swa_pages": 5, "lookahead_tokens": 5}, "swa_pages: 5 cannot hold one request"),
    ({"full_pages": 0}, "full_pages: 0 with swa_pages 0 leaves no pool; give one of them pages"),
    ({"new_token_ratio": 1.5}, "new_token_ratio: 1.5 with new_token_ratio_floor 0.098"),
    ({"new_token_ratio": 0.5, "new_token_ratio_floor": 0.6}, "new_token_ratio: 0.5 with new_token_ratio_floor 0.6"),
    ({"idle_session_share": 1.5}, "idle_session_share: 1.5; want 0 to 1"),
    ({"sliding_window": 8}, "sliding_window: 8 with swa_pages 0; give swa_pages or leave the window out"),
    ({"swa_pages": 8}, "sliding_window: not given, and swa_pages is 8; want at least 2 tokens"),
    ({"swa_pages": 8, "sliding_window": 1}, "sliding_window: 1 is not a whole number of at least 2"),
    (WINDOWED | {"page_size": 4, "swa_pages": 3}, "swa_pages: 3 cannot hold one request"),
    ({"host_policy": "write_around"}, "host_policy: 'write_around' is not one of write_through"),
    ({"host_full_pages": (1 << 22) + 1}, "host_full_pages: 4194305 pages of 16 tokens; want at most 67108864 tokens"),
    (WINDOWED | {"full_pages": 0, "host_full_pages": 8, "host_swa_pages": 8}, "host_full_pages: 8 with full_pages 0"),
    (WINDOWED | {"host_full_pages": 8}, "host_swa_pages: 0 with swa_pages 8"),
    ({"host_full_pages": 8, "prefix_sharing": False}, "prefix_sharing: false with pools on the host"),
    ({"role": "decode", "host_full_pages": 8}, "role: decode with pools on the host"),
    (
        WINDOWED | {"page_size": 4, "host_full_pages": 8, "host_swa_pages": 1},
        "host_swa_pages: 1 cannot hold one window of 6",
    ),
    ({"max_context_len": (1 << 24) + 1}, "max_context_len: 16777217 is more than 16777216"),
    ({"max_context_len": 10**40}, "max_context_len: 100000000000000000...0000000000000000000 is more than"),
    ({"request_timeout_ms": 1 << 31}, "request_timeout_ms: 2147483648 is more than 2147483647"),
    ({"max_recorded_ops": 1 << 18}, "max_recorded_ops: 262144 is more than 131072"),
    ({"page_size": 1, "full_pages": 1 << 19}, "the pages of all pools, those on the host too"),
    ({"max_running_requests": 1 << 19, "max_context_len": 2}, "the pages of all pools, those on the host too"),
    ({"max_running_requests": 16, "page_size": 1, "max_context_len": (1 << 19) + 1}, "max_running_requests times"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSALS, ids=[message.partition(" ")[0] for _, message in REFUSALS])
def test_invalid_configuration_raises(fields, message):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**fields)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("field", "value", "least"),
    [
        ("full_pages", -1, 0),
        ("swa_pages", 2.5, 0),
        ("max_running_requests", 0, 1),
        ("max_context_len", 1, 2),
        ("window_eviction_interval", 0, 1),
        ("new_token_ratio_decay_steps", 0, 1),
        ("max_estimated_new_tokens", True, 1),
        ("chunk_len", 0, 1),
        ("request_timeout_ms", "5", 1),
        ("lookahead_tokens", None, 0),
        ("draft_tokens", -1, 0),
        ("preemption_threshold", -1, 0),
        ("max_forward_retries", -1, 0),
        ("max_recorded_ops", 0, 1),
        ("session_timeout_ms", 0, 1),
        ("host_full_pages", -1, 0),
        ("host_swa_pages", True, 0),
        ("load_back_threshold", 0, 1),
    ],
)
def test_field_that_is_no_whole_number_or_too_small_raises(field, value, least):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**{field: value})

    assert str(caught.value) == f"{field}: {value!r} is not a whole number of at least {least}"


def test_unknown_field_raises_with_the_known_fields():
    with pytest.raises(ConfigError, match=r"^pages: no such field; the fields are checksum_transfers, .*, role, "):
        EngineConfig.from_mapping({"page_size": 4, "pages": 8})


def test_configuration_survives_a_round_trip_through_a_mapping():
    config = EngineConfig(page_size=4, full_pages=16, swa_pages=8, sliding_window=6, page_reuse="fifo")

    assert EngineConfig.from_mapping(config.to_mapping()) == config


@pytest.mark.parametrize(("overlap", "launches"), [(False, 1), (True, 2)], ids=["plain", "overlapped"])
def test_overlap_allows_two_passes_in_flight(overlap, launches):
    assert EngineConfig(overlap=overlap).most_launches == launches


FULL, SWA, HOST_FULL, HOST_SWA = (
    PoolSpec(name, pages, window)
    for name, pages, window in (("full", 16, None), ("swa", 8, 6), ("host full", 32, None), ("host swa", 24, 6))
)
HOSTED = WINDOWED | {"host_swa_pages": 24}


@pytest.mark.parametrize(
    ("fields", "pools", "host_pools"),
    [
        pytest.param({"full_pages": 16, "host_full_pages": 32}, (FULL,), (HOST_FULL,), id="full only"),
        pytest.param(HOSTED | {"full_pages": 0}, (SWA,), (HOST_SWA,), id="swa only"),
        pytest.param(WINDOWED | {"full_pages": 16}, (FULL, SWA), (), id="no host"),
        pytest.param(HOSTED | {"full_pages": 16, "host_full_pages": 32}, (FULL, SWA), (HOST_FULL, HOST_SWA), id="both"),
    ],
)
def test_pool_without_pages_does_not_exist(fields, pools, host_pools):
    config = EngineConfig(page_size=4, **fields)

    assert (config.pools, config.host_pools) == (pools, host_pools)


def test_host_pool_of_exactly_one_window_is_valid():
    config = EngineConfig(page_size=4, swa_pages=8, sliding_window=9, host_full_pages=1, host_swa_pages=2)

    assert [pool.num_pages for pool in config.host_pools] == [1, 2]


@pytest.mark.parametrize(
    ("page_size", "window", "pages"),
    [
        pytest.param(4, 6, 4, id="window larger than a page"),
        pytest.param(64, 33, 3, id="window smaller than a page"),
        pytest.param(1, 2, 3, id="smallest window"),
        pytest.param(64, 128, 4, id="window of whole pages"),
    ],
)
def test_smallest_swa_pool_is_the_window_in_pages_plus_two(page_size, window, pages):
    config = EngineConfig(page_size=page_size, swa_pages=pages, sliding_window=window)

    assert config.least_swa_pages == pages
