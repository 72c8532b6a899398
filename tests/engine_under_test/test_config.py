"""An invalid configuration raises an error with the field, the value and the remedy."""

import pytest

from swarden.engine_under_test.config import EngineConfig, PoolSpec
from swarden.engine_under_test.errors import ConfigError

REFUSALS = [
    ("page_size", {"page_size": 3}, "page_size: 3 is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ("a fraction", {"page_size": 4.0}, "page_size: 4.0 is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ("a boolean", {"page_size": True}, "page_size: True is not one of 1, 2, 4, 8, 16, 32, 64, 128, 256"),
    ("page_reuse", {"page_reuse": "random"}, "page_reuse: 'random' is not one of lifo, fifo"),
    ("waiting_order", {"waiting_order": "sjf"}, "waiting_order: 'sjf' is not one of fcfs, lpm"),
    ("prefix_sharing", {"prefix_sharing": 1}, "prefix_sharing: 1 is not true or false"),
    (
        "a link timeout of one retransmission interval",
        {"link_retry_ms": 300, "link_timeout_ms": 300},
        "link_timeout_ms: 300 with link_retry_ms 300, after which messages are retransmitted; want more",
    ),
    ("overlap", {"overlap": 1}, "overlap: 1 is not true or false"),
    ("mixed_batches", {"mixed_batches": "yes"}, "mixed_batches: 'yes' is not true or false"),
    (
        "more drafts than lookahead",
        {"draft_tokens": 3, "lookahead_tokens": 2},
        "draft_tokens: 3 with lookahead_tokens 2, which reserves their pages; want at most as many",
    ),
    (
        "swa pool too small for the lookahead",
        {"page_size": 4, "swa_pages": 5, "sliding_window": 6, "lookahead_tokens": 5},
        "swa_pages: 5 cannot hold one request with sliding_window 6 and page_size 4; want at least 6",
    ),
    (
        "no pool",
        {"full_pages": 0},
        "full_pages: 0 with swa_pages 0 leaves no pool; give one of them pages",
    ),
    (
        "ratio above 1",
        {"new_token_ratio": 1.5},
        "new_token_ratio: 1.5 with new_token_ratio_floor 0.098; want 0 < new_token_ratio_floor <= new_token_ratio <= 1",
    ),
    (
        "floor above ratio",
        {"new_token_ratio": 0.5, "new_token_ratio_floor": 0.6},
        "new_token_ratio: 0.5 with new_token_ratio_floor 0.6; want 0 < new_token_ratio_floor <= new_token_ratio <= 1",
    ),
    ("share above 1", {"idle_session_share": 1.5}, "idle_session_share: 1.5; want 0 to 1"),
    (
        "window without a pool",
        {"sliding_window": 8},
        "sliding_window: 8 with swa_pages 0; give swa_pages or leave the window out",
    ),
    (
        "pool without a window",
        {"swa_pages": 8},
        "sliding_window: not given, and swa_pages is 8; want at least 2 tokens",
    ),
    (
        "window of 1",
        {"swa_pages": 8, "sliding_window": 1},
        "sliding_window: 1 is not a whole number of at least 2",
    ),
    (
        "swa pool too small for the window",
        {"page_size": 4, "swa_pages": 3, "sliding_window": 6},
        "swa_pages: 3 cannot hold one request with sliding_window 6 and page_size 4; want at least 4",
    ),
    (
        "host_policy",
        {"host_policy": "write_around"},
        "host_policy: 'write_around' is not one of write_through, write_through_selective, write_back",
    ),
    (
        "host pool above the token limit",
        {"host_full_pages": (1 << 22) + 1},
        "host_full_pages: 4194305 pages of 16 tokens; want at most 67108864 tokens",
    ),
    (
        "host pool without a device pool",
        {"full_pages": 0, "swa_pages": 8, "sliding_window": 6, "host_full_pages": 8, "host_swa_pages": 8},
        "host_full_pages: 8 with full_pages 0; give every pool one on the host, or none",
    ),
    (
        "device pool without a host pool",
        {"swa_pages": 8, "sliding_window": 6, "host_full_pages": 8},
        "host_swa_pages: 0 with swa_pages 8; give every pool one on the host, or none",
    ),
    (
        "host pools without prefix sharing",
        {"host_full_pages": 8, "prefix_sharing": False},
        "prefix_sharing: false with pools on the host, which hold shared prefixes; leave one out",
    ),
    (
        "a decode engine with pools on the host",
        {"role": "decode", "host_full_pages": 8},
        "role: decode with pools on the host, from which it would load nothing; "
        "give the pools to the prefill engine, or leave them out",
    ),
    (
        "host pool below one window",
        {"page_size": 4, "swa_pages": 8, "sliding_window": 10, "host_full_pages": 8, "host_swa_pages": 2},
        "host_swa_pages: 2 cannot hold one window of 10 tokens with page_size 4; want at least 3",
    ),
    ("a long context", {"max_context_len": (1 << 24) + 1}, "max_context_len: 16777217 is more than 16777216"),
    ("a huge number", {"max_context_len": 10**40}, f"max_context_len: 1{'0' * 17}...{'0' * 19} is more than 16777216"),
    ("a long wait", {"request_timeout_ms": 1 << 31}, "request_timeout_ms: 2147483648 is more than 2147483647"),
    ("many recorded ops", {"max_recorded_ops": 1 << 18}, "max_recorded_ops: 262144 is more than 131072"),
    (
        "many pages of one token",
        {"page_size": 1, "full_pages": 1 << 19},
        "the pages of all pools, those on the host too, and max_running_requests: 524304 in all; want at most 524288",
    ),
    (
        "many rows",
        {"max_running_requests": 1 << 19, "max_context_len": 2},
        "the pages of all pools, those on the host too, and max_running_requests: 524544 in all; want at most 524288",
    ),
    (
        "a wide request table",
        {"max_running_requests": 16, "page_size": 1, "max_context_len": (1 << 19) + 1},
        "max_running_requests times the pages of max_context_len: 8388624 in all; want at most 8388608",
    ),
]


@pytest.mark.parametrize(("fields", "message"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_invalid_configuration_raises(fields, message):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**fields)

    assert str(caught.value) == message


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
    with pytest.raises(ConfigError) as caught:
        EngineConfig.from_mapping({"page_size": 4, "pages": 8})

    assert str(caught.value) == (
        "pages: no such field; the fields are checksum_transfers, chunk_len, draft_tokens, full_pages, "
        "host_full_pages, host_policy, host_state_pages, "
        "host_swa_pages, idle_session_share, link_buffer_bytes, link_frame_bytes, link_retry_ms, link_timeout_ms, "
        "load_back_threshold, lookahead_tokens, "
        "max_context_len, "
        "max_estimated_new_tokens, "
        "max_forward_retries, max_recorded_ops, max_running_requests, mixed_batches, new_token_ratio, "
        "new_token_ratio_decay_steps, new_token_ratio_floor, overlap, page_reuse, page_size, poison_freed_pages, "
        "preemption_threshold, prefix_sharing, request_timeout_ms, reserved_decode_tokens, role, "
        "session_timeout_ms, sliding_window, state_interval, state_pages, state_slots, swa_pages, "
        "waiting_order, "
        "window_eviction_interval"
    )


def test_configuration_survives_a_round_trip_through_a_mapping():
    config = EngineConfig(page_size=4, full_pages=16, swa_pages=8, sliding_window=6, page_reuse="fifo")

    assert EngineConfig.from_mapping(config.to_mapping()) == config


@pytest.mark.parametrize(("overlap", "launches"), [(False, 1), (True, 2)], ids=["plain", "overlapped"])
def test_overlap_allows_two_passes_in_flight(overlap, launches):
    assert EngineConfig(overlap=overlap).most_launches == launches


FULL, SWA = PoolSpec("full", 16, None), PoolSpec("swa", 8, 6)


@pytest.mark.parametrize(
    ("fields", "pools"),
    [
        pytest.param({"full_pages": 16}, (FULL,), id="full only"),
        pytest.param({"full_pages": 0, "swa_pages": 8, "sliding_window": 6}, (SWA,), id="swa only"),
        pytest.param({"full_pages": 16, "swa_pages": 8, "sliding_window": 6}, (FULL, SWA), id="both"),
    ],
)
def test_pool_without_pages_does_not_exist(fields, pools):
    assert EngineConfig(page_size=4, **fields).pools == pools


HOST_FULL, HOST_SWA = PoolSpec("host full", 32, None), PoolSpec("host swa", 24, 6)


@pytest.mark.parametrize(
    ("fields", "pools"),
    [
        pytest.param({"full_pages": 16, "swa_pages": 8, "sliding_window": 6}, (), id="none"),
        pytest.param({"full_pages": 16, "host_full_pages": 32}, (HOST_FULL,), id="full only"),
        pytest.param(
            {"full_pages": 0, "swa_pages": 8, "sliding_window": 6, "host_swa_pages": 24}, (HOST_SWA,), id="swa only"
        ),
        pytest.param(
            {"full_pages": 16, "swa_pages": 8, "sliding_window": 6, "host_full_pages": 32, "host_swa_pages": 24},
            (HOST_FULL, HOST_SWA),
            id="both",
        ),
    ],
)
def test_host_pools_match_the_device_pools(fields, pools):
    assert EngineConfig(page_size=4, **fields).host_pools == pools


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
