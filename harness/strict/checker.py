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
from harness.strict.check import Check, Hearer
from harness.strict.outside import Outside
from harness.strict.recorder import FlightRecorder
from harness.strict.sums import Sums
from invariants.violation import Violation

LOGS = Path(".swarden/strict")
MOST_LOGS = 100  # in that folder: whoever restarts a server that fails does not fill the disk
LOGGER = logging.getLogger("swarden.strict")


class StrictChecker:
    """One level of the strict memory check, with the flight recorder beside it.

    Raises AccountingError at what is wrong; one that `reports` logs it, the first time that it shows, and goes
    on.  `counts` says how often each fingerprint showed; `log_path` is where the first failure was written.
    """

    def __init__(self, check: Check, *, reports: bool) -> None:
        self.reports = reports
        self.counts: Counter[str] = Counter()
        self.log_path: Path | None = None
        self.recorder = FlightRecorder()
        self._check = check
        self._hearers: dict[type, tuple[Hearer, ...]] = {}

    def attach(self, engine: Engine) -> None:
        outside = Outside()
        parts: tuple[Mapping[type, Hearer], ...] = (
            {Taken: outside.taken, Given: outside.given, Freed: outside.freed},
            self.recorder.attach(engine, outside),
            self._check.attach(engine, outside),
        )
        for hears in parts:
            for kind, hear in hears.items():
                self._hearers[kind] = (*self._hearers.get(kind, ()), hear)

    def notice(self, event: Event) -> None:
        hearers = self._hearers.get(type(event))
        if hearers is not None:
            for hear in hearers:
                if violations := hear(event):
                    self._tell(violations)

    def _tell(self, violations: Sequence[Violation]) -> None:
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
        """Write what the flight recorder has; the line that says where it is, or why it is not."""
        if len(list(LOGS.glob("*.oplog"))) >= MOST_LOGS:
            return f"not recorded: {LOGS} has {MOST_LOGS} op-logs; remove some"
        try:
            self.log_path = self.recorder.save(fingerprint, LOGS)
        except OpLogError as error:
            return f"not recorded: {error}"
        lost = f" (truncated: {self.recorder.truncated})" if self.recorder.truncated else ""
        return f"replay: swarden replay {self.log_path}{lost}"


def sums(*, reports: bool) -> StrictChecker:
    """Per pool and step, free and accounted for against the capacity."""
    return StrictChecker(Sums(), reports=reports)


def audit(*, reports: bool) -> StrictChecker:
    """Each move of a unit, against who owns it."""
    return StrictChecker(Audit(), reports=reports)


def census(*, reports: bool) -> StrictChecker:
    """All invariants, each step."""
    return StrictChecker(Census(), reports=reports)
