"""The host tier: what is due for a copy by each policy, how room is made, and which loads are worth their while."""

from dataclasses import replace

import pytest

from engine_under_test.events import Demoted, Evicted, Removed
from engine_under_test.host.tier import HostTier
from engine_under_test.ports import Ports
from tests.engine_under_test.builders import HYBRID, CacheBench, Serving, Stretch, stretches
from tests.engine_under_test.host.bench import (
    HOSTED,
    SELECTIVE,
    WRITE_BACK,
    FailingStore,
    HostBench,
    StoreByHand,
    copies,
)

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))
NONE, BOTH = "", "full swa"


def write_back(*, full: int = 32, is_patient: bool = True) -> HostBench:
    """A cache of two keys, the first the least recently used, which the host has not seen."""
    bench = HostBench(replace(WRITE_BACK, host_full_pages=full))
    bench.hand.is_patient = is_patient
    bench.cached(LONG[:8])
    bench.cached(OTHER[:8])
    return bench


def tiers(bench: HostBench) -> list[tuple[str, str]]:
    """Of each node, in which pools it is live on the device, and in which on the host."""
    nodes = zip(stretches(bench.tree), copies(bench.tree), strict=True)
    return [(here.live, there.live) for here, there in nodes]


# --- what is due


@pytest.mark.parametrize(
    ("config", "times_found", "copied"),
    [
        pytest.param(HOSTED, 0, BOTH, id="at once"),
        pytest.param(SELECTIVE, 0, NONE, id="not yet found"),
        pytest.param(SELECTIVE, 1, BOTH, id="found"),
        pytest.param(WRITE_BACK, 0, NONE, id="not evicted"),
        pytest.param(WRITE_BACK, 5, NONE, id="not evicted, though it was found often"),
    ],
)
def test_the_policy_says_when_a_copy_is_due(config, times_found, copied):
    bench = HostBench(config)
    bench.cached(LONG[:8])
    for _ in range(times_found):
        bench.tier.found(bench.nodes()[0])

    bench.tier.back_up()
    bench.settle()

    assert tiers(bench) == [(BOTH, copied)]


def test_what_was_found_is_counted_up_to_the_root():
    bench = HostBench(SELECTIVE)
    bench.cached(LONG)

    bench.tier.found(bench.match(LONG[:13]).node)

    assert [(node.end, node.host.num_hits) for node in bench.nodes()] == [(12, 2), (20, 1)]


def test_of_a_long_prefix_only_what_was_found_is_copied():
    bench = HostBench(SELECTIVE)
    bench.cached(LONG)
    bench.tier.found(bench.match(LONG[:13]).node)

    bench.tier.back_up()
    bench.settle()

    assert tiers(bench) == [(BOTH, BOTH), (BOTH, NONE)]


def test_a_split_keeps_what_was_found():
    bench = HostBench(SELECTIVE)
    bench.cached(LONG[:8])
    bench.tier.found(bench.nodes()[0])
    bench.cached([*LONG[:4], *OTHER[:4]])

    assert [(node.start, node.host.num_hits) for node in bench.nodes()] == [(0, 2), (4, 2), (4, 1)]


# --- room


def test_what_has_a_copy_is_evicted_to_the_host():
    bench = HostBench()
    bench.copied(LONG[:8])

    bench.tier.make_room({"full": 15, "swa": 0})

    assert (tiers(bench), bench.device.free, len(bench.heard.of(Demoted))) == (
        [(NONE, BOTH)],
        {"full": 16, "swa": 12},
        1,
    )


def test_no_more_is_evicted_than_is_needed():
    bench = HostBench()
    for tokens in (LONG, OTHER):
        bench.copied(tokens[:8])

    bench.tier.make_room({"full": 14, "swa": 0})

    assert tiers(bench) == [(NONE, BOTH), (BOTH, BOTH)]


def test_where_enough_is_free_nothing_is_evicted():
    bench = write_back()

    bench.tier.make_room({"full": 12, "swa": 8})

    assert (tiers(bench), bench.heard.of(Evicted)) == ([(BOTH, NONE), (BOTH, NONE)], [])


def test_write_back_copies_what_it_evicts_and_waits_for_it():
    bench = write_back()

    bench.tier.make_room({"full": 14, "swa": 0})

    assert (tiers(bench), bench.device.free, bench.hand.num_waits) == (
        [(NONE, BOTH), (BOTH, NONE)],
        {"full": 14, "swa": 10},
        1,
    )


def test_write_back_goes_on_until_there_is_room():
    bench = HostBench(WRITE_BACK)
    bench.hand.is_patient = True
    for tokens in (LONG[:8], LONG[:16], LONG):
        bench.cached(tokens)

    bench.tier.make_room({"full": 16, "swa": 0})

    assert ({live for live, _ in tiers(bench)}, bench.device.free) == ({NONE}, {"full": 16, "swa": 12})


def test_write_back_keeps_the_content():
    bench = write_back()
    bench.tier.make_room({"full": 14, "swa": 0})
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert bench.content([*LONG[:8], 1]) == {"full": LONG[:8], "swa": LONG[:8]}


def test_what_write_back_reported_evicted_leaves_out_who_was_spared():
    bench = write_back()

    bench.tier.make_room({"full": 14, "swa": 0})

    assert bench.heard.of(Evicted) == [
        Evicted((("full", 0),), (("full", 0), ("swa", 0)), (("full", 4),)),
        Evicted((("full", 2),), (("full", 2), ("swa", 2)), (("full", 2),)),
    ]


def test_where_the_host_can_have_no_copy_what_is_evicted_is_lost():
    bench = write_back(full=1)

    bench.tier.make_room({"full": 14, "swa": 0})

    assert (tiers(bench), len(bench.heard.of(Removed))) == ([(BOTH, NONE)], 1)


def test_where_the_store_does_not_answer_others_are_evicted():
    """[0, 8) of the first is locked by its backup, which has not ended."""
    bench = write_back(is_patient=False)

    bench.tier.make_room({"full": 14, "swa": 0})

    assert (tiers(bench), bench.device.free, list(bench.hand.begun)) == ([(BOTH, NONE)], {"full": 14, "swa": 10}, [1])


def test_where_a_backup_fails_it_is_not_tried_for_ever():
    bench = HostBench(WRITE_BACK, FailingStore(8))
    bench.cached(LONG[:8])

    bench.tier.make_room({"full": 16, "swa": 0})

    assert bench.device.free == {"full": 16, "swa": 12}


def test_while_room_is_made_no_load_is_taken_in():
    """Whoever waits for it must be the first to lock what it brings."""
    bench = write_back()
    bench.tier.make_room({"full": 14, "swa": 0})
    load = bench.load([*LONG[:8], 1])
    bench.hand.end(load)
    bench.tier.make_room({"full": 14, "swa": 0})
    before = [transfer.id for transfer in bench.tier.under_way]

    bench.tier.poll()

    assert (before, bench.tier.under_way, bench.match([*LONG[:8], 1]).length) == ([load], [], 8)


def test_a_window_is_copied_before_it_is_evicted():
    bench = HostBench(WRITE_BACK)
    bench.hand.is_patient = True
    bench.cached(LONG)

    bench.tier.make_room({"full": 0, "swa": 9})

    assert tiers(bench) == [("full", BOTH), (BOTH, NONE)]


# --- loads that are worth their while


@pytest.mark.parametrize(
    ("least", "need"),
    [
        pytest.param(8, {"full": 2, "swa": 2}, id="as much as is asked for"),
        pytest.param(9, {"full": 2, "swa": 2}, id="a window, though less is saved"),
    ],
)
def test_a_load_brings_what_a_match_lacks(least, need):
    bench = HostBench(replace(HOSTED, load_back_threshold=least))
    bench.demoted(LONG[:8])

    assert bench.tier.pages_to_load(bench.match([*LONG[:8], 1])) == need


@pytest.mark.parametrize(
    ("least", "need"),
    [pytest.param(8, {"full": 2}, id="as much as is asked for"), pytest.param(9, {}, id="less than is asked for")],
)
def test_a_load_that_saves_too_little_is_not_worth_its_while(least, need):
    config = replace(HOSTED, swa_pages=0, host_swa_pages=0, sliding_window=None, load_back_threshold=least)
    bench = HostBench(config)
    bench.demoted(LONG[:8])

    assert bench.tier.pages_to_load(bench.match([*LONG[:8], 1])) == need


def test_where_all_is_on_the_device_nothing_is_loaded():
    bench = HostBench()
    bench.copied(LONG[:8])

    match = bench.match([*LONG[:8], 1])

    assert (match.reach, bench.tier.pages_to_load(match), bench.tier.load_under_way(match)) == (None, {}, None)


# --- the tier as a whole


def test_without_a_store_of_its_own_the_machine_copies():
    bench = CacheBench(HOSTED)
    tier = HostTier.for_config(HOSTED, bench.memory, bench.cache, Ports(observer=bench.heard))
    bench.cached(LONG[:8])
    [node] = bench.cache.tree.roots[0].children.values()
    tier.published(node)
    tier.back_up()

    tier.poll()

    assert copies(bench.cache.tree) == [Stretch(0, 8, BOTH)]


def test_without_pools_on_the_host_there_is_no_tier():
    bench = CacheBench(HYBRID)

    with pytest.raises(AssertionError) as caught:
        HostTier.for_config(HYBRID, bench.memory, bench.cache, Ports(host=StoreByHand()))

    assert str(caught.value).splitlines()[0] == "a host tier needs pools on the host"


def test_what_is_under_way_is_known():
    bench = HostBench()
    bench.cached(LONG[:8])
    bench.tier.back_up()
    before = [transfer.to_host for transfer in bench.tier.under_way]

    bench.settle()

    assert (before, bench.tier.under_way) == ([True], [])


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_nobody_needs_to_listen(policy):
    """With so little room on the host copies come, go, and are loaded."""
    serving = Serving(replace(HOSTED, full_pages=8, host_full_pages=8, host_policy=policy), observed=False)
    prompts = (LONG, OTHER, LONG, THIRD, OTHER)

    received = [serving.serve(prompt).tokens for prompt in prompts]

    assert received == [serving.expected(prompt, max_new_tokens=4) for prompt in prompts]
