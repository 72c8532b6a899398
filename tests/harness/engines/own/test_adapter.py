"""The adapter of our own engine: what it translates means the same on both sides."""

from typing import get_args

import pytest

import invariants.events as seen
from engine_under_test import events
from engine_under_test.config import EngineConfig
from harness.core.port import Submission
from harness.engines.own.adapter import NOT_JUDGED, TRANSLATION, SwardenEngine

TOLD = sorted(get_args(events.Event), key=lambda kind: kind.__name__)
TRANSLATED = [kind for kind in TOLD if kind not in NOT_JUDGED]


@pytest.mark.parametrize("kind", TRANSLATED, ids=lambda kind: kind.__name__)
def test_an_event_has_the_same_fields_under_the_same_name_on_both_sides(kind):
    """Events are translated by place, so a field that moves would be taken for another."""
    theirs = TRANSLATION[kind]

    assert (theirs.__name__, theirs._fields) == (kind.__name__, kind._fields)


def test_every_event_of_the_engine_is_translated_or_known_not_to_be_judged():
    assert [kind for kind in TOLD if kind not in TRANSLATION and kind not in NOT_JUDGED] == []


def test_every_event_that_invariants_know_is_told_by_somebody():
    assert set(get_args(seen.Event)) - set(TRANSLATION.values()) == set()


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
