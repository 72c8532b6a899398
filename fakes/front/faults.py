"""Faults behind the front, which no client of a server can arm."""

import random
from collections.abc import Collection, Mapping

from swarden.engine_under_test.ports import Forward, Ports
from swarden.fakes.backing import FakeBacking
from swarden.fakes.unsteady import UnsteadyForward

ALL: Mapping[str, str] = {**FakeBacking.FAULTS, **UnsteadyForward.FAULTS}
ONE_OF = 8  # crossings


class RandomFaults:
    """Once armed, each of these faults fires at one of ONE_OF crossings, at the same ones in each process."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self.is_armed = False
        self._draw = random.Random(0)

    def fires(self, name: str) -> bool:
        return self.is_armed and name in self.names and not self._draw.randrange(ONE_OF)


def ports_with(faults: RandomFaults, forward: Forward) -> Ports:
    """The ports of an engine with this forward; without faults it has no fakes."""
    if not faults.names:
        return Ports(forward=forward)
    return Ports(forward=UnsteadyForward(forward, faults), backing=FakeBacking(faults))
