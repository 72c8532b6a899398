"""The port through which a fake asks whether a fault fires."""

from typing import Protocol


class Faults(Protocol):
    """The faults that are armed in a run.

    `FAULTS` of a fake maps each fault to its effect.  A crossing is a use of its port; the fake calls `fires`
    at each crossing.
    """

    def fires(self, name: str) -> bool:
        """Does the fault fire at this crossing?"""
