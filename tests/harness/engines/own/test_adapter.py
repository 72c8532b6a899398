"""The adapter of our own engine: the events of copies to and from the host."""

import swarden.invariants.events as seen
from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.port import Submission
from swarden.harness.engines.own.adapter import SwardenEngine


def events_of(config):
    """The types of the transfer events of an engine, after one request and a few steps."""
    engine = SwardenEngine(config)
    engine.submit(Submission(range(8), 1, stop=(), priority=0, namespace=0))
    for _ in range(3):
        engine.step()
    events = engine.take_events()
    return [type(event) for event in events if isinstance(event, (seen.CopyBegan, seen.CopyEnded, seen.Copied))]


def test_copy_comparison_of_each_pool_follows_the_end_of_its_transfer():
    config = EngineConfig(page_size=4, full_pages=8, swa_pages=8, sliding_window=6, host_full_pages=8, host_swa_pages=8)

    assert events_of(config) == [seen.CopyBegan, seen.CopyEnded, seen.Copied, seen.Copied]


def test_engine_without_a_host_emits_no_transfer_events():
    assert events_of(EngineConfig(page_size=4, full_pages=8)) == []
