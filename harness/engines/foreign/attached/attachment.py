"""What each strict check of a scheduler has: the events since its last check, the flight recorder, and its reports."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec

from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.oplog import Header
from swarden.harness.engines.foreign.attached.follow import LOGGER, AttachSetting, MemoryViolation
from swarden.harness.engines.foreign.attached.levels import AttachedLevel
from swarden.harness.engines.foreign.attached.recorder import LiveRecorder
from swarden.harness.engines.foreign.parts import ReleaseParts
from swarden.harness.strict.reporter import Reporter
from swarden.invariants.violation import Violation


class Attachment:
    """Collects events for the level `_check`, and reports the violations that the level finds."""

    _check: AttachedLevel

    def __init__(
        self, engine: str, release: ReleaseParts, config: msgspec.Struct, *, lost: Sequence[str], setting: AttachSetting
    ) -> None:
        """`lost` are the settings of the scheduler that `config` lacks, and so a replay."""
        header = Header(engine=engine, version=release.text, configs=[msgspec.to_builtins(config)])
        self._engine = engine
        self._events: deque[NamedTuple] = deque()
        self._recorder = LiveRecorder(header, lost)
        self._reporter = Reporter(self._recorder, setting.out, error=MemoryViolation, reports=setting.reports)

    def detach(self) -> None:
        """End the check. The pools stay watched, without effect."""
        self._events = deque(maxlen=0)

    def failed(self, error: Exception) -> None:
        """The scheduler raised an error, which ends it."""
        self._recorder.turn_ended(())
        LOGGER.error("%s", self._reporter.save_log(fingerprint_of_error(error, self._engine)))

    def _notice(self, event: NamedTuple) -> None:
        self._events.append(event)

    def _take_events(self) -> Sequence[NamedTuple]:
        events = list(self._events)
        self._events.clear()
        return events

    def _report(self, violations: Sequence[Violation]) -> None:
        if violations:
            self._reporter.report(violations, self._check.evidence)


def numbering() -> Callable[[Hashable], int]:
    """Numbers keys from 1 in the order in which they are first seen; None is 0."""
    numbers: dict[Hashable, int] = {None: 0}
    return lambda key: numbers.setdefault(key, len(numbers))
