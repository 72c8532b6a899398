"""The engine's events in the words of the invariants."""

import pytest

from harness.engines.own.adapter import TRANSLATION


@pytest.mark.parametrize(("told", "seen"), TRANSLATION.items(), ids=[kind.__name__ for kind in TRANSLATION])
def test_an_event_and_its_translation_have_the_same_fields_in_the_same_order(told, seen):
    assert told._fields == seen._fields
