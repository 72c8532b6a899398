"""The checkers that swarden offers for the strict memory check, a level each."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_under_test.engine import Engine
from engine_under_test.errors import AccountingError
from engine_under_test.events import Event, Freed, Given, Taken
from harness.core.fingerprint import fingerprints
from harness.core.oplog import OpLogError
from harness.report.story import story
from harness.strict.audit import Audit
from harness.strict.census import Census
from harness.strict.check import Check, Handler
from harness.strict.outside import Outside
from harness.strict.recorder import FlightRecorder
from harness.strict.sums import Sums
from invariants.violation import Violation

LOGS = Path(".swarden/strict")
MAX_LOGS = 100  # in that folder, so that a server that restarts after each failure does not fill the disk
LOGGER = logging.getLogger("swarden.strict")


class StrictChecker:
    """One level of the strict memory check, with the flight recorder beside it.

    A violation raises AccountingError.  With `reports`, the first violation of each fingerprint is logged instead, and
    the engine goes on.  `counts` has the violations per fingerprint; `log_path` is the op-log of the first failure.
    """

    def __init__(self, check: Check, *, reports: bool) -> None:
        self.reports = reports
        self.counts: Counter[str] = Counter()
        self.log_path: Path | None = None
        self.recorder = FlightRecorder()
        self._check = check
        self._handlers: dict[type, tuple[Handler, ...]] = {}

    def attach(self, engine: Engine) -> None:
        outside = Outside()
        parts: tuple[Mapping[type, Handler], ...] = (
            {Taken: outside.taken, Given: outside.given, Freed: outside.freed},
            self.recorder.attach(engine, outside),
            self._check.attach(engine, outside),
        )
        for handlers_by_event in parts:
            for kind, handler in handlers_by_event.items():
                self._handlers[kind] = (*self._handlers.get(kind, ()), handler)

    def notice(self, event: Event) -> None:
        handlers = self._handlers.get(type(event))
        if handlers is not None:
            for handler in handlers:
                if violations := handler(event):
                    self._report(violations)

    def _report(self, violations: Sequence[Violation]) -> None:
        names = fingerprints(violations)
        is_first, is_new = not self.counts, any(name not in self.counts for name in names)
        self.counts.update(names)
        if self.reports and not is_new:
            return
        history, pools = self._check.evidence()
        lines = [story(violations, history, pools)]
        if is_first:
            lines.append(self._save_log(names[0]))
        if not self.reports:
            raise AccountingError("\n".join(lines))
        LOGGER.error("%s", "\n".join(lines))

    def _save_log(self, fingerprint: str) -> str:
        """Write the op-log of the flight recorder. Returns the line with its path, or with the error."""
        if len(list(LOGS.glob("*.oplog"))) >= MAX_LOGS:
            return f"not recorded: {LOGS} has {MAX_LOGS} op-logs; remove some"
        try:
            self.log_path = self.recorder.save(fingerprint, LOGS)
        except OpLogError as error:
            return f"not recorded: {error}"
        truncated = f" (truncated: {self.recorder.truncated})" if self.recorder.truncated else ""
        return f"replay: swarden replay {self.log_path}{truncated}"


def sums(*, reports: bool) -> StrictChecker:
    """Per pool and step: the free, the owned and the fenced units must add up to the capacity."""
    return StrictChecker(Sums(), reports=reports)


def audit(*, reports: bool) -> StrictChecker:
    """Each move of a unit is checked against the owner of the unit."""
    return StrictChecker(Audit(), reports=reports)


def census(*, reports: bool) -> StrictChecker:
    """All invariants are checked each step."""
    return StrictChecker(Census(), reports=reports)
