"""KV events: what is told to be cached where, block by block."""

from dataclasses import replace

import pytest

from engine_under_test.engine import create_engine
from engine_under_test.events import Dropped, Event, Split, Stored, Uprooted
from engine_under_test.kv_events import DEVICE, HOST, BlockRemoved, BlockStored, EventsLost, KVEvents
from engine_under_test.ports import Ports
from engine_under_test.sampling import SamplingParams
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from harness.engines.own.adapter import ReferenceModel
from tests.engine_under_test.builders import HYBRID

TWO_PAGES = Stored(1, 0, 0, 0, (1, 2, 3, 4, 5, 6, 7, 8), "full", on_host=False)
NEXT_PAGE = Stored(2, 1, 0, 8, (9, 10, 11, 12), "full", on_host=False)


def told(*events):
    """What comes of these, asked once at the end."""
    kv_events = KVEvents(page_size=4)
    for event in events:
        kv_events.notice(event)
    return list(kv_events)


def cached(events):
    """Per pool and tier the blocks that whoever follows the events believes to be there, each once."""
    blocks: set[tuple[str, str, str]] = set()
    for event in events:
        names = {(event.pool, event.tier, name) for name in event.block_hashes}
        blocks = blocks | names if isinstance(event, BlockStored) else blocks - names
    return blocks


def test_a_node_is_told_page_by_page():
    [event] = told(TWO_PAGES)

    assert (event.pool, event.tier, event.parent_hash, event.block_size) == ("full", DEVICE, None, 4)
    assert event.token_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    assert len(set(event.block_hashes)) == 2


def test_a_block_is_named_with_all_that_is_before_it():
    first, second = told(TWO_PAGES, NEXT_PAGE)

    assert second.parent_hash == first.block_hashes[-1]
    assert second.block_hashes != told(NEXT_PAGE._replace(parent=0))[0].block_hashes


def test_of_what_nobody_asks_for_the_last_are_kept_and_the_rest_is_counted():
    kv_events = KVEvents(page_size=4, most=2)
    events: list[Event] = [TWO_PAGES, NEXT_PAGE, Dropped(2, 4, "full", on_host=False)]
    for event in events:
        kv_events.notice(event)

    lost, *kept = kv_events

    assert lost == EventsLost(1)
    assert [type(event) for event in kept] == [BlockStored, BlockRemoved]
    assert list(kv_events) == []


def test_namespaces_have_blocks_of_their_own():
    [one], [other] = told(TWO_PAGES), told(TWO_PAGES._replace(namespace=1))

    assert set(one.block_hashes).isdisjoint(other.block_hashes)


@pytest.mark.parametrize(("on_host", "tier"), [(False, DEVICE), (True, HOST)], ids=["device", "host"])
def test_what_goes_is_told_by_its_tier(on_host, tier):
    stored, gone = told(TWO_PAGES._replace(on_host=on_host), Dropped(1, 8, "full", on_host))

    assert gone == BlockRemoved("full", tier, stored.block_hashes)


def test_a_split_node_goes_in_two_parts():
    stored, lower, upper = told(
        TWO_PAGES, Split(1, 7, 4), Dropped(1, 4, "full", on_host=False), Dropped(7, 4, "full", on_host=False)
    )

    assert (upper.block_hashes, lower.block_hashes) == (stored.block_hashes[:1], stored.block_hashes[1:])


def test_a_node_that_left_the_tree_is_forgotten():
    """Its id names another one then, with other tokens."""
    first, _, second = told(
        TWO_PAGES, Dropped(1, 8, "full", on_host=False), Uprooted(1), TWO_PAGES._replace(key=(8, 7, 6, 5))
    )

    assert set(first.block_hashes).isdisjoint(second.block_hashes)


def test_each_event_is_told_once():
    kv_events = KVEvents(page_size=4)
    kv_events.notice(TWO_PAGES)

    assert [len(list(kv_events)), len(list(kv_events))] == [1, 0]


def test_whoever_follows_the_events_of_an_engine_knows_what_is_cached():
    """Device and host, while prompts drive each other out, and nothing after a flush."""
    config = replace(HYBRID, host_full_pages=24, host_swa_pages=12, load_back_threshold=1)
    kv_events = KVEvents(page_size=config.page_size)
    engine = create_engine(config, ports=Ports(FakeForward(ReferenceModel()), FakeClock(), kv_events))
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

    assert all(counts[pool, tier] for pool, tier in counts), f"nothing was cached somewhere: {counts}"
    assert cached(flushed) == set()


def _after_a_flush(engine, kv_events):
    while engine.has_work:
        engine.step()
    engine.flush()
    return list(kv_events)
