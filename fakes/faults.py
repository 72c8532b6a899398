"""The port through which a fake asks whether a fault fires."""

from typing import Protocol


class Faults(Protocol):
    """The faults that are armed in a run.

    FAULTS of a fake has the effect of each of its faults.  The fake calls `fires` at each crossing of its port.
    """

    def fires(self, name: str) -> bool:
        """Does the fault fire at this crossing?"""
