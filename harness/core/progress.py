"""The number of consecutive steps in which an engine had work but launched no pass."""

from collections.abc import Iterable
from typing import NamedTuple

from swarden.invariants.events import Completed, Failed, Finished, FinishReason, Fired, Late, Launched, Refused

EXCUSES = (Completed, Fired, Late, Failed)


class IdleSteps:
    """Counts the steps with work since the last launched pass."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, events: Iterable[NamedTuple]) -> None:
        """Count a step with work; a launch restarts the count.

        A step is not counted if a pass completed, was late or failed, a request ended (but by an abort or its
        timeout), a fault fired, or a pool refused although enough units were free.
        """
        events = list(events)
        if any(isinstance(event, Launched) for event in events):
            self.count = 0
        elif not any(map(_is_excuse, events)):
            self.count += 1

    def restart(self) -> None:
        self.count = 0


def _is_excuse(event: NamedTuple) -> bool:
    if isinstance(event, Finished):
        return event.reason not in (FinishReason.ABORT, FinishReason.TIMEOUT)
    return isinstance(event, EXCUSES) or (isinstance(event, Refused) and event.want <= event.free)
