"""How a fake asks whether a fault comes true."""

from typing import Protocol


class Faults(Protocol):
    """The faults that are armed in a run.

    The effects of a fake's faults stand in its FAULTS.  The fake asks at each crossing of its port where one may fire.
    """

    def fires(self, name: str) -> bool:
        """Whether the fault comes true at this crossing."""
