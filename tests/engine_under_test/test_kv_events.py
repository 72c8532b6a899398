"""KV events: which blocks are cached in which pool and tier."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.kv_events import DEVICE, HOST, BlockRemoved, BlockStored, EventsLost, KVEvents
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from swarden.invariants.events import Dropped, Event, Rooted, Split, Stored, Uprooted
from tests.engine_under_test.builders import HYBRID

TWO_PAGES = Stored(1, 0, 0, 0, (1, 2, 3, 4, 5, 6, 7, 8), "full", on_host=False)
NEXT_PAGE = Stored(2, 1, 0, 8, (9, 10, 11, 12), "full", on_host=False)


def kv_events_of(*events):
    """The KV events that these engine events give."""
    kv_events = KVEvents(page_size=4)
    for event in events:
        kv_events.notice(event)
    return list(kv_events)


def cached(events):
    """The blocks that are cached according to the events, as (pool, tier, hash)."""
    blocks: set[tuple[str, str, str]] = set()
    for event in events:
        names = {(event.pool, event.tier, name) for name in event.block_hashes}
        blocks = blocks | names if isinstance(event, BlockStored) else blocks - names
    return blocks


def test_stored_node_gives_one_block_per_page():
    [event] = kv_events_of(TWO_PAGES)

    assert (event.pool, event.tier, event.parent_hash, event.block_size) == ("full", DEVICE, None, 4)
    assert event.token_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    assert len(set(event.block_hashes)) == 2


def test_block_hash_depends_on_the_tokens_before_it():
    first, second = kv_events_of(TWO_PAGES, NEXT_PAGE)

    assert second.parent_hash == first.block_hashes[-1]
    assert second.block_hashes != kv_events_of(NEXT_PAGE._replace(parent=0))[0].block_hashes


def test_page_behind_a_node_that_never_held_units_has_the_hash_of_its_prefix():
    """Such a node is behind the window, where no component has the pages before the node."""
    [_, whole] = kv_events_of(TWO_PAGES, NEXT_PAGE)

    [alone] = kv_events_of(Rooted(1, 0, 0, TWO_PAGES.key), Rooted(2, 1, 0, NEXT_PAGE.key), NEXT_PAGE)

    assert alone == whole


def test_full_queue_keeps_the_last_events_and_counts_the_lost_ones():
    kv_events = KVEvents(page_size=4, most=2)
    events: list[Event] = [TWO_PAGES, NEXT_PAGE, Dropped(2, 4, "full", on_host=False)]
    for event in events:
        kv_events.notice(event)

    lost, *kept = kv_events

    assert lost == EventsLost(1)
    assert [type(event) for event in kept] == [BlockStored, BlockRemoved]
    assert list(kv_events) == []


@pytest.mark.parametrize(("on_host", "tier"), [(False, DEVICE), (True, HOST)], ids=["device", "host"])
def test_dropped_node_gives_a_removal_in_its_tier(on_host, tier):
    stored, gone = kv_events_of(TWO_PAGES._replace(on_host=on_host), Dropped(1, 8, "full", on_host))

    assert gone == BlockRemoved("full", tier, stored.block_hashes)


def test_split_node_is_removed_in_two_parts():
    stored, lower, upper = kv_events_of(
        TWO_PAGES, Split(1, 7, 4), Dropped(1, 4, "full", on_host=False), Dropped(7, 4, "full", on_host=False)
    )

    assert (upper.block_hashes, lower.block_hashes) == (stored.block_hashes[:1], stored.block_hashes[1:])


def test_id_of_a_removed_node_can_be_reused():
    """The second node with the same id has other tokens."""
    first, _, second = kv_events_of(
        TWO_PAGES, Dropped(1, 8, "full", on_host=False), Uprooted(1), TWO_PAGES._replace(key=(8, 7, 6, 5))
    )

    assert set(first.block_hashes).isdisjoint(second.block_hashes)


def test_events_of_an_engine_give_the_content_of_its_cache():
    """Prompts evict each other on the device and on the host.  A flush removes every block."""
    config = replace(HYBRID, host_full_pages=24, host_swa_pages=12, load_back_threshold=1)
    kv_events = KVEvents(page_size=config.page_size)
    engine = create_engine(config, ports=Ports(FakeForward(TagModel()), FakeClock(), kv_events))
    prompts = [[first, *range(40)] for first in (1, 2, 3, 1, 2)]
    for prompt in prompts:
        engine.generate([prompt], SamplingParams(2))
    events = list(kv_events)
    counts = {
        (pool.name, tier): sum(1 for name, place, _ in cached(events) if (name, place) == (pool.name, tier))
        for pool in config.pools
        for tier in (DEVICE, HOST)
    }
    flushed = [*events, *_after_a_flush(engine, kv_events)]

    assert all(counts[pool, tier] for pool, tier in counts), f"a pool and tier have no block: {counts}"
    assert cached(flushed) == set()


def _after_a_flush(engine, kv_events):
    while engine.has_work:
        engine.step()
    engine.flush()
    return list(kv_events)
