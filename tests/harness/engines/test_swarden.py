"""The adapter of our own engine: what it translates means the same on both sides."""

from typing import get_args

import pytest

import invariants.events as seen
from engine_under_test import events
from harness.engines.swarden import NOT_JUDGED, TRANSLATION

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
    """What only a model foretells is told by the systems that have one."""
    told = set(TRANSLATION.values())

    assert set(get_args(seen.Event)) - told == {seen.Modelled}
