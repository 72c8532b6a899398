"""The search for the versions between which a failure appears and disappears."""

import pytest

from harness.commands.bisect import Boundaries, boundaries

VERSIONS = [str(number) for number in range(1, 12)]


@pytest.mark.parametrize("first", range(11))
@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_both_boundaries_are_found_with_few_replays(first, length):
    failing = VERSIONS[first : first + length]
    asked = set()

    def fails(version):
        asked.add(version)
        return version in failing

    for known in failing:
        asked.clear()
        found = boundaries(VERSIONS, known, fails)
        after = VERSIONS[first + length] if first + length < len(VERSIONS) else None
        assert found == Boundaries(failing[0] if first else None, after)
        assert len(asked) <= 8
