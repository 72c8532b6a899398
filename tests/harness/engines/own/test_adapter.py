"""The adapter of our own engine: what it translates means the same on both sides."""

import invariants.events as seen
from engine_under_test.config import EngineConfig
from harness.components.translation import INVARIANT_EVENTS, TRANSLATION
from harness.core.port import Submission
from harness.engines.own.adapter import SwardenEngine


def test_each_event_that_invariants_judge_is_told_of_our_engine():
    assert set(INVARIANT_EVENTS.values()) == set(TRANSLATION.values())


def told_by(config):
    """The types of what an engine tells of its transfers, of one request and a few steps."""
    engine = SwardenEngine(config)
    engine.submit(Submission(range(8), 1, stop=(), priority=0, namespace=0))
    for _ in range(3):
        engine.step()
    told = engine.take_events()
    return [type(event) for event in told if isinstance(event, (seen.TransferBegan, seen.TransferEnded, seen.Copied))]


def test_what_a_copy_has_left_in_each_pool_is_told_right_after_its_end():
    config = EngineConfig(page_size=4, full_pages=8, swa_pages=8, sliding_window=6, host_full_pages=8, host_swa_pages=8)

    assert told_by(config) == [seen.TransferBegan, seen.TransferEnded, seen.Copied, seen.Copied]


def test_without_a_host_nothing_is_told_of_copies():
    assert told_by(EngineConfig(page_size=4, full_pages=8)) == []
