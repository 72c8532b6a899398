"""Faults behind the front, which no client of a server can arm."""

import random
from collections.abc import Collection, Mapping

from swarden.engine_under_test.ports import Forward, Ports
from swarden.fakes.backing import FakeBacking
from swarden.fakes.unsteady import UnsteadyForward

ALL: Mapping[str, str] = {**FakeBacking.FAULTS, **UnsteadyForward.FAULTS}
ONE_OF = 8  # crossings


class RandomFaults:
    """Each of these faults fires at one of ONE_OF crossings, at the same ones in each process."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._draw = random.Random(0)

    def fires(self, name: str) -> bool:
        return name in self._names and not self._draw.randrange(ONE_OF)


def ports_with(names: Collection[str], forward: Forward) -> Ports:
    """The ports of an engine with this forward; without faults it has no fakes."""
    if not names:
        return Ports(forward=forward)
    faults = RandomFaults(names)
    return Ports(forward=UnsteadyForward(forward, faults), backing=FakeBacking(faults))
