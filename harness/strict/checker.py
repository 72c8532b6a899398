"""The checkers that swarden offers for the strict memory check, a level each."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.errors import AccountingError
from swarden.harness.strict.audit import Audit
from swarden.harness.strict.check import Handler, StrictLevel
from swarden.harness.strict.content import Content, share_of
from swarden.harness.strict.outside import Outside
from swarden.harness.strict.recorder import FlightRecorder
from swarden.harness.strict.reporter import Reporter
from swarden.harness.strict.sampled import SampledCensus
from swarden.harness.strict.sums import Sums
from swarden.invariants.events import Event, Freed, Given, Taken

LOGS = Path(".swarden/strict")


class StrictChecker:
    """One level of the strict memory check, with the flight recorder beside it.

    A violation raises AccountingError.  With `reports`, the first violation of each fingerprint is logged instead, and
    the engine goes on.  `counts` has the violations per fingerprint; `log_path` is the op-log of the first failure.
    """

    def __init__(self, check: StrictLevel, *, reports: bool) -> None:
        self.recorder = FlightRecorder()
        self.reporter = Reporter(self.recorder, LOGS, error=AccountingError, reports=reports)
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
                    self.reporter.report(violations, self._check.evidence)

    @property
    def counts(self) -> Counter[str]:
        return self.reporter.counts

    @property
    def log_path(self) -> Path | None:
        return self.reporter.log_path


def sums(*, reports: bool) -> StrictChecker:
    """Per pool and step: the free, the owned and the fenced units must add up to the capacity."""
    return StrictChecker(Sums(), reports=reports)


def audit(*, reports: bool) -> StrictChecker:
    """Each move of a unit is checked against the owner of the unit."""
    return StrictChecker(Audit(), reports=reports)


def census(*, reports: bool) -> StrictChecker:
    """All invariants are checked each step; in large pools at some steps, and the owners of moved units at each."""
    return StrictChecker(SampledCensus(), reports=reports)


def content(*, reports: bool) -> StrictChecker:
    """All invariants are checked each step, and what is read is compared with what was written."""
    return StrictChecker(Content(share_of(os.environ)), reports=reports)
