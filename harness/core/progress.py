"""How long an engine has computed nothing although it had work."""

from collections.abc import Iterable
from typing import NamedTuple

from invariants.events import Completed, Failed, Fired, Late, Launched, Refused

EXCUSES = (Completed, Fired, Late, Failed)


class IdleSteps:
    """Counts the steps since the last launch in which no pass was launched though there was work."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, events: Iterable[NamedTuple]) -> None:
        """The events of a step with work: a pass that completed, a fault or a refused pool excuses it."""
        events = list(events)
        if any(isinstance(event, Launched) for event in events):
            self.count = 0
        elif not any(map(_is_excuse, events)):
            self.count += 1

    def restart(self) -> None:
        self.count = 0


def _is_excuse(event: NamedTuple) -> bool:
    return isinstance(event, EXCUSES) or (isinstance(event, Refused) and event.want <= event.free)
