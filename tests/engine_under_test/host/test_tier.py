"""The host tier: the backups of each policy, evictions with backups, and the loads that are worth a copy."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.host.tier import HostTier
from swarden.engine_under_test.ports import Ports
from tests.engine_under_test.builders import HYBRID, CacheBench, Serving, node_spans
from tests.engine_under_test.host.bench import (
    HOSTED,
    SELECTIVE,
    WRITE_BACK,
    FailingStore,
    HostBench,
    ManualStore,
    copies,
)

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))
NONE, BOTH = "", "full swa"


def write_back() -> HostBench:
    """A cache of two keys, the least recently used first, without copies."""
    bench = HostBench(WRITE_BACK)
    bench.store.ends_on_wait = True
    bench.insert(LONG[:8])
    bench.insert(OTHER[:8])
    return bench


def tiers(bench: HostBench) -> list[tuple[str, str]]:
    """By node, the pools in which it is live, and the pools in which it has a copy."""
    nodes = zip(node_spans(bench.tree), copies(bench.tree), strict=True)
    return [(here.live, there.live) for here, there in nodes]


# --- due backups


@pytest.mark.parametrize(
    ("config", "times_found", "copied"),
    [
        pytest.param(HOSTED, 0, BOTH, id="at once"),
        pytest.param(SELECTIVE, 0, NONE, id="no match yet"),
        pytest.param(SELECTIVE, 1, BOTH, id="after a match"),
        pytest.param(WRITE_BACK, 0, NONE, id="not evicted"),
        pytest.param(WRITE_BACK, 5, NONE, id="not evicted, after five matches"),
    ],
)
def test_copy_is_made_when_the_policy_requires_it(config, times_found, copied):
    bench = HostBench(config)
    bench.insert(LONG[:8])
    for _ in range(times_found):
        bench.tier.found(bench.nodes()[0])

    bench.tier.back_up()
    bench.settle()

    assert tiers(bench) == [(BOTH, copied)]


def test_only_the_matched_part_of_a_prefix_is_copied():
    bench = HostBench(SELECTIVE)
    bench.insert(LONG)
    bench.tier.found(bench.match(LONG[:13]).node)

    bench.tier.back_up()
    bench.settle()

    assert tiers(bench) == [(BOTH, BOTH), (BOTH, NONE)]


# --- eviction


def test_write_back_copies_evicted_nodes_and_waits():
    bench = write_back()

    bench.tier.make_room({"full": 14, "swa": 0})

    assert (tiers(bench), bench.device.free, bench.store.num_waits) == (
        [(NONE, BOTH), (BOTH, NONE)],
        {"full": 14, "swa": 10},
        1,
    )


def test_write_back_repeats_until_enough_pages_are_free():
    bench = HostBench(WRITE_BACK)
    bench.store.ends_on_wait = True
    for tokens in (LONG[:8], LONG[:16], LONG):
        bench.insert(tokens)

    bench.tier.make_room({"full": 16, "swa": 0})

    assert ({live for live, _ in tiers(bench)}, bench.device.free) == ({NONE}, {"full": 16, "swa": 12})


def test_write_back_keeps_the_content():
    bench = write_back()
    bench.tier.make_room({"full": 14, "swa": 0})
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert bench.content([*LONG[:8], 1]) == {"full": LONG[:8], "swa": LONG[:8]}


def test_failed_backups_are_not_retried_without_limit():
    bench = HostBench(WRITE_BACK, FailingStore(8))
    bench.insert(LONG[:8])

    bench.tier.make_room({"full": 16, "swa": 0})

    assert bench.device.free == {"full": 16, "swa": 12}


def test_a_window_is_copied_before_it_is_evicted():
    bench = HostBench(WRITE_BACK)
    bench.store.ends_on_wait = True
    bench.insert(LONG)

    bench.tier.make_room({"full": 0, "swa": 9})

    assert tiers(bench) == [("full", BOTH), (BOTH, NONE)]


# --- the tier as a whole


def test_tier_without_host_pools_raises():
    bench = CacheBench(HYBRID)

    with pytest.raises(AssertionError) as caught:
        HostTier.for_config(HYBRID, bench.memory, bench.cache, Ports(host=ManualStore()))

    assert str(caught.value).splitlines()[0] == "a host tier needs pools on the host"


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_outputs_are_correct_without_an_observer(policy):
    """The host pools are so small that copies are made, dropped and loaded."""
    serving = Serving(replace(HOSTED, full_pages=8, host_full_pages=8, host_policy=policy), observed=False)
    prompts = (LONG, OTHER, LONG, THIRD, OTHER)

    received = [serving.serve(prompt).tokens for prompt in prompts]

    assert received == [serving.expected(prompt, max_new_tokens=4) for prompt in prompts]
